//! What dates of other crates and of the standard library have in common here.
//!
//! Other types have no zero dates, no days that a month lacks, and their years go beyond the server's. Whoever meets such
//! a value is told which type here can hold it.

use std::fmt;

use super::{BoxError, Date, DateTime, Time};

/// A date that no calendar has, such as `0000-00-00`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoSuchDay(pub(super) Date);

impl fmt::Display for NoSuchDay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} is a day that no calendar has; ask for `mysql_pipeline::types::Date` or `DateTime`, or have the server \
             answer NULL: NULLIF(column, '{}')",
            self.0, self.0
        )
    }
}

impl std::error::Error for NoSuchDay {}

/// A value is outside of what the server's type can hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutOfRange(pub(super) &'static str);

impl fmt::Display for OutOfRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for OutOfRange {}

/// Years that the server writes and reads. Source: MySQL manual, "The DATE, DATETIME, and TIMESTAMP Types".
pub(super) const YEARS: OutOfRange = OutOfRange("MySQL's dates have years from 0 to 9999");
/// Source: MySQL manual, "The TIME Type".
pub(super) const TIMES: OutOfRange = OutOfRange("MySQL's TIME reaches from -838:59:59 to 838:59:59");
/// A time of day is wanted, and `TIME` is a duration.
#[cfg(any(feature = "with-chrono-0_4", feature = "with-time-0_3"))]
pub(super) const NOT_OF_DAY: OutOfRange = OutOfRange(
    "the TIME is below zero or a day or longer, and no time of day; ask for a duration or `mysql_pipeline::types::Time`",
);

/// A date from a calendar's parts.
#[cfg(any(feature = "with-chrono-0_4", feature = "with-time-0_3"))]
pub(super) fn date(year: i32, month: u32, day: u32) -> Result<Date, BoxError> {
    match u16::try_from(year) {
        Ok(year) if year <= 9999 => Ok(Date { year, month: month as u8, day: day as u8 }),
        _ => Err(Box::new(YEARS)),
    }
}

/// Days from 1970-01-01 to this day in the Gregorian calendar; `None` if it is no day.
///
/// Years begin in March here, so that a leap day is a year's last; 400 years have 146,097 days.
pub(super) fn days(date: Date) -> Option<i64> {
    let leap =
        date.year.is_multiple_of(4) && (!date.year.is_multiple_of(100) || date.year.is_multiple_of(400));
    let length = match date.month {
        1 | 3 | 5 | 7 | 8 | 10 | 12 => 31,
        4 | 6 | 9 | 11 => 30,
        2 => 28 + u8::from(leap),
        _ => return None,
    };
    if !(1..=length).contains(&date.day) {
        return None;
    }
    let from_march = (i64::from(date.month) + 9) % 12;
    let year = i64::from(date.year) - i64::from(date.month <= 2);
    let before = 365 * year + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    // 719,468 days lie between the first of March of the year 0 and 1970-01-01.
    Some(before + (153 * from_march + 2) / 5 + i64::from(date.day) - 1 - 719_468)
}

/// The day so many days from 1970-01-01; `None` outside of the years 0 to 9999.
pub(super) fn day(days: i64) -> Option<Date> {
    let days = days.checked_add(719_468)?;
    let (era, day_of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * from_march + 2) / 5 + 1;
    let month = (from_march + 2) % 12 + 1;
    let year =
        u16::try_from(400 * era + year_of_era + i64::from(month <= 2)).ok().filter(|year| *year <= 9999)?;
    Some(Date { year, month: month as u8, day: day as u8 })
}

/// A moment as seconds and microseconds from 1970-01-01 00:00:00 in UTC.
pub(super) fn moment(date_time: DateTime) -> Result<(i64, u32), BoxError> {
    let days = days(date_time.date).ok_or(NoSuchDay(date_time.date))?;
    let [hour, minute, second] = [date_time.hour, date_time.minute, date_time.second].map(i64::from);
    Ok((((days * 24 + hour) * 60 + minute) * 60 + second, date_time.microsecond))
}

/// The other way.
pub(super) fn at(seconds: i64, microsecond: u32) -> Result<DateTime, BoxError> {
    let date = day(seconds.div_euclid(86_400)).ok_or(YEARS)?;
    let of_day = seconds.rem_euclid(86_400) as u32;
    Ok(DateTime {
        date,
        hour: (of_day / 3_600) as u8,
        minute: (of_day / 60 % 60) as u8,
        second: (of_day % 60) as u8,
        microsecond,
    })
}

/// A duration of so many microseconds.
pub(super) fn time(microseconds: impl TryInto<i64>) -> Result<Time, BoxError> {
    let time = microseconds.try_into().ok().and_then(Time::from_microseconds);
    Ok(time.ok_or(TIMES)?)
}

/// Encodes a value of another type as one of ours: `$own` makes it.
macro_rules! sent_as {
    ($($type:ty, $kind:ident, $value:ident => $own:expr;)+) => {$(
        impl $crate::types::ToSql for $type {
            fn parameter_type(&self) -> $crate::types::ParameterType {
                $crate::types::ParameterType::$kind
            }

            fn to_sql(&self, out: &mut bytes::BytesMut) -> Result<(), $crate::types::BoxError> {
                let $value = self;
                $crate::types::ToSql::to_sql(&$own, out)
            }
        }
    )+};
}
pub(super) use sent_as;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_counted_both_ways() {
        let mut expected = -719_528;
        let mut date = Some(Date { year: 0, month: 1, day: 1 });
        while let Some(now) = date {
            assert_eq!(days(now), Some(expected), "{now}");
            assert_eq!(day(expected), Some(now));
            expected += 1;
            let next = [
                Date { day: now.day + 1, ..now },
                Date { month: now.month + 1, day: 1, ..now },
                Date { year: now.year + 1, month: 1, day: 1 },
            ];
            date = next.into_iter().find(|next| next.year <= 9999 && days(*next).is_some());
        }
        assert_eq!(expected, 2_932_897, "days up to the end of 9999");
        assert_eq!(day(expected), None);
        assert_eq!(day(-719_529), None);
        for (year, month, day) in
            [(2026, 2, 29), (1900, 2, 29), (2026, 4, 31), (2026, 0, 1), (2026, 13, 1), (0, 0, 0)]
        {
            assert_eq!(days(Date { year, month, day }), None);
        }
        assert!(days(Date { year: 2000, month: 2, day: 29 }).is_some());
    }

    #[test]
    fn moments_are_counted_both_ways() {
        for (seconds, microsecond, shown) in [
            (0, 0, "1970-01-01 00:00:00"),
            (-1, 999_999, "1969-12-31 23:59:59.999999"),
            (1_764_547_199, 5, "2025-11-30 23:59:59.000005"),
            (253_402_300_799, 0, "9999-12-31 23:59:59"),
        ] {
            let date_time = at(seconds, microsecond).expect("in range");
            assert_eq!(date_time.to_string(), shown);
            assert_eq!(moment(date_time).expect("a day"), (seconds, microsecond));
        }
        assert!(at(253_402_300_800, 0).is_err());
        assert!(at(i64::MIN, 0).is_err() && at(i64::MAX, 0).is_err());
        let error = moment(DateTime::default()).expect_err("no day").to_string();
        assert!(error.contains("0000-00-00") && error.contains("NULLIF"), "{error}");
    }
}
