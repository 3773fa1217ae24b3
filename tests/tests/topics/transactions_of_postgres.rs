//! Transactions as only PostgreSQL has them: BEGIN goes out with the first statement, a failure fails the transaction,
//! constraints may be deferred, and two serializable ones may be refused. What ends a transaction in the middle of a
//! script is found out afterwards; MySQL's driver reads scripts before it sends them.

use std::sync::atomic::{AtomicU32, Ordering};

use integration_tests::eventually;

use super::side::{
    Error, ErrorKind, Isolation, Outcome, Pool, Statement, Transaction, all_shared, drop_table, pool,
    reconnects, table, writes,
};
use super::transactions::{COLUMNS, NOTHING, insert, values};

#[tokio::test]
async fn a_first_statement_that_cannot_be_parsed_fails_the_transaction() {
    let pool = pool().await;
    let table = table(&pool, "unparsable", COLUMNS).await;
    let tx = pool.begin().await.expect("a transaction");
    let error =
        tx.execute(format!("SELECT nothing_like_it FROM {table}"), ()).await.expect_err("no such column");
    assert_eq!((error.kind(), error.sqlstate()), (ErrorKind::Database, Some("42703")));
    let error = tx.execute(insert(&table), (1,)).await.expect_err("as in every failed transaction");
    assert_eq!((error.outcome(), error.sqlstate()), (Outcome::Failed, Some("25P02")));
    tx.commit().await.expect_err("nothing to commit");
    assert_eq!(values(&pool, &table).await, NOTHING);
    drop_table(&pool, &table).await;
    pool.close().await;
}

#[tokio::test]
async fn begin_shares_the_first_statements_exchange() {
    let pool = pool().await;
    let table = table(&pool, "one_exchange", COLUMNS).await;
    let statement = Statement::new(insert(&table));
    all_shared(&pool).await;
    // Every pipe and the pool know what they need to know.
    for _ in 0..8 {
        let leases = transactions(&pool, 6).await;
        for (n, tx) in leases.iter().enumerate() {
            tx.execute(&statement, (n as i32,)).await.expect("a write");
            tx.execute("SELECT 1", ()).await.expect("a query");
        }
    }
    eventually("all leases are back", || async { pool.stats().leased == 0 }).await;
    all_shared(&pool).await;
    let before = writes(&pool);
    let tx = pool.begin().await.expect("a transaction");
    assert_eq!(writes(&pool), before, "begin() sends nothing");
    tx.execute(&statement, (1,)).await.expect("a write");
    assert_eq!(writes(&pool), before + 1, "BEGIN and the statement in one");
    tx.commit().await.expect("committed");
    assert_eq!(writes(&pool), before + 2);
    all_shared(&pool).await;
    assert_eq!(writes(&pool), before + 2, "a clean return costs nothing");
    drop_table(&pool, &table).await;
    pool.close().await;
}

async fn transactions(pool: &Pool, count: usize) -> Vec<Transaction> {
    let mut leases = Vec::new();
    for _ in 0..count {
        leases.push(pool.begin().await.expect("a transaction"));
    }
    leases
}

#[tokio::test]
async fn a_commit_that_the_server_turns_into_a_rollback_is_an_error() {
    let pool = pool().await;
    let table = table(&pool, "turned", COLUMNS).await;
    let insert = insert(&table);
    let tx = pool.begin().await.expect("a transaction");
    tx.execute(&insert, (1,)).await.expect("a write");
    let error = tx.execute(&insert, (1,)).await.expect_err("a duplicate");
    assert_eq!(error.sqlstate(), Some("23505"));
    let error = tx.execute(&insert, (2,)).await.expect_err("the transaction has failed");
    assert_eq!((error.kind(), error.sqlstate()), (ErrorKind::Database, Some("25P02")));
    let error = tx.commit().await.expect_err("rolled back");
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Database, Outcome::Failed));
    assert!(error.to_string().contains("rolled the transaction back"), "{error}");
    assert_eq!(values(&pool, &table).await, NOTHING);
    drop_table(&pool, &table).await;
    pool.close().await;
}

#[tokio::test]
async fn a_failure_among_pipelined_statements_is_told_apart_from_what_it_brings_down() {
    let pool = pool().await;
    let table = table(&pool, "brings_down", COLUMNS).await;
    let insert = Statement::new(insert(&table));
    pool.execute(&insert, (0,)).await.expect("known from here on");
    let tx = pool.begin().await.expect("a transaction");
    let (first, duplicate, behind) =
        tokio::join!(tx.execute(&insert, (1,)), tx.execute(&insert, (1,)), tx.execute(&insert, (2,)));
    first.expect("before the failure");
    assert_eq!(duplicate.expect_err("the cause").sqlstate(), Some("23505"));
    assert_eq!(behind.expect_err("brought down").sqlstate(), Some("25P02"));
    tx.rollback().await.expect("rolled back");
    assert_eq!(values(&pool, &table).await, [0]);
    drop_table(&pool, &table).await;
    pool.close().await;
}

