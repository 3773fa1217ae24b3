//! The shared handle: thousands of statements in flight over a few connections.
//!
//! `pg-pipeline`'s file of this name has the same face on purpose: concrete types with documentation of their own protocol, each
//! call one delegation.

use std::sync::Arc;
use std::time::Duration;

pub use wire_pipeline::stats::{Histogram, LeaseStats, Losses, PipeState, PipeStats, PoolStats, Work};

use crate::batch::Batch;
use crate::caller::{CallOptions, Caller, Knowledge, Lane, Leased, Takes};
use crate::client::{client, sealed::Sealed};
use crate::config::Config;
use crate::connect::MyDriver;
use crate::error::Error;
use crate::session::Session;
use crate::transaction::{Transaction, TransactionBuilder};

/// How long [`Pool::close`] lets statements finish.
const CLOSE_WITHIN: Duration = Duration::from_secs(10);

/// A pool of pipelined connections.
///
/// Cheap to clone, and every call takes `&self`: statements of many tasks are in flight at once on each connection,
/// and nobody checks a connection out. What needs a session of its own takes a lease: [`begin`](Self::begin),
/// [`session`](Self::session).
///
/// ```no_run
/// # async fn example() -> Result<(), mysql_pipeline::Error> {
/// let pool = mysql_pipeline::Pool::connect("mysql://app:secret@db.internal/app").await?;
/// let (id, name): (i32, String) = pool.query_one("SELECT id, name FROM users WHERE id = ?", (7,)).await?;
/// # Ok(())
/// # }
/// ```
///
/// When the last clone is dropped, what is under way is finished and the connections end.
#[derive(Clone)]
pub struct Pool {
    engine: wire_pipeline::Pool<MyDriver>,
    knowledge: Arc<Knowledge>,
}

impl Pool {
    /// Connects with the pool's defaults. The text is a URL; see [`Config`].
    ///
    /// Returns when one connection is up; the others follow.
    ///
    /// # Errors
    ///
    /// What is wrong with the text ([`Config`](crate::ErrorKind::Config)), or the first failure's cause.
    pub async fn connect(config: &str) -> Result<Self, Error> {
        Self::builder(config.parse()?).connect().await
    }

    /// A pool whose options are set one by one.
    pub fn builder(config: Config) -> PoolBuilder {
        PoolBuilder { config }
    }

