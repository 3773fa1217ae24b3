//! Values as parameters: which type each is sent as, and its bytes.
//!
//! Source: MySQL internals, "Binary Protocol Value", and `COM_STMT_EXECUTE` for the types.

use std::borrow::Cow;
use std::fmt;

use bytes::{BufMut, BytesMut};

use super::{BoxError, Date, DateTime, Decimal, Time, Type};
use crate::protocol::lenenc;

/// What a parameter is sent as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ParameterType {
    /// No value.
    Null,
    /// Eight bytes, little endian, with a sign.
    Int,
    /// Eight bytes, little endian, without a sign.
    UInt,
    /// Four bytes, little endian.
    Float,
    /// Eight bytes, little endian.
    Double,
    /// A number as text, behind its length.
    Decimal,
    /// UTF-8 behind its length.
    Text,
    /// Bytes behind their length.
    Bytes,
    /// A [`Date`].
    Date,
    /// A [`DateTime`].
    DateTime,
    /// A [`Time`].
    Time,
}

impl ParameterType {
    /// Code and flag. Source of the flag: MySQL internals, `COM_STMT_EXECUTE`, `parameter_types`.
    pub(crate) fn bytes(self) -> [u8; 2] {
        match self {
            Self::Null => [Type::NULL, 0],
            Self::Int => [Type::LONGLONG, 0],
            Self::UInt => [Type::LONGLONG, 0x80],
            Self::Float => [Type::FLOAT, 0],
            Self::Double => [Type::DOUBLE, 0],
            Self::Decimal => [Type::DECIMAL, 0],
            Self::Text => [253, 0],
            Self::Bytes => [252, 0],
            Self::Date => [Type::DATE, 0],
            Self::DateTime => [Type::DATETIME, 0],
            Self::Time => [Type::TIME, 0],
        }
    }
}

/// What can be a parameter.
///
/// Integers are sent in eight bytes, and with a sign unless they are too large for one: the server prepares a
/// statement again when a parameter comes with another type than before.
pub trait ToSql: fmt::Debug {
    /// What it is sent as. [`ParameterType::Null`] for NULL, and then nothing is written.
    fn parameter_type(&self) -> ParameterType;

    /// Writes its bytes, with their length where its type has one.
    ///
    /// # Errors
    ///
    /// When it cannot be sent; then the statement is not sent either.
    fn to_sql(&self, out: &mut BytesMut) -> Result<(), BoxError>;
}

/// Bytes behind their length.
pub(super) fn put_bytes(bytes: &[u8], out: &mut BytesMut) {
    out.reserve(9 + bytes.len());
    lenenc::put(bytes.len() as u64, out);
    out.put_slice(bytes);
}

macro_rules! signed {
    ($($type:ty),+) => {$(
        impl ToSql for $type {
            fn parameter_type(&self) -> ParameterType {
                ParameterType::Int
            }

            fn to_sql(&self, out: &mut BytesMut) -> Result<(), BoxError> {
                out.put_i64_le(i64::from(*self));
                Ok(())
            }
        }
    )+};
}

signed!(i8, i16, i32, i64, u8, u16, u32, bool);

impl ToSql for u64 {
    fn parameter_type(&self) -> ParameterType {
        if i64::try_from(*self).is_ok() { ParameterType::Int } else { ParameterType::UInt }
    }

    fn to_sql(&self, out: &mut BytesMut) -> Result<(), BoxError> {
        out.put_u64_le(*self);
        Ok(())
    }
}

/// Wider than any integer of the server's: a `DECIMAL`.
macro_rules! wide {
    ($($type:ty),+) => {$(
        impl ToSql for $type {
            fn parameter_type(&self) -> ParameterType {
                ParameterType::Decimal
            }

            fn to_sql(&self, out: &mut BytesMut) -> Result<(), BoxError> {
                put_bytes(self.to_string().as_bytes(), out);
                Ok(())
            }
        }
    )+};
}

wide!(i128, u128);

impl ToSql for f32 {
    fn parameter_type(&self) -> ParameterType {
        ParameterType::Float
    }

    fn to_sql(&self, out: &mut BytesMut) -> Result<(), BoxError> {
        out.put_f32_le(*self);
        Ok(())
    }
}

impl ToSql for f64 {
    fn parameter_type(&self) -> ParameterType {
        ParameterType::Double
    }

    fn to_sql(&self, out: &mut BytesMut) -> Result<(), BoxError> {
        out.put_f64_le(*self);
        Ok(())
    }
}

macro_rules! by_bytes {
    ($($type:ty, $kind:ident, $self:ident => $bytes:expr;)+) => {$(
        impl ToSql for $type {
            fn parameter_type(&self) -> ParameterType {
                ParameterType::$kind
            }

            fn to_sql(&$self, out: &mut BytesMut) -> Result<(), BoxError> {
                put_bytes($bytes, out);
                Ok(())
            }
        }
    )+};
}

by_bytes! {
    str, Text, self => self.as_bytes();
    String, Text, self => self.as_bytes();
    Box<str>, Text, self => self.as_bytes();
    Cow<'_, str>, Text, self => self.as_bytes();
    [u8], Bytes, self => self;
    Vec<u8>, Bytes, self => self;
    bytes::Bytes, Bytes, self => self;
    Decimal, Decimal, self => self.as_str().as_bytes();
}

impl<const N: usize> ToSql for [u8; N] {
    fn parameter_type(&self) -> ParameterType {
        ParameterType::Bytes
    }

    fn to_sql(&self, out: &mut BytesMut) -> Result<(), BoxError> {
        put_bytes(self, out);
        Ok(())
    }
}

impl ToSql for Date {
    fn parameter_type(&self) -> ParameterType {
        ParameterType::Date
    }

    fn to_sql(&self, out: &mut BytesMut) -> Result<(), BoxError> {
        out.put_u8(4);
        put_date(*self, out);
        Ok(())
    }
}

impl ToSql for DateTime {
    fn parameter_type(&self) -> ParameterType {
        ParameterType::DateTime
    }

    fn to_sql(&self, out: &mut BytesMut) -> Result<(), BoxError> {
        out.put_u8(11);
        put_date(self.date, out);
        out.put_slice(&[self.hour, self.minute, self.second]);
        out.put_u32_le(self.microsecond);
        Ok(())
    }
}

impl ToSql for Time {
    fn parameter_type(&self) -> ParameterType {
        ParameterType::Time
    }

    fn to_sql(&self, out: &mut BytesMut) -> Result<(), BoxError> {
        let (negative, days, hours, minutes, seconds, microseconds) = self.parts();
        out.put_slice(&[12, u8::from(negative)]);
        out.put_u32_le(days);
        out.put_slice(&[hours, minutes, seconds]);
        out.put_u32_le(microseconds);
        Ok(())
    }
}

fn put_date(date: Date, out: &mut BytesMut) {
    out.put_u16_le(date.year);
    out.put_slice(&[date.month, date.day]);
}

impl<T: ToSql> ToSql for Option<T> {
    fn parameter_type(&self) -> ParameterType {
        self.as_ref().map_or(ParameterType::Null, ToSql::parameter_type)
    }

    fn to_sql(&self, out: &mut BytesMut) -> Result<(), BoxError> {
        self.as_ref().map_or(Ok(()), |value| value.to_sql(out))
    }
}

impl<T: ToSql + ?Sized> ToSql for &T {
    fn parameter_type(&self) -> ParameterType {
        (**self).parameter_type()
    }

    fn to_sql(&self, out: &mut BytesMut) -> Result<(), BoxError> {
        (**self).to_sql(out)
    }
}
