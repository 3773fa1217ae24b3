//! More than a pool can take at once: memory stays within the limits, callers are served in order of arrival, and the
//! errors of those who wait too long carry numbers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use integration_tests::eventually;

use super::side::dialect::{ECHO, REPEAT, sleep};
use super::side::{CallOptions, ErrorKind, Outcome, Phase, Pool, Row, all_shared, config, idle, writes};

const TASKS: i32 = 10_000;
const QUERIES: i32 = 10;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_thousand_queries_at_once_stay_within_the_limits_and_wait_fairly() {
    let config = config().await.query_timeout(Duration::from_secs(300));
    let pool = Pool::builder(config).connections(8).max_in_flight(64).connect().await.expect("a pool");
    all_shared(&pool).await;
    let over = Arc::new(AtomicBool::new(false));
    let watched = tokio::spawn({
        let (pool, over) = (pool.clone(), Arc::clone(&over));
        async move {
            let (mut most, mut looks) = (0, 0);
            while !over.load(Ordering::Relaxed) {
                let stats = pool.stats();
                assert!(stats.pipes.iter().all(|pipe| pipe.in_flight <= 64), "{stats:?}");
                most = most.max(stats.in_flight() + stats.waiting);
                looks += 1;
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            (most, looks)
        }
    });
    let began = Instant::now();
    let tasks: Vec<_> = (0..TASKS)
        .map(|task| {
            let pool = pool.clone();
            tokio::spawn(async move {
                // All of a task's queries are submitted before any is answered.
                let all = (0..QUERIES).map(|query| {
                    let (pool, n) = (&pool, task * QUERIES + query);
                    async move {
                        let began = Instant::now();
                        let (back,): (i32,) = pool.query_one(ECHO, (n,)).await.expect("an answer");
                        assert_eq!(back, n);
                        began.elapsed()
                    }
                });
                futures_util::future::join_all(all).await
            })
        })
        .collect();
    let mut waits = Vec::new();
    for task in tasks {
        waits.append(&mut task.await.expect("no task fails"));
    }
    let took = began.elapsed();
    over.store(true, Ordering::Relaxed);
    let (most, looks) = watched.await.expect("within the limits");
    assert_eq!(waits.len(), (TASKS * QUERIES) as usize);
    assert!(most <= 8 * 64 && most > 64 && looks > 10, "{most} at most, {looks} looks");
    waits.sort_unstable();
    let at = |quantile: f64| waits[((waits.len() - 1) as f64 * quantile) as usize];
    println!(
        "100,000 queries of 10,000 tasks took {took:?}; waits: p1 {:?}, p50 {:?}, p99 {:?}, longest {:?}",
        at(0.01),
        at(0.5),
        at(0.99),
        at(1.0)
    );
    // In order of arrival: who comes in the middle waits about half as long as who comes last, and nobody is forgotten.
    assert!(at(0.5) > took / 8 && at(0.5) < took * 7 / 8, "{:?} of {took:?}", at(0.5));
    idle(&pool).await;
    pool.close().await;
}

#[tokio::test]
async fn whoever_comes_first_is_served_first() {
    // One pipe that takes one at a time: the order of answers is the order of service.
    let pool = Pool::builder(config().await).connections(1).max_in_flight(1).connect().await.expect("a pool");
    pool.query::<Row>(ECHO, (0,)).await.expect("known from here on");
    let served = std::sync::Mutex::new(Vec::new());
    let all = (0..200_i32).map(|n| {
        let (pool, served) = (&pool, &served);
        async move {
            pool.query::<Row>(ECHO, (n,)).await.expect("an answer");
            served.lock().expect("unpoisoned").push(n);
        }
    });
    futures_util::future::join_all(all).await;
    assert_eq!(served.into_inner().expect("unpoisoned"), (0..200).collect::<Vec<_>>());
    pool.close().await;
}

#[tokio::test]
async fn errors_of_those_who_wait_carry_numbers_and_the_phase() {
    let short = CallOptions::new().timeout(Duration::from_millis(100));
    let config = || async { config().await.connections(1) };
    let has = |message: &str, parts: &[&str]| {
        for part in parts {
            assert!(message.contains(part), "`{part}` is not in: {message}");
        }
    };
    // Looking up what a statement takes is a wait of its own before it.
    let waited = |message: &str| {
        let number = message.split(" after ").nth(1).and_then(|rest| rest.split(' ').next());
        let ms: u32 = number.and_then(|ms| ms.parse().ok()).expect("a number of milliseconds");
        assert!((50..2_000).contains(&ms), "{message}");
    };
    // Sent, and not answered.
    let pool = Pool::builder(config().await).connect().await.expect("a pool");
    let view = pool.with(short);
    let error = view.query::<Row>(sleep(0.5), ()).await.expect_err("too slow");
    assert_eq!(
        (error.kind(), error.phase(), error.outcome()),
        (ErrorKind::Timeout, Some(Phase::Answer), Outcome::Unknown)
    );
    has(&error.to_string(), &["phase answer after ", " ms", "the server is still at it"]);
    waited(&error.to_string());
    // Not sent, because of what is out.
    pool.query::<Row>(ECHO, (0,)).await.expect("known from here on");
    let slow_one = sleep(0.5);
    let before = writes(&pool);
    let (slow, behind) = tokio::join!(pool.query::<Row>(&slow_one, ()), async {
        eventually("the slow one is out", || async { writes(&pool) > before }).await;
        view.query::<Row>(ECHO, (1,)).await
    });
    slow.expect("an answer");
    let error = behind.expect_err("behind it");
    assert_eq!(
        (error.kind(), error.phase(), error.outcome()),
        (ErrorKind::Timeout, Some(Phase::Queue), Outcome::NotSent)
    );
    has(&error.to_string(), &["phase queue after ", " ms"]);
    waited(&error.to_string());
    idle(&pool).await;
    pool.close().await;
    // No room at all.
    let full = config().await.max_in_flight(2);
    let pool = Pool::builder(full).connect().await.expect("a pool");
    // Known from here on: what must be prepared first lets others past.
    pool.query::<Row>(sleep(0.4), ()).await.expect("an answer");
    pool.query::<Row>(ECHO, (0,)).await.expect("an answer");
    let view = pool.with(short);
    let (one, two, error) = tokio::join!(
        pool.query::<Row>(sleep(0.4), ()),
        pool.query::<Row>(ECHO, (1,)),
        view.query::<Row>(ECHO, (2,))
    );
    one.expect("an answer");
    two.expect("an answer");
    let error = error.expect_err("the pool is full");
    has(
        &error.to_string(),
        &["phase queue after ", "the pool is full: 2 of 2 requests (max_in_flight)", "KiB"],
    );
    pool.close().await;
}

#[tokio::test]
async fn an_answer_over_a_limit_fails_alone_and_says_the_limit() {
    let limited = config().await.connections(1).max_answer_bytes(10_000).answer_budget(40_000);
    let pool = Pool::builder(limited).connect().await.expect("a pool");
    for _ in 0..20 {
        let small = REPEAT;
        let (before, large, after) = tokio::join!(
            pool.query_one::<(String,)>(small, (100,)),
            pool.query_one::<(String,)>(small, (20_000,)),
            pool.query_one::<(String,)>(small, (9_000,)),
        );
        assert_eq!(before.expect("a neighbour").0.len(), 100);
        assert_eq!(after.expect("a neighbour").0.len(), 9_000);
        let error = large.expect_err("over the limit");
        assert_eq!((error.kind(), error.outcome()), (ErrorKind::Busy, Outcome::Completed));
        assert!(
            error.to_string().contains("max_answer_bytes") && error.to_string().contains("10000"),
            "{error}"
        );
    }
    idle(&pool).await;
    pool.close().await;
}
