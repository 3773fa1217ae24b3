//! PostgreSQL driver that pipelines thousands of queries over a few connections.

mod auth;
mod batch;
mod caller;
mod client;
mod config;
mod connect;
mod connection;
#[cfg(feature = "deadpool")]
pub mod deadpool;
mod error;
mod notice;
mod params;
mod pool;
mod protocol;
mod row;
mod session;
mod statement;
mod transaction;
pub mod types;

pub use batch::Batch;
pub use caller::{CallOptions, Executed};
pub use client::Client;
pub use config::{Config, OPTIONS, OptionInfo, PoolOptions, SslMode};
pub use connection::Connection;
pub use error::{DatabaseError, Error, ErrorKind, Outcome, Phase};
pub use params::Params;
#[cfg(feature = "derive")]
pub use pipeline_derive::PgFromRow as FromRow;
pub use pool::{PipeState, PipeStats, Pool, PoolBuilder, PoolStats, PoolView};
pub use row::{Column, FromRow, Row, RowIndex};
pub use session::Session;
pub use statement::{IntoStatement, Statement};
pub use transaction::Transaction;

/// What derived code refers to.
#[doc(hidden)]
pub mod __private {
    pub use wire_pipeline::row::{Field, FieldSource, FromRow};
}
