//! More than a pool can take at once: memory stays within the limits, callers are served in order of arrival, and the
//! errors of those who wait too long carry numbers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use integration_tests::eventually;

use super::side::dialect::{ECHO, REPEAT, sleep};
use super::side::{
    CallOptions, ErrorKind, Outcome, Phase, Pool, Row, all_shared, config, idle, reconnects, writes,
};

const TASKS: i32 = 10_000;
const QUERIES: i32 = 10;
/// Of all answers together.
const BUDGET: usize = 1 << 20;

/// Bytes of memory that this process has; 0 where the system does not tell.
fn memory() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
    line.split_whitespace().next().and_then(|kib| kib.parse::<usize>().ok()).unwrap_or(0) << 10
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_thousand_queries_at_once_stay_within_the_limits_and_wait_fairly() {
    let _alone = crate::MEASURING.lock().await;
    let config = config().await.query_timeout(Duration::from_secs(300)).answer_budget(BUDGET);
    let pool = Pool::builder(config).connections(8).max_in_flight(64).connect().await.expect("a pool");
    all_shared(&pool).await;
    let memory_before = memory();
    let over = Arc::new(AtomicBool::new(false));
    let watched = tokio::spawn({
        let (pool, over) = (pool.clone(), Arc::clone(&over));
        async move {
            let (mut most, mut most_memory, mut looks) = (0, 0, 0);
            while !over.load(Ordering::Relaxed) {
                let stats = pool.stats();
                assert!(stats.pipes.iter().all(|pipe| pipe.in_flight <= 64), "{stats:?}");
                assert!(stats.answer_bytes <= BUDGET, "{stats:?}");
                most_memory = most_memory.max(memory());
                most = most.max(stats.in_flight() + stats.waiting);
                looks += 1;
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            (most, most_memory, looks)
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
    let (most, most_memory, looks) = watched.await.expect("within the limits");
    assert_eq!(waits.len(), (TASKS * QUERIES) as usize);
    assert!(most <= 8 * 64 && most > 64 && looks > 10, "{most} at most, {looks} looks");
    waits.sort_unstable();
    let at = |quantile: f64| waits[((waits.len() - 1) as f64 * quantile) as usize];
    let grown = most_memory.saturating_sub(memory_before) >> 20;
    println!(
        "100,000 queries of 10,000 tasks took {took:?} and {grown} MiB; waits: shortest {:?}, p50 {:?}, p99 {:?}, \
         longest {:?}",
        at(0.0),
        at(0.5),
        at(0.99),
        at(1.0)
    );
    // In order of arrival: who comes in the middle waits about half as long as who comes last, and nobody is forgotten.
    assert!(at(0.5) > took / 8 && at(0.5) < took * 7 / 8, "{:?} of {took:?}", at(0.5));
    // What the callers' own futures take; the pool's part is within its limits.
    assert!(grown < 400, "{grown} MiB");
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
async fn on_several_connections_nobody_is_overtaken_by_many() {
    const PLACES: usize = 8 * 16;
    const COUNT: usize = 10_000;
    let _alone = crate::MEASURING.lock().await;
    let pool =
        Pool::builder(config().await).connections(8).max_in_flight(16).connect().await.expect("a pool");
    all_shared(&pool).await;
    pool.query::<Row>(ECHO, (0,)).await.expect("known from here on");
    let served = Arc::new(AtomicUsize::new(0));
    // On one thread tasks begin in the order in which they are spawned.
    let all: Vec<_> = (0..COUNT)
        .map(|n| {
            let (pool, served) = (pool.clone(), Arc::clone(&served));
            tokio::spawn(async move {
                pool.query::<Row>(ECHO, (n as i32,)).await.expect("an answer");
                served.fetch_add(1, Ordering::Relaxed).saturating_sub(n)
            })
        })
        .collect();
    let mut overtaken = Vec::new();
    for task in all {
        overtaken.push(task.await.expect("no task fails"));
    }
    overtaken.sort_unstable();
    let (typical, most) = (overtaken[COUNT * 99 / 100], overtaken[COUNT - 1]);
    println!("overtaken by: p99 {typical}, most {most}, of {COUNT} in {PLACES} places");
    // In no order it would be most of them. A connection whose server process gets no processor for a while keeps the
    // few back that it has taken, however many the others serve meanwhile.
    assert!(typical < COUNT / 4, "p99 {typical}, most {most}");
    pool.close().await;
}

#[tokio::test]
async fn errors_of_those_who_wait_carry_numbers_and_the_phase() {
    let short = CallOptions::new().timeout(Duration::from_millis(300));
    let config = || async { config().await.connections(1) };
    let has = |message: &str, parts: &[&str]| {
        for part in parts {
            assert!(message.contains(part), "`{part}` is not in: {message}");
        }
    };
    let waited = |message: &str| {
        let number = message.split(" after ").nth(1).and_then(|rest| rest.split(' ').next());
        let ms: u32 = number.and_then(|ms| ms.parse().ok()).expect("a number of milliseconds");
        assert!((300..10_000).contains(&ms), "{message}");
    };
    // Sent, and not answered.
    let pool = Pool::builder(config().await).connect().await.expect("a pool");
    pool.query::<Row>(sleep(2.0), ()).await.expect("known from here on");
    pool.query::<Row>(ECHO, (0,)).await.expect("known from here on");
    let view = pool.with(short);
    let error = view.query::<Row>(sleep(2.0), ()).await.expect_err("too slow");
    assert_eq!(
        (error.kind(), error.phase(), error.outcome()),
        (ErrorKind::Timeout, Some(Phase::Answer), Outcome::Unknown)
    );
    has(&error.to_string(), &["phase answer after ", " ms", "the server is still at it"]);
    waited(&error.to_string());
    // Not sent, because of what is out.
    idle(&pool).await;
    let before = writes(&pool);
    let (slept, error) = tokio::join!(pool.query::<Row>(sleep(2.0), ()), async {
        eventually("it is out", || async { writes(&pool) > before }).await;
        view.query::<Row>(ECHO, (1,)).await
    });
    slept.expect("an answer");
    let error = error.expect_err("behind it");
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
    pool.query::<Row>(sleep(2.0), ()).await.expect("an answer");
    pool.query::<Row>(ECHO, (0,)).await.expect("an answer");
    let view = pool.with(short);
    let (one, two, error) = tokio::join!(
        pool.query::<Row>(sleep(2.0), ()),
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
    waited(&error.to_string());
    pool.close().await;
    // No lease.
    let held = config().await.connections(3).acquire_timeout(Duration::from_secs(2));
    let pool = Pool::builder(held).connect().await.expect("a pool");
    all_shared(&pool).await;
    let _session = pool.session().await.expect("the only lease");
    let error = pool.begin().await.expect_err("held");
    assert_eq!((error.kind(), error.phase()), (ErrorKind::Timeout, Some(Phase::Lease)));
    has(
        &error.to_string(),
        &["in phase lease: no lease within acquire_timeout (2000 ms), 1 of 1 are held", "limits.rs:"],
    );
}

#[tokio::test]
async fn an_answer_over_a_limit_fails_alone_and_says_the_limit() {
    for (one, all, name) in
        [(10_000, 40_000, "max_answer_bytes (10000 bytes)"), (40_000, 12_000, "answer_budget (12000 bytes)")]
    {
        let limited = config().await.connections(1).max_answer_bytes(one).answer_budget(all);
        let pool = Pool::builder(limited).connect().await.expect("a pool");
        for _ in 0..20 {
            let (before, large, after) = tokio::join!(
                pool.query_one::<(String,)>(REPEAT, (100,)),
                pool.query_one::<(String,)>(REPEAT, (20_000,)),
                pool.query_one::<(String,)>(REPEAT, (9_000,)),
            );
            assert_eq!(before.expect("a neighbour").0.len(), 100);
            assert_eq!(after.expect("a neighbour").0.len(), 9_000);
            let error = large.expect_err("over the limit");
            assert_eq!((error.kind(), error.outcome()), (ErrorKind::Busy, Outcome::Completed));
            assert!(error.to_string().contains(name), "{error}");
        }
        idle(&pool).await;
        assert_eq!(reconnects(&pool), 0);
        pool.close().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_answers_together_stay_within_their_budget_and_only_those_over_it_fail() {
    const BUDGET: usize = 500_000;
    let config = config().await.answer_budget(BUDGET);
    let pool = Pool::builder(config).connect().await.expect("a pool");
    all_shared(&pool).await;
    pool.query::<Row>(REPEAT, (1,)).await.expect("known from here on");
    let over = Arc::new(AtomicBool::new(false));
    let watched = tokio::spawn({
        let (pool, over) = (pool.clone(), Arc::clone(&over));
        async move {
            let mut most = 0;
            while !over.load(Ordering::Relaxed) {
                most = most.max(pool.stats().answer_bytes);
                tokio::task::yield_now().await;
            }
            most
        }
    });
    let tasks: Vec<_> = (0..200_i32)
        .map(|task| {
            let pool = pool.clone();
            tokio::spawn(async move {
                let all = (0..10).map(|n| pool.query_one::<(String,)>(REPEAT, (50_000 + 10 * task + n,)));
                let answers = futures_util::future::join_all(all).await;
                let mut fitted = 0;
                for (answer, n) in answers.into_iter().zip(0..) {
                    match answer {
                        Ok((text,)) => {
                            assert_eq!(
                                text.len(),
                                usize::try_from(50_000 + 10 * task + n).expect("positive")
                            );
                            fitted += 1;
                        }
                        Err(error) => {
                            assert_eq!(
                                (error.kind(), error.outcome()),
                                (ErrorKind::Busy, Outcome::Completed)
                            );
                            assert!(error.to_string().contains("answer_budget (500000 bytes)"), "{error}");
                        }
                    }
                }
                fitted
            })
        })
        .collect();
    let mut fitted = 0;
    for task in tasks {
        fitted += task.await.expect("no task fails");
    }
    over.store(true, Ordering::Relaxed);
    let most = watched.await.expect("looked");
    println!("{fitted} of 2,000 answers fitted; {most} of {BUDGET} bytes at most");
    assert!(fitted > 0 && fitted < 2_000 && most > 50_000 && most <= BUDGET, "{fitted} fitted, {most} bytes");
    // As if nothing had been.
    idle(&pool).await;
    assert_eq!(pool.query_one::<(String,)>(REPEAT, (50_000,)).await.expect("fits").0.len(), 50_000);
    assert_eq!(reconnects(&pool), 0);
    pool.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_consumer_holds_no_more_than_the_budget_and_others_are_served() {
    const BUDGET: usize = 32 << 20;
    const ANSWER: i32 = 1 << 20;
    let _alone = crate::MEASURING.lock().await;
    let config = config().await.answer_budget(BUDGET).query_timeout(Duration::from_secs(300));
    let pool = Pool::builder(config).connect().await.expect("a pool");
    all_shared(&pool).await;
    pool.query::<Row>(REPEAT, (1,)).await.expect("known from here on");
    let memory_before = memory();
    // Submitted, and then nobody looks at the answers.
    let mut unread: Vec<_> =
        (0..256).map(|_| Box::pin(pool.query_one::<(String,)>(REPEAT, (ANSWER,)))).collect();
    for answer in &mut unread {
        assert!(futures_util::future::poll_immediate(answer).await.is_none(), "it is under way");
    }
    let (mut most, mut most_memory) = (0, 0);
    eventually("all are answered", || {
        let stats = pool.stats();
        most = most.max(stats.answer_bytes);
        most_memory = most_memory.max(memory());
        async move { stats.in_flight() + stats.waiting == 0 }
    })
    .await;
    for n in 0..100 {
        let (back,): (i32,) = pool.query_one(ECHO, (n,)).await.expect("there is room for small answers");
        assert_eq!(back, n);
    }
    let grown = most_memory.saturating_sub(memory_before) >> 20;
    println!(
        "256 answers of 1 MiB that nobody reads: {most} of {BUDGET} bytes at most, {grown} MiB more in all"
    );
    assert!(most > BUDGET / 2 && most <= BUDGET, "{most} bytes");
    // Beside the answers, what eight connections read into.
    assert!(grown < (BUDGET >> 20) + 32, "{grown} MiB");
    let mut fitted = 0;
    for answer in unread {
        match answer.await {
            Ok((text,)) => {
                assert_eq!(text.len(), ANSWER as usize);
                fitted += 1;
            }
            Err(error) => {
                assert_eq!((error.kind(), error.outcome()), (ErrorKind::Busy, Outcome::Completed), "{error}");
            }
        }
    }
    assert!(fitted >= BUDGET / ANSWER as usize / 2 && fitted < 256, "{fitted} fitted");
    idle(&pool).await;
    assert_eq!(reconnects(&pool), 0);
    pool.close().await;
}
