//! Vectors of floats: MySQL's `VECTOR` (9.0) and MariaDB's (11.7). Both are four bytes each, little endian, with no length
//! in front. Source: MySQL manual, "The VECTOR Type"; MariaDB documentation, "VECTOR".

use bytes::{BufMut as _, BytesMut};

use super::encode::put_bytes;
use super::{BoxError, FromSql, ParameterType, ToSql, Type, Value, WrongType};

impl<'a> FromSql<'a> for Vec<f32> {
    /// From a `VECTOR`, or from bytes as MariaDB sends one.
    fn from_sql(ty: &Type, value: Value<'a>) -> Result<Self, BoxError> {
        match value {
            Value::Bytes(bytes) if ty.is_bytes() && bytes.len().is_multiple_of(4) => {
                let (floats, _) = bytes.as_chunks::<4>();
                Ok(floats.iter().copied().map(f32::from_le_bytes).collect())
            }
            _ => Err(Box::new(WrongType::new::<Self>(ty))),
        }
    }
}

impl ToSql for [f32] {
    fn parameter_type(&self) -> ParameterType {
        ParameterType::Bytes
    }

    fn to_sql(&self, out: &mut BytesMut) -> Result<(), BoxError> {
        let mut bytes = BytesMut::with_capacity(4 * self.len());
        for float in self {
            bytes.put_f32_le(*float);
        }
        put_bytes(&bytes, out);
        Ok(())
    }
}

impl ToSql for Vec<f32> {
    fn parameter_type(&self) -> ParameterType {
        self.as_slice().parameter_type()
    }

    fn to_sql(&self, out: &mut BytesMut) -> Result<(), BoxError> {
        self.as_slice().to_sql(out)
    }
}
