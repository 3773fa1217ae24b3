//! The error that every call of this crate returns, and the server's own error with all its fields.
//!
//! `mysql-pipeline`'s file of this name has the same [`Error`] on purpose: a type of each driver's own around the engine's
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
/// message never holds a password or a parameter; what the server says beyond code and message (its detail
/// quotes rows) is reached through [`as_database`](Self::as_database).
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

    /// The server's five-character code, if it reported one.
    pub fn sqlstate(&self) -> Option<&str> {
        self.as_database().map(DatabaseError::code)
    }

    /// Whether running the whole unit of work again is safe and may succeed: nothing was sent and the reason
    /// may pass, or the server undid the work (`40001`, `40P01`).
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

/// An error or notice as PostgreSQL reports it.
///
/// Source of the fields: PostgreSQL documentation, "Error and Notice Message Fields".
#[derive(Clone, PartialEq, Eq, Default)]
pub struct DatabaseError {
    severity: String,
    code: String,
    message: String,
    detail: Option<String>,
    hint: Option<String>,
    position: Option<u32>,
    internal_position: Option<u32>,
    internal_query: Option<String>,
    context: Option<String>,
    schema: Option<String>,
    table: Option<String>,
    column: Option<String>,
    data_type: Option<String>,
    constraint: Option<String>,
    file: Option<String>,
    line: Option<u32>,
    routine: Option<String>,
}

impl DatabaseError {
    /// Takes one field of an ErrorResponse or NoticeResponse; fields of unknown type are ignored, as the
    /// protocol asks.
    pub(crate) fn set_field(&mut self, field: u8, value: String) {
        match field {
            // 'V' is never localised and wins over 'S', whatever their order.
            b'V' => self.severity = value,
            b'S' if self.severity.is_empty() => self.severity = value,
            b'C' => self.code = value,
            b'M' => self.message = value,
            b'D' => self.detail = Some(value),
            b'H' => self.hint = Some(value),
            b'P' => self.position = value.parse().ok(),
            b'p' => self.internal_position = value.parse().ok(),
            b'q' => self.internal_query = Some(value),
            b'W' => self.context = Some(value),
            b's' => self.schema = Some(value),
            b't' => self.table = Some(value),
            b'c' => self.column = Some(value),
            b'd' => self.data_type = Some(value),
            b'n' => self.constraint = Some(value),
            b'F' => self.file = Some(value),
            b'L' => self.line = value.parse().ok(),
            b'R' => self.routine = Some(value),
            _ => {}
        }
    }

    /// `ERROR`, `FATAL` or `PANIC`; of a notice `WARNING`, `NOTICE`, `DEBUG`, `INFO` or `LOG`. Not localised.
    pub fn severity(&self) -> &str {
        &self.severity
    }

    /// The five-character SQLSTATE code.
    pub fn code(&self) -> &str {
        &self.code
    }

    /// The primary message.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// More about the problem. It may quote the data of rows: think before logging it.
    pub fn detail(&self) -> Option<&str> {
        self.detail.as_deref()
    }

    /// What the server suggests to do.
    pub fn hint(&self) -> Option<&str> {
        self.hint.as_deref()
    }

    /// Where in the statement's text the error lies, in characters from 1.
    pub fn position(&self) -> Option<u32> {
        self.position
    }

    /// Where in [`internal_query`](Self::internal_query) the error lies, in characters from 1.
    pub fn internal_position(&self) -> Option<u32> {
        self.internal_position
    }

    /// The text of an internally generated command that failed.
    pub fn internal_query(&self) -> Option<&str> {
        self.internal_query.as_deref()
    }

    /// The call stack of procedural functions, one entry per line, most recent first.
    pub fn context(&self) -> Option<&str> {
        self.context.as_deref()
    }

    /// The schema of the object that the error is about.
    pub fn schema(&self) -> Option<&str> {
        self.schema.as_deref()
    }

    /// The table that the error is about.
    pub fn table(&self) -> Option<&str> {
        self.table.as_deref()
    }

    /// The column that the error is about.
    pub fn column(&self) -> Option<&str> {
        self.column.as_deref()
    }

    /// The data type that the error is about.
    pub fn data_type(&self) -> Option<&str> {
        self.data_type.as_deref()
    }

    /// The constraint that was violated.
    pub fn constraint(&self) -> Option<&str> {
        self.constraint.as_deref()
    }

    /// The server's source file that reported the error.
    pub fn file(&self) -> Option<&str> {
        self.file.as_deref()
    }

    /// The line in [`file`](Self::file).
    pub fn line(&self) -> Option<u32> {
        self.line
    }

    /// The server's routine that reported the error.
    pub fn routine(&self) -> Option<&str> {
        self.routine.as_deref()
    }

    /// The server ends the connection after this report.
    pub(crate) fn is_fatal(&self) -> bool {
        matches!(self.severity.as_str(), "FATAL" | "PANIC")
    }
}

impl ServerError for DatabaseError {
    fn is_retryable(&self) -> bool {
        matches!(self.code.as_str(), "40001" | "40P01")
    }

    /// `read_only_sql_transaction`.
    fn is_read_only(&self) -> bool {
        self.code == "25006"
    }
}

impl fmt::Display for DatabaseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}", self.severity, self.code, self.message)
    }
}

// By hand: the detail, the hint and the context may quote rows, and `Debug` goes to logs.
impl fmt::Debug for DatabaseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DatabaseError")
            .field("severity", &self.severity)
            .field("code", &self.code)
            .field("message", &self.message)
            .finish_non_exhaustive()
    }
}

impl StdError for DatabaseError {}
