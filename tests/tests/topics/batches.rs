//! Batches: statements that succeed or fail together, sent in one go.

use integration_tests::{eventually, poll_then_drop};

use super::side::dialect::{CHECK, ECHO, OUT_OF_RANGE, remember};
use super::side::{
    Connection, ErrorKind, Executed, Outcome, Statement, all_shared, config, count, drop_table, pool, sql,
    table, writes,
};

const COLUMNS: &str = "n int4 PRIMARY KEY CHECK (n >= 0)";

#[tokio::test]
async fn all_or_nothing_with_the_index_of_what_failed() {
    let pool = pool().await;
    let table = table(&pool, "all_or_nothing", COLUMNS).await;
    let insert = Statement::new(sql(format!("INSERT INTO {table} VALUES ($1)")));
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
        assert_eq!(error.sqlstate(), Some(CHECK));
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
    let insert = Statement::new(sql(format!("INSERT INTO {table} VALUES ($1)")));
    pool.execute(&insert, (0,)).await.expect("known from here on");
    let mut batch = pool.batch();
    batch.push(&insert, (1,));
    batch.push(&insert, (2,));
    batch.push(&insert, (3, 4));
    let error = batch.execute().await.expect_err("too many parameters");
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Encode, Outcome::NotSent));
    assert!(error.to_string().contains("batch item 2"), "{error}");

    let mut batch = pool.batch();
    batch.push(&insert, (1,));
    batch.push(sql(format!("INSERT INTO {table} (no_such_column) VALUES ($1)")), (1,));
    let error = batch.execute().await.expect_err("no such column");
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Database, Outcome::Failed));
    assert!(error.to_string().contains("batch item 1"), "{error}");
    assert_eq!(count(&pool, &table).await, 1);
    drop_table(&pool, &table).await;
    pool.close().await;
}

