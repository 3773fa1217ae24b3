//! What a fuzzer calls: every parser of a peer's bytes and of configuration, with any bytes at all. None may panic,
//! take memory that was only announced, or keep what it took; each asserts what always holds, and returns how far it got
//! (texts understood, steps taken, answers or values read), which tells whether an input is worth keeping.
//!
//! `mysql-pipeline`'s file of this name has the same face on purpose. Behind the feature `fuzzing`, for the targets
//! under `tests/fuzz`.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use postgres_types::{Kind, Type};
use wire_pipeline::answer::Budget;
use wire_pipeline::buffer::{Out, ReadBuffer};
use wire_pipeline::row::Rows as _;
use wire_pipeline::wire::{Framed, Occasion, Received, Wire as _};

use crate::auth::{self, Channel};
use crate::column::Column;
use crate::config::passfile::{self, Entry};
use crate::config::{Config, TargetSessionAttrs, service};
use crate::params::encode;
use crate::protocol::answer::Answer;
use crate::protocol::request::{Part, Request};
use crate::protocol::role;
use crate::protocol::startup::{Startup, StartupParams, Step, Version, Versions};
use crate::protocol::wire::{Pending, PgWire};
use crate::row::{Row, Rows};
use crate::statement::{Learned, StatementKey};

/// The limit of an answer, far below what a length of four bytes can announce.
const LIMIT: usize = 1 << 16;

/// A connection string, in both of its forms.
pub fn connection_string(bytes: &[u8]) -> usize {
    let text = String::from_utf8_lossy(bytes);
    let Ok(config) = text.parse::<Config>() else { return 0 };
    // What was understood can be shown and checked.
    let _ = (format!("{config:?}"), config.validate());
    1
}

/// A file of passwords, or of services: the first byte says which.
pub fn files(bytes: &[u8]) -> usize {
    let Some((choice, text)) = bytes.split_first() else { return 0 };
    if choice % 2 == 0 {
        let entry = Entry { host: "db", port: 5432, database: "app", user: "me" };
        return usize::from(passfile::first_match(text, entry).is_some());
    }
    let text = String::from_utf8_lossy(text);
    let Ok(Some(settings)) = service::find("app", &text) else { return 0 };
    assert!(settings.iter().all(|setting| setting.name != "service"), "a service names no other one");
    1
}

/// A server's certificate, of which only the signature's algorithm is looked at.
pub fn certificate(bytes: &[u8]) -> usize {
    let Some(hash) = auth::end_point(bytes) else { return 0 };
    assert!(matches!(hash.len(), 32 | 48 | 64), "a hash of {} bytes", hash.len());
    1
}

/// The answer to the question for a server's role, in pieces of the first byte's size.
pub fn role(bytes: &[u8]) -> usize {
    let (size, bytes) = piece_size(bytes);
    let target = if size % 2 == 0 { TargetSessionAttrs::Primary } else { TargetSessionAttrs::ReadOnly };
    let (mut answer, mut input) = (role::Answer::default(), BytesMut::new());
    for piece in bytes.chunks(size) {
        input.extend_from_slice(piece);
        match answer.receive(target, &mut input) {
            Ok(None) => {}
            Ok(Some(_)) => return 1,
            Err(_) => return 0,
        }
    }
    0
}

/// The connection phase: what a server says, in pieces of the first byte's size, which also says over what channel, and
/// which version of the protocol is asked for.
pub fn startup(bytes: &[u8]) -> usize {
    let mut steps = 0;
    let (size, bytes) = piece_size(bytes);
    // The seeds come in pieces of 256 or 3 bytes: over TLS, so that every method can be asked for.
    let channel = match size % 4 {
        1 => Channel::Plain,
        2 => Channel::Private,
        3 => Channel::Encrypted { end_point: None },
        _ => Channel::Encrypted { end_point: Some(vec![7; 32]) },
    };
    let newest = if size % 8 < 4 { Version::V3_2 } else { Version::V3_0 };
    let params = StartupParams {
        user: "app".to_owned(),
        application_name: Some("fuzz".to_owned()),
        channel,
        versions: Versions { oldest: Version::V3_0, newest },
        ..StartupParams::default()
    };
    let Ok((mut startup, _)) = Startup::new(params) else { return 0 };
    let mut input = BytesMut::new();
    for piece in bytes.chunks(size) {
        input.extend_from_slice(piece);
        loop {
            match startup.receive(&mut input) {
                Ok(None) => break,
                Ok(Some(Step::Send(_) | Step::Notice(_))) => steps += 1,
                Ok(Some(Step::NeedPassword | Step::NeedToken)) => {
                    steps += 1;
                    if startup.answer_password(Some("secret")).is_err() {
                        return steps;
                    }
                }
                Ok(Some(Step::Done(greeting))) => {
                    let _ = greeting.key.map(|key| key.cancel_request());
                    return steps + 1;
                }
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
    let mut wire = PgWire::new(&budget, cache, vec!["SET a = 1".to_owned()].into(), []);
    let mut fifo = ask(&mut wire, *plan);
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
                        let columns =
                            ran.description.as_ref().and_then(|description| description.columns.get());
                        let columns = columns.cloned().unwrap_or_else(|| Arc::from([]));
                        answers += read_rows(Rows::new(columns, ran.rows));
                    }
                    let _ = (wire.condition(), wire.last_words());
                }
                Ok(Received::Forerunner { .. }) => panic!("nothing is sent ahead"),
                Err(_) => break 'pieces,
            }
        }
        assert!(budget.held() <= LIMIT, "{} bytes are held", budget.held());
    }
    drop((fifo, wire));
    assert_eq!(budget.held(), 0, "the memory of answers is given back");
    answers
}

