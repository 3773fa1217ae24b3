//! What a fuzzer calls: every parser of a peer's bytes and of configuration, with any bytes at all. None may panic,
//! take memory that was only announced, or keep what it took; each asserts what always holds, and returns how far it got
//! (texts understood, steps taken, answers or values read), which tells whether an input is worth keeping.
//!
//! `pg-pipeline`'s file of this name has the same face on purpose. Behind the feature `fuzzing`, for the targets under
//! `tests/fuzz`.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use wire_pipeline::answer::{Budget, Collector};
use wire_pipeline::buffer::{Out, ReadBuffer};
use wire_pipeline::row::Rows as _;
use wire_pipeline::wire::{Framed, Occasion, Received, Wire as _};

use crate::auth::Passwords;
use crate::config::Config;
use crate::protocol::answer::{Answer, Ran, ResultSet};
use crate::protocol::command::Bound;
use crate::protocol::request::Request;
use crate::protocol::response::Done;
use crate::protocol::startup::{Encryption, Secured, Startup, StartupParams, Step};
use crate::protocol::wire::{MySqlWire, Pending};
use crate::row::{Row, Rows};
use crate::statement::{Learned, StatementKey};
use crate::types::{Date, DateTime, Decimal, Time};

/// The limit of an answer, far below what a length can announce.
const LIMIT: usize = 1 << 16;

/// A URL.
pub fn connection_string(bytes: &[u8]) -> usize {
    let text = String::from_utf8_lossy(bytes);
    let Ok(config) = text.parse::<Config>() else { return 0 };
    // What was understood can be shown and checked.
    let _ = (format!("{config:?}"), config.validate());
    1
}

/// The connection phase: what a server says, in pieces of the first byte's size, which also says how it is encrypted.
pub fn startup(bytes: &[u8]) -> usize {
    let mut steps = 0;
    let (size, bytes) = piece_size(bytes);
    let encryption = match size % 3 {
        0 => Encryption::Required("REQUIRED"),
        1 => Encryption::IfOffered,
        _ => Encryption::None,
    };
    let params = StartupParams { user: "app".to_owned(), encryption, ..StartupParams::default() };
    let Ok(mut startup) = Startup::new(params) else { return 0 };
    let mut input = BytesMut::new();
    let mut rest = bytes;
    while !rest.is_empty() {
        // Nothing may be there ahead of TLS.
        let size = if steps == 0 { 1 } else { size.min(rest.len()) };
        let (piece, behind) = rest.split_at(size);
        rest = behind;
        input.extend_from_slice(piece);
        loop {
            match startup.receive(&mut input) {
                Ok(None) => break,
                Ok(Some(Step::Send(_))) => steps += 1,
                Ok(Some(Step::StartTls(_))) => {
                    steps += 1;
                    let secured = if encryption == Encryption::IfOffered {
                        Secured::Unproven([1; 32])
                    } else {
                        Secured::Accepted
                    };
                    startup.secured(secured).expect("in turn");
                    if startup.answer_password(Passwords::one("secret")).is_err() {
                        return steps;
                    }
                }
                Ok(Some(Step::NeedPassword)) => {
                    steps += 1;
                    if startup.answer_password(Passwords::one("secret")).is_err() {
                        return steps;
                    }
                }
                Ok(Some(Step::Done(_))) => return steps + 1,
                Err(_) => return steps,
            }
        }
    }
    steps
}

