//! A complete answer, not yet decoded.

use smallvec::SmallVec;
use wire_pipeline::answer::Chunks;

use super::response::Done;
use crate::error::Fault;

/// What one request brought.
#[derive(Debug)]
pub(crate) enum Answer {
    /// It ran.
    Ran(Ran),
    /// The server refused before it executed anything, because it does not know the statement any more or wants it
    /// prepared again; this connection has forgotten it. Running it again is safe.
    Stale(Fault),
    /// The server's word in a dialogue that goes on.
    Said(Vec<u8>),
}

/// The results of a request: one, or several where a procedure was called.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) results: SmallVec<[ResultSet; 1]>,
    /// The packets of all results in order, each behind its frame header: of every result its column definitions,
    /// then its rows. None where rows are not wanted.
    pub(crate) packets: Chunks,
    /// Rows are text, not binary.
    pub(crate) text: bool,
}

/// One result: how many packets belong to it, and how it ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ResultSet {
    /// Definitions of columns; 0 for a statement without rows.
    pub(crate) columns: u16,
    pub(crate) rows: u64,
    pub(crate) done: Done,
}
