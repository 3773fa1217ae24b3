//! Bytes that no server sends.

use super::*;

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
