//! Who gets a lease next.
//!
//! Waiters are served in order of arrival. One pipe drains at a time; a pipe that comes back goes to the next waiter
//! at once. A waiter that has gone is passed over: the lease handed to it returns by being dropped.

use std::collections::VecDeque;
use std::panic::Location;
use std::sync::Arc;

use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::faults;
use crate::lease::Lease;
use crate::pipe::{Lane, LeaseId, Pipe};
use crate::pool::shared::Shared;
use crate::stats::LeaseStats;
use crate::sync::{Mutex, MutexGuard, PoisonError};
use crate::wire::{Driver, Fault};

pub(crate) struct Desk<D: Driver> {
    state: Mutex<State<D>>,
    most: usize,
}

struct State<D: Driver> {
    waiters: VecDeque<Waiter<D>>,
    /// Oldest first.
    held: Vec<Held>,
    draining: bool,
    /// A pipe became free, or a waiter came, while `draining` was set.
    missed: bool,
    next: u64,
    closed: bool,
}

/// Somebody who waits for a lease.
struct Waiter<D: Driver> {
    slot: oneshot::Sender<Lease<D>>,
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

impl<D: Driver> Desk<D> {
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

    fn state(&self) -> MutexGuard<'_, State<D>> {
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

    /// Waits for a lease. Cancel safe.
    pub(crate) async fn acquire(
        &self,
        shared: &Arc<Shared<D>>,
        place: &'static Location<'static>,
    ) -> Result<Lease<D>, Fault<D>> {
        shared.check_process()?;
        if self.most == 0 {
            return Err(faults::no_leases());
        }
        let waiter = self.reserve(place);
        self.turn(shared);
        let limit = shared.options.acquire_timeout;
        match shared.until(Instant::now() + limit, waiter).await {
            Some(Ok(lease)) => Ok(lease),
            Some(Err(_)) => Err(shared.ended()),
            None if shared.has_ended() => Err(shared.ended()),
            None => {
                let (held, _) = self.stats();
                match held.first() {
                    Some(oldest) if held.len() >= self.most => {
                        Err(faults::lease_timeout(limit, held.len(), self.most, oldest))
                    }
                    _ => Err(shared.with_cause(faults::nothing_to_lease(limit, held.len(), self.most))),
                }
            }
        }
    }

    /// A place in the queue of waiters.
    pub(crate) fn reserve(&self, place: &'static Location<'static>) -> oneshot::Receiver<Lease<D>> {
        let (slot, lease) = oneshot::channel();
        let waiter = Waiter { slot, place };
        let mut state = self.state();
        if !state.closed {
            state.waiters.push_back(waiter);
        }
        lease
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

    /// Starts to drain a pipe if somebody waits and one may be taken.
    pub(crate) fn turn(&self, shared: &Arc<Shared<D>>) {
        loop {
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
            if !wanted || ask_to_drain(shared) {
                return;
            }
            // As soon as another pipe is shared, its pump asks again. If that was while this one looked, it was not heard.
            let mut state = self.state();
            state.draining = false;
            if !std::mem::take(&mut state.missed) {
                return;
            }
        }
    }

    /// A pipe has drained: the lease of the first who still waits, if anybody does.
    pub(crate) fn grant(&self, shared: &Arc<Shared<D>>, pipe: &Pipe<D::Wire>) -> Option<LeaseId> {
        self.state().draining = false;
        let id = self.hand_over(shared, pipe);
        self.turn(shared);
        id
    }

    /// A pipe that was to be drained has something else to do first.
    pub(crate) fn not_drained(&self, pipe: &Pipe<D::Wire>) {
        let mut queue = pipe.queue();
        if std::mem::take(&mut queue.drain) {
            drop(queue);
            self.state().draining = false;
        }
    }

    /// A pipe was lost while it drained or while it was leased.
    pub(crate) fn lost(&self, pipe: &Pipe<D::Wire>, lease: Option<LeaseId>) {
        if let Some(id) = lease {
            self.ended(id);
        }
        self.not_drained(pipe);
    }

    /// A lease is over.
    pub(crate) fn ended(&self, id: LeaseId) {
        self.state().held.retain(|held| held.id != id);
    }

    /// A pipe is free and its session is right: the lease of the first who still waits, if anybody does. The last one
    /// that everybody could use stays with everybody.
    pub(crate) fn hand_over(&self, shared: &Arc<Shared<D>>, pipe: &Pipe<D::Wire>) -> Option<LeaseId> {
        if !shared.exclusive && !shared.is_open_without(pipe) {
            return None;
        }
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
        let unused = {
            let mut queue = pipe.queue();
            queue.lane = Lane::Leased(id);
            queue.drain = false;
            queue.returned = None;
            queue.opening.take()
        };
        drop(unused);
        // If the waiter has gone meanwhile, the lease is dropped here, and thereby returned.
        let _ = waiter.slot.send(Lease::new(Arc::clone(shared), pipe.id, id));
        Some(id)
    }
}

impl<D: Driver> State<D> {
    /// Somebody waits, and not all leases are held.
    fn may_lease(&self, most: usize) -> bool {
        self.held.len() < most && self.waiters.iter().any(|waiter| !waiter.slot.is_closed())
    }

    /// Takes out waiters that have gone, to be dropped outside of the lock.
    fn forget_gone(&mut self) -> Vec<Waiter<D>> {
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

/// Asks the least busy shared pipe to drain, unless it is the last one.
fn ask_to_drain<D: Driver>(shared: &Arc<Shared<D>>) -> bool {
    // A pipe may be lost between the look and the asking; then the next best one is asked.
    for _ in 0..shared.options.connections {
        let Some(pipe) = shared.least_busy_of_several() else { return false };
        let mut asked = false;
        pipe.signal(|queue| {
            if queue.lane == Lane::Shared {
                queue.drain = true;
                asked = true;
            }
        });
        if asked {
            return true;
        }
    }
    false
}
