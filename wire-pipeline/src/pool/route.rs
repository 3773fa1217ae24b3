//! Which pipe a request goes to: the one where it is expected to wait least.
//!
//! All pipes are looked at, because they are few and because choosing among random ones is several times worse at
//! this number. What a pipe is expected to work on is the sum of what its entries' statements took before. A pipe
//! whose oldest entry is overdue gets nothing while another one has room. Knows loads, nothing of connections.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::entry::Entry;
use crate::pipe::{Pipe, Via};
use crate::pool::Shared;
use crate::wire::Driver;

/// What one more entry costs besides the server's work, in microseconds; also breaks ties towards fewer entries.
const ENTRY_MICROS: u64 = 10;

impl<D: Driver> Shared<D> {
    /// Finds a place for an entry: a pipe's queue, or the waiting queue when no pipe takes it. What was admitted
    /// before the pool began to close is still placed.
    pub(crate) fn place(self: &Arc<Self>, entry: Entry<D::Wire>) {
        if self.overflow.len() == 0 {
            match self.route(entry, None) {
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

    /// Gives waiting entries to pipes that have room, oldest first.
    pub(crate) fn serve_overflow(&self) {
        let mut served = false;
        while let Some(entry) = self.overflow.pop_some() {
            served = true;
            if entry.is_abandoned() {
                continue;
            }
            if let Err(entry) = self.route(entry, None) {
                self.overflow.unpop(entry);
                // While it was out of the waiting queue, whoever got room saw nobody waiting.
                if self.best(None).is_none() {
                    return;
                }
            }
        }
        if served && self.is_closing() {
            self.wake_all();
        }
    }

    pub(crate) fn has_overflow(&self) -> bool {
        self.overflow.len() > 0
    }

    /// Moves an entry from a slow pipe to one that is not, or hands it back.
    pub(crate) fn move_to_quicker(
        &self,
        entry: Entry<D::Wire>,
        slow: &Pipe<D::Wire>,
    ) -> Result<(), Entry<D::Wire>> {
        slow.load.sub(&entry);
        self.route(entry, Some(slow)).inspect_err(|entry| slow.load.add(entry))
    }

    /// Puts the entry into the queue of the best pipe. Without `slow`, an overdue pipe is the last resort.
    fn route(&self, mut entry: Entry<D::Wire>, slow: Option<&Pipe<D::Wire>>) -> Result<(), Entry<D::Wire>> {
        let via = Via::Pool { max_in_flight: self.options.max_in_flight.max(1) };
        // A pipe may fill up or close between the look and the push; then the next best one is tried.
        for _ in 0..self.pipes.len() {
            let Some(best) = self.best(slow) else { break };
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

    fn best(&self, slow: Option<&Pipe<D::Wire>>) -> Option<&Pipe<D::Wire>> {
        let count = self.pipes.len();
        let start = self.rotation.fetch_add(1, Ordering::Relaxed);
        let mut best = None;
        let mut least = (true, u64::MAX);
        for offset in 0..count {
            let pipe = &self.pipes[start.wrapping_add(offset) % count];
            let entries = pipe.load.entries();
            if !pipe.load.open.load(Ordering::SeqCst) || entries >= self.options.max_in_flight.max(1) {
                continue;
            }
            let overdue = pipe.load.overdue.load(Ordering::Relaxed);
            if slow.is_some_and(|slow| overdue || std::ptr::eq(slow, pipe)) {
                continue;
            }
            let score = (overdue, pipe.load.micros() + entries as u64 * ENTRY_MICROS);
            if best.is_none() || score < least {
                best = Some(pipe);
                least = score;
            }
        }
        best
    }
}
