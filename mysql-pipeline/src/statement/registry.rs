//! What a pool has learnt of its statements: columns, how they must travel, and how long the server works on them.
//!
//! Learnt once, used by every pipe. How texts are found and how many are kept is the engine's. In the twin of this file
//! in `pg-pipeline` the parameters' types are what is learnt and what goes out of date; here nothing does that an
//! answer would not say by itself.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use wire_pipeline::estimate::Estimate;

use super::{Class, Keyed, StatementKey, classify};
use crate::column::Column;

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
    pub(crate) micros: Estimate,
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
}

impl Keyed for Learned {
    fn key(&self) -> StatementKey<'_> {
        StatementKey { text: &self.text, hash: self.hash }
    }
}

/// The statements of one pool.
#[derive(Debug)]
pub(crate) struct Registry {
    known: wire_pipeline::statement::Registry<Learned>,
}

impl Registry {
    /// Keeps at least `most` statements.
    pub(crate) fn new(most: usize) -> Self {
        Self { known: wire_pipeline::statement::Registry::new(most) }
    }

    /// What is known of a text, if only the text.
    pub(crate) fn get_or_insert(&self, key: StatementKey<'_>) -> Arc<Learned> {
        if let Some(known) = self.known.get(key) {
            return known;
        }
        let new = Learned::new(key);
        self.known.insert(&new);
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
