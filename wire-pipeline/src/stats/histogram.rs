//! How often something took how long.
//!
//! Classes of times, four for each doubling: a quantile is known to a quarter of itself, whatever it is, and recording
//! costs the same for every time.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The last class has everything from 1.75 × 2^31 µs (about an hour) on.
const CLASSES: usize = 124;

/// How often something took how long; a snapshot.
#[derive(Clone, PartialEq, Eq)]
pub struct Histogram {
    counts: Box<[u64; CLASSES]>,
    micros: u64,
}

impl Histogram {
    /// How many times were recorded.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// All times together.
    pub fn sum(&self) -> Duration {
        Duration::from_micros(self.micros)
    }

    /// The time within which the share `quantile` of all was done, such as 0.99; up to a quarter more than it was.
    /// `None` if nothing was recorded. `quantile` is held to 0..=1.
    pub fn quantile(&self, quantile: f64) -> Option<Duration> {
        let count = self.count();
        let wanted = (quantile.clamp(0.0, 1.0) * count as f64).ceil().max(1.0) as u64;
        let mut seen = 0;
        self.classes().find_map(|(upto, count)| {
            seen += count;
            (seen >= wanted).then_some(upto)
        })
    }

    /// The classes that have any, shortest first: the time that they end at, and how many there are.
    pub fn classes(&self) -> impl Iterator<Item = (Duration, u64)> {
        let classes = self.counts.iter().enumerate().filter(|(_, count)| **count > 0);
        classes.map(|(class, count)| (Duration::from_micros(end_of(class)), *count))
    }

    /// Adds what another one has seen.
    pub fn add(&mut self, other: &Self) {
        for (count, more) in self.counts.iter_mut().zip(other.counts.iter()) {
            *count += more;
        }
        self.micros = self.micros.wrapping_add(other.micros);
    }
}

impl Default for Histogram {
    fn default() -> Self {
        Self { counts: Box::new([0; CLASSES]), micros: 0 }
    }
}

impl std::fmt::Debug for Histogram {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Histogram")
            .field("count", &self.count())
            .field("p50", &self.quantile(0.5))
            .field("p99", &self.quantile(0.99))
            .finish_non_exhaustive()
    }
}

/// Four classes of one microsecond each, then four for each doubling.
fn class_of(micros: u64) -> usize {
    let class = match micros.checked_ilog2() {
        Some(doublings @ 2..) => {
            let quarter = (micros >> (doublings - 2)) & 3;
            (doublings as usize - 1) * 4 + quarter as usize
        }
        _ => micros as usize,
    };
    class.min(CLASSES - 1)
}

/// The first time, in microseconds, that is beyond a class.
fn end_of(class: usize) -> u64 {
    match class {
        0..4 => class as u64 + 1,
        _ => (5 + class as u64 % 4) << (class / 4 - 1),
    }
}

/// What a [`Histogram`] is a snapshot of. One thread at a time records.
#[derive(Debug)]
pub(crate) struct Recorder {
    counts: [AtomicU64; CLASSES],
    micros: AtomicU64,
}

impl Default for Recorder {
    fn default() -> Self {
        Self { counts: std::array::from_fn(|_| AtomicU64::new(0)), micros: AtomicU64::new(0) }
    }
}

impl Recorder {
    pub(crate) fn record(&self, time: Duration) {
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        add(&self.counts[class_of(micros)], 1);
        add(&self.micros, micros);
    }

    pub(crate) fn snapshot(&self) -> Histogram {
        let counts = std::array::from_fn(|class| self.counts[class].load(Ordering::Relaxed));
        Histogram { counts: Box::new(counts), micros: self.micros.load(Ordering::Relaxed) }
    }
}

/// Cheaper than an atomic addition; enough where one thread at a time writes.
pub(super) fn add(counter: &AtomicU64, more: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_follow_each_other_without_a_gap() {
        assert_eq!((class_of(0), class_of(3), class_of(4)), (0, 3, 4));
        for class in 0..CLASSES - 1 {
            let end = end_of(class);
            assert_eq!((class_of(end - 1), class_of(end)), (class, class + 1), "{class}");
        }
        assert_eq!(class_of(u64::MAX), CLASSES - 1);
    }

    #[test]
    fn a_quantile_is_known_to_a_quarter_of_itself() {
        let recorder = Recorder::default();
        for micros in 1..=1_000 {
            recorder.record(Duration::from_micros(micros));
        }
        let histogram = recorder.snapshot();
        assert_eq!((histogram.count(), histogram.sum()), (1_000, Duration::from_micros(500_500)));
        for (quantile, exact) in [(0.5, 500.0), (0.99, 990.0), (1.0, 1_000.0), (2.0, 1_000.0), (0.0, 1.0)] {
            let found = histogram.quantile(quantile).expect("recorded").as_secs_f64() * 1e6;
            assert!(found >= exact && found <= exact * 1.25 + 1.0, "{quantile}: {found}");
        }
        assert_eq!(Histogram::default().quantile(0.5), None);
        let mut both = histogram.clone();
        both.add(&histogram);
        assert_eq!((both.count(), both.quantile(0.5)), (2_000, histogram.quantile(0.5)));
    }
}
