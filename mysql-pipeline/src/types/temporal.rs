//! Dates and times as MySQL has them: zero dates, days that no month has, and times of up to 838 hours, below zero too.

use std::fmt;

use super::{BoxError, FromSql, Type, Value, WrongType};

/// A `DATE`. Each part may be zero (`0000-00-00`, `2026-00-15`), where the server's `sql_mode` lets it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Date {
    /// 0 to 9999.
    pub year: u16,
    /// 0 to 12.
    pub month: u8,
    /// 0 to 31.
    pub day: u8,
}

/// A `DATETIME` or `TIMESTAMP`. A `TIMESTAMP` is a moment, shown in the session's `time_zone`, which is `+00:00` unless
/// the configuration says otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct DateTime {
    /// The day.
    pub date: Date,
    /// 0 to 23.
    pub hour: u8,
    /// 0 to 59.
    pub minute: u8,
    /// 0 to 59.
    pub second: u8,
    /// 0 to 999,999.
    pub microsecond: u32,
}

/// A `TIME`: a duration with a sign, up to 838:59:59.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time {
    microseconds: i64,
}

impl Date {
    /// Whether every part is zero.
    pub fn is_zero(&self) -> bool {
        *self == Self::default()
    }
}

impl DateTime {
    /// Whether every part is zero.
    pub fn is_zero(&self) -> bool {
        *self == Self::default()
    }
}

impl Time {
    /// The longest time that the server has, 838:59:59. Source: MySQL manual, "The TIME Type".
    pub const MAX: Self = Self { microseconds: (839 * 3600 - 1) * 1_000_000 };

    /// So many microseconds; `None` beyond [`MAX`](Self::MAX) in either direction.
    pub fn from_microseconds(microseconds: i64) -> Option<Self> {
        let limit = Self::MAX.microseconds;
        (-limit..=limit).contains(&microseconds).then_some(Self { microseconds })
    }

    /// In microseconds.
    pub fn as_microseconds(&self) -> i64 {
        self.microseconds
    }

    /// Below zero or not, and days, hours, minutes, seconds and microseconds.
    pub(super) fn parts(self) -> (bool, u32, u8, u8, u8, u32) {
        let all = self.microseconds.unsigned_abs();
        let seconds = all / 1_000_000;
        (
            self.microseconds < 0,
            (seconds / 86_400) as u32,
            (seconds / 3600 % 24) as u8,
            (seconds / 60 % 60) as u8,
            (seconds % 60) as u8,
            (all % 1_000_000) as u32,
        )
    }
}

impl fmt::Display for Date {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04}-{:02}-{:02}", self.year, self.month, self.day)
    }
}

impl fmt::Display for DateTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:02}:{:02}:{:02}", self.date, self.hour, self.minute, self.second)?;
        fraction(f, self.microsecond)
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (negative, days, hours, minutes, seconds, microseconds) = self.parts();
        let sign = if negative { "-" } else { "" };
        write!(f, "{sign}{:02}:{minutes:02}:{seconds:02}", days * 24 + u32::from(hours))?;
        fraction(f, microseconds)
    }
}

fn fraction(f: &mut fmt::Formatter<'_>, microseconds: u32) -> fmt::Result {
    if microseconds == 0 { Ok(()) } else { write!(f, ".{microseconds:06}") }
}

macro_rules! plain {
    ($($type:ident),+) => {$(
        impl<'a> FromSql<'a> for $type {
            fn from_sql(ty: &Type, value: Value<'a>) -> Result<Self, BoxError> {
                match value {
                    Value::$type(value) => Ok(value),
                    _ => Err(Box::new(WrongType::new::<Self>(ty))),
                }
            }
        }
    )+};
}

plain!(Date, DateTime, Time);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_kept_within_the_servers_range_and_shown_as_it_does() {
        for (microseconds, shown) in [
            (0, "00:00:00"),
            (-1, "-00:00:00.000001"),
            (Time::MAX.as_microseconds(), "838:59:59"),
            (-(90_061 * 1_000_000), "-25:01:01"),
        ] {
            let time = Time::from_microseconds(microseconds).expect("in range");
            assert_eq!((time.to_string().as_str(), time.as_microseconds()), (shown, microseconds));
        }
        assert_eq!(Time::from_microseconds(Time::MAX.as_microseconds() + 1), None);
        assert_eq!(Time::from_microseconds(i64::MIN), None);
    }

    #[test]
    fn zero_dates_are_dates() {
        assert!(Date::default().is_zero() && DateTime::default().is_zero());
        assert_eq!(DateTime::default().to_string(), "0000-00-00 00:00:00");
        assert_eq!(Date { year: 2026, month: 0, day: 15 }.to_string(), "2026-00-15");
    }
}
