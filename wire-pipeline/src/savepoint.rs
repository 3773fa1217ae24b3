//! Which savepoints a lease has had, and what is to be undone because one was dropped.
//!
//! Dropping cannot wait for an answer: it leaves a note here, and whoever has the turn next on the lease acts on it
//! first. Knows numbers; what a savepoint is called and how it is undone is the driver's.

use std::sync::atomic::{AtomicU32, Ordering};

/// The savepoints of a lease; see the module.
#[derive(Debug, Default)]
pub struct Savepoints {
    /// The number of the latest one.
    latest: AtomicU32,
    /// What was done since this one is to be undone before anything else; 0 for nothing.
    undo: AtomicU32,
}

impl Savepoints {
    /// A number for one more, from 1: a later one has the higher number.
    pub fn next(&self) -> u32 {
        self.latest.fetch_add(1, Ordering::AcqRel).wrapping_add(1)
    }

    /// What was done since a savepoint is to be undone before anything else is sent. An earlier one undoes what a later
    /// one would.
    pub fn undo_since(&self, number: u32) {
        let _ = self.undo.fetch_update(Ordering::AcqRel, Ordering::Acquire, |undo| {
            (undo == 0 || number < undo).then_some(number)
        });
    }

    /// Since which savepoint everything is to be undone.
    pub fn to_undo(&self) -> Option<u32> {
        Some(self.undo.load(Ordering::Acquire)).filter(|number| *number > 0)
    }

    /// That is done. What was asked for meanwhile stays asked for.
    pub fn undone_since(&self, number: u32) {
        let _ = self.undo.compare_exchange(number, 0, Ordering::AcqRel, Ordering::Acquire);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earliest_of_those_that_were_dropped_is_undone_once() {
        let savepoints = Savepoints::default();
        let [first, second, third] = [savepoints.next(), savepoints.next(), savepoints.next()];
        assert_eq!([first, second, third], [1, 2, 3]);
        assert_eq!(savepoints.to_undo(), None);
        savepoints.undo_since(second);
        savepoints.undo_since(third);
        assert_eq!(savepoints.to_undo(), Some(second));
        // While that is on its way an earlier one is dropped.
        savepoints.undo_since(first);
        savepoints.undone_since(second);
        assert_eq!(savepoints.to_undo(), Some(first));
        savepoints.undone_since(first);
        assert_eq!(savepoints.to_undo(), None);
    }
}
