//! How a statement travels: prepared, or as text where the server cannot prepare it.

use bytes::Bytes;

use crate::protocol::command::Bound;
use crate::statement::{Class, Learned, fill};

/// How a statement travels.
pub(super) enum Form {
    Prepared,
    Text(Bytes),
}

impl Form {
    pub(super) fn usual(learned: &Learned, bound: &Bound) -> Self {
        // These have no prepared form, and trying to prepare them would hold up what is pipelined with them.
        let of_a_transaction = matches!(learned.class, Class::Transaction | Class::Savepoint);
        let as_text = learned.is_text_only() || of_a_transaction && bound.count == 0;
        let text = as_text.then(|| Self::Prepared.text(learned, bound));
        text.flatten().unwrap_or(Self::Prepared)
    }

    /// As text, if it is not text already and its parameters can be part of one.
    pub(super) fn text(&self, learned: &Learned, bound: &Bound) -> Option<Self> {
        match self {
            Self::Prepared => fill(&learned.text, bound).map(|text| Self::Text(text.into())),
            Self::Text(_) => None,
        }
    }
}
