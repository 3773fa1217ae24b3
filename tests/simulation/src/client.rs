//! The two drivers behind one trait, through their public handles alone, so that one world exercises both.

use std::future::Future;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use pg_pipeline::{ErrorKind, Outcome, PoolStats};

use crate::link::End;
use crate::server::Server;
use crate::text::{Args, BULKY, check, padding};
use crate::weather::{Network, Settings};

/// How many statements of each kind there are.
pub const VARIANTS: i64 = 6;

/// What a call is to be.
#[derive(Debug, Clone, Copy)]
pub struct Ask {
    /// What the statement is given.
    pub args: Args,
    /// Which text it is.
    pub variant: i64,
    /// Whether it writes.
    pub writes: bool,
    /// Its own limit, on a pool.
    pub timeout: Option<Duration>,
    /// It may be run again (reads).
    pub idempotent: bool,
    /// KiB of an argument that tells nothing, for a bulky variant.
    pub bulk: usize,
}

/// What an error says.
#[derive(Debug, Clone)]
pub struct Failure {
    /// What went wrong.
    pub kind: ErrorKind,
    /// What is known of the statement.
    pub outcome: Outcome,
    /// All of it, in words.
    pub words: String,
}

impl Failure {
    /// The application's own, which has nothing to do with the database.
    pub fn own() -> Self {
        Self { kind: ErrorKind::RowCount, outcome: Outcome::Completed, words: "not today".to_owned() }
    }
}

/// A call's end: what came back fitted the question, or why nothing came.
pub type Told = Result<bool, Failure>;

