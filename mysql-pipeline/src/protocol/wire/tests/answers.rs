//! What comes in, whatever its pieces, and whose it is.

use super::*;

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
