//! Statements: what the pool has learnt of them, and what may run where.
//!
//! Handles and keys are the engine's. Which pipe has a statement prepared is that pipe's affair (`protocol::cache`);
//! what its columns are and how long servers work on it is learnt once per pool ([`Registry`]).

mod class;
mod registry;
mod text;

pub(crate) use class::{
    Class, chooses_database, classify, classify_script, may_end_unseen, script_chooses_database,
    script_may_end_unseen, without_empty_end,
};
pub(crate) use registry::{Learned, Registry};
pub(crate) use text::fill;
pub use wire_pipeline::statement::{IntoStatement, Statement};
pub(crate) use wire_pipeline::statement::{Keyed, StatementKey};
