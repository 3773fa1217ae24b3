//! Shared connections are stateless: what would change them is refused, and what slips through is caught.

use integration_tests::{eventually, own_name};

use super::side::dialect::{REFUSED_ON_SHARED, REMEMBERED, remember};
use super::side::{
    ErrorKind, Outcome, Pool, config, count, drop_table, number, pool, reconnects, sql, table as side_table,
    writes,
};

#[tokio::test]
async fn what_changes_a_shared_session_is_refused_before_it_is_sent() {
    let pool = pool().await;
    pool.ping().await.expect("alive");
    eventually("set-up is over", || async { pool.stats().in_flight() == 0 }).await;
    let before = writes(&pool);
    for sql in REFUSED_ON_SHARED {
        let error = pool.execute(sql, ()).await.expect_err(sql);
        assert_eq!((error.kind(), error.outcome()), (ErrorKind::SessionState, Outcome::NotSent), "{sql}");
        let mut batch = pool.batch();
        batch.push("SELECT 1", ());
        batch.push(sql, ());
        let error = batch.execute().await.expect_err(sql);
        assert_eq!(error.kind(), ErrorKind::SessionState, "{sql}");
        assert!(error.to_string().contains("batch item 1"), "{error}");
    }
    assert_eq!(writes(&pool), before, "nothing was written");
    let error = pool.execute("BEGIN", ()).await.expect_err("refused");
    assert!(
        error.to_string().contains("pool.begin()") && error.to_string().contains("pool.session()"),
        "{error}"
    );
    pool.close().await;
}

#[tokio::test]
async fn a_session_is_reset_and_set_up_again_before_others_use_its_connection() {
    let builder = Pool::builder(config().await).connections(2).setup([remember("set up")]);
    let pool = builder.connect().await.expect("a pool");
    for round in 0..6 {
        let session = pool.session().await.expect("a session");
        session
            .batch_execute(&format!("CREATE TEMPORARY TABLE scratch (a int); {}", remember("mine")))
            .await
            .expect("works");
        let (word,): (String,) = session.query_one(REMEMBERED, ()).await.expect("mine");
        assert_eq!(word, "mine");
        let own = number(&session).await;
        if round % 2 == 0 {
            session.batch_execute("BEGIN").await.expect("left open");
        }
        drop(session);
        eventually("the connection is shared again", || async {
            let mut seen = false;
            for _ in 0..4 {
                let (word,): (String,) = pool.query_one(REMEMBERED, ()).await.expect("a word");
                assert_eq!(word, "set up");
                pool.execute("SELECT a FROM scratch", ()).await.expect_err("no such table");
                seen |= number(&pool).await == own;
            }
            seen
        })
        .await;
    }
    assert_eq!(reconnects(&pool), 0, "no connection was thrown away");
    pool.close().await;
}

#[tokio::test]
async fn a_script_that_leaves_its_transaction_open_is_no_success() {
    let (pool, other) = (pool().await, pool().await);
    let table = own_name("half_done");
    let error = pool
        .batch_execute(&format!("CREATE TABLE {table} (n int8); BEGIN; INSERT INTO {table} VALUES (1)"))
        .await
        .expect_err("nothing of it stays");
    // MySQL has committed what stood before BEGIN, and PostgreSQL has not.
    assert_eq!(error.kind(), ErrorKind::SessionState);
    assert!(matches!(error.outcome(), Outcome::Failed | Outcome::Unknown), "{error:?}");
    assert!(error.to_string().contains("COMMIT"), "{error}");
    pool.execute(format!("DROP TABLE IF EXISTS {table}"), ()).await.expect("PostgreSQL has undone it too");
    pool.batch_execute(&format!(
        "CREATE TABLE {table} (n int8); BEGIN; INSERT INTO {table} VALUES (2); COMMIT; DROP TABLE {table}"
    ))
    .await
    .expect("a whole one");
    // Whatever is left of it: nothing is open, and later writes are committed.
    let table = side_table(&pool, "later", "n int8").await;
    for script in ["BEGIN", "START TRANSACTION; SELECT 1"] {
        let error = pool.batch_execute(script).await.expect_err(script);
        assert_eq!((error.kind(), error.outcome()), (ErrorKind::SessionState, Outcome::Failed), "{script}");
    }
    for n in 1..=32_i64 {
        pool.execute(sql(format!("INSERT INTO {table} VALUES ($1)")), (n,)).await.expect("a write");
        assert_eq!(count(&other, &table).await, n, "committed at once");
    }
    drop_table(&pool, &table).await;
    other.close().await;
    pool.close().await;
}
