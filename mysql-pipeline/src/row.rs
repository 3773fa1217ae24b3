//! Rows, columns, and what they can be turned into.
//!
//! A row refers to the bytes of its answer and decodes a value when it is asked for, in the task that asks: an error
//! in one value concerns that value alone.
//!
//! `pg-pipeline`'s file of this name has the same face on purpose: a row of its own layout, read by its own `FromSql`.
//! What can be told of any row is the engine's.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use bytes::Bytes;
use smallvec::SmallVec;
use wire_pipeline::answer::IntoChunks;
pub use wire_pipeline::row::RowIndex;
use wire_pipeline::row::{self, Field, FieldSource};

use crate::column::Column;
use crate::error::{DatabaseError, Error, Fault, Outcome};
use crate::protocol::answer::Ran;
use crate::protocol::packet::Header;
use crate::protocol::{lenenc, malformed};
use crate::statement::Learned;
use crate::types::{FromSql, Type};

/// A row of a result.
#[derive(Clone)]
pub struct Row {
    columns: Arc<[Column]>,
    body: Bytes,
    fields: SmallVec<[Span; 4]>,
    /// It came as text, not in the binary format.
    text: bool,
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
        let value = match span.map(|(start, end)| self.body.get(start as usize..end as usize)) {
            None => None,
            Some(raw) => {
                let read = if self.text { Type::read_text } else { Type::read_binary };
                let value = raw.and_then(|raw| read(*column.type_(), raw));
                Some(value.ok_or_else(|| undecodable(column, "the value is malformed"))?)
            }
        };
        // A type's own code may panic. It is not its to take this task down.
        match catch_unwind(AssertUnwindSafe(|| T::from_sql_nullable(column.type_(), value))) {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) => Err(undecodable(column, error)),
            Err(_) => Err(undecodable(column, "its Rust type panicked")),
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

/// Goes through the rows of an answer's first result that has any; one `Row` is reused for all of them.
pub(crate) struct Rows {
    packets: PacketsOf,
    row: Row,
    left: u64,
}

impl Rows {
    /// `learned` remembers the columns.
    pub(crate) fn new(ran: Ran, learned: &Learned) -> Result<Self, Fault> {
        let result = ran.results.iter().find(|result| result.columns > 0);
        let (count, left) = result.map_or((0, 0), |result| (usize::from(result.columns), result.rows));
        let text = ran.text;
        let mut packets = PacketsOf { chunks: ran.packets.into_iter(), chunk: Bytes::new(), at: 0 };
        let columns =
            packets.columns(count, learned).map_err(|error| error.with_outcome(Outcome::Completed))?;
        let row = Row { columns, body: Bytes::new(), fields: SmallVec::new(), text };
        Ok(Self { packets, row, left })
    }
}

impl row::Rows for Rows {
    type Row = Row;
    type Server = DatabaseError;

