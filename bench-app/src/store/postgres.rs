//! The table in PostgreSQL, by `pg-pipeline`: through its pool, where requests share connections, and through
//! deadpool, where each request has a connection to itself. The driver and its settings are the same in both.

use std::time::Duration;

use anyhow::{Context as _, Result};
use deadpool::Runtime;
use deadpool::managed::PoolError;
use pg_pipeline::deadpool as checkout;
use pg_pipeline::{Config, Error, ErrorKind, Outcome, Pool, Routing, Statement};

use super::{Facts, Failure, Sample, Store, WORLDS, World, samples};

const BY_ID: &str = "SELECT id, randomnumber FROM world WHERE id = $1";

/// Requests share the connections of the driver's pool.
#[derive(Clone)]
pub(crate) struct Pipelined {
    pool: Pool,
    by_id: Statement,
}

impl Store for Pipelined {
    async fn connect(url: &str, connections: usize) -> Result<Self> {
        let pool = Pool::builder(config(url)?).connections(connections).connect().await?;
        Ok(Self { pool, by_id: Statement::new(BY_ID) })
    }

    async fn world(&self, id: i32) -> Result<World, Failure> {
        Ok(self.pool.query_one(&self.by_id, (id,)).await?)
    }

    async fn ping(&self) -> Result<(), Failure> {
        Ok(self.pool.ping().await?)
    }

    fn samples(&self) -> Vec<Sample> {
        samples::of_pool(&self.pool.stats())
    }

    async fn close(self) {
        self.pool.close().await;
    }
}

/// Quick queries and slow ones on one pool.
#[derive(Clone)]
pub(crate) struct Mixed {
    pool: Pool,
    by_id: Statement,
    sleep: Statement,
}

impl super::Mixed for Mixed {
    async fn connect(url: &str, connections: usize, routing: Routing) -> Result<Self> {
        let pool = Pool::builder(config(url)?.routing(routing)).connections(connections).connect().await?;
        Ok(Self { pool, by_id: Statement::new(BY_ID), sleep: Statement::new("SELECT pg_sleep($1)") })
    }

    async fn quick(&self, id: i32) -> Result<World, Failure> {
        Ok(self.pool.query_one(&self.by_id, (id,)).await?)
    }

    async fn sleep(&self, time: Duration) -> Result<(), Failure> {
        self.pool.execute(&self.sleep, (time.as_secs_f64(),)).await?;
        Ok(())
    }

    async fn close(self) {
        self.pool.close().await;
    }
}

/// Each request takes a connection for itself and gives it back.
#[derive(Clone)]
pub(crate) struct Checkout {
    pool: checkout::Pool,
    by_id: Statement,
}

impl Store for Checkout {
    async fn connect(url: &str, connections: usize) -> Result<Self> {
        let pool = checkout::Pool::builder(checkout::Manager::new(config(url)?))
            .max_size(connections)
            .runtime(Runtime::Tokio1)
            .wait_timeout(Some(ANSWER))
            .build()?;
        // As the pipelined store does: a database that cannot be reached is found out now.
        drop(pool.get().await?);
        Ok(Self { pool, by_id: Statement::new(BY_ID) })
    }

    async fn world(&self, id: i32) -> Result<World, Failure> {
        let connection = self.pool.get().await?;
        Ok(connection.query_one(&self.by_id, (id,)).await?)
    }

    async fn ping(&self) -> Result<(), Failure> {
        let connection = self.pool.get().await?;
        let (_,): (i32,) = connection.query_one("SELECT 1", ()).await?;
        Ok(())
    }

    fn samples(&self) -> Vec<Sample> {
        samples::of_checkout(&self.pool.status())
    }

    async fn close(self) {
        self.pool.close();
    }
}

/// A request is answered within this time even when the database is not, unless the URL says otherwise.
const ANSWER: Duration = Duration::from_secs(5);

fn config(url: &str) -> Result<Config> {
    let config: Config = url.parse().context("the URL of the database cannot be used")?;
    let usual = Config::new().pool_options().query_timeout();
    Ok(if config.pool_options().query_timeout() == usual { config.query_timeout(ANSWER) } else { config })
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::new(error.kind(), error.outcome())
    }
}

impl From<PoolError<Error>> for Failure {
    fn from(error: PoolError<Error>) -> Self {
        match error {
            PoolError::Backend(error) => error.into(),
            PoolError::Timeout(_) => Self::new(ErrorKind::Timeout, Outcome::NotSent),
            _ => Self::new(ErrorKind::Closed, Outcome::NotSent),
        }
    }
}

/// Numbers follow from their ids, so that every database gets the same table.
const SEED: [&str; 3] = [
    "CREATE TABLE IF NOT EXISTS world (id integer PRIMARY KEY, randomnumber integer NOT NULL)",
    "INSERT INTO world (id, randomnumber) SELECT id, 1 + id * 7919 % $1 FROM generate_series(1, $1::integer) AS id \
     ON CONFLICT (id) DO NOTHING",
    "ANALYZE world",
];

pub(super) async fn seed(url: &str) -> Result<()> {
    let pool = Pool::builder(config(url)?).connections(1).connect().await?;
    pool.execute(SEED[0], ()).await?;
    pool.execute(SEED[1], (WORLDS,)).await?;
    pool.execute(SEED[2], ()).await?;
    pool.close().await;
    Ok(())
}

pub(super) async fn facts(url: &str) -> Result<Facts> {
    let pool = Pool::builder(config(url)?).connections(1).connect().await?;
    let (version,): (String,) = pool.query_one("SELECT current_setting('server_version')", ()).await?;
    let worlds = pool.query("SELECT id, randomnumber FROM world", ()).await?;
    pool.close().await;
    Ok(Facts { version, worlds })
}
