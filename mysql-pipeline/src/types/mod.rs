//! Types of values: what a column can hold, and the traits that turn it into Rust's types and back.
//!
//! The traits have the shape of `postgres-types`'. What differs is what the databases do: MySQL takes a parameter of
//! any type and converts it to what the statement needs, so that [`ToSql`] says by itself which type it sends.
//!
//! | MySQL | Rust |
//! |---|---|
//! | `TINYINT` … `BIGINT`, signed or `UNSIGNED`, `YEAR` | `i8` … `i64`, `u8` … `u64`, as far as the value fits; `bool` |
//! | `FLOAT` · `DOUBLE` | `f32` · `f64` (a `FLOAT` too) |
//! | `DECIMAL` | [`Decimal`]; whole numbers (`SUM`) as integers too; `f64`, rounded |
//! | `CHAR`, `VARCHAR`, `TEXT`, `ENUM`, `SET`, `JSON` | `String`, `&str`, `Box<str>` |
//! | `BINARY`, `VARBINARY`, `BLOB`, `GEOMETRY`, anything unknown | `Vec<u8>`, `&[u8]`; as text where it is UTF-8 |
//! | `BIT` | unsigned integers, `bool`, `Vec<u8>` |
//! | `DATE` · `DATETIME`, `TIMESTAMP` · `TIME` | [`Date`] · [`DateTime`], `SystemTime` (as UTC) · [`Time`], `Duration` |
//! | `VECTOR` | `Vec<f32>` |
//! | MariaDB's `INET4`, `INET6` (or 4 and 16 bytes) | `IpAddr`, `Ipv4Addr`, `Ipv6Addr`, `String` |
//! | `NULL` | `None` |
//!
//! With features, as the field names them:
//!
//! | feature | MySQL | Rust |
//! |---|---|---|
//! | `with-chrono-0_4` | `DATE` · `DATETIME`, `TIMESTAMP` · `TIME` | `NaiveDate` · `NaiveDateTime`, `DateTime<Utc>` · `NaiveTime` (0 to 24 h), `TimeDelta` |
//! | `with-time-0_3` | the same | `Date` · `PrimitiveDateTime`, `OffsetDateTime` · `Time` (0 to 24 h), `Duration` |
//! | `with-uuid-1` | `BINARY(16)` · `CHAR(36)`, MariaDB's `UUID` | `Uuid` (sent as 16 bytes) · `Hyphenated`, `Simple` (sent as text); each is read from both |
//! | `with-serde_json-1` | `JSON`, any text | `Json<T>`, `serde_json::Value` |
//! | `with-rust_decimal-1` · `with-bigdecimal-0_4` | `DECIMAL`, integers | `Decimal` (28 digits; an error for more) · `BigDecimal` |
//!
//! A value that the Rust type cannot hold (a zero date for `NaiveDate`, 300 for `u8`, `-01:00:00` for `Duration`) is an
//! error of kind [`Decode`](crate::ErrorKind::Decode) that says which type can.
//!
//! **Text and bytes.** The character set of the connection is `utf8mb4`, whatever that of a column is: texts arrive as
//! UTF-8. What the server calls bytes (collation 63) may be asked for as text all the same where it is UTF-8, because
//! `JSON` and parts of the catalogue come so. Collations of any number are taken, known or not.
//!
//! **Both protocols agree**, with one exception: a `FLOAT` comes with 6 digits as text (of statements that cannot be
//! prepared), and exactly in binary.

mod calendar;
#[cfg(feature = "with-chrono-0_4")]
mod chrono;
#[cfg(any(feature = "with-rust_decimal-1", feature = "with-bigdecimal-0_4"))]
mod decimals;
mod decode;
mod encode;
#[cfg(feature = "with-serde_json-1")]
mod json;
mod number;
mod standard;
mod temporal;
#[cfg(feature = "with-time-0_3")]
mod time;
#[cfg(feature = "with-uuid-1")]
mod uuid;
mod vector;

use std::error::Error as StdError;
use std::fmt;

pub use self::calendar::{NoSuchDay, OutOfRange};
pub use self::encode::{ParameterType, ToSql};
#[cfg(feature = "with-serde_json-1")]
pub use self::json::Json;
pub use self::number::Decimal;
pub use self::temporal::{Date, DateTime, Time};
pub use bytes::BytesMut;

type BoxError = Box<dyn StdError + Sync + Send>;

/// A column's type. Source of the codes: MySQL sources, `enum_field_types` in `field_types.h`.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Type {
    code: u8,
    unsigned: bool,
    /// Its bytes are no text (collation 63).
    binary: bool,
}

/// Source: MySQL internals, "Column Definition Flags".
const UNSIGNED_FLAG: u16 = 0x20;
const ENUM_FLAG: u16 = 0x100;
const SET_FLAG: u16 = 0x800;
const BINARY_COLLATION: u16 = 63;

impl Type {
    pub(crate) const TINY: u8 = 1;
    pub(crate) const SHORT: u8 = 2;
    pub(crate) const LONG: u8 = 3;
    pub(crate) const FLOAT: u8 = 4;
    pub(crate) const DOUBLE: u8 = 5;
    pub(crate) const NULL: u8 = 6;
    pub(crate) const TIMESTAMP: u8 = 7;
    pub(crate) const LONGLONG: u8 = 8;
    pub(crate) const INT24: u8 = 9;
    pub(crate) const DATE: u8 = 10;
    pub(crate) const TIME: u8 = 11;
    pub(crate) const DATETIME: u8 = 12;
    pub(crate) const YEAR: u8 = 13;
    pub(crate) const BIT: u8 = 16;
    pub(crate) const ENUM: u8 = 247;
    pub(crate) const SET: u8 = 248;
    pub(crate) const CHAR: u8 = 254;
    pub(crate) const OLD_DECIMAL: u8 = 0;
    pub(crate) const DECIMAL: u8 = 246;

