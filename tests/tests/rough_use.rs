//! Servers with narrow limits, and callers that ask for too much: errors reach their own task, the rest is served,
//! and nothing is left behind.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use integration_tests::{Random, all_shared, connections, eventually, named_pool, own_name, pool, postgres};
use pg_pipeline::{CallOptions, Error, ErrorKind, Outcome, PipeState, Pool};

async fn echo(pool: &Pool, n: i32) -> Result<(), Error> {
    let (back,): (i32,) = pool.query_one("SELECT $1::int4", (n,)).await?;
    assert_eq!(back, n);
    Ok(())
}

/// Nothing is in flight, waits or is held.
async fn idle(pool: &Pool) {
    eventually("the pool holds nothing", || async {
        let stats = pool.stats();
        stats.in_flight() == 0 && stats.waiting == 0 && stats.leased == 0 && stats.answer_bytes == 0
    })
    .await;
}

#[tokio::test]
async fn a_server_that_takes_fewer_connections_than_the_pool_wants_serves_on_those() {
    let (other, role) = (pool().await, own_name("few"));
    other
        .batch_execute(&format!("CREATE ROLE {role} LOGIN PASSWORD 'secret' CONNECTION LIMIT 3"))
        .await
        .expect("a role");
    let config = postgres().await.user(&role).password("secret").application_name(&role);
    let few = Pool::builder(config).connect().await.expect("one is enough");
    eventually("three are up", || async {
        few.stats().pipes.iter().filter(|pipe| pipe.state == PipeState::Shared).count() == 3
    })
    .await;
    let tasks: Vec<_> = (0..500)
        .map(|n| {
            let few = few.clone();
            tokio::spawn(async move { echo(&few, n).await })
        })
        .collect();
    for task in tasks {
        task.await.expect("no panic").expect("served");
    }
    // Two leases leave one for everybody; a third is not had, and says why.
    let (first, second) = (few.begin().await.expect("a lease"), few.begin().await.expect("a lease"));
    echo(&few, 1).await.expect("one stays shared");
    let error = few.begin().await.expect_err("the server has no more");
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Timeout, Outcome::NotSent));
    assert!(error.to_string().contains("too many connections"), "{error}");
    drop((first, second));
    few.close().await;
    eventually("all are gone", || async { connections(&other, &role, "%").await == 0 }).await;
    other.batch_execute(&format!("DROP ROLE {role}")).await.expect("dropped");
    other.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancelled_statements_are_their_own_tasks_errors() {
    let name = own_name("cancelled");
    let (pool, other) = (named_pool(&name).await, pool().await);
    all_shared(&pool).await;
    let stop = Arc::new(AtomicBool::new(false));
    let storm = tokio::spawn({
        let (other, name, stop) = (other.clone(), name.clone(), Arc::clone(&stop));
        async move {
            while !stop.load(Ordering::Relaxed) {
                other
                    .execute(
                        "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE application_name = $1",
                        (&name,),
                    )
                    .await
                    .expect("sent");
            }
        }
    });
    let tasks: Vec<_> = (0..100)
        .map(|task| {
            let pool = pool.clone();
            tokio::spawn(async move {
                let mut cancelled = 0;
                for n in 0..30 {
                    let sql = "SELECT $1::int4, pg_sleep(0.001)::text";
                    match pool.query_one::<(i32, String)>(sql, (1_000 * task + n,)).await {
                        Ok((back, _)) => assert_eq!(back, 1_000 * task + n),
                        Err(error) => {
                            assert_eq!(error.outcome(), Outcome::Failed, "{error:?}");
                            assert_eq!(error.sqlstate(), Some("57014"), "{error}");
                            cancelled += 1;
                        }
                    }
                }
                cancelled
            })
        })
        .collect();
    let mut cancelled = 0;
    for task in tasks {
        cancelled += task.await.expect("no panic");
    }
    stop.store(true, Ordering::Relaxed);
    storm.await.expect("no panic");
    assert!(cancelled > 0, "the storm hit somebody");
    assert_eq!(
        pool.stats().pipes.iter().map(|pipe| pipe.reconnects).sum::<u64>(),
        0,
        "no connection is lost"
    );
    idle(&pool).await;
    pool.close().await;
    other.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deadlines_of_a_millisecond_under_load_leave_nothing_behind() {
    for (connections, max_in_flight, statement_cache) in [(1, 1, 0), (2, 3, 1), (3, 256, 2), (8, 256, 256)] {
        let builder = Pool::builder(postgres().await)
            .connections(connections)
            .max_in_flight(max_in_flight)
            .statement_cache(statement_cache)
            .queue_bytes(1)
            .answer_budget(100_000);
        let pool = builder.connect().await.expect("a pool");
        let tasks: Vec<_> = (0..200)
            .map(|task| {
                let pool = pool.clone();
                tokio::spawn(async move {
                    let mut random = Random::new(task + 1);
                    for _ in 0..20 {
                        let limit = Duration::from_micros(random.below(2_000));
                        let text = format!("SELECT repeat('x', $1), {}", random.below(10));
                        let view = pool.with(CallOptions::new().timeout(limit));
                        let size = random.below(20_000) as i32;
                        match view.query_one::<(String, i32)>(text, (size,)).await {
                            Ok((text, _)) => assert_eq!(text.len(), size as usize),
                            Err(error) => assert!(
                                matches!(error.kind(), ErrorKind::Timeout | ErrorKind::Busy),
                                "{error:?}"
                            ),
                        }
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.expect("no panic");
        }
        idle(&pool).await;
        for n in 0..20 {
            echo(&pool, n).await.expect("served");
        }
        pool.close().await;
    }
}

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
async fn thousands_of_texts_fill_neither_side() {
    for statement_cache in [0, 1, 2, 10] {
        let builder = Pool::builder(postgres().await).connections(2).statement_cache(statement_cache);
        let pool = builder.connect().await.expect("a pool");
        let tasks: Vec<_> = (0..20)
            .map(|task| {
                let pool = pool.clone();
                tokio::spawn(async move {
                    for n in 0..50 {
                        let (back,): (i32,) = pool
                            .query_one(format!("SELECT $1::int4 + {}", task * 50 + n), (1,))
                            .await
                            .expect("runs");
                        assert_eq!(back, task * 50 + n + 1);
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.expect("no panic");
        }
        for _ in 0..10 {
            let (prepared,): (i64,) =
                pool.query_one("SELECT count(*) FROM pg_prepared_statements", ()).await.expect("a count");
            // What was evicted is closed with the next request at the latest.
            assert!(prepared <= statement_cache as i64 + 1, "{prepared} with a cache of {statement_cache}");
        }
        pool.close().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_connections_that_the_server_ends_come_back() {
    let config = postgres().await.options("-c idle_session_timeout=100 -c statement_timeout=300");
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
    let config = postgres().await.options("-c idle_in_transaction_session_timeout=50");
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

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pools_that_come_and_go_leave_no_socket_and_no_task() {
    let sockets = || {
        let all = std::fs::read_dir("/proc/self/fd").expect("this process's files");
        let links = all.filter_map(|file| std::fs::read_link(file.ok()?.path()).ok());
        links.filter(|link| link.to_string_lossy().starts_with("socket:")).count()
    };
    let alive = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let other = pool().await;
    all_shared(&other).await;
    let (tasks, began) = (alive(), Instant::now());
    let name = own_name("come_and_go");
    for round in 0..40 {
        let config = postgres().await.application_name(&name);
        let pool = Pool::builder(config).connections(3).connect_lazy().expect("a pool");
        match round % 4 {
            0 => pool.close().await,
            1 => drop(pool.begin().await.expect("a lease")),
            2 => echo(&pool, round).await.expect("served"),
            _ => drop(tokio::spawn({
                let pool = pool.clone();
                async move { pool.execute("SELECT pg_sleep(0.01)", ()).await }
            })),
        }
    }
    eventually("no task is left", || async { alive() <= tasks }).await;
    eventually("the server has none of their connections", || async {
        connections(&other, &name, "%").await == 0
    })
    .await;
    // Other tests of this process have sockets of their own, which come and go; ours would have stayed.
    eventually("no socket is left", || async { sockets() < 100 }).await;
    assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
    other.close().await;
}
