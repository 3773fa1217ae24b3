//! UUIDs: 16 bytes (`BINARY(16)`, as MySQL's `UUID_TO_BIN` makes them) or text (`CHAR(36)`, MariaDB's `UUID`).
//!
//! Which of them a column has is known only when it is read, so that a parameter says it by its type: [`Uuid`] is sent as
//! bytes, [`Hyphenated`] and [`Simple`] as text. Both are read from either.

use bytes::BytesMut;
use uuid::Uuid;
use uuid::fmt::{Hyphenated, Simple};

use super::encode::put_bytes;
use super::{BoxError, FromSql, ParameterType, ToSql, Type, Value, WrongType};

impl<'a> FromSql<'a> for Uuid {
    fn from_sql(ty: &Type, value: Value<'a>) -> Result<Self, BoxError> {
        match value {
            Value::Bytes(bytes) if ty.code() != Type::BIT => match Self::from_slice(bytes) {
                Ok(uuid) => Ok(uuid),
                Err(_) => Ok(Self::try_parse_ascii(bytes)?),
            },
            _ => Err(Box::new(WrongType::new::<Self>(ty))),
        }
    }
}

impl ToSql for Uuid {
    fn parameter_type(&self) -> ParameterType {
        ParameterType::Bytes
    }

    fn to_sql(&self, out: &mut BytesMut) -> Result<(), BoxError> {
        put_bytes(self.as_bytes(), out);
        Ok(())
    }
}

macro_rules! text {
    ($($type:ident),+) => {$(
        impl<'a> FromSql<'a> for $type {
            fn from_sql(ty: &Type, value: Value<'a>) -> Result<Self, BoxError> {
                Uuid::from_sql(ty, value).map(Into::into)
            }
        }

        impl ToSql for $type {
            fn parameter_type(&self) -> ParameterType {
                ParameterType::Text
            }

            fn to_sql(&self, out: &mut BytesMut) -> Result<(), BoxError> {
                let mut text = [0; $type::LENGTH];
                put_bytes(self.encode_lower(&mut text).as_bytes(), out);
                Ok(())
            }
        }
    )+};
}

text!(Hyphenated, Simple);
