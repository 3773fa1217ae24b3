//! What a pump does by the clock: deadlines, what the server is asked to stop, whether it is too slow for others to wait
//! behind it, and leases that are held for long. Knows when; what is moved or sent is the pump's.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::Instant;

use super::{End, Pump, Stage, TICK};
use crate::faults;
use crate::pipe::core::ExtractWhere;
use crate::stats::Loss;
use crate::wire::{Cancelled, Driver, Fault};

/// After this and the way to the server, what is not sent is given back.
const OVERDUE: Duration = Duration::from_millis(5);

impl<D: Driver> Pump<'_, D> {
    /// For how long nobody looked: the timer was due that long ago. Neither a process that was stopped nor tasks that
    /// hold up the runtime make a statement slow.
    pub(super) fn absent(&self, now: Instant) -> Duration {
        if self.ticking { now.saturating_duration_since(self.tick.deadline()) } else { Duration::ZERO }
    }

    /// Waits for the next tick; without work there is none, and only a wake-up goes on.
    pub(super) fn poll_tick(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let settling = matches!(self.stage, Stage::Settling { .. });
        if !self.ticking {
            // While a request to stop is on its way, what was queued meanwhile has deadlines too.
            let idle = self.core.is_empty() && !settling && !self.is_cancelling();
            match self.report_at {
                _ if !idle => self.tick.as_mut().reset(Instant::now() + TICK),
                // A lease that is held and not used is reported too.
                Some(report_at) => {
                    self.tick.as_mut().reset(report_at);
                    return self.tick.as_mut().poll(cx);
                }
                None => return Poll::Pending,
            }
            self.ticking = true;
        }
        self.tick.as_mut().poll(cx)
    }

    /// Deadlines, and whether the server is too slow for others to wait behind it.
    pub(super) fn on_tick(&mut self) -> Result<(), End<D>> {
        let now = Instant::now();
        self.ticking = false;
        self.ticked_at = now;
        self.report(now);
        self.core.expire(now);
        let expired =
            self.pipe.queue().entries.extract_where(|entry| entry.deadline <= now || entry.is_abandoned());
        for entry in expired {
            let fault = self.core.not_sent(&entry, now);
            self.core.withdraw(entry, fault);
        }
        self.reopen();
        self.deliver();
        self.cancel_overdue(now);
        if let Some(deadline) = self.core.head_deadline()
            && now.saturating_duration_since(deadline) > self.shared.options.stall_timeout
        {
            return Err(End::Lost(Loss::Stalled, faults::silent(now.saturating_duration_since(deadline))));
        }
        // Nothing is sent while a request to stop is on its way, and others need not wait for that.
        let overdue = self.is_cancelling()
            || self.core.head_since().is_some_and(|since| now > since + OVERDUE + self.core.way());
        if overdue {
            match self.stage {
                Stage::Shared => {
                    self.pipe.load.overdue.store(true, Ordering::Relaxed);
                    self.give_back();
                }
                // Those who wait for a lease need not wait for a slow request.
                Stage::Draining if self.shared.is_other_quick(self.pipe) => {
                    self.pipe.load.overdue.store(true, Ordering::Relaxed);
                    self.shared.desk.not_drained(self.pipe);
                    self.share();
                }
                Stage::Draining | Stage::Settling { .. } | Stage::Leased(_) => {}
            }
        }
        Ok(())
    }

    /// The only request that is out has had its time: the server need not work on it any longer.
    fn cancel_overdue(&mut self, now: Instant) {
        let Some(since) = self.core.overdue_alone(now) else { return };
        if self.is_cancelling() || self.cancelled == Some(since) {
            return;
        }
        self.cancelled = Some(since);
        if let Some(cancelling) = self.shared.driver.cancel(&self.core.wire, &self.io) {
            let limit = self.shared.options.connect_timeout;
            self.cancelling = Some(Box::pin(async move {
                tokio::time::timeout(limit, cancelling).await.unwrap_or(Cancelled::Unknown)
            }));
            self.core.set_barred(true);
        }
    }

    /// A request to stop is on its way.
    pub(super) fn is_cancelling(&self) -> bool {
        self.cancelling.is_some()
    }

    /// Nothing is out or waits here, and the server is not asked to stop: what is sent now is hit by nothing.
    pub(super) fn is_at_rest(&self) -> bool {
        self.core.is_empty() && !self.is_cancelling()
    }

    /// Whether the server has heard that it is to stop.
    pub(super) fn poll_cancelling(&mut self, cx: &mut Context<'_>) -> Result<bool, Fault<D>> {
        let Some(cancelling) = &mut self.cancelling else { return Ok(false) };
        match cancelling.as_mut().poll(cx) {
            Poll::Pending => Ok(false),
            Poll::Ready(Cancelled::Unknown) => Err(faults::cancel_unknown()),
            Poll::Ready(Cancelled::Heard | Cancelled::NotSent) => {
                self.cancelling = None;
                self.core.set_barred(false);
                // If the head is late all the same, the next tick says so again.
                self.pipe.load.overdue.store(false, Ordering::SeqCst);
                self.shared.serve_overflow();
                Ok(true)
            }
        }
    }

    /// Says once that the lease is held for long, and who has it.
    fn report(&mut self, now: Instant) {
        let Stage::Leased(id) = self.stage else { return };
        if self.report_at.is_none_or(|report_at| now < report_at) {
            return;
        }
        self.report_at = None;
        if let Some(lease) = self.shared.desk.held(id) {
            tracing::warn!(
                taken_at = %lease.taken_at,
                held_ms = u64::try_from(lease.held_for.as_millis()).unwrap_or(u64::MAX),
                "a connection is leased for long (lease_report_after)"
            );
        }
    }

    /// The head is slow: what has not been sent goes to pipes that are not, as far as they have room.
    fn give_back(&mut self) {
        let mut entries = self.core.give_back();
        entries.append(&mut self.pipe.queue().entries);
        let mut kept = VecDeque::new();
        for entry in entries {
            if let Err(entry) = self.shared.move_to_quicker(entry, self.pipe) {
                kept.push_back(entry);
            }
        }
        if !kept.is_empty() {
            self.core.take(&mut kept);
        }
        for (key, entry) in self.core.take_stuck() {
            if let Err(entry) = self.shared.move_to_quicker(entry, self.pipe) {
                self.core.put_back(key, entry);
            }
        }
    }
}
