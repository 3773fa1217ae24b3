//! What goes out, byte by byte.

use super::*;
use crate::protocol::command::LARGEST_PACKET;

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

/// A wire that has asked for the largest packet, and the answer's bytes but for the row: one column, and the end.
fn asks_for_the_largest_packet(row: &[u8], size: usize) -> (MySqlWire, Result<Received<MySqlWire>, Fault>) {
    let mut wire = wire();
    let mut out = Out::default();
    let mut own = Request::own(What::Query(Bytes::from_static(LARGEST_PACKET.as_bytes())));
    let mut pending = sent(wire.frame(&mut own, &mut out));
    written(&mut out);
    let answer =
        [&b"\x01\0\0\x01\x01\x05\0\0\x02\x03defA"[..], row, b"\x07\0\0\x04\xFE\0\0\x02\0\0\0"].concat();
    let received = receive(&mut wire, Some(&mut pending), &answer, size);
    (wire, received)
}

#[test]
fn a_packet_that_would_cost_the_connection_is_not_sent() {
    // In pieces of any size, for the row may come in parts.
    for size in 1..40 {
        let (mut wire, received) = asks_for_the_largest_packet(b"\x05\0\0\x03\x041024", size);
        assert!(matches!(received, Ok(Received::Answer(Ok(_)))));
        let mut out = Out::default();
        let mut large = Request::query(vec![b'x'; 1024]);
        assert!(
            matches!(wire.frame(&mut large, &mut out), Framed::Refused(error) if error.kind() == ErrorKind::Encode)
        );
        assert!(out.is_empty());
        sent(wire.frame(&mut Request::query(vec![b'x'; 1023]), &mut out));
    }
}

#[test]
fn a_server_that_takes_no_packets_is_not_believed() {
    for row in [&b"\x02\0\0\x03\x011"[..], b"\x01\0\0\x03\xFB", b"\x05\0\0\x03\x0412x4", b"\x01\0\0\x03\x04"]
    {
        let (_, received) = asks_for_the_largest_packet(row, usize::MAX);
        assert!(received.is_err_and(|error| error.kind() == ErrorKind::Protocol), "{row:?}");
    }
}

#[test]
fn no_other_question_is_taken_for_that_of_the_largest_packet() {
    let mut wire = wire();
    let mut out = Out::default();
    let mut own = Request::own(What::Query(Bytes::from_static(b"SELECT EXP(1000 * @@global.read_only)")));
    let mut pending = sent(wire.frame(&mut own, &mut out));
    let rows = b"\x01\0\0\x01\x01\x05\0\0\x02\x03defA\x02\0\0\x03\x011\x07\0\0\x04\xFE\0\0\x02\0\0\0";
    ran(answer(&mut wire, &mut pending, rows));
    sent(wire.frame(&mut Request::query(vec![b'x'; 1 << 20]), &mut out));
}
