//! Everything is bounded, limits gate admission and never reading, and an answer over a limit fails alone.

mod support;

use std::time::Duration;

use futures_util::future::join_all;
use support::{LIMIT, Server, ask, options, poll_once, pool, run, until_idle};
use tokio::time::Instant;
use wire_pipeline::Options;
use wire_pipeline::error::{ErrorKind, Outcome};

#[tokio::test(start_paused = true)]
async fn no_more_entries_than_allowed_and_the_rest_waits_in_order() {
    let server = Server::new();
    let pool = pool(&server, Options { max_in_flight: 3, ..options(2) }).await;
    server.deaf.send_replace(true);
    let mut all = Box::pin(join_all((0..50).map(|id| run(&pool, ask(id)))));
    assert!(poll_once(all.as_mut()).await.is_none());
    let stats = pool.stats();
    assert_eq!(stats.in_flight() + stats.waiting, 6);
    assert!(stats.pipes.iter().all(|pipe| pipe.in_flight <= 3));
    server.deaf.send_replace(false);
    for answer in all.await {
        answer.expect("an answer");
    }
    until_idle(&pool).await;
}

#[tokio::test(start_paused = true)]
async fn queued_bytes_are_bounded_and_one_larger_request_passes_alone() {
    let server = Server::new();
    let pool = pool(&server, Options { queue_bytes: 64 * 1024, ..options(1) }).await;
    server.deaf.send_replace(true);
    let sizes = [30_000, 30_000, 30_000, 500_000, 10];
    let mut all = Box::pin(join_all((0..5).map(|id| run(&pool, ask(id as u32).padding(sizes[id])))));
    assert!(poll_once(all.as_mut()).await.is_none());
    // Two of the first, and the small one, which needs no room.
    assert_eq!(pool.stats().in_flight(), 3);
    server.deaf.send_replace(false);
    for answer in all.await {
        answer.expect("an answer");
    }
    until_idle(&pool).await;
}

#[tokio::test(start_paused = true)]
async fn an_answer_over_its_limit_fails_alone() {
    let server = Server::new();
    let pool = pool(&server, Options { max_answer_bytes: 1_000, ..options(1) }).await;
    let answers =
        join_all([10, 1_000, 1_001, 500_000, 10].map(|size| run(&pool, ask(size).size(size)))).await;
    for (index, answer) in answers.into_iter().enumerate() {
        match index {
            2 | 3 => {
                let error = answer.expect_err("too large");
                assert_eq!((error.kind(), error.outcome()), (ErrorKind::Busy, Outcome::Completed));
                assert!(error.to_string().contains("max_answer_bytes (1000 bytes)"), "{error}");
            }
            _ => answer.expect("an answer"),
        }
    }
    assert_eq!(server.connections(), 1);
    until_idle(&pool).await;
}

#[tokio::test(start_paused = true)]
async fn the_budget_gates_admission_until_answers_are_taken() {
    let server = Server::new();
    let pool = pool(&server, Options { answer_budget: 1_000, ..options(1) }).await;
    let held = pool.submit(ask(1).size(1_000), Instant::now() + LIMIT).await.expect("an answer");
    assert_eq!(pool.stats().answer_bytes, 1_000);
    let mut next = Box::pin(run(&pool, ask(2).size(10)));
    assert!(poll_once(next.as_mut()).await.is_none());
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(poll_once(next.as_mut()).await.is_none(), "no room yet");
    assert_eq!(server.asked(), [1]);
    drop(held);
    next.await.expect("an answer");
    until_idle(&pool).await;
}
