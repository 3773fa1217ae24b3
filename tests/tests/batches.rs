//! Batches: statements that succeed or fail together, in one write and with one Sync.

use integration_tests::{all_shared, drop_table, eventually, pool, postgres, table, writes};
use pg_pipeline::{ErrorKind, Outcome, Pool, Statement};

const COLUMNS: &str = "n int4 PRIMARY KEY CHECK (n >= 0)";

async fn count(pool: &Pool, table: &str) -> i64 {
    let (count,): (i64,) =
        pool.query_one(format!("SELECT count(*) FROM {table}"), ()).await.expect("a count");
    count
}

#[tokio::test]
async fn all_or_nothing_with_the_index_of_what_failed() {
    let pool = pool().await;
    let table = table(&pool, "all_or_nothing", COLUMNS).await;
    let insert = Statement::new(format!("INSERT INTO {table} VALUES ($1)"));
    let mut batch = pool.batch();
    for n in 0..10 {
        batch.push(&insert, (n,));
    }
    assert_eq!(batch.len(), 10);
    let done = batch.execute().await.expect("all run");
    assert!(done.len() == 10 && done.iter().all(|done| done.rows_affected() == 1), "{done:?}");
    assert_eq!(count(&pool, &table).await, 10);
    for failing in 0..5 {
        let mut batch = pool.batch();
        for n in 0..5 {
            batch.push(&insert, (if n == failing { -1 } else { 100 + n },));
        }
        let error = batch.execute().await.expect_err("a check fails");
        assert_eq!((error.kind(), error.outcome()), (ErrorKind::Database, Outcome::Failed));
        assert_eq!(error.sqlstate(), Some("23514"));
        assert!(error.to_string().contains(&format!("batch item {failing}")), "{error}");
        assert_eq!(count(&pool, &table).await, 10, "none of them ran");
    }
    drop_table(&pool, &table).await;
    pool.close().await;
}

#[tokio::test]
async fn an_item_that_cannot_be_sent_is_named_and_nothing_is_sent() {
    let pool = pool().await;
    let table = table(&pool, "cannot_be_sent", COLUMNS).await;
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
    batch.push(&insert, (2,));
    batch.push(&insert, (3, 4));
    let error = batch.execute().await.expect_err("too many parameters");
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Encode, Outcome::NotSent));
    assert!(error.to_string().contains("batch item 2"), "{error}");

    let mut batch = pool.batch();
    batch.push(&insert, (1,));
    batch.push("SELECT '\0'", ());
    batch.push(&insert, (2,));
    let error = batch.execute().await.expect_err("a NUL");
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Encode, Outcome::NotSent));
    assert!(error.to_string().contains("batch item 1"), "{error}");

    let mut batch = pool.batch();
    batch.push(&insert, (1,));
    batch.push(format!("INSERT INTO {table} (no_such_column) VALUES ($1)"), (1,));
    let error = batch.execute().await.expect_err("no such column");
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Database, Outcome::Failed));
    assert!(error.to_string().contains("batch item 1"), "{error}");
    assert_eq!(count(&pool, &table).await, 1);
    drop_table(&pool, &table).await;
    pool.close().await;
}

