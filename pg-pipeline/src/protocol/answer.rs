//! A complete answer, not yet decoded.

use std::sync::Arc;

use postgres_types::Oid;
use smallvec::SmallVec;
use wire_pipeline::answer::Chunks;

use super::messages::{Description, Tag};
use crate::error::Fault;

/// What one exchange brought.
#[derive(Debug)]
pub(crate) enum Answer {
    /// Of [`Request::Run`](super::request::Request::Run).
    Ran(Ran),
    /// Of [`Request::Learn`](super::request::Request::Learn).
    Learnt { parameters: Box<[Oid]> },
    /// Of [`Request::Script`](super::request::Request::Script).
    Script,
    /// The server refused because what was known of the statement is out of date; this connection has forgotten it.
    Stale(Stale),
}

/// The results of statements that ran.
#[derive(Debug)]
pub(crate) struct Ran {
    /// One per statement, without an opening's.
    pub(crate) tags: SmallVec<[Tag; 1]>,
    /// What the last statement's rows look like.
    pub(crate) description: Option<Arc<Description>>,
    /// The last statement's rows: DataRow messages.
    pub(crate) rows: Chunks,
}

/// Why knowledge was out of date, and what the server said of it.
#[derive(Debug)]
pub(crate) struct Stale {
    pub(crate) error: Fault,
    /// The parameter types must be asked for again.
    pub(crate) relearn: bool,
    /// Nothing was executed and no transaction is open: running it again is safe.
    pub(crate) safe: bool,
}
