//! Transactions and batches on MySQL: all or nothing, also after a deadlock in the middle of pipelined statements.

use integration_tests::mysql::{drop_table, pool, table};
use integration_tests::{eventually, poll_then_drop};
use mysql_pipeline::{DatabaseError, ErrorKind, Outcome, Pool, Transaction};

async fn count(pool: &Pool, table: &str) -> i64 {
    let (count,): (i64,) =
        pool.query_one(format!("SELECT COUNT(*) FROM {table}"), ()).await.expect("a count");
    count
}

#[tokio::test]
async fn what_is_committed_is_kept_and_everything_else_is_not() {
    let pool = pool().await;
    let table = table(&pool, "kept", "n INT PRIMARY KEY").await;
    let insert = format!("INSERT INTO {table} VALUES (?)");

    let tx = pool.begin().await.expect("a lease");
    for n in 0..3 {
        tx.execute(&insert, (n,)).await.expect("inserted");
    }
    assert_eq!(count(&pool, &table).await, 0, "nobody else sees it");
    tx.commit().await.expect("committed");
    assert_eq!(count(&pool, &table).await, 3);

    let tx = pool.begin().await.expect("a lease");
    tx.execute(&insert, (10,)).await.expect("inserted");
    tx.rollback().await.expect("rolled back");

    let tx = pool.begin().await.expect("a lease");
    tx.execute(&insert, (11,)).await.expect("inserted");
    drop(tx);

    // A statement that fails is undone alone.
    let tx = pool.begin().await.expect("a lease");
    tx.execute(&insert, (12,)).await.expect("inserted");
    let twice = tx.execute(&insert, (12,)).await.expect_err("a duplicate");
    assert_eq!(twice.as_database().map(DatabaseError::number), Some(1062));
    tx.commit().await.expect("committed");
    assert_eq!(count(&pool, &table).await, 4);

    pool.begin().await.expect("a lease").commit().await.expect("nothing to do");
    // Autocommit is on again wherever it was off.
    for _ in 0..64 {
        let (autocommit,): (i64,) = pool.query_one("SELECT @@autocommit", ()).await.expect("a row");
        assert_eq!(autocommit, 1);
    }
    drop_table(&pool, &table).await;
    pool.close().await;
}

#[tokio::test]
async fn pipelined_statements_run_in_order() {
    let pool = pool().await;
    let table = table(&pool, "ordered", "n INT PRIMARY KEY").await;
    let tx = pool.begin().await.expect("a lease");
    let (insert, update, select) = (
        format!("INSERT INTO {table} VALUES (?)"),
        format!("UPDATE {table} SET n = n + ?"),
        format!("SELECT n FROM {table}"),
    );
    // Each of them is cold: the second must not overtake the first while that is being prepared.
    let (_, _, (n,)) = tokio::try_join!(
        tx.execute(&insert, (1,)),
        tx.execute(&update, (10,)),
        tx.query_one::<(i32,)>(&select, ())
    )
    .expect("all of them");
    assert_eq!(n, 11);
    tx.commit().await.expect("committed");
    drop_table(&pool, &table).await;
    pool.close().await;
}

/// Makes `victim`, which has locked row 1 and much else, and another transaction wait for each other; the server ends
/// the one that has changed less.
async fn collide(pool: &Pool, table: &str, victim: &Transaction) -> Vec<Result<u64, mysql_pipeline::Error>> {
    let other = pool.begin().await.expect("a lease");
    let update = format!("UPDATE {table} SET m = m + 1 WHERE n = ?");
    for n in 2..=20 {
        other.execute(&update, (n,)).await.expect("locked");
    }
    victim.execute(&update, (1,)).await.expect("locked");
    let other = tokio::spawn({
        let update = update.clone();
        async move {
            other.execute(&update, (1,)).await.expect("the other one is the victim");
            other.rollback().await.expect("rolled back");
        }
    });
    eventually("the other one waits", || async {
        let (waiting,): (i64,) = pool
            .query_one("SELECT COUNT(*) FROM performance_schema.data_lock_waits", ())
            .await
            .expect("a row");
        waiting > 0
    })
    .await;
    // Pipelined: the first closes the circle, and the others are on their way when the server ends the transaction.
    let insert = format!("INSERT INTO {table} VALUES (?, 0)");
    let (a, b, c, d) = tokio::join!(
        victim.execute(&update, (2,)),
        victim.execute(&insert, (100,)),
        victim.execute(&insert, (101,)),
        victim.execute(&insert, (102,)),
    );
    other.await.expect("the other one goes on");
    [a, b, c, d].into_iter().map(|done| done.map(|done| done.rows_affected())).collect()
}

