//! Entries that no pipe can take at the moment: all are full, hot, leased, or without a connection.
//!
//! Bounded by the gate, which admits no more entries than all pipes together may have. Oldest first within a class.

use std::collections::VecDeque;
use std::sync::Weak;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

use crate::entry::{Class, Entry};
use crate::pipe::core::ExtractWhere;
use crate::pool::shared::Shared;
use crate::sync::{AtomicUsize, Mutex, MutexGuard, Ordering, PoisonError};
use crate::wire::{Driver, Wire};

/// How often deadlines are looked at while something waits.
const TICK: Duration = Duration::from_millis(10);

pub(crate) struct Overflow<W: Wire> {
    fast: Waiting<W>,
    slow: Waiting<W>,
    filled: std::sync::Arc<Notify>,
}

/// The waiting queue of one class.
struct Waiting<W: Wire> {
    entries: Mutex<VecDeque<Entry<W>>>,
    /// Read without the lock on every submission.
    len: AtomicUsize,
}

impl<W: Wire> Overflow<W> {
    pub(crate) fn new() -> Self {
        let waiting = || Waiting { entries: Mutex::default(), len: AtomicUsize::new(0) };
        Self { fast: waiting(), slow: waiting(), filled: std::sync::Arc::default() }
    }

    fn of(&self, class: Class) -> &Waiting<W> {
        match class {
            Class::Fast => &self.fast,
            Class::Slow => &self.slow,
        }
    }

    pub(crate) fn len(&self, class: Class) -> usize {
        self.of(class).len.load(Ordering::SeqCst)
    }

    pub(crate) fn push(&self, entry: Entry<W>) {
        self.of(entry.class()).change(|entries| entries.push_back(entry));
        self.filled.notify_one();
    }

    /// The oldest, without a lock when there is none.
    pub(crate) fn pop_some(&self, class: Class) -> Option<Entry<W>> {
        if self.len(class) == 0 { None } else { self.of(class).change(VecDeque::pop_front) }
    }

    /// Puts back what was popped.
    pub(crate) fn unpop(&self, entry: Entry<W>) {
        self.of(entry.class()).change(|entries| entries.push_front(entry));
        self.filled.notify_one();
    }

    /// Whoever keeps the deadlines looks whether the pool is still there.
    pub(crate) fn look(&self) {
        self.filled.notify_one();
    }

    /// Takes out what matches.
    pub(crate) fn take_where(&self, mut matches: impl FnMut(&Entry<W>) -> bool) -> Vec<Entry<W>> {
        let mut taken = self.fast.change(|entries| entries.extract_where(&mut matches));
        taken.append(&mut self.slow.change(|entries| entries.extract_where(&mut matches)));
        taken
    }
}

impl<W: Wire> Waiting<W> {
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
        if !strong.has_overflow() {
            if strong.has_ended() {
                return;
            }
            drop(strong);
            filled.notified().await;
            continue;
        }
        let now = Instant::now();
        let expired = strong.overflow.take_where(|entry| entry.deadline <= now || entry.is_abandoned());
        for entry in expired {
            let fault = strong.not_taken(entry.since);
            entry.fail(fault);
        }
        // A pipe that got room while nobody looked.
        strong.serve_overflow();
        strong.serve_patient();
        drop(strong);
        sleep(TICK).await;
    }
}
