//! How a transaction runs: isolation, access, and again when others were in its way.
//!
//! `pg-pipeline`'s file of this name has the same face on purpose: what opens a transaction is each protocol's. How
//! often and when one is run again is the engine's.

use std::panic::Location;
use std::sync::Arc;

use wire_pipeline::retry;

use crate::caller::{Leased, Takes};
use crate::error::{Error, Fault};
use crate::pool::Pool;
use crate::transaction::{Transaction, Tx};

/// What a transaction sees of others that run at the same time, from the least to the most isolated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Isolation {
    /// `READ UNCOMMITTED`: sees also what others have not committed.
    ReadUncommitted,
    /// `READ COMMITTED`: each statement sees what was committed before it.
    ReadCommitted,
    /// `REPEATABLE READ`: plain reads see what was committed before the first.
    RepeatableRead,
    /// `SERIALIZABLE`: reads lock what they read, so that deadlocks (1213) are to be expected.
    Serializable,
}

impl Isolation {
    fn name(self) -> &'static str {
        match self {
            Self::ReadUncommitted => "READ-UNCOMMITTED",
            Self::ReadCommitted => "READ-COMMITTED",
            Self::RepeatableRead => "REPEATABLE-READ",
            Self::Serializable => "SERIALIZABLE",
        }
    }
}

/// How a transaction is to run; see [`Pool::transaction`].
#[derive(Debug, Clone)]
#[must_use = "nothing happens until begin() or run()"]
pub struct TransactionBuilder<'a> {
    pool: &'a Pool,
    isolation: Option<Isolation>,
    read_only: bool,
    retries: u32,
}

impl<'a> TransactionBuilder<'a> {
    pub(crate) fn new(pool: &'a Pool) -> Self {
        Self { pool, isolation: None, read_only: false, retries: 0 }
    }

    /// What it sees of others. Default: the server's `transaction_isolation`.
    pub fn isolation(mut self, isolation: Isolation) -> Self {
        self.isolation = Some(isolation);
        self
    }

    /// The server refuses what would change data. Default: off.
    pub fn read_only(mut self) -> Self {
        self.read_only = true;
        self
    }

    /// How often [`run`](Self::run) may run the work again, beyond the first time; any number. Default: 0.
    /// [`begin`](Self::begin) takes no notice of it.
    pub fn retries(mut self, retries: u32) -> Self {
        self.retries = retries;
        self
    }

    /// Begins it, for the caller to commit. Nothing is sent yet: what opens it goes out with the first statement.
    ///
    /// Waits for a connection in order of arrival, at most `acquire_timeout`. Cancel safe.
    ///
    /// # Errors
    ///
    /// [`Timeout`](crate::ErrorKind::Timeout) in phase lease when all leases are held: the message names the place in
    /// the code that has held one for the longest.
    #[track_caller]
    pub fn begin(self) -> impl Future<Output = Result<Transaction, Error>> + Send + use<'a> {
        let place = Location::caller();
        async move { Ok(self.begin_for(place).await?) }
    }

    async fn begin_for(&self, place: &'static Location<'static>) -> Result<Transaction, Fault> {
        let lease = self.pool.engine().lease_for(place).await?;
        let leased = Leased::new(lease, Takes::InTransaction);
        Ok(Transaction::begin(leased, Arc::clone(self.pool.knowledge()), self.opening()))
    }

    /// What opens it. With `@@` and no scope, a variable holds for the next transaction alone.
    /// Source: MySQL manual, "SET TRANSACTION Statement", and the system variable `transaction_isolation`.
    fn opening(&self) -> String {
        let mut text = "SET autocommit = 0".to_owned();
        if let Some(isolation) = self.isolation {
            text += ", @@transaction_isolation = '";
            text += isolation.name();
            text += "'";
        }
        if self.read_only {
            text += ", @@transaction_read_only = 1";
        }
        text
    }

    /// Runs `work` in a transaction, and commits when it returns `Ok`, behind every statement that it has asked for.
    /// When it returns `Err` or panics, and when the future is dropped, the transaction is rolled back.
    ///
    /// When the server refused a statement because others were in the way (a deadlock, 1213, or a lock that could not
    /// be had in time, 1205), `work` is run again from the beginning, up to [`retries`](Self::retries)
    /// times, for no longer than the pool's `query_timeout` from the first run on, after waits of 2 to 500 ms that double
    /// and are spread by chance. So it must not have effects beside the transaction that may not happen twice.
    ///
    /// What counts is what the server said, not what `work` makes of it: `E` may be any error that can be made from
    /// [`Error`], and need not tell whether it is worth another run. Undone with its [`Savepoint`](crate::Savepoint), a
    /// statement counts no more. Nothing is run again when it is not known whether it was committed, nor because a
    /// connection was lost, nor when a script or a procedure has ended the transaction by itself. Nor is
    /// work run again in which a procedure was undone together with the transaction: it may have committed before.
    ///
    /// `work` gets a handle of its own, so that it may borrow from its surroundings and the whole can be spawned:
    ///
    /// ```no_run
    /// # async fn example(pool: &mysql_pipeline::Pool, amount: i32) -> Result<(), mysql_pipeline::Error> {
    /// pool.transaction()
    ///     .retries(3)
    ///     .run(async |tx| {
    ///         tx.execute("UPDATE accounts SET balance = balance - ?", (amount,)).await?;
    ///         Ok::<_, mysql_pipeline::Error>(())
    ///     })
    ///     .await
    /// # }
    /// ```
    ///
    /// An error of a statement says what is known of that statement, and `Unknown` when its connection is lost; the
    /// transaction is undone all the same, because COMMIT was not sent. Whoever must tell the two apart gives errors of
    /// statements a name of their own in `E`: what `run` itself returns beside them comes from COMMIT.
    ///
    /// Cancel safe until `work` has returned; dropped once COMMIT was sent, it is open whether the transaction was
    /// committed. A handle that is kept beyond the work runs nothing any more.
    ///
    /// # Errors
    ///
    /// What `work` returned the last time, and why the transaction could not begin (as [`begin`](Self::begin)) or be
    /// committed (as [`Transaction::commit`]); [`Unknown`](crate::Outcome::Unknown) when it is not known whether it
    /// was.
    /// [`SessionState`](crate::ErrorKind::SessionState), whatever `work` returned, when something in it has ended the
    /// transaction by itself, so that what came before is committed or undone for good.
    #[track_caller]
    pub fn run<T, E, F, W>(self, work: F) -> impl Future<Output = Result<T, E>>
    where
        E: From<Error>,
        F: FnMut(Tx) -> W,
        W: Future<Output = Result<T, E>>,
    {
        let place = Location::caller();
        async move {
            let begin = || async { Ok(Tx::new(self.begin_for(place).await?)) };
            retry::run(self.pool.engine(), self.retries, begin, work, |fault| E::from(Error::from(fault)))
                .await
        }
    }
}
