//! Nobody waits for a timer: with a server that answers at once no virtual time passes, whatever the load.
//!
//! The pipes have a coarse timer, and the waiting queue has one. They are for deadlines. A wake-up that is lost would
//! hide behind them as a few milliseconds; here every one of them shows.

mod support;

use std::time::Duration;

use futures_util::future::join_all;
use support::{Server, ask, begin, options, pool, run, run_on, until_idle};
use tokio::time::Instant;
use wire_pipeline::Options;
use wire_pipeline::options::BatchesOut;

/// Every way to limit a pool that changes who waits for whom.
fn limits() -> Vec<Options> {
    let mut all = Vec::new();
    for connections in [1, 2, 3, 8] {
        for max_in_flight in [1, 2, 256] {
            for batches_out in [BatchesOut::Adaptive, BatchesOut::Fixed(1), BatchesOut::Fixed(3)] {
                for queue_bytes in [1, 4 << 20] {
                    all.push(Options { max_in_flight, batches_out, queue_bytes, ..options(connections) });
                }
            }
        }
    }
    all
}

#[tokio::test(start_paused = true)]
async fn single_requests_and_bursts_take_no_time() {
    for limits in limits() {
        let server = Server::with_buffer(512);
        let pool = pool(&server, limits.clone()).await;
        let began = Instant::now();
        for id in 0..20 {
            run(&pool, ask(id).size(id * 100)).await.expect("an answer");
        }
        for burst in [2, 7, 100] {
            let all = (0..burst).map(|id| {
                let request = ask(id).size(id * 7).padding(id as usize * 13);
                run(&pool, if id % 3 == 0 { request.needs(burst + id % 4) } else { request })
            });
            assert!(join_all(all).await.iter().all(Result::is_ok), "{limits:?}");
        }
        assert_eq!(began.elapsed(), Duration::ZERO, "somebody waited for a timer: {limits:?}");
        until_idle(&pool).await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_dropped_or_fails_delays_nobody() {
    for limits in limits() {
        let server = Server::with_buffer(512);
        let pool = pool(&server, limits.clone()).await;
        let began = Instant::now();
        for round in 0..10 {
            let all = (0..30).map(|id| {
                let request = ask(100 * round + id).size(id * 50);
                let request = match id % 5 {
                    0 => request.fails(),
                    1 => request.unwritable(),
                    2 => request.needs(round % 3),
                    _ => request,
                };
                let limited = support::drop_after(run(&pool, request), id as usize % 7);
                async move { if id % 2 == 0 { limited.await } else { None } }
            });
            let stays = (0..30).map(|id| run(&pool, ask(100 * round + 50 + id)));
            let (_, stays) = tokio::join!(join_all(all), join_all(stays));
            assert!(stays.iter().all(Result::is_ok), "{limits:?}");
        }
        assert_eq!(began.elapsed(), Duration::ZERO, "somebody waited for a timer: {limits:?}");
        until_idle(&pool).await;
    }
}

#[tokio::test(start_paused = true)]
async fn leases_and_resets_take_no_time() {
    for limits in limits().into_iter().filter(|limits| limits.connections > 1) {
        let server = Server::with_buffer(512);
        let pool = pool(&server, limits.clone()).await;
        let began = Instant::now();
        let holders = (0..20).map(|id| {
            let pool = &pool;
            async move {
                let lease = pool.lease().await.expect("a lease");
                if id % 2 == 0 {
                    lease.set_opening(begin(id));
                }
                if id % 3 == 0 {
                    lease.touch();
                }
                for step in 0..3 {
                    run_on(&lease, ask(1_000 + 10 * id + step).needs(step)).await.expect("an answer");
                }
            }
        });
        let others = (0..100).map(|id| {
            let request = ask(id);
            run(&pool, if id % 10 == 0 { request.touches() } else { request })
        });
        let (_, others) = tokio::join!(join_all(holders), join_all(others));
        assert!(others.iter().all(Result::is_ok), "{limits:?}");
        assert_eq!(began.elapsed(), Duration::ZERO, "somebody waited for a timer: {limits:?}");
        until_idle(&pool).await;
    }
}
