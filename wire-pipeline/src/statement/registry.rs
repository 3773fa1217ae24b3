//! What a pool has learnt of its statements, by their texts.
//!
//! Learnt once, used by every pipe. Bounded: texts made at run time must not fill the memory. What there is to learn
//! is the driver's.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use super::{BuildNothing, Keyed, StatementKey};

/// The statements of one pool, each with what is known of it.
#[derive(Debug)]
pub struct Registry<L> {
    known: RwLock<Known<L>>,
    most: usize,
    clock: AtomicU64,
}

type Known<L> = HashMap<u64, Vec<Entry<L>>, BuildNothing>;

#[derive(Debug)]
struct Entry<L> {
    learned: Arc<L>,
    /// When it was used last, in insertions.
    used: AtomicU64,
}

impl<L: Keyed> Registry<L> {
    /// Keeps at least `most` statements, and at least 64; at the most twice as many.
    pub fn new(most: usize) -> Self {
        Self { known: RwLock::default(), most: most.max(64), clock: AtomicU64::new(0) }
    }

    /// What is known of a text.
    pub fn get(&self, key: StatementKey<'_>) -> Option<Arc<L>> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let found = known.get(&key.hash)?.iter().find(|entry| entry.learned.key() == key)?;
        found.used.store(self.clock.load(Ordering::Relaxed), Ordering::Relaxed);
        Some(Arc::clone(&found.learned))
    }

    /// Replaces what was known of the same text.
    pub fn insert(&self, new: &Arc<L>) {
        let used = AtomicU64::new(self.clock.fetch_add(1, Ordering::Relaxed));
        let key = new.key();
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= 2 * self.most {
            forget_older_half(&mut known);
        }
        let bucket = known.entry(key.hash).or_default();
        bucket.retain(|entry| entry.learned.key() != key);
        bucket.push(Entry { learned: Arc::clone(new), used });
    }
}

fn forget_older_half<L>(known: &mut Known<L>) {
    let mut uses: Vec<u64> =
        known.values().flatten().map(|entry| entry.used.load(Ordering::Relaxed)).collect();
    uses.sort_unstable();
    let Some(middle) = uses.get(uses.len() / 2).copied() else { return };
    known.retain(|_, bucket| {
        bucket.retain(|entry| entry.used.load(Ordering::Relaxed) >= middle);
        !bucket.is_empty()
    });
}

#[cfg(test)]
mod tests {
    use super::super::tests::Known;
    use super::*;

    #[test]
    fn the_hash_selects_and_the_text_decides() {
        let registry = Registry::new(64);
        let [first, second] = ["a", "b"].map(|text| Arc::new(Known { text, hash: 7 }));
        registry.insert(&first);
        registry.insert(&second);
        let get = |text| registry.get(StatementKey { text, hash: 7 });
        assert!(Arc::ptr_eq(&get("a").expect("known"), &first));
        assert!(Arc::ptr_eq(&get("b").expect("known"), &second));
        assert!(get("c").is_none());
        let new = Arc::new(Known { text: "a", hash: 7 });
        registry.insert(&new);
        assert!(Arc::ptr_eq(&get("a").expect("known"), &new), "what was known of the text is replaced");
        assert!(Arc::ptr_eq(&get("b").expect("known"), &second));
    }

    #[test]
    fn texts_made_at_run_time_do_not_fill_the_memory_and_used_ones_stay() {
        let registry = Registry::new(64);
        let hot = Known::of("hot");
        registry.insert(&hot);
        for n in 0..10_000 {
            registry.insert(&Arc::new(Known { text: "made at run time", hash: n }));
            assert!(registry.get(hot.key()).is_some(), "after {n}");
        }
        assert!(registry.known.read().expect("unpoisoned").len() <= 130);
    }
}
