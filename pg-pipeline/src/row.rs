//! Rows, columns, and what they can be turned into.
//!
//! A row refers to the bytes of its answer and decodes a value when it is asked for, in the task that asks: an error
//! in one value concerns that value alone. Decoders are `postgres-types`'; a panic in one is caught and becomes an
//! error, and an array that claims more elements than it has bytes never reaches them.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use bytes::Bytes;
use postgres_types::{FromSql, Kind, Type, WrongType};
use smallvec::SmallVec;
use wire_pipeline::row::{Field, FieldSource};

use crate::error::{Error, ErrorKind, Fault, Outcome};
use crate::protocol::messages::{Header, Reader, malformed};

/// A column of a result.
#[derive(Debug, Clone)]
pub struct Column {
    name: Box<str>,
    r#type: Type,
}

impl Column {
    pub(crate) fn new(name: Box<str>, r#type: Type) -> Self {
        Self { name, r#type }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its type.
    pub fn type_(&self) -> &Type {
        &self.r#type
    }
}

/// A row of a result.
#[derive(Clone)]
pub struct Row {
    columns: Arc<[Column]>,
    body: Bytes,
    fields: SmallVec<[Span; 4]>,
}

/// Where a value lies in the body; `None` is NULL.
type Span = Option<(u32, u32)>;

impl Row {
    /// The columns, in order.
    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// The number of columns.
    pub fn len(&self) -> usize {
        self.columns.len()
    }

    /// Whether there are no columns.
    pub fn is_empty(&self) -> bool {
        self.columns.is_empty()
    }

    /// The value of a column, by index from 0 or by name.
    ///
    /// # Panics
    ///
    /// When there is no such column, or its value is not a `T`. [`try_get`](Self::try_get) returns an error instead.
    #[track_caller]
    pub fn get<'a, T: FromSql<'a>>(&'a self, index: impl RowIndex) -> T {
        match self.try_get(index) {
            Ok(value) => value,
            Err(error) => panic!("{error}"),
        }
    }

    /// The value of a column, by index from 0 or by name.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Decode`] when there is no such column, or its value is not a `T` (NULL is only an `Option`).
    #[expect(clippy::needless_pass_by_value, reason = "an index is a number or a reference")]
    pub fn try_get<'a, T: FromSql<'a>>(&'a self, index: impl RowIndex) -> Result<T, Error> {
        let index = index.find(&self.columns).ok_or_else(|| self.no_column(&index))?;
        let Some((column, span)) = self.columns.get(index).zip(self.fields.get(index)) else {
            return Err(self.no_column(&index));
        };
        if !T::accepts(&column.r#type) {
            return Err(undecodable(column, WrongType::new::<T>(column.r#type.clone())));
        }
        let raw = span.and_then(|(start, end)| self.body.get(start as usize..end as usize));
        if let (Some(raw), Kind::Array(_)) = (raw, column.r#type.kind())
            && !has_the_elements_it_claims(raw)
        {
            return Err(undecodable(column, "the array claims more elements than it has"));
        }
        if raw.is_some_and(|raw| is_infinite(&column.r#type, raw)) && is_system_time::<T>() {
            return Err(undecodable(column, "the value is infinite; ask for types::Timestamp<SystemTime>"));
        }
        // The decoders trust the server. It is not theirs to take this task down.
        match catch_unwind(AssertUnwindSafe(|| T::from_sql_nullable(&column.r#type, raw))) {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) => Err(undecodable(column, error)),
            Err(_) => {
                Err(undecodable(column, "the value is out of the range of its Rust type, or malformed"))
            }
        }
    }

    #[cold]
    fn no_column(&self, index: &dyn fmt::Display) -> Error {
        let names: Vec<&str> = self.columns.iter().map(Column::name).collect();
        Fault::new(
            ErrorKind::Decode,
            Outcome::Completed,
            format!("there is no column {index}; the result's columns are {}", names.join(", ")),
        )
        .into()
    }
}

#[cold]
fn undecodable(column: &Column, error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Fault::new(
        ErrorKind::Decode,
        Outcome::Completed,
        format!("column {} of type {} cannot be decoded", column.name, column.r#type.name()),
    )
    .with_source(error)
    .into()
}

/// Decoders make room for as many elements as an array claims to have: each has at least its length of four bytes.
/// Source: `array_send` in PostgreSQL's `src/backend/utils/adt/arrayfuncs.c`.
fn has_the_elements_it_claims(raw: &[u8]) -> bool {
    let mut reader = Reader(raw);
    let (Some(dimensions), Some(_flags), Some(_type)) = (reader.u32(), reader.u32(), reader.u32()) else {
        // Too short for an array: the decoder says so.
        return true;
    };
    let mut elements = 1_u64;
    for _ in 0..dimensions {
        let (Some(length), Some(_lower)) = (reader.u32(), reader.u32()) else { return true };
        elements = elements.saturating_mul(u64::from(length));
    }
    dimensions == 0 || elements.saturating_mul(4) <= reader.0.len() as u64
}

/// Source: `DT_NOEND` and `DT_NOBEGIN` in PostgreSQL's `src/include/datatype/timestamp.h`.
fn is_infinite(r#type: &Type, raw: &[u8]) -> bool {
    matches!(*r#type, Type::TIMESTAMP | Type::TIMESTAMPTZ)
        && raw.try_into().is_ok_and(|raw| matches!(i64::from_be_bytes(raw), i64::MAX | i64::MIN))
}

/// `SystemTime` would take infinity for an ordinary time in the year 294,277. What a generic type is can only be told
/// from its name; this is looked at for infinite values alone.
fn is_system_time<T>() -> bool {
    let name = std::any::type_name::<T>();
    name.contains("SystemTime") && !name.contains("Timestamp<")
}

impl fmt::Debug for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Row").field("columns", &self.columns).finish_non_exhaustive()
    }
}

/// How a column is named: by index from 0, or by name.
pub trait RowIndex: fmt::Display + sealed::Sealed {
    #[doc(hidden)]
    fn find(&self, columns: &[Column]) -> Option<usize>;
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for usize {}
    impl Sealed for &str {}
    impl Sealed for &String {}
}

impl RowIndex for usize {
    fn find(&self, columns: &[Column]) -> Option<usize> {
        (*self < columns.len()).then_some(*self)
    }
}

impl RowIndex for &str {
    fn find(&self, columns: &[Column]) -> Option<usize> {
        columns.iter().position(|column| &*column.name == *self)
    }
}

impl RowIndex for &String {
    fn find(&self, columns: &[Column]) -> Option<usize> {
        RowIndex::find(&self.as_str(), columns)
    }
}

impl FieldSource for Row {
    type Error = Error;
}

impl<T: for<'a> FromSql<'a>> Field<T> for Row {
    fn field_at(&self, index: usize) -> Result<T, Error> {
        self.try_get(index)
    }

    fn field_named(&self, name: &str) -> Result<T, Error> {
        self.try_get(name)
    }

    fn field_hinted(&self, hint: usize, name: &str) -> Result<T, Error> {
        if self.columns.get(hint).is_some_and(|column| &*column.name == name) {
            return self.try_get(hint);
        }
        self.try_get(name)
    }
}

impl wire_pipeline::row::FromRow<Row> for Row {
    fn from_row(row: &Row) -> Result<Self, Error> {
        Ok(row.clone())
    }
}

/// What a row can be turned into: [`Row`] itself, tuples of up to 16 values, and structs with
/// [`#[derive(FromRow)]`](macro@crate::FromRow).
///
/// A type of your own may implement it by hand.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be made from a row",
    note = "ask for `Row`, for a tuple of up to 16 values (one column: `(T,)`), or for a struct with `#[derive(FromRow)]`"
)]
pub trait FromRow: Sized {
    /// Builds the value from the row's columns.
    ///
    /// # Errors
    ///
    /// When a column that is needed is missing, or its value is not of the type asked for.
    fn from_row(row: &Row) -> Result<Self, Error>;
}

impl<T: wire_pipeline::row::FromRow<Row>> FromRow for T {
    fn from_row(row: &Row) -> Result<Self, Error> {
        wire_pipeline::row::FromRow::from_row(row)
    }
}

/// Goes through the rows of an answer; one `Row` is reused for all of them.
pub(crate) struct Rows {
    chunks: std::vec::IntoIter<Bytes>,
    row: Row,
    at: usize,
}

impl Rows {
    pub(crate) fn new(columns: Arc<[Column]>, chunks: &wire_pipeline::answer::Chunks) -> Self {
        let chunks: Vec<Bytes> = chunks.iter().cloned().collect();
        Self {
            chunks: chunks.into_iter(),
            row: Row { columns, body: Bytes::new(), fields: SmallVec::new() },
            at: 0,
        }
    }

    /// The next row, valid until the next call.
    pub(crate) fn next(&mut self) -> Result<Option<&Row>, Fault> {
        while self.at >= self.row.body.len() {
            match self.chunks.next() {
                Some(chunk) => self.row.body = chunk,
                None => return Ok(None),
            }
            self.at = 0;
        }
        self.read_row().map_err(|error| error.with_outcome(Outcome::Completed))?;
        Ok(Some(&self.row))
    }

    /// Source: PostgreSQL documentation, Message Formats, DataRow.
    fn read_row(&mut self) -> Result<(), Fault> {
        let broken = || malformed("a row");
        let message = self.row.body.get(self.at..).unwrap_or_default();
        let header = Header::read(message)?.ok_or_else(broken)?;
        let mut reader = Reader(message.get(Header::LEN..header.total()).ok_or_else(broken)?);
        let end = self.at + header.total();
        let count = usize::from(reader.u16().ok_or_else(broken)?);
        if count != self.row.columns.len() {
            return Err(malformed("a row with another number of columns than described"));
        }
        self.row.fields.clear();
        for _ in 0..count {
            let length = reader.i32().ok_or_else(broken)?;
            let span = match u32::try_from(length) {
                Ok(length) => {
                    let start = end - reader.0.len();
                    reader.skip(length as usize).ok_or_else(broken)?;
                    Some((u32::try_from(start).map_err(|_| broken())?, start as u32 + length))
                }
                Err(_) if length == -1 => None,
                Err(_) => return Err(broken()),
            };
            self.row.fields.push(span);
        }
        if !reader.0.is_empty() {
            return Err(broken());
        }
        self.at = end;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn array(dimensions: u32, length: u32, body: &[u8]) -> Vec<u8> {
        let mut raw = Vec::new();
        for word in [dimensions, 0, 23, length, 1] {
            raw.extend_from_slice(&word.to_be_bytes());
        }
        raw.extend_from_slice(body);
        raw
    }

    #[test]
    fn an_array_has_the_bytes_for_its_elements() {
        assert!(has_the_elements_it_claims(&array(1, 2, &[0; 16])));
        assert!(has_the_elements_it_claims(&array(1, 2, &[255; 8])), "two NULLs");
        assert!(!has_the_elements_it_claims(&array(1, 3, &[255; 8])));
        assert!(!has_the_elements_it_claims(&array(1, u32::MAX, &[255; 8])));
        assert!(has_the_elements_it_claims(&[0; 12]), "an empty array");
    }

    #[test]
    fn an_infinite_time_is_no_system_time() {
        use std::time::SystemTime;
        let infinite = row(Type::TIMESTAMPTZ, &i64::MAX.to_be_bytes());
        for error in [
            infinite.try_get::<SystemTime>(0).map(drop).expect_err("refused"),
            infinite.try_get::<Option<SystemTime>>(0).map(drop).expect_err("refused"),
        ] {
            assert!(error.to_string().contains("infinite"), "{error}");
        }
        let special: postgres_types::Timestamp<SystemTime> = infinite.get(0);
        assert_eq!(special, postgres_types::Timestamp::PosInfinity);
        row(Type::TIMESTAMPTZ, &0_i64.to_be_bytes()).get::<SystemTime>(0);
    }

    fn row(r#type: Type, value: &[u8]) -> Row {
        Row {
            columns: vec![Column::new("c".into(), r#type)].into(),
            body: Bytes::copy_from_slice(value),
            fields: smallvec::smallvec![Some((0, value.len() as u32))],
        }
    }

    #[test]
    fn a_decoder_that_panics_is_an_error() {
        #[derive(Debug)]
        struct Panics;
        impl<'a> FromSql<'a> for Panics {
            fn from_sql(_: &Type, _: &'a [u8]) -> Result<Self, Box<dyn std::error::Error + Sync + Send>> {
                panic!("not today")
            }

            fn accepts(_: &Type) -> bool {
                true
            }
        }
        let error = row(Type::INT4, &[0; 4]).try_get::<Panics>(0).expect_err("caught");
        assert_eq!((error.kind(), error.outcome()), (ErrorKind::Decode, Outcome::Completed));
    }

    #[test]
    fn missing_columns_wrong_types_and_nulls_are_named() {
        let row = row(Type::INT4, &[0, 0, 0, 7]);
        assert_eq!(row.get::<i32>(0), 7);
        assert_eq!(row.get::<Option<i32>>("c"), Some(7));
        assert!(row.try_get::<i32>("d").expect_err("missing").to_string().contains("no column d"));
        assert!(row.try_get::<String>(0).expect_err("wrong").to_string().contains("column c of type int4"));
    }
}
