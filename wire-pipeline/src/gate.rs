//! Admission: who may have a request in the pool, in order of arrival.
//!
//! Limits gate admission and never reading. Small requests pass with two atomic operations; when a limit is reached
//! callers wait in a fair queue (tokio's semaphore), and a caller that gives up loses its place and nothing else.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Semaphore;

use crate::answer::Budget;

/// Counts requests and their bytes.
#[derive(Debug)]
pub(crate) struct Gate {
    entries: Semaphore,
    entries_limit: usize,
    /// In units of [`Gate::UNIT`]; requests below one unit are free, the limit on entries bounds them.
    bytes: Semaphore,
    bytes_limit: u32,
    budget: Arc<Budget>,
    waiting: AtomicUsize,
}

/// Somebody waits, until this is dropped.
struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Gate {
    const UNIT: usize = 1024;

    pub(crate) fn new(entries: usize, bytes: usize, budget: &Arc<Budget>) -> Arc<Self> {
        let bytes_limit =
            u32::try_from((bytes / Self::UNIT).max(1)).unwrap_or(u32::MAX >> 4).min(u32::MAX >> 4);
        let entries_limit = entries.clamp(1, Semaphore::MAX_PERMITS);
        Arc::new(Self {
            entries: Semaphore::new(entries_limit),
            entries_limit,
            bytes: Semaphore::new(bytes_limit as usize),
            bytes_limit,
            budget: Arc::clone(budget),
            waiting: AtomicUsize::new(0),
        })
    }

    /// A place for a request of `bytes`, if there is room and nobody waits.
    pub(crate) fn try_enter(self: &Arc<Self>, bytes: usize) -> Option<Pass> {
        if self.budget.is_full() {
            return None;
        }
        let units = self.units(bytes);
        let entry = self.entries.try_acquire().ok()?;
        if units > 0 {
            self.bytes.try_acquire_many(units).ok()?.forget();
        }
        entry.forget();
        Some(Pass { gate: Arc::clone(self), units })
    }

    /// Waits for a place. Cancel safe: giving up loses the place in the queue and nothing else.
    pub(crate) async fn enter(self: &Arc<Self>, bytes: usize) -> Option<Pass> {
        let _waiting = Waiting::new(&self.waiting);
        let units = self.units(bytes);
        let entry = self.entries.acquire().await.ok()?;
        if units > 0 {
            self.bytes.acquire_many(units).await.ok()?.forget();
        }
        entry.forget();
        let pass = Pass { gate: Arc::clone(self), units };
        self.budget.room().await;
        Some(pass)
    }

    /// How many wait for a place.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// How full it is, in words.
    pub(crate) fn fill(&self) -> String {
        let free = self.entries.available_permits();
        let free_bytes = self.bytes.available_permits() * Self::UNIT;
        let limit_bytes = self.bytes_limit as usize * Self::UNIT;
        format!(
            "{} of {} requests (max_in_flight), {} of {} KiB of requests (queue_bytes), {} of {} KiB of answers \
             (answer_budget)",
            self.entries_limit.saturating_sub(free),
            self.entries_limit,
            limit_bytes.saturating_sub(free_bytes) / 1024,
            limit_bytes / 1024,
            self.budget.held() / 1024,
            self.budget.limit() / 1024,
        )
    }

    /// Nobody enters any more; those who wait are sent away.
    pub(crate) fn close(&self) {
        self.entries.close();
        self.bytes.close();
    }

    /// A request larger than the limit takes all of it: it is admitted when it is alone.
    fn units(&self, bytes: usize) -> u32 {
        u32::try_from(bytes / Self::UNIT).unwrap_or(u32::MAX).min(self.bytes_limit)
    }
}

/// A place in the pool; dropping it frees the place.
#[derive(Debug)]
pub(crate) struct Pass {
    gate: Arc<Gate>,
    units: u32,
}

impl Drop for Pass {
    fn drop(&mut self) {
        if self.units > 0 {
            self.gate.bytes.add_permits(self.units as usize);
        }
        self.gate.entries.add_permits(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gate(entries: usize, bytes: usize) -> Arc<Gate> {
        Gate::new(entries, bytes, &Budget::new(1, 1))
    }

    #[tokio::test]
    async fn entries_are_bounded_and_places_are_given_in_order() {
        let gate = gate(1, 4096);
        let first = gate.try_enter(0).expect("room");
        assert!(gate.try_enter(0).is_none());
        let mut second = Box::pin(gate.enter(0));
        let mut third = Box::pin(gate.enter(0));
        assert!(futures_poll(second.as_mut()).await.is_none());
        assert!(futures_poll(third.as_mut()).await.is_none());
        drop(first);
        assert!(futures_poll(third.as_mut()).await.is_none(), "the second was first");
        let second = futures_poll(second.as_mut()).await.expect("its turn").expect("open");
        drop(second);
        assert!(futures_poll(third.as_mut()).await.is_some());
    }

    #[tokio::test]
    async fn a_request_above_the_limit_is_admitted_alone() {
        let gate = gate(10, 4096);
        let huge = gate.try_enter(1 << 30).expect("alone");
        assert!(gate.try_enter(2048).is_none());
        assert!(gate.try_enter(10).is_some(), "small ones pass beside it");
        drop(huge);
        assert!(gate.try_enter(2048).is_some());
    }

    #[tokio::test]
    async fn giving_up_leaves_the_places_as_they_were() {
        let gate = gate(1, 4096);
        let first = gate.try_enter(0).expect("room");
        for _ in 0..100 {
            let mut waiting = Box::pin(gate.enter(0));
            assert!(futures_poll(waiting.as_mut()).await.is_none());
        }
        drop(first);
        assert!(gate.try_enter(0).is_some());
    }

    /// Polls once.
    async fn futures_poll<F: Future + Unpin>(mut future: F) -> Option<F::Output> {
        std::future::poll_fn(|cx| {
            std::task::Poll::Ready(match std::pin::Pin::new(&mut future).poll(cx) {
                std::task::Poll::Ready(output) => Some(output),
                std::task::Poll::Pending => None,
            })
        })
        .await
    }
}
