//! Transcripts: what goes out and what comes in, byte by byte.

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

#[test]
fn a_cold_statement_is_prepared_once_and_executed_under_the_id_that_came() {
    let statement = Learned::of("DO ?");
    let mut wire = wire();
    let mut out = Out::default();
    let mut first = Request::execute(&statement, one(1));
    let mut second = Request::execute(&Learned::of("DO ?"), one(2));

    let (mut pending, key) = ahead(wire.frame(&mut first, &mut out));
    assert_eq!(written(&mut out), b"\x05\0\0\0\x16DO ?");
    assert!(matches!(wire.frame(&mut second, &mut out), Framed::Waits { key: waits } if waits == key));
    assert!(out.is_empty());

    let received = receive(&mut wire, Some(&mut pending), PREPARED_1, usize::MAX);
    assert!(matches!(received, Ok(Received::Forerunner { key: woken, result: Ok(()) }) if woken == key));

    let mut first = sent(wire.frame(&mut first, &mut out));
    // EXECUTE: id 1, flags 0, iterations 1, NULL bitmap, types follow, LONGLONG, 1
    assert_eq!(written(&mut out), b"\x16\0\0\0\x17\x01\0\0\0\0\x01\0\0\0\0\x01\x08\0\x01\0\0\0\0\0\0\0");
    let ran = ran(answer(&mut wire, &mut first, OK));
    assert_eq!(ran.results.len(), 1);
    assert_eq!(wire.condition(), Condition::Clean);
    sent(wire.frame(&mut second, &mut out));
}

#[test]
fn rows_are_collected_as_they_come_whatever_the_pieces() {
    let statement = Learned::of("SELECT ?");
    let bytes = [
        b"\x01\0\0\x01\x02".as_slice(), // two columns
        b"\x05\0\0\x02\x03defA",        // their definitions, opaque to us
        b"\x05\0\0\x03\x03defB",
        b"\x03\0\0\x04\x00\x00\x07",                 // a row
        b"\x04\0\0\x05\x00\x04\x01x",                // another
        b"\x07\0\0\x06\xFE\x00\x00\x22\x00\x01\x00", // OK in the form that ends rows; one warning
    ]
    .concat();
    for size in 1..=bytes.len() {
        let mut wire = prepared(&statement);
        let mut pending = execute(&mut wire, &statement);
        let received = receive(&mut wire, Some(&mut pending), &bytes, size);
        let Ok(Received::Answer(answer)) = received else { panic!("not complete in pieces of {size}") };
        let ran = ran(answer);
        let [result] = &ran.results[..] else { panic!("one result") };
        assert_eq!((result.columns, result.rows, result.done.warnings), (2, 2, 1), "{size}");
        let packets: Vec<Vec<u8>> = Packets::new(&ran.packets).map(std::borrow::Cow::into_owned).collect();
        assert_eq!(packets, [&b"\x03defA"[..], b"\x03defB", b"\x00\x00\x07", b"\x00\x04\x01x"], "{size}");
    }
}

#[test]
fn a_row_of_several_frames_is_one_row() {
    let statement = Learned::of("SELECT ?");
    let mut wire = MySqlWire::new(&Budget::new(64 << 20, 64 << 20), 8, Arc::new([]));
    let mut out = Out::default();
    let (mut pending, _) = ahead(wire.frame(&mut Request::execute(&statement, one(1)), &mut out));
    let _ = receive(&mut wire, Some(&mut pending), PREPARED_1, usize::MAX);
    let mut pending = execute(&mut wire, &statement);
    let mut bytes = b"\x01\0\0\x01\x01\x05\0\0\x02\x03defA".to_vec();
    // a full frame, a frame that begins like an error, and a row of exactly one full frame and its empty end
    bytes.extend_from_slice(b"\xFF\xFF\xFF\x03");
    bytes.extend(std::iter::repeat_n(0, FULL));
    bytes.extend_from_slice(b"\x02\0\0\x04\xFF\xFE");
    bytes.extend_from_slice(b"\xFF\xFF\xFF\x05");
    bytes.extend(std::iter::repeat_n(0, FULL));
    bytes.extend_from_slice(b"\0\0\0\x06");
    bytes.extend_from_slice(b"\x07\0\0\x07\xFE\x00\x00\x02\x00\x00\x00");
    let received = receive(&mut wire, Some(&mut pending), &bytes, 100_003);
    let Ok(Received::Answer(answer)) = received else { panic!("not complete") };
    let ran = ran(answer);
    assert_eq!(ran.results[0].rows, 2);
    let sizes: Vec<usize> = Packets::new(&ran.packets).map(|packet| packet.len()).collect();
    assert_eq!(sizes, [5, FULL + 2, FULL]);
}

