//! What can go wrong, in words that both drivers share.
//!
//! An error says three things: its [`ErrorKind`] (what went wrong), its [`Outcome`] (what is known of the
//! statement) and a message that names the next step when there is one. This module may know the engine's
//! vocabulary; it must not know what a server's own error looks like, which is the type parameter `S`.

use std::borrow::Cow;
use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

/// What went wrong. Equal situations give equal kinds in every driver on this engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// An option, an address or an environment variable cannot be used as it stands.
    Config,
    /// No connection could be made: name resolution, network, or the server refused.
    Connect,
    /// The encrypted channel could not be set up.
    Tls,
    /// The server did not accept who we say we are, or asked for a method that we do not offer.
    Auth,
    /// A connection that had been made was lost.
    Io,
    /// The peer sent bytes that its protocol does not allow.
    Protocol,
    /// The server executed the request and answered with an error.
    Database,
    /// A parameter could not be turned into what the server expects; nothing was sent.
    Encode,
    /// A value could not be turned into the type that was asked for.
    Decode,
    /// The answer has too few or too many rows.
    RowCount,
    /// A deadline passed; the message names the phase that ran out.
    Timeout,
    /// A limit of the pool leaves no room.
    Busy,
    /// The pool, connection or lease is closed.
    Closed,
    /// The request would change, or has changed, the state of a session that others share.
    SessionState,
}

/// What is known of the statement behind an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// No byte of it reached the server: running it again cannot run it twice.
    NotSent,
    /// Bytes went out and no final answer came: it may have run, or not.
    Unknown,
    /// The server refused it; it has no effect.
    Failed,
    /// It ran; what failed is on our side (row count, decoding, an answer over a limit).
    Completed,
}

/// Where the time went when a deadline passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Phase {
    /// Waiting for room in the pool or for a pipe to send it.
    Queue,
    /// Being written.
    Send,
    /// Sent, waiting for the answer.
    Answer,
    /// Waiting for a lease.
    Lease,
    /// Connecting: name resolution, network, handshake and set-up together.
    Connect,
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Queue => "queue",
            Self::Send => "send",
            Self::Answer => "answer",
            Self::Lease => "lease",
            Self::Connect => "connect",
        })
    }
}

/// An error as a server reports it: each driver has its own.
pub trait ServerError: StdError + Send + Sync + 'static {
    /// Whether running the whole unit of work again may succeed (a serialization failure, a deadlock).
    fn is_retryable(&self) -> bool;

    /// Whether the server says that it takes no writes. It may have changed its role since the connection was made.
    fn is_read_only(&self) -> bool {
        false
    }
}

/// The one error type of the engine; drivers wrap it.
///
/// Cheap to clone, because one lost connection answers many entries.
pub struct Error<S> {
    inner: Arc<Inner<S>>,
}

#[derive(Clone)]
struct Inner<S> {
    kind: ErrorKind,
    outcome: Outcome,
    phase: Option<Phase>,
    message: Cow<'static, str>,
    server: Option<Arc<S>>,
    source: Option<Arc<dyn StdError + Send + Sync>>,
}

// By hand: deriving would ask `S: Clone`, and the server's error is shared behind its `Arc`.
impl<S> Clone for Error<S> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }
}

impl<S: ServerError> Error<S> {
    /// An error of `kind` for a statement of which `outcome` is known.
    #[cold]
    pub fn new(kind: ErrorKind, outcome: Outcome, message: impl Into<Cow<'static, str>>) -> Self {
        let message = message.into();
        Self { inner: Arc::new(Inner { kind, outcome, phase: None, message, server: None, source: None }) }
    }

    /// The server refused the statement: kind [`ErrorKind::Database`], outcome [`Outcome::Failed`].
    #[cold]
    pub fn refused(server: S) -> Self {
        Self::new(ErrorKind::Database, Outcome::Failed, "the database reported an error")
            .with_server(Arc::new(server))
    }

