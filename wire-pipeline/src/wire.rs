//! What the engine asks of a protocol: the traits that a driver implements.
//!
//! A [`Wire`] is a pure state machine for one connection. It sees bytes and requests; it never sees a socket,
//! a clock or another connection. The engine owns the order: it keeps the FIFO of what was sent and hands the
//! wire the [`Wire::Pending`] of the oldest entry whenever bytes arrive.
//!
//! ```text
//!                 frame(request)                       receive(head, bytes)
//!  queue ──────────────┬──────────▶ FIFO ───────────────────┬───────▶ answer to the asker
//!                      │ Sent(pending)                      │ Answer(..)
//!                      │ Ahead{pending, key} ──▶ parked     │ Forerunner{key, ..} ──▶ parked entries go on
//!                      │ Waits{key} ───────────▶ parked     │ More: bytes are used up
//!                      └ Refused(error): answered at once
//! ```
//!
//! `Ahead` and `Waits` serve protocols in which a request needs something of the server first (the id of a
//! prepared statement): the wire writes a forerunner, only the entries that need it wait for it, and the others
//! flow past. On a lease nothing flows past: there the order on the wire is the order of submission.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};

use crate::answer::Budget;
use crate::buffer::{Out, ReadBuffer};
use crate::error::{Error, ServerError};

/// One request, encoded by its caller and independent of any connection.
pub trait Request: Send + 'static {
    /// How many bytes it will put on the wire, roughly; counted against the limit of queued bytes.
    fn bytes(&self) -> usize;

    /// How long the server is expected to work on it, in microseconds.
    fn expected_micros(&self) -> u32;

    /// How long the server did work on it, in microseconds.
    fn observed_micros(&self, micros: u32);

    /// Makes this request the first of a unit of work: what `opening` says goes to the server with it, and if
    /// that fails it is not run. Called under the queue's lock, so that no other request can come between.
    fn open(&mut self, opening: Opening<Self>)
    where
        Self: Sized;

    /// Whether it has such an opening with it. On a lease nothing follows it before it is answered: what belongs to a
    /// unit of work must not run when the opening has failed.
    fn opens(&self) -> bool;

    /// Takes back what [`Self::open`] gave, because the request will not be sent.
    fn take_opening(&mut self) -> Option<Opening<Self>>
    where
        Self: Sized;
}

/// What opens a unit of work; see [`Request::open`].
#[derive(Debug)]
pub struct Opening<R>(pub Box<R>);

/// The key under which entries wait for a forerunner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ParkKey(pub u64);

/// What became of a request that was to be framed.
pub enum Framed<W: Wire> {
    /// Its bytes are written; its answer is read with this.
    Sent(W::Pending),
    /// Something else was written first, and the request waits for it under `key`.
    Ahead {
        /// Reads the forerunner's answer.
        pending: W::Pending,
        /// Where the request waits.
        key: ParkKey,
    },
    /// What the request needs is already on its way.
    Waits {
        /// Where the request waits.
        key: ParkKey,
    },
    /// It cannot be sent; nothing was written.
    Refused(Error<W::Server>),
}

/// What the bytes at hand amounted to.
pub enum Received<W: Wire> {
    /// All whole messages are used up; more bytes are needed.
    More,
    /// The answer of the oldest entry is complete.
    Answer(Result<W::Answer, Error<W::Server>>),
    /// The oldest entry was a forerunner, and it is complete.
    Forerunner {
        /// Which entries waited for it.
        key: ParkKey,
        /// Whether they may go on; otherwise each of them gets this error.
        result: Result<(), Error<W::Server>>,
    },
}

/// What the connection says of its session after an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Condition {
    /// Anybody may use it.
    Clean,
    /// Its settings were changed: it must be put right before others use it.
    Touched,
    /// A transaction is open: what others run now would not be theirs to keep.
    InTransaction,
}

/// Why a session is to be put right.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Occasion {
    /// The connection is new.
    Connected,
    /// It was found in a state that others must not see.
    Tainted,
    /// The server said that it takes no writes. If that is not true of the server as a whole, but of one statement or
    /// session, nothing is to be done; otherwise what is sent must fail, and the connection is replaced.
    ReadOnly,
    /// A lease came back; `touched` says whether its holder may have changed settings.
    Returned {
        /// Whether the holder may have changed the session.
        touched: bool,
    },
}