#[test]
fn a_refused_prepare_is_forgotten_and_says_why() {
    let statement = Learned::of("DO ?");
    let mut wire = wire();
    let mut out = Out::default();
    let (mut pending, key) = ahead(wire.frame(&mut Request::execute(&statement, one(1)), &mut out));
    let received = receive(&mut wire, Some(&mut pending), NO_TABLE, 1);
    let Ok(Received::Forerunner { key: failed, result: Err(error) }) = received else { panic!("refused") };
    assert_eq!(failed, key);
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Database, Outcome::Failed));
    assert_eq!(error.server().map(DatabaseError::number), Some(1146));
    // Next time it is tried again, under another key.
    let (_, again) = ahead(wire.frame(&mut Request::execute(&statement, one(1)), &mut out));
    assert_ne!(again, key);
}

#[test]
fn an_error_in_the_middle_of_rows_ends_the_answer() {
    let statement = Learned::of("SELECT ?");
    let mut wire = prepared(&statement);
    let mut pending = execute(&mut wire, &statement);
    let bytes = [
        b"\x01\0\0\x01\x01\x05\0\0\x02\x03defA".as_slice(),
        b"\x03\0\0\x03\x00\x00\x07",
        b"\x14\0\0\x04\xFF\x25\x05#70100interrupted", // 1317 = 0x0525
    ]
    .concat();
    let error = answer(&mut wire, &mut pending, &bytes).expect_err("interrupted");
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Database, Outcome::Failed));
    drop(pending);
    assert_eq!(wire.budget.held(), 0);
}

#[test]
fn a_command_with_several_results_ends_with_the_last() {
    let statement = Learned::of("CALL p(?)");
    let mut wire = prepared(&statement);
    let mut pending = execute(&mut wire, &statement);
    let bytes = [
        b"\x01\0\0\x01\x01\x05\0\0\x02\x03defA".as_slice(),
        b"\x03\0\0\x03\x00\x00\x07",
        b"\x07\0\0\x04\xFE\x00\x00\x0A\x00\x00\x00", // more results exist
        b"\x07\0\0\x05\x00\x03\x00\x02\x00\x00\x00", // three rows affected; the last
    ]
    .concat();
    let ran = ran(answer(&mut wire, &mut pending, &bytes));
    let shape: Vec<_> =
        ran.results.iter().map(|result| (result.columns, result.rows, result.done.affected_rows)).collect();
    assert_eq!(shape, [(1, 1, 0), (0, 0, 3)]);
}

#[test]
fn an_error_behind_a_result_leaves_it_unknown_what_has_happened() {
    let statement = Learned::of("CALL p(?)");
    let mut wire = prepared(&statement);
    let mut pending = execute(&mut wire, &statement);
    let bytes =
        [b"\x07\0\0\x01\x00\x01\x00\x0A\x00\x00\x00".as_slice(), b"\x11\0\0\x02\xFF\x7A\x04#42S02no table"];
    let error = answer(&mut wire, &mut pending, &bytes.concat()).expect_err("the second failed");
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Database, Outcome::Unknown));
}

#[test]
fn an_opening_is_confirmed_before_what_it_opens_is_sent() {
    let statement = Learned::of("DO ?");
    for cold in [true, false] {
        let mut wire = if cold { wire() } else { prepared(&statement) };
        let mut out = Out::default();
        let mut request = Request::execute(&statement, one(1));
        request.opening = Some(Bytes::from_static(b"BEGIN"));
        let (mut pending, _) = ahead(wire.frame(&mut request, &mut out));
        let begin = b"\x06\0\0\0\x03BEGIN".as_slice();
        let prepare = b"\x05\0\0\0\x16DO ?".as_slice();
        assert_eq!(written(&mut out), [begin, if cold { prepare } else { &[] }].concat());
        // OK: in a transaction; each command counts from its own beginning.
        let ok = b"\x07\0\0\x01\x00\x00\x00\x03\x00\x00\x00".as_slice();
        let bytes = [ok, if cold { PREPARED_1 } else { &[] }].concat();
        let received = receive(&mut wire, Some(&mut pending), &bytes, 3);
        assert!(matches!(received, Ok(Received::Forerunner { result: Ok(()), .. })));
        assert_eq!(wire.condition(), Condition::InTransaction);
        sent(wire.frame(&mut request, &mut out));
    }
}

