//! One connection alone, for as long as somebody needs its session.
//!
//! `pg-pipeline`'s file of this name has the same face on purpose: what the server does with a script is told in its own words.

use std::sync::Arc;

use crate::batch::Batch;
use crate::caller::{Caller, Knowledge, Lane, Leased};
use crate::client::{client, sealed::Sealed};
use crate::error::Error;

/// A connection out of sharing: SET, temporary tables, locks, transactions of one's own.
///
/// Statements may be pipelined; they run in the order in which they are first polled. When it is dropped, in any
/// state, a transaction left open is rolled back and the session is reset before others use the connection; `USE` ends
/// with it too.
pub struct Session {
    leased: Leased,
    knowledge: Arc<Knowledge>,
}

impl Session {
    pub(crate) fn new(leased: Leased, knowledge: Arc<Knowledge>) -> Self {
        Self { leased, knowledge }
    }

    /// Runs a script of several statements, separated by semicolons; the results are discarded.
    ///
    /// # Errors
    ///
    /// What the server refuses: then the statements behind the refused one are not run, and those before it are done
    /// (unless the script itself opened a transaction); [`outcome`](Error::outcome) says whether there were any.
    pub async fn batch_execute(&self, script: &str) -> Result<(), Error> {
        self.caller().script(script).await?;
        Ok(())
    }

    /// Statements that succeed or fail together, sent in one go.
    pub fn batch(&self) -> Batch<'_> {
        Batch::new(self.caller())
    }

    /// Whether the connection is still there; a session whose connection was lost stays lost.
    pub fn is_alive(&self) -> bool {
        self.leased.lease.is_alive()
    }
}

impl Sealed for Session {
    fn caller(&self) -> Caller<'_> {
        Caller::new(&self.knowledge, Lane::Leased(&self.leased))
    }
}

client!(Session);

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("is_alive", &self.is_alive()).finish_non_exhaustive()
    }
}
