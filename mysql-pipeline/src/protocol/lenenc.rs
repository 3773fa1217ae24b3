//! Length-encoded integers and strings. Source: MySQL internals, `Protocol::LengthEncodedInteger`.

use bytes::{BufMut, BytesMut};

/// Takes a length-encoded integer off the front of `bytes`.
///
/// `None` when the bytes end early, and for the two first bytes that stand for no number: `0xFB` (NULL in a row, a
/// file request in a response) and `0xFF` (an error).
pub(crate) fn take(bytes: &mut &[u8]) -> Option<u64> {
    let (first, rest) = bytes.split_first()?;
    let length = match first {
        0xFC => 2,
        0xFD => 3,
        0xFE => 8,
        0xFB | 0xFF => return None,
        small => {
            *bytes = rest;
            return Some(u64::from(*small));
        }
    };
    let (digits, rest) = rest.split_at_checked(length)?;
    *bytes = rest;
    Some(digits.iter().rev().fold(0, |number, digit| number << 8 | u64::from(*digit)))
}

/// Appends a length-encoded integer.
pub(crate) fn put(number: u64, out: &mut BytesMut) {
    let digits = number.to_le_bytes();
    let (first, length) = match number {
        0..=0xFA => {
            out.put_u8(number as u8);
            return;
        }
        0xFB..=0xFFFF => (0xFC, 2),
        0x1_0000..=0xFF_FFFF => (0xFD, 3),
        _ => (0xFE, 8),
    };
    out.put_u8(first);
    out.put_slice(digits.get(..length).unwrap_or_default());
}

/// Takes a string behind its length off the front of `bytes`.
pub(crate) fn take_bytes<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = usize::try_from(take(bytes)?).ok()?;
    let (string, rest) = bytes.split_at_checked(length)?;
    *bytes = rest;
    Some(string)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_they_are_read() {
        for number in [0, 250, 251, 0xFFFF, 0x1_0000, 0xFF_FFFF, 0x100_0000, u64::MAX] {
            let mut out = BytesMut::new();
            put(number, &mut out);
            let mut rest = &out[..];
            assert_eq!(take(&mut rest), Some(number));
            assert!(rest.is_empty());
        }
    }

    #[test]
    fn numbers_of_every_width_are_read_and_the_rest_is_left() {
        let cases: [(&[u8], u64); 6] = [
            (&[0x00], 0),
            (&[0xFA], 250),
            (&[0xFC, 0xFB, 0x00], 251),
            (&[0xFD, 0x00, 0x00, 0x01], 65_536),
            (&[0xFE, 1, 0, 0, 0, 0, 0, 0, 0], 1),
            (&[0xFE, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF], u64::MAX),
        ];
        for (bytes, number) in cases {
            let whole = [bytes, b"rest"].concat();
            let mut rest = &whole[..];
            assert_eq!(take(&mut rest), Some(number), "{bytes:02X?}");
            assert_eq!(rest, b"rest");
            for end in 0..bytes.len() {
                assert_eq!(take(&mut &bytes[..end]), None, "{:02X?}", &bytes[..end]);
            }
        }
    }

    #[test]
    fn null_and_error_are_no_numbers() {
        assert_eq!(take(&mut &[0xFB, 1][..]), None);
        assert_eq!(take(&mut &[0xFF, 1][..]), None);
    }
}
