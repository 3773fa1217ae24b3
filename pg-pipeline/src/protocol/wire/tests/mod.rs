//! Transcripts of a connection after the handshake: what is sent as exact bytes, and what is made of the answers.
//!
//! Every transcript is also played with its answers cut in two at every position, byte by byte, ended at every
//! position, and with every bit of every byte changed.

mod answers;
mod framing;
mod hostile;
mod session;
mod stale;

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::sync::Arc;

use postgres_types::Type;
use wire_pipeline::answer::Budget;
use wire_pipeline::buffer::{Out, ReadBuffer};
use wire_pipeline::row::Rows as _;
use wire_pipeline::wire::{Condition, Framed, Opening, Received, Request as _, Wire as _};

use super::super::answer::{Answer, Ran};
use super::super::request::{Part, Request};
use super::{Pending, PgWire};
use crate::error::Fault;
use crate::params::{Params, encode};
use crate::row::Rows;
use crate::statement::{Learned, StatementKey};

/// Answers that carry nothing. Source throughout: PostgreSQL documentation, "Message Formats".
const PARSED: &[u8] = b"1\0\0\0\x04";
const BOUND: &[u8] = b"2\0\0\0\x04";
const CLOSED: &[u8] = b"3\0\0\0\x04";
const NO_DATA: &[u8] = b"n\0\0\0\x04";
const EMPTY: &[u8] = b"I\0\0\0\x04";
const READY: &[u8] = b"Z\0\0\0\x05I";
const READY_IN_TRANSACTION: &[u8] = b"Z\0\0\0\x05T";
const READY_IN_FAILED_TRANSACTION: &[u8] = b"Z\0\0\0\x05E";
const TAKES_NOTHING: &[u8] = b"t\0\0\0\x06\0\0";
const TAKES_INT4: &[u8] = b"t\0\0\0\x0a\0\x01\0\0\0\x17";
/// One column `id` of type int4.
const GIVES_ID: &[u8] = b"T\0\0\0\x1b\0\x01id\0\0\0\0\0\0\0\0\0\0\x17\0\x04\xff\xff\xff\xff\0\x01";
/// One column `name` of type text.
const GIVES_NAME: &[u8] = b"T\0\0\0\x1d\0\x01name\0\0\0\0\0\0\0\0\0\0\x19\xff\xff\xff\xff\xff\xff\0\x01";
/// A row with the int4 7, and one with the text "x".
const ROW_7: &[u8] = b"D\0\0\0\x0e\0\x01\0\0\0\x04\0\0\0\x07";
const ROW_X: &[u8] = b"D\0\0\0\x0b\0\x01\0\0\0\x01x";

fn message(tag: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len() + 4).expect("small").to_be_bytes();
    [&[tag], &length[..], body].concat()
}

fn complete(tag: &str) -> Vec<u8> {
    message(b'C', format!("{tag}\0").as_bytes())
}

fn report(kind: u8, severity: &str, code: &str) -> Vec<u8> {
    message(kind, format!("S{severity}\0V{severity}\0C{code}\0Mas it is\0\0").as_bytes())
}

fn error(code: &str) -> Vec<u8> {
    report(b'E', "ERROR", code)
}

fn notice() -> Vec<u8> {
    report(b'N', "NOTICE", "00000")
}

fn parameter(name: &str, value: &str) -> Vec<u8> {
    message(b'S', format!("{name}\0{value}\0").as_bytes())
}

fn notification() -> Vec<u8> {
    message(b'A', b"\0\0\x12\x34channel\0payload\0")
}

fn learned(text: &str, types: &[Type]) -> Arc<Learned> {
    let learned = Learned::new(StatementKey::of(text));
    learned.learn(types.into());
    learned
}

fn part<P: Params>(statement: &Arc<Learned>, params: &P) -> Part {
    let bound = encode(params, statement.parameters().expect("learnt")).expect("encodes");
    Part { statement: Arc::clone(statement), bound }
}

fn query<P: Params>(statement: &Arc<Learned>, params: &P) -> Request {
    let Part { statement, bound } = part(statement, params);
    Request::query(statement, bound, true)
}

/// `request` as the first of a transaction.
fn opened(mut request: Request) -> Request {
    let begin = Learned::without_parameters("BEGIN");
    request.open(Opening(Box::new(query(&begin, &()))));
    request
}

/// Requests that go out together, and what the server says to them.
struct Round {
    ask: Box<dyn Fn() -> Vec<Request>>,
    sent: Option<Vec<u8>>,
    answers: Vec<u8>,
    heard: Vec<String>,
}

/// What is asked and answered on one connection.
struct Dialogue {
    cache: usize,
    rounds: Vec<Round>,
    lost: Option<&'static str>,
}