#[test]
fn what_cannot_be_opened_is_not_sent() {
    let statement = Learned::of("DO ?");
    let mut wire = wire();
    let mut request = Request::execute(&statement, one(1));
    request.opening = Some(Bytes::from_static(b"BEGIN"));
    let (mut pending, _) = ahead(wire.frame(&mut request, &mut Out::default()));
    let received = receive(&mut wire, Some(&mut pending), &[NO_TABLE, PREPARED_1].concat(), 1);
    let Ok(Received::Forerunner { result: Err(error), .. }) = received else { panic!("refused") };
    assert_eq!(error.server().map(DatabaseError::number), Some(1146));
    // The prepare behind it has succeeded all the same.
    execute(&mut wire, &statement);
}

#[test]
fn a_wrong_number_of_parameters_is_refused_and_nothing_is_written() {
    let statement = Learned::of("DO ?");
    let mut wire = prepared(&statement);
    let mut out = Out::default();
    let mut request = Request::execute(&statement, Bound::default());
    request.opening = Some(Bytes::from_static(b"BEGIN"));
    let Framed::Refused(error) = wire.frame(&mut request, &mut out) else { panic!("refused") };
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Encode, Outcome::NotSent));
    assert!(out.is_empty());
    assert!(request.opening.is_some(), "the next request takes it along");
}

#[test]
fn a_statement_that_the_server_wants_prepared_again_is_closed_in_line() {
    // 1615 = 0x064F, 1243 = 0x04DB; only the first one still exists.
    let cases = [(b"\x0B\0\0\x01\xFF\x4F\x06#HY000??", true), (b"\x0B\0\0\x01\xFF\xDB\x04#HY000??", false)];
    for (bytes, exists) in cases {
        let statement = Learned::of("DO ?");
        let mut wire = prepared(&statement);
        let mut pending = execute(&mut wire, &statement);
        assert!(matches!(answer(&mut wire, &mut pending, bytes), Ok(Answer::Stale(_))));
        let mut out = Out::default();
        ahead(wire.frame(&mut Request::execute(&statement, one(1)), &mut out));
        let close = b"\x05\0\0\0\x19\x01\0\0\0".as_slice();
        let prepare = b"\x05\0\0\0\x16DO ?".as_slice();
        assert_eq!(written(&mut out), [if exists { close } else { &[] }, prepare].concat());
    }
}

#[test]
fn the_session_is_judged_by_what_an_ok_says() {
    let statement = Learned::of("DO ?");
    let mut wire = prepared(&statement);
    let mut pending = execute(&mut wire, &statement);
    // in a transaction, with autocommit
    ran(answer(&mut wire, &mut pending, b"\x07\0\0\x01\x00\x00\x00\x03\x00\x00\x00"));
    assert_eq!(wire.condition(), Condition::InTransaction);
    let [rollback] = &wire.settle(Occasion::Tainted)[..] else { panic!("one request") };
    assert!(matches!(&rollback.what, What::Query(text) if text == "ROLLBACK"));

    let mut pending = execute(&mut wire, &statement);
    // a setting was changed
    ran(answer(&mut wire, &mut pending, b"\x07\0\0\x01\x00\x00\x00\x02\x40\x00\x00"));
    assert_eq!(wire.condition(), Condition::Touched);
    let mut requests = wire.settle(Occasion::Tainted);
    let [reset] = &mut requests[..] else { panic!("one request") };
    let mut out = Out::default();
    let mut pending = sent(wire.frame(reset, &mut out));
    ran(answer(&mut wire, &mut pending, OK));
    assert_eq!(wire.condition(), Condition::Clean);
    ahead(wire.frame(&mut Request::execute(&statement, one(1)), &mut out));
}

#[test]
fn a_transaction_that_comes_back_is_rolled_back_before_autocommit_is_on_again() {
    let statement = Learned::of("DO ?");
    let mut wire = prepared(&statement);
    let mut pending = execute(&mut wire, &statement);
    // no autocommit, and nothing open
    ran(answer(&mut wire, &mut pending, b"\x07\0\0\x01\x00\x00\x00\x00\x00\x00\x00"));
    assert_eq!(wire.condition(), Condition::Touched);
    let requests = wire.settle(Occasion::Returned { touched: false });
    // One text: when the ROLLBACK is refused, what would commit is not run.
    let [script] = &requests[..] else { panic!("one request") };
    assert!(script.own);
    assert!(matches!(&script.what, What::Script(text) if text == "ROLLBACK; SET autocommit = 1"));
}

