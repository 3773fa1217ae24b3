//! Connections that the server ends: everybody is told at once and truthfully, and the pool heals.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use integration_tests::{eventually, own_name};

use super::side::dialect::{LAST_WORDS, sleep, upsert};
use super::side::{
    Error, ErrorKind, Outcome, Pool, Statement, asleep, connections, count, drop_table, named_pool, number,
    pool, shared_pipes, sql, table, terminate, terminate_active, terminate_all,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn under_load_every_affected_task_learns_its_outcome_at_once_and_the_pool_heals() {
    let name = own_name("terminate");
    let (pool, other) = (named_pool(&name).await, pool().await);
    let ledger = table(&other, "ledger", "nonce int8 PRIMARY KEY, n int4 NOT NULL").await;
    let stop = Arc::new(AtomicBool::new(false));
    let lost = Arc::new(AtomicUsize::new(0));
    let insert = upsert(&ledger);
    let tasks: Vec<_> = (0..200_i64)
        .map(|task| {
            let (pool, stop, lost, insert) =
                (pool.clone(), Arc::clone(&stop), Arc::clone(&lost), insert.clone());
            tokio::spawn(async move {
                let mut outcomes = Vec::new();
                for query in 0.. {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    let nonce = task * 1_000_000 + query;
                    let outcome = match pool.execute(&insert, (nonce,)).await {
                        Ok(done) => {
                            assert_eq!(done.rows_affected(), 1);
                            None
                        }
                        Err(error) => {
                            assert_eq!(error.kind(), ErrorKind::Io, "{error}");
                            lost.fetch_add(1, Ordering::Relaxed);
                            Some(error.outcome())
                        }
                    };
                    outcomes.push((nonce, outcome));
                }
                outcomes
            })
        })
        .collect();
    for _ in 0..5 * integration_tests::scale() {
        eventually("the pool heals", || async { shared_pipes(&pool) == 8 }).await;
        let before = lost.load(Ordering::Relaxed);
        // A connection that has just been made may have nothing in flight: end them until somebody is hit.
        eventually("somebody is told", || async {
            terminate_all(&other, &name).await;
            lost.load(Ordering::Relaxed) > before
        })
        .await;
    }
    eventually("the pool heals", || async { shared_pipes(&pool) == 8 }).await;
    stop.store(true, Ordering::Relaxed);
    let mut rows: std::collections::HashMap<i64, i32> = other
        .query::<(i64, i32)>(format!("SELECT nonce, n FROM {ledger}"), ())
        .await
        .expect("the ledger")
        .into_iter()
        .collect();
    let mut unknown = 0;
    for task in tasks {
        for (nonce, outcome) in task.await.expect("no task fails") {
            let n = match rows.remove(&nonce) {
                Some(n) => n,
                // The ledger was read while the last ones were still running.
                None => other
                    .query_opt::<(i32,)>(sql(format!("SELECT n FROM {ledger} WHERE nonce = $1")), (nonce,))
                    .await
                    .expect("the ledger")
                    .map_or(0, |(n,)| n),
            };
            match outcome {
                None => assert_eq!(n, 1, "acknowledged, so it ran once"),
                Some(Outcome::NotSent) => assert_eq!(n, 0, "not sent, so it did not run"),
                Some(Outcome::Unknown) => {
                    unknown += 1;
                    assert!(n <= 1, "ran at most once");
                }
                Some(other) => panic!("a lost connection is no {other:?}"),
            }
        }
    }
    assert!(unknown > 0, "some were under way");
    drop_table(&other, &ledger).await;
    pool.close().await;
    other.close().await;
}

#[tokio::test]
async fn what_was_never_sent_succeeds_elsewhere() {
    let name = own_name("never_sent");
    let (pool, other) = (named_pool(&name).await, pool().await);
    eventually("all pipes are up", || async { shared_pipes(&pool) == 8 }).await;
    assert_eq!(spawn_query(&pool, "SELECT 2").await.expect("no panic").expect("known from here on"), 2);
    // Every pipe is busy; what comes behind waits unsent.
    let busy: Vec<_> = (0..8).map(|_| spawn_query(&pool, &sleep(60.0))).collect();
    eventually("the sleepers are out", || async { asleep(&other, &name).await == 8 }).await;
    let waiting: Vec<_> = (0..100).map(|_| spawn_query(&pool, "SELECT 2")).collect();
    eventually("they wait", || async { pool.stats().in_flight() >= 108 }).await;
    let began = Instant::now();
    assert_eq!(terminate_all(&other, &name).await, 8);
    for task in busy {
        let error = task.await.expect("no panic").expect_err("terminated");
        assert_eq!((error.kind(), error.outcome()), (ErrorKind::Io, Outcome::Unknown));
        assert_eq!(error.sqlstate(), LAST_WORDS, "{error}");
    }
    for task in waiting {
        assert_eq!(task.await.expect("no panic").expect("it ran elsewhere"), 2);
    }
    assert!(began.elapsed() < Duration::from_secs(5), "at once, and not when a deadline passed");
    pool.close().await;
    other.close().await;
}

fn spawn_query(pool: &Pool, text: &str) -> tokio::task::JoinHandle<Result<i32, Error>> {
    let (pool, text) = (pool.clone(), text.to_owned());
    tokio::spawn(async move { pool.query_one::<(i32,)>(text, ()).await.map(|(n,)| n) })
}

#[tokio::test]
async fn an_idempotent_statement_runs_again_after_a_lost_connection() {
    let name = own_name("idempotent");
    let (pool, other) = (named_pool(&name).await, pool().await);
    let slow = sleep(1.0);
    let sleeper = tokio::spawn({
        let (pool, statement) = (pool.clone(), Statement::new(slow).idempotent());
        async move { pool.query_one::<(i32,)>(statement, ()).await }
    });
    eventually("it is out", || async { terminate_active(&other, &name).await == 1 }).await;
    assert_eq!(sleeper.await.expect("no panic").expect("the second run"), (1,));
    pool.close().await;
    other.close().await;
}

#[tokio::test]
async fn a_transaction_whose_connection_is_lost_is_not_committed() {
    let (pool, other) = (pool().await, pool().await);
    let table = table(&other, "lost_work", "n int4").await;
    let insert = Statement::new(sql(format!("INSERT INTO {table} VALUES ($1)")));
    for n in 0..3 {
        let tx = pool.begin().await.expect("a lease");
        tx.execute(&insert, (n,)).await.expect("a write");
        terminate(&other, number(&tx).await).await;
        if n == 1 {
            let error = tx.execute(&insert, (n,)).await.expect_err("it is gone");
            assert!(matches!(error.outcome(), Outcome::NotSent | Outcome::Unknown), "{error:?}");
        }
        let error = tx.commit().await.expect_err("it is gone");
        assert!(matches!(error.kind(), ErrorKind::Io | ErrorKind::Closed), "{error:?}");
        assert!(matches!(error.outcome(), Outcome::NotSent | Outcome::Unknown), "{error:?}");
    }
    eventually("the pool heals", || async { shared_pipes(&pool) == 8 }).await;
    // Nothing holds the table any more, and nothing was kept.
    drop(pool.begin().await.expect("a lease"));
    assert_eq!(count(&other, &table).await, 0);
    drop_table(&other, &table).await;
    pool.close().await;
    other.close().await;
}

#[tokio::test]
async fn a_lease_whose_connection_is_lost_says_so_and_is_replaced() {
    let name = own_name("lost_lease");
    let (pool, other) = (named_pool(&name).await, pool().await);
    let session = pool.session().await.expect("a session");
    session.execute("SELECT 1", ()).await.expect("works");
    eventually("ended", || async { terminate_all(&other, &name).await > 0 && !session.is_alive() }).await;
    let error = session.execute("SELECT 1", ()).await.expect_err("gone");
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Closed, Outcome::NotSent));
    drop(session);
    eventually("the pool heals", || async { shared_pipes(&pool) == 8 }).await;
    let again = pool.session().await.expect("another session");
    again.execute("SELECT 1", ()).await.expect("works");
    drop(again);
    pool.close().await;
    other.close().await;
}

#[tokio::test]
async fn close_leaves_no_connection_behind() {
    let name = own_name("close");
    let (pool, other) = (named_pool(&name).await, pool().await);
    let slow = sleep(0.2);
    assert_eq!(spawn_query(&pool, &slow).await.expect("no panic").expect("known from here on"), 1);
    let under_way = spawn_query(&pool, &slow);
    eventually("it is out", || async { pool.stats().in_flight() == 1 }).await;
    pool.close().await;
    assert_eq!(under_way.await.expect("no panic").expect("finished"), 1);
    let error = pool.execute("SELECT 1", ()).await.expect_err("closed");
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Closed, Outcome::NotSent));
    // The goodbye was sent and the sockets are closed; the server's processes end a moment later.
    eventually("the server shows none", || async { connections(&other, &name).await == 0 }).await;
    other.close().await;
}
