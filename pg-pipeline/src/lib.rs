//! PostgreSQL driver that pipelines thousands of queries over a few connections.

mod auth;
mod config;
mod error;
mod protocol;

pub use config::{Config, OPTIONS, OptionInfo, PoolOptions, SslMode};
pub use error::{DatabaseError, Error, ErrorKind, Outcome, Phase};
