//! Batches on MySQL: what commits by itself cannot be part of one on a pool, where each has a lease of its own.

use integration_tests::eventually;

use super::side::dialect::sleep;
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

#[tokio::test]
async fn its_lease_is_named_by_the_place_in_the_code_that_runs_it() {
    let pool = pool().await;
    let mut batch = pool.batch();
    batch.push(sleep(0.2), ());
    let line = line!() + 1;
    let running = batch.execute();
    let place = format!("{}:{line}:", file!());
    let named = eventually("it is named", || async {
        pool.stats().leases.iter().any(|lease| lease.taken_at.to_string().starts_with(&place))
    });
    let (done, ()) = tokio::join!(running, named);
    done.expect("a batch");
    pool.close().await;
}
