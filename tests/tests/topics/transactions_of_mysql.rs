//! Transactions as only MySQL has them: a deadlock undoes all of them and the server goes on, a failure undoes its
//! statement alone, and many statements commit by themselves.

use std::sync::atomic::{AtomicU32, Ordering};

use integration_tests::{eventually, poll_then_drop};

use super::side::dialect::ASKS_AGAIN;
use super::side::{
    DatabaseError, Error, ErrorKind, Outcome, Pool, Transaction, config, count, drop_table, pool, table,
};

/// Makes `victim`, which has locked row 1 and much else, and another transaction wait for each other; the server ends
/// the one that has changed less.
async fn collide(pool: &Pool, table: &str, victim: &Transaction) -> Vec<Result<u64, Error>> {
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
async fn a_deadlock_in_a_part_undoes_the_whole_and_everything_says_so() {
    let pool = pool().await;
    let table = table(&pool, "part", "n INT PRIMARY KEY, m INT").await;
    for n in 1..=20 {
        pool.execute(format!("INSERT INTO {table} VALUES (?, 0)"), (n,)).await.expect("inserted");
    }
    let victim = pool.begin().await.expect("a lease");
    victim.execute(format!("INSERT INTO {table} VALUES (50, 0)"), ()).await.expect("before the part");
    let part = victim.savepoint().await.expect("a savepoint");
    let results = collide(&pool, &table, &victim).await;
    let deadlock = results[0].as_ref().expect_err("a deadlock");
    assert_eq!(deadlock.as_database().map(DatabaseError::number), Some(1213), "{deadlock}");
    let inner = part.savepoint().await.map(drop).expect_err("it is undone");
    drop(inner);
    for error in [
        part.execute(format!("DELETE FROM {table}"), ()).await.expect_err("it is undone"),
        part.rollback().await.expect_err("the whole is undone"),
        victim.execute(format!("DELETE FROM {table}"), ()).await.expect_err("it is undone"),
        victim.commit().await.expect_err("nothing to commit"),
    ] {
        assert_eq!((error.kind(), error.outcome()), (ErrorKind::Database, Outcome::Failed), "{error}");
        assert!(
            error.is_retryable() && error.to_string().contains("rolled this transaction back"),
            "{error}"
        );
    }
    assert_eq!(count(&pool, &table).await, 20);
    drop_table(&pool, &table).await;
    pool.close().await;
}

#[tokio::test]
async fn work_that_could_not_have_a_lock_in_time_runs_again() {
    let impatient = config().await.setup(["SET innodb_lock_wait_timeout = 1"]);
    let pool = Pool::builder(impatient).connect().await.expect("a pool");
    let table = table(&pool, "impatient", "n INT PRIMARY KEY, m INT").await;
    for n in [1, 2] {
        pool.execute(format!("INSERT INTO {table} VALUES (?, 0)"), (n,)).await.expect("inserted");
    }
    let update = format!("UPDATE {table} SET m = m + 1 WHERE n = ?");
    let holder = pool.begin().await.expect("a lease");
    holder.execute(&update, (2,)).await.expect("locked");
    let mut holder = Some(holder);
    let mut runs = 0;
    pool.transaction()
        .retries(1)
        .run(|tx| {
            runs += 1;
            // The first run waits in vain.
            let release = if runs == 2 { holder.take() } else { None };
            let update = &update;
            async move {
                if let Some(holder) = release {
                    holder.rollback().await?;
                }
                tx.execute(update, (1,)).await?;
                tx.execute(update, (2,)).await?;
                Ok::<_, Error>(())
            }
        })
        .await
        .expect("done");
    assert_eq!(runs, 2);
    let rows: Vec<(i32,)> = pool.query(format!("SELECT m FROM {table}"), ()).await.expect("rows");
    assert_eq!(rows, [(1,), (1,)], "the first run was undone as a whole");
    drop_table(&pool, &table).await;
    pool.close().await;
}

/// The server says that all was undone; what the procedure had committed before was not, and nobody can tell.
#[tokio::test]
async fn a_procedure_that_is_undone_with_the_transaction_is_not_run_again() {
    let pool = pool().await;
    let table = table(&pool, "procedure", "n INT").await;
    let body = format!("INSERT INTO {table} VALUES (1); COMMIT; {ASKS_AGAIN}");
    pool.execute(format!("CREATE PROCEDURE {table}_p() BEGIN {body}; END"), ()).await.expect("a procedure");
    let call = format!("CALL {table}_p()");
    for then in ["gives up", "wants to commit", "does not wait", "goes on", "script"] {
        let runs = AtomicU32::new(0);
        let error = pool
            .transaction()
            .retries(3)
            .run(async |tx| {
                runs.fetch_add(1, Ordering::Relaxed);
                tx.query::<(i32,)>(format!("SELECT n FROM {table}"), ()).await?;
                match then {
                    "gives up" => drop(tx.execute(&call, ()).await?),
                    "script" => tx.batch_execute(&format!("DO 1; {call}; DO 2")).await?,
                    "wants to commit" => drop(tx.execute(&call, ()).await.expect_err("undone")),
                    "does not wait" => drop(poll_then_drop(tx.execute(&call, ()), 1).await),
                    _ => {
                        tx.execute(&call, ()).await.expect_err("undone");
                        tx.execute(ASKS_AGAIN, ()).await?;
                    }
                }
                Ok::<_, Error>(())
            })
            .await
            .expect_err(then);
        assert_eq!(
            (error.kind(), error.outcome()),
            (ErrorKind::Database, Outcome::Unknown),
            "{then}: {error}"
        );
        assert_eq!(error.as_database().map(DatabaseError::number), Some(1213), "{then}: {error}");
        assert!(
            !error.is_retryable() && error.to_string().contains("look at what is there"),
            "{then}: {error}"
        );
        assert_eq!(runs.load(Ordering::Relaxed), 1, "{then}");
        eventually("all leases are back", || async { pool.stats().leased == 0 }).await;
        assert_eq!(count(&pool, &table).await, 1, "{then}: what the procedure has committed");
        pool.execute(format!("DELETE FROM {table}"), ()).await.expect("empty");
    }
    // One that fails by itself is undone alone, and one that goes well is part of the transaction.
    let body = format!("INSERT INTO {table} VALUES (?); SELECT n FROM {table}").replace('?', "m");
    pool.execute(format!("CREATE PROCEDURE {table}_q(m INT) BEGIN {body}; END"), ())
        .await
        .expect("a procedure");
    let tx = pool.begin().await.expect("a lease");
    tx.execute(format!("CALL {table}_q(?, ?)"), (1, 2)).await.expect_err("one too many");
    for n in [1, 2] {
        let rows: Vec<(i32,)> = tx.query(format!("CALL {table}_q(?)"), (n,)).await.expect("rows");
        assert_eq!(rows.len(), n as usize);
    }
    tx.commit().await.expect("committed");
    assert_eq!(count(&pool, &table).await, 2);
    for name in ["p", "q"] {
        pool.execute(format!("DROP PROCEDURE {table}_{name}"), ()).await.expect("dropped");
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
async fn autocommit_is_on_again_wherever_it_was_off() {
    let pool = pool().await;
    let table = table(&pool, "autocommit", "n INT PRIMARY KEY").await;
    let insert = format!("INSERT INTO {table} VALUES (?)");
    for n in 0..12 {
        let tx = pool.begin().await.expect("a lease");
        tx.execute(&insert, (n,)).await.expect("inserted");
        // A statement that fails is undone alone.
        let twice = tx.execute(&insert, (n,)).await.expect_err("a duplicate");
        assert_eq!(twice.as_database().map(DatabaseError::number), Some(1062));
        match n % 3 {
            0 => tx.commit().await.expect("committed"),
            1 => tx.rollback().await.expect("rolled back"),
            _ => drop(tx),
        }
    }
    assert_eq!(count(&pool, &table).await, 4);
    for _ in 0..64 {
        let (autocommit,): (i64,) = pool.query_one("SELECT @@autocommit", ()).await.expect("a row");
        assert_eq!(autocommit, 1);
    }
    drop_table(&pool, &table).await;
    pool.close().await;
}
