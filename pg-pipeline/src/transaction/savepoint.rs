//! A part of a transaction that can be undone alone.
//!
//! ```text
//!  savepoint() ── SAVEPOINT ──▶ open ── commit() ───▶ RELEASE SAVEPOINT
//!                                │ └─── rollback() ─▶ ROLLBACK TO SAVEPOINT
//!                                └───── dropped: ROLLBACK TO SAVEPOINT goes out before whatever the transaction sends next
//! ```
//!
//! `mysql-pipeline`'s file of this name has the same face on purpose: what an error inside of it does is told in its own
//! words.

use crate::batch::Batch;
use crate::caller::{Caller, Held};
use crate::client::{client, sealed::Sealed};
use crate::error::Error;
use crate::transaction::Transaction;

/// A part of a transaction that can be undone alone; see [`Transaction::savepoint`].
///
/// Dropped without [`commit`](Self::commit), it is rolled back, before anything else of the transaction is sent, and
/// with it whatever was asked of the transaction since it was set. Whether that succeeds, what follows tells. So is one
/// that is still there when its transaction is committed.
///
/// Savepoints may overlap, and end in any order: the later one is inside of the earlier. When the earlier one is rolled
/// back, the later one is over, and calls of it are refused; when the earlier one is kept, the later one goes on.
///
/// An error inside of it spoils only what came since: after the rollback to it, the transaction goes on.
///
/// ```no_run
/// # async fn example(tx: &pg_pipeline::Transaction) -> Result<(), pg_pipeline::Error> {
/// let part = tx.savepoint().await?;
/// if part.execute("INSERT INTO tags (name) VALUES ($1)", ("new",)).await.is_ok() {
///     part.commit().await?;
/// }
/// # Ok(())
/// # }
/// ```
#[must_use = "a savepoint that is dropped without commit() is rolled back"]
pub struct Savepoint<'a> {
    transaction: &'a Transaction,
    held: Held<'a>,
}

impl<'a> Savepoint<'a> {
    pub(super) async fn set(transaction: &'a Transaction, within: Caller<'a>) -> Result<Self, Error> {
        Ok(Self { transaction, held: within.set_savepoint().await? })
    }

    /// Keeps what was done since, as part of the transaction, or of the savepoint that it is inside of.
    ///
    /// Cancel safe: it is kept, whenever the future is dropped.
    ///
    /// # Errors
    ///
    /// What the server refuses: then it is rolled back. [`SessionState`](crate::ErrorKind::SessionState) when it was
    /// rolled back before, together with one that it is inside of. Deadlines and lost connections: then it is kept as
    /// long as the transaction is.
    pub fn commit(mut self) -> impl Future<Output = Result<(), Error>> + Send + use<'a> {
        self.held.keep();
        let caller = self.transaction.caller().of_savepoint(self.held.number());
        async move { Ok(caller.keep(self.held).await?) }
    }

    /// Undoes what was done since, and waits until the server has confirmed it; also when that is so already, because one
    /// that it is inside of was rolled back. Dropping does the same later. Cancel safe: it is undone once, and before
    /// anything that is asked later, whenever the future is dropped.
    ///
    /// # Errors
    ///
    /// When the connection was lost, or the transaction was undone as a whole. Deadlines, and what the server refuses:
    /// then nothing more is sent in this transaction before it is undone.
    pub async fn rollback(self) -> Result<(), Error> {
        Ok(self.transaction.caller().undo(self.held).await?)
    }

    /// A part of this part.
    ///
    /// # Errors
    ///
    /// As [`Transaction::savepoint`].
    pub async fn savepoint(&self) -> Result<Savepoint<'_>, Error> {
        Savepoint::set(self.transaction, self.caller()).await
    }

    /// Statements sent in one go.
    pub fn batch(&self) -> Batch<'_> {
        Batch::new(self.caller())
    }
}

impl Sealed for Savepoint<'_> {
    fn caller(&self) -> Caller<'_> {
        self.transaction.caller().of_savepoint(self.held.number())
    }
}

client!(Savepoint<'a>, {'a});

impl std::fmt::Debug for Savepoint<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Savepoint").field("number", &self.held.number()).finish_non_exhaustive()
    }
}
