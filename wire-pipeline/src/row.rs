//! How rows are taken, and how a row becomes a value of the caller's type.
//!
//! A driver's row says which types its columns can be turned into ([`Field`]); what is built from several
//! columns asks for them ([`FromRow`]: tuples here, structs through the derive macro). Both sides are generic
//! over the other, so that one derived struct loads from the rows of every driver. This module knows neither
//! a row's layout nor a column's encoding.
//!
//! The type parameter of [`Field`] is what the orphan rules ask for: a driver writes
//! `impl<T: for<'a> FromSql<'a>> Field<T> for Row` about its own `Row`, which covers every foreign `T`.

use std::fmt;

use crate::error::{Error, ErrorKind, Outcome, ServerError};

/// The rows of an answer, one at a time.
pub trait Rows {
    /// A row.
    type Row;
    /// The server's own error.
    type Server: ServerError;

    /// The next row, valid until the next call.
    fn next(&mut self) -> Result<Option<&Self::Row>, Error<Self::Server>>;
}

/// Takes all rows.
pub fn all<R: Rows, T, E: From<Error<R::Server>>>(
    mut rows: R,
    take: impl Fn(&R::Row) -> Result<T, E>,
) -> Result<Vec<T>, E> {
    let mut all = Vec::new();
    while let Some(row) = rows.next()? {
        all.push(take(row)?);
    }
    Ok(all)
}

/// Takes the only row, if there is one. Several are an error.
pub fn at_most_one<R: Rows, T, E: From<Error<R::Server>>>(
    mut rows: R,
    take: impl Fn(&R::Row) -> Result<T, E>,
) -> Result<Option<T>, E> {
    let Some(row) = rows.next()? else { return Ok(None) };
    let first = take(row)?;
    match rows.next()? {
        None => Ok(Some(first)),
        Some(_) => {
            Err(row_count("several rows came where at most one was expected; add a LIMIT or use query")
                .into())
        }
    }
}

/// Takes the only row. None and several are errors.
pub fn exactly_one<R: Rows, T, E: From<Error<R::Server>>>(
    rows: R,
    take: impl Fn(&R::Row) -> Result<T, E>,
) -> Result<T, E> {
    at_most_one(rows, take)?.ok_or_else(|| {
        row_count("no row came where one was expected; use query_opt if that is all right").into()
    })
}

#[cold]
fn row_count<S: ServerError>(message: &'static str) -> Error<S> {
    Error::new(ErrorKind::RowCount, Outcome::Completed, message)
}

/// A column that has a name.
pub trait Named {
    /// Its name.
    fn name(&self) -> &str;
}

/// How a column is named: by index from 0, or by name.
pub trait RowIndex: fmt::Display + sealed::Sealed {
    #[doc(hidden)]
    fn find<C: Named>(&self, columns: &[C]) -> Option<usize>;
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for usize {}
    impl Sealed for &str {}
    impl Sealed for &String {}
}

impl RowIndex for usize {
    fn find<C: Named>(&self, columns: &[C]) -> Option<usize> {
        (*self < columns.len()).then_some(*self)
    }
}

impl RowIndex for &str {
    fn find<C: Named>(&self, columns: &[C]) -> Option<usize> {
        columns.iter().position(|column| column.name() == *self)
    }
}

impl RowIndex for &String {
    fn find<C: Named>(&self, columns: &[C]) -> Option<usize> {
        RowIndex::find(&self.as_str(), columns)
    }
}

/// A row has no column of this index or name.
#[cold]
pub fn no_column<C: Named, S: ServerError>(index: &dyn fmt::Display, columns: &[C]) -> Error<S> {
    let names: Vec<&str> = columns.iter().map(Named::name).collect();
    let message = format!("there is no column {index}; the result's columns are {}", names.join(", "));
    Error::new(ErrorKind::Decode, Outcome::Completed, message)
}

/// A column's value is not what was asked for.
#[cold]
pub fn undecodable<S: ServerError>(
    column: &str,
    r#type: &str,
    source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
) -> Error<S> {
    let message = format!("column {column} of type {type} cannot be decoded");
    Error::new(ErrorKind::Decode, Outcome::Completed, message).with_source(source)
}

/// A row that values can be taken from.
pub trait FieldSource {
    /// Why a value cannot be had.
    type Error;

    /// Whether the column at `index`, counted from 0, is there and has this name.
    fn is_named(&self, index: usize, name: &str) -> bool;
}

/// A row whose columns can be turned into `T`.
#[diagnostic::on_unimplemented(
    message = "a column of `{Self}` cannot be turned into `{T}`",
    label = "`{T}` is not a type of this driver's columns",
    note = "a column that may be NULL is an `Option`; a type of your own needs the driver's trait for reading values"
)]
pub trait Field<T>: FieldSource {
    /// The value of the column at `index`, counted from 0.
    ///
    /// # Errors
    ///
    /// When the row has no such column, or the column's value is not a `T`.
    fn field_at(&self, index: usize) -> Result<T, Self::Error>;

    /// The value of the first column called `name`.
    ///
    /// # Errors
    ///
    /// When the row has no such column, or the column's value is not a `T`.
    fn field_named(&self, name: &str) -> Result<T, Self::Error>;

