//! `interval`: months, days and microseconds, which the server keeps apart because a month has no fixed length, nor a day.
//!
//! Source of the format: `interval_send` in PostgreSQL's `timestamp.c`: microseconds (8 bytes), days (4), months (4).

use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

use bytes::{Buf as _, BufMut as _, BytesMut};
use postgres_types::{FromSql, IsNull, ToSql, Type, accepts, to_sql_checked};

type BoxError = Box<dyn StdError + Sync + Send>;

/// An `interval`. Each part has a sign of its own. All three at their least or greatest are `-infinity` and `infinity`
/// (since PostgreSQL 17).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Interval {
    /// Months; a year is twelve.
    pub months: i32,
    /// Days.
    pub days: i32,
    /// Microseconds; an hour is 3,600,000,000.
    pub microseconds: i64,
}

impl Interval {
    /// Longer than any other.
    pub const INFINITY: Self = Self { months: i32::MAX, days: i32::MAX, microseconds: i64::MAX };
    /// Shorter than any other.
    pub const NEG_INFINITY: Self = Self { months: i32::MIN, days: i32::MIN, microseconds: i64::MIN };

    /// Whether it is neither of both.
    pub fn is_finite(&self) -> bool {
        *self != Self::INFINITY && *self != Self::NEG_INFINITY
    }
}

/// It has months or days, whose length depends on the calendar, or is below zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoDuration;

impl fmt::Display for NoDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an interval with months or days, or one below zero, is no duration")
    }
}

impl StdError for NoDuration {}

impl TryFrom<Interval> for Duration {
    type Error = NoDuration;

    fn try_from(interval: Interval) -> Result<Self, NoDuration> {
        let Interval { months: 0, days: 0, microseconds } = interval else { return Err(NoDuration) };
        u64::try_from(microseconds).map(Self::from_micros).map_err(|_| NoDuration)
    }
}

/// It is longer than an interval can be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooLong;

impl fmt::Display for TooLong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("longer than an interval's microseconds can count")
    }
}

impl StdError for TooLong {}

impl TryFrom<Duration> for Interval {
    type Error = TooLong;

    /// What is smaller than a microsecond is cut off.
    fn try_from(duration: Duration) -> Result<Self, TooLong> {
        let microseconds = i64::try_from(duration.as_micros()).map_err(|_| TooLong)?;
        Ok(Self { microseconds, ..Self::default() })
    }
}

impl<'a> FromSql<'a> for Interval {
    fn from_sql(_: &Type, mut raw: &'a [u8]) -> Result<Self, BoxError> {
        if raw.len() != 16 {
            return Err("an interval of impossible size".into());
        }
        Ok(Self { microseconds: raw.get_i64(), days: raw.get_i32(), months: raw.get_i32() })
    }

    accepts!(INTERVAL);
}

impl ToSql for Interval {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, BoxError> {
        out.put_i64(self.microseconds);
        out.put_i32(self.days);
        out.put_i32(self.months);
        Ok(IsNull::No)
    }

    accepts!(INTERVAL);
    to_sql_checked!();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_intervals_without_a_calendar() {
        let hour = Interval { microseconds: 3_600_000_000, ..Interval::default() };
        assert_eq!(Interval::try_from(Duration::from_secs(3_600)), Ok(hour));
        assert_eq!(Duration::try_from(hour), Ok(Duration::from_secs(3_600)));
        assert_eq!(Interval::try_from(Duration::MAX), Err(TooLong));
        for odd in [
            Interval { days: 1, ..hour },
            Interval { months: -1, ..hour },
            Interval { microseconds: -1, ..hour },
            Interval::INFINITY,
        ] {
            assert_eq!(Duration::try_from(odd), Err(NoDuration));
        }
        assert!(hour.is_finite() && !Interval::NEG_INFINITY.is_finite());
        assert!(Interval::from_sql(&Type::INTERVAL, &[0; 15]).is_err());
    }
}
