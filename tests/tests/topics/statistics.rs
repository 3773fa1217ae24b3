//! What a pool tells of its work, on a real server and against peers that end connections in their own ways.

use std::time::Duration;

use integration_tests::{eventually, own_name};

use super::hostile_peers::{answers_with, pool_of_one, seven};
use super::side::dialect::{ECHO, sleep};
use super::side::peer::garbage;
use super::side::{
    CallOptions, Losses, Pool, Row, all_shared, asleep, config, named_config, named_pool, number, pool,
    pool_of, terminate,
};

#[tokio::test]
async fn waits_service_and_batches_are_counted_per_pipe_and_in_total() {
    let pool = pool_of(2).await;
    all_shared(&pool).await;
    pool.query_one::<(i32,)>(ECHO, (0,)).await.expect("known from here on");
    let before = pool.stats().work();
    let all = (0..200).map(|n| pool.query_one::<(i32,)>(ECHO, (n,)));
    for answer in futures_util::future::join_all(all).await {
        answer.expect("an answer");
    }
    let slept = Duration::from_millis(300);
    pool.query::<Row>(sleep(slept.as_secs_f64()), ()).await.expect("awake");
    let stats = pool.stats();
    let work = stats.work();
    // What had to be learnt or prepared first is counted beside them.
    assert!(work.queries - before.queries >= 201, "{work:?}");
    assert_eq!(work.queries, stats.pipes.iter().map(|pipe| pipe.queries).sum::<u64>());
    assert_eq!(work.errors, 0);
    assert!(work.waits.count() >= 201 && work.service.count() == work.queries, "{work:?}");
    let longest = work.service.quantile(1.0).expect("answers");
    assert!(longest >= slept && longest < 4 * slept.max(Duration::from_secs(2)), "{longest:?}");
    assert!(work.service.quantile(0.5).expect("answers") < longest, "{work:?}");
    assert!(work.service.sum() >= slept);
    // Two hundred at once leave in few writes; in how many reads they come back is the server's to say.
    let reads: u64 = work.answers_per_read.iter().sum::<u64>() - before.answers_per_read.iter().sum::<u64>();
    let batches: u64 = work.batch_sizes.iter().sum::<u64>() - before.batch_sizes.iter().sum::<u64>();
    assert!(batches < 100, "{batches} batches: {work:?}");
    assert!(reads > 0 && reads <= work.queries - before.queries, "{reads} reads: {work:?}");
    assert!(work.statements_cached >= 2 && work.statements_evicted == 0, "{work:?}");
    assert_eq!((work.losses, work.reconnects), (Losses::default(), 0));
    pool.close().await;
}

#[tokio::test]
async fn who_is_behind_a_slow_one_is_counted() {
    let pool = pool_of(1).await;
    all_shared(&pool).await;
    let slow = sleep(0.3);
    for _ in 0..2 {
        pool.query::<Row>(&slow, ()).await.expect("known from here on");
        pool.query_one::<(i32,)>(ECHO, (0,)).await.expect("known from here on");
    }
    let before = pool.stats().work().head_of_line_waits;
    // They leave in one batch, because nothing else runs in between.
    let (slept, one, two) = tokio::join!(
        pool.query::<Row>(&slow, ()),
        pool.query_one::<(i32,)>(ECHO, (1,)),
        pool.query_one::<(i32,)>(ECHO, (2,))
    );
    slept.expect("awake");
    one.and(two).expect("answers");
    assert_eq!(pool.stats().work().head_of_line_waits - before, 2);
    pool.close().await;
}

#[tokio::test]
async fn answers_that_nobody_waits_for_are_counted() {
    let name = own_name("discarded");
    let (pool, other) = (named_pool(&name).await, pool().await);
    all_shared(&pool).await;
    let slow = sleep(0.5);
    tokio::select! {
        _ = pool.query::<Row>(&slow, ()) => panic!("dropped before it is awake"),
        () = eventually("it sleeps", || async { asleep(&other, &name).await == 1 }) => {}
    }
    eventually("its answer was thrown away", || async { pool.stats().work().discarded == 1 }).await;
    let view = pool.with(CallOptions::new().timeout(Duration::from_secs(1)));
    view.query::<Row>(sleep(600.0), ()).await.expect_err("too slow");
    eventually("what came of it was too", || async { pool.stats().work().discarded == 2 }).await;
    pool.close().await;
    other.close().await;
}

#[tokio::test]
async fn statements_that_make_room_for_others_are_counted() {
    let config = config().await.connections(1).statement_cache(2);
    let pool = Pool::builder(config).connect().await.expect("a pool");
    for n in 0..5 {
        pool.query::<Row>(format!("SELECT {n}"), ()).await.expect("an answer");
    }
    let work = pool.stats().work();
    assert_eq!((work.statements_cached, work.statements_evicted), (2, 3), "{work:?}");
    pool.close().await;
}

#[tokio::test]
async fn connections_that_end_are_counted_by_reason() {
    let name = own_name("ended");
    let (other, config) = (pool().await, named_config(&name).await.connections(1));
    let pool = Pool::builder(config).connect().await.expect("a pool");
    terminate(&other, number(&pool).await).await;
    eventually("it was replaced", || async { pool.stats().work().reconnects == 1 }).await;
    assert_eq!((pool.stats().work().losses.ended, pool.stats().work().losses.stalled), (1, 0));
    pool.close().await;

    let config = super::side::config().await.connections(1).max_lifetime(Duration::from_secs(1));
    let pool = Pool::builder(config).connect().await.expect("a pool");
    eventually("it was replaced", || async { pool.stats().work().losses.lifetime >= 1 }).await;
    assert_eq!(pool.stats().work().losses.ended, 0);
    pool.close().await;

    let peer = answers_with(garbage().remove(0)).await;
    let pool = pool_of_one(&peer);
    seven(&pool).await.expect_err("garbage");
    eventually("it was replaced", || async { pool.stats().work().losses.protocol == 1 }).await;
    pool.close().await;

    let peer = answers_with(Vec::new()).await;
    let builder = Pool::builder(peer.config()).connections(1).query_timeout(Duration::from_millis(500));
    let pool = builder.stall_timeout(Duration::from_millis(200)).connect().await.expect("a pool");
    seven(&pool).await.expect_err("never answered");
    eventually("it was replaced", || async { pool.stats().work().losses.stalled == 1 }).await;
    pool.close_within(Duration::ZERO).await;
}