/// One connection's protocol.
pub trait Wire: Send + Sized + 'static {
    /// What is asked.
    type Request: Request;
    /// What must be remembered of a sent request until its answer is complete.
    type Pending: Send + 'static;
    /// A complete answer, not yet decoded.
    type Answer: Send + 'static;
    /// The server's own error.
    type Server: ServerError;

    /// Writes `request` behind what `out` holds already.
    fn frame(&mut self, request: &mut Self::Request, out: &mut Out) -> Framed<Self>;

    /// Reads on. `head` belongs to the oldest entry in flight; without one, only what a server may say unasked is
    /// allowed. An error means that the connection cannot be trusted any more.
    fn receive(
        &mut self,
        head: Option<&mut Self::Pending>,
        input: &mut ReadBuffer,
    ) -> Result<Received<Self>, Error<Self::Server>>;

    /// What the connection said of its session with the latest answer.
    fn condition(&self) -> Condition;

    /// The requests that put the session right; none if there is nothing to do.
    fn settle(&mut self, occasion: Occasion) -> Vec<Self::Request>;

    /// Writes the protocol's farewell.
    fn goodbye(&mut self, out: &mut Out);

    /// What is prepared on the connection, and how much of it had to make room since this was asked last.
    fn statements(&mut self) -> Statements {
        Statements::default()
    }

    /// The reason that the server gave for ending the connection, if it gave one.
    fn last_words(&self) -> Option<Arc<Self::Server>>;
}

/// The prepared statements of a connection; see [`Wire::statements`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Statements {
    /// How many there are.
    pub cached: usize,
    /// How many had to make room for others, since this was asked last.
    pub evicted: u64,
}

/// What makes connections.
pub trait Driver: Send + Sync + 'static {
    /// The protocol spoken.
    type Wire: Wire;
    /// The byte stream below it.
    type Io: AsyncRead + AsyncWrite + Unpin + Send + 'static;

    /// Connects and authenticates. Answers are collected within `budget`. The engine bounds the time.
    fn connect(
        &self,
        budget: &Arc<Budget>,
    ) -> impl Future<Output = Result<Connected<Self>, Error<<Self::Wire as Wire>::Server>>> + Send;

    /// Asks the server, beside a connection, to stop working on what was asked there. `None` if that cannot be done.
    ///
    /// The engine asks when a request's time is up and nothing else is in flight on its connection, and sends nothing
    /// more there before the server has heard of it: no other request can be hit. It bounds the time.
    fn cancel(&self, wire: &Self::Wire, io: &Self::Io) -> Option<Cancelling> {
        let _ = (wire, io);
        None
    }

    /// Whether the operating system has something for `io` that was not read, its end included. Never waits.
    ///
    /// The engine asks before it writes when it was held up for long: the runtime knows of what happened meanwhile
    /// only after it has looked, and a statement must not be wasted on a connection that the server has closed.
    fn has_unread(&self, io: &Self::Io) -> bool {
        let _ = io;
        false
    }
}

/// A request to stop on its way; see [`Driver::cancel`].
pub type Cancelling = Pin<Box<dyn Future<Output = Cancelled> + Send>>;

/// What is known of a request to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cancelled {
    /// The server has heard of it: what is sent from now on cannot be hit.
    Heard,
    /// Not a byte of it was sent.
    NotSent,
    /// It may still be on its way.
    Unknown,
}

/// A fresh connection, authenticated.
pub struct Connected<D: Driver + ?Sized> {
    /// The byte stream.
    pub io: D::Io,
    /// The protocol's state after the handshake.
    pub wire: D::Wire,
    /// What was read beyond the handshake.
    pub input: ReadBuffer,
    /// How long the byte stream took to open: about the way to the server and back, until more is known.
    pub way: Duration,
}

/// The engine's error for a driver.
pub type Fault<D> = Error<<<D as Driver>::Wire as Wire>::Server>;
/// A driver's request.
pub type RequestOf<D> = <<D as Driver>::Wire as Wire>::Request;
/// A driver's answer.
pub type AnswerOf<D> = <<D as Driver>::Wire as Wire>::Answer;
