//! Entries that no pipe can take at the moment: all are full, leased, or without a connection.
//!
//! Bounded by the gate, which admits no more entries than all pipes together may have. Oldest first.

use std::collections::VecDeque;
use std::sync::Weak;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

use crate::entry::Entry;
use crate::pipe::core::ExtractWhere;
use crate::pool::Shared;
use crate::sync::{AtomicUsize, Mutex, MutexGuard, Ordering, PoisonError};
use crate::wire::{Driver, Wire};

/// How often deadlines are looked at while something waits.
const TICK: Duration = Duration::from_millis(10);

pub(crate) struct Overflow<W: Wire> {
    entries: Mutex<VecDeque<Entry<W>>>,
    /// Read without the lock on every submission.
    len: AtomicUsize,
    filled: std::sync::Arc<Notify>,
}

impl<W: Wire> Overflow<W> {
    pub(crate) fn new() -> Self {
        Self { entries: Mutex::default(), len: AtomicUsize::new(0), filled: std::sync::Arc::default() }
    }

    pub(crate) fn len(&self) -> usize {
        self.len.load(Ordering::SeqCst)
    }

    pub(crate) fn push(&self, entry: Entry<W>) {
        self.change(|entries| entries.push_back(entry));
        self.filled.notify_one();
    }

    /// The oldest, without a lock when there is none.
    pub(crate) fn pop_some(&self) -> Option<Entry<W>> {
        if self.len() == 0 { None } else { self.change(VecDeque::pop_front) }
    }

    /// Puts back what was popped.
    pub(crate) fn unpop(&self, entry: Entry<W>) {
        self.change(|entries| entries.push_front(entry));
        self.filled.notify_one();
    }

    /// Whoever keeps the deadlines looks whether the pool is still there.
    pub(crate) fn look(&self) {
        self.filled.notify_one();
    }

    pub(crate) fn take_all(&self) -> VecDeque<Entry<W>> {
        self.change(std::mem::take)
    }

    fn change<T>(&self, change: impl FnOnce(&mut VecDeque<Entry<W>>) -> T) -> T {
        let mut entries: MutexGuard<'_, _> = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let result = change(&mut entries);
        self.len.store(entries.len(), Ordering::SeqCst);
        result
    }
}

/// Answers waiting entries whose deadline has passed. Sleeps while nothing waits, and ends with the pool.
pub(crate) async fn keep<D: Driver>(shared: Weak<Shared<D>>) {
    loop {
        let Some(filled) = shared.upgrade().map(|shared| std::sync::Arc::clone(&shared.overflow.filled))
        else {
            return;
        };
        let Some(strong) = shared.upgrade() else { return };
        if strong.overflow.len() == 0 {
            if strong.has_ended() {
                return;
            }
            drop(strong);
            filled.notified().await;
            continue;
        }
        let now = Instant::now();
        let expired = strong
            .overflow
            .change(|entries| entries.extract_where(|entry| entry.deadline <= now || entry.is_abandoned()));
        for entry in expired {
            entry.fail(strong.queue_timeout("no pipe could take it"));
        }
        // A pipe that got room while nobody looked.
        strong.serve_overflow();
        drop(strong);
        sleep(TICK).await;
    }
}
