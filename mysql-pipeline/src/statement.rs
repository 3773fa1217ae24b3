//! Statements: what is asked, apart from every connection.
//!
//! A statement is a text and its hash; it belongs to no connection and to no pool. Which pipe has it prepared, and
//! under which id, is that pipe's affair ([`crate::protocol`]). The hash selects, the text decides.

use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, LazyLock};

/// One seed for the process: a hash is valid in every pool.
static HASHER: LazyLock<foldhash::fast::FixedState> =
    LazyLock::new(|| foldhash::fast::FixedState::with_seed(RandomState::new().hash_one(0_u8)));

/// A statement's text, hashed once, and how long servers work on it.
#[derive(Debug)]
pub(crate) struct Statement {
    text: Box<str>,
    hash: u64,
    /// Smoothed time that the server works on it, in microseconds.
    micros: AtomicU32,
}

impl Statement {
    /// What a statement that nobody has run yet is expected to take.
    const UNKNOWN_MICROS: u32 = 100;
    const LONGEST_MICROS: u32 = 2_000_000;

    pub(crate) fn new(text: impl Into<Box<str>>) -> Arc<Self> {
        let text = text.into();
        let hash = HASHER.hash_one(&*text);
        Arc::new(Self { text, hash, micros: AtomicU32::new(Self::UNKNOWN_MICROS) })
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    pub(crate) fn expected_micros(&self) -> u32 {
        self.micros.load(Ordering::Relaxed)
    }

    /// A sixteenth of the difference counts. Two observations at once may lose one: it is an estimate.
    pub(crate) fn observed_micros(&self, micros: u32) {
        let before = self.expected_micros();
        let seen = micros.min(Self::LONGEST_MICROS);
        let after = before - before / 16 + seen / 16;
        if after != before {
            self.micros.store(after.max(1), Ordering::Relaxed);
        }
    }
}

impl PartialEq for Statement {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other) || (self.hash == other.hash && self.text == other.text)
    }
}

impl Eq for Statement {}

impl Hash for Statement {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}
