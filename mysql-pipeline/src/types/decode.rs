//! From the bytes of a row to values, in both of the protocol's formats, and the Rust types that are bytes.
//!
//! Sources: MySQL internals, "Binary Protocol Value" and "Text Resultset Row".

use std::sync::Arc;

use super::{BoxError, Date, DateTime, FromSql, Time, Type, Value, WrongType};
use crate::protocol::lenenc;

impl Type {
    /// How many bytes the value at the front of `bytes` takes in a binary row, with its length.
    pub(crate) fn binary_len(self, bytes: &[u8]) -> Option<usize> {
        Some(match self.code {
            Self::TINY => 1,
            Self::SHORT | Self::YEAR => 2,
            Self::LONG | Self::INT24 | Self::FLOAT => 4,
            Self::LONGLONG | Self::DOUBLE => 8,
            Self::NULL => 0,
            Self::DATE | 14 | Self::DATETIME | Self::TIMESTAMP | Self::TIME => {
                1 + usize::from(*bytes.first()?)
            }
            _ => {
                let mut rest = bytes;
                let length = usize::try_from(lenenc::take(&mut rest)?).ok()?;
                (bytes.len() - rest.len()).checked_add(length)?
            }
        })
    }

    /// The value in the bytes that [`binary_len`](Self::binary_len) counted; `None` if they are malformed.
    pub(crate) fn read_binary(self, bytes: &[u8]) -> Option<Value<'_>> {
        let unsigned = self.unsigned;
        Some(match self.code {
            Self::TINY => match *bytes.first_chunk()? {
                [byte] if unsigned => Value::UInt(byte.into()),
                bytes => Value::Int(i8::from_le_bytes(bytes).into()),
            },
            Self::YEAR => Value::UInt(u16::from_le_bytes(*bytes.first_chunk()?).into()),
            Self::SHORT => match *bytes.first_chunk()? {
                bytes if unsigned => Value::UInt(u16::from_le_bytes(bytes).into()),
                bytes => Value::Int(i16::from_le_bytes(bytes).into()),
            },
            Self::LONG | Self::INT24 => match *bytes.first_chunk()? {
                bytes if unsigned => Value::UInt(u32::from_le_bytes(bytes).into()),
                bytes => Value::Int(i32::from_le_bytes(bytes).into()),
            },
            Self::LONGLONG => match *bytes.first_chunk()? {
                bytes if unsigned => Value::UInt(u64::from_le_bytes(bytes)),
                bytes => Value::Int(i64::from_le_bytes(bytes)),
            },
            Self::FLOAT => Value::Float(f32::from_le_bytes(*bytes.first_chunk()?)),
            Self::DOUBLE => Value::Double(f64::from_le_bytes(*bytes.first_chunk()?)),
            Self::DATE | 14 => Value::Date(date_time(bytes)?.date),
            Self::DATETIME | Self::TIMESTAMP => Value::DateTime(date_time(bytes)?),
            Self::TIME => Value::Time(time(bytes)?),
            _ => {
                let mut rest = bytes;
                lenenc::take(&mut rest)?;
                Value::Bytes(rest)
            }
        })
    }

    /// The value in the bytes of a text row; `None` if they are malformed.
    pub(crate) fn read_text(self, bytes: &[u8]) -> Option<Value<'_>> {
        let text = || std::str::from_utf8(bytes).ok();
        Some(match self.code {
            Self::TINY | Self::SHORT | Self::LONG | Self::INT24 | Self::LONGLONG if !self.unsigned => {
                Value::Int(text()?.parse().ok()?)
            }
            Self::TINY | Self::SHORT | Self::LONG | Self::INT24 | Self::LONGLONG | Self::YEAR => {
                Value::UInt(text()?.parse().ok()?)
            }
            Self::FLOAT => Value::Float(text()?.parse().ok()?),
            Self::DOUBLE => Value::Double(text()?.parse().ok()?),
            Self::DATE | 14 => Value::Date(text_date(text()?)?),
            Self::DATETIME | Self::TIMESTAMP => Value::DateTime(text_date_time(text()?)?),
            Self::TIME => Value::Time(text_time(text()?)?),
            _ => Value::Bytes(bytes),
        })
    }
}

