//! Bytes that no server sends.

use super::*;

#[test]
fn what_the_protocol_does_not_allow_costs_the_connection() {
    let statement = Learned::of("SELECT ?");
    let cases: [(&str, &[u8]); 16] = [
        ("a sequence that is not expected", b"\x07\0\0\x02\x00\x00\x00\x02\x00\x00\x00"),
        ("an empty packet", b"\0\0\0\x01"),
        ("a request for a file", b"\x05\0\0\x01\xFBfile"),
        ("columns without number", b"\x02\0\0\x01\xFC\x01"),
        ("too many columns", b"\x04\0\0\x01\xFD\0\0\x01"),
        ("an OK that ends early", b"\x03\0\0\x01\x00\x00\x00"),
        ("a row that is not binary", b"\x01\0\0\x01\x01\x05\0\0\x02\x03defA\x01\0\0\x03\x31"),
        ("an empty row", b"\x01\0\0\x01\x01\x05\0\0\x02\x03defA\0\0\0\x03"),
        ("a number of columns with something behind it", b"\x02\0\0\x01\x01\x01"),
        ("an error without a number", b"\x02\0\0\x01\xFF\x7A"),
        ("a definition out of order", b"\x01\0\0\x01\x01\x05\0\0\x03\x03defA"),
        ("a row out of order", b"\x01\0\0\x01\x01\x05\0\0\x02\x03defA\x03\0\0\x07\0\0\x07"),
        ("an end of rows that ends early", b"\x01\0\0\x01\x01\x05\0\0\x02\x03defA\x02\0\0\x03\xFE\0"),
        ("an answer of 16 MiB to what has no rows", b"\xFF\xFF\xFF\x01\x00"),
        ("a definition of 16 MiB", b"\x01\0\0\x01\x01\xFF\xFF\xFF\x02"),
        ("the answer to a question that was not asked", b"\x0C\0\0\x00\x00\x01\0\0\0\0\0\x01\0\0\0\0"),
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

/// What can be asked, and an answer to it. In text the second one has two results.
fn dialogues() -> Vec<(Request, Vec<u8>)> {
    let statement = Learned::of("SELECT ?");
    let rows = b"\x01\0\0\x01\x01\x05\0\0\x02\x03defA\x03\0\0\x03\x00\x00\x07\x03\0\0\x04\x00\x04\x00";
    let result = [rows.as_slice(), b"\x07\0\0\x05\xFE\x00\x00\x0A\x00\x00\x00"].concat();
    let last = b"\x07\0\0\x06\x00\x03\x00\x02\x00\x00\x00";
    let text =
        b"\x01\0\0\x01\x01\x05\0\0\x02\x03defA\x02\0\0\x03\x017\x07\0\0\x04\xFE\x00\x00\x02\x00\x00\x00";
    let option = b"\x07\0\0\x01\xFE\x00\x00\x02\x00\x00\x00";
    let interrupted = b"\x14\0\0\x05\xFF\x25\x05#70100interrupted";
    let two = b"\x07\0\0\x01\x00\x00\x00\x0A\x00\x00\x00\x07\0\0\x02\x00\x00\x00\x02\x00\x00\x00";
    let script = || Request { rows: false, ..Request::new(What::Script(Bytes::from_static(b"DO 1;DO 2"))) };
    vec![
        (Request::execute(&statement, one(1)), [&result[..], last].concat()),
        (Request::execute(&statement, one(1)), [rows.as_slice(), interrupted].concat()),
        (Request::query("SELECT 7"), text.to_vec()),
        (Request::query("DO 1"), NO_TABLE.to_vec()),
        (script(), [option.as_slice(), two, option].concat()),
        (script(), [option.as_slice(), NO_TABLE, option].concat()),
    ]
}

/// Asks, and lets all of `bytes` come: the answers, and whether the connection is still there.
fn play(mut request: Request, bytes: &[u8]) -> (usize, bool) {
    let mut wire = prepared(&Learned::of("SELECT ?"));
    let mut pending = Some(sent(wire.frame(&mut request, &mut Out::default())));
    let mut input = ReadBuffer::new();
    input.extend(bytes);
    let mut answers = 0;
    let alive = loop {
        match wire.receive(pending.as_mut(), &mut input) {
            Ok(Received::More) => break true,
            Ok(Received::Answer(answer)) => {
                drop((answer, pending.take()));
                answers += 1;
            }
            Ok(Received::Forerunner { .. }) => panic!("nothing is sent ahead"),
            Err(_) => break false,
        }
    };
    drop(pending);
    assert_eq!(wire.budget.held(), 0, "the memory of answers is given back");
    (answers, alive)
}

#[test]
fn a_changed_bit_is_an_error_or_another_answer_and_never_two() {
    for dialogue in 0..dialogues().len() {
        let (request, bytes) = dialogues().swap_remove(dialogue);
        assert_eq!(play(request, &bytes), (1, true), "dialogue {dialogue}");
        for bit in 0..8 * bytes.len() {
            let (request, mut bytes) = dialogues().swap_remove(dialogue);
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(play(request, &bytes).0 <= 1, "dialogue {dialogue}, bit {bit}");
        }
    }
}

#[test]
fn an_answer_that_ends_at_any_byte_is_waited_for() {
    for dialogue in 0..dialogues().len() {
        for end in 0..dialogues()[dialogue].1.len() {
            let (request, bytes) = dialogues().swap_remove(dialogue);
            assert_eq!(play(request, &bytes[..end]), (0, true), "dialogue {dialogue} up to {end}");
        }
    }
}

#[test]
fn results_without_end_take_no_more_memory_than_an_answer_may() {
    let statement = Learned::of("CALL p(?)");
    let mut wire = prepared(&statement);
    let mut pending = execute(&mut wire, &statement);
    let mut input = ReadBuffer::new();
    let mut sequence = 1_u8;
    for _ in 0..100_000 {
        input.extend(&[7, 0, 0, sequence, 0, 0, 0, 0x0A, 0, 0, 0]);
        sequence = sequence.wrapping_add(1);
        assert!(matches!(wire.receive(Some(&mut pending), &mut input), Ok(Received::More)));
        assert!(pending.results.len() * size_of::<ResultSet>() <= 2 << 20, "the limit is 1 MiB");
    }
    input.extend(&[7, 0, 0, sequence, 0, 0, 0, 0x02, 0, 0, 0]);
    let Ok(Received::Answer(Err(error))) = wire.receive(Some(&mut pending), &mut input) else {
        panic!("an error of its own")
    };
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Busy, Outcome::Completed));
    drop(pending);
    assert_eq!(wire.budget.held(), 0);
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
