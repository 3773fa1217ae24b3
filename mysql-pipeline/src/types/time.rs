//! Dates and times of the crate `time`. `DATETIME` and `TIMESTAMP` are taken to be in UTC, as sessions here are unless
//! `time_zone` says otherwise. What is smaller than a microsecond is cut off.

use time::{Date as Day, Duration, Month, OffsetDateTime, PrimitiveDateTime, Time as TimeOfDay, UtcOffset};

use super::calendar::{self, NoSuchDay, sent_as};
use super::{BoxError, Date, DateTime, FromSql, Time, Type, Value, WrongType};

fn day(date: Date) -> Result<Day, BoxError> {
    let month = Month::try_from(date.month).map_err(|_| NoSuchDay(date))?;
    Ok(Day::from_calendar_date(date.year.into(), month, date.day).map_err(|_| NoSuchDay(date))?)
}

fn date(day: Day) -> Result<Date, BoxError> {
    calendar::date(day.year(), u8::from(day.month()).into(), day.day().into())
}

fn date_time(primitive: PrimitiveDateTime) -> Result<DateTime, BoxError> {
    Ok(DateTime {
        date: date(primitive.date())?,
        hour: primitive.hour(),
        minute: primitive.minute(),
        second: primitive.second(),
        microsecond: primitive.microsecond(),
    })
}

fn utc(moment: OffsetDateTime) -> Result<DateTime, BoxError> {
    let moment = moment.checked_to_offset(UtcOffset::UTC).ok_or(calendar::YEARS)?;
    date_time(PrimitiveDateTime::new(moment.date(), moment.time()))
}

fn of_day(time: TimeOfDay) -> i64 {
    let (hour, minute, second, microsecond) = time.as_hms_micro();
    ((i64::from(hour) * 60 + i64::from(minute)) * 60 + i64::from(second)) * 1_000_000 + i64::from(microsecond)
}

impl<'a> FromSql<'a> for Day {
    fn from_sql(ty: &Type, value: Value<'a>) -> Result<Self, BoxError> {
        day(Date::from_sql(ty, value).map_err(|_| WrongType::new::<Self>(ty))?)
    }
}

impl<'a> FromSql<'a> for PrimitiveDateTime {
    fn from_sql(ty: &Type, value: Value<'a>) -> Result<Self, BoxError> {
        let own = DateTime::from_sql(ty, value).map_err(|_| WrongType::new::<Self>(ty))?;
        let time = TimeOfDay::from_hms_micro(own.hour, own.minute, own.second, own.microsecond)?;
        Ok(Self::new(day(own.date)?, time))
    }
}

impl<'a> FromSql<'a> for OffsetDateTime {
    fn from_sql(ty: &Type, value: Value<'a>) -> Result<Self, BoxError> {
        PrimitiveDateTime::from_sql(ty, value).map(PrimitiveDateTime::assume_utc)
    }
}

impl<'a> FromSql<'a> for TimeOfDay {
    fn from_sql(ty: &Type, value: Value<'a>) -> Result<Self, BoxError> {
        let time = Time::from_sql(ty, value).map_err(|_| WrongType::new::<Self>(ty))?;
        match time.parts() {
            (false, 0, hour, minute, second, microsecond) => {
                Ok(Self::from_hms_micro(hour, minute, second, microsecond)?)
            }
            _ => Err(Box::new(calendar::NOT_OF_DAY)),
        }
    }
}

impl<'a> FromSql<'a> for Duration {
    fn from_sql(ty: &Type, value: Value<'a>) -> Result<Self, BoxError> {
        let time = Time::from_sql(ty, value).map_err(|_| WrongType::new::<Self>(ty))?;
        Ok(Self::microseconds(time.as_microseconds()))
    }
}

sent_as! {
    Day, Date, own => date(*own)?;
    PrimitiveDateTime, DateTime, own => date_time(*own)?;
    OffsetDateTime, DateTime, moment => utc(*moment)?;
    TimeOfDay, Time, time => calendar::time(of_day(*time))?;
    Duration, Time, time => calendar::time(time.whole_microseconds())?;
}
