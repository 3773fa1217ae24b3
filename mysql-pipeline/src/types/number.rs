//! Numbers: integers of every width, floats, `bool`, decimals.

use std::fmt;
use std::str::FromStr;

use super::{BoxError, FromSql, Type, Value, WrongType};

/// A `DECIMAL`, as the text that the server has for it: up to 65 digits, exact.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Decimal(Box<str>);

impl Decimal {
    /// The text: an optional sign, digits, and at most one point.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Decimal {
    type Err = NoDecimal;

    fn from_str(text: &str) -> Result<Self, NoDecimal> {
        let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
        let points = digits.bytes().filter(|byte| *byte == b'.').count();
        let well_formed = digits.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
        if well_formed && points <= 1 && digits.len() > points {
            Ok(Self(text.into()))
        } else {
            Err(NoDecimal)
        }
    }
}

impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The text is no decimal number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoDecimal;

impl fmt::Display for NoDecimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not a decimal number: an optional sign, digits, at most one point")
    }
}

impl std::error::Error for NoDecimal {}

impl<'a> FromSql<'a> for Decimal {
    fn from_sql(ty: &Type, value: Value<'a>) -> Result<Self, BoxError> {
        match value {
            Value::Int(number) => Ok(Self(number.to_string().into())),
            Value::UInt(number) => Ok(Self(number.to_string().into())),
            Value::Bytes(text) if is_decimal(*ty) => Ok(std::str::from_utf8(text)?.parse()?),
            _ => Err(Box::new(WrongType::new::<Self>(ty))),
        }
    }
}

fn is_decimal(ty: Type) -> bool {
    matches!(ty.code(), Type::DECIMAL | Type::OLD_DECIMAL)
}

/// Bits, the highest first; up to 64 of them.
fn bits(bytes: &[u8]) -> Option<u64> {
    (bytes.len() <= 8).then(|| bytes.iter().fold(0, |bits, byte| bits << 8 | u64::from(*byte)))
}

macro_rules! integers {
    ($($type:ty),+) => {$(
        impl<'a> FromSql<'a> for $type {
            fn from_sql(ty: &Type, value: Value<'a>) -> Result<Self, BoxError> {
                match value {
                    Value::Int(number) => Ok(Self::try_from(number)?),
                    Value::UInt(number) => Ok(Self::try_from(number)?),
                    // What SUM makes of integers. One with a fraction is not cut.
                    Value::Bytes(text) if is_decimal(*ty) => Ok(std::str::from_utf8(text)?.parse()?),
                    Value::Bytes(bytes) if ty.code() == Type::BIT => {
                        Ok(Self::try_from(bits(bytes).ok_or_else(|| WrongType::new::<Self>(ty))?)?)
                    }
                    _ => Err(Box::new(WrongType::new::<Self>(ty))),
                }
            }
        }
    )+};
}

integers!(i8, i16, i32, i64, i128, u8, u16, u32, u64, u128);

impl<'a> FromSql<'a> for bool {
    /// Everything but 0 is true, as in MySQL.
    fn from_sql(ty: &Type, value: Value<'a>) -> Result<Self, BoxError> {
        match value {
            Value::Int(number) => Ok(number != 0),
            Value::UInt(number) => Ok(number != 0),
            Value::Bytes(bytes) if ty.code() == Type::BIT => Ok(bytes.iter().any(|byte| *byte != 0)),
            _ => Err(Box::new(WrongType::new::<Self>(ty))),
        }
    }
}

impl<'a> FromSql<'a> for f32 {
    fn from_sql(ty: &Type, value: Value<'a>) -> Result<Self, BoxError> {
        match value {
            Value::Float(number) => Ok(number),
            _ => Err(Box::new(WrongType::new::<Self>(ty))),
        }
    }
}

impl<'a> FromSql<'a> for f64 {
    fn from_sql(ty: &Type, value: Value<'a>) -> Result<Self, BoxError> {
        match value {
            Value::Float(number) => Ok(number.into()),
            Value::Double(number) => Ok(number),
            // What AVG makes of integers.
            Value::Bytes(text) if is_decimal(*ty) => Ok(std::str::from_utf8(text)?.parse()?),
            _ => Err(Box::new(WrongType::new::<Self>(ty))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ty(code: u8) -> Type {
        Type::new(code, 0, 0)
    }

    #[test]
    fn integers_are_converted_as_far_as_they_fit() {
        let long = ty(Type::LONGLONG);
        assert_eq!(i8::from_sql(&long, Value::Int(-128)).expect("fits"), -128);
        assert!(i8::from_sql(&long, Value::Int(128)).is_err());
        assert!(u64::from_sql(&long, Value::Int(-1)).is_err());
        assert_eq!(u64::from_sql(&long, Value::UInt(u64::MAX)).expect("fits"), u64::MAX);
        assert!(i64::from_sql(&long, Value::UInt(u64::MAX)).is_err());
        assert!(i32::from_sql(&ty(253), Value::Bytes(b"7")).is_err(), "text is not a number");
    }

    #[test]
    fn decimals_and_bits_are_numbers_where_they_can_be() {
        let decimal = ty(Type::DECIMAL);
        assert_eq!(i64::from_sql(&decimal, Value::Bytes(b"-42")).expect("whole"), -42);
        assert!(i64::from_sql(&decimal, Value::Bytes(b"4.2")).is_err());
        assert_eq!(
            f64::from_sql(&decimal, Value::Bytes(b"4.25")).expect("a number").to_bits(),
            4.25_f64.to_bits()
        );
        let text = "-12345678901234567890123456789012345678901234567890.123456789012345";
        let exact = Decimal::from_sql(&decimal, Value::Bytes(text.as_bytes())).expect("exact");
        assert_eq!(exact.as_str(), text);
        let bit = ty(Type::BIT);
        assert_eq!(u16::from_sql(&bit, Value::Bytes(&[1, 2])).expect("fits"), 0x0102);
        assert_eq!(u64::from_sql(&bit, Value::Bytes(&[255; 8])).expect("fits"), u64::MAX);
        assert!(u64::from_sql(&bit, Value::Bytes(&[0; 9])).is_err());
        assert!(bool::from_sql(&bit, Value::Bytes(&[1])).expect("a bit"));
    }

    #[test]
    fn texts_that_are_no_decimals_are_refused() {
        for text in ["", "-", ".", "1.2.3", "1e5", " 1", "x", "--1"] {
            assert_eq!(text.parse::<Decimal>(), Err(NoDecimal), "{text:?}");
        }
        for text in ["0", "-1", "+1.5", ".5", "5."] {
            assert!(text.parse::<Decimal>().is_ok(), "{text:?}");
        }
    }
}
