//! Connections that end for a reason of the server's or of time's: noticed before a statement is wasted on them, made
//! again without a storm, and replaced without anybody noticing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use integration_tests::{eventually, own_name};
use tokio::net::TcpStream;

use super::side::dialect::{ECHO, IDLE_OUT};
use super::side::{
    ErrorKind, Outcome, PipeState, Pool, all_shared, config, named_config, pool, reconnects, shared_pipes,
    terminate_all,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_connection_that_the_server_closes_is_replaced_before_a_statement_is_wasted_on_it() {
    let idle_out = config().await.connections(3).setup([IDLE_OUT]);
    let pool = Pool::builder(idle_out).connect().await.expect("a pool");
    all_shared(&pool).await;
    for round in 0..3 {
        let before = reconnects(&pool);
        eventually("all connections were closed and made again", || async {
            reconnects(&pool) >= before + 3 && shared_pipes(&pool) == 3
        })
        .await;
        for n in 0..30 {
            let (back,): (i32,) =
                pool.query_one(ECHO, (n,)).await.unwrap_or_else(|error| panic!("round {round}: {error:?}"));
            assert_eq!(back, n);
        }
    }
    pool.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_the_server_is_away_one_connection_knocks_and_all_are_back_within_a_second() {
    let name = own_name("away");
    let other = pool().await;
    let (away, asked) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let config = named_config(&name).await.transport({
        let (away, asked) = (Arc::clone(&away), Arc::clone(&asked));
        move |host, port| {
            let away = away.load(Ordering::SeqCst);
            asked.fetch_add(1, Ordering::SeqCst);
            async move {
                if away {
                    return Err(std::io::ErrorKind::ConnectionRefused.into());
                }
                // The name is looked up again each time.
                TcpStream::connect((host, port)).await
            }
        }
    });
    let pool = Pool::builder(config).query_timeout(Duration::from_secs(20)).connect().await.expect("a pool");
    all_shared(&pool).await;
    let stop = Arc::new(AtomicBool::new(false));
    let tasks: Vec<_> = (0..50)
        .map(|n| {
            let (pool, stop) = (pool.clone(), Arc::clone(&stop));
            tokio::spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    if let Err(error) = pool.query_one::<(i32,)>(ECHO, (n,)).await {
                        // What was under way when its connection ended; nothing else fails, it waits.
                        assert_eq!(
                            (error.kind(), error.outcome()),
                            (ErrorKind::Io, Outcome::Unknown),
                            "{error:?}"
                        );
                    }
                }
            })
        })
        .collect();
    away.store(true, Ordering::SeqCst);
    eventually("all are gone", || async {
        terminate_all(&other, &name).await;
        pool.stats().pipes.iter().all(|pipe| pipe.state == PipeState::Connecting)
    })
    .await;
    let (asked_before, began) = (asked.load(Ordering::SeqCst), Instant::now());
    // The outage itself, for as long as back-off takes to reach its longest wait and stay there.
    tokio::time::sleep(Duration::from_secs(4)).await;
    let knocks = asked.load(Ordering::SeqCst) - asked_before;
    let rate = knocks as f64 / began.elapsed().as_secs_f64();
    away.store(false, Ordering::SeqCst);
    let back = Instant::now();
    pool.query_one::<(i32,)>(ECHO, (1,)).await.expect("it is back");
    let first = back.elapsed();
    all_shared(&pool).await;
    let all = back.elapsed();
    println!("knocks: {knocks} ({rate:.1} a second); back after {first:?}, all connections after {all:?}");
    assert!(knocks >= 3 && rate < 4.0, "{knocks}");
    // The longest wait is a second; what connecting takes comes on top on a busy machine.
    assert!(first < Duration::from_millis(1_500), "{first:?}");
    stop.store(true, Ordering::Relaxed);
    for task in tasks {
        task.await.expect("nothing else fails");
    }
    pool.close().await;
    other.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_have_lived_their_time_are_replaced_and_no_statement_fails() {
    let config = config().await.connections(4).max_lifetime(Duration::from_secs(1));
    let pool = Pool::builder(config).connect().await.expect("a pool");
    all_shared(&pool).await;
    let stop = Arc::new(AtomicBool::new(false));
    let tasks: Vec<_> = (0..20)
        .map(|n| {
            let (pool, stop) = (pool.clone(), Arc::clone(&stop));
            tokio::spawn(async move {
                let mut answers = 0_u32;
                while !stop.load(Ordering::Relaxed) {
                    let (back,): (i32,) = pool.query_one(ECHO, (n,)).await.expect("an answer");
                    assert_eq!(back, n);
                    answers += 1;
                }
                answers
            })
        })
        .collect();
    eventually("each of them was replaced", || async {
        pool.stats().pipes.iter().all(|pipe| pipe.reconnects >= 1)
    })
    .await;
    stop.store(true, Ordering::Relaxed);
    for task in tasks {
        assert!(task.await.expect("no statement fails") > 0);
    }
    pool.close().await;
}
