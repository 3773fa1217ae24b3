//! What a PostgreSQL server can be told to do to its clients: forget their statements, end those that idle.

use integration_tests::eventually;

use super::rough_use::echo;
use super::side::{ErrorKind, Outcome, Pool, config, idle, pool};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn statements_that_others_deallocate_are_prepared_again() {
    let pool = pool().await;
    pool.execute("DO $$ BEGIN EXECUTE 'DEALLOCATE ALL'; END $$", ()).await.expect("the server allows it");
    let tasks: Vec<_> = (0..50)
        .map(|task| {
            let pool = pool.clone();
            tokio::spawn(async move {
                for n in 0..20 {
                    if task == 0 {
                        let all = "DO $$ BEGIN EXECUTE 'DEALLOCATE ALL'; END $$";
                        pool.execute(all, ()).await.expect("the server allows it");
                    }
                    echo(&pool, n).await.expect("prepared again");
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("no panic");
    }
    idle(&pool).await;
    pool.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_connections_that_the_server_ends_come_back() {
    let config = config().await.options("-c idle_session_timeout=100 -c statement_timeout=300");
    let pool = Pool::builder(config).connections(3).connect().await.expect("a pool");
    eventually("the server has ended some", || async {
        pool.stats().pipes.iter().map(|pipe| pipe.reconnects).sum::<u64>() >= 6
    })
    .await;
    for n in 0..200 {
        // Sent in the moment in which the server ends the connection, its fate is unknown; never anything else.
        if let Err(error) = echo(&pool, n).await {
            assert_eq!((error.kind(), error.outcome()), (ErrorKind::Io, Outcome::Unknown), "{error:?}");
        }
    }
    let slow = pool.execute("SELECT pg_sleep(5)", ()).await.expect_err("statement_timeout");
    assert_eq!((slow.sqlstate(), slow.outcome()), (Some("57014"), Outcome::Failed));
    pool.close().await;
}

#[tokio::test]
async fn a_lease_that_the_server_ends_while_it_idles_in_a_transaction_is_replaced() {
    let config = config().await.options("-c idle_in_transaction_session_timeout=50");
    let pool = Pool::builder(config).connections(2).connect().await.expect("a pool");
    for _ in 0..3 {
        let tx = pool.begin().await.expect("a lease");
        tx.execute("SELECT 1", ()).await.expect("in time");
        eventually("the server has ended it", || async { pool.stats().leased == 0 }).await;
        let error = tx.execute("SELECT 1", ()).await.expect_err("over");
        assert_eq!((error.kind(), error.outcome()), (ErrorKind::Closed, Outcome::NotSent));
        tx.commit().await.expect_err("over");
    }
    echo(&pool, 1).await.expect("served");
    pool.close().await;
}
