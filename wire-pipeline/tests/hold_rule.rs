//! Batches form by themselves, and nobody is forgotten while entries are held back.

mod support;

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use support::{Server, ask, options, poll_once, pool, run, until, until_idle};
use wire_pipeline::Options;
use wire_pipeline::options::BatchesOut;

#[tokio::test(start_paused = true)]
async fn what_comes_while_a_batch_is_out_leaves_together() {
    let server = Server::new();
    let pool = pool(&server, Options { batches_out: BatchesOut::Fixed(1), ..options(1) }).await;
    let mut first = Box::pin(run(&pool, ask(0).takes(Duration::from_millis(4))));
    assert!(poll_once(first.as_mut()).await.is_none());
    until("it is out", || server.asked() == [0]).await;
    let mut others = Box::pin(join_all((1..=16).map(|id| run(&pool, ask(id)))));
    assert!(poll_once(others.as_mut()).await.is_none());
    assert_eq!(pool.stats().pipes[0].writes, 1, "they are held back");
    first.await.expect("an answer");
    for answer in others.await {
        answer.expect("an answer");
    }
    let pipe = &pool.stats().pipes[0];
    assert_eq!(pipe.writes, 2, "two batches, two writes");
    assert_eq!(pipe.batch_sizes[0], 1, "one of 1");
    assert_eq!(pipe.batch_sizes[4], 1, "one of 16 to 31");
    assert_eq!((pipe.batched, pipe.queries), (17, 17));
}

#[tokio::test(start_paused = true)]
async fn several_batches_may_be_out_where_that_is_asked_for() {
    let server = Server::new();
    let pool = pool(&server, Options { batches_out: BatchesOut::Fixed(2), ..options(1) }).await;
    let mut all: Vec<_> =
        (0..3).map(|id| Box::pin(run(&pool, ask(id).takes(Duration::from_millis(4))))).collect();
    for (index, request) in all.iter_mut().enumerate() {
        assert!(poll_once(request.as_mut()).await.is_none());
        tokio::time::sleep(Duration::from_micros(100)).await;
        let writes = pool.stats().pipes[0].writes;
        assert_eq!(writes, [1, 2, 2][index], "after {index}");
    }
    for answer in join_all(all).await {
        answer.expect("an answer");
    }
}

/// No wake-up is lost, whatever the limits: every one of many tasks is answered, with its own answer.
async fn saturate(tasks: u32, max_in_flight: usize) {
    let server = Server::new();
    let pool = Arc::new(pool(&server, Options { max_in_flight, ..options(2) }).await);
    let all = (0..tasks).map(|id| {
        let pool = Arc::clone(&pool);
        tokio::spawn(async move { run(&pool, ask(id).size(id % 50)).await })
    });
    for answer in join_all(all).await {
        answer.expect("no panic").expect("an answer");
    }
    let mut asked = server.asked();
    asked.sort_unstable();
    assert_eq!(asked, (0..tasks).collect::<Vec<_>>(), "each ran exactly once");
    until_idle(&pool).await;
}

#[tokio::test(start_paused = true)]
async fn no_wake_up_is_lost_at_saturation() {
    for max_in_flight in [1, 2, 4] {
        saturate(10_000, max_in_flight).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_wake_up_is_lost_at_saturation_on_several_threads() {
    for max_in_flight in [1, 2, 4] {
        let all = saturate(10_000, max_in_flight);
        tokio::time::timeout(Duration::from_secs(60), all).await.expect("everybody is answered");
    }
}