    fn next(&mut self) -> Result<Option<&Row>, Fault> {
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        self.read_row().map_err(|error| error.with_outcome(Outcome::Completed))?;
        Ok(Some(&self.row))
    }
}

impl Rows {
    fn read_row(&mut self) -> Result<(), Fault> {
        let broken = || malformed("a broken row");
        let (body, start, end) = self.packets.next().ok_or_else(broken)?;
        self.row.body = body;
        self.row.fields.clear();
        let text = self.row.text;
        let packet = self.row.body.get(start..end).ok_or_else(broken)?;
        let read = if text { text_fields } else { binary_fields };
        read(packet, start, &self.row.columns, &mut self.row.fields).ok_or_else(broken)
    }
}

/// Source: MySQL internals, "Binary Protocol Resultset Row": 0, NULL bitmap that begins with two unused bits, values.
fn binary_fields(
    packet: &[u8],
    start: usize,
    columns: &[Column],
    fields: &mut SmallVec<[Span; 4]>,
) -> Option<()> {
    let (0x00, rest) = packet.split_first()? else { return None };
    let (nulls, mut rest) = rest.split_at_checked((columns.len() + 9) / 8)?;
    let end = start + packet.len();
    for (index, column) in columns.iter().enumerate() {
        let bit = index + 2;
        if nulls.get(bit / 8)? & (1 << (bit % 8)) != 0 {
            fields.push(None);
            continue;
        }
        let from = end - rest.len();
        let (value, behind) = rest.split_at_checked(column.type_().binary_len(rest)?)?;
        fields.push(Some(span(from, value.len())?));
        rest = behind;
    }
    rest.is_empty().then_some(())
}

/// Source: MySQL internals, "Text Resultset Row": strings behind their lengths, `0xFB` for NULL.
fn text_fields(
    packet: &[u8],
    start: usize,
    columns: &[Column],
    fields: &mut SmallVec<[Span; 4]>,
) -> Option<()> {
    let end = start + packet.len();
    let mut rest = packet;
    for _ in columns {
        if let Some((0xFB, behind)) = rest.split_first() {
            fields.push(None);
            rest = behind;
            continue;
        }
        let value = lenenc::take_bytes(&mut rest)?;
        fields.push(Some(span(end - rest.len() - value.len(), value.len())?));
    }
    rest.is_empty().then_some(())
}

fn span(from: usize, length: usize) -> Option<(u32, u32)> {
    Some((u32::try_from(from).ok()?, u32::try_from(from.checked_add(length)?).ok()?))
}

/// The packets of an answer. One that came in a single frame is a piece of its chunk; others are put together.
struct PacketsOf {
    chunks: IntoChunks,
    chunk: Bytes,
    at: usize,
}

impl PacketsOf {
    /// Where the next packet lies.
    fn next(&mut self) -> Option<(Bytes, usize, usize)> {
        let (header, start) = self.frame()?;
        if !header.is_continued() {
            return Some((self.chunk.clone(), start, self.at));
        }
        let mut packet = self.chunk.get(start..self.at)?.to_vec();
        loop {
            let (header, start) = self.frame()?;
            packet.extend_from_slice(self.chunk.get(start..self.at)?);
            if !header.is_continued() {
                let end = packet.len();
                return Some((packet.into(), 0, end));
            }
        }
    }

    /// The next frame's header, and where its body begins; it ends where the one behind it begins.
    fn frame(&mut self) -> Option<(Header, usize)> {
        while self.at >= self.chunk.len() {
            self.chunk = self.chunks.next()?;
            self.at = 0;
        }
        let header = Header::parse(self.chunk.get(self.at..)?)?;
        let start = self.at + Header::LEN;
        let end = self.at.checked_add(header.total())?;
        if end > self.chunk.len() {
            return None;
        }
        self.at = end;
        Some((header, start))
    }

    /// The columns that the first `count` packets define.
    fn columns(&mut self, count: usize, learned: &Learned) -> Result<Arc<[Column]>, Fault> {
        let broken = || malformed("a broken definition of a column");
        if count == 0 {
            return Ok(Arc::from([]));
        }
        // Nearly always they lie in one chunk, and are the same as the last time.
        let mut ends = SmallVec::<[(usize, usize); 8]>::new();
        for index in 0..count {
            let before = self.chunk.clone();
            let (_, start) = self.frame().ok_or_else(broken)?;
            if index > 0 && before.as_ptr() != self.chunk.as_ptr() {
                return self.columns_in_many_chunks(count, &before, &ends, start);
            }
            ends.push((start, self.at));
        }
        let definitions = self.chunk.get(..self.at).ok_or_else(broken)?;
        if let Some(columns) = learned.columns(definitions) {
            return Ok(columns);
        }
        let columns = parse_columns(&self.chunk, &ends).ok_or_else(broken)?;
        let columns: Arc<[Column]> = columns.into();
        learned.learn_columns(definitions, &columns);
        Ok(columns)
    }

    /// More than a chunk of definitions: these are read one by one and not remembered.
    #[cold]
    fn columns_in_many_chunks(
        &mut self,
        count: usize,
        before: &[u8],
        ends: &[(usize, usize)],
        start: usize,
    ) -> Result<Arc<[Column]>, Fault> {
        let broken = || malformed("a broken definition of a column");
        let mut columns = parse_columns(before, ends).ok_or_else(broken)?;
        let here = self.chunk.get(start..self.at).and_then(Column::parse);
        columns.push(here.ok_or_else(broken)?);
        while columns.len() < count {
            let (_, start) = self.frame().ok_or_else(broken)?;
            let here = self.chunk.get(start..self.at).and_then(Column::parse);
            columns.push(here.ok_or_else(broken)?);
        }
        Ok(columns.into())
    }
}

fn parse_columns(chunk: &[u8], ends: &[(usize, usize)]) -> Option<Vec<Column>> {
    ends.iter().map(|(start, end)| chunk.get(*start..*end).and_then(Column::parse)).collect()
}

#[cfg(test)]
mod tests;
