//! Rows, columns, and what they can be turned into.
//!
//! A row refers to the bytes of its answer and decodes a value when it is asked for, in the task that asks: an error
//! in one value concerns that value alone. Decoders are `postgres-types`'; a panic in one is caught and becomes an
//! error, and an array that claims more elements than it has bytes never reaches them.
//!
//! `mysql-pipeline`'s file of this name has the same face on purpose: a row of its own layout, read by its own `FromSql`.
//! What can be told of any row is the engine's.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use bytes::Bytes;
use postgres_types::{FromSql, Kind, Type, WrongType};
use smallvec::SmallVec;
pub use wire_pipeline::row::RowIndex;
use wire_pipeline::row::{self, Field, FieldSource};

use crate::column::Column;
use crate::error::{DatabaseError, Error, Fault, Outcome};
use crate::protocol::messages::{Header, Reader, malformed};

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
    /// [`Decode`](crate::ErrorKind::Decode) when there is no such column, or its value is not a `T` (NULL is only an `Option`).
    #[expect(clippy::needless_pass_by_value, reason = "an index is a number or a reference")]
    pub fn try_get<'a, T: FromSql<'a>>(&'a self, index: impl RowIndex) -> Result<T, Error> {
        let index = index.find(&self.columns).ok_or_else(|| self.no_column(&index))?;
        let Some((column, span)) = self.columns.get(index).zip(self.fields.get(index)) else {
            return Err(self.no_column(&index));
        };
        if !T::accepts(column.type_()) {
            return Err(undecodable(column, WrongType::new::<T>(column.type_().clone())));
        }
        let raw = span.and_then(|(start, end)| self.body.get(start as usize..end as usize));
        if let Some(raw) = raw
            && !has_what_it_claims(column.type_(), raw)
        {
            return Err(undecodable(column, "the value claims more elements than it has"));
        }
        if raw.is_some_and(|raw| is_infinite(column.type_(), raw)) && is_system_time::<T>() {
            return Err(undecodable(column, "the value is infinite; ask for types::Timestamp<SystemTime>"));
        }
        // The decoders trust the server. It is not theirs to take this task down.
        match catch_unwind(AssertUnwindSafe(|| T::from_sql_nullable(column.type_(), raw))) {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) => Err(undecodable(column, error)),
            Err(_) => {
                Err(undecodable(column, "the value is out of the range of its Rust type, or malformed"))
            }
        }
    }

    #[cold]
    fn no_column(&self, index: &dyn fmt::Display) -> Error {
        row::no_column(index, &self.columns).into()
    }
}

#[cold]
fn undecodable(column: &Column, error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    row::undecodable(column.name(), column.type_().name(), error).into()
}

/// Decoders make room for as many elements as a value claims to have. Whatever else is wrong with it they see
/// themselves: what is too short to tell is left to them.
fn has_what_it_claims(r#type: &Type, raw: &[u8]) -> bool {
    match r#type.kind() {
        Kind::Domain(inner) => has_what_it_claims(inner, raw),
        Kind::Array(inner) => array_has_what_it_claims(inner, raw),
        Kind::Composite(fields) => composite_has_what_it_claims(fields, raw),
        // Pairs, each with the lengths of key and value. Source: `hstore_send` in PostgreSQL's
        // `contrib/hstore/hstore_io.c`.
        Kind::Simple if r#type.name() == "hstore" => {
            let mut reader = Reader(raw);
            reader.u32().is_none_or(|pairs| u64::from(pairs) * 8 <= reader.0.len() as u64)
        }
        _ => true,
    }
}

/// Each element has at least its length of four bytes.
/// Source: `array_send` in PostgreSQL's `src/backend/utils/adt/arrayfuncs.c`.
fn array_has_what_it_claims(inner: &Type, raw: &[u8]) -> bool {
    let mut reader = Reader(raw);
    let (Some(dimensions), Some(_flags), Some(_type)) = (reader.u32(), reader.u32(), reader.u32()) else {
        return true;
    };
    let mut elements = u64::from(dimensions > 0);
    for _ in 0..dimensions {
        let (Some(length), Some(_lower)) = (reader.u32(), reader.u32()) else { return true };
        elements = elements.saturating_mul(u64::from(length));
    }
    elements.saturating_mul(4) <= reader.0.len() as u64
        && (holds_no_counts(inner) || (0..elements).all(|_| next_has_what_it_claims(inner, &mut reader)))
}

/// Source: `record_send` in PostgreSQL's `src/backend/utils/adt/rowtypes.c`.
fn composite_has_what_it_claims(fields: &[postgres_types::Field], raw: &[u8]) -> bool {
    let mut reader = Reader(raw);
    let _count = reader.u32();
    fields.iter().all(|field| {
        let _type = reader.u32();
        next_has_what_it_claims(field.type_(), &mut reader)
    })
}

/// A value behind its length, inside of another one.
fn next_has_what_it_claims(r#type: &Type, reader: &mut Reader<'_>) -> bool {
    let length = reader.i32().and_then(|length| usize::try_from(length).ok());
    match length.and_then(|length| reader.take(length)) {
        Some(raw) => has_what_it_claims(r#type, raw),
        None => true,
    }
}

/// Most arrays: their elements need no look.
fn holds_no_counts(r#type: &Type) -> bool {
    matches!(r#type.kind(), Kind::Simple | Kind::Enum(_)) && r#type.name() != "hstore"
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

impl FieldSource for Row {
    type Error = Error;

    fn is_named(&self, index: usize, name: &str) -> bool {
        self.columns.get(index).is_some_and(|column| column.name() == name)
    }
}

impl<T: for<'a> FromSql<'a>> Field<T> for Row {
    fn field_at(&self, index: usize) -> Result<T, Error> {
        self.try_get(index)
    }

    fn field_named(&self, name: &str) -> Result<T, Error> {
        self.try_get(name)
    }
}

impl row::FromRow<Row> for Row {
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

impl<T: row::FromRow<Row>> FromRow for T {
    fn from_row(row: &Row) -> Result<Self, Error> {
        row::FromRow::from_row(row)
    }
}

/// Goes through the rows of an answer; one `Row` is reused for all of them.
pub(crate) struct Rows {
    chunks: wire_pipeline::answer::IntoChunks,
    row: Row,
    at: usize,
}

impl Rows {
    pub(crate) fn new(columns: Arc<[Column]>, chunks: wire_pipeline::answer::Chunks) -> Self {
        Self {
            chunks: chunks.into_iter(),
            row: Row { columns, body: Bytes::new(), fields: SmallVec::new() },
            at: 0,
        }
    }
}

impl row::Rows for Rows {
    type Row = Row;
    type Server = DatabaseError;

    fn next(&mut self) -> Result<Option<&Row>, Fault> {
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
}

impl Rows {
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
mod tests;
