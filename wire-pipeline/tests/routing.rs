//! Quick requests find a way past slow ones: an open loop at a fixed rate, in virtual time.
//!
//! Of a hundred requests five are slow, and they take a fifth of what the pipes could work. The quick ones wait hardly
//! longer than without them, whether slowness is known of a statement or a surprise; with the simpler ways of choosing a
//! pipe, which are measured beside it, they wait for many times as long.

mod support;

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use support::{Server, ask, options, pool, run};
use tokio::time::{Instant, sleep_until};
use wire_pipeline::Options;
use wire_pipeline::estimate::Estimate;
use wire_pipeline::options::Routing;

const QUICK: Duration = Duration::from_millis(1);
const SLOW: Duration = Duration::from_millis(50);
const REQUESTS: u32 = 6_000;
/// On 8 pipes: 640 a second, of which 32 slow ones take a fifth of them.
const A_FIFTH: Duration = Duration::from_micros(1_562);
/// 1,600 a second, of which 80 slow ones take half of the pipes.
const HALF: Duration = Duration::from_micros(625);

/// What is slow.
#[derive(Clone, Copy, PartialEq)]
enum Slow {
    Nothing,
    /// A statement of its own.
    Statement,
    /// Every twentieth run of the only statement.
    Surprise,
}

/// Latencies of the quick ones and of the slow ones, sorted.
async fn measure(slow: Slow, routing: Routing, apart: Duration, seed: u64) -> (Vec<Duration>, Vec<Duration>) {
    let server = Server::new();
    let pool = pool(&server, Options { routing, ..options(8) }).await;
    let (quick, other) = (Arc::new(Estimate::default()), Arc::new(Estimate::default()));
    let mut random = seed;
    let mut at = Instant::now();
    let all = (0..REQUESTS).map(|id| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let uniform = ((random >> 33) as f64 + 1.0) / f64::from(1_u32 << 31);
        at += apart.mul_f64(-uniform.min(1.0).ln());
        let is_slow = slow != Slow::Nothing && (random >> 20).is_multiple_of(20);
        let estimate = if is_slow && slow == Slow::Statement { &other } else { &quick };
        let request = ask(id).takes(if is_slow { SLOW } else { QUICK }).learns(estimate);
        let (pool, at) = (&pool, at);
        async move {
            sleep_until(at).await;
            let began = Instant::now();
            run(pool, request).await.expect("an answer");
            (is_slow, began.elapsed())
        }
    });
    let mut latencies = (Vec::new(), Vec::new());
    // The first requests are those from which is learnt.
    for (is_slow, took) in join_all(all).await.into_iter().skip(REQUESTS as usize / 10) {
        if is_slow { latencies.1.push(took) } else { latencies.0.push(took) }
    }
    latencies.0.sort_unstable();
    latencies.1.sort_unstable();
    latencies
}

fn p99(sorted: &[Duration]) -> Duration {
    sorted[sorted.len() * 99 / 100]
}

#[tokio::test(start_paused = true)]
async fn quick_requests_do_not_wait_for_slow_statements() {
    for seed in 1..=3 {
        let (alone, _) = measure(Slow::Nothing, Routing::LeastWork, A_FIFTH, seed).await;
        let (quick, slow) = measure(Slow::Statement, Routing::LeastWork, A_FIFTH, seed).await;
        assert!(p99(&quick) <= 3 * p99(&alone), "{:?} against {:?} alone", p99(&quick), p99(&alone));
        // And nobody is starved for it.
        assert!(p99(&slow) <= 4 * SLOW, "slow ones: {:?}", p99(&slow));
        let (blind, _) = measure(Slow::Statement, Routing::RoundRobin, A_FIFTH, seed).await;
        assert!(p99(&blind) > 3 * p99(&alone), "round robin would do: {:?}", p99(&blind));
    }
}

#[tokio::test(start_paused = true)]
async fn quick_requests_hardly_wait_for_surprises() {
    for seed in 1..=3 {
        let (alone, _) = measure(Slow::Nothing, Routing::LeastWork, A_FIFTH, seed).await;
        let (quick, _) = measure(Slow::Surprise, Routing::LeastWork, A_FIFTH, seed).await;
        assert!(p99(&quick) <= 3 * p99(&alone), "{:?} against {:?} alone", p99(&quick), p99(&alone));
    }
}

#[tokio::test(start_paused = true)]
async fn half_of_the_pipes_full_of_slow_statements_leaves_the_other_half() {
    for seed in 1..=3 {
        let (alone, _) = measure(Slow::Nothing, Routing::LeastWork, HALF, seed).await;
        let (quick, _) = measure(Slow::Statement, Routing::LeastWork, HALF, seed).await;
        let (fewest, _) = measure(Slow::Statement, Routing::LeastInFlight, HALF, seed).await;
        assert!(p99(&quick) <= 3 * p99(&alone), "{:?} against {:?} alone", p99(&quick), p99(&alone));
        assert!(p99(&fewest) > 3 * p99(&alone), "least in flight would do: {:?}", p99(&fewest));
    }
}

#[tokio::test(start_paused = true)]
async fn slow_statements_alone_have_all_pipes() {
    let server = Server::new();
    let pool = pool(&server, options(8)).await;
    let estimate = Arc::new(Estimate::default());
    for _ in 0..40 {
        run(&pool, ask(0).takes(SLOW).learns(&estimate)).await.expect("an answer");
    }
    let began = Instant::now();
    let all = (1..=80).map(|id| run(&pool, ask(id).takes(SLOW).learns(&estimate)));
    assert!(join_all(all).await.iter().all(Result::is_ok));
    assert!(began.elapsed() < 11 * SLOW, "80 on 8 pipes took {:?}", began.elapsed());
}
