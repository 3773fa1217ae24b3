//! What is asked of the server, encoded by its caller and independent of any connection.

use std::sync::Arc;

use bytes::Bytes;
use smallvec::{SmallVec, smallvec};
use wire_pipeline::wire::{Opening, Request as EngineRequest};

use crate::statement::Learned;

/// One exchange: everything up to one ReadyForQuery.
#[derive(Debug)]
pub(crate) enum Request {
    /// Statements that share one Sync: they succeed or fail together. Nearly always one.
    Run(Run),
    /// Prepares a statement of which nothing is known, and asks what it takes and gives.
    Learn(Learn),
    /// A script of text, by the simple protocol. Its rows are not wanted.
    Script(Script),
}

#[derive(Debug)]
pub(crate) struct Run {
    /// What opens the transaction that this is the first of.
    opening: Option<Part>,
    pub(crate) parts: SmallVec<[Part; 1]>,
    /// It is part of a transaction, and is not sent outside of one.
    pub(crate) in_transaction: bool,
    /// It ends the transaction for its handle.
    pub(crate) ends: bool,
    /// Whether the last part's rows are wanted.
    pub(crate) rows: bool,
}

/// One statement with its parameters.
#[derive(Debug, Clone)]
pub(crate) struct Part {
    pub(crate) statement: Arc<Learned>,
    /// Formats, count and values; see [`crate::params::encode`].
    pub(crate) bound: Bytes,
}

#[derive(Debug)]
pub(crate) struct Learn {
    /// What opens the transaction that this is the first of: a statement that cannot be parsed fails it.
    pub(crate) opening: Option<Part>,
    pub(crate) statement: Arc<Learned>,
}

#[derive(Debug)]
pub(crate) struct Script {
    opening: Option<Part>,
    text: Box<str>,
    /// The engine's own, to put the session right.
    pub(crate) own: bool,
    /// It is part of a transaction, which it must not end.
    pub(crate) in_transaction: bool,
    /// Its session ends with it: a transaction that it leaves open is lost.
    pub(crate) alone: bool,
}

impl Request {
    /// A single statement.
    pub(crate) fn query(statement: Arc<Learned>, bound: Bytes, rows: bool) -> Self {
        Self::Run(Run {
            opening: None,
            parts: smallvec![Part { statement, bound }],
            in_transaction: false,
            ends: false,
            rows,
        })
    }

    /// Statements that succeed or fail together.
    pub(crate) fn batch(parts: Vec<Part>) -> Self {
        Self::Run(Run { opening: None, parts: parts.into(), in_transaction: false, ends: false, rows: false })
    }

    /// The same as part of a transaction: outside of one it is refused. Asking about a statement harms nobody.
    pub(crate) fn in_transaction(mut self, in_transaction: bool) -> Self {
        if let Self::Run(run) = &mut self {
            run.in_transaction = in_transaction;
        }
        self
    }

    /// The same as the end of a transaction: it is told whether that is the one that was opened for its handle.
    pub(crate) fn ends(mut self) -> Self {
        if let Self::Run(run) = &mut self {
            run.ends = true;
        }
        self
    }

    /// Whether it needs an open transaction, and does not open it itself.
    pub(crate) fn needs_transaction(&self) -> bool {
        match self {
            Self::Run(run) => run.in_transaction && run.opening.is_none(),
            Self::Script(script) => script.in_transaction && script.opening.is_none(),
            Self::Learn(_) => false,
        }
    }

    /// Whether it is part of a transaction, as far as its being sent is concerned: a ROLLBACK always is.
    pub(crate) fn is_part(&self) -> bool {
        match self {
            Self::Run(run) => run.in_transaction,
            Self::Script(script) => script.in_transaction,
            Self::Learn(_) => false,
        }
    }

    /// Whether it ends a transaction for its handle.
    pub(crate) fn is_end(&self) -> bool {
        matches!(self, Self::Run(Run { ends: true, .. }))
    }

    /// Asks what a statement takes and gives.
    pub(crate) fn learn(statement: Arc<Learned>) -> Self {
        Self::Learn(Learn { opening: None, statement })
    }

    /// A script, which may be part of a transaction.
    pub(crate) fn script(text: impl Into<Box<str>>, in_transaction: bool) -> Self {
        Self::Script(Script { opening: None, text: text.into(), own: false, in_transaction, alone: false })
    }

    /// A script whose session ends with it.
    pub(crate) fn lone_script(text: impl Into<Box<str>>) -> Self {
        Self::Script(Script {
            opening: None,
            text: text.into(),
            own: false,
            in_transaction: false,
            alone: true,
        })
    }

    /// A script of the engine's, to put the session right.
    pub(crate) fn own_script(text: impl Into<Box<str>>) -> Self {
        Self::Script(Script {
            opening: None,
            text: text.into(),
            own: true,
            in_transaction: false,
            alone: false,
        })
    }
}

impl Run {
    /// All statements in the order in which they go out.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Part> {
        self.opening.iter().chain(&self.parts)
    }
}

impl Script {
    /// Whether what opens the transaction goes out with it.
    pub(crate) fn opens(&self) -> bool {
        self.opening.is_some()
    }

    /// The text that goes out. An opening shares it: the server runs a script up to its first error.
    pub(crate) fn text(&self) -> String {
        match &self.opening {
            Some(opening) => format!("{};{}", opening.statement.text, self.text),
            None => self.text.to_string(),
        }
    }
}

impl EngineRequest for Request {
    fn bytes(&self) -> usize {
        match self {
            Self::Run(run) => run.all().map(|part| part.bound.len()).sum(),
            Self::Learn(learn) => learn.statement.text.len(),
            Self::Script(script) => script.text.len(),
        }
    }

    fn expected_micros(&self) -> u32 {
        match self {
            Self::Run(run) => run
                .all()
                .fold(0, |sum: u32, part| sum.saturating_add(part.statement.micros.expected_micros())),
            Self::Learn(learn) => learn.statement.micros.expected_micros(),
            Self::Script(_) => 1_000,
        }
    }

    fn observed_micros(&self, micros: u32) {
        if let Self::Run(run) = self
            && let [part] = &run.parts[..]
        {
            part.statement.micros.observed_micros(micros);
        }
    }

    fn open(&mut self, Opening(opening): Opening<Self>) {
        let Self::Run(mut opening) = *opening else { return };
        let opening = opening.parts.pop();
        match self {
            Self::Run(run) => run.opening = opening,
            Self::Script(script) => script.opening = opening,
            Self::Learn(learn) => learn.opening = opening,
        }
    }

    fn opens(&self) -> bool {
        match self {
            Self::Run(run) => run.opening.is_some(),
            Self::Script(script) => script.opening.is_some(),
            Self::Learn(learn) => learn.opening.is_some(),
        }
    }

    fn take_opening(&mut self) -> Option<Opening<Self>> {
        let opening = match self {
            Self::Run(run) => run.opening.take(),
            Self::Script(script) => script.opening.take(),
            Self::Learn(learn) => learn.opening.take(),
        }?;
        Some(Opening(Box::new(Self::query(opening.statement, opening.bound, false))))
    }
}
