//! Transcripts: what goes out and what comes in, byte by byte; and the same on the real engine.

mod answers;
mod engine;
mod framing;
mod hostile;
mod session;
mod stale;

use wire_pipeline::wire::ParkKey;

use super::*;
use crate::protocol::answer::Ran;
use crate::protocol::packet::{FULL, Packets};

const OK: &[u8] = b"\x07\0\0\x01\x00\x00\x00\x02\x00\x00\x00";
/// id 1, no columns, 1 parameter; the parameter's definition is opaque to us.
const PREPARED_1: &[u8] = b"\x0C\0\0\x01\x00\x01\0\0\0\0\0\x01\0\0\0\0\x01\0\0\x02?";
/// 1146 = 0x047A
const NO_TABLE: &[u8] = b"\x11\0\0\x01\xFF\x7A\x04#42S02no table";

fn wire() -> MySqlWire {
    MySqlWire::new(&Budget::new(1 << 20, 1 << 20), 8, Arc::new([]))
}

/// One LONGLONG.
fn one(value: u8) -> Bound {
    Bound { count: 1, bytes: Bytes::from(vec![0, 1, 8, 0, value, 0, 0, 0, 0, 0, 0, 0]) }
}

fn written(out: &mut Out) -> Vec<u8> {
    let mut bytes = Vec::new();
    while !out.is_empty() {
        bytes.extend_from_slice(out.front());
        out.advance(out.front().len());
    }
    bytes
}

fn sent(framed: Framed<MySqlWire>) -> Pending {
    match framed {
        Framed::Sent(pending) => pending,
        _ => panic!("not sent"),
    }
}

fn ahead(framed: Framed<MySqlWire>) -> (Pending, ParkKey) {
    match framed {
        Framed::Ahead { pending, key } => (pending, key),
        _ => panic!("not ahead"),
    }
}

/// Lets `bytes` arrive in pieces of `size`.
fn receive(
    wire: &mut MySqlWire,
    mut head: Option<&mut Pending>,
    bytes: &[u8],
    size: usize,
) -> Result<Received<MySqlWire>, Fault> {
    let mut input = ReadBuffer::new();
    let mut result = Ok(Received::More);
    for piece in bytes.chunks(size) {
        assert!(matches!(result, Ok(Received::More)), "complete before its end");
        input.extend(piece);
        result = Ok(wire.receive(head.as_deref_mut(), &mut input)?);
    }
    assert!(input.data().is_empty() || matches!(result, Ok(Received::More)), "bytes were left");
    result
}

fn answer(wire: &mut MySqlWire, head: &mut Pending, bytes: &[u8]) -> Result<Answer, Fault> {
    match receive(wire, Some(head), bytes, usize::MAX)? {
        Received::Answer(answer) => answer,
        Received::More => panic!("not complete"),
        Received::Forerunner { .. } => panic!("a forerunner"),
    }
}

fn ran(answer: Result<Answer, Fault>) -> Ran {
    match answer.expect("an answer") {
        Answer::Ran(ran) => ran,
        Answer::Stale(error) => panic!("stale: {error}"),
        Answer::Said(said) => panic!("said: {said:?}"),
    }
}

/// A wire that has `statement` prepared under id 1.
fn prepared(statement: &Arc<Learned>) -> MySqlWire {
    let mut wire = wire();
    let mut out = Out::default();
    let (mut pending, _) = ahead(wire.frame(&mut Request::execute(statement, one(1)), &mut out));
    let received = receive(&mut wire, Some(&mut pending), PREPARED_1, usize::MAX);
    assert!(matches!(received, Ok(Received::Forerunner { result: Ok(()), .. })));
    wire
}

fn execute(wire: &mut MySqlWire, statement: &Arc<Learned>) -> Pending {
    sent(wire.frame(&mut Request::execute(statement, one(1)), &mut Out::default()))
}
