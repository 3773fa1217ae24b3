//! What the suites share: two sides with the same names, one for each database, names of one's own, random numbers that
//! a seed repeats, and conditions that are awaited instead of slept for.
//!
//! A topic is written once, in `tests/topics`, against `super::side`; the programs in `tests` compile it for
//! [`postgres`] and for [`mysql`].

#![allow(clippy::duplicate_mod, reason = "compiled once for each database")]

pub mod mysql;
pub mod odd_values;
pub mod postgres;
pub mod proxy;

use std::future::Future;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Multiplies the counts of long suites: 1 in the normal run, set by `SCALE` in the full one.
pub fn scale() -> usize {
    std::env::var("SCALE").ok().and_then(|scale| scale.parse().ok()).unwrap_or(1)
}

/// A name that no other test of this run has, valid as an identifier.
pub fn own_name(topic: &str) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("{topic}_{}_{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Asks until `condition` holds; fails with `what` when it does not within thirty seconds.
pub async fn eventually<F: Future<Output = bool>>(what: &str, mut condition: impl FnMut() -> F) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !condition().await {
        assert!(Instant::now() < deadline, "within thirty seconds: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Random numbers for tests: the same seed gives the same numbers.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// From a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// A number below `limit`.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) % limit.max(1)
    }
}

/// Polls a future a number of times and then drops it.
pub async fn poll_then_drop<F: Future>(future: F, polls: u64) -> Option<F::Output> {
    let mut future = Box::pin(future);
    let mut left = polls;
    std::future::poll_fn(|cx| {
        if left == 0 {
            return std::task::Poll::Ready(None);
        }
        left -= 1;
        future.as_mut().poll(cx).map(Some)
    })
    .await
}
