//! What a pool has learnt of its statements: columns, how they must travel, and how long the server works on them.
//!
//! Learnt once, used by every pipe. Bounded: texts made at run time must not fill the memory. The twin of
//! `pg-pipeline`'s registry, on purpose not shared with it: there the parameters' types are what is learnt and what
//! goes out of date, here nothing does that an answer would not say by itself.

use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use super::{Class, StatementKey, classify};
use crate::row::Column;
use wire_pipeline::estimate::Estimate;

/// What is known of a statement. The text is shared by everything that refers to it.
#[derive(Debug)]
pub(crate) struct Learned {
    pub(crate) text: Box<str>,
    pub(crate) hash: u64,
    pub(crate) class: Class,
    /// It has no prepared form.
    text_only: AtomicBool,
    /// The columns of its latest answer, and the definitions that they were read from. Every answer brings its own
    /// definitions, which are nearly always the same: comparing them is cheaper than reading them.
    columns: RwLock<Option<Described>>,
    /// How long the server works on it.
    micros: Estimate,
    /// When it was used last, in uses of the registry.
    used: AtomicU64,
}

/// Columns, and the bytes that define them.
#[derive(Debug)]
struct Described {
    definitions: Box<[u8]>,
    columns: Arc<[Column]>,
}

impl Learned {
    /// Definitions beyond this are not kept.
    const MOST_DEFINITIONS: usize = 64 * 1024;

    pub(crate) fn new(key: StatementKey<'_>) -> Arc<Self> {
        Arc::new(Self {
            text: key.text.into(),
            hash: key.hash,
            class: classify(key.text),
            text_only: AtomicBool::new(false),
            columns: RwLock::default(),
            micros: Estimate::default(),
            used: AtomicU64::new(0),
        })
    }

    /// A statement that no pool has learnt.
    #[cfg(test)]
    pub(crate) fn of(text: &str) -> Arc<Self> {
        Self::new(StatementKey::of(text))
    }

    /// Whether it was found out that it has no prepared form.
    pub(crate) fn is_text_only(&self) -> bool {
        self.text_only.load(Ordering::Relaxed)
    }

    pub(crate) fn set_text_only(&self) {
        self.text_only.store(true, Ordering::Relaxed);
    }

    /// The columns that `definitions` were read as last, if those were the same.
    pub(crate) fn columns(&self, definitions: &[u8]) -> Option<Arc<[Column]>> {
        let columns = self.columns.read().unwrap_or_else(PoisonError::into_inner);
        let known = columns.as_ref()?;
        (*known.definitions == *definitions).then(|| Arc::clone(&known.columns))
    }

    pub(crate) fn learn_columns(&self, definitions: &[u8], columns: &Arc<[Column]>) {
        if definitions.len() <= Self::MOST_DEFINITIONS {
            let new = Some(Described { definitions: definitions.into(), columns: Arc::clone(columns) });
            let old =
                std::mem::replace(&mut *self.columns.write().unwrap_or_else(PoisonError::into_inner), new);
            drop(old);
        }
    }

    pub(crate) fn key(&self) -> StatementKey<'_> {
        StatementKey { text: &self.text, hash: self.hash }
    }

    pub(crate) fn expected_micros(&self) -> u32 {
        self.micros.expected_micros()
    }

    pub(crate) fn observed_micros(&self, micros: u32) {
        self.micros.observed_micros(micros);
    }
}

// One connection's cache looks statements up by them: the hash selects, the text decides.
impl PartialEq for Learned {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other) || self.key() == other.key()
    }
}

impl Eq for Learned {}

impl Hash for Learned {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
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

    /// What is known of a text, if only the text.
    pub(crate) fn get_or_insert(&self, key: StatementKey<'_>) -> Arc<Learned> {
        if let Some(known) = self.get(key) {
            return known;
        }
        let new = Learned::new(key);
        self.insert(&new);
        new
    }

    /// Replaces what was known of the same text.
    fn insert(&self, new: &Arc<Learned>) {
        new.used.store(self.clock.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
        let mut learned = self.learned.write().unwrap_or_else(PoisonError::into_inner);
        if learned.len() >= 2 * self.most {
            forget_older_half(&mut learned);
        }
        let bucket = learned.entry(new.hash).or_default();
        bucket.retain(|known| known.key() != new.key());
        bucket.push(Arc::clone(new));
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

    #[test]
    fn the_hash_selects_and_the_text_decides() {
        let registry = Registry::new(64);
        let key = |text| StatementKey { text, hash: 7 };
        let first = registry.get_or_insert(key("a"));
        let second = registry.get_or_insert(key("b"));
        assert!(Arc::ptr_eq(&registry.get(key("a")).expect("known"), &first));
        assert!(Arc::ptr_eq(&registry.get(key("b")).expect("known"), &second));
        assert!(registry.get(key("c")).is_none());
        assert_ne!(first, second);
    }

    #[test]
    fn texts_made_at_run_time_do_not_fill_the_memory_and_used_ones_stay() {
        let registry = Registry::new(64);
        let hot = registry.get_or_insert(StatementKey::of("hot"));
        for n in 0..10_000 {
            registry.get_or_insert(StatementKey::of(&format!("SELECT {n}")));
            assert!(registry.get(hot.key()).is_some(), "after {n}");
        }
        assert!(registry.learned.read().expect("unpoisoned").len() <= 130);
    }

    #[test]
    fn columns_are_taken_for_the_same_only_when_their_definitions_are() {
        let learned = Learned::of("x");
        let columns: Arc<[Column]> = Arc::from([]);
        assert!(learned.columns(b"").is_none());
        learned.learn_columns(b"a", &columns);
        assert!(learned.columns(b"a").is_some() && learned.columns(b"b").is_none());
        learned.learn_columns(b"b", &columns);
        assert!(learned.columns(b"a").is_none() && learned.columns(b"b").is_some());
    }

    #[test]
    fn estimates_follow_what_is_seen() {
        let learned = Learned::of("x");
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
