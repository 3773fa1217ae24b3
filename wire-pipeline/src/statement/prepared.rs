//! Which statements one connection has prepared: a set in which the least recently used is found.
//!
//! How many there may be, which of them may go, and what the server is told of it is the driver's.

use std::collections::HashMap;
use std::sync::Arc;

use super::{BuildNothing, Keyed};
use crate::wire::Statements;

/// The statements that one connection has prepared, each with what the driver remembers of it.
#[derive(Debug)]
pub struct PreparedSet<L, P> {
    entries: HashMap<u64, Vec<Cached<L, P>>, BuildNothing>,
    len: usize,
    clock: u64,
    evicted: u64,
}

/// A statement that one connection has prepared.
#[derive(Debug)]
pub struct Cached<L, P> {
    /// What the pool knew of it then.
    pub learned: Arc<L>,
    /// What the driver remembers.
    pub prepared: P,
    used: u64,
}

impl<L, P> Default for PreparedSet<L, P> {
    fn default() -> Self {
        Self { entries: HashMap::default(), len: 0, clock: 0, evicted: 0 }
    }
}

impl<L: Keyed, P> PreparedSet<L, P> {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The statement of this text; from now on it is the most recently used one.
    pub fn get(&mut self, learned: &Arc<L>) -> Option<&mut Cached<L, P>> {
        self.clock += 1;
        let key = learned.key();
        let bucket = self.entries.get_mut(&key.hash)?;
        let found = bucket
            .iter_mut()
            .find(|cached| Arc::ptr_eq(&cached.learned, learned) || cached.learned.key() == key)?;
        found.used = self.clock;
        Some(found)
    }

    /// Adds a statement in place of the one of the same text, which it returns.
    pub fn insert(&mut self, learned: &Arc<L>, prepared: P) -> Option<P> {
        self.clock += 1;
        let key = learned.key();
        let new = Cached { learned: Arc::clone(learned), prepared, used: self.clock };
        let bucket = self.entries.entry(key.hash).or_default();
        if let Some(known) = bucket.iter_mut().find(|cached| cached.learned.key() == key) {
            return Some(std::mem::replace(known, new).prepared);
        }
        bucket.push(new);
        self.len += 1;
        None
    }

    /// Removes the statement of this text, if `condition` holds of it.
    pub fn remove_if(&mut self, learned: &L, condition: impl FnOnce(&P) -> bool) -> Option<P> {
        let key = learned.key();
        let bucket = self.entries.get_mut(&key.hash)?;
        let at = bucket.iter().position(|cached| cached.learned.key() == key)?;
        if !condition(&bucket.get(at)?.prepared) {
            return None;
        }
        let removed = bucket.swap_remove(at);
        if bucket.is_empty() {
            self.entries.remove(&key.hash);
        }
        self.len -= 1;
        Some(removed.prepared)
    }

    /// Removes the least recently used of those that `may_go`.
    ///
    /// The set is small and misses are rare: a look at all entries is cheaper than a list kept in order.
    pub fn remove_oldest(&mut self, may_go: impl Fn(&P) -> bool) -> Option<P> {
        let candidates = self.entries.values().flatten().filter(|cached| may_go(&cached.prepared));
        let oldest = Arc::clone(&candidates.min_by_key(|cached| cached.used)?.learned);
        let removed = self.remove_if(&oldest, |_| true);
        self.evicted += u64::from(removed.is_some());
        removed
    }

    /// How many there are, and how many of the oldest were removed since this was asked last.
    pub fn count(&mut self) -> Statements {
        Statements { cached: self.len, evicted: std::mem::take(&mut self.evicted) }
    }

    /// Keeps those of which `keep` holds.
    pub fn retain(&mut self, mut keep: impl FnMut(&P) -> bool) {
        self.entries.retain(|_, bucket| {
            bucket.retain(|cached| keep(&cached.prepared));
            !bucket.is_empty()
        });
        self.len = self.entries.values().map(Vec::len).sum();
    }

    /// Removes all.
    pub fn clear(&mut self) {
        self.entries.clear();
        self.len = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::Known;
    use super::*;

    #[test]
    fn the_least_recently_used_of_those_that_may_go_is_removed() {
        let mut set = PreparedSet::default();
        let [a, b, c] = ["a", "b", "c"].map(Known::of);
        for (learned, number) in [(&a, 1), (&b, 2), (&c, 3)] {
            assert_eq!(set.insert(learned, number), None);
        }
        assert_eq!(set.get(&a).map(|cached| cached.prepared), Some(1));
        assert_eq!(set.remove_oldest(|number| *number != 2), Some(3));
        assert_eq!(set.remove_oldest(|_| true), Some(2));
        assert!(set.get(&b).is_none());
        assert_eq!(set.len(), 1);
        assert_eq!(set.remove_oldest(|_| false), None);
    }

    #[test]
    fn the_hash_selects_and_the_text_decides() {
        let mut set = PreparedSet::default();
        let [a, b] = ["a", "b"].map(|text| Arc::new(Known { text, hash: 7 }));
        set.insert(&a, 1);
        set.insert(&b, 2);
        assert_eq!(set.insert(&Arc::new(Known { text: "a", hash: 7 }), 3), Some(1));
        assert_eq!((set.len(), set.get(&a).map(|cached| cached.prepared)), (2, Some(3)));
        assert_eq!(set.remove_if(&b, |number| *number == 1), None);
        assert_eq!(set.remove_if(&b, |number| *number == 2), Some(2));
        assert!(set.get(&b).is_none());
        set.retain(|number| *number != 3);
        assert!(set.is_empty() && set.get(&a).is_none());
    }
}
