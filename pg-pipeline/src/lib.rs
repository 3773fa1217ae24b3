//! PostgreSQL driver that pipelines thousands of queries over a few connections.

mod error;

pub use error::{DatabaseError, Error, ErrorKind, Outcome, Phase};
