//! Rows from bytes, in both formats, whole and broken.

use wire_pipeline::answer::{Budget, Collector};
use wire_pipeline::row::Rows as _;

use super::*;
use crate::error::ErrorKind;
use crate::protocol::answer::ResultSet;
use crate::protocol::response::Done;

/// `ColumnDefinition41` of a column without table.
fn definition(name: &str, code: u8) -> Vec<u8> {
    let mut packet = b"\x03def\0\0\0".to_vec();
    packet.push(name.len() as u8);
    packet.extend_from_slice(name.as_bytes());
    packet.extend_from_slice(&[0, 12, 45, 0, 0, 0, 0, 0, code, 0, 0, 0, 0, 0]);
    packet
}

fn frame(packet: &[u8]) -> Vec<u8> {
    let [a, b, c, _] = (packet.len() as u32).to_le_bytes();
    [&[a, b, c, 1], packet].concat()
}

fn ran(messages: &[Vec<u8>], columns: u16, rows: u64, text: bool) -> Ran {
    let mut collector = Collector::new(&Budget::new(1 << 30, 1 << 30));
    for message in messages {
        collector.push(message);
        collector.end_message();
    }
    let done = Done::parse(b"\0\0\0\x02\0\0\0").expect("an OK");
    let packets = collector.finish().expect("within the budget");
    Ran { results: smallvec::smallvec![ResultSet { columns, rows, done }], packets, text }
}

fn pair(rows: &[&[u8]], text: bool) -> Ran {
    let mut messages = vec![frame(&definition("n", Type::LONG)), frame(&definition("t", 253))];
    messages.extend(rows.iter().map(|row| frame(row)));
    ran(&messages, 2, rows.len() as u64, text)
}

type Pair = (Option<i32>, Option<String>);

fn read(ran: Ran, learned: &Learned) -> Result<Vec<Pair>, Error> {
    let mut rows = Rows::new(ran, learned)?;
    let mut all = Vec::new();
    while let Some(row) = rows.next()? {
        all.push(<Pair as FromRow>::from_row(row)?);
    }
    Ok(all)
}

// 0, NULL bitmap (two unused bits), 7 in four bytes, "x" behind its length
const BINARY: &[u8] = b"\x00\x00\x07\0\0\0\x01x";
const BINARY_NULLS: &[u8] = b"\x00\x0C";
const TEXT: &[u8] = b"\x017\x01x";
const TEXT_NULLS: &[u8] = b"\xFB\xFB";

#[test]
fn rows_of_both_formats_are_read() {
    let expected = [(Some(7), Some("x".to_owned())), (None, None)];
    let learned = Learned::of("x");
    assert_eq!(read(pair(&[BINARY, BINARY_NULLS], false), &learned).expect("binary"), expected);
    assert_eq!(read(pair(&[TEXT, TEXT_NULLS], true), &learned).expect("text"), expected);
}

#[test]
fn columns_that_changed_are_read_anew() {
    let learned = Learned::of("x");
    read(pair(&[BINARY], false), &learned).expect("rows");
    let other = ran(&[frame(&definition("other", Type::TINY)), frame(b"\0\0\x05")], 1, 1, false);
    let mut rows = Rows::new(other, &learned).expect("columns");
    let row = rows.next().expect("a row").expect("one");
    assert_eq!((row.get::<i8>("other"), row.columns().len()), (5, 1));
}

#[test]
fn no_bytes_of_a_row_are_read_beyond_it() {
    let learned = Learned::of("x");
    for (whole, text) in [(BINARY, false), (TEXT, true)] {
        for end in 0..whole.len() {
            let error = read(pair(&[&whole[..end]], text), &learned).expect_err("cut off");
            assert_eq!((error.kind(), error.outcome()), (ErrorKind::Protocol, Outcome::Completed), "{end}");
        }
        let longer = [whole, b"x"].concat();
        assert!(read(pair(&[&longer], text), &learned).is_err(), "too long");
        for bit in 0..8 * whole.len() {
            let mut bytes = whole.to_vec();
            bytes[bit / 8] ^= 1 << (bit % 8);
            // Another value, or an error.
            if let Ok(rows) = read(pair(&[&bytes], text), &learned) {
                assert_eq!(rows.len(), 1, "bit {bit}");
            }
        }
    }
}

#[test]
fn no_bytes_of_a_definition_are_read_beyond_it() {
    let whole = definition("n", Type::LONG);
    // The filler behind the flags is not looked at.
    for end in 0..whole.len() - 3 {
        assert!(Column::parse(&whole[..end]).is_none(), "{end}");
    }
    assert_eq!(Column::parse(&whole).expect("whole").name(), "n");
}

#[test]
fn many_columns_and_large_rows_are_put_together() {
    let name = "n".repeat(200);
    let mut messages: Vec<Vec<u8>> = (0..1_000).map(|_| frame(&definition(&name, Type::TINY))).collect();
    let mut row = vec![0; 1 + 1_009 / 8];
    row.extend((0..1_000).map(|n| (n % 100) as u8));
    messages.push(frame(&row));
    let learned = Learned::of("x");
    let mut rows = Rows::new(ran(&messages, 1_000, 1, false), &learned).expect("columns");
    let row = rows.next().expect("a row").expect("one");
    assert_eq!((row.len(), row.get::<i8>(999)), (1_000, 99));

    // A row of more than 16 MiB: a full frame, and the rest.
    let size = 0xFF_FFFF + 100 - (1 + 1 + 4);
    let mut row = vec![0, 0, 0xFE];
    row.extend_from_slice(&(size as u64).to_le_bytes());
    row.resize(row.len() + size, b'x');
    let (first, second) = row.split_at(0xFF_FFFF);
    let large = [frame(first), frame(second)].concat();
    let messages = [frame(&definition("t", 252)), large];
    let mut rows = Rows::new(ran(&messages, 1, 1, false), &learned).expect("columns");
    let row = rows.next().expect("a row").expect("one");
    assert_eq!(row.get::<&[u8]>(0).len(), size);
}

#[test]
fn missing_columns_wrong_types_and_nulls_are_named() {
    let learned = Learned::of("x");
    let mut rows = Rows::new(pair(&[BINARY, BINARY_NULLS], false), &learned).expect("columns");
    let row = rows.next().expect("a row").expect("one");
    assert_eq!((row.get::<i32>(0), row.get::<Option<i32>>("n")), (7, Some(7)));
    assert!(row.try_get::<i32>("d").expect_err("missing").to_string().contains("no column d"));
    let wrong = row.try_get::<String>(0).expect_err("wrong").to_string();
    assert!(wrong.contains("column n of type INT"), "{wrong}");
    let row = rows.next().expect("a row").expect("two");
    assert!(row.try_get::<i32>(0).expect_err("NULL").to_string().contains("NULL"));
}
