//! The two drivers behind one trait, through their public handles alone, so that one world exercises both.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use pg_pipeline::{ErrorKind, Outcome, PoolStats};

use crate::link::End;
use crate::server::{Args, Server, check, padding};
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
    /// Its session.
    type Session: Send + Sync + 'static;

    /// A pool whose connections lead into the network.
    fn start(network: &Arc<Network>, settings: &Settings) -> Self::Pool;
    /// Serves a connection.
    fn serve(io: End, server: Arc<Server>, connection: usize) -> impl Future<Output = ()> + Send + 'static;

    /// Runs a statement on the pool.
    fn on_pool(pool: &Self::Pool, ask: Ask) -> impl Future<Output = Told> + Send;
    /// Runs a statement in a transaction.
    fn in_transaction(on: &Self::Transaction, ask: Ask) -> impl Future<Output = Told> + Send;
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
    /// What the pool tells of itself.
    fn stats(pool: &Self::Pool) -> PoolStats;
    /// Closes the pool.
    fn close(pool: &Self::Pool, limit: Duration) -> impl Future<Output = ()> + Send;
}

macro_rules! database {
    ($(#[$doc:meta])* $name:ident, $text:literal, $driver:ident, $server:ident, $parameters:literal) => {
        $(#[$doc])*
        #[derive(Debug)]
        pub struct $name;

        const _: () = {
            fn failure(error: $driver::Error) -> Failure {
                let cause = std::error::Error::source(&error).map_or(String::new(), |cause| format!(" ({cause})"));
                Failure { kind: error.kind(), outcome: error.outcome(), words: format!("{error}{cause}") }
            }

            fn text(ask: Ask) -> String {
                if ask.writes {
                    format!(concat!("INSERT INTO ledger VALUES (", $parameters, ") /* {} */"), ask.variant)
                } else {
                    format!(concat!("SELECT echo(", $parameters, ") /* {} */"), ask.variant)
                }
            }

            async fn run(client: &impl $driver::Client, ask: Ask) -> Told {
                let Args { id, owner, work, size } = ask.args;
                let params = (id, owner, work, size);
                if ask.writes {
                    let done = client.execute(text(ask), params).await.map_err(failure)?;
                    return Ok(done.rows_affected() == 1);
                }
                let statement = $driver::Statement::new(text(ask));
                let statement = if ask.idempotent { statement.idempotent() } else { statement };
                let row: (i64, i64, String) = client.query_one(statement, params).await.map_err(failure)?;
                Ok(row == (id, check(ask.args, ask.variant), padding(ask.args)))
            }

            impl Database for $name {
                const NAME: &'static str = $text;
                type Pool = $driver::Pool;
                type Transaction = $driver::Transaction;
                type Session = $driver::Session;

                fn start(network: &Arc<Network>, settings: &Settings) -> Self::Pool {
                    let network = Arc::clone(network);
                    let config = $driver::Config::new().host("simulated").user("app").password("secret");
                    $driver::Pool::builder(config)
                        .transport(move |_, _| {
                            let network = Arc::clone(&network);
                            async move { network.connect::<$name>().await }
                        })
                        .seed(settings.seed)
                        .connections(settings.connections)
                        .max_in_flight(settings.max_in_flight)
                        .max_answer_bytes(settings.max_answer_bytes)
                        .answer_budget(settings.answer_budget)
                        .queue_bytes(settings.queue_bytes)
                        .connect_timeout(settings.connect_timeout)
                        .query_timeout(settings.query_timeout)
                        .acquire_timeout(settings.acquire_timeout)
                        .statement_cache(settings.statement_cache)
                        .max_lifetime(settings.max_lifetime)
                        .connect_lazy()
                        .expect("settings within their ranges")
                }

                fn serve(
                    io: End,
                    server: Arc<Server>,
                    connection: usize,
                ) -> impl Future<Output = ()> + Send + 'static {
                    crate::$server::serve(io, server, connection)
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

                async fn on_session(on: &Self::Session, ask: Ask) -> Told {
                    run(on, ask).await
                }

                async fn batch(pool: &Self::Pool, asks: &[Ask]) -> Result<(), Failure> {
                    let mut batch = pool.batch();
                    for ask in asks {
                        let Args { id, owner, work, size } = ask.args;
                        batch.push(text(*ask), (id, owner, work, size));
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
    Postgres, "postgres", pg_pipeline, postgres, "$1, $2, $3, $4"
);
database!(
    /// `mysql-pipeline`.
    MySql, "mysql", mysql_pipeline, mysql, "?, ?, ?, ?"
);
