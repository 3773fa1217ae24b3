//! Batches on PostgreSQL: one write with one Sync, and parameters whose types the server knows. MySQL's takes an exchange
//! more, for what opens its transaction.

use super::side::{ErrorKind, Outcome, Statement, count, drop_table, pool, pool_of, table, writes};

const COLUMNS: &str = "n int4 PRIMARY KEY CHECK (n >= 0)";

#[tokio::test]
async fn it_is_one_write_and_one_exchange() {
    let pool = pool_of(1).await;
    let table = table(&pool, "one_write", COLUMNS).await;
    let insert = Statement::new(format!("INSERT INTO {table} VALUES ($1)"));
    pool.execute(&insert, (0,)).await.expect("known from here on");
    let before = writes(&pool);
    let mut batch = pool.batch();
    for n in 1..=100 {
        batch.push(&insert, (n,));
    }
    let answered = pool.stats().pipes[0].queries;
    batch.execute().await.expect("all run");
    assert_eq!(writes(&pool), before + 1, "one write");
    assert_eq!(pool.stats().pipes[0].queries, answered + 1, "one exchange");
    // All of it is one transaction of the server's.
    let (transactions,): (i64,) = pool
        .query_one(format!("SELECT count(DISTINCT xmin::text) FROM {table} WHERE n > 0"), ())
        .await
        .expect("a count");
    assert_eq!(transactions, 1);
    drop_table(&pool, &table).await;
    pool.close().await;
}

#[tokio::test]
async fn an_item_that_cannot_be_encoded_is_named_and_nothing_is_sent() {
    let pool = pool().await;
    let table = table(&pool, "not_encoded", COLUMNS).await;
    let insert = Statement::new(format!("INSERT INTO {table} VALUES ($1)"));
    pool.execute(&insert, (0,)).await.expect("known from here on");
    let mut batch = pool.batch();
    batch.push(&insert, (1,));
    batch.push(&insert, ("not a number",));
    let error = batch.execute().await.expect_err("a wrong type");
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Encode, Outcome::NotSent));
    assert!(error.to_string().contains("batch item 1"), "{error}");

    let mut batch = pool.batch();
    batch.push(&insert, (1,));
    batch.push("SELECT '\0'", ());
    batch.push(&insert, (2,));
    let error = batch.execute().await.expect_err("a NUL");
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Encode, Outcome::NotSent));
    assert!(error.to_string().contains("batch item 1"), "{error}");
    assert_eq!(count(&pool, &table).await, 1);
    drop_table(&pool, &table).await;
    pool.close().await;
}

#[tokio::test]
async fn one_that_fails_fails_the_transaction() {
    let pool = pool().await;
    let table = table(&pool, "fails_it", COLUMNS).await;
    let insert = Statement::new(format!("INSERT INTO {table} VALUES ($1)"));
    let tx = pool.begin().await.expect("a transaction");
    let mut batch = tx.batch();
    batch.push(&insert, (3,));
    batch.push("", ());
    batch.push(&insert, (3,));
    let error = batch.execute().await.expect_err("a duplicate");
    assert!(error.to_string().contains("batch item 2"), "counted without BEGIN: {error}");
    tx.commit().await.expect_err("it has failed");
    assert_eq!(count(&pool, &table).await, 0);
    drop_table(&pool, &table).await;
    pool.close().await;
}