    /// As [`field_named`](Self::field_named), for a caller who expects that column at index `hint`.
    ///
    /// One name is compared before any is searched for. When two columns have the same name, the one at `hint` is
    /// taken.
    ///
    /// # Errors
    ///
    /// When the row has no such column, or the column's value is not a `T`.
    fn field_hinted(&self, hint: usize, name: &str) -> Result<T, Self::Error> {
        if self.is_named(hint, name) { self.field_at(hint) } else { self.field_named(name) }
    }
}

/// What a row of type `R` can be turned into.
///
/// Tuples of 1 to 16 values take the first columns in order; further columns are ignored, and a row that has
/// fewer is an error.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be made from a `{R}`",
    note = "ask for the row itself, for a tuple of up to 16 values (one column: `(T,)`), or for a struct with `#[derive(FromRow)]`"
)]
pub trait FromRow<R: FieldSource>: Sized {
    /// Builds the value from the row's columns.
    ///
    /// # Errors
    ///
    /// When a column that is needed is missing, or its value is not of the type asked for.
    fn from_row(row: &R) -> Result<Self, R::Error>;
}

macro_rules! tuples {
    ($( ($($value:ident $index:tt),+) )+) => {$(
        impl<Source, $($value),+> FromRow<Source> for ($($value,)+)
        where
            Source: FieldSource $(+ Field<$value>)+,
        {
            fn from_row(row: &Source) -> Result<Self, Source::Error> {
                Ok(($(<Source as Field<$value>>::field_at(row, $index)?,)+))
            }
        }
    )+};
}

crate::each_tuple! { [tuples] }

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::tests::{Fault, NoServer};

    /// A row of one type, which remembers nothing but its columns.
    struct Numbers(Vec<(&'static str, i64)>);

    impl FieldSource for Numbers {
        type Error = String;

        fn is_named(&self, index: usize, name: &str) -> bool {
            self.0.get(index).is_some_and(|(known, _)| *known == name)
        }
    }

    impl<T: TryFrom<i64>> Field<T> for Numbers {
        fn field_at(&self, index: usize) -> Result<T, String> {
            let (name, value) = self.0.get(index).ok_or_else(|| format!("no column {index}"))?;
            T::try_from(*value).map_err(|_| format!("{name} does not fit"))
        }

        fn field_named(&self, name: &str) -> Result<T, String> {
            let index = self.0.iter().position(|(known, _)| *known == name);
            self.field_at(index.ok_or_else(|| format!("no column {name}"))?)
        }
    }

    #[test]
    fn tuples_take_columns_in_order_and_ignore_the_rest() {
        let row = Numbers(vec![("a", 1), ("b", 2), ("c", 3)]);
        assert_eq!(<(i32,)>::from_row(&row), Ok((1,)));
        assert_eq!(<(u8, i64, i16)>::from_row(&row), Ok((1, 2, 3)));
    }

    #[test]
    fn a_row_with_fewer_columns_is_an_error() {
        let row = Numbers(vec![("a", 1)]);
        assert_eq!(<(i32, i32)>::from_row(&row), Err("no column 1".to_owned()));
    }

    #[test]
    fn the_first_value_that_does_not_fit_is_reported() {
        let row = Numbers(vec![("a", 1), ("b", 300)]);
        assert_eq!(<(u8, u8)>::from_row(&row), Err("b does not fit".to_owned()));
    }

    #[test]
    fn sixteen_columns_are_the_widest_tuple() {
        type Wide = (i8, i8, i8, i8, i8, i8, i8, i8, i8, i8, i8, i8, i8, i8, i8, i8);
        let row = Numbers((0..16).map(|n| ("n", n)).collect());
        let wide = Wide::from_row(&row).expect("all columns are there");
        assert_eq!((wide.0, wide.15), (0, 15));
    }

    #[test]
    fn a_hint_is_only_a_hint() {
        let row = Numbers(vec![("a", 1), ("b", 2)]);
        assert_eq!(Field::<i64>::field_hinted(&row, 0, "b"), Ok(2));
        assert_eq!(Field::<i64>::field_hinted(&row, 7, "a"), Ok(1));
        let twins = Numbers(vec![("a", 1), ("a", 2)]);
        assert_eq!(
            Field::<i64>::field_hinted(&twins, 1, "a"),
            Ok(2),
            "of two with the same name the one there"
        );
    }

    /// As many rows as it says, of numbers from 1.
    struct Counted(i64, i64);

    impl Rows for Counted {
        type Row = i64;
        type Server = NoServer;

        fn next(&mut self) -> Result<Option<&i64>, Fault> {
            self.1 += 1;
            Ok((self.1 <= self.0).then_some(&self.1))
        }
    }

    #[test]
    fn the_number_of_rows_is_what_was_asked_for() {
        let rows = |count| Counted(count, 0);
        let take = |row: &i64| Ok::<_, Fault>(*row);
        assert_eq!(all(rows(3), take).expect("all"), [1, 2, 3]);
        assert_eq!(at_most_one(rows(0), take).expect("none"), None);
        assert_eq!(at_most_one(rows(1), take).expect("one"), Some(1));
        assert_eq!(exactly_one(rows(1), take).expect("one"), 1);
        for error in [
            at_most_one(rows(2), take).expect_err("several"),
            exactly_one(rows(2), take).expect_err("several"),
            exactly_one(rows(0), take).expect_err("none"),
        ] {
            assert_eq!((error.kind(), error.outcome()), (ErrorKind::RowCount, Outcome::Completed));
        }
    }
}
