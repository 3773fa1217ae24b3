//! Batches on MySQL: what commits by itself cannot be part of one on a pool.

use super::side::{ErrorKind, Outcome, count, drop_table, pool, table};

#[tokio::test]
async fn what_commits_by_itself_is_refused() {
    let pool = pool().await;
    let table = table(&pool, "commits", "n INT PRIMARY KEY").await;
    let mut batch = pool.batch();
    batch.push(format!("INSERT INTO {table} VALUES (?)"), (300,));
    batch.push(format!("CREATE TABLE {table}_x (n INT)"), ());
    let error = batch.execute().await.expect_err("it would commit");
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::SessionState, Outcome::NotSent));
    assert_eq!(count(&pool, &table).await, 0);
    drop_table(&pool, &table).await;
    pool.close().await;
}