/// Length 0, 4, 7 or 11: what is left out is zero.
fn date_time(bytes: &[u8]) -> Option<DateTime> {
    let (length, rest) = bytes.split_first()?;
    if rest.len() != usize::from(*length) || !matches!(length, 0 | 4 | 7 | 11) {
        return None;
    }
    let mut all = [0; 11];
    all.get_mut(..rest.len())?.copy_from_slice(rest);
    let [y0, y1, month, day, hour, minute, second, m0, m1, m2, m3] = all;
    let microsecond = u32::from_le_bytes([m0, m1, m2, m3]);
    let year = u16::from_le_bytes([y0, y1]);
    let fits = year <= 9999
        && month <= 12
        && day <= 31
        && hour <= 23
        && minute <= 59
        && second <= 59
        && microsecond <= 999_999;
    fits.then_some(DateTime { date: Date { year, month, day }, hour, minute, second, microsecond })
}

/// Length 0, 8 or 12: what is left out is zero.
fn time(bytes: &[u8]) -> Option<Time> {
    let (length, rest) = bytes.split_first()?;
    if rest.len() != usize::from(*length) || !matches!(length, 0 | 8 | 12) {
        return None;
    }
    let mut all = [0; 12];
    all.get_mut(..rest.len())?.copy_from_slice(rest);
    let [negative, d0, d1, d2, d3, hours, minutes, seconds, m0, m1, m2, m3] = all;
    if hours > 23 || minutes > 59 || seconds > 59 {
        return None;
    }
    let days = i64::from(u32::from_le_bytes([d0, d1, d2, d3]));
    let microseconds = u32::from_le_bytes([m0, m1, m2, m3]);
    let seconds = ((days * 24 + i64::from(hours)) * 60 + i64::from(minutes)) * 60 + i64::from(seconds);
    signed_time(negative != 0, seconds, microseconds)
}

/// `seconds` is at most what 32 bits of days give, far from an overflow.
fn signed_time(negative: bool, seconds: i64, microseconds: u32) -> Option<Time> {
    let all = seconds.checked_mul(1_000_000)?.checked_add(i64::from(microseconds))?;
    Time::from_microseconds(if negative { -all } else { all }).filter(|_| microseconds <= 999_999)
}

/// `2026-11-30`
fn text_date(text: &str) -> Option<Date> {
    let mut parts = text.splitn(3, '-');
    let date = Date {
        year: parts.next()?.parse().ok()?,
        month: parts.next()?.parse().ok()?,
        day: parts.next()?.parse().ok()?,
    };
    (date.year <= 9999 && date.month <= 12 && date.day <= 31).then_some(date)
}

/// `2026-11-30 23:59:59.123456`
fn text_date_time(text: &str) -> Option<DateTime> {
    let (date, time) = text.split_once(' ')?;
    let (clock, microsecond) = fraction(time)?;
    let mut parts = clock.splitn(3, ':');
    let date_time = DateTime {
        date: text_date(date)?,
        hour: parts.next()?.parse().ok()?,
        minute: parts.next()?.parse().ok()?,
        second: parts.next()?.parse().ok()?,
        microsecond,
    };
    (date_time.hour <= 23 && date_time.minute <= 59 && date_time.second <= 59).then_some(date_time)
}

