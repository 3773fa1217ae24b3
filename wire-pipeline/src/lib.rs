//! The engine under `pg-pipeline` and `mysql-pipeline`: it knows pipelines and no protocol.

pub mod error;
pub mod row;
