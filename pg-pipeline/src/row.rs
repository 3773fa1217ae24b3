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

use crate::column::Column;
use crate::error::{Error, ErrorKind, Fault, Outcome};
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
    /// [`ErrorKind::Decode`] when there is no such column, or its value is not a `T` (NULL is only an `Option`).
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
        format!("column {} of type {} cannot be decoded", column.name(), column.type_().name()),
    )
    .with_source(error)
    .into()
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
        columns.iter().position(|column| column.name() == *self)
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
        if self.columns.get(hint).is_some_and(|column| column.name() == name) {
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

    fn custom(name: &str, kind: Kind) -> Type {
        Type::new(name.to_owned(), 100_000, kind, "public".to_owned())
    }

    #[test]
    fn a_value_has_the_bytes_for_the_elements_that_it_claims() {
        let ints = Type::INT4_ARRAY;
        let holds = |raw: &[u8]| has_what_it_claims(&ints, raw);
        assert!(holds(&array(1, 2, &[0; 16])));
        assert!(holds(&array(1, 2, &[255; 8])), "two NULLs");
        assert!(!holds(&array(1, 3, &[255; 8])));
        assert!(!holds(&array(1, u32::MAX, &[255; 8])));
        assert!(holds(&[0; 12]), "an empty array");
        let hstore = custom("hstore", Kind::Simple);
        assert!(has_what_it_claims(&hstore, b"\0\0\0\x01\0\0\0\x01a\xff\xff\xff\xff"));
        assert!(!has_what_it_claims(&hstore, b"\x7f\xff\xff\xff\0\0\0\x01a\xff\xff\xff\xff"));
    }

    #[test]
    fn claims_inside_of_other_values_are_looked_at_too() {
        let hostile = array(1, 0x7fff_ffff, &[255; 8]);
        let domain = custom("numbers", Kind::Domain(Type::INT4_ARRAY));
        assert!(!has_what_it_claims(&domain, &hostile));
        let fields = vec![postgres_types::Field::new("n".to_owned(), Type::INT4_ARRAY)];
        let pair = custom("pair", Kind::Composite(fields));
        let within = |raw: &[u8]| {
            [&[0, 0, 0, 1, 0, 0, 3, 0xef], &u32::try_from(raw.len()).unwrap().to_be_bytes()[..], raw].concat()
        };
        assert!(!has_what_it_claims(&pair, &within(&hostile)));
        assert!(has_what_it_claims(&pair, &within(&array(1, 2, &[255; 8]))));
        let pairs = custom("_pair", Kind::Array(pair));
        let element = within(&hostile);
        let length = u32::try_from(element.len()).unwrap().to_be_bytes();
        assert!(!has_what_it_claims(&pairs, &array(1, 1, &[&length, &element[..]].concat())));
    }

    /// Decodes the row's first column as each of the types, and forgets what comes of it.
    macro_rules! decode_all {
        ($row:ident: $($type:ty),+ $(,)?) => {
            $(
                let _ = $row.try_get::<$type>(0);
                let _ = $row.try_get::<Option<Vec<$type>>>(0);
                let _ = $row.try_get::<Vec<Option<$type>>>(0);
            )+
        };
    }

    #[test]
    fn no_bytes_of_any_type_take_the_task_down_or_memory_that_they_only_announce() {
        // Panics of decoders are expected here and caught: their messages are of no interest.
        let (hook, here) = (std::panic::take_hook(), std::thread::current().id());
        std::panic::set_hook(Box::new(move |info| {
            if std::thread::current().id() != here {
                hook(info);
            }
        }));
        let mut types: Vec<Type> = (1..20_000).filter_map(Type::from_oid).collect();
        assert!(types.len() > 150, "{}", types.len());
        types.push(custom("hstore", Kind::Simple));
        types.push(custom("numbers", Kind::Domain(Type::INT4_ARRAY)));
        types.push(custom("mood", Kind::Enum(vec!["ok".to_owned()])));
        let mut state = 0x5eed_u64;
        let mut random = move |limit: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 20) % limit
        };
        for r#type in types {
            for _ in 0..40 {
                let mut value: Vec<u8> = (0..random(40)).map(|_| random(256) as u8).collect();
                if random(2) == 0 {
                    // Small numbers and huge ones, where counts and lengths are.
                    for word in value.chunks_exact_mut(4) {
                        let choice = [0, 1, 2, 0x7fff_ffff, 0x8000_0000, u32::MAX][random(6) as usize];
                        word.copy_from_slice(&choice.to_be_bytes());
                    }
                }
                let row = row(r#type.clone(), &value);
                decode_all!(row: bool, i8, i16, i32, i64, u32, f32, f64, String, &str, Vec<u8>, &[u8], Box<str>,
                    std::time::SystemTime, std::net::IpAddr,
                    std::collections::HashMap<String, Option<String>>);
            }
        }
        drop(std::panic::take_hook());
    }

    #[test]
    fn no_bytes_of_a_row_are_read_beyond_it() {
        let columns: Arc<[Column]> =
            vec![Column::new("a".into(), Type::INT4), Column::new("b".into(), Type::TEXT)].into();
        let whole = b"D\0\0\0\x13\0\x02\0\0\0\x04\0\0\0\x07\0\0\0\x01x";
        let read = |bytes: &[u8]| {
            let budget = wire_pipeline::answer::Budget::new(1 << 20, 1 << 20);
            let mut collector = wire_pipeline::answer::Collector::new(&budget);
            collector.push(bytes);
            let chunks = collector.finish().expect("small");
            let mut rows = Rows::new(Arc::clone(&columns), chunks);
            let mut seen = Vec::new();
            while let Some(row) = rows.next()? {
                seen.push((row.try_get::<Option<i32>>(0).ok(), row.try_get::<Option<String>>(1).ok()));
            }
            Ok::<_, Fault>(seen)
        };
        assert_eq!(read(whole).expect("a row"), [(Some(Some(7)), Some(Some("x".to_owned())))]);
        for end in 1..whole.len() {
            let error = read(&whole[..end]).expect_err("cut off");
            assert_eq!((error.kind(), error.outcome()), (ErrorKind::Protocol, Outcome::Completed), "{end}");
        }
        for changed in 0..8 * whole.len() {
            let mut bytes = whole.to_vec();
            bytes[changed / 8] ^= 1 << (changed % 8);
            // Another value, or an error.
            if let Ok(rows) = read(&bytes) {
                assert_eq!(rows.len(), 1, "bit {changed}");
            }
        }
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
