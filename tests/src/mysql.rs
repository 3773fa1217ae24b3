//! The same helpers for MySQL: what differs from PostgreSQL's is only whose pool it is and what is asked.

use mysql_pipeline::{Config, PipeState, Pool};

use crate::{eventually, own_name};

/// The MySQL server of this run, as a configuration.
pub async fn config() -> Config {
    let server = test_servers::mysql().await.expect("a MySQL server");
    let config: Config = server.url().parse().expect("the server's URL");
    // The server is this machine's own: nobody sits in between.
    config.public_key_retrieval(true)
}

/// A pool of eight pipes on it.
pub async fn pool() -> Pool {
    Pool::builder(config().await).connect().await.expect("a pool")
}

/// Waits until every pipe of the pool is up and shared.
pub async fn all_shared(pool: &Pool) {
    eventually("every pipe is shared", || async {
        pool.stats().pipes.iter().all(|pipe| pipe.state == PipeState::Shared)
    })
    .await;
}

/// Creates a table of one's own; `columns` as between the parentheses of CREATE TABLE.
pub async fn table(pool: &Pool, topic: &str, columns: &str) -> String {
    let name = own_name(topic);
    pool.execute(format!("CREATE TABLE {name} ({columns})"), ()).await.expect("a table");
    name
}

/// Drops it again.
pub async fn drop_table(pool: &Pool, table: &str) {
    pool.execute(format!("DROP TABLE {table}"), ()).await.expect("dropped");
}
