//! Which pipe a request goes to: the one where it is expected to wait least.
//!
//! Pipes are first in, first out: whoever is behind a slow request waits for it. So a request goes where the least work
//! is expected, by what its statement and the others took before; all pipes are looked at, because they are few and
//! because choosing among random ones is several times worse at this number. A pipe whose oldest request takes longer
//! than such requests should (it is *hot*) gets nothing new: what finds no cool pipe waits for the first that is.
//!
//! Requests that are known to be slow may be on half of the pipes only, in each of them one at a time (or as many as
//! cover the way to a far server), and wait in a queue of their own, so that the quick ones always find a way past
//! them. While there are no quick ones they may have all pipes.
//!
//! Knows loads, nothing of connections.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::Instant;

use crate::entry::{Class, Entry};
use crate::options::Routing;
use crate::pipe::{Pipe, PipeId, Via};
use crate::pool::shared::Shared;
use crate::wire::Driver;

/// What one more entry costs besides the server's work, in microseconds; also breaks ties towards fewer entries.
const ENTRY_MICROS: u64 = 10;
/// Slow requests may have all pipes when no quick one came for this long.
const QUIET: Duration = Duration::from_secs(1);
/// When a quick request came is noted this exactly.
const NOTED_EVERY: Duration = Duration::from_millis(50);
/// Waiting quick requests that are served for one slow one.
const FAST_FIRST: usize = 8;

/// Which pipes are looked at.
#[derive(Clone, Copy)]
enum Among {
    /// Those that a request waits least on, if it need not wait longer than expected on one of them.
    Cool,
    /// All that are open; for requests that have waited long enough.
    Open,
    /// Cool ones, but for this one.
    Without(PipeId),
}

impl<D: Driver> Shared<D> {
    /// Finds a place for an entry: a pipe's queue, or its class's waiting queue when no pipe takes it. What was admitted
    /// before the pool began to close is still placed.
    pub(crate) fn place(self: &Arc<Self>, entry: Entry<D::Wire>) {
        let class = entry.class();
        if class == Class::Fast {
            self.note_quick();
        }
        if self.overflow.len(class) == 0 {
            match self.route(entry, Among::Cool) {
                Ok(()) => return,
                Err(entry) => self.overflow.push(entry),
            }
        } else {
            self.overflow.push(entry);
        }
        // A pipe may have got room between the search and the push.
        self.serve_overflow();
        if self.has_ended() {
            self.fail_overflow();
        }
    }

    /// Gives waiting entries to pipes that take them, oldest first; quick ones before slow ones, which get their turn.
    pub(crate) fn serve_overflow(&self) {
        if !self.has_overflow() {
            return;
        }
        loop {
            let quick = (0..FAST_FIRST).take_while(|_| self.serve(Class::Fast, Among::Cool)).count();
            let slow = self.serve(Class::Slow, Among::Cool);
            if quick == 0 && !slow {
                break;
            }
        }
        if self.is_closing() && !self.has_overflow() {
            self.wake_all();
        }
    }

    /// Quick requests that have waited for a while go to pipes that are hot, rather than wait for a cool one: it may be
    /// the server as a whole that is slower than expected.
    pub(crate) fn serve_patient(&self) {
        while self.serve(Class::Fast, Among::Open) {}
    }

    /// Gives the oldest waiting entry of a class to a pipe. Whether one was taken out of the queue.
    fn serve(&self, class: Class, among: Among) -> bool {
        while let Some(entry) = self.overflow.pop_some(class) {
            if entry.is_abandoned() {
                return true;
            }
            let Err(entry) = self.route(entry, among) else { return true };
            self.overflow.unpop(entry);
            // While it was out of the waiting queue, whoever got room saw nobody waiting.
            if self.best(class, among).is_none() {
                return false;
            }
        }
        false
    }

    pub(crate) fn has_overflow(&self) -> bool {
        self.overflow.len(Class::Fast) + self.overflow.len(Class::Slow) > 0
    }

    /// Moves an entry from a slow pipe to one that is not, or hands it back.
    pub(crate) fn move_to_quicker(
        &self,
        entry: Entry<D::Wire>,
        slow: &Pipe<D::Wire>,
    ) -> Result<(), Entry<D::Wire>> {
        slow.load.sub(&entry);
        self.route(entry, Among::Without(slow.id)).inspect_err(|entry| slow.load.add(entry))
    }

