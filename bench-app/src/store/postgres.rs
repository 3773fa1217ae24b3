//! The table in PostgreSQL, by `pg-pipeline`: through its pool, where requests share connections, and through
//! deadpool, where each request has a connection to itself. The driver and its settings are the same in both.

use std::time::Duration;

use anyhow::{Context as _, Result};
use deadpool::Runtime;
use deadpool::managed::PoolError;
use pg_pipeline::deadpool as checkout;
use pg_pipeline::{Config, Error, ErrorKind, Outcome, PipeStats, Pool, Statement};

use super::{Facts, Failure, Metric, Sample, Store, WORLDS, World};

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
        let stats = self.pool.stats();
        let pipes = stats.pipes.iter().enumerate().flat_map(|(index, pipe)| pipe_samples(index, pipe));
        let waiting = gauge("pool_waiting", "Requests that no pipe can take at the moment.");
        let leased = gauge("pool_leased", "Leases held.");
        pipes.chain([sample(waiting, stats.waiting as u64), sample(leased, stats.leased as u64)]).collect()
    }

    async fn close(self) {
        self.pool.close().await;
    }
}

fn pipe_samples(index: usize, pipe: &PipeStats) -> impl Iterator<Item = Sample> {
    let figures = [
        (gauge("pool_in_flight", "Requests queued and in flight."), pipe.in_flight as u64),
        (gauge("pool_queued_bytes", "Bytes of requests not yet sent."), pipe.queued_bytes as u64),
        (counter("pool_queries_total", "Requests answered."), pipe.queries),
        (counter("pool_query_errors_total", "Requests answered with an error."), pipe.errors),
        (counter("pool_reconnects_total", "Connections made after the first."), pipe.reconnects),
        (counter("pool_writes_total", "Writes handed to the kernel."), pipe.writes),
        (counter("pool_batched_total", "Requests that left in batches."), pipe.batched),
        (counter("pool_batches_total", "Batches that left."), pipe.batch_sizes.iter().sum()),
    ];
    let state = vec![("pipe", index.to_string()), ("state", format!("{:?}", pipe.state).to_lowercase())];
    let state =
        Sample { metric: gauge("pool_pipe", "One for each pipe, with its state."), labels: state, value: 1 };
    let labels = vec![("pipe", index.to_string())];
    let figures = figures.map(|(metric, value)| Sample { metric, labels: labels.clone(), value });
    figures.into_iter().chain([state])
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
        let status = self.pool.status();
        vec![
            sample(gauge("pool_connections", "Connections that exist."), status.size as u64),
            sample(gauge("pool_idle", "Connections that nobody has taken."), status.available as u64),
            sample(gauge("pool_waiting", "Requests that wait for a connection."), status.waiting as u64),
        ]
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

fn gauge(name: &'static str, help: &'static str) -> Metric {
    Metric { name, counter: false, help }
}

fn counter(name: &'static str, help: &'static str) -> Metric {
    Metric { name, counter: true, help }
}

fn sample(metric: Metric, value: u64) -> Sample {
    Sample { metric, labels: Vec::new(), value }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        use ErrorKind::{Busy, Closed, Connect, Io, Timeout, Tls};
        Self {
            kind: format!("{:?}", error.kind()),
            outcome: Some(format!("{:?}", error.outcome())),
            unavailable: matches!(error.kind(), Connect | Tls | Io | Timeout | Busy | Closed),
        }
    }
}

impl From<PoolError<Error>> for Failure {
    fn from(error: PoolError<Error>) -> Self {
        match error {
            PoolError::Backend(error) => error.into(),
            PoolError::Timeout(_) => not_sent(ErrorKind::Timeout),
            _ => not_sent(ErrorKind::Closed),
        }
    }
}

/// Checking out failed, in the driver's own words.
fn not_sent(kind: ErrorKind) -> Failure {
    Failure { kind: format!("{kind:?}"), outcome: Some(format!("{:?}", Outcome::NotSent)), unavailable: true }
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
