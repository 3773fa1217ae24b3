//! What happened in a run: a hash over all events in their order, the violations found, and a trace if one is wanted.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;

/// The events of one run.
#[derive(Debug)]
pub struct Log {
    began: Instant,
    trace: bool,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    hash: u64,
    events: u64,
    violations: Vec<String>,
    /// How often each thing happened.
    seen: Seen,
    /// Steps since time went on, and in all.
    steps: (u64, u64),
    at: u128,
}

/// How often each thing happened.
pub type Seen = BTreeMap<&'static str, u64>;

/// More steps than this while time stands still are no progress.
const MOST_STEPS_AT_ONCE: u64 = 300_000;
/// No run is so long.
const MOST_STEPS: u64 = 5_000_000;

impl Log {
    /// An empty log; with `trace` every event is printed as it happens. Inside of the runtime whose time it tells.
    pub fn new(trace: bool) -> Self {
        let state = State {
            hash: 0xcbf2_9ce4_8422_2325,
            events: 0,
            violations: Vec::new(),
            seen: Seen::new(),
            steps: (0, 0),
            at: 0,
        };
        Self { began: Instant::now(), trace, state: Mutex::new(state) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Something happened; the numbers say to whom.
    pub fn note(&self, what: &'static str, numbers: [i64; 3]) {
        let now = self.began.elapsed().as_millis();
        let mut state = self.state();
        let mut hash = state.hash;
        let mut mix = |byte: u8| hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        (now as u64).to_le_bytes().into_iter().for_each(&mut mix);
        what.bytes().for_each(&mut mix);
        numbers.iter().flat_map(|number| number.to_le_bytes()).for_each(&mut mix);
        state.hash = hash;
        state.events += 1;
        *state.seen.entry(what).or_default() += 1;
        drop(state);
        if self.trace {
            println!("{now:>8} ms  {what} {} {} {}", numbers[0], numbers[1], numbers[2]);
        }
    }

    /// Words for a trace, which do not count.
    pub fn remark(&self, words: impl FnOnce() -> String) {
        if self.trace {
            println!("{:>8} ms    {}", self.began.elapsed().as_millis(), words());
        }
    }

    /// Something that must never happen.
    pub fn violation(&self, words: impl std::fmt::Display) {
        self.remark(|| format!("VIOLATION: {words}"));
        self.state().violations.push(format!("after {} ms: {words}", self.began.elapsed().as_millis()));
    }

    /// One turn of reading or writing. False when there are so many that nothing can come of it.
    pub fn step(&self) -> bool {
        let now = self.began.elapsed().as_millis();
        let mut state = self.state();
        if state.at != now {
            state.at = now;
            state.steps.0 = 0;
        }
        state.steps.0 += 1;
        state.steps.1 += 1;
        let fine = state.steps.0 < MOST_STEPS_AT_ONCE && state.steps.1 < MOST_STEPS;
        let first = state.steps.0 == MOST_STEPS_AT_ONCE || state.steps.1 == MOST_STEPS;
        drop(state);
        if first {
            self.violation("no end of reading and writing");
        }
        fine
    }

    /// The hash over all events, their number, the violations, and how often each thing happened.
    pub fn finish(&self) -> (u64, u64, Vec<String>, Seen) {
        let mut state = self.state();
        let state = &mut *state;
        (state.hash, state.events, std::mem::take(&mut state.violations), std::mem::take(&mut state.seen))
    }
}
