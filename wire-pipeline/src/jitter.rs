//! Small random numbers for spreading things in time; never for secrets.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::Duration;

/// An xorshift generator: the same seed gives the same numbers.
#[derive(Debug)]
pub(crate) struct Jitter(u64);

impl Jitter {
    /// From `seed`, or from the operating system's randomness; `salt` tells generators of one seed apart.
    pub(crate) fn new(seed: Option<u64>, salt: u64) -> Self {
        let seed = seed.unwrap_or_else(|| RandomState::new().build_hasher().finish());
        Self((seed ^ salt.wrapping_mul(0x9e37_79b9_7f4a_7c15)) | 1)
    }

    /// A fraction in `0.0..1.0`.
    pub(crate) fn fraction(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// A number below `limit`, or 0.
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        ((self.fraction() * limit as f64) as usize).min(limit.saturating_sub(1))
    }

    /// `span`, give or take a tenth.
    pub(crate) fn around(&mut self, span: Duration) -> Duration {
        span.mul_f64(0.9 + 0.2 * self.fraction())
    }
}

/// Waits that double from 50 ms to 750 ms, each shortened by up to a quarter so that many clients spread out.
#[derive(Debug)]
pub(crate) struct Backoff {
    jitter: Jitter,
    failures: u32,
}

impl Backoff {
    const FIRST: Duration = Duration::from_millis(50);
    /// A server that is back is found within this; together with the handshake it serves within a second.
    const LONGEST: Duration = Duration::from_millis(750);

    pub(crate) fn new(jitter: Jitter) -> Self {
        Self { jitter, failures: 0 }
    }

    /// A connection stood: start again from the shortest wait.
    pub(crate) fn reset(&mut self) {
        self.failures = 0;
    }

    /// How long to wait after one more failure.
    pub(crate) fn next(&mut self) -> Duration {
        let whole = Self::FIRST.saturating_mul(1 << self.failures.min(10)).min(Self::LONGEST);
        self.failures += 1;
        whole.mul_f64(0.75 + 0.25 * self.jitter.fraction())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_repeats_and_waits_stay_within_their_bounds() {
        let waits = |seed| {
            let mut backoff = Backoff::new(Jitter::new(Some(seed), 3));
            (0..20).map(|_| backoff.next()).collect::<Vec<_>>()
        };
        assert_eq!(waits(7), waits(7));
        assert_ne!(waits(7), waits(8));
        assert!(waits(7)[0] >= Backoff::FIRST / 2);
        assert!(waits(7).iter().all(|wait| *wait <= Backoff::LONGEST));
        assert!(waits(7)[19] >= Backoff::LONGEST / 2);
    }
}
