//! A part of a transaction as its handle holds it: what becomes of it when the handle, or the call that makes or ends
//! it, is dropped.
//!
//! Built on a lease's [`Savepoints`](crate::savepoint::Savepoints); what is said to the server is the driver's.

use crate::call::Leased;
use crate::wire::Driver;

/// A savepoint that somebody holds. Dropped, it is undone before anything else is sent on its lease, unless it is over,
/// or was kept.
pub struct Held<'a, D: Driver> {
    leased: &'a Leased<D>,
    number: u32,
    undo: bool,
}

impl<'a, D: Driver> Held<'a, D> {
    /// One that is about to be set, by a call that has the turn. Until it is known to be there, there is nothing to undo.
    pub fn about_to_be_set(leased: &'a Leased<D>) -> Self {
        Self { leased, number: leased.savepoints.set(), undo: false }
    }

    /// It is there.
    #[must_use]
    pub fn is_set(mut self) -> Self {
        self.undo = true;
        self
    }

    /// Its number; see [`Savepoints::set`](crate::savepoint::Savepoints::set).
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Whether no other is inside of it.
    pub fn is_innermost(&self) -> bool {
        self.leased.savepoints.is_innermost(self.number)
    }

    /// It is kept from now on, whether or not the server hears of it: what is not undone is kept.
    pub fn keep(&mut self) {
        self.undo = false;
        self.leased.savepoints.keep(self.number);
    }

    /// The server has refused to keep it.
    pub fn undo_after_all(&mut self) {
        self.undo = true;
    }
}

impl<D: Driver> Drop for Held<'_, D> {
    fn drop(&mut self) {
        if self.undo {
            self.leased.undo_since(self.number);
        } else {
            self.leased.savepoints.forget(self.number);
        }
    }
}
