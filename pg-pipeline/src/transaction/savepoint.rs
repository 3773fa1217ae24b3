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
use crate::caller::Caller;
use crate::client::{client, sealed::Sealed};
use crate::error::{Error, Outcome};
use crate::transaction::Transaction;

/// What the names of savepoints begin with; a number follows. Those that are set by text may have any other name.
const NAME: &str = "pipeline_savepoint_";

/// A part of a transaction that can be undone alone; see [`Transaction::savepoint`].
///
/// Dropped without [`commit`](Self::commit), it is rolled back, before anything else of the transaction is sent, and
/// with it whatever was asked of the transaction since it was set. Whether that succeeds, what follows tells.
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
    number: u32,
    /// It was released or rolled back.
    over: bool,
}

impl<'a> Savepoint<'a> {
    pub(super) async fn set(transaction: &'a Transaction) -> Result<Self, Error> {
        let number = transaction.leased.savepoints.next();
        // Until it is known to be there, there is nothing to undo.
        let mut savepoint = Self { transaction, number, over: true };
        savepoint.say(format!("SAVEPOINT {NAME}{number}")).await?;
        savepoint.over = false;
        Ok(savepoint)
    }

    /// Keeps what was done since, as part of the transaction.
    ///
    /// Cancel safe: it is kept, whenever the future is dropped.
    ///
    /// # Errors
    ///
    /// What the server refuses: then it is rolled back. Deadlines and lost connections: then it is kept as long as the
    /// transaction is.
    pub fn commit(mut self) -> impl Future<Output = Result<(), Error>> + Send + use<'a> {
        // Whether or not the server hears of it: what is not undone is kept.
        self.over = true;
        self.release()
    }

    async fn release(mut self) -> Result<(), Error> {
        let released = self.say(format!("RELEASE SAVEPOINT {NAME}{}", self.number)).await;
        if released.as_ref().is_err_and(|error| error.outcome() == Outcome::Failed) {
            self.over = false;
        }
        released
    }

    /// Undoes what was done since, and waits until the server has confirmed it. Dropping does the same later. Cancel
    /// safe: it is undone, whenever the future is dropped.
    ///
    /// # Errors
    ///
    /// When the connection was lost, or the transaction was undone as a whole.
    pub async fn rollback(mut self) -> Result<(), Error> {
        self.say(back(self.number)).await?;
        self.over = true;
        self.transaction.leased.undone_since(self.number);
        Ok(())
    }

    /// A part of this part.
    ///
    /// # Errors
    ///
    /// As [`Transaction::savepoint`].
    pub async fn savepoint(&self) -> Result<Savepoint<'_>, Error> {
        Savepoint::set(self.transaction).await
    }

    /// Statements sent in one go.
    pub fn batch(&self) -> Batch<'_> {
        Batch::new(self.caller())
    }

    async fn say(&self, text: String) -> Result<(), Error> {
        Ok(self.caller().script(&text).await?)
    }
}

/// What undoes everything since a savepoint; sent twice, it does no more than once.
pub(crate) fn back(number: u32) -> String {
    format!("ROLLBACK TO SAVEPOINT {NAME}{number}")
}

impl Drop for Savepoint<'_> {
    fn drop(&mut self) {
        if !self.over {
            self.transaction.leased.savepoints.undo_since(self.number);
        }
    }
}

impl Sealed for Savepoint<'_> {
    fn caller(&self) -> Caller<'_> {
        self.transaction.caller()
    }
}

client!(Savepoint<'a>, {'a});

impl std::fmt::Debug for Savepoint<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Savepoint").field("number", &self.number).finish_non_exhaustive()
    }
}