/// A wire with an open transaction.
fn opened(statement: &Arc<Learned>) -> MySqlWire {
    let mut wire = prepared(statement);
    let mut request = Request { part: true, ..Request::execute(statement, one(1)) };
    request.opening = Some(Bytes::from_static(b"SET autocommit = 0"));
    let (mut opening, _) = ahead(wire.frame(&mut request, &mut Out::default()));
    let ok = b"\x07\0\0\x01\x00\x00\x00\x00\x00\x00\x00";
    let received = receive(&mut wire, Some(&mut opening), ok, usize::MAX);
    assert!(matches!(received, Ok(Received::Forerunner { result: Ok(()), .. })));
    wire
}

fn part(what: What) -> Request {
    Request { part: true, ..Request::new(what) }
}

#[test]
fn nothing_is_committed_after_the_server_has_undone_the_transaction() {
    // 1213 = 0x04BD, 1205 = 0x04B5
    for number in [0xBD, 0xB5] {
        let statement = Learned::of("DO ?");
        let mut wire = opened(&statement);
        let mut first = execute(&mut wire, &statement);
        let mut second = execute(&mut wire, &statement);
        let deadlock = [b"\x0D\0\0\x01\xFF", &[number][..], b"\x04#40001lost"].concat();
        answer(&mut wire, &mut first, &deadlock).expect_err("a deadlock");
        // What was on its way runs in a transaction that nobody commits.
        ran(answer(&mut wire, &mut second, b"\x07\0\0\x01\x00\x00\x00\x01\x00\x00\x00"));
        let further = What::Execute { statement: Arc::clone(&statement), bound: one(1) };
        for what in [further, What::Commit { strict: false }] {
            let mut out = Out::default();
            let Framed::Refused(error) = wire.frame(&mut part(what), &mut out) else { panic!("sent") };
            assert_eq!((error.kind(), error.outcome()), (ErrorKind::Database, Outcome::Failed));
            assert_eq!(error.server().map(DatabaseError::number), Some(0x0400 | u16::from(number)));
            assert!(out.is_empty());
        }
    }
}

#[test]
fn an_error_that_nobody_saw_keeps_a_transaction_from_being_committed() {
    let statement = Learned::of("DO ?");
    let mut wire = opened(&statement);
    let mut pending = execute(&mut wire, &statement);
    answer(&mut wire, &mut pending, NO_TABLE).expect_err("no table");
    let mut out = Out::default();
    let strict = wire.frame(&mut part(What::Commit { strict: true }), &mut out);
    assert!(matches!(strict, Framed::Refused(error) if error.outcome() == Outcome::Failed));
    // One that was seen does not: the statement alone was undone.
    let mut commit = sent(wire.frame(&mut part(What::Commit { strict: false }), &mut out));
    assert_eq!(written(&mut out), b"\x07\0\0\0\x03COMMIT");
    ran(answer(&mut wire, &mut commit, OK));
    let over = wire.frame(&mut part(What::Commit { strict: false }), &mut out);
    assert!(matches!(over, Framed::Refused(_)), "it is over");
}

#[test]
fn what_belongs_to_a_transaction_is_not_sent_outside_of_one() {
    let statement = Learned::of("DO ?");
    let mut wire = prepared(&statement);
    let mut request = Request { part: true, ..Request::execute(&statement, one(1)) };
    let mut out = Out::default();
    assert!(matches!(wire.frame(&mut request, &mut out), Framed::Refused(_)));
    assert!(out.is_empty());
    // An opening that fails opens nothing.
    request.opening = Some(Bytes::from_static(b"SET autocommit = 0"));
    let (mut opening, _) = ahead(wire.frame(&mut request, &mut out));
    let received = receive(&mut wire, Some(&mut opening), NO_TABLE, usize::MAX);
    assert!(matches!(received, Ok(Received::Forerunner { result: Err(_), .. })));
    assert!(matches!(wire.frame(&mut request, &mut out), Framed::Refused(_)));
}

#[test]
fn several_statements_are_allowed_for_a_script_and_no_longer() {
    let mut wire = wire();
    let mut out = Out::default();
    let script = What::Script(Bytes::from_static(b"DO 1;DO 2"));
    let request = Request { rows: false, ..Request::new(script) };
    let mut pending = sent(wire.frame(&mut { request }, &mut out));
    let on = b"\x03\0\0\0\x1B\0\0";
    assert_eq!(written(&mut out), [&on[..], b"\x0A\0\0\0\x03DO 1;DO 2", b"\x03\0\0\0\x1B\x01\0"].concat());
    // The option is answered with 0xFE, the script with two results.
    let option = b"\x07\0\0\x01\xFE\x00\x00\x02\x00\x00\x00";
    let more = b"\x07\0\0\x01\x00\x00\x00\x0A\x00\x00\x00";
    let last = b"\x07\0\0\x02\x00\x00\x00\x02\x00\x00\x00";
    let ran = ran(answer(&mut wire, &mut pending, &[&option[..], more, last, option].concat()));
    assert_eq!(ran.results.len(), 1, "of results that are not wanted the last one is kept");
}