    pub(crate) fn new(code: u8, flags: u16, collation: u16) -> Self {
        // The protocol calls both of them CHAR, and says by a flag what they are.
        let code = match code {
            Self::CHAR if flags & ENUM_FLAG != 0 => Self::ENUM,
            Self::CHAR if flags & SET_FLAG != 0 => Self::SET,
            code => code,
        };
        Self { code, unsigned: flags & UNSIGNED_FLAG != 0, binary: collation == BINARY_COLLATION }
    }

    /// The number of the type in the server's sources (`enum_field_types`).
    pub fn code(&self) -> u8 {
        self.code
    }

    /// Whether values are bytes, and not text in any character set.
    pub fn is_bytes(&self) -> bool {
        self.binary
    }

    /// Whether a number has no sign.
    pub fn is_unsigned(&self) -> bool {
        self.unsigned
    }

    /// The type's name, without lengths. What has no name here is `UNKNOWN`.
    pub fn name(&self) -> &'static str {
        match (self.code, self.binary) {
            (Self::TINY, _) => "TINYINT",
            (Self::SHORT, _) => "SMALLINT",
            (Self::INT24, _) => "MEDIUMINT",
            (Self::LONG, _) => "INT",
            (Self::LONGLONG, _) => "BIGINT",
            (Self::FLOAT, _) => "FLOAT",
            (Self::DOUBLE, _) => "DOUBLE",
            (Self::DECIMAL | Self::OLD_DECIMAL, _) => "DECIMAL",
            (Self::NULL, _) => "NULL",
            (Self::TIMESTAMP, _) => "TIMESTAMP",
            (Self::DATE | 14, _) => "DATE",
            (Self::TIME, _) => "TIME",
            (Self::DATETIME, _) => "DATETIME",
            (Self::YEAR, _) => "YEAR",
            (Self::BIT, _) => "BIT",
            (242, _) => "VECTOR",
            (245, _) => "JSON",
            (Self::ENUM, _) => "ENUM",
            (Self::SET, _) => "SET",
            (15 | 253, false) => "VARCHAR",
            (15 | 253, true) => "VARBINARY",
            (249..=252, false) => "TEXT",
            (249..=252, true) => "BLOB",
            (Self::CHAR, false) => "CHAR",
            (Self::CHAR, true) => "BINARY",
            (255, _) => "GEOMETRY",
            _ => "UNKNOWN",
        }
    }
}

impl fmt::Debug for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        if self.unsigned { f.write_str(" UNSIGNED") } else { Ok(()) }
    }
}

/// A value of a column that is not NULL, as the server sent it.
#[derive(Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum Value<'a> {
    /// A signed integer.
    Int(i64),
    /// An unsigned integer.
    UInt(u64),
    /// A `FLOAT`.
    Float(f32),
    /// A `DOUBLE`.
    Double(f64),
    /// Text, bytes, decimals, bits, and whatever this driver does not know.
    Bytes(&'a [u8]),
    /// A `DATE`.
    Date(Date),
    /// A `DATETIME` or `TIMESTAMP`.
    DateTime(DateTime),
    /// A `TIME`.
    Time(Time),
}

impl Value<'_> {
    fn kind(&self) -> &'static str {
        match self {
            Self::Int(_) | Self::UInt(_) => "an integer",
            Self::Float(_) | Self::Double(_) => "a floating-point number",
            Self::Bytes(_) => "bytes",
            Self::Date(_) => "a date",
            Self::DateTime(_) => "a date with a time",
            Self::Time(_) => "a time",
        }
    }
}

// By hand: values stay out of logs.
impl fmt::Debug for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind())
    }
}

/// What a column's value can be turned into.
pub trait FromSql<'a>: Sized {
    /// The value of a column of type `ty`.
    ///
    /// # Errors
    ///
    /// When it is none of this type's.
    fn from_sql(ty: &Type, value: Value<'a>) -> Result<Self, BoxError>;

    /// NULL.
    ///
    /// # Errors
    ///
    /// Unless this type has a place for it, as `Option` has.
    fn from_sql_null(ty: &Type) -> Result<Self, BoxError> {
        let _ = ty;
        Err(Box::new(WasNull))
    }

    /// Either of them.
    ///
    /// # Errors
    ///
    /// As theirs.
    fn from_sql_nullable(ty: &Type, value: Option<Value<'a>>) -> Result<Self, BoxError> {
        match value {
            Some(value) => Self::from_sql(ty, value),
            None => Self::from_sql_null(ty),
        }
    }
}

/// NULL came where the type has no place for it; ask for an `Option`.
#[derive(Debug, Clone, Copy)]
pub struct WasNull;

impl fmt::Display for WasNull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the value is NULL; ask for an `Option`")
    }
}

impl StdError for WasNull {}

/// The value is not of the type that was asked for.
#[derive(Debug, Clone)]
pub struct WrongType {
    ty: Type,
    rust: &'static str,
}

impl WrongType {
    /// A column of type `ty` cannot be a `T`.
    pub fn new<T>(ty: &Type) -> Self {
        Self { ty: *ty, rust: std::any::type_name::<T>() }
    }
}

impl fmt::Display for WrongType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is not converted to `{}`", self.ty, self.rust)
    }
}

impl StdError for WrongType {}
