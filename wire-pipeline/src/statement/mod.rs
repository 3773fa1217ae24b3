//! Statements: how a caller names one, and how it is found again.
//!
//! A [`Statement`] is logical: a text, its hash and properties. It belongs to no connection and to no pool. What a pool
//! has learnt of a text is kept in a [`Registry`], what one connection has prepared in a [`PreparedSet`]. In both the
//! hash selects and the text decides. This module knows no language in which a text may be written, and nothing of
//! what a driver learns.

mod prepared;
mod registry;

use std::borrow::Cow;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, LazyLock};

pub use prepared::{Cached, PreparedSet};
pub use registry::Registry;

/// One seed for the process: a handle's hash is valid in every pool of every driver.
static HASHER: LazyLock<foldhash::fast::FixedState> =
    LazyLock::new(|| foldhash::fast::FixedState::with_seed(RandomState::new().hash_one(0_u8)));

/// A reusable handle of a statement's text: hashed once, cheap to clone, valid in every pool and on every lease.
///
/// Statements given as text work the same; a handle saves hashing the text on every call, and carries properties.
///
/// ```
/// use wire_pipeline::statement::Statement;
///
/// let by_id = Statement::new("the row with this id").read_only();
/// assert_eq!(by_id.text(), "the row with this id");
/// assert!(by_id.is_idempotent());
/// ```
#[derive(Clone)]
pub struct Statement {
    inner: Arc<Inner>,
    idempotent: bool,
    read_only: bool,
}

struct Inner {
    text: Box<str>,
    hash: u64,
}

impl Statement {
    /// A handle of `text`. Nothing is sent: it is prepared on a connection when it is first used there.
    pub fn new(text: impl Into<Box<str>>) -> Self {
        let text = text.into();
        let hash = HASHER.hash_one(&*text);
        Self { inner: Arc::new(Inner { text, hash }), idempotent: false, read_only: false }
    }

    /// Running it twice is as good as once: it may be run again after a lost connection.
    #[must_use]
    pub fn idempotent(mut self) -> Self {
        self.idempotent = true;
        self
    }

    /// It changes nothing. Implies [`idempotent`](Self::idempotent).
    #[must_use]
    pub fn read_only(mut self) -> Self {
        self.read_only = true;
        self.idempotent = true;
        self
    }

    /// The text.
    pub fn text(&self) -> &str {
        &self.inner.text
    }

    /// Whether it was said to be [`idempotent`](Self::idempotent).
    pub fn is_idempotent(&self) -> bool {
        self.idempotent
    }

    /// Whether it was said to be [`read_only`](Self::read_only).
    pub fn is_read_only(&self) -> bool {
        self.read_only
    }

    fn key(&self) -> StatementKey<'_> {
        StatementKey { text: &self.inner.text, hash: self.inner.hash }
    }
}

impl fmt::Debug for Statement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Statement").field(&self.text()).finish()
    }
}

impl PartialEq for Statement {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Statement {}

/// A text and its hash. The hash selects, the text decides.
#[derive(Debug, Clone, Copy)]
pub struct StatementKey<'a> {
    /// The text.
    pub text: &'a str,
    /// Its hash in this process.
    pub hash: u64,
}

impl<'a> StatementKey<'a> {
    /// The key of a text.
    pub fn of(text: &'a str) -> Self {
        Self { text, hash: HASHER.hash_one(text) }
    }
}

impl PartialEq for StatementKey<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.hash == other.hash && self.text == other.text
    }
}

impl Eq for StatementKey<'_> {}

/// What is kept of a statement, by its key.
pub trait Keyed {
    /// The statement's text and hash; always the same.
    fn key(&self) -> StatementKey<'_>;
}

/// The key is a hash already.
type BuildNothing = std::hash::BuildHasherDefault<Nothing>;

#[derive(Debug, Default)]
struct Nothing(u64);

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

/// What can be run: a text or a [`Statement`].
pub trait IntoStatement: Send + sealed::Sealed {
    #[doc(hidden)]
    fn with_key<T>(&self, use_key: impl FnOnce(Named<'_>) -> T) -> T;
}

/// What [`IntoStatement`] hands over.
#[doc(hidden)]
pub struct Named<'a> {
    pub key: StatementKey<'a>,
    pub idempotent: bool,
}

mod sealed {
    pub trait Sealed {}
}

macro_rules! texts {
    ($($type:ty),+ $(,)?) => {$(
        impl sealed::Sealed for $type {}

        impl IntoStatement for $type {
            fn with_key<T>(&self, use_key: impl FnOnce(Named<'_>) -> T) -> T {
                use_key(Named { key: StatementKey::of(self), idempotent: false })
            }
        }
    )+};
}

texts!(&str, String, &String, Cow<'_, str>, &Cow<'_, str>, Box<str>, Arc<str>);

macro_rules! handles {
    ($($type:ty),+ $(,)?) => {$(
        impl sealed::Sealed for $type {}

        impl IntoStatement for $type {
            fn with_key<T>(&self, use_key: impl FnOnce(Named<'_>) -> T) -> T {
                use_key(Named { key: self.key(), idempotent: self.idempotent })
            }
        }
    )+};
}

handles!(Statement, &Statement);

#[cfg(test)]
mod tests {
    use super::*;

    /// What a driver without anything to learn would keep.
    #[derive(Debug, PartialEq, Eq)]
    pub(super) struct Known {
        pub(super) text: &'static str,
        pub(super) hash: u64,
    }

    impl Known {
        pub(super) fn of(text: &'static str) -> Arc<Self> {
            Arc::new(Self { text, hash: StatementKey::of(text).hash })
        }
    }

    impl Keyed for Known {
        fn key(&self) -> StatementKey<'_> {
            StatementKey { text: self.text, hash: self.hash }
        }
    }

    #[test]
    fn a_handle_and_its_text_name_the_same_statement() {
        let handle = Statement::new("a").idempotent();
        let of_handle = handle.with_key(|named| (named.key == StatementKey::of("a"), named.idempotent));
        let of_text = "a".with_key(|named| (named.key == StatementKey::of("a"), named.idempotent));
        assert_eq!((of_handle, of_text), ((true, true), (true, false)));
        assert_eq!(handle, Statement::new("a"));
        assert_ne!(handle, Statement::new("b"));
        assert!(!handle.is_read_only() && Statement::new("a").read_only().is_idempotent());
    }
}