impl Dialogue {
    fn new() -> Self {
        Self::with_cache(64)
    }

    /// With room for so many prepared statements.
    fn with_cache(cache: usize) -> Self {
        Self { cache, rounds: Vec::new(), lost: None }
    }

    /// A round: requests that go out together.
    fn asks(mut self, ask: impl Fn() -> Vec<Request> + 'static) -> Self {
        let round = Round { ask: Box::new(ask), sent: None, answers: Vec::new(), heard: Vec::new() };
        self.rounds.push(round);
        self
    }

    fn round(&mut self) -> &mut Round {
        self.rounds.last_mut().expect("a round")
    }

    /// The exact bytes of the round's requests.
    fn sends(mut self, pieces: &[&[u8]]) -> Self {
        self.round().sent = Some(pieces.concat());
        self
    }

    /// What the server says.
    fn says(mut self, pieces: &[&[u8]]) -> Self {
        self.round().answers = pieces.concat();
        self
    }

    /// What becomes of it, answer by answer.
    fn hears<'a>(mut self, heard: impl IntoIterator<Item = &'a str>) -> Self {
        self.round().heard = heard.into_iter().map(str::to_owned).collect();
        self
    }

    /// The connection is given up, in words that begin like this.
    fn loses_the_connection(mut self, why: &'static str) -> Self {
        self.lost = Some(why);
        self
    }

    fn check(self) {
        let whole = self.play(&mut |bytes| vec![bytes.to_vec()]);
        assert!(whole.refused.is_empty(), "refused: {:?}", whole.refused);
        for (round, sent) in self.rounds.iter().zip(&whole.sent) {
            if let Some(expected) = &round.sent {
                assert_eq!(sent.escape_ascii().to_string(), expected.escape_ascii().to_string());
            }
        }
        let expected: Vec<_> = self.rounds.iter().map(|round| round.heard.clone()).collect();
        assert_eq!(whole.heard, expected, "lost: {:?}", whole.lost);
        match (&whole.lost, self.lost) {
            (Some(error), Some(why)) => assert!(error.starts_with(why), "{error}"),
            (lost, why) => assert_eq!(lost.as_deref(), why),
        }
        self.check_cuts(&whole);
        self.check_changes();
    }

    /// However the bytes arrive, the answers are the same; and what is missing is waited for.
    fn check_cuts(&self, whole: &Played) {
        let bytewise = self.play(&mut |bytes| bytes.iter().map(|byte| vec![*byte]).collect());
        assert_eq!(&bytewise, whole, "byte by byte");
        let length: usize = self.rounds.iter().map(|round| round.answers.len()).sum();
        for cut in 0..length {
            let mut before = 0;
            let halves = self.play(&mut |bytes| {
                let (head, tail) = bytes.split_at(cut.saturating_sub(before).min(bytes.len()));
                before += bytes.len();
                vec![head.to_vec(), tail.to_vec()]
            });
            assert_eq!(&halves, whole, "cut at {cut}");
            let mut left = cut;
            let ended = self.play(&mut |bytes| {
                let there = bytes.get(..left.min(bytes.len())).expect("in range").to_vec();
                left -= there.len();
                vec![there]
            });
            assert!(ended.lost.is_none() || ended == *whole, "ended at {cut}: {:?}", ended.lost);
            let heard = |played: &Played| played.heard.concat();
            assert!(heard(whole).starts_with(&heard(&ended)), "ended at {cut}");
        }
    }

    /// A changed bit is an error or another answer; never a panic, and never more answers than requests.
    fn check_changes(&self) {
        let length: usize = self.rounds.iter().map(|round| round.answers.len()).sum();
        for changed in 0..8 * length {
            let (at, bit) = (changed / 8, changed % 8);
            let mut before = 0;
            let played = self.play(&mut |bytes| {
                let mut bytes = bytes.to_vec();
                if let Some(byte) = at.checked_sub(before).and_then(|at| bytes.get_mut(at)) {
                    *byte ^= 1 << bit;
                }
                before += bytes.len();
                vec![bytes]
            });
            let answers = played.heard.concat().len();
            assert!(answers <= played.asked, "{answers} answers to {} requests, bit {changed}", played.asked);
        }
    }

    /// Plays it; `deliver` says how the bytes of a round arrive.
    fn play(&self, deliver: &mut dyn FnMut(&[u8]) -> Vec<Vec<u8>>) -> Played {
        let mut line = Line::new(self.cache);
        let mut played = Played::default();
        for round in &self.rounds {
            let requests = (round.ask)();
            played.asked += requests.len();
            played.sent.push(line.send(requests));
            let mut heard = Vec::new();
            for piece in deliver(&round.answers) {
                if played.lost.is_none()
                    && let Err(error) = line.receive(&piece, &mut heard)
                {
                    played.lost = Some(describe_error(&error));
                }
            }
            played.heard.push(heard);
        }
        let budget = Arc::clone(&line.budget);
        played.refused = std::mem::take(&mut line.refused);
        drop(line);
        assert_eq!(budget.held(), 0, "the memory of answers is given back");
        played
    }
}