#[tokio::test]
async fn a_deferred_constraint_is_an_error_at_commit_and_at_sync() {
    let pool = pool().await;
    let table = table(&pool, "deferred", "id serial, n int4, UNIQUE (n) DEFERRABLE INITIALLY DEFERRED").await;
    let insert = Statement::new(insert(&table));
    pool.execute(&insert, (1,)).await.expect("the first");
    // Its CommandComplete comes before the error that Sync raises; beside it others run in the same pipe.
    for round in 0..20 {
        let (before, duplicate, behind) = tokio::join!(
            pool.execute(&insert, (10 + round,)),
            pool.execute(&insert, (1,)),
            pool.execute(&insert, (100 + round,)),
        );
        before.expect("its own");
        behind.expect("its own");
        let error = duplicate.expect_err("a duplicate");
        assert_eq!((error.outcome(), error.sqlstate()), (Outcome::Failed, Some("23505")));
    }
    let mut batch = pool.batch();
    batch.push(&insert, (1_000,));
    batch.push(&insert, (1,));
    assert_eq!(batch.execute().await.expect_err("a duplicate").sqlstate(), Some("23505"));
    let tx = pool.begin().await.expect("a transaction");
    tx.execute(&insert, (1,)).await.expect("deferred");
    let error = tx.commit().await.expect_err("a duplicate");
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Database, Outcome::Failed));
    assert_eq!(error.as_database().and_then(|error| error.table()), Some(table.as_str()));
    let (count,): (i64,) =
        pool.query_one(format!("SELECT count(*) FROM {table}"), ()).await.expect("a count");
    assert_eq!(count, 41);
    drop_table(&pool, &table).await;
    pool.close().await;
}

#[tokio::test]
async fn a_serialization_failure_is_retryable() {
    let pool = pool().await;
    let table = table(&pool, "serializable", COLUMNS).await;
    let read = format!("SELECT coalesce(sum(n), 0) FROM {table}");
    let insert = insert(&table);
    let (one, two) = (pool.begin().await.expect("one"), pool.begin().await.expect("two"));
    for tx in [&one, &two] {
        tx.execute("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE", ()).await.expect("serializable");
        let _: (i64,) = tx.query_one(&read, ()).await.expect("a sum");
    }
    one.execute(&insert, (1,)).await.expect("a write");
    one.commit().await.expect("the first wins");
    let failed: Error = async {
        two.execute(&insert, (2,)).await?;
        two.commit().await
    }
    .await
    .expect_err("the second loses");
    assert_eq!((failed.kind(), failed.sqlstate()), (ErrorKind::Database, Some("40001")));
    assert!(failed.is_retryable());
    // Nothing of it stays behind, and the whole unit of work may run again.
    let tx = pool.begin().await.expect("again");
    tx.execute(&insert, (2,)).await.expect("a write");
    tx.commit().await.expect("committed");
    assert_eq!(values(&pool, &table).await, [1, 2]);
    let (level,): (String,) =
        pool.query_one("SELECT current_setting('transaction_isolation')", ()).await.expect("a setting");
    assert_eq!(level, "read committed");
    assert_eq!(reconnects(&pool), 0, "no connection was given up for it");
    drop_table(&pool, &table).await;
    pool.close().await;
}

/// What a part has undone is no reason to run the whole again; what fails the whole is.
#[tokio::test]
async fn a_failure_that_was_undone_with_its_part_does_not_make_the_work_run_again() {
    const RAISE: &str = "DO $$ BEGIN RAISE EXCEPTION 'others' USING ERRCODE = '40001'; END $$";
    let pool = pool().await;
    for (undone, expected) in [("by word", 1), ("dropped", 1), ("not at all", 3)] {
        let runs = AtomicU32::new(0);
        let error = pool
            .transaction()
            .retries(2)
            .run(async |tx| {
                runs.fetch_add(1, Ordering::Relaxed);
                let part = tx.savepoint().await?;
                part.execute(RAISE, ()).await.expect_err("raised");
                match undone {
                    "by word" => part.rollback().await?,
                    "dropped" => drop(part),
                    _ => return tx.execute("SELECT 1", ()).await,
                }
                tx.execute("SELECT 1", ()).await?;
                tx.execute("SELECT 1 / 0", ()).await
            })
            .await
            .expect_err("it fails in the end");
        assert_eq!(runs.load(Ordering::Relaxed), expected, "{undone}: {error}");
    }
    pool.close().await;
}

#[tokio::test]
async fn a_deferrable_transaction_is_opened_as_such() {
    let pool = pool().await;
    let builder = pool.transaction().isolation(Isolation::Serializable).read_only().deferrable();
    for (tx, expected) in [
        (builder.begin().await.expect("a lease"), ["serializable", "on", "on"]),
        (pool.begin().await.expect("a lease"), ["read committed", "off", "off"]),
    ] {
        let settings: (String, String, String) = tx
            .query_one(
                "SELECT current_setting('transaction_isolation'), current_setting('transaction_read_only'), \
                 current_setting('transaction_deferrable')",
                (),
            )
            .await
            .expect("settings");
        assert_eq!([settings.0, settings.1, settings.2], expected);
        tx.commit().await.expect("committed");
    }
    pool.close().await;
}

#[tokio::test]
async fn a_script_that_ends_the_transaction_does_not_make_its_commit_a_success() {
    let pool = pool().await;
    let table = table(&pool, "ends", COLUMNS).await;
    let insert = insert(&table);
    for script in ["SELECT 1; ROLLBACK", "SELECT 1; COMMIT", "SAVEPOINT s; ROLLBACK; SELECT 2"] {
        let tx = pool.begin().await.expect("a transaction");
        tx.execute(&insert, (1,)).await.expect("a write");
        let error = tx.batch_execute(script).await.expect_err("it ended the transaction");
        assert_eq!(
            (error.kind(), error.outcome()),
            (ErrorKind::SessionState, Outcome::Completed),
            "{script}"
        );
        let error = tx.execute(&insert, (2,)).await.expect_err("there is no transaction any more");
        assert_eq!((error.kind(), error.outcome()), (ErrorKind::SessionState, Outcome::NotSent), "{script}");
        let error = tx.commit().await.expect_err("there is nothing to commit");
        assert_eq!(error.kind(), ErrorKind::SessionState, "{script}");
        pool.execute(format!("DELETE FROM {table}"), ()).await.expect("empty");
    }
    drop_table(&pool, &table).await;
    pool.close().await;
}
