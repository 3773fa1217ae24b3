//! Statements: what the pool has learnt of them, and what may run where.
//!
//! Handles and keys are the engine's. Which pipe has a statement prepared is that pipe's affair (`protocol::cache`);
//! which types its parameters have is learnt once per pool ([`Registry`]).

mod class;
mod registry;
mod scanner;
mod session_use;

pub(crate) use class::{Class, chains, classify};
pub(crate) use registry::{Ask, Learned, Registry, check_text};
pub use wire_pipeline::statement::{IntoStatement, Statement};
pub(crate) use wire_pipeline::statement::{Keyed, StatementKey};