#[tokio::test]
async fn a_thousand_items_and_several_statements() {
    let pool = pool().await;
    let table = table(&pool, "thousand", COLUMNS).await;
    let mut batch = pool.batch();
    for n in 0..1_000 {
        batch.push(sql(format!("INSERT INTO {table} VALUES ($1)")), (n,));
    }
    // Different statements, some of them new, with rows that nobody wants.
    batch.push(sql(format!("DELETE FROM {table} WHERE n < $1")), (10,));
    batch.push(format!("SELECT n FROM {table}"), ());
    batch.push(sql(format!("UPDATE {table} SET n = n + 10000 WHERE n >= $1 AND n < $2")), (500, 600));
    let done = batch.execute().await.expect("all run");
    let rows: Vec<u64> = done.iter().map(Executed::rows_affected).collect();
    assert_eq!(rows.len(), 1_003);
    assert_eq!(rows[1_000..], [10, 990, 100]);
    assert_eq!(count(&pool, &table).await, 990);
    drop_table(&pool, &table).await;
    pool.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn batches_of_many_tasks_stay_whole_beside_single_statements() {
    let pool = pool().await;
    let table = table(&pool, "beside", "task int4, n double precision").await;
    let insert = Statement::new(sql(format!("INSERT INTO {table} VALUES ($1, exp($2))")));
    let tasks: Vec<_> = (0..100_i32)
        .map(|task| {
            let (pool, insert) = (pool.clone(), insert.clone());
            tokio::spawn(async move {
                let mut batch = pool.batch();
                for n in 0..10 {
                    // In one task of three an item is out of range.
                    let power = if task % 3 == 0 && n == 3 { 1_000.0 } else { f64::from(n) };
                    batch.push(&insert, (task, power));
                }
                let (batch, single) = tokio::join!(batch.execute(), pool.query_one::<(i32,)>(ECHO, (task,)));
                assert_eq!(single.expect("its own answer"), (task,));
                match batch {
                    Ok(done) => assert!(task % 3 != 0 && done.len() == 10, "{task}"),
                    Err(error) => {
                        assert_eq!((task % 3, error.sqlstate()), (0, Some(OUT_OF_RANGE)));
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
async fn an_empty_one_sends_nothing() {
    let pool = pool().await;
    all_shared(&pool).await;
    let before = writes(&pool);
    assert!(pool.batch().is_empty());
    assert_eq!(pool.batch().execute().await.expect("nothing to do"), []);
    assert_eq!(writes(&pool), before);
    pool.close().await;
}

#[tokio::test]
async fn in_a_transaction_it_is_part_of_it() {
    let pool = pool().await;
    all_shared(&pool).await;
    let table = table(&pool, "in_a_transaction", COLUMNS).await;
    let insert = Statement::new(sql(format!("INSERT INTO {table} VALUES ($1)")));
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
    assert!(error.to_string().contains("batch item 1"), "counted without what opens it: {error}");
    tx.rollback().await.expect("rolled back");

    let tx = pool.begin().await.expect("a transaction");
    let mut batch = tx.batch();
    batch.push("COMMIT", ());
    assert_eq!(batch.execute().await.expect_err("refused").kind(), ErrorKind::SessionState);
    drop(tx);
    eventually("all leases are back", || async { pool.stats().leased == 0 }).await;
    assert_eq!(count(&pool, &table).await, 2);
    drop_table(&pool, &table).await;
    pool.close().await;
}

#[tokio::test]
async fn on_a_session_and_on_a_connection_it_is_all_or_nothing_too() {
    let pool = pool().await;
    let table = table(&pool, "on_a_session", COLUMNS).await;
    let insert = Statement::new(sql(format!("INSERT INTO {table} VALUES ($1)")));
    let session = pool.session().await.expect("a session");
    let mut batch = session.batch();
    batch.push("CREATE TEMPORARY TABLE scratch (n int4)", ());
    batch.push(remember("mine"), ());
    batch.execute().await.expect("session statements are all right here");
    let connection = Connection::connect(config().await).await.expect("a connection");
    for (base, failing) in [(100, 0), (200, 1), (300, 4)] {
        for on_session in [true, false] {
            let mut batch = if on_session { session.batch() } else { connection.batch() };
            for n in 0..5 {
                batch.push(&insert, (if n == failing { -1 } else { base + n },));
            }
            let error = batch.execute().await.expect_err("a check fails");
            assert_eq!((error.kind(), error.outcome()), (ErrorKind::Database, Outcome::Failed));
            assert!(error.to_string().contains(&format!("batch item {failing}")), "{error}");
            assert_eq!(count(&pool, &table).await, 0, "none of them ran");
        }
    }
    for batch in [session.batch(), connection.batch()] {
        let mut batch = batch;
        batch.push(&insert, (1,));
        batch.push(sql(format!("UPDATE {table} SET n = n + $1")), (10,));
        batch.push(format!("DELETE FROM {table}"), ());
        let done: Vec<u64> =
            batch.execute().await.expect("all run").iter().map(Executed::rows_affected).collect();
        assert_eq!(done, [1, 1, 1]);
    }
    // In a transaction of one's own it commits nothing.
    session.execute("BEGIN", ()).await.expect("begun");
    let mut batch = session.batch();
    batch.push(&insert, (1,));
    batch.push(&insert, (2,));
    batch.execute().await.expect("all run");
    assert_eq!(count(&pool, &table).await, 0, "not committed yet");
    assert_eq!(count(&session, &table).await, 2);
    session.execute("ROLLBACK", ()).await.expect("undone");
    assert_eq!(count(&session, &table).await, 0);
    // And what comes behind one is as before.
    session.execute(&insert, (5,)).await.expect("committed by itself");
    assert_eq!(count(&pool, &table).await, 1);
    drop(session);
    connection.close().await;
    drop_table(&pool, &table).await;
    pool.close().await;
}

#[tokio::test]
async fn dropped_at_any_poll_on_a_session_it_is_whole_or_not_there_and_later_writes_are_kept() {
    let pool = pool().await;
    let table = table(&pool, "dropped", COLUMNS).await;
    let insert = Statement::new(sql(format!("INSERT INTO {table} VALUES ($1)")));
    let session = pool.session().await.expect("a session");
    session.execute(&insert, (0,)).await.expect("known from here on");
    let mut completed = 0;
    for polls in 0..12 {
        let base = 100 * (1 + polls as i32);
        let mut batch = session.batch();
        for n in 0..5 {
            batch.push(&insert, (base + n,));
        }
        if let Some(done) = poll_then_drop(batch.execute(), polls).await {
            assert_eq!(done.expect("all run").len(), 5);
            completed += 1;
        }
        // Seen by others as soon as it is answered: it is no part of a transaction that stayed open.
        session.execute(&insert, (base + 50,)).await.expect("a write of its own");
        let rows: Vec<(i32,)> = pool
            .query(sql(format!("SELECT n FROM {table} WHERE n >= $1 ORDER BY n")), (base,))
            .await
            .expect("rows");
        let rows: Vec<i32> = rows.into_iter().map(|(n,)| n - base).collect();
        assert!(rows == [50] || rows == [0, 1, 2, 3, 4, 50], "after {polls} polls: {rows:?}");
    }
    assert!(completed > 0, "with enough polls it ends");
    drop(session);
    drop_table(&pool, &table).await;
    pool.close().await;
}