    /// Puts the entry into the queue of the best pipe.
    fn route(&self, mut entry: Entry<D::Wire>, among: Among) -> Result<(), Entry<D::Wire>> {
        let via = Via::Pool { max_in_flight: self.options.max_in_flight.max(1) };
        // A pipe may fill up or close between the look and the push; then the next best one is tried.
        for _ in 0..self.pipes.len() {
            let Some(best) = self.best(entry.class(), among) else { break };
            match best.push(entry, via) {
                Ok(()) => return Ok(()),
                Err(back) => entry = back,
            }
        }
        Err(entry)
    }

    /// The shared pipe that will be empty first, if it is not the only one: one that is not stuck behind a slow entry,
    /// and has the fewest.
    pub(crate) fn least_busy_of_several(&self) -> Option<&Pipe<D::Wire>> {
        let open = || self.pipes.iter().filter(|pipe| pipe.load.open.load(Ordering::SeqCst));
        if open().count() < 2 {
            None
        } else {
            open().min_by_key(|pipe| (pipe.load.overdue.load(Ordering::Relaxed), pipe.load.entries()))
        }
    }

    /// Whether everybody can use a pipe besides this one.
    pub(crate) fn is_open_without(&self, pipe: &Pipe<D::Wire>) -> bool {
        self.pipes.iter().any(|other| !std::ptr::eq(other, pipe) && other.load.open.load(Ordering::SeqCst))
    }

    /// Whether a pipe that is not stuck could be drained instead of this one, which is.
    pub(crate) fn is_other_quick(&self, slow: &Pipe<D::Wire>) -> bool {
        self.pipes.iter().any(|other| {
            !std::ptr::eq(other, slow)
                && other.load.open.load(Ordering::SeqCst)
                && !other.load.overdue.load(Ordering::Relaxed)
        })
    }

    /// The pipe that a request of this class goes to.
    fn best(&self, class: Class, among: Among) -> Option<&Pipe<D::Wire>> {
        let count = self.pipes.len();
        let start = self.rotation.fetch_add(1, Ordering::Relaxed);
        let now = self.micros(Instant::now());
        let slow_may_spread = class == Class::Fast || self.slow_may_spread(now);
        let mut best = None;
        let mut least = u64::MAX;
        for offset in 0..count {
            let pipe = &self.pipes[start.wrapping_add(offset) % count];
            let load = &pipe.load;
            let entries = load.entries();
            if !load.open.load(Ordering::SeqCst) || entries >= self.options.max_in_flight.max(1) {
                continue;
            }
            let score = match self.options.routing {
                Routing::LeastWork => {
                    let is_cool = !load.overdue.load(Ordering::SeqCst) && !load.is_hot(now);
                    let may = match among {
                        Among::Cool => is_cool,
                        Among::Open => true,
                        Among::Without(slow) => is_cool && pipe.id != slow,
                    };
                    let slow_micros = load.slow_micros();
                    if !may || (class == Class::Slow && slow_micros > load.way_micros()) {
                        continue;
                    }
                    if slow_micros == 0 && !slow_may_spread {
                        continue;
                    }
                    load.micros() + entries as u64 * ENTRY_MICROS
                }
                Routing::LeastInFlight => entries as u64,
                Routing::RoundRobin => offset as u64,
            };
            if best.is_none() || score < least {
                best = Some(pipe);
                least = score;
            }
        }
        best
    }

    /// Whether slow requests may go to one more pipe.
    fn slow_may_spread(&self, now: u64) -> bool {
        let quick = self.quick_at.load(Ordering::Relaxed);
        if now.saturating_sub(quick) > QUIET.as_micros() as u64 {
            return true;
        }
        let open = self.pipes.iter().filter(|pipe| pipe.load.open.load(Ordering::SeqCst));
        let (open, slow) = open.fold((0_usize, 0_usize), |(open, slow), pipe| {
            (open + 1, slow + usize::from(pipe.load.slow_micros() > 0))
        });
        slow < (open / 2).max(1)
    }

    /// A quick request has come.
    fn note_quick(&self) {
        let now = self.micros(Instant::now());
        // Read far more often than written: it stays in every core's cache.
        if now.saturating_sub(self.quick_at.load(Ordering::Relaxed)) > NOTED_EVERY.as_micros() as u64 {
            self.quick_at.store(now, Ordering::Relaxed);
        }
    }

    /// A point in time as pipes show it to each other: microseconds since the pool began.
    pub(crate) fn micros(&self, at: Instant) -> u64 {
        u64::try_from(at.saturating_duration_since(self.began).as_micros()).unwrap_or(u64::MAX - 1)
    }
}
