//! Types of the standard library: [`SystemTime`], [`Duration`] and addresses.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::BytesMut;

use super::calendar::{self, OutOfRange, sent_as};
use super::encode::put_bytes;
use super::{BoxError, DateTime, FromSql, ParameterType, ToSql, Type, Value, WrongType};

/// A moment from a `DATETIME` or `TIMESTAMP`, which is taken to be in UTC (as sessions here are, unless `time_zone` says
/// otherwise).
impl<'a> FromSql<'a> for SystemTime {
    fn from_sql(ty: &Type, value: Value<'a>) -> Result<Self, BoxError> {
        let Value::DateTime(date_time) = value else { return Err(Box::new(WrongType::new::<Self>(ty))) };
        let (seconds, microsecond) = calendar::moment(date_time)?;
        let whole = Duration::from_secs(seconds.unsigned_abs());
        let moment = if seconds < 0 { UNIX_EPOCH.checked_sub(whole) } else { UNIX_EPOCH.checked_add(whole) };
        let moment = moment.and_then(|moment| moment.checked_add(Duration::from_micros(microsecond.into())));
        Ok(moment.ok_or(OutOfRange("this system's time does not reach so far"))?)
    }
}

/// The server keeps microseconds: what is smaller is cut off towards the past.
fn utc(moment: SystemTime) -> Result<DateTime, BoxError> {
    let microseconds = match moment.duration_since(UNIX_EPOCH) {
        Ok(after) => i64::try_from(after.as_micros()).ok(),
        Err(before) => i64::try_from(before.duration().as_nanos().div_ceil(1_000)).ok().map(|before| -before),
    };
    let microseconds = microseconds.ok_or(calendar::YEARS)?;
    calendar::at(microseconds.div_euclid(1_000_000), microseconds.rem_euclid(1_000_000) as u32)
}

/// A `TIME` that is not below zero.
impl<'a> FromSql<'a> for Duration {
    fn from_sql(ty: &Type, value: Value<'a>) -> Result<Self, BoxError> {
        let Value::Time(time) = value else { return Err(Box::new(WrongType::new::<Self>(ty))) };
        let microseconds = u64::try_from(time.as_microseconds());
        Ok(Self::from_micros(microseconds.map_err(|_| {
            OutOfRange(
                "the TIME is below zero, and a `Duration` never is; ask for `mysql_pipeline::types::Time`",
            )
        })?))
    }
}

sent_as! {
    SystemTime, DateTime, moment => utc(*moment)?;
    Duration, Time, time => calendar::time(time.as_micros())?;
}

/// Text, as MariaDB's `INET4` and `INET6` are sent; or bytes, the highest first, as `INET6_ATON` makes them.
macro_rules! addresses {
    ($($type:ty),+) => {$(
        impl<'a> FromSql<'a> for $type {
            fn from_sql(ty: &Type, value: Value<'a>) -> Result<Self, BoxError> {
                let Value::Bytes(bytes) = value else { return Err(Box::new(WrongType::new::<Self>(ty))) };
                if let Some(address) = std::str::from_utf8(bytes).ok().and_then(|text| text.parse().ok()) {
                    return Ok(address);
                }
                let address = match *bytes {
                    [a, b, c, d] => Some(IpAddr::from([a, b, c, d])),
                    _ => <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from),
                };
                let own = address.and_then(|address| Self::try_from(Own(address)).ok());
                own.ok_or_else(|| WrongType::new::<Self>(ty).into())
            }
        }

        impl ToSql for $type {
            fn parameter_type(&self) -> ParameterType {
                ParameterType::Text
            }

            fn to_sql(&self, out: &mut BytesMut) -> Result<(), BoxError> {
                put_bytes(self.to_string().as_bytes(), out);
                Ok(())
            }
        }
    )+};
}

addresses!(IpAddr, Ipv4Addr, Ipv6Addr);

/// An address of either kind, on its way to one of them.
struct Own(IpAddr);

impl TryFrom<Own> for IpAddr {
    type Error = ();

    fn try_from(Own(address): Own) -> Result<Self, ()> {
        Ok(address)
    }
}

impl TryFrom<Own> for Ipv4Addr {
    type Error = ();

    fn try_from(Own(address): Own) -> Result<Self, ()> {
        if let IpAddr::V4(address) = address { Ok(address) } else { Err(()) }
    }
}

impl TryFrom<Own> for Ipv6Addr {
    type Error = ();

    fn try_from(Own(address): Own) -> Result<Self, ()> {
        if let IpAddr::V6(address) = address { Ok(address) } else { Err(()) }
    }
}
