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
#![doc = include_str!("from_row.md")]

mod attributes;
mod from_row;

use proc_macro::TokenStream;

#[doc = include_str!("from_row.md")]
#[proc_macro_derive(PgFromRow, attributes(from_row))]
pub fn pg_from_row(input: TokenStream) -> TokenStream {
    from_row::derive(input.into(), "::pg_pipeline").into()
}

#[doc = include_str!("from_row.md")]
#[proc_macro_derive(MysqlFromRow, attributes(from_row))]
pub fn mysql_from_row(input: TokenStream) -> TokenStream {
    from_row::derive(input.into(), "::mysql_pipeline").into()
}
