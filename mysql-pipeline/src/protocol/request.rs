//! What is asked of the server, encoded by its caller and independent of any connection.

use std::sync::Arc;

use bytes::Bytes;
use wire_pipeline::wire::{Opening, Request as EngineRequest};

use super::command::Bound;
use crate::statement::Learned;

/// One request.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "they do not depend on each other")]
pub(crate) struct Request {
    pub(crate) what: What,
    /// What opens the transaction that this is the first of; taken when it is written.
    pub(crate) opening: Option<Bytes>,
    /// It is part of a transaction, and is not sent outside of one.
    pub(crate) part: bool,
    /// It may end the transaction unseen: the server is asked whether it has.
    pub(crate) guarded: bool,
    /// Whether its rows are wanted.
    pub(crate) rows: bool,
    /// The engine's own, to put the session right.
    pub(crate) own: bool,
}

#[derive(Debug)]
pub(crate) enum What {
    /// A statement that is prepared where it was not yet.
    Execute { statement: Arc<Learned>, bound: Bound },
    /// A text.
    Query(Bytes),
    /// A text of several statements.
    Script(Bytes),
    /// The end of a transaction of which every answer has come. `strict`: some of them nobody waited for, so that one
    /// which was an error is reason enough not to commit.
    Commit { strict: bool },
    /// The other end of one, in whatever state it is.
    Rollback,
    /// The session as it was after the handshake.
    Reset,
    /// A packet of a dialogue, with its number: the answer is the server's next word, if that is not OK or ERR.
    Dialogue { packet: Bytes, sequence: u8 },
}

impl Request {
    /// A request for rows, on its own.
    pub(crate) fn new(what: What) -> Self {
        Self { what, opening: None, part: false, guarded: false, rows: true, own: false }
    }

    pub(crate) fn execute(statement: &Arc<Learned>, bound: Bound) -> Self {
        Self::new(What::Execute { statement: Arc::clone(statement), bound })
    }

    pub(crate) fn query(text: impl Into<Bytes>) -> Self {
        Self::new(What::Query(text.into()))
    }

    /// A text that is part of a transaction, and whose rows are not wanted.
    pub(crate) fn part(text: impl Into<Bytes>) -> Self {
        Self { part: true, rows: false, ..Self::query(text) }
    }

    /// Whether it ends a transaction for its handle.
    pub(crate) fn ends(&self) -> bool {
        matches!(self.what, What::Commit { .. } | What::Rollback)
    }

    /// A request of the engine's, to put the session right.
    pub(crate) fn own(what: What) -> Self {
        Self { own: true, ..Self::new(what) }
    }
}

impl EngineRequest for Request {
    fn bytes(&self) -> usize {
        match &self.what {
            What::Execute { bound, .. } => bound.bytes.len(),
            What::Query(text) | What::Script(text) => text.len(),
            What::Dialogue { packet, .. } => packet.len(),
            What::Commit { .. } | What::Rollback | What::Reset => 0,
        }
    }

    fn expected_micros(&self) -> u32 {
        match &self.what {
            What::Execute { statement, .. } => statement.micros.expected_micros(),
            What::Query(_)
            | What::Script(_)
            | What::Commit { .. }
            | What::Rollback
            | What::Reset
            | What::Dialogue { .. } => 1_000,
        }
    }

    fn observed_micros(&self, micros: u32) {
        if let What::Execute { statement, .. } = &self.what {
            statement.micros.observed_micros(micros);
        }
    }

    fn open(&mut self, Opening(opening): Opening<Self>) {
        if let What::Query(text) = opening.what {
            self.opening = Some(text);
        }
    }

    fn opens(&self) -> bool {
        self.opening.is_some()
    }

    fn take_opening(&mut self) -> Option<Opening<Self>> {
        self.opening.take().map(|text| Opening(Box::new(Self::query(text))))
    }
}