/// A driver.
pub trait Database: Send + Sync + 'static {
    /// Its name.
    const NAME: &'static str;
    /// Its pool.
    type Pool: Clone + Send + Sync + 'static;
    /// Its transaction.
    type Transaction: Send + Sync + 'static;
    /// A part of it.
    type Savepoint<'a>: Send + Sync;
    /// A transaction that is run again.
    type Tx: Deref<Target = Self::Transaction> + Clone + Send + Sync + 'static;
    /// Its session.
    type Session: Send + Sync + 'static;

    /// A pool whose connections lead into the network.
    fn start(network: &Arc<Network>, settings: &Settings) -> Self::Pool;
    /// Serves a connection.
    fn serve(
        io: End,
        server: Arc<Server>,
        connection: usize,
        node: usize,
    ) -> impl Future<Output = ()> + Send + 'static;

    /// Runs a statement on the pool.
    fn on_pool(pool: &Self::Pool, ask: Ask) -> impl Future<Output = Told> + Send;
    /// Runs a statement in a transaction.
    fn in_transaction(on: &Self::Transaction, ask: Ask) -> impl Future<Output = Told> + Send;
    /// Runs a statement in a part of a transaction.
    fn in_savepoint(on: &Self::Savepoint<'_>, ask: Ask) -> impl Future<Output = Told> + Send;
    /// Runs a statement on a session.
    fn on_session(on: &Self::Session, ask: Ask) -> impl Future<Output = Told> + Send;
    /// Runs a batch on the pool.
    fn batch(pool: &Self::Pool, asks: &[Ask]) -> impl Future<Output = Result<(), Failure>> + Send;
    /// Runs a script on a session.
    fn script(on: &Self::Session, text: &str) -> impl Future<Output = Result<(), Failure>> + Send;
    /// Runs a text on the pool that it must refuse.
    fn forbidden(pool: &Self::Pool) -> impl Future<Output = Result<(), Failure>> + Send;
    /// Asks for nothing.
    fn ping(pool: &Self::Pool) -> impl Future<Output = Result<(), Failure>> + Send;
    /// Begins a transaction.
    fn begin(pool: &Self::Pool) -> impl Future<Output = Result<Self::Transaction, Failure>> + Send;
    /// Takes a session.
    fn session(pool: &Self::Pool) -> impl Future<Output = Result<Self::Session, Failure>> + Send;
    /// Commits.
    fn commit(on: Self::Transaction) -> impl Future<Output = Result<(), Failure>> + Send;
    /// Rolls back.
    fn roll_back(on: Self::Transaction) -> impl Future<Output = Result<(), Failure>> + Send;
    /// Sets a savepoint.
    fn savepoint(on: &Self::Transaction)
    -> impl Future<Output = Result<Self::Savepoint<'_>, Failure>> + Send;
    /// Sets a savepoint inside of another.
    fn savepoint_in<'a>(
        on: &'a Self::Savepoint<'_>,
    ) -> impl Future<Output = Result<Self::Savepoint<'a>, Failure>> + Send;
    /// Keeps a part.
    fn keep(on: Self::Savepoint<'_>) -> impl Future<Output = Result<(), Failure>> + Send;
    /// Undoes a part.
    fn undo(on: Self::Savepoint<'_>) -> impl Future<Output = Result<(), Failure>> + Send;
    /// Runs work in a transaction, and again when others were in its way.
    fn run<F, W>(
        pool: &Self::Pool,
        retries: u32,
        work: F,
    ) -> impl Future<Output = Result<(), Failure>> + Send
    where
        F: FnMut(Self::Tx) -> W + Send,
        W: Future<Output = Result<(), Failure>> + Send;
    /// What the pool tells of itself.
    fn stats(pool: &Self::Pool) -> PoolStats;
    /// Closes the pool.
    fn close(pool: &Self::Pool, limit: Duration) -> impl Future<Output = ()> + Send;
}

macro_rules! database {
    ($(#[$doc:meta])* $name:ident, $text:literal, $driver:ident, $server:ident, $parameters:literal, $bulky:literal) => {
        $(#[$doc])*
        #[derive(Debug)]
        pub struct $name;

        const _: () = {
            fn failure(error: $driver::Error) -> Failure {
                let cause = std::error::Error::source(&error).map_or(String::new(), |cause| format!(" ({cause})"));
                Failure { kind: error.kind(), outcome: error.outcome(), words: format!("{error}{cause}") }
            }

            impl From<$driver::Error> for Failure {
                fn from(error: $driver::Error) -> Self {
                    failure(error)
                }
            }

            fn text(ask: Ask) -> String {
                if ask.variant >= BULKY {
                    let begins = if ask.writes { "INSERT INTO ledger VALUES " } else { "SELECT echo" };
                    format!(concat!("{}(", $bulky, ") /* {} */"), begins, ask.variant)
                } else if ask.writes {
                    format!(concat!("INSERT INTO ledger VALUES (", $parameters, ") /* {} */"), ask.variant)
                } else {
                    format!(concat!("SELECT echo(", $parameters, ") /* {} */"), ask.variant)
                }
            }

            async fn run(client: &impl $driver::Client, ask: Ask) -> Told {
                let Args { id, owner, work, size } = ask.args;
                let params = (id, owner, work, size);
                let bulk = (id, owner, work, size, "b".repeat(ask.bulk * 1024));
                if ask.writes {
                    let done = if ask.variant >= BULKY {
                        client.execute(text(ask), bulk).await.map_err(failure)?
                    } else {
                        client.execute(text(ask), params).await.map_err(failure)?
                    };
                    return Ok(done.rows_affected() == 1);
                }
                let statement = $driver::Statement::new(text(ask));
                let statement = if ask.idempotent { statement.idempotent() } else { statement };
                let row: (i64, i64, String) = if ask.variant >= BULKY {
                    client.query_one(statement, bulk).await.map_err(failure)?
                } else {
                    client.query_one(statement, params).await.map_err(failure)?
                };
                Ok(row == (id, check(ask.args, ask.variant), padding(ask.args)))
            }

            impl Database for $name {
                const NAME: &'static str = $text;
                type Pool = $driver::Pool;
                type Transaction = $driver::Transaction;
                type Savepoint<'a> = $driver::Savepoint<'a>;
                type Tx = $driver::Tx;
                type Session = $driver::Session;

                fn start(network: &Arc<Network>, settings: &Settings) -> Self::Pool {
                    let network = Arc::clone(network);
                    let hosts = settings.hosts.iter().map(|host| (*host, 1));
                    let config = $driver::Config::new().hosts(hosts).user("app").password("secret");
                    // The same word in both; what is encrypted cannot be watched.
                    let config = config.option("sslmode", "disable").expect("an option");
                    let builder = $driver::Pool::builder(config).transport(move |host, _| {
                        let network = Arc::clone(&network);
                        async move { network.connect::<$name>(&host).await }
                    });
                    let builder = if settings.cancels { builder.direct_transport() } else { builder };
                    builder
                        .seed(settings.seed)
                        .connections(settings.connections)
                        .max_in_flight(settings.max_in_flight)
                        .max_answer_bytes(settings.max_answer_bytes)
                        .answer_budget(settings.answer_budget)
                        .queue_bytes(settings.queue_bytes)
                        .connect_timeout(settings.connect_timeout)
                        .query_timeout(settings.query_timeout)
                        .acquire_timeout(settings.acquire_timeout)
                        .stall_timeout(settings.stall_timeout)
                        .lease_report_after(settings.lease_report_after)
                        .statement_cache(settings.statement_cache)
                        .max_lifetime(settings.max_lifetime)
                        .connect_lazy()
                        .expect("settings within their ranges")
                }

                fn serve(
                    io: End,
                    server: Arc<Server>,
                    connection: usize,
                    node: usize,
                ) -> impl Future<Output = ()> + Send + 'static {
                    crate::$server::serve(io, server, connection, node)
                }

                async fn on_pool(pool: &Self::Pool, ask: Ask) -> Told {
                    match ask.timeout {
                        None => run(pool, ask).await,
                        Some(limit) => run(&pool.with($driver::CallOptions::new().timeout(limit)), ask).await,
                    }
                }

                async fn in_transaction(on: &Self::Transaction, ask: Ask) -> Told {
                    run(on, ask).await
                }

                async fn in_savepoint(on: &Self::Savepoint<'_>, ask: Ask) -> Told {
                    run(on, ask).await
                }

                async fn on_session(on: &Self::Session, ask: Ask) -> Told {
                    run(on, ask).await
                }

                async fn batch(pool: &Self::Pool, asks: &[Ask]) -> Result<(), Failure> {
                    let mut batch = pool.batch();
                    for ask in asks {
                        let Args { id, owner, work, size } = ask.args;
                        if ask.variant >= BULKY {
                            let bulk = (id, owner, work, size, "b".repeat(ask.bulk * 1024));
                            batch.push(text(*ask), bulk);
                        } else {
                            batch.push(text(*ask), (id, owner, work, size));
                        }
                    }
                    batch.execute().await.map(drop).map_err(failure)
                }

                async fn script(on: &Self::Session, text: &str) -> Result<(), Failure> {
                    on.batch_execute(text).await.map_err(failure)
                }

                async fn forbidden(pool: &Self::Pool) -> Result<(), Failure> {
                    pool.execute("BEGIN", ()).await.map(drop).map_err(failure)
                }

                async fn ping(pool: &Self::Pool) -> Result<(), Failure> {
                    pool.ping().await.map_err(failure)
                }

                async fn begin(pool: &Self::Pool) -> Result<Self::Transaction, Failure> {
                    pool.begin().await.map_err(failure)
                }

                async fn session(pool: &Self::Pool) -> Result<Self::Session, Failure> {
                    pool.session().await.map_err(failure)
                }

                async fn commit(on: Self::Transaction) -> Result<(), Failure> {
                    on.commit().await.map_err(failure)
                }

                async fn roll_back(on: Self::Transaction) -> Result<(), Failure> {
                    on.rollback().await.map_err(failure)
                }

                async fn savepoint(on: &Self::Transaction) -> Result<Self::Savepoint<'_>, Failure> {
                    on.savepoint().await.map_err(failure)
                }

                async fn savepoint_in<'a>(
                    on: &'a Self::Savepoint<'_>,
                ) -> Result<Self::Savepoint<'a>, Failure> {
                    on.savepoint().await.map_err(failure)
                }

                fn keep(on: Self::Savepoint<'_>) -> impl Future<Output = Result<(), Failure>> + Send {
                    // It is kept from the call on, polled or not.
                    let kept = on.commit();
                    async move { kept.await.map_err(failure) }
                }

                async fn undo(on: Self::Savepoint<'_>) -> Result<(), Failure> {
                    on.rollback().await.map_err(failure)
                }

                async fn run<F, W>(pool: &Self::Pool, retries: u32, work: F) -> Result<(), Failure>
                where
                    F: FnMut(Self::Tx) -> W + Send,
                    W: Future<Output = Result<(), Failure>> + Send,
                {
                    pool.transaction().retries(retries).run(work).await
                }

                fn stats(pool: &Self::Pool) -> PoolStats {
                    pool.stats()
                }

                async fn close(pool: &Self::Pool, limit: Duration) {
                    pool.close_within(limit).await;
                }
            }
        };
    };
}

database!(
    /// `pg-pipeline`.
    Postgres, "postgres", pg_pipeline, postgres, "$1, $2, $3, $4", "$1, $2, $3, $4, $5"
);
database!(
    /// `mysql-pipeline`.
    MySql, "mysql", mysql_pipeline, mysql, "?, ?, ?, ?", "?, ?, ?, ?, ?"
);
