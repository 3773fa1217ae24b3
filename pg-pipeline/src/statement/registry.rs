//! What a pool has learnt of its statements: parameter types and how long the server works on them.
//!
//! Learnt once, used by every pipe: a further pipe parses with explicit types and binds in the same write. Bounded:
//! texts made at run time must not fill the memory.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use postgres_types::Type;

use super::{Class, StatementKey, classify};

/// What is known of a statement. The text is shared by everything that refers to it.
#[derive(Debug)]
pub(crate) struct Learned {
    pub(crate) text: Box<str>,
    pub(crate) hash: u64,
    pub(crate) class: Class,
    pub(crate) parameters: Box<[Type]>,
    /// Smoothed time that the server works on it, in microseconds.
    micros: AtomicU32,
    /// When it was used last, in uses of the registry.
    used: AtomicU64,
}

impl Learned {
    /// What a statement that nobody has run yet is expected to take.
    const UNKNOWN_MICROS: u32 = 100;
    const LONGEST_MICROS: u32 = 2_000_000;

    pub(crate) fn new(key: StatementKey<'_>, parameters: Box<[Type]>) -> Arc<Self> {
        Arc::new(Self {
            text: key.text.into(),
            hash: key.hash,
            class: classify(key.text),
            parameters,
            micros: AtomicU32::new(Self::UNKNOWN_MICROS),
            used: AtomicU64::new(0),
        })
    }

    pub(crate) fn key(&self) -> StatementKey<'_> {
        StatementKey { text: &self.text, hash: self.hash }
    }

    pub(crate) fn expected_micros(&self) -> u32 {
        self.micros.load(Ordering::Relaxed)
    }

    /// A sixteenth of the difference counts. Two observations at once may lose one: it is an estimate.
    pub(crate) fn observed_micros(&self, micros: u32) {
        let before = self.micros.load(Ordering::Relaxed);
        let seen = micros.min(Self::LONGEST_MICROS);
        let after = before - before / 16 + seen / 16;
        if after != before {
            self.micros.store(after.max(1), Ordering::Relaxed);
        }
    }
}

/// The statements of one pool.
#[derive(Debug)]
pub(crate) struct Registry {
    learned: RwLock<HashMap<u64, Vec<Arc<Learned>>, BuildNothing>>,
    most: usize,
    clock: AtomicU64,
}

impl Registry {
    /// Keeps at least `most` statements.
    pub(crate) fn new(most: usize) -> Self {
        Self { learned: RwLock::default(), most: most.max(64), clock: AtomicU64::new(0) }
    }

    pub(crate) fn get(&self, key: StatementKey<'_>) -> Option<Arc<Learned>> {
        let learned = self.learned.read().unwrap_or_else(PoisonError::into_inner);
        let found = learned.get(&key.hash)?.iter().find(|learned| learned.key() == key)?;
        found.used.store(self.clock.load(Ordering::Relaxed), Ordering::Relaxed);
        Some(Arc::clone(found))
    }

    /// Takes what was learnt; replaces what was known of the same text.
    pub(crate) fn insert(&self, new: &Arc<Learned>) {
        new.used.store(self.clock.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
        let mut learned = self.learned.write().unwrap_or_else(PoisonError::into_inner);
        if learned.len() >= 2 * self.most {
            forget_older_half(&mut learned);
        }
        let bucket = learned.entry(new.hash).or_default();
        bucket.retain(|known| known.key() != new.key());
        bucket.push(Arc::clone(new));
    }

    /// Forgets exactly this, unless it was replaced already.
    pub(crate) fn forget(&self, old: &Arc<Learned>) {
        let mut learned = self.learned.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(bucket) = learned.get_mut(&old.hash) {
            bucket.retain(|known| !Arc::ptr_eq(known, old));
            if bucket.is_empty() {
                learned.remove(&old.hash);
            }
        }
    }
}

fn forget_older_half(learned: &mut HashMap<u64, Vec<Arc<Learned>>, BuildNothing>) {
    let mut uses: Vec<u64> =
        learned.values().flatten().map(|known| known.used.load(Ordering::Relaxed)).collect();
    uses.sort_unstable();
    let Some(middle) = uses.get(uses.len() / 2).copied() else { return };
    learned.retain(|_, bucket| {
        bucket.retain(|known| known.used.load(Ordering::Relaxed) >= middle);
        !bucket.is_empty()
    });
}

/// The key is a hash already.
type BuildNothing = std::hash::BuildHasherDefault<Nothing>;

#[derive(Debug, Default)]
pub(crate) struct Nothing(u64);

impl std::hash::Hasher for Nothing {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn learn(registry: &Registry, text: &str) -> Arc<Learned> {
        let learned = Learned::new(StatementKey::of(text), Box::new([Type::INT4]));
        registry.insert(&learned);
        learned
    }

    #[test]
    fn the_hash_selects_and_the_text_decides() {
        let registry = Registry::new(64);
        let first = Learned::new(StatementKey { text: "a", hash: 7 }, Box::new([]));
        let second = Learned::new(StatementKey { text: "b", hash: 7 }, Box::new([]));
        registry.insert(&first);
        registry.insert(&second);
        let found = registry.get(StatementKey { text: "a", hash: 7 }).expect("known");
        assert!(Arc::ptr_eq(&found, &first));
        assert!(registry.get(StatementKey { text: "c", hash: 7 }).is_none());
        registry.forget(&first);
        assert!(registry.get(first.key()).is_none());
        assert!(registry.get(second.key()).is_some());
    }

    #[test]
    fn texts_made_at_run_time_do_not_fill_the_memory_and_used_ones_stay() {
        let registry = Registry::new(64);
        let hot = learn(&registry, "hot");
        for n in 0..10_000 {
            learn(&registry, &format!("SELECT {n}"));
            assert!(registry.get(hot.key()).is_some(), "after {n}");
        }
        assert!(registry.learned.read().expect("unpoisoned").len() <= 130);
    }

    #[test]
    fn estimates_follow_what_is_seen() {
        let learned = Learned::new(StatementKey::of("x"), Box::new([]));
        for _ in 0..200 {
            learned.observed_micros(50_000);
        }
        assert!(learned.expected_micros() > 40_000);
        for _ in 0..200 {
            learned.observed_micros(20);
        }
        assert!(learned.expected_micros() < 100);
    }
}
