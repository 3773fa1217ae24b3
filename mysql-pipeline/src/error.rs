//! The server's own error, as the engine's error carries it.

use std::error::Error as StdError;
use std::fmt;

use wire_pipeline::error::ServerError;
pub use wire_pipeline::error::{ErrorKind, Outcome, Phase};

/// The engine's error, carrying this server's.
pub(crate) type Fault = wire_pipeline::error::Error<DatabaseError>;

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

    /// What a connection knows of a statement is out of date, and nothing was executed: the server does not know
    /// the handle (1243), or wants the statement to be prepared again (1615).
    pub(crate) fn is_stale(&self) -> bool {
        matches!(self.number, 1243 | 1615)
    }
}

impl ServerError for DatabaseError {
    /// A deadlock (1213): the server has rolled the transaction back and asks to run it again.
    fn is_retryable(&self) -> bool {
        self.number == 1213
    }
}

impl fmt::Display for DatabaseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ERROR {} ({}): {}", self.number, self.state, self.message)
    }
}

impl StdError for DatabaseError {}
