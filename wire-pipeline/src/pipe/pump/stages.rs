//! The stages of a pipe that is connected: putting its session right, serving everybody, draining for a lease, and
//! serving one holder; the diagram is in [`crate::pipe`]. Decides what may be sent next; bytes and time are the pump's.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;

use tokio::time::Instant;

use super::{End, Pump, Stage, TRUSTED};
use crate::entry::Entry;
use crate::faults;
use crate::pipe::{Lane, LeaseId};
use crate::stats::Loss;
use crate::wire::{Driver, Occasion, Request, Wire};

/// Whether a step changed anything.
pub(super) enum Step {
    Moved,
    Still,
}

impl<D: Driver> Pump<'_, D> {
    /// One step of the stages, and the next batch.
    pub(super) fn advance(&mut self, now: Instant) -> Result<Step, End<D>> {
        if self.shared.is_aborted() {
            return Err(End::Lost(Loss::Ended, faults::closed()));
        }
        match self.stage {
            Stage::Settling { until, after } => self.advance_settling(now, until, after),
            Stage::Shared => self.advance_shared(now),
            Stage::Draining => Ok(self.advance_draining()),
            Stage::Leased(id) => Ok(self.advance_leased(id, now)),
        }
    }

    fn advance_settling(
        &mut self,
        now: Instant,
        until: Instant,
        after: Option<LeaseId>,
    ) -> Result<Step, End<D>> {
        let result = match self.core.settled() {
            // A connection that was never put right has not been made, and nobody's request is on it.
            None if now >= until && !self.ready => {
                let fault = faults::connect_timeout(self.shared.options.connect_timeout);
                return Err(End::Lost(Loss::Session, fault));
            }
            None if now >= until => return Err(End::Lost(Loss::Session, faults::not_settled())),
            None => return Ok(Step::Still),
            Some(result) => result,
        };
        self.deliver();
        result.map_err(|error| End::Lost(Loss::Session, error))?;
        if std::mem::take(&mut self.doubted) {
            self.trusted_until = now + TRUSTED;
            self.core.settle(Occasion::ReadOnly, now);
            return Ok(Step::Moved);
        }
        if !std::mem::replace(&mut self.ready, true) {
            self.shared.connected(self.pipe);
            self.attempt = None;
        }
        if let Some(id) = after {
            self.shared.desk.ended(id);
        }
        let next = match (after, self.shared.exclusive) {
            (Some(_), true) => return Err(End::Closed),
            (None, false) => None,
            (Some(_), false) | (None, true) => self.shared.hand_over(self.pipe),
        };
        match next {
            Some(id) => self.lease(id),
            // Whoever wanted the only connection has gone.
            None if self.shared.exclusive => return Err(End::Closed),
            None => self.share(),
        }
        Ok(Step::Moved)
    }

    pub(super) fn share(&mut self) {
        self.core.set_ordered(false);
        self.stage = Stage::Shared;
        let mut queue = self.pipe.queue();
        queue.lane = Lane::Shared;
        queue.returned = None;
        queue.drain = false;
        drop(queue);
        self.pipe.load.open.store(true, Ordering::SeqCst);
        self.shared.serve_overflow();
        self.shared.serve_waiters();
    }

    /// The lane was opened to the holder by the desk.
    fn lease(&mut self, id: LeaseId) {
        self.core.set_ordered(true);
        self.stage = Stage::Leased(id);
        let after = self.shared.options.lease_report_after;
        let reported = !after.is_zero() && !self.shared.exclusive;
        self.report_at = if reported { Instant::now().checked_add(after) } else { None };
    }

    fn advance_shared(&mut self, now: Instant) -> Result<Step, End<D>> {
        let mut queue = self.pipe.queue();
        let settles = self.core.is_tainted() || self.doubted;
        if settles || queue.drain || self.retiring {
            queue.pump_idle = false;
            let leave = if settles { Lane::Settling } else { Lane::Draining };
            let draining = queue.drain && !settles;
            queue.lane = leave;
            let queued = std::mem::take(&mut queue.entries);
            drop(queue);
            self.pipe.load.open.store(false, Ordering::SeqCst);
            let unsent = self.core.give_back();
            self.move_away(unsent);
            self.move_away(queued);
            if draining {
                self.stage = Stage::Draining;
                return Ok(Step::Moved);
            }
            if !self.is_at_rest() {
                return Ok(Step::Still);
            }
            if settles {
                self.shared.desk.not_drained(self.pipe);
                if self.core.is_tainted() {
                    self.core.settle(Occasion::Tainted, now);
                }
                let until = now + self.shared.options.connect_timeout;
                self.stage = Stage::Settling { until, after: None };
                return Ok(Step::Moved);
            }
            return Err(End::Retired);
        }
        if queue.closing && queue.entries.is_empty() && self.core.is_empty() && !self.shared.has_overflow() {
            queue.lane = Lane::Closed;
            drop(queue);
            self.pipe.load.open.store(false, Ordering::SeqCst);
            return Err(End::Closed);
        }
        if self.core.is_hungry() && !queue.entries.is_empty() {
            self.core.take(&mut queue.entries);
        }
        queue.pump_idle = self.core.is_hungry();
        drop(queue);
        Ok(self.frame(now))
    }

    fn advance_draining(&mut self) -> Step {
        // What waited for a forerunner may go on elsewhere.
        let unsent = self.core.give_back();
        self.move_away(unsent);
        if self.core.is_tainted() && self.is_at_rest() {
            // What was out has opened a transaction or changed the session: that comes first.
            self.shared.desk.not_drained(self.pipe);
            self.stage = Stage::Shared;
            return Step::Moved;
        }
        if !self.is_at_rest() {
            return Step::Still;
        }
        match self.shared.grant(self.pipe) {
            Some(id) => self.lease(id),
            None => self.share(),
        }
        Step::Moved
    }

    fn advance_leased(&mut self, id: LeaseId, now: Instant) -> Step {
        let mut queue = self.pipe.queue();
        if self.core.is_hungry() && !queue.entries.is_empty() {
            self.core.take(&mut queue.entries);
        }
        if let Some(touched) = queue.returned.filter(|_| queue.entries.is_empty() && self.is_at_rest()) {
            queue.lane = Lane::Settling;
            queue.returned = None;
            queue.pump_idle = false;
            self.report_at = None;
            // What it was to open was never sent, and nobody else's request may take it along.
            let unused = (queue.opening.take(), self.core.take_opening());
            drop(queue);
            drop(unused);
            self.core.settle(Occasion::Returned { touched }, now);
            let until = now + self.shared.options.connect_timeout;
            self.stage = Stage::Settling { until, after: Some(id) };
            return Step::Moved;
        }
        queue.pump_idle = self.core.is_hungry();
        drop(queue);
        let step = self.frame(now);
        self.reopen();
        step
    }

    /// What opens a unit of work was to go out with an entry that is not sent: the next one takes it along, and until
    /// there is one the lease's holder may take it back.
    pub(super) fn reopen(&mut self) {
        let Some(opening) = self.core.take_opening() else { return };
        let mut queue = self.pipe.queue();
        let queue = &mut *queue;
        // When the lease is over, or a later opening is there, the unit of work that this one belongs to was given up.
        if !matches!(queue.lane, Lane::Leased(_)) || queue.returned.is_some() || queue.opening.is_some() {
            return;
        }
        match queue.entries.front_mut() {
            Some(entry) => Request::open(&mut entry.request, opening),
            None => queue.opening = Some(opening),
        }
    }

    fn frame(&mut self, now: Instant) -> Step {
        let before = self.core.out.len();
        if let Some(size) = self.core.frame(now, &self.pipe.counters) {
            self.pipe.counters.batch(size);
            self.pipe.counters.statements(self.core.wire.statements());
        }
        let moved = self.core.out.len() > before || !self.core.done.is_empty();
        self.deliver();
        if moved { Step::Moved } else { Step::Still }
    }

    /// Gives unsent entries to other pipes, or to the pool's waiting queue.
    fn move_away(&mut self, entries: VecDeque<Entry<D::Wire>>) {
        for entry in entries {
            self.pipe.load.sub(&entry);
            self.shared.place(entry);
        }
    }
}
