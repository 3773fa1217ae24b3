//! How long the server is expected to work on a request, learnt from how long it did.

use std::sync::atomic::{AtomicU32, Ordering};

/// A smoothed service time, in microseconds; what [`Request`](crate::wire::Request) tells the engine of a statement.
#[derive(Debug)]
pub struct Estimate(AtomicU32);

impl Estimate {
    /// What a statement that nobody has run yet is expected to take.
    const UNKNOWN_MICROS: u32 = 100;
    const LONGEST_MICROS: u32 = 2_000_000;

    /// What is expected now.
    pub fn expected_micros(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }

    /// A sixteenth of the difference counts. Two observations at once may lose one: it is an estimate.
    pub fn observed_micros(&self, micros: u32) {
        let before = self.0.load(Ordering::Relaxed);
        let seen = micros.min(Self::LONGEST_MICROS);
        let after = before - before / 16 + seen / 16;
        if after != before {
            self.0.store(after.max(1), Ordering::Relaxed);
        }
    }
}

impl Default for Estimate {
    fn default() -> Self {
        Self(AtomicU32::new(Self::UNKNOWN_MICROS))
    }
}

/// A copy goes on from what is expected now.
impl Clone for Estimate {
    fn clone(&self) -> Self {
        Self(AtomicU32::new(self.expected_micros()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_follows_what_is_seen() {
        let micros = Estimate::default();
        for _ in 0..200 {
            micros.observed_micros(50_000);
        }
        assert!(micros.expected_micros() > 40_000);
        for _ in 0..200 {
            micros.observed_micros(20);
        }
        assert!(micros.expected_micros() < 100);
    }
}
