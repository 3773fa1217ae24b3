//! Work that is run again from the beginning when others were in its way.
//!
//! Those who collided once would collide again if they came back together: waits double, and chance spreads them. Knows
//! that work begins, ends and can be undone; how, the driver says.

use std::time::Duration;

use tokio::time::Instant;

use crate::call::Leased;
use crate::error::{Outcome, ServerError};
use crate::jitter::Jitter;
use crate::pool::Pool;
use crate::wire::{Driver, Fault};

/// A transaction that was begun, in which work is done: a handle, cheap to clone.
pub trait Attempt<D: Driver>: Clone {
    /// The lease that it runs on.
    fn leased(&self) -> &Leased<D>;

    /// Ends it for good. [`Outcome::Failed`] when it is certain that nothing of it stays.
    fn commit(&self) -> impl Future<Output = Result<(), Fault<D>>> + Send;

    /// Undoes it, and waits until it is undone.
    fn roll_back(&self) -> impl Future<Output = Result<(), Fault<D>>> + Send;
}

/// Runs `work` between `begin` and its commit, and again from the beginning when the server has undone it because others
/// were in its way: up to `count` times, for no longer than the pool's `query_timeout`.
///
/// Whether others were in its way is told by what the server said of the statements, not by what `work` makes of it: so
/// its error may be of any kind. Nothing is run again when it is not known whether it was committed, nor when something
/// else than its handle has ended the transaction: then that is the error, whatever `work` returns.
pub async fn run<D, A, T, E, B, F, W>(
    pool: &Pool<D>,
    count: u32,
    begin: impl Fn() -> B,
    mut work: F,
    told: impl Fn(Fault<D>) -> E,
) -> Result<T, E>
where
    D: Driver,
    A: Attempt<D>,
    B: Future<Output = Result<A, Fault<D>>>,
    F: FnMut(A) -> W,
    W: Future<Output = Result<T, E>>,
{
    let options = pool.options();
    let mut retries = Retries::new(count, options.query_timeout, options.seed);
    loop {
        let attempt = begin().await.map_err(&told)?;
        let (error, undone) = match work(attempt.clone()).await {
            Ok(done) => match attempt.commit().await {
                Ok(()) => return Ok(done),
                Err(error) => {
                    let undone = error.outcome() == Outcome::Failed
                        && (attempt.leased().may_retry()
                            || error.server().is_some_and(ServerError::is_retryable));
                    (told(error), undone)
                }
            },
            // It was never asked to be committed, and never is.
            Err(error) => (error, attempt.leased().may_retry()),
        };
        // Its locks are gone before it is run again; when that cannot be had, they go with the connection.
        let _ = attempt.roll_back().await;
        // Of what something else than the handle has committed, nothing is undone by that; whatever the work makes of it.
        if let Some(ended) = attempt.leased().ended() {
            return Err(told(ended));
        }
        let undone = undone && !attempt.leased().must_not_retry();
        drop(attempt);
        let Some(wait) = undone.then(|| retries.next_wait()).flatten() else { return Err(error) };
        pool.until(Instant::now() + wait, std::future::pending::<()>()).await;
    }
}

/// How often a unit of work may be run again, and until when.
#[derive(Debug)]
struct Retries {
    left: u32,
    until: Instant,
    wait: Duration,
    jitter: Jitter,
}

impl Retries {
    const FIRST: Duration = Duration::from_millis(4);
    const LONGEST: Duration = Duration::from_millis(500);

    /// At most `count` times, and not after `limit` from now.
    fn new(count: u32, limit: Duration, seed: Option<u64>) -> Self {
        let until = Instant::now() + limit;
        Self { left: count, until, wait: Self::FIRST, jitter: Jitter::new(seed, u64::from(count)) }
    }

    /// How long to wait before the next run; `None` when there is none. The first wait is 2 to 4 ms, and the longest
    /// 500 ms.
    fn next_wait(&mut self) -> Option<Duration> {
        let wait = self.wait.mul_f64(0.5 + 0.5 * self.jitter.fraction());
        if self.left == 0 || Instant::now() + wait >= self.until {
            return None;
        }
        self.left -= 1;
        self.wait = (self.wait * 2).min(Self::LONGEST);
        Some(wait)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn waits_double_within_their_bounds_and_end_with_count_or_time() {
        let mut retries = Retries::new(10, Duration::from_secs(60), Some(1));
        let waits: Vec<Duration> = std::iter::from_fn(|| retries.next_wait()).collect();
        assert_eq!(waits.len(), 10);
        for (index, wait) in waits.iter().enumerate() {
            let whole = (Retries::FIRST * 2_u32.pow(index as u32)).min(Retries::LONGEST);
            assert!((whole / 2..=whole).contains(wait), "{index}: {wait:?}");
        }
        let mut short = Retries::new(10, Duration::from_millis(10), Some(1));
        assert!(short.next_wait().is_some());
        tokio::time::advance(Duration::from_millis(10)).await;
        assert_eq!(short.next_wait(), None);
    }
}
