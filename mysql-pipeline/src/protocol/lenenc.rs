//! Length-encoded integers. Source: MySQL internals, `Protocol::LengthEncodedInteger`.

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

#[cfg(test)]
mod tests {
    use super::*;

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
