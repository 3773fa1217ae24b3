//! The table in PostgreSQL, by `pg-pipeline`: through its pool, where requests share connections, and through
//! deadpool, where each request has a connection to itself. The driver and its settings are the same in both.

use super::drivers::stores;
use super::{Facts, WORLDS};

stores! {
    pg_pipeline,
    by_id: "SELECT id, randomnumber FROM world WHERE id = $1",
    sleep: "SELECT pg_sleep($1)",
    one: i32
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
