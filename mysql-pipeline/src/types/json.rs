//! JSON through `serde`. Any text and any bytes will do: MariaDB's `JSON` is a `LONGTEXT`.

use bytes::BytesMut;
use serde::de::Deserialize;
use serde::ser::Serialize;
use std::fmt::Debug;

use super::encode::put_bytes;
use super::{BoxError, FromSql, ParameterType, ToSql, Type, Value, WrongType};

/// A value that is stored as JSON: `Json<T>` of anything that `serde` can read and write.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Json<T>(pub T);

impl<'a, T: Deserialize<'a>> FromSql<'a> for Json<T> {
    fn from_sql(ty: &Type, value: Value<'a>) -> Result<Self, BoxError> {
        match value {
            Value::Bytes(bytes) if ty.code() != Type::BIT => Ok(Self(serde_json::from_slice(bytes)?)),
            _ => Err(Box::new(WrongType::new::<Self>(ty))),
        }
    }
}

impl<T: Serialize + Debug> ToSql for Json<T> {
    fn parameter_type(&self) -> ParameterType {
        ParameterType::Text
    }

    fn to_sql(&self, out: &mut BytesMut) -> Result<(), BoxError> {
        put_bytes(&serde_json::to_vec(&self.0)?, out);
        Ok(())
    }
}

impl<'a> FromSql<'a> for serde_json::Value {
    fn from_sql(ty: &Type, value: Value<'a>) -> Result<Self, BoxError> {
        Json::<Self>::from_sql(ty, value).map(|Json(value)| value)
    }
}

impl ToSql for serde_json::Value {
    fn parameter_type(&self) -> ParameterType {
        ParameterType::Text
    }

    fn to_sql(&self, out: &mut BytesMut) -> Result<(), BoxError> {
        Json(self).to_sql(out)
    }
}
