//! Connections of MySQL that are killed under load: everybody is answered, nobody by somebody else's answer, and what
//! was never sent runs elsewhere.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use integration_tests::eventually;
use integration_tests::mysql::{all_shared, pool};
use mysql_pipeline::{DatabaseError, ErrorKind, Outcome, Pool};

/// Kills the connection that the answer comes from, by its own statement.
async fn kill_one(pool: &Pool, killer: &Pool) {
    let (id,): (u64,) = match pool.query_one("SELECT CONNECTION_ID()", ()).await {
        Ok(found) => found,
        // It was killed just now.
        Err(_) => return,
    };
    // It may have gone already (1094).
    let _ = killer.execute(format!("KILL {id}"), ()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kills_under_load_lose_what_was_under_way_and_nothing_else() {
    let (pool, killer) = (pool().await, pool().await);
    all_shared(&pool).await;
    let stop = Arc::new(AtomicBool::new(false));
    let (answered, lost) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let tasks: Vec<_> = (0..100_i64)
        .map(|task| {
            let (pool, stop, answered, lost) =
                (pool.clone(), Arc::clone(&stop), Arc::clone(&answered), Arc::clone(&lost));
            tokio::spawn(async move {
                let mut own = task << 32;
                while !stop.load(Ordering::Relaxed) {
                    own += 1;
                    match pool.query_one::<(i64,)>("SELECT ?", (own,)).await {
                        Ok((got,)) => {
                            assert_eq!(got, own);
                            answered.fetch_add(1, Ordering::Relaxed);
                        }
                        Err(error) => {
                            assert_eq!(
                                (error.kind(), error.outcome()),
                                (ErrorKind::Io, Outcome::Unknown),
                                "{error}"
                            );
                            lost.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                }
            })
        })
        .collect();
    for _ in 0..30 {
        let before = answered.load(Ordering::Relaxed);
        kill_one(&pool, &killer).await;
        eventually("the load goes on", || async { answered.load(Ordering::Relaxed) > before + 100 }).await;
    }
    stop.store(true, Ordering::Relaxed);
    for task in tasks {
        task.await.expect("no task fails");
    }
    assert!(lost.load(Ordering::Relaxed) > 0, "no connection was killed with something under way");
    all_shared(&pool).await;
    let reconnects: u64 = pool.stats().pipes.iter().map(|pipe| pipe.reconnects).sum();
    assert!(reconnects > 0);
    assert_eq!(pool.stats().in_flight(), 0);
    pool.close().await;
    killer.close().await;
}

#[tokio::test]
async fn a_killed_query_fails_alone() {
    let (pool, killer) = (pool().await, pool().await);
    let session = pool.session().await.expect("a session");
    let (id,): (u64,) = session.query_one("SELECT CONNECTION_ID()", ()).await.expect("a row");
    let slow = session.query::<(i64,)>("SELECT COUNT(*) FROM information_schema.columns a, information_schema.columns b, information_schema.columns c", ());
    let kill = async {
        eventually("it runs", || async {
            let sql =
                "SELECT COUNT(*) FROM performance_schema.processlist WHERE id = ? AND command = 'Execute'";
            let (runs,): (i64,) = killer.query_one(sql, (id,)).await.expect("a row");
            runs == 1
        })
        .await;
        killer.execute(format!("KILL QUERY {id}"), ()).await.expect("killed");
    };
    let (slow, ()) = tokio::join!(slow, kill);
    let error = slow.expect_err("killed");
    assert_eq!(error.as_database().map(DatabaseError::number), Some(1317), "{error}");
    let (again,): (u64,) = session.query_one("SELECT CONNECTION_ID()", ()).await.expect("it goes on");
    assert_eq!(again, id);
    drop(session);
    pool.close().await;
    killer.close().await;
}

#[tokio::test]
async fn a_transaction_on_a_killed_connection_is_not_committed() {
    let (pool, killer) = (pool().await, pool().await);
    let table = integration_tests::mysql::table(&killer, "killed", "n INT").await;
    let tx = pool.begin().await.expect("a lease");
    tx.execute(format!("INSERT INTO {table} VALUES (1)"), ()).await.expect("inserted");
    let (id,): (u64,) = tx.query_one("SELECT CONNECTION_ID()", ()).await.expect("a row");
    killer.execute(format!("KILL {id}"), ()).await.expect("killed");
    let error = tx.commit().await.expect_err("it is gone");
    assert!(matches!(error.outcome(), Outcome::NotSent | Outcome::Unknown), "{error}");
    eventually("it was rolled back", || async {
        let (left,): (i64,) = killer
            .query_one("SELECT COUNT(*) FROM performance_schema.processlist WHERE id = ?", (id,))
            .await
            .expect("a row");
        left == 0
    })
    .await;
    let rows: Vec<(i32,)> = killer.query(format!("SELECT n FROM {table}"), ()).await.expect("rows");
    assert!(rows.is_empty());
    integration_tests::mysql::drop_table(&killer, &table).await;
    pool.close().await;
    killer.close().await;
}

#[tokio::test]
async fn a_closed_pool_leaves_no_connection_behind() {
    let (pool, other) = (pool().await, pool().await);
    all_shared(&pool).await;
    let session = pool.session().await.expect("a session");
    let (id,): (u64,) = session.query_one("SELECT CONNECTION_ID()", ()).await.expect("a row");
    drop(session);
    pool.close().await;
    eventually("the server shows it no more", || async {
        let (left,): (i64,) = other
            .query_one("SELECT COUNT(*) FROM performance_schema.processlist WHERE id = ?", (id,))
            .await
            .expect("a row");
        left == 0
    })
    .await;
    let error = pool.query::<(i64,)>("SELECT 1", ()).await.expect_err("closed");
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Closed, Outcome::NotSent));
    other.close().await;
}