    /// A deadline passed in `phase`.
    #[cold]
    pub fn timeout(phase: Phase, outcome: Outcome, message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorKind::Timeout, outcome, message).edit(|inner| inner.phase = Some(phase))
    }

    /// Attaches what the server said.
    #[must_use]
    pub fn with_server(self, server: Arc<S>) -> Self {
        self.edit(|inner| inner.server = Some(server))
    }

    /// Attaches the cause.
    #[must_use]
    pub fn with_source(self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        let source: Box<dyn StdError + Send + Sync> = source.into();
        self.edit(|inner| inner.source = Some(Arc::from(source)))
    }

    /// The same error, told of a statement with another outcome.
    #[must_use]
    pub fn with_outcome(self, outcome: Outcome) -> Self {
        if self.inner.outcome == outcome { self } else { self.edit(|inner| inner.outcome = outcome) }
    }

    /// The same error under another kind.
    #[must_use]
    pub fn with_kind(self, kind: ErrorKind) -> Self {
        self.edit(|inner| inner.kind = kind)
    }

    /// The same error with a few words in front of its message.
    #[must_use]
    pub fn context(self, words: impl fmt::Display) -> Self {
        self.edit(|inner| inner.message = format!("{words}: {}", inner.message).into())
    }

    fn edit(self, change: impl FnOnce(&mut Inner<S>)) -> Self {
        let mut inner = Inner {
            kind: self.inner.kind,
            outcome: self.inner.outcome,
            phase: self.inner.phase,
            message: self.inner.message.clone(),
            server: self.inner.server.clone(),
            source: self.inner.source.clone(),
        };
        change(&mut inner);
        Self { inner: Arc::new(inner) }
    }

    /// What went wrong.
    pub fn kind(&self) -> ErrorKind {
        self.inner.kind
    }

    /// What is known of the statement.
    pub fn outcome(&self) -> Outcome {
        self.inner.outcome
    }

    /// The phase that ran out, for [`ErrorKind::Timeout`].
    pub fn phase(&self) -> Option<Phase> {
        self.inner.phase
    }

    /// What the server said, if it said anything.
    pub fn server(&self) -> Option<&S> {
        self.inner.server.as_deref()
    }

    /// Whether the connection was lost while it is not known whether the statement ran.
    pub fn is_lost(&self) -> bool {
        self.kind() == ErrorKind::Io && self.outcome() == Outcome::Unknown
    }

    /// Whether running the whole unit of work again is safe and may succeed.
    ///
    /// True when nothing was sent and the reason may pass (connection, time, room), and when the server
    /// undid the work and asks for it again.
    pub fn is_retryable(&self) -> bool {
        let passing =
            matches!(self.kind(), ErrorKind::Connect | ErrorKind::Io | ErrorKind::Timeout | ErrorKind::Busy);
        (self.outcome() == Outcome::NotSent && passing)
            || (self.outcome() == Outcome::Failed && self.server().is_some_and(ServerError::is_retryable))
    }
}

impl<S: ServerError> fmt::Display for Error<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.inner.message)?;
        match (&self.inner.server, &self.inner.source) {
            (Some(server), _) => write!(f, ": {server}"),
            (None, Some(source)) => write!(f, ": {source}"),
            (None, None) => Ok(()),
        }
    }
}

impl<S: ServerError> fmt::Debug for Error<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Error");
        debug.field("kind", &self.inner.kind).field("outcome", &self.inner.outcome);
        if let Some(phase) = self.inner.phase {
            debug.field("phase", &phase);
        }
        debug.field("message", &format_args!("{self}")).finish()
    }
}

impl<S: ServerError> StdError for Error<S> {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match (&self.inner.server, &self.inner.source) {
            (Some(server), _) => Some(&**server),
            (None, Some(source)) => Some(&**source),
            (None, None) => None,
        }
    }
}