    /// The same pool with other settings for the calls made through the view.
    pub fn with(&self, options: CallOptions) -> PoolView<'_> {
        PoolView { pool: self, options }
    }

    /// A transaction, on a connection of its own for as long as it lives.
    ///
    /// Nothing is sent yet: what opens it goes out before the first statement. Waits in order of arrival, at most
    /// `acquire_timeout`. Cancel safe.
    ///
    /// # Errors
    ///
    /// [`Timeout`](crate::ErrorKind::Timeout) in phase lease when all leases are held;
    /// [`Config`](crate::ErrorKind::Config) in a pool of one connection, which is never leased.
    #[track_caller]
    pub fn begin(&self) -> impl Future<Output = Result<Transaction, Error>> + Send + use<'_> {
        self.transaction().begin()
    }

    /// A transaction with a level of isolation, or one that only reads, or one that is run again when others were in its
    /// way.
    ///
    /// ```no_run
    /// use mysql_pipeline::{Error, Isolation};
    ///
    /// # async fn example(pool: &mysql_pipeline::Pool) -> Result<(), Error> {
    /// let builder = pool.transaction().isolation(Isolation::Serializable).retries(3);
    /// let total = builder
    ///     .run(async |tx| {
    ///         let (total,): (i64,) = tx.query_one("SELECT count(*) FROM accounts", ()).await?;
    ///         tx.execute("UPDATE totals SET accounts = ?", (total,)).await?;
    ///         Ok::<_, Error>(total)
    ///     })
    ///     .await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn transaction(&self) -> TransactionBuilder<'_> {
        TransactionBuilder::new(self)
    }

    /// A session: one connection alone, for settings, temporary tables, locks.
    ///
    /// When it is dropped its connection is reset before others use it. Waits in order of arrival, at most
    /// `acquire_timeout`. Cancel safe.
    ///
    /// # Errors
    ///
    /// [`Timeout`](crate::ErrorKind::Timeout) in phase lease when all leases are held;
    /// [`Config`](crate::ErrorKind::Config) in a pool of one connection, which is never leased.
    #[track_caller]
    pub fn session(&self) -> impl Future<Output = Result<Session, Error>> + Send + use<'_> {
        let lease = self.engine.lease();
        async move {
            let lease = lease.await?;
            lease.touch();
            Ok(Session::new(Leased::new(lease, Takes::Everything), Arc::clone(&self.knowledge)))
        }
    }

    /// Statements that succeed or fail together, on a lease.
    pub fn batch(&self) -> Batch<'_> {
        Batch::new(self.caller())
    }

    /// Runs a script of several statements on a lease; the results are discarded.
    ///
    /// # Errors
    ///
    /// As [`session`](Self::session) and [`Session::batch_execute`].
    /// [`SessionState`](crate::ErrorKind::SessionState) when the script leaves a transaction open: it is rolled back.
    #[track_caller]
    pub fn batch_execute(&self, script: &str) -> impl Future<Output = Result<(), Error>> + Send {
        let session = self.session();
        async move { Ok(session.await?.caller().lone_script(script).await?) }
    }

    /// Asks the server for nothing, and waits for the answer.
    ///
    /// # Errors
    ///
    /// As [`query`](Self::query).
    pub async fn ping(&self) -> Result<(), Error> {
        Ok(self.caller().ping().await?)
    }

    /// A snapshot of what the pool is doing.
    pub fn stats(&self) -> PoolStats {
        self.engine.stats()
    }

    /// Takes no new statements, finishes what is under way for up to 10 s, and says goodbye. When it returns the
    /// server shows none of this pool's connections.
    pub async fn close(&self) {
        self.close_within(CLOSE_WITHIN).await;
    }

    /// As [`close`](Self::close), with another limit. What is not finished by then gets an error, and the server is asked to
    /// stop it, for up to a second more; it ends the connection when it has.
    pub async fn close_within(&self, limit: Duration) {
        self.engine.close_within(limit).await;
    }
}

impl Pool {
    pub(crate) fn engine(&self) -> &wire_pipeline::Pool<MyDriver> {
        &self.engine
    }

    pub(crate) fn knowledge(&self) -> &Arc<Knowledge> {
        &self.knowledge
    }
}

impl Sealed for Pool {
    fn caller(&self) -> Caller<'_> {
        Caller::new(&self.knowledge, Lane::Shared(&self.engine))
    }
}

client!(Pool);

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool").field("stats", &self.stats()).finish()
    }
}

/// A pool with other settings for single calls; see [`Pool::with`].
#[derive(Debug, Clone, Copy)]
pub struct PoolView<'a> {
    pool: &'a Pool,
    options: CallOptions,
}

impl Sealed for PoolView<'_> {
    fn caller(&self) -> Caller<'_> {
        Caller { options: self.options, ..self.pool.caller() }
    }
}

client!(PoolView<'a>, {'a});

/// Sets a pool's options; each is described in [`PoolOptions`](crate::PoolOptions).
#[derive(Debug, Clone)]
pub struct PoolBuilder {
    config: Config,
}

wire_pipeline::option_setters! { PoolBuilder, config.pool, "With 0 each statement is closed again by the next one." }

impl PoolBuilder {
    /// Connects; returns when one connection is up, and the others follow.
    ///
    /// # Errors
    ///
    /// An option that cannot be used ([`Config`](crate::ErrorKind::Config)), or the first failure's cause.
    pub async fn connect(self) -> Result<Pool, Error> {
        let pool = self.start()?;
        match pool.engine.ready().await {
            Ok(()) => Ok(pool),
            Err(error) => Err(error.into()),
        }
    }

    /// Connects in the background: never waits, and statements wait for the first connection.
    ///
    /// # Errors
    ///
    /// An option that cannot be used ([`Config`](crate::ErrorKind::Config)).
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub fn connect_lazy(self) -> Result<Pool, Error> {
        self.start()
    }

    fn start(self) -> Result<Pool, Error> {
        let options = self.config.pool_options().into();
        let knowledge = Knowledge::new(self.config.pool_options());
        let driver = MyDriver::new(self.config)?;
        Ok(Pool { engine: wire_pipeline::Pool::start(driver, options), knowledge })
    }
}