#[tokio::test]
async fn one_write_and_an_empty_one_none() {
    let pool = Pool::builder(postgres().await).connections(1).connect().await.expect("a pool");
    let table = table(&pool, "one_write", COLUMNS).await;
    let insert = Statement::new(format!("INSERT INTO {table} VALUES ($1)"));
    pool.execute(&insert, (0,)).await.expect("known from here on");
    let before = writes(&pool);
    assert!(pool.batch().is_empty());
    assert_eq!(pool.batch().execute().await.expect("nothing to do"), []);
    assert_eq!(writes(&pool), before);
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
async fn a_thousand_items_and_several_statements() {
    let pool = pool().await;
    let table = table(&pool, "thousand", COLUMNS).await;
    let mut batch = pool.batch();
    for n in 0..1_000 {
        batch.push(format!("INSERT INTO {table} VALUES ($1)"), (n,));
    }
    // Different statements, some of them new, with rows that nobody wants, and an empty one.
    batch.push(format!("DELETE FROM {table} WHERE n < $1"), (10,));
    batch.push(format!("SELECT n FROM {table}"), ());
    batch.push("", ());
    batch.push(format!("UPDATE {table} SET n = n + 10000 WHERE n >= $1 AND n < $2"), (500, 600));
    let done = batch.execute().await.expect("all run");
    let rows: Vec<u64> = done.iter().map(pg_pipeline::Executed::rows_affected).collect();
    assert_eq!(rows.len(), 1_004);
    assert_eq!(rows[1_000..], [10, 990, 0, 100]);
    assert_eq!(count(&pool, &table).await, 990);
    drop_table(&pool, &table).await;
    pool.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn batches_of_many_tasks_stay_whole_beside_single_statements() {
    let pool = pool().await;
    let table = table(&pool, "beside", "task int4, n int4").await;
    let insert = Statement::new(format!("INSERT INTO {table} VALUES ($1, $2 / ($2 - 13))"));
    let tasks: Vec<_> = (0..100_i32)
        .map(|task| {
            let (pool, insert) = (pool.clone(), insert.clone());
            tokio::spawn(async move {
                let mut batch = pool.batch();
                // In one task of three an item divides by zero.
                let first = if task % 3 == 0 { 10 } else { 20 };
                for n in first..first + 10 {
                    batch.push(&insert, (task, n));
                }
                let (batch, single) =
                    tokio::join!(batch.execute(), pool.query_one::<(i32,)>("SELECT $1::int4", (task,)));
                assert_eq!(single.expect("its own answer"), (task,));
                match batch {
                    Ok(done) => assert!(task % 3 != 0 && done.len() == 10, "{task}"),
                    Err(error) => {
                        assert_eq!((task % 3, error.sqlstate()), (0, Some("22012")));
                        assert!(error.to_string().contains("batch item 3"), "{error}");
                    }
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("no task fails");
    }
    let rows: Vec<(i32, i64)> = pool
        .query(format!("SELECT task, count(*) FROM {table} GROUP BY task ORDER BY task"), ())
        .await
        .expect("rows");
    assert_eq!(rows, (0..100).filter(|task| task % 3 != 0).map(|task| (task, 10)).collect::<Vec<_>>());
    drop_table(&pool, &table).await;
    pool.close().await;
}

#[tokio::test]
async fn in_a_transaction_and_on_a_session() {
    let pool = pool().await;
    all_shared(&pool).await;
    let table = table(&pool, "on_leases", COLUMNS).await;
    let insert = Statement::new(format!("INSERT INTO {table} VALUES ($1)"));
    let tx = pool.begin().await.expect("a transaction");
    let mut batch = tx.batch();
    batch.push(&insert, (1,));
    batch.push(&insert, (2,));
    batch.execute().await.expect("all run");
    assert_eq!(count(&pool, &table).await, 0, "not committed yet");
    tx.commit().await.expect("committed");
    assert_eq!(count(&pool, &table).await, 2);

    let tx = pool.begin().await.expect("a transaction");
    let mut batch = tx.batch();
    batch.push(&insert, (3,));
    batch.push(&insert, (3,));
    let error = batch.execute().await.expect_err("a duplicate");
    assert!(error.to_string().contains("batch item 1"), "counted without BEGIN: {error}");
    tx.commit().await.expect_err("it has failed");

    let tx = pool.begin().await.expect("a transaction");
    let mut batch = tx.batch();
    batch.push("COMMIT", ());
    assert_eq!(batch.execute().await.expect_err("refused").kind(), ErrorKind::SessionState);
    drop(tx);

    let session = pool.session().await.expect("a session");
    let mut batch = session.batch();
    batch.push("CREATE TEMP TABLE scratch (n int4)", ());
    batch.push("SET LOCAL work_mem = '1MB'", ());
    batch.execute().await.expect("session statements are all right here");
    let mut batch = session.batch();
    batch.push("INSERT INTO scratch VALUES ($1)", (1,));
    batch.push("INSERT INTO scratch VALUES ($1 / 0)", (1,));
    batch.execute().await.expect_err("division by zero");
    let (left,): (i64,) = session.query_one("SELECT count(*) FROM scratch", ()).await.expect("a count");
    assert_eq!(left, 0, "all or nothing here too");
    drop(session);
    eventually("all leases are back", || async { pool.stats().leased == 0 }).await;
    assert_eq!(count(&pool, &table).await, 2);
    drop_table(&pool, &table).await;
    pool.close().await;
}
