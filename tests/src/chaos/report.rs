//! The account of a run.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use super::super::oracle::Counts;

/// What a run came to.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// What chose the order of events.
    pub seed: u64,
    /// Which server it was.
    pub server: String,
    /// How its pool was set up.
    pub setup: String,
    /// How long it went on.
    pub time: Duration,
    /// What happened, and how often.
    pub events: BTreeMap<String, u64>,
    /// The books of answers and writes.
    pub counts: Counts,
    /// How much money there is, and how much there should be.
    pub money: (i64, i64),
    /// Transfers that were acknowledged.
    pub moved: usize,
    /// Panics in users' decoding, each of its own task alone.
    pub panics: u64,
    /// What outlived those that it belonged to.
    pub leaks: Vec<String>,
    /// The most statements prepared on one connection.
    pub prepared: i64,
    /// What else was not right.
    pub wrong: Vec<String>,
    /// After outages: how long until the first answer, once the server could be used.
    pub served: Vec<Duration>,
    /// The same where the network was bad besides: what it had swallowed must run out of time first.
    pub served_worse: Vec<Duration>,
    /// How long until all connections were back, on a good network.
    pub whole: Vec<Duration>,
    /// Attempts to connect during outages, and how long these were.
    pub outages: Vec<(u64, Duration)>,
}

impl Report {
    pub(super) fn new(seed: u64, server: String, setup: String) -> Self {
        Self { seed, server, setup, ..Self::default() }
    }

    /// Fails if anything was not as it must be.
    ///
    /// # Panics
    ///
    /// Then.
    pub fn assert_right(&self) {
        assert!(self.wrong.is_empty(), "seed {}: {:#?}", self.seed, self.wrong);
        assert!(self.leaks.is_empty(), "seed {}: leaks: {:#?}", self.seed, self.leaks);
        self.counts.assert_true(self.seed);
        assert_eq!(self.money.0, self.money.1, "seed {}: money", self.seed);
        assert!(self.counts.longest_call < super::CALL, "seed {}: {:?}", self.seed, self.counts.longest_call);
        for (attempts, time) in &self.outages {
            // Ten at once, when all connections are lost, and ten a second.
            let most = 10.0 + 10.0 * time.as_secs_f64();
            assert!((*attempts as f64) < most, "seed {}: {attempts} attempts in {time:?}", self.seed);
        }
    }
}

/// The value below which so many hundredths lie.
fn percentile(times: &[Duration], hundredths: usize) -> Duration {
    let mut sorted = times.to_vec();
    sorted.sort();
    let place = (sorted.len() * hundredths).div_ceil(100).saturating_sub(1);
    sorted.get(place).copied().unwrap_or_default()
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, server, time, events, counts, leaks, wrong, .. } = self;
        let happened: Vec<_> = events.iter().map(|(event, times)| format!("{event} {times}")).collect();
        let failed: Vec<_> = counts.failed.iter().map(|(kind, times)| format!("{kind} {times}")).collect();
        let recovery = |times: &[Duration]| {
            let at = |hundredths| percentile(times, hundredths);
            format!("p50 {:.2?}, p99 {:.2?}, max {:.2?} ({} outages)", at(50), at(99), at(100), times.len())
        };
        let (attempts, away) = self
            .outages
            .iter()
            .fold((0, Duration::ZERO), |(n, t), (attempts, time)| (n + attempts, t + *time));
        writeln!(f, "chaos, seed {seed}, {:.0} s, {server}", time.as_secs_f64())?;
        writeln!(f, "  pool         {}", self.setup)?;
        writeln!(f, "  happened     {}", happened.join(", "))?;
        writeln!(
            f,
            "  answered     {} ({} transfers); dropped {}",
            counts.answered, self.moved, counts.dropped
        )?;
        writeln!(f, "  failed       {}", failed.join(", "))?;
        writeln!(
            f,
            "  wrong        mixed up {}, lost {}, doubled {}, undead {}, unexplained {}, money {} of {}, others {}",
            counts.mixed_up,
            counts.lost,
            counts.doubled,
            counts.undead,
            counts.unexplained,
            self.money.0,
            self.money.1,
            wrong.len()
        )?;
        writeln!(
            f,
            "  leaks        {}; at most {} statements prepared on a connection; {} panics in decoding",
            leaks.len(),
            self.prepared,
            self.panics
        )?;
        writeln!(
            f,
            "  longest      call {:.1?}, silence {:.1?}",
            counts.longest_call, counts.longest_silence
        )?;
        writeln!(f, "  served again {}", recovery(&self.served))?;
        writeln!(f, "  .. bad network {}", recovery(&self.served_worse))?;
        writeln!(f, "  whole again  {}", recovery(&self.whole))?;
        let rate = attempts as f64 / away.as_secs_f64().max(f64::MIN_POSITIVE);
        write!(
            f,
            "  knocks       {attempts} in {:.1} s without a server: {rate:.1} a second",
            away.as_secs_f64()
        )
    }
}
