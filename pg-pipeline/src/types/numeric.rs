//! `numeric`: exact decimal numbers of any size, and three values that are none.
//!
//! Source of the format: `numeric_send` in PostgreSQL's `numeric.c`: the number of digits, the weight of the first, a sign,
//! the number of decimals to show, and digits to the base of 10,000.

use std::error::Error as StdError;
use std::fmt::{self, Write as _};
use std::str::FromStr;

use bytes::{Buf as _, BufMut as _, BytesMut};
use postgres_types::{FromSql, IsNull, ToSql, Type, accepts, to_sql_checked};

type BoxError = Box<dyn StdError + Sync + Send>;

/// A `numeric`, as the text that the server has for it: exact, with as many decimals as the server shows, or `NaN`,
/// `Infinity`, `-Infinity` (since PostgreSQL 14).
///
/// Numbers of other crates are had by parsing it, or behind the feature `with-rust_decimal-1`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Numeric(Box<str>);

impl Numeric {
    /// The text: an optional `-`, digits, and decimals behind a point; or one of the three words.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it is a number, and not `NaN` or infinite.
    pub fn is_finite(&self) -> bool {
        self.0.ends_with(|last: char| last.is_ascii_digit())
    }
}

impl fmt::Display for Numeric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The text is no number: an optional sign, digits, at most one point, or `NaN`, `Infinity`, `-Infinity`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoNumeric;

impl fmt::Display for NoNumeric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not a numeric: an optional sign, digits, at most one point; or NaN, Infinity, -Infinity")
    }
}

impl StdError for NoNumeric {}

impl FromStr for Numeric {
    type Err = NoNumeric;

    /// In the form that the server shows: without a leading `+` or superfluous zeros, with all decimals that are given.
    fn from_str(text: &str) -> Result<Self, NoNumeric> {
        if matches!(text, "NaN" | "Infinity" | "-Infinity") {
            return Ok(Self(text.into()));
        }
        let (sign, unsigned) = match text.strip_prefix('-') {
            Some(rest) => ("-", rest),
            None => ("", text.strip_prefix('+').unwrap_or(text)),
        };
        let (whole, decimals) = unsigned.split_once('.').unwrap_or((unsigned, ""));
        let are_digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
        if whole.len() + decimals.len() == 0 || !are_digits(whole) || !are_digits(decimals) {
            return Err(NoNumeric);
        }
        let whole = whole.trim_start_matches('0');
        let whole = if whole.is_empty() { "0" } else { whole };
        let is_zero = whole == "0" && decimals.bytes().all(|digit| digit == b'0');
        let sign = if is_zero { "" } else { sign };
        let point = if decimals.is_empty() { "" } else { "." };
        Ok(Self(format!("{sign}{whole}{point}{decimals}").into()))
    }
}

impl From<i64> for Numeric {
    fn from(number: i64) -> Self {
        Self(number.to_string().into())
    }
}

const POSITIVE: u16 = 0x0000;
const NEGATIVE: u16 = 0x4000;
const NAN: u16 = 0xC000;
const INFINITE: u16 = 0xD000;
const MINUS_INFINITE: u16 = 0xF000;
/// Source: `NUMERIC_DSCALE_MAX` in `numeric.c`.
const MOST_DECIMALS: usize = 0x3FFF;

impl<'a> FromSql<'a> for Numeric {
    fn from_sql(_: &Type, mut raw: &'a [u8]) -> Result<Self, BoxError> {
        if raw.len() < 8 {
            return Err("a numeric that ends early".into());
        }
        let (count, weight, sign, decimals) = (raw.get_u16(), raw.get_i16(), raw.get_u16(), raw.get_u16());
        let word = match sign {
            POSITIVE => "",
            NEGATIVE => "-",
            NAN => return Ok(Self("NaN".into())),
            INFINITE => return Ok(Self("Infinity".into())),
            MINUS_INFINITE => return Ok(Self("-Infinity".into())),
            _ => return Err("a numeric with a sign that does not exist".into()),
        };
        let (decimals, weight) = (usize::from(decimals), i32::from(weight));
        if raw.len() != 2 * usize::from(count) || decimals > MOST_DECIMALS {
            return Err("a numeric of impossible size".into());
        }
        let digits: Vec<u16> = raw.chunks_exact(2).map(|mut pair| pair.get_u16()).collect();
        if digits.iter().any(|digit| *digit > 9_999) {
            return Err("a numeric with an impossible digit".into());
        }
        // The digit that counts 10,000^place.
        let digit = |place: i32| {
            usize::try_from(weight - place).ok().and_then(|at| digits.get(at)).copied().unwrap_or(0)
        };
        let mut text = word.to_owned();
        let whole_begins = text.len();
        for place in (0..=weight.max(0)).rev() {
            write!(text, "{:04}", digit(place))?;
        }
        let zeros = text[whole_begins..].bytes().take_while(|byte| *byte == b'0').count();
        // One is left of a number below one.
        let surplus = zeros.min(text.len() - whole_begins - 1);
        text.replace_range(whole_begins..whole_begins + surplus, "");
        if decimals > 0 {
            text.push('.');
            let end = text.len() + decimals;
            let mut place = -1;
            while text.len() < end {
                write!(text, "{:04}", digit(place))?;
                place -= 1;
            }
            text.truncate(end);
        }
        Ok(Self(text.into()))
    }

    accepts!(NUMERIC);
}

