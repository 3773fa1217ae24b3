//! How a statement travels: prepared, or as text where the server cannot prepare it.

use bytes::Bytes;

use crate::protocol::command::Bound;
use crate::statement::{Learned, fill};

/// How a statement travels.
pub(super) enum Form {
    Prepared,
    Text(Bytes),
}

impl Form {
    pub(super) fn usual(learned: &Learned, bound: &Bound) -> Self {
        let text = learned.is_text_only().then(|| Self::Prepared.text(learned, bound));
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
