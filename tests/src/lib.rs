//! What the suites share.

use pg_pipeline::{Config, Pool};

/// The PostgreSQL server of this run, as a configuration.
pub async fn postgres() -> Config {
    let server = test_servers::postgres().await.expect("a PostgreSQL server");
    server.url().parse().expect("the server's URL")
}

/// A pool of eight pipes on it.
pub async fn pool() -> Pool {
    Pool::builder(postgres().await).connect().await.expect("a pool")
}
