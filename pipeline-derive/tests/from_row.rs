//! The derive macro against rows that live in memory: two kinds of row, as an application with two drivers has.

// The modules stand for other crates, whose items are public.
#![allow(unreachable_pub)]

use std::any::Any;
use std::cell::Cell;

use pipeline_derive::{MysqlFromRow, PgFromRow};
use wire_pipeline::row::{Field, FieldSource, FromRow};

/// What a driver offers to the generated code.
mod driver {
    pub mod __private {
        pub use wire_pipeline::row::{Field, FieldSource, FromRow};
    }
}

/// A row of any values, which counts the searches for a name.
#[derive(Default)]
struct Row {
    columns: Vec<(&'static str, Box<dyn Any>)>,
    searches: Cell<usize>,
}

impl Row {
    fn with(mut self, name: &'static str, value: impl Any) -> Self {
        self.columns.push((name, Box::new(value)));
        self
    }
}

impl FieldSource for Row {
    type Error = String;

    fn is_named(&self, index: usize, name: &str) -> bool {
        self.columns.get(index).is_some_and(|(known, _)| *known == name)
    }
}

impl<T: Any + Clone> Field<T> for Row {
    fn field_at(&self, index: usize) -> Result<T, String> {
        let (name, value) = self.columns.get(index).ok_or_else(|| format!("no column {index}"))?;
        value.downcast_ref::<T>().cloned().ok_or_else(|| format!("column {name} has another type"))
    }

    fn field_named(&self, name: &str) -> Result<T, String> {
        self.searches.set(self.searches.get() + 1);
        let index = self.columns.iter().position(|(known, _)| *known == name);
        self.field_at(index.ok_or_else(|| format!("no column {name}"))?)
    }
}

/// The other driver's row: only numbers.
struct Number(i32);

impl FieldSource for Number {
    type Error = std::num::TryFromIntError;

    fn is_named(&self, _: usize, _: &str) -> bool {
        true
    }
}

impl<T: TryFrom<i32, Error = std::num::TryFromIntError>> Field<T> for Number {
    fn field_at(&self, _: usize) -> Result<T, Self::Error> {
        T::try_from(self.0)
    }

    fn field_named(&self, _: &str) -> Result<T, Self::Error> {
        self.field_at(0)
    }
}

#[derive(PgFromRow, Debug, PartialEq)]
#[from_row(crate = "driver")]
struct World {
    id: u32,
    #[from_row(rename = "randomnumber")]
    random_number: i32,
}

#[test]
fn columns_are_found_by_name_whatever_their_order() {
    let expected = World { id: 7, random_number: 42 };
    let row = Row::default().with("id", 7_u32).with("randomnumber", 42);
    assert_eq!(World::from_row(&row).as_ref(), Ok(&expected));
    assert_eq!(row.searches.get(), 0, "columns in the struct's order need no search");

    let row = Row::default().with("extra", "ignored").with("randomnumber", 42).with("id", 7_u32);
    assert_eq!(World::from_row(&row), Ok(expected));
}

#[test]
fn the_rows_own_errors_come_through() {
    let row = Row::default().with("id", 7_u32);
    assert_eq!(World::from_row(&row), Err("no column randomnumber".to_owned()));
    let row = Row::default().with("id", "seven").with("randomnumber", 42);
    assert_eq!(World::from_row(&row), Err("column id has another type".to_owned()));
}

#[derive(MysqlFromRow, Debug, PartialEq)]
#[from_row(crate = "crate::driver")]
struct Small {
    id: u8,
    random_number: i64,
}

#[derive(PgFromRow, Debug, PartialEq)]
#[from_row(crate = "driver")]
struct Fits {
    id: u8,
}

#[test]
fn one_derive_serves_the_rows_of_several_drivers() {
    let row = Row::default().with("id", 7_u8).with("random_number", 8_i64);
    assert_eq!(Small::from_row(&row), Ok(Small { id: 7, random_number: 8 }));
    assert_eq!(Fits::from_row(&Number(7)), Ok(Fits { id: 7 }));
    assert!(Fits::from_row(&Number(700)).is_err());
    assert_eq!(Fits::from_row(&Row::default().with("id", 9_u8)), Ok(Fits { id: 9 }));
}

#[derive(PgFromRow, Debug, PartialEq)]
#[from_row(crate = "driver", rename_all = "camelCase")]
struct Renamed {
    user_name: String,
    #[from_row(rename = "e-mail")]
    mail_address: Option<String>,
    r#type: u8,
    #[from_row(skip)]
    cached: Vec<u8>,
}

#[test]
fn names_follow_the_attributes() {
    let row =
        Row::default().with("userName", "ada".to_owned()).with("e-mail", None::<String>).with("type", 3_u8);
    let expected = Renamed { user_name: "ada".to_owned(), mail_address: None, r#type: 3, cached: Vec::new() };
    assert_eq!(Renamed::from_row(&row), Ok(expected));
    assert_eq!(row.searches.get(), 0);
}

#[derive(PgFromRow, Debug, PartialEq)]
#[from_row(crate = "driver")]
struct Position(u8, #[from_row(skip)] bool, String);

#[test]
fn a_tuple_struct_takes_columns_by_position() {
    let row = Row::default().with("whatever", 1_u8).with("whatever", "two".to_owned());
    assert_eq!(Position::from_row(&row), Ok(Position(1, false, "two".to_owned())));
}

#[derive(PgFromRow, Debug, PartialEq)]
#[from_row(crate = "driver")]
struct Pair<A, B = A, const N: usize = 2>
where
    A: Clone,
{
    first: A,
    second: B,
    both: [A; N],
}

#[test]
fn type_and_const_parameters_are_supported() {
    let row = Row::default().with("first", 1_u8).with("second", 'x').with("both", [1_u8, 2]);
    assert_eq!(Pair::<u8, char>::from_row(&row), Ok(Pair { first: 1, second: 'x', both: [1, 2] }));
}

mod elsewhere {
    /// A field's type may be private to its module.
    #[derive(Clone, Debug, PartialEq)]
    pub(super) struct Secret(pub(super) u8);

    #[derive(super::PgFromRow)]
    #[from_row(crate = "super::driver")]
    pub struct Public {
        pub(super) secret: Secret,
    }
}

#[test]
fn a_public_struct_may_have_private_types() {
    let row = Row::default().with("secret", elsewhere::Secret(1));
    assert_eq!(elsewhere::Public::from_row(&row).map(|public| public.secret), Ok(elsewhere::Secret(1)));
}