/// `-838:59:59.000000`
fn text_time(text: &str) -> Option<Time> {
    let (negative, text) = match text.strip_prefix('-') {
        Some(text) => (true, text),
        None => (false, text),
    };
    let (clock, microseconds) = fraction(text)?;
    let mut parts = clock.splitn(3, ':');
    let mut part = || parts.next()?.parse::<u16>().ok().map(i64::from);
    let (hours, minutes, seconds) = (part()?, part()?, part()?);
    if minutes > 59 || seconds > 59 {
        return None;
    }
    signed_time(negative, (hours * 60 + minutes) * 60 + seconds, microseconds)
}

/// What stands before the point, and up to six digits behind it as microseconds.
fn fraction(text: &str) -> Option<(&str, u32)> {
    let Some((clock, digits)) = text.split_once('.') else { return Some((text, 0)) };
    if digits.is_empty() || digits.len() > 6 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let missing = u32::try_from(6 - digits.len()).ok()?;
    Some((clock, digits.parse::<u32>().ok()? * 10_u32.pow(missing)))
}

impl<'a> FromSql<'a> for &'a [u8] {
    fn from_sql(ty: &Type, value: Value<'a>) -> Result<Self, BoxError> {
        match value {
            Value::Bytes(bytes) => Ok(bytes),
            _ => Err(Box::new(WrongType::new::<Self>(ty))),
        }
    }
}

impl<'a> FromSql<'a> for &'a str {
    /// Whatever is UTF-8, but bits: JSON and the catalogue's texts come under a collation that says "bytes".
    fn from_sql(ty: &Type, value: Value<'a>) -> Result<Self, BoxError> {
        match value {
            Value::Bytes(bytes) if ty.code() != Type::BIT => Ok(std::str::from_utf8(bytes)?),
            _ => Err(Box::new(WrongType::new::<Self>(ty))),
        }
    }
}

macro_rules! owned {
    ($($type:ty: $borrowed:ty;)+) => {$(
        impl<'a> FromSql<'a> for $type {
            fn from_sql(ty: &Type, value: Value<'a>) -> Result<Self, BoxError> {
                <&$borrowed>::from_sql(ty, value).map(Into::into)
            }
        }
    )+};
}

owned! {
    String: str;
    Box<str>: str;
    Arc<str>: str;
    Vec<u8>: [u8];
    Box<[u8]>: [u8];
}

