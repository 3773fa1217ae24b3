//! Slow statements and quick ones in one pool: the quick ones do not wait for the slow ones.

use std::time::{Duration, Instant};

use integration_tests::{eventually, own_name};

use super::side::dialect::{ECHO, sleep};
use super::side::{Pool, Row, all_shared, asleep, named_pool, pool};

/// A quick query that waited for a sleeper takes about as long as the sleep, which is ten times this.
const QUICK: Duration = Duration::from_millis(200);
const SLEEP: f64 = 2.0;

async fn put_to_sleep(
    pool: &Pool,
    other: &Pool,
    name: &str,
    sleepers: i64,
) -> Vec<tokio::task::JoinHandle<()>> {
    let tasks = (0..sleepers)
        .map(|_| {
            let pool = pool.clone();
            tokio::spawn(async move {
                let (one,): (i32,) = pool.query_one(sleep(SLEEP), ()).await.expect("awake");
                assert_eq!(one, 1);
            })
        })
        .collect();
    eventually("all sleep", || async { asleep(other, name).await == sleepers }).await;
    tasks
}

/// The 99th of a hundred.
fn p99(mut waits: Vec<Duration>) -> Duration {
    waits.sort_unstable();
    waits[waits.len() * 99 / 100]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_quick_queries_do_not_wait_for_four_sleepers() {
    let name = own_name("sleepers");
    let (pool, other) = (named_pool(&name).await, pool().await);
    all_shared(&pool).await;
    pool.query::<Row>("SELECT 1", ()).await.expect("known from here on");
    let began = Instant::now();
    let sleepers = put_to_sleep(&pool, &other, &name, 4).await;
    let quick: Vec<_> = (0..1_000_i32)
        .map(|n| {
            let pool = pool.clone();
            tokio::spawn(async move {
                let began = Instant::now();
                let (back,): (i32,) = pool.query_one(ECHO, (n,)).await.expect("an answer");
                assert_eq!(back, n);
                began.elapsed()
            })
        })
        .collect();
    let mut waits = Vec::new();
    for task in quick {
        waits.push(task.await.expect("no task fails"));
    }
    assert!(began.elapsed() < Duration::from_secs(2), "all answered while they slept: {:?}", began.elapsed());
    assert_eq!(waits.len(), 1_000);
    let p99 = p99(waits);
    assert!(p99 < QUICK, "p99 {p99:?}");
    for sleeper in sleepers {
        sleeper.await.expect("no sleeper fails");
    }
    pool.close().await;
    other.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn quick_queries_under_way_when_sleepers_come_do_not_wait_for_them_either() {
    let name = own_name("coming");
    let (pool, other) = (named_pool(&name).await, pool().await);
    all_shared(&pool).await;
    // The pool learns how slow it is: nobody has to find out again.
    pool.query::<Row>(sleep(SLEEP), ()).await.expect("awake");
    let until = Instant::now() + Duration::from_millis(1_500);
    let quick: Vec<_> = (0..32_i32)
        .map(|task| {
            let pool = pool.clone();
            tokio::spawn(async move {
                let mut waits = Vec::new();
                while Instant::now() < until {
                    let began = Instant::now();
                    let (back,): (i32,) = pool.query_one(ECHO, (task,)).await.expect("an answer");
                    assert_eq!(back, task);
                    waits.push(began.elapsed());
                }
                waits
            })
        })
        .collect();
    let sleepers = put_to_sleep(&pool, &other, &name, 4).await;
    let mut waits = Vec::new();
    for task in quick {
        waits.extend(task.await.expect("no task fails"));
    }
    assert!(waits.len() > 1_000, "{} queries", waits.len());
    let p99 = p99(waits);
    assert!(p99 < QUICK, "p99 {p99:?}");
    for sleeper in sleepers {
        sleeper.await.expect("no sleeper fails");
    }
    pool.close().await;
    other.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sleepers_on_leases_concern_nobody() {
    let name = own_name("leases");
    let (pool, other) = (named_pool(&name).await, pool().await);
    all_shared(&pool).await;
    let mut sleepers = Vec::new();
    for _ in 0..6 {
        let session = pool.session().await.expect("a session");
        sleepers.push(tokio::spawn(async move { session.execute(sleep(SLEEP), ()).await.map(drop) }));
    }
    eventually("all sleep", || async { asleep(&other, &name).await == 6 }).await;
    let began = Instant::now();
    for n in 0..200_i32 {
        let (back,): (i32,) = pool.query_one(ECHO, (n,)).await.expect("an answer");
        assert_eq!(back, n);
    }
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    for sleeper in sleepers {
        sleeper.await.expect("no panic").expect("awake");
    }
    pool.close().await;
    other.close().await;
}
