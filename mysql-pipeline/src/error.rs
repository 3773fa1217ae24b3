//! The error that every call of this crate returns, and the server's own error with all its fields.
//!
//! `pg-pipeline`'s file of this name has the same [`Error`] on purpose: a type of each driver's own around the engine's
//! error, whose documentation names the server's codes.

use std::error::Error as StdError;
use std::fmt;

use wire_pipeline::error::ServerError;
pub use wire_pipeline::error::{ErrorKind, Outcome, Phase};

/// The engine's error, carrying this server's.
pub(crate) type Fault = wire_pipeline::error::Error<DatabaseError>;

/// What went wrong, what is known of the statement, and what the server said.
///
/// [`kind`](Self::kind) says what went wrong, [`outcome`](Self::outcome) whether the statement ran. The
/// message never holds a password or a parameter; the server's own words are in it, and they may quote a value that was
/// refused.
#[derive(Clone)]
pub struct Error(Fault);

impl Error {
    /// What went wrong.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind()
    }

    /// What is known of the statement.
    pub fn outcome(&self) -> Outcome {
        self.0.outcome()
    }

    /// The phase that ran out, for [`ErrorKind::Timeout`].
    pub fn phase(&self) -> Option<Phase> {
        self.0.phase()
    }

    /// What the server reported, with every field; also for a connection that the server ended with a reason.
    pub fn as_database(&self) -> Option<&DatabaseError> {
        self.0.server()
    }

    /// The server's five-character SQLSTATE, if it reported an error. [`DatabaseError::number`] says more.
    pub fn sqlstate(&self) -> Option<&str> {
        self.as_database().map(DatabaseError::sqlstate)
    }

    /// Whether running the whole unit of work again is safe and may succeed: nothing was sent and the reason
    /// may pass, or the server undid the work (a deadlock, 1213; a lock that could not be had in time, 1205). A
    /// transaction of one's own making on a [`Session`](crate::Session) is to be rolled back first: by default 1205
    /// undoes the statement alone.
    pub fn is_retryable(&self) -> bool {
        self.0.is_retryable()
    }
}

impl Error {
    pub(crate) fn into_fault(self) -> Fault {
        self.0
    }
}

impl From<Fault> for Error {
    fn from(fault: Fault) -> Self {
        Self(fault)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source()
    }
}

/// An error as MySQL and MariaDB report it.
///
/// Source: MySQL internals, `ERR_Packet`; the numbers are those of "Server Error Message Reference".
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DatabaseError {
    number: u16,
    state: String,
    message: String,
}

impl DatabaseError {
    pub(crate) fn new(number: u16, state: String, message: String) -> Self {
        Self { number, state, message }
    }

    /// The server's error number, for example 1062 for a duplicate key.
    pub fn number(&self) -> u16 {
        self.number
    }

    /// The five-character SQLSTATE; `HY000` where the server gave none.
    pub fn sqlstate(&self) -> &str {
        &self.state
    }

    /// The server's message.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The server does not go on with this connection: it is shutting down, has ended the session, or lost count of
    /// the packets.
    pub(crate) fn is_fatal(&self) -> bool {
        matches!(
            self.number,
            // Shutdown (1053, 1077), aborted connections and broken packets (1152 to 1161, 1184, 1835), sessions that
            // were killed (MySQL 3169, MariaDB 1927) or idle for too long (4031).
            1053 | 1077 | 1152..=1161 | 1184 | 1835 | 1927 | 3169 | 4031
        )
    }

    /// The server has undone the whole transaction, or may have: a deadlock (1213), a full lock table (1206), a
    /// conflict between members of a group (3101), and by option a lock that could not be had in time (1205).
    ///
    /// Sources: `convert_error_code_to_mysql` in `ha_innodb.cc`; MySQL manual, `innodb_rollback_on_timeout`.
    pub(crate) fn undoes_transaction(&self) -> bool {
        matches!(self.number, 1205 | 1206 | 1213 | 3101)
    }

    /// The statement cannot be prepared, but may be run as text: it is of a kind that has no prepared form (1295), or
    /// there are as many prepared statements as the server allows all its clients together (1461).
    pub(crate) fn wants_text(&self) -> bool {
        matches!(self.number, 1295 | 1461)
    }

    /// It will never have a prepared form.
    pub(crate) fn has_no_prepared_form(&self) -> bool {
        self.number == 1295
    }

    /// What a connection knows of a statement is out of date, and nothing was executed: the server does not know
    /// the handle (1243), or wants the statement to be prepared again (1615).
    pub(crate) fn is_stale(&self) -> bool {
        matches!(self.number, 1243 | 1615)
    }
}

impl ServerError for DatabaseError {
    /// A deadlock (1213), or a lock that could not be had in time (1205): the server asks to run the transaction again,
    /// and has undone it, or has undone the statement; then a [`Transaction`](crate::Transaction) is not committed.
    ///
    /// Source: MySQL manual, "Server Error Message Reference", where both say "try restarting transaction".
    fn is_retryable(&self) -> bool {
        matches!(self.number, 1205 | 1213)
    }

    /// `ER_OPTION_PREVENTS_STATEMENT` (`read_only` among other options), `ER_READ_ONLY_MODE`.
    fn is_read_only(&self) -> bool {
        matches!(self.number, 1290 | 1836)
    }
}

impl fmt::Display for DatabaseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ERROR {} ({}): {}", self.number, self.state, self.message)
    }
}

impl StdError for DatabaseError {}
