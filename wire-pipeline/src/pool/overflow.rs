//! Entries that no pipe can take at the moment: all are full, hot, leased, or without a connection.
//!
//! Bounded by the gate, which admits no more entries than all pipes together may have. Oldest first within a class.

use std::collections::VecDeque;
use std::sync::Arc;

use tokio::sync::Notify;

use crate::entry::{Class, Entry};
use crate::pipe::core::ExtractWhere;
use crate::sync::{AtomicUsize, Mutex, MutexGuard, Ordering, PoisonError};
use crate::wire::Wire;

pub(crate) struct Overflow<W: Wire> {
    fast: Waiting<W>,
    slow: Waiting<W>,
    filled: Arc<Notify>,
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
        Self { fast: waiting(), slow: waiting(), filled: Arc::default() }
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

    /// Told when something waits, or somebody is to look.
    pub(crate) fn filled(&self) -> Arc<Notify> {
        Arc::clone(&self.filled)
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
