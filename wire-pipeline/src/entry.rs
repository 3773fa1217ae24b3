//! One request on its way, and where its answer goes.

use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::error::Error;
use crate::gate::Pass;
use crate::wire::{Request, Wire};

/// What an asker finds in its slot.
pub(crate) type Reply<W> = Result<<W as Wire>::Answer, Error<<W as Wire>::Server>>;

/// One request on its way.
pub(crate) struct Entry<W: Wire> {
    pub(crate) request: W::Request,
    pub(crate) slot: Slot<W>,
    pub(crate) since: Instant,
    pub(crate) deadline: Instant,
    /// Expected work, kept so that what is added to a pipe's load is taken off again exactly.
    pub(crate) micros: u32,
}

/// What a request is expected to be like; each class has a waiting queue of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    Fast,
    Slow,
}

impl Class {
    /// From here on a request is slow, in microseconds of expected work.
    const SLOW_MICROS: u32 = 5_000;
}

impl<W: Wire> Entry<W> {
    /// By what is expected of it.
    pub(crate) fn class(&self) -> Class {
        if self.micros >= Class::SLOW_MICROS { Class::Slow } else { Class::Fast }
    }

    /// An entry and the end where its answer arrives; its asker waits since `since`.
    pub(crate) fn new(
        request: W::Request,
        since: Instant,
        deadline: Instant,
        pass: Option<Pass>,
    ) -> (Self, oneshot::Receiver<Reply<W>>) {
        let (sender, receiver) = oneshot::channel();
        let micros = request.expected_micros();
        (Self { request, slot: Slot { sender: Some(sender), pass }, since, deadline, micros }, receiver)
    }

    /// Its asker has gone: it need not run.
    pub(crate) fn is_abandoned(&self) -> bool {
        self.slot.is_abandoned()
    }

    /// Answers it with `error`.
    pub(crate) fn fail(self, error: Error<W::Server>) {
        self.slot.answer(Err(error));
    }
}

/// Where an answer goes, together with the place in the pool that is free once it went there.
pub(crate) struct Slot<W: Wire> {
    sender: Option<oneshot::Sender<Reply<W>>>,
    pass: Option<Pass>,
}

impl<W: Wire> Slot<W> {
    /// The asker has gone, or has its answer already.
    pub(crate) fn is_abandoned(&self) -> bool {
        self.sender.as_ref().is_none_or(oneshot::Sender::is_closed)
    }

    /// Hands the answer over. Never called under a lock: it wakes the asker.
    pub(crate) fn answer(self, reply: Reply<W>) {
        drop(self.pass);
        if let Some(sender) = self.sender {
            // An asker that has gone needs no answer.
            let _ = sender.send(reply);
        }
    }

    /// Answers now, while the request is still under way; its place stays taken until it is over.
    pub(crate) fn answer_early(&mut self, reply: Reply<W>) {
        if let Some(sender) = self.sender.take() {
            let _ = sender.send(reply);
        }
    }
}
