//! The table in MySQL, by `mysql-pipeline`: through its pool, where requests share connections, and through
//! deadpool, where each request has a connection to itself. The driver and its settings are the same in both.

use mysql_pipeline::Connection;

use super::drivers::stores;
use super::{Facts, WORLDS};

stores! {
    mysql_pipeline,
    by_id: "SELECT id, randomnumber FROM world WHERE id = ?",
    sleep: "SELECT SLEEP(?)",
    one: i64
}

/// The same numbers as in every other database.
const SEED: [&str; 4] = [
    "CREATE TABLE IF NOT EXISTS world (id INTEGER PRIMARY KEY, randomnumber INTEGER NOT NULL)",
    "SET cte_max_recursion_depth = 1000000",
    "INSERT IGNORE INTO world (id, randomnumber) \
     WITH RECURSIVE ids (id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM ids WHERE id < ?) \
     SELECT id, 1 + id * 7919 % ? FROM ids",
    "ANALYZE TABLE world",
];

pub(super) async fn seed(url: &str) -> Result<()> {
    let connection = Connection::connect(config(url)?).await?;
    connection.execute(SEED[0], ()).await?;
    connection.execute(SEED[1], ()).await?;
    connection.execute(SEED[2], (WORLDS, WORLDS)).await?;
    connection.execute(SEED[3], ()).await?;
    connection.close().await;
    Ok(())
}

pub(super) async fn facts(url: &str) -> Result<Facts> {
    let pool = Pool::builder(config(url)?).connections(1).connect().await?;
    let (version,): (String,) = pool.query_one("SELECT VERSION()", ()).await?;
    let worlds = pool.query("SELECT id, randomnumber FROM world", ()).await?;
    pool.close().await;
    Ok(Facts { version, worlds })
}
