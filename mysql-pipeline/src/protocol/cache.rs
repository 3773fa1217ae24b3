//! Which statements one connection has prepared: a bounded cache, least recently used first out.
//!
//! How statements are found and which is the oldest is the engine's. An entry is made when its prepare is written and has an id when that is answered; until then whoever wants the
//! statement waits for it. Only what has an id is evicted, so that a burst of new statements may exceed the bound
//! until the next statement comes. What is evicted is closed with the next command, behind everything that uses it.

use std::sync::Arc;

use wire_pipeline::statement::PreparedSet;
use wire_pipeline::wire::{ParkKey, Statements};

use super::response::{Prepared, StatementId};
use crate::statement::Learned;

#[derive(Debug)]
pub(crate) struct Cache {
    statements: PreparedSet<Learned, State>,
    most: usize,
    next_key: u64,
    /// Ids to close with the next command.
    to_close: Vec<StatementId>,
}

#[derive(Debug, Clone, Copy)]
enum State {
    Asked(ParkKey),
    Ready(Prepared),
}

/// Whether a statement can be executed now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found {
    /// It has an id.
    Ready(Prepared),
    /// It is being prepared.
    Asked(ParkKey),
    /// It was not known; now it is to be prepared.
    New(ParkKey),
}

impl Cache {
    /// At most `most` statements, at least one.
    pub(crate) fn new(most: usize) -> Self {
        Self { statements: PreparedSet::default(), most: most.max(1), next_key: 0, to_close: Vec::new() }
    }

    /// Looks a statement up for use. One that is not known is taken in: its prepare must be written now, behind
    /// what [`take_to_close`](Self::take_to_close) gives.
    pub(crate) fn find_or_ask(&mut self, statement: &Arc<Learned>) -> Found {
        if let Some(cached) = self.statements.get(statement) {
            return match cached.prepared {
                State::Ready(prepared) => Found::Ready(prepared),
                State::Asked(key) => Found::Asked(key),
            };
        }
        while self.statements.len() >= self.most
            && let Some(State::Ready(oldest)) =
                self.statements.remove_oldest(|state| matches!(state, State::Ready(_)))
        {
            self.to_close.push(oldest.id);
        }
        let key = self.next_key();
        self.statements.insert(statement, State::Asked(key));
        Found::New(key)
    }

    /// A key under which nobody waits yet.
    pub(crate) fn next_key(&mut self) -> ParkKey {
        self.next_key += 1;
        ParkKey(self.next_key)
    }

    /// The prepare under `key` was answered.
    pub(crate) fn prepared(&mut self, statement: &Arc<Learned>, key: ParkKey, prepared: Prepared) {
        // Otherwise the session was reset meanwhile, and the server has forgotten the id.
        if let Some(cached) = self.statements.get(statement)
            && matches!(cached.prepared, State::Asked(asked) if asked == key)
        {
            cached.prepared = State::Ready(prepared);
        }
    }

    /// The prepare under `key` was refused.
    pub(crate) fn refused(&mut self, statement: &Arc<Learned>, key: ParkKey) {
        self.statements.remove_if(statement, |state| matches!(state, State::Asked(asked) if *asked == key));
    }

    /// The statement must be prepared again. `exists` says whether the server has it still.
    pub(crate) fn forget(&mut self, statement: &Arc<Learned>, id: StatementId, exists: bool) {
        let is_it = |state: &State| matches!(state, State::Ready(prepared) if prepared.id == id);
        if self.statements.remove_if(statement, is_it).is_some() && exists {
            self.to_close.push(id);
        }
    }

    /// Everything is to be prepared again: what is known belongs to another database.
    pub(crate) fn forget_all(&mut self) {
        let Self { statements, to_close, .. } = self;
        statements.retain(|state| {
            if let State::Ready(prepared) = state {
                to_close.push(prepared.id);
            }
            false
        });
    }

    /// The server is about to forget all statements.
    pub(crate) fn clear(&mut self) {
        self.statements.clear();
        self.to_close.clear();
    }

    /// How many there are, and how many had to make room.
    pub(crate) fn count(&mut self) -> Statements {
        self.statements.count()
    }

    /// The ids to close with the next command.
    pub(crate) fn take_to_close(&mut self) -> Vec<StatementId> {
        std::mem::take(&mut self.to_close)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prepare(cache: &mut Cache, statement: &Arc<Learned>, id: u32) -> Prepared {
        let Found::New(key) = cache.find_or_ask(statement) else { panic!("known already") };
        let prepared = Prepared { id: StatementId(id), columns: 0, parameters: 0 };
        cache.prepared(statement, key, prepared);
        prepared
    }

    #[test]
    fn the_least_recently_used_statement_is_closed() {
        let mut cache = Cache::new(2);
        let [a, b, c] = ["a", "b", "c"].map(Learned::of);
        let a_prepared = prepare(&mut cache, &a, 1);
        prepare(&mut cache, &b, 2);
        assert_eq!(cache.find_or_ask(&Learned::of("a")), Found::Ready(a_prepared));
        prepare(&mut cache, &c, 3);
        assert_eq!(cache.take_to_close(), [StatementId(2)]);
        assert!(matches!(cache.find_or_ask(&a), Found::Ready(_)));
        assert!(cache.take_to_close().is_empty());
    }

    #[test]
    fn what_is_forgotten_as_a_whole_is_closed_and_asked_for_again() {
        let mut cache = Cache::new(2);
        let [a, b] = ["a", "b"].map(Learned::of);
        prepare(&mut cache, &a, 1);
        prepare(&mut cache, &b, 2);
        cache.forget_all();
        let mut closed = cache.take_to_close();
        closed.sort_unstable_by_key(|id| id.0);
        assert_eq!(closed, [StatementId(1), StatementId(2)]);
        assert!(matches!(cache.find_or_ask(&a), Found::New(_)));
    }

    #[test]
    fn what_is_being_prepared_is_not_evicted_and_the_bound_holds_again_afterwards() {
        let mut cache = Cache::new(1);
        let [a, b, c] = ["a", "b", "c"].map(Learned::of);
        let Found::New(a_key) = cache.find_or_ask(&a) else { panic!("new") };
        let Found::New(b_key) = cache.find_or_ask(&b) else { panic!("new") };
        assert_eq!(cache.find_or_ask(&a), Found::Asked(a_key));
        cache.prepared(&a, a_key, Prepared { id: StatementId(1), columns: 0, parameters: 0 });
        cache.prepared(&b, b_key, Prepared { id: StatementId(2), columns: 0, parameters: 0 });
        assert!(matches!(cache.find_or_ask(&b), Found::Ready(_)));
        assert!(matches!(cache.find_or_ask(&c), Found::New(_)));
        assert_eq!(cache.take_to_close(), [StatementId(1), StatementId(2)]);
        assert_eq!(cache.statements.len(), 1);
    }

    #[test]
    fn an_id_from_before_a_reset_is_not_used() {
        let mut cache = Cache::new(8);
        let a = Learned::of("a");
        let Found::New(old) = cache.find_or_ask(&a) else { panic!("new") };
        cache.clear();
        let Found::New(new) = cache.find_or_ask(&a) else { panic!("new again") };
        cache.prepared(&a, old, Prepared { id: StatementId(1), columns: 0, parameters: 0 });
        assert_eq!(cache.find_or_ask(&a), Found::Asked(new));
        cache.refused(&a, old);
        assert_eq!(cache.find_or_ask(&a), Found::Asked(new));
    }
}
