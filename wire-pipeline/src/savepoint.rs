//! Which savepoints a lease has, and what is to be undone because one was dropped or rolled back.
//!
//! ```text
//!  set ──▶ open ── kept (RELEASE) ─────────────▶ gone; those inside of it stay open
//!            └──── undo (dropped, rolled back) ▶ gone, and all inside of it with it, before what is asked next
//! ```
//!
//! Dropping cannot wait for an answer: it leaves a note here, and whoever has the turn next on the lease acts on it
//! first. The note goes only when the server has confirmed that it is done, and nothing else is sent meanwhile: so it
//! does not matter at which point whoever acts on it gives up. Knows numbers; what a savepoint is called and how it is
//! undone is the driver's.

use crate::sync::{Mutex, MutexGuard, PoisonError};

/// The savepoints of a lease; see the module.
#[derive(Debug, Default)]
pub struct Savepoints(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// The number of the latest one.
    latest: u32,
    /// Those that have a handle and are not undone, the earliest first: each is inside of all before it.
    open: Vec<Part>,
    /// What is to be undone before anything else.
    undo: Option<Undo>,
}

#[derive(Debug)]
struct Part {
    number: u32,
    /// Its handle has asked to keep it.
    kept: bool,
}

/// What was done since a savepoint is to be undone.
#[derive(Debug, Clone, Copy)]
struct Undo {
    number: u32,
    /// Calls from this one on were made later than that was asked for.
    before: usize,
}

impl Savepoints {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A number for one more, from 1: a later one has the higher number, and is inside of those that are open. Taken by
    /// who has the turn, so that the numbers have the order of the wire.
    pub fn set(&self) -> u32 {
        let mut state = self.state();
        state.latest = state.latest.wrapping_add(1);
        let number = state.latest;
        state.open.push(Part { number, kept: false });
        number
    }

    /// Whether it was neither ended nor undone with one that it was inside of.
    pub fn is_open(&self, number: u32) -> bool {
        self.state().open.iter().any(|part| part.number == number)
    }

    /// Whether no other is inside of it.
    pub fn is_innermost(&self, number: u32) -> bool {
        self.state().open.last().is_some_and(|part| part.number == number)
    }

    /// Its handle asks to keep it.
    pub fn keep(&self, number: u32) {
        let mut state = self.state();
        if let Some(part) = state.open.iter_mut().find(|part| part.number == number) {
            part.kept = true;
        }
    }

    /// Its handle is gone, and what was done since stays.
    pub fn forget(&self, number: u32) {
        self.state().open.retain(|part| part.number != number);
    }

    /// What was done since it was set is to be undone, unless it is over: behind the calls before `before`, which were
    /// made earlier, and before anything else is sent. An earlier one undoes what a later one would.
    pub fn undo_since(&self, number: u32, before: usize) {
        self.state().undo_since(number, before);
    }

    /// The same for all that nobody has asked to keep.
    pub fn undo_what_is_not_kept(&self) {
        let mut state = self.state();
        if let Some(first) = state.open.iter().find(|part| !part.kept).map(|part| part.number) {
            state.undo_since(first, 0);
        }
    }

    /// Since which savepoint everything is to be undone before this call's request is sent. All that are inside of it are
    /// over from now on.
    pub fn to_undo(&self, call: usize) -> Option<u32> {
        let mut state = self.state();
        let number = state.undo.filter(|undo| undo.before <= call)?.number;
        state.open.retain(|part| part.number < number);
        Some(number)
    }

    /// That is done. What was asked for meanwhile stays asked for.
    pub fn undone_since(&self, number: u32) {
        let mut state = self.state();
        state.undo = state.undo.filter(|undo| undo.number != number);
    }
}

impl State {
    fn undo_since(&mut self, number: u32, before: usize) {
        if !self.open.iter().any(|part| part.number == number) {
            return;
        }
        self.open.retain(|part| part.number < number);
        if self.undo.is_none_or(|undo| number < undo.number) {
            self.undo = Some(Undo { number, before });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LATEST: usize = usize::MAX;

    fn three() -> (Savepoints, [u32; 3]) {
        let savepoints = Savepoints::default();
        let numbers = [savepoints.set(), savepoints.set(), savepoints.set()];
        (savepoints, numbers)
    }

    #[test]
    fn the_earliest_of_those_that_were_dropped_is_undone_once() {
        let (savepoints, [first, second, third]) = three();
        assert_eq!([first, second, third], [1, 2, 3]);
        assert_eq!(savepoints.to_undo(LATEST), None);
        savepoints.undo_since(second, 0);
        savepoints.undo_since(third, 0);
        assert_eq!(savepoints.to_undo(LATEST), Some(second));
        assert_eq!(savepoints.to_undo(LATEST), Some(second), "until it is confirmed");
        // While that is on its way an earlier one is dropped.
        savepoints.undo_since(first, 0);
        savepoints.undone_since(second);
        assert_eq!(savepoints.to_undo(LATEST), Some(first));
        savepoints.undone_since(first);
        assert_eq!(savepoints.to_undo(LATEST), None);
    }

    #[test]
    fn undoing_one_ends_those_inside_of_it_and_keeping_one_does_not() {
        let (savepoints, [first, second, third]) = three();
        savepoints.forget(first);
        assert!(savepoints.is_open(second) && savepoints.is_open(third));
        assert!(savepoints.is_innermost(third) && !savepoints.is_innermost(second));
        savepoints.undo_since(second, 0);
        assert!(!savepoints.is_open(second) && !savepoints.is_open(third));
        savepoints.undone_since(second);
        // What is over cannot be undone again, nor be kept.
        savepoints.undo_since(third, 0);
        savepoints.keep(third);
        assert_eq!(savepoints.to_undo(LATEST), None);
    }

    #[test]
    fn calls_that_were_made_before_it_was_dropped_come_before_it_is_undone() {
        let (savepoints, [first, ..]) = three();
        savepoints.undo_since(first, 5);
        assert_eq!(savepoints.to_undo(4), None);
        let late = savepoints.set();
        assert!(savepoints.is_open(late), "set by a call that was made before");
        assert_eq!(savepoints.to_undo(5), Some(first));
        assert!(!savepoints.is_open(late));
    }

    #[test]
    fn what_is_not_kept_is_undone_from_the_earliest_on() {
        let (savepoints, [first, second, third]) = three();
        savepoints.keep(first);
        savepoints.keep(third);
        savepoints.undo_what_is_not_kept();
        assert_eq!(savepoints.to_undo(0), Some(second));
        assert!(savepoints.is_open(first) && !savepoints.is_open(third));
    }
}
