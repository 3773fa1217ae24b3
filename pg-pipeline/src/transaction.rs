//! A unit of work on a connection of its own.
//!
//! ```text
//!  begun (nothing sent) ── first statement ──▶ BEGIN and it share one Sync ──▶ open ── commit() ──▶ committed
//!        │                                                                      │  └── rollback() ─▶ rolled back
//!        └── commit(): nothing to do                                            └── dropped: rolled back on return
//! ```
//!
//! `mysql-pipeline`'s file of this name has the same face on purpose; what opens and ends a transaction differs.

mod builder;
mod savepoint;

use std::sync::{Arc, LazyLock};

use wire_pipeline::retry::Attempt;

use crate::batch::Batch;
use crate::caller::{Caller, Knowledge, Lane, Leased};
use crate::client::{Client, client, sealed::Sealed};
use crate::connect::PgDriver;
use crate::error::{Error, ErrorKind, Fault, Outcome};
use crate::params;
use crate::protocol::messages::Verb;
use crate::protocol::request::Request;
use crate::statement::Learned;

static BEGIN: LazyLock<Arc<Learned>> = LazyLock::new(|| Learned::without_parameters("BEGIN"));

pub use builder::{Isolation, TransactionBuilder};
pub use savepoint::Savepoint;

/// A transaction; see [`Pool::begin`](crate::Pool::begin).
///
/// Its statements may be pipelined (`tokio::try_join!` of several calls): they run in the order in which they are
/// first polled. Nothing follows the first of them before it is answered, so that nothing runs outside of the
/// transaction when BEGIN fails. Dropped without [`commit`](Self::commit), in any state, it is rolled back.
#[must_use = "a transaction that is dropped without commit() is rolled back"]
pub struct Transaction {
    leased: Leased,
    knowledge: Arc<Knowledge>,
}

impl Transaction {
    /// Nothing is sent: BEGIN goes out with whatever goes out first, bound to it.
    fn begin(leased: Leased, knowledge: Arc<Knowledge>, opening: &str) -> Self {
        let opening =
            if opening == &*BEGIN.text { Arc::clone(&BEGIN) } else { Learned::without_parameters(opening) };
        if let Ok(bound) = params::encode(&(), &[]) {
            leased.lease.set_opening(Request::query(opening, bound, false));
        }
        Self { leased, knowledge }
    }

    /// Commits.
    ///
    /// Not cancel safe in the sense that matters here: once COMMIT was sent, dropping the future leaves open whether
    /// the transaction was committed.
    ///
    /// # Errors
    ///
    /// Whenever the server did not commit, also when it turns COMMIT into ROLLBACK because an earlier statement had
    /// failed, or a script had ended it. [`Outcome::Unknown`] when the connection was lost before its answer.
    pub async fn commit(self) -> Result<(), Error> {
        Ok(self.end().await?)
    }

    async fn end(&self) -> Result<(), Fault> {
        let Some(ran) = self.caller().commit().await? else { return Ok(()) };
        match ran.tags.last().map(|tag| tag.verb) {
            Some(Verb::Rollback) => Err(rolled_back()),
            _ => Ok(()),
        }
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
    /// What the server refuses: then the transaction can only be rolled back. A script that ends the transaction
    /// ([`SessionState`](ErrorKind::SessionState)): then the handle is of no use any more.
    pub async fn batch_execute(&self, script: &str) -> Result<(), Error> {
        Ok(self.caller().script(script).await?)
    }

    /// Statements sent in one go.
    pub fn batch(&self) -> Batch<'_> {
        Batch::new(self.caller())
    }
}

#[cold]
fn rolled_back() -> Fault {
    Fault::new(
        ErrorKind::Database,
        Outcome::Failed,
        "the server rolled the transaction back instead of committing it, because an earlier statement of it failed",
    )
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

impl Attempt<PgDriver> for Tx {
    fn leased(&self) -> &Leased {
        &self.0.leased
    }

    async fn commit(&self) -> Result<(), Fault> {
        self.0.end().await
    }

    async fn roll_back(&self) -> Result<(), Fault> {
        self.caller().roll_back().await
    }
}
