//! `DECIMAL` as numbers of other crates, by way of [`Decimal`]: what they cannot hold exactly is an error.

use super::{BoxError, Decimal, FromSql, Type, Value};

#[cfg(feature = "with-rust_decimal-1")]
mod rust_decimal {
    use ::rust_decimal::Decimal as Number;

    use super::{BoxError, Decimal, FromSql, Type, Value};
    use crate::types::calendar::sent_as;

    /// Up to 28 digits, and an error for more.
    impl<'a> FromSql<'a> for Number {
        fn from_sql(ty: &Type, value: Value<'a>) -> Result<Self, BoxError> {
            let exact = Decimal::from_sql(ty, value)?;
            Ok(Self::from_str_exact(exact.as_str())?)
        }
    }

    sent_as! {
        Number, Decimal, number => number.to_string().parse::<Decimal>()?;
    }
}

#[cfg(feature = "with-bigdecimal-0_4")]
mod bigdecimal {
    use ::bigdecimal::BigDecimal;

    use super::{BoxError, Decimal, FromSql, Type, Value};
    use crate::types::calendar::sent_as;

    impl<'a> FromSql<'a> for BigDecimal {
        fn from_sql(ty: &Type, value: Value<'a>) -> Result<Self, BoxError> {
            let exact = Decimal::from_sql(ty, value)?;
            Ok(exact.as_str().parse()?)
        }
    }

    sent_as! {
        BigDecimal, Decimal, number => number.to_plain_string().parse::<Decimal>()?;
    }
}
