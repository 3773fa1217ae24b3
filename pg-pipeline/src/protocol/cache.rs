//! Which statements one connection has prepared: a bounded cache, least recently used first out.
//!
//! How statements are found and which is the oldest is the engine's. An entry is made when its Parse is framed, so that requests framed behind it bind at once. What is evicted is
//! closed in line: the Close goes out with the next request, behind everything that uses the statement.

use std::sync::{Arc, OnceLock};

use wire_pipeline::statement::PreparedSet;
use wire_pipeline::wire::Statements;

use super::messages::Description;
use crate::error::DatabaseError;
use crate::statement::Learned;

/// A statement's name on one connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct StatementId(u64);

impl StatementId {
    /// The unnamed statement.
    pub(crate) const UNNAMED: Self = Self(0);

    /// `pp` and a number; empty for the unnamed one.
    pub(crate) fn name(self) -> String {
        if self == Self::UNNAMED { String::new() } else { format!("pp{}", self.0) }
    }
}

/// A statement that this connection has parsed, or is about to.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub(crate) id: StatementId,
    pub(crate) name: String,
    /// What this connection's server said of its rows: `None` inside for a statement without rows.
    pub(crate) description: OnceLock<Option<Arc<Description>>>,
    /// Why it could not be parsed: to whoever has bound it meanwhile the server only says that it does not exist.
    pub(crate) refusal: OnceLock<DatabaseError>,
}

impl Prepared {
    pub(crate) fn new(id: StatementId) -> Arc<Self> {
        Arc::new(Self { id, name: id.name(), description: OnceLock::new(), refusal: OnceLock::new() })
    }
}

#[derive(Debug)]
pub(crate) struct Cache {
    statements: PreparedSet<Learned, Arc<Prepared>>,
    most: usize,
    next: u64,
    /// Names to close with the next request.
    to_close: Vec<StatementId>,
}

impl Cache {
    /// At most `most` named statements; with 0 every statement is unnamed.
    pub(crate) fn new(most: usize) -> Self {
        Self { statements: PreparedSet::default(), most, next: 1, to_close: Vec::new() }
    }

    /// What was prepared of a statement, unless it was from older knowledge.
    pub(crate) fn get(&mut self, learned: &Arc<Learned>) -> Option<Arc<Prepared>> {
        let cached = self.statements.get(learned)?;
        let is_as_good = Arc::ptr_eq(&cached.learned, learned)
            || (cached.learned.generation >= learned.generation
                && cached.learned.parameters() == learned.parameters());
        is_as_good.then(|| Arc::clone(&cached.prepared))
    }

    /// A name for a statement that is about to be parsed. Another one may have to make room.
    pub(crate) fn insert(&mut self, learned: &Arc<Learned>) -> Arc<Prepared> {
        if self.most == 0 {
            return Prepared::new(StatementId::UNNAMED);
        }
        // What was prepared of the same text with other types is of no use any more.
        let same = self.statements.remove_if(learned, |_| true);
        self.to_close.extend(same.map(|prepared| prepared.id));
        while self.statements.len() >= self.most
            && let Some(oldest) = self.statements.remove_oldest(|_| true)
        {
            self.to_close.push(oldest.id);
        }
        let prepared = Prepared::new(StatementId(self.next));
        self.next += 1;
        self.statements.insert(learned, Arc::clone(&prepared));
        prepared
    }

    /// It must not be used again. `exists` says whether the server has it.
    pub(crate) fn remove(&mut self, prepared: &Arc<Prepared>, exists: bool) {
        let before = self.statements.len();
        self.statements.retain(|cached| !Arc::ptr_eq(cached, prepared));
        if self.statements.len() < before && exists {
            self.to_close.push(prepared.id);
        }
    }

    /// The server has forgotten all statements.
    pub(crate) fn clear(&mut self) {
        self.statements.clear();
        self.to_close.clear();
    }

    /// The server has forgotten all statements that it had described by now. Those that are being parsed come after.
    pub(crate) fn forget_described(&mut self) {
        self.statements.retain(|prepared| prepared.description.get().is_none());
    }

    /// Names whose Close was not executed.
    pub(crate) fn close_again(&mut self, ids: &[StatementId]) {
        self.to_close.extend_from_slice(ids);
    }

    /// How many there are, and how many had to make room.
    pub(crate) fn count(&mut self) -> Statements {
        self.statements.count()
    }

    /// The names to close with the next request.
    pub(crate) fn take_to_close(&mut self) -> Vec<StatementId> {
        std::mem::take(&mut self.to_close)
    }
}

#[cfg(test)]
mod tests {
    use postgres_types::Type;

    use super::*;
    use crate::statement::StatementKey;

    fn learned(text: &str, r#type: Type) -> Arc<Learned> {
        let learned = Learned::new(StatementKey::of(text));
        learned.learn(Box::new([r#type]));
        learned
    }

    #[test]
    fn the_least_recently_used_statement_is_closed() {
        let mut cache = Cache::new(2);
        let (a, b, c) = (learned("a", Type::INT4), learned("b", Type::INT4), learned("c", Type::INT4));
        let a_id = cache.insert(&a).id;
        let b_id = cache.insert(&b).id;
        assert_eq!(cache.get(&a).map(|prepared| prepared.id), Some(a_id));
        cache.insert(&c);
        assert!(cache.get(&b).is_none());
        assert!(cache.get(&a).is_some());
        assert_eq!(cache.take_to_close(), [b_id]);
        assert!(cache.take_to_close().is_empty());
    }

    #[test]
    fn the_same_text_with_other_types_replaces_what_was_prepared() {
        let mut cache = Cache::new(8);
        let old = learned("a", Type::INT4);
        let old_id = cache.insert(&old).id;
        let new = learned("a", Type::TEXT);
        assert!(cache.get(&new).is_none());
        cache.insert(&new);
        assert!(cache.get(&old).is_none());
        assert_eq!(cache.take_to_close(), [old_id]);
        assert_eq!(cache.statements.len(), 1);
    }

    #[test]
    fn what_was_prepared_before_the_knowledge_was_renewed_is_replaced() {
        let mut cache = Cache::new(8);
        let old = learned("a", Type::INT4);
        let old_id = cache.insert(&old).id;
        let new = old.renewed(true);
        assert_eq!(new.parameters(), old.parameters());
        assert!(cache.get(&new).is_none());
        let new_id = cache.insert(&new).id;
        assert_eq!(cache.take_to_close(), [old_id]);
        assert_eq!(cache.get(&old).map(|prepared| prepared.id), Some(new_id), "stragglers use the new one");
    }

    #[test]
    fn without_a_cache_every_statement_is_unnamed() {
        let mut cache = Cache::new(0);
        let a = learned("a", Type::INT4);
        assert_eq!(cache.insert(&a).name, "");
        assert!(cache.get(&a).is_none());
    }
}
