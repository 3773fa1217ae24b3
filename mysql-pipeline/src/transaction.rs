//! A unit of work on a connection of its own.
//!
//! ```text
//!  begun (nothing sent) ── first statement ──▶ autocommit off, then the statement ──▶ open ── commit() ──▶ committed
//!        │                                                                             │  └── rollback() ─▶ rolled back
//!        └── commit(): nothing to do                                                   └── dropped: rolled back on return
//! ```
//!
//! Without autocommit, because of what MySQL does after a deadlock: it rolls the whole transaction back and goes on
//! with the next statement. Statements that were on their way already would otherwise commit one by one; so they
//! belong to a new transaction that nobody commits. COMMIT is sent when every earlier answer has come, and not at all
//! when one of them said that the transaction was undone. `pg-pipeline`'s file of this name has the same face on
//! purpose; what opens and ends a transaction differs.

mod builder;
mod savepoint;

use std::sync::Arc;

use wire_pipeline::retry::Attempt;

use crate::batch::Batch;
use crate::caller::{Caller, Knowledge, Lane, Leased};
use crate::client::{Client, client, sealed::Sealed};
use crate::connect::MyDriver;
use crate::error::{Error, Fault};
use crate::protocol::request::Request;

pub use builder::{Isolation, TransactionBuilder};
pub use savepoint::Savepoint;

/// A transaction; see [`Pool::begin`](crate::Pool::begin).
///
/// Its statements may be pipelined (`tokio::try_join!` of several calls): they run in the order in which they are
/// first polled. Dropped without [`commit`](Self::commit), in any state, it is rolled back. Statements that MySQL
/// commits by itself (`CREATE TABLE`, `TRUNCATE` …) are refused.
///
/// As MySQL has it, a statement that fails is undone alone, and the transaction goes on; after a deadlock (1213), and
/// after a lock that could not be had in time (1205), it is undone as a whole: then every further call says so, and
/// [`Error::is_retryable`] that all of it may be run again.
#[must_use = "a transaction that is dropped without commit() is rolled back"]
pub struct Transaction {
    leased: Leased,
    knowledge: Arc<Knowledge>,
}

impl Transaction {
    /// Nothing is sent: what opens the transaction goes out before whatever goes out first, bound to it.
    fn begin(leased: Leased, knowledge: Arc<Knowledge>, opening: String) -> Self {
        leased.lease.set_opening(Request::query(opening));
        Self { leased, knowledge }
    }

    /// Commits.
    ///
    /// Not cancel safe in the sense that matters here: once COMMIT was sent, dropping the future leaves open whether
    /// the transaction was committed.
    ///
    /// # Errors
    ///
    /// Whenever the server did not commit, also when it had undone the transaction before, or when a statement failed
    /// whose future was dropped. [`Outcome::Unknown`](crate::Outcome::Unknown) when the connection was lost before its
    /// answer.
    pub async fn commit(self) -> Result<(), Error> {
        Ok(self.caller().commit().await?)
    }

    /// Rolls back, and waits until the server has confirmed it. Dropping the transaction does the same without
    /// waiting.
    ///
    /// # Errors
    ///
    /// When the connection was lost: then the server rolls back by itself. When a script or a procedure has ended the
    /// transaction before ([`SessionState`](crate::ErrorKind::SessionState)): what came before that stays as it is.
    pub async fn rollback(self) -> Result<(), Error> {
        if let Some(ended) = self.leased.ended() {
            return Err(ended.into());
        }
        Ok(self.caller().roll_back().await?)
    }

    /// A part that can be undone alone.
    ///
    /// It is set behind whatever was asked of this transaction before; of parts that overlap, the later one is inside
    /// of the earlier. Cancel safe: a part that nobody has got a handle of stays without effect.
    ///
    /// # Errors
    ///
    /// What the server refuses ([`Database`](crate::ErrorKind::Database)), deadlines and lost connections, and
    /// [`SessionState`](crate::ErrorKind::SessionState) when the transaction is over.
    pub async fn savepoint(&self) -> Result<Savepoint<'_>, Error> {
        Savepoint::set(self, self.caller()).await
    }

    /// Runs a script of several statements, separated by semicolons; the results are discarded.
    ///
    /// # Errors
    ///
    /// What the server refuses: then the statements before the refused one are part of the transaction. A script with
    /// a statement that ends the transaction ([`SessionState`](crate::ErrorKind::SessionState)) is not sent. A procedure
    /// that ends it (the same, later): then the handle is of no use any more.
    pub async fn batch_execute(&self, script: &str) -> Result<(), Error> {
        self.caller().script(script).await?;
        Ok(())
    }

    /// Statements sent in one go.
    pub fn batch(&self) -> Batch<'_> {
        Batch::new(self.caller())
    }
}

impl Sealed for Transaction {
    fn caller(&self) -> Caller<'_> {
        Caller::new(&self.knowledge, Lane::Leased(&self.leased))
    }
}

client!(Transaction);

impl std::fmt::Debug for Transaction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Transaction").field("is_alive", &self.leased.lease.is_alive()).finish_non_exhaustive()
    }
}

/// A handle of the transaction that [`TransactionBuilder::run`] runs its work in: everything that a [`Transaction`] can do
/// but end. Cheap to clone; it must not be kept beyond the work, because its connection is not free before it is gone.
#[derive(Debug, Clone)]
pub struct Tx(Arc<Transaction>);

impl Tx {
    fn new(transaction: Transaction) -> Self {
        Self(Arc::new(transaction))
    }
}

impl std::ops::Deref for Tx {
    type Target = Transaction;

    fn deref(&self) -> &Transaction {
        &self.0
    }
}

impl Sealed for Tx {
    fn caller(&self) -> Caller<'_> {
        self.0.caller()
    }
}

impl Client for Tx {}

impl Attempt<MyDriver> for Tx {
    fn leased(&self) -> &Leased {
        &self.0.leased
    }

    async fn commit(&self) -> Result<(), Fault> {
        self.caller().commit().await
    }

    async fn roll_back(&self) -> Result<(), Fault> {
        self.caller().roll_back().await
    }
}
