//! Statements: what a caller names, what the pool has learnt of it, and what may run where.
//!
//! A [`Statement`] is logical: a text, its hash and properties. It belongs to no connection and to no pool. Which
//! pipe has it prepared is that pipe's affair (`protocol::cache`); what its columns are and how long servers work on it
//! is learnt once per pool ([`Registry`]). The hash selects, the text decides.

mod class;
mod registry;
mod text;

use std::borrow::Cow;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, LazyLock};

pub(crate) use class::{Class, classify, classify_script, without_empty_end};
pub(crate) use registry::{Learned, Registry};
pub(crate) use text::fill;

/// One seed for the process: a handle's hash is valid in every pool.
static HASHER: LazyLock<foldhash::fast::FixedState> =
    LazyLock::new(|| foldhash::fast::FixedState::with_seed(RandomState::new().hash_one(0_u8)));

/// A reusable handle of a statement's text: hashed once, cheap to clone, valid in every pool and on every lease.
///
/// Statements given as text work the same; a handle saves hashing the text on every call, and carries properties.
///
/// ```
/// use mysql_pipeline::Statement;
///
/// let by_id = Statement::new("SELECT id, randomnumber FROM world WHERE id = ?").read_only();
/// assert_eq!(by_id.text(), "SELECT id, randomnumber FROM world WHERE id = ?");
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

    pub(crate) fn key(&self) -> StatementKey<'_> {
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
#[derive(Clone, Copy)]
pub(crate) struct StatementKey<'a> {
    pub(crate) text: &'a str,
    pub(crate) hash: u64,
}

impl<'a> StatementKey<'a> {
    pub(crate) fn of(text: &'a str) -> Self {
        Self { text, hash: HASHER.hash_one(text) }
    }
}

impl PartialEq for StatementKey<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.hash == other.hash && self.text == other.text
    }
}

/// What can be run: a text or a [`Statement`].
pub trait IntoStatement: Send + sealed::Sealed {
    #[doc(hidden)]
    fn with_key<T>(&self, use_key: impl FnOnce(StatementKeyRef<'_>) -> T) -> T;
}

/// What [`IntoStatement`] hands over; opaque.
#[doc(hidden)]
pub struct StatementKeyRef<'a> {
    pub(crate) key: StatementKey<'a>,
    pub(crate) idempotent: bool,
}

mod sealed {
    pub trait Sealed {}
}

macro_rules! texts {
    ($($type:ty),+ $(,)?) => {$(
        impl sealed::Sealed for $type {}

        impl IntoStatement for $type {
            fn with_key<T>(&self, use_key: impl FnOnce(StatementKeyRef<'_>) -> T) -> T {
                use_key(StatementKeyRef { key: StatementKey::of(self), idempotent: false })
            }
        }
    )+};
}

texts!(&str, String, &String, Cow<'_, str>, &Cow<'_, str>, Box<str>, Arc<str>);

macro_rules! handles {
    ($($type:ty),+ $(,)?) => {$(
        impl sealed::Sealed for $type {}

        impl IntoStatement for $type {
            fn with_key<T>(&self, use_key: impl FnOnce(StatementKeyRef<'_>) -> T) -> T {
                use_key(StatementKeyRef { key: self.key(), idempotent: self.idempotent })
            }
        }
    )+};
}

handles!(Statement, &Statement);