impl<'a, T: FromSql<'a>> FromSql<'a> for Option<T> {
    fn from_sql(ty: &Type, value: Value<'a>) -> Result<Self, BoxError> {
        T::from_sql(ty, value).map(Some)
    }

    fn from_sql_null(_: &Type) -> Result<Self, BoxError> {
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;

    use super::*;
    use crate::types::ToSql;

    fn ty(code: u8, unsigned: bool) -> Type {
        Type::new(code, if unsigned { 0x20 } else { 0 }, 0)
    }

    #[test]
    fn binary_values_are_read_by_type_and_every_shorter_one_is_refused() {
        let cases: &[(u8, bool, &[u8], Value<'_>)] = &[
            (Type::TINY, false, &[0xFF], Value::Int(-1)),
            (Type::TINY, true, &[0xFF], Value::UInt(255)),
            (Type::SHORT, false, &[0xFE, 0xFF], Value::Int(-2)),
            (Type::INT24, true, &[0xFF, 0xFF, 0xFF, 0], Value::UInt(16_777_215)),
            (Type::INT24, false, &[0xFF; 4], Value::Int(-1)),
            (Type::LONG, true, &[0xFF; 4], Value::UInt(u32::MAX.into())),
            (Type::LONGLONG, false, &[0xFF; 8], Value::Int(-1)),
            (Type::LONGLONG, true, &[0xFF; 8], Value::UInt(u64::MAX)),
            (Type::YEAR, true, &[0x6C, 0x07], Value::UInt(1900)),
            (Type::FLOAT, false, &[0, 0, 0x20, 0x41], Value::Float(10.0)),
            (Type::DOUBLE, false, &[0, 0, 0, 0, 0, 0, 0x24, 0x40], Value::Double(10.0)),
            (253, false, b"\x02ab", Value::Bytes(b"ab")),
            (99, false, b"\x01x", Value::Bytes(b"x")),
            (Type::DATE, false, &[0], Value::Date(Date::default())),
            (Type::DATE, false, &[4, 0xEA, 7, 0, 15], Value::Date(Date { year: 2026, month: 0, day: 15 })),
            (Type::TIME, false, &[0], Value::Time(Time::default())),
        ];
        for (code, unsigned, bytes, value) in cases {
            let ty = ty(*code, *unsigned);
            assert_eq!(ty.binary_len(bytes), Some(bytes.len()), "{ty:?}");
            assert_eq!(ty.read_binary(bytes), Some(*value), "{ty:?}");
            for end in 0..bytes.len() {
                let cut = &bytes[..end];
                let whole = ty.binary_len(cut).is_some_and(|len| len <= end);
                assert!(!whole, "{ty:?} cut at {end}");
            }
        }
    }

    #[test]
    fn dates_and_times_come_back_as_they_went() {
        let date_time = DateTime {
            date: Date { year: 9999, month: 12, day: 31 },
            hour: 23,
            minute: 59,
            second: 58,
            microsecond: 123_456,
        };
        let mut out = BytesMut::new();
        date_time.to_sql(&mut out).expect("encodes");
        assert_eq!(ty(Type::DATETIME, false).read_binary(&out), Some(Value::DateTime(date_time)));
        assert_eq!(
            ty(Type::DATETIME, false).read_text(date_time.to_string().as_bytes()),
            Some(Value::DateTime(date_time))
        );
        for microseconds in [0, 1, -1, Time::MAX.as_microseconds(), -Time::MAX.as_microseconds()] {
            let time = Time::from_microseconds(microseconds).expect("in range");
            let mut out = BytesMut::new();
            time.to_sql(&mut out).expect("encodes");
            assert_eq!(ty(Type::TIME, false).read_binary(&out), Some(Value::Time(time)));
            assert_eq!(ty(Type::TIME, false).read_text(time.to_string().as_bytes()), Some(Value::Time(time)));
        }
    }

    #[test]
    fn no_bytes_are_read_as_a_time_that_does_not_exist() {
        let time = ty(Type::TIME, false);
        assert_eq!(time.read_binary(&[8, 0, 35, 0, 0, 0, 0, 0, 0]), None, "35 days");
        assert_eq!(time.read_binary(&[8, 0, 255, 255, 255, 255, 23, 59, 59]), None);
        assert_eq!(time.read_binary(&[8, 0, 0, 0, 0, 0, 24, 0, 0]), None);
        assert_eq!(time.read_binary(&[3, 0, 0, 0]), None);
        let date = ty(Type::DATETIME, false);
        assert_eq!(date.read_binary(&[4, 0xEA, 7, 13, 1]), None);
        assert_eq!(date.read_binary(&[5, 0xEA, 7, 12, 1, 1]), None);
        for text in
            ["", "1", "1:2", "1:60:00", "839:00:00", "1:00:00.", "1:00:00.1234567", "x:0:0", "-1:-1:0"]
        {
            assert_eq!(time.read_text(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn text_values_are_read_by_type() {
        assert_eq!(ty(Type::LONG, false).read_text(b"-5"), Some(Value::Int(-5)));
        assert_eq!(ty(Type::LONGLONG, true).read_text(b"18446744073709551615"), Some(Value::UInt(u64::MAX)));
        assert_eq!(ty(Type::DATE, false).read_text(b"0000-00-00"), Some(Value::Date(Date::default())));
        assert_eq!(ty(Type::DOUBLE, false).read_text(b"1.5e10"), Some(Value::Double(1.5e10)));
        assert_eq!(ty(Type::LONG, false).read_text(b"x"), None);
        assert_eq!(ty(Type::LONG, false).read_text(b"\xff"), None);
    }
}
