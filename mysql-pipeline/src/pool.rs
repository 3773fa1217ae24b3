//! The shared handle: thousands of statements in flight over a few connections.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};

pub use wire_pipeline::stats::{PipeState, PipeStats, PoolStats};

use crate::batch::Batch;
use crate::caller::{CallOptions, Caller, Knowledge, Lane, Leased, Takes};
use crate::client::{client, sealed::Sealed};
use crate::config::Config;
use crate::connect::MyDriver;
use crate::error::Error;
use crate::session::Session;
use crate::transaction::Transaction;

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
    /// [`Timeout`](crate::ErrorKind::Timeout) in phase lease when all leases are held.
    pub async fn begin(&self) -> Result<Transaction, Error> {
        let lease = self.engine.lease().await?;
        Ok(Transaction::begin(Leased::new(lease, Takes::InTransaction), Arc::clone(&self.knowledge)))
    }

    /// A session: one connection alone, for settings, temporary tables, locks.
    ///
    /// When it is dropped its connection is reset before others use it. Waits in order of arrival, at most
    /// `acquire_timeout`. Cancel safe.
    ///
    /// # Errors
    ///
    /// [`Timeout`](crate::ErrorKind::Timeout) in phase lease when all leases are held.
    pub async fn session(&self) -> Result<Session, Error> {
        let lease = self.engine.lease().await?;
        lease.touch();
        Ok(Session::new(Leased::new(lease, Takes::Everything), Arc::clone(&self.knowledge)))
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
    pub async fn batch_execute(&self, script: &str) -> Result<(), Error> {
        self.session().await?.batch_execute(script).await
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

    /// As [`close`](Self::close), with another limit. What is not finished by then gets an error.
    pub async fn close_within(&self, limit: Duration) {
        self.engine.close_within(limit).await;
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

macro_rules! options {
    ($($(#[$doc:meta])* $name:ident: $type:ty;)+) => {
        impl PoolBuilder {
            $(
                $(#[$doc])*
                #[must_use]
                pub fn $name(mut self, value: $type) -> Self {
                    self.config = self.config.$name(value);
                    self
                }
            )+
        }
    };
}

options! {
    /// Number of connections.
    connections: usize;
    /// Statements per connection, queued and in flight; 1 switches pipelining off.
    max_in_flight: usize;
    /// Bytes of one answer.
    max_answer_bytes: usize;
    /// Bytes of all answers held at a time.
    answer_budget: usize;
    /// Bytes of queued statements per connection.
    queue_bytes: usize;
    /// Name resolution, network, authentication and set-up together.
    connect_timeout: Duration;
    /// Queueing, sending and answering of one statement together.
    query_timeout: Duration;
    /// Waiting for a lease.
    acquire_timeout: Duration;
    /// Prepared statements per connection.
    statement_cache: usize;
    /// Age at which a connection is replaced; zero means never.
    max_lifetime: Duration;
}

impl PoolBuilder {
    /// Statements that every new connection runs, and again after a reset.
    #[must_use]
    pub fn setup<S: Into<String>>(mut self, statements: impl IntoIterator<Item = S>) -> Self {
        self.config = self.config.setup(statements);
        self
    }

    /// What makes byte streams in place of TCP connections; see [`Config::transport`].
    #[must_use]
    pub fn transport<F, Fut, S>(mut self, open: F) -> Self
    where
        F: Fn(String, u16) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = io::Result<S>> + Send + 'static,
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        self.config = self.config.transport(open);
        self
    }

    /// The seed of the pool's random numbers, for runs that must repeat; see [`Config::seed`].
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.config = self.config.seed(seed);
        self
    }

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
