//! The derive macro of `pg-pipeline` and `mysql-pipeline`: a struct whose fields are a row's columns.
//!
//! Depend on a driver, not on this crate: each driver exports its entry point under the name `FromRow`. The
//! entry points differ only in the crate that the generated code names; what they generate is generic over the
//! row, so one derive serves the rows of both drivers. This crate knows no protocol and no type of a database.
//!
//! ```ignore
//! #[derive(pg_pipeline::FromRow)]
//! struct World {
//!     id: i32,
//!     #[from_row(rename = "randomnumber")]
//!     random_number: i32,
//! }
//!
//! let world: World = pool.query_one("SELECT id, randomnumber FROM world WHERE id = $1", (7,)).await?;
//! ```
//!
//! A struct with named fields takes columns by name, in any order; columns without a field are ignored. A
//! tuple struct takes columns by position. Type parameters are supported, lifetimes are not: a value that is
//! built from a row owns its data.
//!
//! | attribute | on | meaning |
//! |---|---|---|
//! | `#[from_row(rename = "name")]` | field | the column's name, when it is not the field's |
//! | `#[from_row(skip)]` | field | no column: the field is `Default::default()` |
//! | `#[from_row(rename_all = "camelCase")]` | struct | how column names are made from field names: `lowercase`, `UPPERCASE`, `camelCase`, `PascalCase`, `snake_case`, `SCREAMING_SNAKE_CASE` or `kebab-case` |
//! | `#[from_row(crate = "path")]` | struct | where the driver is, when it is not a direct dependency under its own name |

mod attributes;
mod from_row;

use proc_macro::TokenStream;

/// Exported by `pg-pipeline` as `FromRow`; the crate's page describes it.
#[proc_macro_derive(PgFromRow, attributes(from_row))]
pub fn pg_from_row(input: TokenStream) -> TokenStream {
    from_row::derive(input.into(), "::pg_pipeline").into()
}

/// Exported by `mysql-pipeline` as `FromRow`; the crate's page describes it.
#[proc_macro_derive(MysqlFromRow, attributes(from_row))]
pub fn mysql_from_row(input: TokenStream) -> TokenStream {
    from_row::derive(input.into(), "::mysql_pipeline").into()
}
