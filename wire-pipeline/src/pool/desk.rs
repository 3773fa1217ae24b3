//! Who gets a lease next.
//!
//! Waiters are served in order of arrival. One pipe drains at a time; a pipe that comes back goes to the next waiter
//! at once. A waiter that has gone is passed over: what was granted to it returns by being dropped.
//!
//! Knows waiters and grants; when there is a pipe to give, and which one is to drain, is for `leasing`.

use std::collections::VecDeque;
use std::panic::Location;
use std::sync::Arc;

use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::pipe::grant::Grant;
use crate::pipe::{LeaseId, Pipe, PipeId};
use crate::stats::LeaseStats;
use crate::sync::{Mutex, MutexGuard, PoisonError};
use crate::wire::Wire;

pub(crate) struct Desk<W: Wire> {
    state: Mutex<State<W>>,
    most: usize,
}

struct State<W: Wire> {
    waiters: VecDeque<Waiter<W>>,
    /// Oldest first.
    held: Vec<Held>,
    draining: bool,
    /// A pipe became free, or a waiter came, while `draining` was set.
    missed: bool,
    next: u64,
    closed: bool,
}

/// Somebody who waits for a lease.
struct Waiter<W: Wire> {
    slot: oneshot::Sender<Grant<W>>,
    place: &'static Location<'static>,
}

/// A lease, since when it is held, and where in the code it was taken.
#[derive(Clone, Copy)]
struct Held {
    id: LeaseId,
    since: Instant,
    place: &'static Location<'static>,
}

impl Held {
    fn stats(&self) -> LeaseStats {
        LeaseStats { held_for: self.since.elapsed(), taken_at: self.place }
    }
}

impl<W: Wire> Desk<W> {
    pub(crate) fn new(most: usize) -> Self {
        let state = State {
            waiters: VecDeque::new(),
            held: Vec::new(),
            draining: false,
            missed: false,
            next: 1,
            closed: false,
        };
        Self { state: Mutex::new(state), most }
    }

    fn state(&self) -> MutexGuard<'_, State<W>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leases held, and the number of callers that wait.
    pub(crate) fn stats(&self) -> (Vec<LeaseStats>, usize) {
        let state = self.state();
        let waiting = state.waiters.iter().filter(|waiter| !waiter.slot.is_closed()).count();
        (state.held.iter().map(Held::stats).collect(), waiting)
    }

    /// One lease that is held.
    pub(crate) fn held(&self, id: LeaseId) -> Option<LeaseStats> {
        self.state().held.iter().find(|held| held.id == id).map(Held::stats)
    }

    /// How many may be held at a time.
    pub(crate) fn most(&self) -> usize {
        self.most
    }

    /// A place in the queue of waiters.
    pub(crate) fn reserve(&self, place: &'static Location<'static>) -> oneshot::Receiver<Grant<W>> {
        let (slot, grant) = oneshot::channel();
        let waiter = Waiter { slot, place };
        let mut state = self.state();
        if !state.closed {
            state.waiters.push_back(waiter);
        }
        grant
    }

    /// Nobody gets a lease any more.
    pub(crate) fn close(&self) {
        let waiters = {
            let mut state = self.state();
            state.closed = true;
            std::mem::take(&mut state.waiters)
        };
        // Dropping them wakes those who wait: not under the lock.
        drop(waiters);
    }

    /// Whether a pipe is to be drained now: somebody waits, one may be taken, and none is on its way. If so, one of
    /// [`Self::drained`], [`Self::not_drained`] and [`Self::found_none`] follows.
    pub(crate) fn begin_drain(&self) -> bool {
        let (gone, wanted) = {
            let mut state = self.state();
            let wanted = state.may_lease(self.most) && !state.draining;
            state.missed |= state.draining;
            if wanted {
                state.draining = true;
                state.missed = false;
            }
            (state.forget_gone(), wanted)
        };
        drop(gone);
        wanted
    }

    /// There was no pipe to drain; whether to look again, because somebody called meanwhile and was not heard.
    pub(crate) fn found_none(&self) -> bool {
        let mut state = self.state();
        state.draining = false;
        std::mem::take(&mut state.missed)
    }

    /// A pipe has drained.
    pub(crate) fn drained(&self) {
        self.state().draining = false;
    }

    /// A pipe that was to be drained has something else to do first.
    pub(crate) fn not_drained(&self, pipe: &Pipe<W>) {
        let mut queue = pipe.queue();
        if std::mem::take(&mut queue.drain) {
            drop(queue);
            self.state().draining = false;
        }
    }

    /// A pipe was lost while it drained or while it was leased.
    pub(crate) fn lost(&self, pipe: &Pipe<W>, lease: Option<LeaseId>) {
        if let Some(id) = lease {
            self.ended(id);
        }
        self.not_drained(pipe);
    }

    /// A lease is over.
    pub(crate) fn ended(&self, id: LeaseId) {
        self.state().held.retain(|held| held.id != id);
    }

    /// Gives a pipe that is free to the first who still waits, if anybody does.
    pub(crate) fn hand_over(&self, pipes: &Arc<[Pipe<W>]>, pipe: PipeId) -> Option<LeaseId> {
        let (waiter, id, gone) = {
            let mut state = self.state();
            let gone = state.forget_gone();
            let id = LeaseId(state.next);
            // Another one may have been handed over since this pipe was asked to drain.
            let waiter = if state.held.len() < self.most { state.waiters.pop_front() } else { None };
            if let Some(waiter) = &waiter {
                state.next += 1;
                state.held.push(Held { id, since: Instant::now(), place: waiter.place });
            }
            (waiter, id, gone)
        };
        drop(gone);
        let waiter = waiter?;
        // If the waiter has gone meanwhile, the grant is dropped here, and thereby returned.
        let _ = waiter.slot.send(Grant::new(pipes, pipe, id));
        Some(id)
    }
}

impl<W: Wire> State<W> {
    /// Somebody waits, and not all leases are held.
    fn may_lease(&self, most: usize) -> bool {
        self.held.len() < most && self.waiters.iter().any(|waiter| !waiter.slot.is_closed())
    }

    /// Takes out waiters that have gone, to be dropped outside of the lock.
    fn forget_gone(&mut self) -> Vec<Waiter<W>> {
        if !self.waiters.iter().any(|waiter| waiter.slot.is_closed()) {
            return Vec::new();
        }
        let (gone, waiting) =
            std::mem::take(&mut self.waiters).into_iter().partition(|waiter| waiter.slot.is_closed());
        self.waiters = waiting;
        let gone: VecDeque<_> = gone;
        gone.into()
    }
}