#[tokio::test]
async fn after_a_deadlock_nothing_commits_by_itself() {
    let pool = pool().await;
    let table = table(&pool, "deadlock", "n INT PRIMARY KEY, m INT").await;
    for n in 1..=20 {
        pool.execute(format!("INSERT INTO {table} VALUES (?, 0)"), (n,)).await.expect("inserted");
    }
    for end in ["commit", "drop"] {
        let victim = pool.begin().await.expect("a lease");
        // So that what is pipelined is not held up by preparing.
        victim.query::<(i32,)>(format!("SELECT n FROM {table} WHERE n = 0"), ()).await.expect("rows");
        let results = collide(&pool, &table, &victim).await;
        let deadlock = results[0].as_ref().expect_err("a deadlock");
        assert_eq!(deadlock.as_database().map(DatabaseError::number), Some(1213), "{deadlock}");
        assert!(deadlock.is_retryable());
        if end == "commit" {
            let further = victim.execute(format!("DELETE FROM {table}"), ()).await.expect_err("it is undone");
            assert_eq!((further.kind(), further.outcome()), (ErrorKind::Database, Outcome::Failed));
            let error = victim.commit().await.expect_err("nothing to commit");
            assert_eq!((error.kind(), error.outcome()), (ErrorKind::Database, Outcome::Failed));
            assert!(
                error.is_retryable() && error.to_string().contains("rolled this transaction back"),
                "{error}"
            );
        } else {
            drop(victim);
        }
        assert_eq!(count(&pool, &table).await, 20, "{end}");
        let (sum,): (i64,) = pool.query_one(format!("SELECT SUM(m) FROM {table}"), ()).await.expect("a sum");
        assert_eq!(sum, 0, "{end}");
    }
    drop_table(&pool, &table).await;
    pool.close().await;
}

#[tokio::test]
async fn an_error_that_was_not_waited_for_keeps_the_transaction_from_being_committed() {
    let pool = pool().await;
    let table = table(&pool, "unseen", "n INT PRIMARY KEY").await;
    let insert = format!("INSERT INTO {table} VALUES (?)");
    let tx = pool.begin().await.expect("a lease");
    tx.execute(&insert, (1,)).await.expect("inserted");
    // Sent together with what follows, and then forgotten.
    let forgotten = async {
        let mut call = Box::pin(tx.execute(&insert, (1,)));
        std::future::poll_fn(|cx| {
            assert!(call.as_mut().poll(cx).is_pending());
            std::task::Poll::Ready(())
        })
        .await;
        tx.query::<(i32,)>(format!("SELECT n FROM {table}"), ()).await.expect("behind it");
    };
    forgotten.await;
    let error = tx.commit().await.expect_err("one of them failed");
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Database, Outcome::Failed), "{error}");
    assert_eq!(count(&pool, &table).await, 0);
    drop_table(&pool, &table).await;
    pool.close().await;
}

#[tokio::test]
async fn a_transaction_dropped_at_any_poll_leaves_nothing_behind() {
    let pool = pool().await;
    let table = table(&pool, "dropped", "n INT PRIMARY KEY").await;
    for polls in 0..40 {
        let work = async {
            let tx = pool.begin().await?;
            tx.execute(format!("INSERT INTO {table} VALUES (?)"), (polls,)).await?;
            // Far more often than it is polled here: it is dropped before it ends.
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
            tx.commit().await
        };
        assert!(poll_then_drop(work, polls).await.is_none());
    }
    for _ in 0..64 {
        let (n, autocommit): (i64, i64) =
            pool.query_one(format!("SELECT COUNT(*), @@autocommit FROM {table}"), ()).await.expect("a row");
        assert_eq!((n, autocommit), (0, 1));
    }
    drop_table(&pool, &table).await;
    pool.close().await;
}

#[tokio::test]
async fn what_would_end_a_transaction_behind_its_back_is_refused() {
    let pool = pool().await;
    let tx = pool.begin().await.expect("a lease");
    for sql in
        ["COMMIT", "/*! ROLLBACK */", "SET autocommit = 1", "CREATE TABLE never (a INT)", "TRUNCATE never"]
    {
        let error = tx.execute(sql, ()).await.expect_err(sql);
        assert_eq!((error.kind(), error.outcome()), (ErrorKind::SessionState, Outcome::NotSent), "{sql}");
    }
    let script = tx.batch_execute("DO 1; SELECT ';'; COMMIT").await.expect_err("it would end it");
    assert_eq!(script.kind(), ErrorKind::SessionState);
    tx.execute("SAVEPOINT s", ()).await.expect("a place to return to");
    tx.batch_execute("DO 1; ROLLBACK TO s").await.expect("a script");
    tx.commit().await.expect("committed");
    pool.close().await;
}

#[tokio::test]
async fn a_batch_is_all_or_nothing() {
    let pool = pool().await;
    let table = table(&pool, "batch", "n INT PRIMARY KEY").await;
    let insert = format!("INSERT INTO {table} VALUES (?)");
    let mut batch = pool.batch();
    for n in 0..100 {
        batch.push(&insert, (n,));
    }
    let done = batch.execute().await.expect("all of them");
    assert_eq!((done.len(), count(&pool, &table).await), (100, 100));

    let mut batch = pool.batch();
    for n in [200, 201, 5, 202] {
        batch.push(&insert, (n,));
    }
    let error = batch.execute().await.expect_err("a duplicate");
    assert_eq!(error.as_database().map(DatabaseError::number), Some(1062));
    assert!(error.to_string().contains("batch item 2"), "{error}");
    assert_eq!(count(&pool, &table).await, 100);

    let mut batch = pool.batch();
    batch.push(&insert, (300,));
    batch.push(format!("CREATE TABLE {table}_x (n INT)"), ());
    let error = batch.execute().await.expect_err("it would commit");
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::SessionState, Outcome::NotSent));
    assert!(pool.batch().execute().await.expect("nothing to do").is_empty());
    assert_eq!(count(&pool, &table).await, 100);
    drop_table(&pool, &table).await;
    pool.close().await;
}
