//! Taking pipes out of sharing for those who wait for one alone: which pipe drains, and when it is theirs.
//!
//! Who of them is next is the desk's.

use std::panic::Location;

use tokio::time::Instant;

use crate::faults;
use crate::pipe::grant::Grant;
use crate::pipe::{Lane, LeaseId, Pipe};
use crate::pool::shared::Shared;
use crate::wire::{Driver, Fault};

impl<D: Driver> Shared<D> {
    /// Waits for a pipe. Cancel safe.
    pub(crate) async fn acquire(
        &self,
        place: &'static Location<'static>,
    ) -> Result<Grant<D::Wire>, Fault<D>> {
        self.check_process()?;
        let most = self.desk.most();
        if most == 0 {
            return Err(faults::no_leases());
        }
        let waiter = self.desk.reserve(place);
        self.serve_waiters();
        let limit = self.options.acquire_timeout;
        match self.until(Instant::now() + limit, waiter).await {
            Some(Ok(grant)) => Ok(grant),
            Some(Err(_)) => Err(self.ended()),
            None if self.has_ended() => Err(self.ended()),
            None => {
                let (held, _) = self.desk.stats();
                match held.first() {
                    Some(oldest) if held.len() >= most => {
                        Err(faults::lease_timeout(limit, held.len(), most, oldest))
                    }
                    _ => Err(self.with_cause(faults::nothing_to_lease(limit, held.len(), most))),
                }
            }
        }
    }

    /// Starts to drain a pipe if somebody waits and one may be taken.
    pub(crate) fn serve_waiters(&self) {
        while self.desk.begin_drain() {
            // As soon as another pipe is shared, its pump asks again.
            if self.ask_to_drain() || !self.desk.found_none() {
                return;
            }
        }
    }

    /// A pipe has drained: the lease of the first who still waits, if anybody does.
    pub(crate) fn grant(&self, pipe: &Pipe<D::Wire>) -> Option<LeaseId> {
        self.desk.drained();
        let id = self.hand_over(pipe);
        self.serve_waiters();
        id
    }

    /// A pipe is free and its session is right: the lease of the first who still waits, if anybody does. The last one
    /// that everybody could use stays with everybody.
    pub(crate) fn hand_over(&self, pipe: &Pipe<D::Wire>) -> Option<LeaseId> {
        if !self.exclusive && !self.is_open_without(pipe) {
            return None;
        }
        self.desk.hand_over(&self.pipes, pipe.id)
    }

    /// Asks the least busy shared pipe to drain, unless it is the last one.
    fn ask_to_drain(&self) -> bool {
        // A pipe may be lost between the look and the asking; then the next best one is asked.
        for _ in 0..self.options.connections {
            let Some(pipe) = self.least_busy_of_several() else { return false };
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
}
