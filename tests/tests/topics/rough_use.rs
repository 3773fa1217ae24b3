//! Servers with narrow limits, and callers that ask for too much: errors reach their own task, the rest is served,
//! and nothing is left behind.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use integration_tests::{Random, eventually, own_name};

use super::side::dialect::{
    CANCELLED, ECHO, ECHO_A_LITTLE_LATER, TOO_MANY, drop_user, limited_user, plus, sleep,
};
use super::side::{
    CallOptions, Error, ErrorKind, Outcome, Pool, all_shared, cancel_all, config, connections, idle,
    named_config, named_pool, pool, prepared, reconnects, shared_pipes, sql,
};

pub(super) async fn echo(pool: &Pool, n: i32) -> Result<(), Error> {
    let (back,): (i32,) = pool.query_one(ECHO, (n,)).await?;
    assert_eq!(back, n);
    Ok(())
}

#[tokio::test]
async fn a_server_that_takes_fewer_connections_than_the_pool_wants_serves_on_those() {
    let (other, role) = (pool().await, own_name("few"));
    for statement in limited_user(&role, 3) {
        other.execute(statement, ()).await.expect("a user");
    }
    let few = Pool::builder(named_config(&role).await.user(&role).password("secret"));
    let few = few.connect().await.expect("one is enough");
    eventually("three are up", || async { shared_pipes(&few) == 3 }).await;
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
    assert!(error.to_string().contains(TOO_MANY), "{error}");
    drop((first, second));
    few.close().await;
    eventually("all are gone", || async { connections(&other, &role).await == 0 }).await;
    other.execute(drop_user(&role), ()).await.expect("dropped");
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
                cancel_all(&other, &name).await;
            }
        }
    });
    let tasks: Vec<_> = (0..100)
        .map(|task| {
            let pool = pool.clone();
            tokio::spawn(async move {
                let mut cancelled = 0;
                for n in 0..30 {
                    match pool.query_one::<(i32,)>(ECHO_A_LITTLE_LATER, (1_000 * task + n,)).await {
                        Ok((back,)) => assert_eq!(back, 1_000 * task + n),
                        Err(error) => {
                            assert_eq!(error.outcome(), Outcome::Failed, "{error:?}");
                            assert_eq!(error.sqlstate(), Some(CANCELLED), "{error}");
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
    assert_eq!(reconnects(&pool), 0, "no connection is lost");
    idle(&pool).await;
    pool.close().await;
    other.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deadlines_of_a_millisecond_under_load_leave_nothing_behind() {
    for (connections, max_in_flight, statement_cache) in [(1, 1, 0), (2, 3, 1), (3, 256, 2), (8, 256, 256)] {
        let builder = Pool::builder(config().await)
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
                        let text = sql(format!("SELECT repeat('x', $1), {}", random.below(10)));
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
async fn thousands_of_texts_fill_neither_side() {
    for statement_cache in [0, 1, 2, 10] {
        let builder = Pool::builder(config().await).connections(2).statement_cache(statement_cache);
        let pool = builder.connect().await.expect("a pool");
        let tasks: Vec<_> = (0..20)
            .map(|task| {
                let pool = pool.clone();
                tokio::spawn(async move {
                    for n in 0..50 {
                        let (back,): (i64,) =
                            pool.query_one(plus(task * 50 + n), (1_i64,)).await.expect("runs");
                        assert_eq!(back, task * 50 + n + 1);
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.expect("no panic");
        }
        for _ in 0..10 {
            let prepared = prepared(&pool).await;
            // What was evicted is closed with the next request at the latest.
            assert!(prepared <= statement_cache as i64 + 1, "{prepared} with a cache of {statement_cache}");
        }
        pool.close().await;
    }
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
    let name = own_name("come_and_go");
    let config = named_config(&name).await;
    eventually("its helper is gone", || async { connections(&other, &name).await == 0 }).await;
    let (tasks, began) = (alive(), Instant::now());
    for round in 0..40 {
        let pool = Pool::builder(config.clone()).connections(3).connect_lazy().expect("a pool");
        match round % 4 {
            0 => pool.close().await,
            1 => drop(pool.begin().await.expect("a lease")),
            2 => echo(&pool, round).await.expect("served"),
            _ => drop(tokio::spawn({
                let pool = pool.clone();
                async move { pool.execute(sleep(0.01), ()).await }
            })),
        }
    }
    eventually("no task is left", || async { alive() <= tasks }).await;
    eventually("the server has none of their connections", || async {
        connections(&other, &name).await == 0
    })
    .await;
    // Other tests of this process have sockets of their own, which come and go; ours would have stayed.
    eventually("no socket is left", || async { sockets() < 100 }).await;
    assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
    other.close().await;
}