#[test]
fn a_packet_that_would_cost_the_connection_is_not_sent() {
    let mut wire = wire();
    let mut out = Out::default();
    let mut own = Request::own(What::Query(Bytes::from_static(b"SELECT @@max_allowed_packet")));
    let mut pending = sent(wire.frame(&mut own, &mut out));
    // one column, its definition, the text "1024", OK
    let rows = b"\x01\0\0\x01\x01\x05\0\0\x02\x03defA\x05\0\0\x03\x041024\x07\0\0\x04\xFE\0\0\x02\0\0\0";
    ran(answer(&mut wire, &mut pending, rows));
    written(&mut out);
    let large = Request::query(vec![b'x'; 1024]);
    assert!(
        matches!(wire.frame(&mut { large }, &mut out), Framed::Refused(error) if error.kind() == ErrorKind::Encode)
    );
    assert!(out.is_empty());
    sent(wire.frame(&mut Request::query(vec![b'x'; 1023]), &mut out));
}

#[test]
fn last_words_are_kept_whether_they_were_asked_for_or_not() {
    // 4031 = 0x0FBF, unasked, with a sequence of its own
    let farewell = b"\x0D\0\0\0\xFF\xBF\x0F#HY000idle".as_slice();
    let statement = Learned::of("DO ?");
    for waiting in [true, false] {
        let mut wire = prepared(&statement);
        let mut pending = execute(&mut wire, &statement);
        let head = waiting.then_some(&mut pending);
        let Err(error) = receive(&mut wire, head, farewell, 2) else { panic!("it is over") };
        assert_eq!((error.kind(), error.outcome()), (ErrorKind::Io, Outcome::Unknown));
        assert_eq!(wire.last_words().map(|words| words.number()), Some(4031));
    }
}

#[test]
fn what_the_protocol_does_not_allow_costs_the_connection() {
    let statement = Learned::of("SELECT ?");
    let cases: [(&str, &[u8]); 9] = [
        ("a sequence that is not expected", b"\x07\0\0\x02\x00\x00\x00\x02\x00\x00\x00"),
        ("an empty packet", b"\0\0\0\x01"),
        ("a request for a file", b"\x05\0\0\x01\xFBfile"),
        ("columns without number", b"\x02\0\0\x01\xFC\x01"),
        ("too many columns", b"\x04\0\0\x01\xFD\0\0\x01"),
        ("an OK that ends early", b"\x03\0\0\x01\x00\x00\x00"),
        ("a row that is not binary", b"\x01\0\0\x01\x01\x05\0\0\x02\x03defA\x01\0\0\x03\x31"),
        ("an empty row", b"\x01\0\0\x01\x01\x05\0\0\x02\x03defA\0\0\0\x03"),
        ("a number of columns with something behind it", b"\x02\0\0\x01\x01\x01"),
    ];
    for (what, bytes) in cases {
        for size in 1..=bytes.len() {
            let mut wire = prepared(&statement);
            let mut pending = execute(&mut wire, &statement);
            let received = receive(&mut wire, Some(&mut pending), bytes, size);
            assert!(
                matches!(&received, Err(error) if error.kind() == ErrorKind::Protocol),
                "{what}, in pieces of {size}"
            );
        }
    }
    let received = receive(&mut wire(), None, OK, 1);
    assert!(matches!(received, Err(error) if error.kind() == ErrorKind::Protocol));
}

#[test]
fn no_bytes_of_a_peer_make_it_panic() {
    // A small generator instead of a dependency: what it makes is mostly headers that fit, so that it gets deep.
    let mut seed = 0x2545_F491_4F6C_DD1D_u64;
    let mut next = move || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        (seed >> 24) as u8
    };
    let statement = Learned::of("SELECT ?");
    for _ in 0..20_000 {
        let mut wire = prepared(&statement);
        let mut pending = execute(&mut wire, &statement);
        let mut input = ReadBuffer::new();
        for sequence in 1..10 {
            let len = next() % 12;
            input.extend(&[len, 0, 0, sequence]);
            let first = [0x00, 0x01, 0xFE, 0xFF, 0xFB, next()][usize::from(next() % 6)];
            for index in 0..len {
                input.extend(&[if index == 0 { first } else { next() % 4 }]);
            }
            if !matches!(wire.receive(Some(&mut pending), &mut input), Ok(Received::More)) {
                break;
            }
        }
    }
}
