//! Dates and times of `chrono`. `DATETIME` and `TIMESTAMP` are taken to be in UTC, as sessions here are unless `time_zone`
//! says otherwise. What is smaller than a microsecond is cut off.

use chrono::{DateTime as ZonedDateTime, NaiveDate, NaiveDateTime, NaiveTime, TimeDelta, Timelike as _, Utc};

use super::calendar::{self, NoSuchDay, sent_as};
use super::{BoxError, Date, DateTime, FromSql, Time, Type, Value, WrongType};

fn naive_date(date: Date) -> Result<NaiveDate, BoxError> {
    let day = NaiveDate::from_ymd_opt(date.year.into(), date.month.into(), date.day.into());
    Ok(day.ok_or(NoSuchDay(date))?)
}

fn naive_time(hour: u32, minute: u32, second: u32, microsecond: u32) -> Result<NaiveTime, BoxError> {
    Ok(NaiveTime::from_hms_micro_opt(hour, minute, second, microsecond).ok_or(calendar::NOT_OF_DAY)?)
}

fn date(date: &impl chrono::Datelike) -> Result<Date, BoxError> {
    calendar::date(date.year(), date.month(), date.day())
}

fn date_time(naive: &NaiveDateTime) -> Result<DateTime, BoxError> {
    Ok(DateTime {
        date: date(&naive.date())?,
        hour: naive.hour() as u8,
        minute: naive.minute() as u8,
        second: naive.second() as u8,
        // A leap second counts on beyond 999,999,999; the server has none.
        microsecond: (naive.nanosecond() / 1_000).min(999_999),
    })
}

fn of_day(time: NaiveTime) -> i64 {
    i64::from(time.num_seconds_from_midnight()) * 1_000_000
        + i64::from((time.nanosecond() / 1_000).min(999_999))
}

impl<'a> FromSql<'a> for NaiveDate {
    fn from_sql(ty: &Type, value: Value<'a>) -> Result<Self, BoxError> {
        naive_date(Date::from_sql(ty, value).map_err(|_| WrongType::new::<Self>(ty))?)
    }
}

impl<'a> FromSql<'a> for NaiveDateTime {
    fn from_sql(ty: &Type, value: Value<'a>) -> Result<Self, BoxError> {
        let own = DateTime::from_sql(ty, value).map_err(|_| WrongType::new::<Self>(ty))?;
        let [hour, minute, second] = [own.hour, own.minute, own.second].map(u32::from);
        Ok(naive_date(own.date)?.and_time(naive_time(hour, minute, second, own.microsecond)?))
    }
}

impl<'a> FromSql<'a> for ZonedDateTime<Utc> {
    fn from_sql(ty: &Type, value: Value<'a>) -> Result<Self, BoxError> {
        NaiveDateTime::from_sql(ty, value).map(|naive| naive.and_utc())
    }
}

impl<'a> FromSql<'a> for NaiveTime {
    fn from_sql(ty: &Type, value: Value<'a>) -> Result<Self, BoxError> {
        let time = Time::from_sql(ty, value).map_err(|_| WrongType::new::<Self>(ty))?;
        match time.parts() {
            (false, 0, hour, minute, second, microsecond) => {
                naive_time(hour.into(), minute.into(), second.into(), microsecond)
            }
            _ => Err(Box::new(calendar::NOT_OF_DAY)),
        }
    }
}

impl<'a> FromSql<'a> for TimeDelta {
    fn from_sql(ty: &Type, value: Value<'a>) -> Result<Self, BoxError> {
        let time = Time::from_sql(ty, value).map_err(|_| WrongType::new::<Self>(ty))?;
        Ok(Self::microseconds(time.as_microseconds()))
    }
}

sent_as! {
    NaiveDate, Date, naive => date(naive)?;
    NaiveDateTime, DateTime, naive => date_time(naive)?;
    ZonedDateTime<Utc>, DateTime, moment => date_time(&moment.naive_utc())?;
    NaiveTime, Time, time => calendar::time(of_day(*time))?;
    TimeDelta, Time, time => calendar::time(time.num_microseconds().ok_or(calendar::TIMES)?)?;
}