/// A value of any type, decoded as every Rust type: the first byte chooses the server's type.
pub fn values(bytes: &[u8]) -> usize {
    let Some((choice, value)) = bytes.split_first() else { return 0 };
    let types = [
        Type::BOOL,
        Type::INT4,
        Type::FLOAT8,
        Type::TEXT,
        Type::BYTEA,
        Type::TIMESTAMPTZ,
        Type::INET,
        Type::JSONB,
        Type::INT4_ARRAY,
        Type::TEXT_ARRAY,
        Type::INT4_RANGE,
        Type::VARBIT,
        Type::new("hstore".to_owned(), 100_000, Kind::Simple, "public".to_owned()),
        Type::new("numbers".to_owned(), 100_001, Kind::Domain(Type::INT4_ARRAY), "public".to_owned()),
        Type::new("mood".to_owned(), 100_002, Kind::Enum(vec!["ok".to_owned()]), "public".to_owned()),
    ];
    let r#type = types[usize::from(*choice) % types.len()].clone();
    let length = u32::try_from(value.len()).unwrap_or(u32::MAX);
    let message = [
        &b"D"[..],
        &length.wrapping_add(10).to_be_bytes(),
        &1_u16.to_be_bytes(),
        &length.to_be_bytes(),
        value,
    ]
    .concat();
    let budget = Budget::new(1 << 24, 1 << 24);
    let mut collector = wire_pipeline::answer::Collector::new(&budget);
    collector.push(&message);
    let Ok(chunks) = collector.finish() else { return 0 };
    read_rows(Rows::new([Column::new("value".into(), r#type)].into(), chunks))
}

/// One more than the first byte: the size of the pieces in which the rest arrives.
fn piece_size(bytes: &[u8]) -> (usize, &[u8]) {
    bytes.split_first().map_or((1, bytes), |(size, rest)| (usize::from(*size) + 1, rest))
}

/// Requests as `plan` has them, sent one behind the other.
fn ask(wire: &mut PgWire, plan: u8) -> VecDeque<Pending> {
    let known = Learned::new(StatementKey::of("SELECT $1"));
    known.learn([Type::INT4].into());
    let part = |n: i32| Part {
        statement: Arc::clone(&known),
        bound: encode(&(n,), &[Type::INT4]).unwrap_or_else(|_| Bytes::new()),
    };
    let mut requests = Vec::new();
    for bit in 1..8 {
        if plan & (1 << bit) == 0 {
            continue;
        }
        match bit {
            1 => requests.push(Request::learn(Learned::new(StatementKey::of("SELECT 1")))),
            2 => requests.push(Request::script("SELECT 1; SELECT 2", false)),
            3 => requests.push(Request::batch(vec![part(1), part(2)])),
            4 => requests.extend(wire.settle(Occasion::Returned { touched: true })),
            _ => {
                let Part { statement, bound } = part(bit);
                requests.push(Request::query(statement, bound, true));
            }
        }
    }
    let mut out = Out::default();
    let sent = requests.iter_mut().filter_map(|request| match wire.frame(request, &mut out) {
        Framed::Sent(pending) => Some(pending),
        _ => None,
    });
    sent.collect()
}

fn read_rows(mut rows: Rows) -> usize {
    let mut values = 0;
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
        ($($type:ty),+) => { $( values += usize::from(row.try_get::<Option<$type>>(index).is_ok()) + usize::from(row.try_get::<Vec<Option<$type>>>(index).is_ok()); )+ };
    }
    as_each!(bool, i8, i16, i32, i64, u32, f32, f64, String, &str, Vec<u8>, &[u8]);
    values += usize::from(row.try_get::<std::time::SystemTime>(index).is_ok());
    values += usize::from(row.try_get::<std::net::IpAddr>(index).is_ok());
    values += usize::from(row.try_get::<HashMap<String, Option<String>>>(index).is_ok());
    values
}