/// What came of a dialogue.
#[derive(Debug, Default, PartialEq, Eq)]
struct Played {
    asked: usize,
    sent: Vec<Vec<u8>>,
    heard: Vec<Vec<String>>,
    refused: Vec<String>,
    lost: Option<String>,
}

/// A connection and its FIFO, as a pump would drive them.
struct Line {
    wire: PgWire,
    budget: Arc<Budget>,
    input: ReadBuffer,
    fifo: VecDeque<Pending>,
    /// What was not sent, and why.
    refused: Vec<String>,
}

impl Line {
    fn new(cache: usize) -> Self {
        let budget = Budget::new(1 << 20, 1 << 20);
        let setup = vec!["SET a = 1".to_owned()].into();
        let reported = [("TimeZone".to_owned(), "UTC".to_owned())];
        let wire = PgWire::new(&budget, cache, setup, reported);
        Self { wire, budget, input: ReadBuffer::new(), fifo: VecDeque::new(), refused: Vec::new() }
    }

    /// The bytes of `requests`.
    fn send(&mut self, requests: Vec<Request>) -> Vec<u8> {
        let mut out = Out::default();
        for mut request in requests {
            match self.wire.frame(&mut request, &mut out) {
                Framed::Sent(pending) => self.fifo.push_back(pending),
                Framed::Refused(error) => self.refused.push(error.to_string()),
                Framed::Ahead { .. } | Framed::Waits { .. } => panic!("nothing is sent ahead"),
            }
        }
        let mut sent = Vec::new();
        while !out.is_empty() {
            let count = out.front().len();
            sent.extend_from_slice(out.front());
            out.advance(count);
        }
        sent
    }

    /// Hears bytes; an error costs the connection.
    fn receive(&mut self, bytes: &[u8], heard: &mut Vec<String>) -> Result<(), Fault> {
        self.input.extend(bytes);
        loop {
            match self.wire.receive(self.fifo.front_mut(), &mut self.input)? {
                Received::More => return Ok(()),
                Received::Answer(reply) => {
                    self.fifo.pop_front().expect("an answer belongs to a request");
                    let session = match self.wire.condition() {
                        Condition::Clean => "",
                        Condition::Touched => ", touched",
                        Condition::InTransaction => ", in transaction",
                    };
                    heard.push(describe(reply) + session);
                }
                Received::Forerunner { .. } => panic!("nothing is sent ahead"),
            }
        }
    }
}

fn describe(reply: Result<Answer, Fault>) -> String {
    match reply {
        Ok(Answer::Ran(ran)) => describe_ran(ran),
        Ok(Answer::Learnt { parameters }) => format!("learnt {parameters:?}"),
        Ok(Answer::Script) => "script".to_owned(),
        // Whoever asked is told; what was known of the statement is renewed all the same.
        Ok(Answer::Stale(stale)) if !stale.safe => describe_error(&stale.error),
        Ok(Answer::Stale(stale)) => {
            let again = if stale.relearn { "learn again" } else { "parse again" };
            format!("stale, {again}: {}", stale.error.server().expect("the server's").code())
        }
        Err(error) => describe_error(&error),
    }
}

/// Rows affected by each statement, then the last one's rows.
fn describe_ran(ran: Ran) -> String {
    let mut text = "ran".to_owned();
    for tag in &ran.tags {
        write!(text, " {}", tag.rows).expect("memory");
    }
    let columns = ran.description.as_ref().and_then(|description| description.columns.get().cloned());
    let mut rows = Rows::new(columns.unwrap_or_else(|| Arc::from([])), ran.rows);
    loop {
        match rows.next() {
            Ok(Some(row)) => {
                text.push(':');
                for (index, column) in row.columns().iter().enumerate() {
                    let value = match row.try_get::<Option<i32>>(index) {
                        Ok(value) => format!("{value:?}"),
                        Err(_) => format!("{:?}", row.try_get::<Option<&str>>(index).ok()),
                    };
                    write!(text, " {}={value}", column.name()).expect("memory");
                }
            }
            Ok(None) => return text,
            Err(error) => return text + "; " + &describe_error(&error),
        }
    }
}

fn describe_error(error: &Fault) -> String {
    format!("{:?}/{:?}: {error}", error.kind(), error.outcome())
}
