//! What is asked of the server, encoded by its caller and independent of any connection.

use std::sync::Arc;

use bytes::Bytes;
use wire_pipeline::wire::{Opening, Request as EngineRequest};

use super::command::Bound;
use crate::statement::Statement;

/// One request.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) what: What,
    /// What opens the unit of work that this is the first of; taken when it is written.
    pub(crate) opening: Option<Bytes>,
    /// The engine's own, to put the session right.
    pub(crate) own: bool,
}

#[derive(Debug)]
pub(crate) enum What {
    /// A statement that is prepared where it was not yet.
    Execute { statement: Arc<Statement>, bound: Bound },
    /// A text.
    Query(Bytes),
    /// The session as it was after the handshake.
    Reset,
}

impl Request {
    pub(crate) fn execute(statement: &Arc<Statement>, bound: Bound) -> Self {
        Self { what: What::Execute { statement: Arc::clone(statement), bound }, opening: None, own: false }
    }

    pub(crate) fn query(text: impl Into<Bytes>) -> Self {
        Self { what: What::Query(text.into()), opening: None, own: false }
    }

    /// A request of the engine's, to put the session right.
    pub(crate) fn own(what: What) -> Self {
        Self { what, opening: None, own: true }
    }
}

impl EngineRequest for Request {
    fn bytes(&self) -> usize {
        match &self.what {
            What::Execute { bound, .. } => bound.bytes.len(),
            What::Query(text) => text.len(),
            What::Reset => 0,
        }
    }

    fn expected_micros(&self) -> u32 {
        match &self.what {
            What::Execute { statement, .. } => statement.expected_micros(),
            What::Query(_) | What::Reset => 1_000,
        }
    }

    fn observed_micros(&self, micros: u32) {
        if let What::Execute { statement, .. } = &self.what {
            statement.observed_micros(micros);
        }
    }

    fn open(&mut self, Opening(opening): Opening<Self>) {
        if let What::Query(text) = opening.what {
            self.opening = Some(text);
        }
    }

    fn take_opening(&mut self) -> Option<Opening<Self>> {
        self.opening.take().map(|text| Opening(Box::new(Self::query(text))))
    }
}