/// Answers to requests of every kind: the first byte says what is asked, the second in what pieces the answers come.
pub fn answers(bytes: &[u8]) -> usize {
    let Some((plan, bytes)) = bytes.split_first() else { return 0 };
    let mut answers = 0;
    let (size, bytes) = piece_size(bytes);
    let budget = Budget::new(LIMIT, LIMIT);
    let cache = if plan & 1 == 0 { 4 } else { 0 };
    let mut wire = MySqlWire::new(&budget, cache, [Bytes::from_static(b"SET @a = 1")].into());
    let statement = Learned::new(StatementKey::of("SELECT ?"));
    let mut fifo = ask(&mut wire, &statement, *plan);
    let mut input = ReadBuffer::new();
    'pieces: for piece in bytes.chunks(size) {
        input.extend(piece);
        loop {
            match wire.receive(fifo.front_mut(), &mut input) {
                Ok(Received::More) => break,
                Ok(Received::Answer(reply)) => {
                    assert!(fifo.pop_front().is_some(), "an answer that nobody asked for");
                    answers += 1;
                    if let Ok(Answer::Ran(ran)) = reply {
                        answers += read_rows(Rows::new(ran, &statement));
                    }
                    let _ = (wire.condition(), wire.last_words());
                }
                Ok(Received::Forerunner { result, .. }) => {
                    assert!(fifo.pop_front().is_some(), "an answer that nobody asked for");
                    answers += 1;
                    // Prepared: what waited for it goes out now.
                    if result.is_ok() {
                        fifo.extend(ask(&mut wire, &statement, 1 << 7));
                    }
                }
                Err(_) => break 'pieces,
            }
        }
        assert!(budget.held() <= LIMIT, "{} bytes are held", budget.held());
    }
    drop((fifo, wire));
    assert_eq!(budget.held(), 0, "the memory of answers is given back");
    answers
}

/// A row of one column of any type in either format: the first five bytes are its type code, flags and collation, of
/// which one bit also chooses the format.
pub fn values(bytes: &[u8]) -> usize {
    let Some((&[code, f0, f1, c0, c1], value)) = bytes.split_first_chunk() else { return 0 };
    let text = c1 & 0x80 != 0;
    let definition =
        [&b"\x03def\0\0\0\x01n\0\x0c"[..], &[c0, c1, 0, 0, 0, 0, code, f0, f1, 0, 0, 0]].concat();
    let row = if text { value.to_vec() } else { [&[0, 0], value].concat() };
    let budget = Budget::new(1 << 24, 1 << 24);
    let mut collector = Collector::new(&budget);
    for packet in [&definition, &row] {
        let [a, b, c, _] = u32::try_from(packet.len()).unwrap_or(u32::MAX).to_le_bytes();
        collector.push(&[&[a, b, c, 1], packet.as_slice()].concat());
        collector.end_message();
    }
    let (Ok(packets), Ok(done)) = (collector.finish(), Done::parse(b"\0\0\0\x02\0\0\0")) else { return 0 };
    let results = smallvec::smallvec![ResultSet { columns: 1, rows: 1, done }];
    read_rows(Rows::new(Ran { results, packets, text }, &Learned::new(StatementKey::of("x"))))
}

/// One more than the first byte: the size of the pieces in which the rest arrives.
fn piece_size(bytes: &[u8]) -> (usize, &[u8]) {
    bytes.split_first().map_or((1, bytes), |(size, rest)| (usize::from(*size) + 1, rest))
}

/// Requests as `plan` has them, sent one behind the other.
fn ask(wire: &mut MySqlWire, statement: &Arc<Learned>, plan: u8) -> VecDeque<Pending> {
    let mut requests = Vec::new();
    for bit in 1..8 {
        if plan & (1 << bit) == 0 {
            continue;
        }
        match bit {
            1..4 => requests.push(Request::query("SELECT 1")),
            4 => requests.extend(wire.settle(Occasion::Returned { touched: true })),
            _ => {
                let bound = Bound { count: 1, bytes: Bytes::from_static(&[0, 1, 1, 0, 7]) };
                requests.push(Request::execute(statement, bound));
            }
        }
    }
    let mut out = Out::default();
    let sent = requests.iter_mut().filter_map(|request| match wire.frame(request, &mut out) {
        Framed::Sent(pending) | Framed::Ahead { pending, .. } => Some(pending),
        _ => None,
    });
    sent.collect()
}

fn read_rows(rows: Result<Rows, crate::error::Fault>) -> usize {
    let mut values = 0;
    let Ok(mut rows) = rows else { return 0 };
    while let Ok(Some(row)) = rows.next() {
        for index in 0..row.len() {
            values += read_value(row, index);
        }
    }
    values
}

/// As how many types it could be read.
fn read_value(row: &Row, index: usize) -> usize {
    let mut values = 0;
    macro_rules! as_each {
        ($($type:ty),+) => { $( values += usize::from(row.try_get::<Option<$type>>(index).is_ok()); )+ };
    }
    as_each!(bool, i8, i16, i32, i64, u8, u16, u32, u64, f32, f64, String, &str, Vec<u8>, &[u8]);
    as_each!(Date, DateTime, Decimal, Time);
    values
}