impl ToSql for Numeric {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, BoxError> {
        let (sign, unsigned) = match &*self.0 {
            "NaN" => return Ok(put_special(NAN, out)),
            "Infinity" => return Ok(put_special(INFINITE, out)),
            "-Infinity" => return Ok(put_special(MINUS_INFINITE, out)),
            text => text.strip_prefix('-').map_or((POSITIVE, text), |rest| (NEGATIVE, rest)),
        };
        let (whole, decimals) = unsigned.split_once('.').unwrap_or((unsigned, ""));
        if decimals.len() > MOST_DECIMALS {
            return Err(format!("a numeric has at most {MOST_DECIMALS} decimals").into());
        }
        // Filled up on both sides of the point to whole digits.
        let before = whole.len().next_multiple_of(4) - whole.len();
        let behind = decimals.len().next_multiple_of(4) - decimals.len();
        let padded = format!("{}{whole}{decimals}{}", "0".repeat(before), "0".repeat(behind));
        let digits = padded.as_bytes().chunks_exact(4);
        let digits = digits.map(|four| four.iter().fold(0, |all, digit| all * 10 + u16::from(digit - b'0')));
        let digits: Vec<u16> = digits.collect();
        let first = digits.iter().position(|digit| *digit != 0).unwrap_or(digits.len());
        let last = digits.iter().rposition(|digit| *digit != 0).map_or(first, |last| last + 1);
        let weight = i16::try_from((whole.len() + before) / 4)
            .ok()
            .and_then(|groups| groups.checked_sub(1)?.checked_sub(i16::try_from(first).ok()?));
        let (Some(weight), Ok(count)) = (weight, u16::try_from(last - first)) else {
            return Err("the number has more digits than a numeric can have".into());
        };
        out.put_u16(count);
        out.put_i16(if count == 0 { 0 } else { weight });
        out.put_u16(if count == 0 { POSITIVE } else { sign });
        out.put_u16(decimals.len() as u16);
        for digit in &digits[first..last] {
            out.put_u16(*digit);
        }
        Ok(IsNull::No)
    }

    accepts!(NUMERIC);
    to_sql_checked!();
}

fn put_special(sign: u16, out: &mut BytesMut) -> IsNull {
    for part in [0, 0, sign, 0] {
        out.put_u16(part);
    }
    IsNull::No
}

#[cfg(test)]
mod tests {
    use super::*;

    fn there_and_back(text: &str) -> String {
        let mut out = BytesMut::new();
        text.parse::<Numeric>().expect(text).to_sql(&Type::NUMERIC, &mut out).expect(text);
        Numeric::from_sql(&Type::NUMERIC, &out).expect(text).to_string()
    }

    #[test]
    fn numbers_are_sent_as_the_server_sends_them() {
        let mut out = BytesMut::new();
        "-12345.678".parse::<Numeric>().expect("a number").to_sql(&Type::NUMERIC, &mut out).expect("encodes");
        // Three digits to the base of 10,000 (1, 2345, 6780), the first of weight 1, negative, 3 decimals.
        assert_eq!(out[..], [0, 3, 0, 1, 0x40, 0, 0, 3, 0, 1, 0x09, 0x29, 0x1A, 0x7C]);
    }

    #[test]
    fn numbers_come_back_as_they_went() {
        let long = "9".repeat(500) + "." + &"1".repeat(300);
        for text in [
            "0",
            "1",
            "-1",
            "10000",
            "9999",
            "10001",
            "0.1",
            "0.0001",
            "0.00001",
            "-0.00000000000000000001",
            "123456789.987654321",
            "1.0",
            "1.000000",
            "100000000",
            "0.0",
            "12345678901234567890.12345",
            "NaN",
            "Infinity",
            "-Infinity",
            &long,
        ] {
            assert_eq!(there_and_back(text), text);
        }
        for (text, shown) in [
            ("+1.5", "1.5"),
            ("007", "7"),
            (".5", "0.5"),
            ("5.", "5"),
            ("-0", "0"),
            ("-0.00", "0.00"),
            ("00.10", "0.10"),
        ] {
            assert_eq!(there_and_back(text), shown);
        }
        assert!("1".parse::<Numeric>().expect("a number").is_finite());
        assert!(!"-Infinity".parse::<Numeric>().expect("a word").is_finite());
    }

    #[test]
    fn what_is_no_number_is_refused() {
        for text in ["", "-", ".", "1.2.3", "1e5", " 1", "--1", "nan", "1_000", "+-1", "٣"] {
            assert_eq!(text.parse::<Numeric>(), Err(NoNumeric), "{text:?}");
        }
        let mut out = BytesMut::new();
        let long = format!("0.{}", "1".repeat(MOST_DECIMALS + 1)).parse::<Numeric>().expect("a number");
        assert!(long.to_sql(&Type::NUMERIC, &mut out).is_err());
        let large = "9".repeat(200_000).parse::<Numeric>().expect("a number");
        assert!(large.to_sql(&Type::NUMERIC, &mut out).is_err());
    }

    #[test]
    fn no_bytes_make_it_panic_or_take_memory_without_bound() {
        let whole = [0, 3, 0, 1, 0x40, 0, 0, 3, 0, 1, 0x09, 0x29, 0x1A, 0x7C];
        for end in 0..whole.len() {
            assert!(Numeric::from_sql(&Type::NUMERIC, &whole[..end]).is_err());
        }
        for at in 0..whole.len() {
            for byte in [0, 1, 0x7F, 0x80, 0xFF] {
                let mut changed = whole;
                changed[at] = byte;
                if let Ok(number) = Numeric::from_sql(&Type::NUMERIC, &changed) {
                    assert!(number.as_str().len() < 200_000);
                }
            }
        }
    }
}
