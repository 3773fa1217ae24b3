//! How long to wait before a unit of work is run again.
//!
//! Those who collided once would collide again if they came back together: waits double, and chance spreads them.

use std::time::Duration;

use tokio::time::Instant;

use crate::jitter::Jitter;

/// How often a unit of work may be run again, and until when.
#[derive(Debug)]
pub struct Retries {
    left: u32,
    until: Instant,
    wait: Duration,
    jitter: Jitter,
}

impl Retries {
    const FIRST: Duration = Duration::from_millis(4);
    const LONGEST: Duration = Duration::from_millis(500);

    /// At most `count` times, and not after `limit` from now.
    pub fn new(count: u32, limit: Duration, seed: Option<u64>) -> Self {
        let until = Instant::now() + limit;
        Self { left: count, until, wait: Self::FIRST, jitter: Jitter::new(seed, u64::from(count)) }
    }

    /// How long to wait before the next run; `None` when there is none. The first wait is 2 to 4 ms, and the longest
    /// 500 ms.
    pub fn next_wait(&mut self) -> Option<Duration> {
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
