//! Where the messages of a connection begin and end, and what they are: both ways of one dialogue, of either database.
//!
//! Knows framing and nothing of sockets. What it cannot read (an encrypted stream, another protocol) is passed over as
//! [`Kind::Opaque`], in the pieces in which it comes.

use super::{mysql, postgres};

/// Which way a message travels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Direction {
    /// To the server.
    Up,
    /// To the client.
    Down,
}

/// What a message is, in words that both protocols share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// The server's first words (MySQL).
    Greeting,
    /// Asks for an encrypted connection.
    EncryptionRequest,
    /// Says whether there will be one (PostgreSQL).
    EncryptionAnswer,
    /// Asks to cancel a statement of another connection (PostgreSQL).
    Cancel,
    /// Names user and database: `StartupMessage`, `HandshakeResponse`.
    Login,
    /// What the server wants to know for it.
    Authentication,
    /// A password or a proof of one.
    Credentials,
    /// A parameter's value or a key, told after the login (PostgreSQL).
    Status,
    /// A statement as text: `Query`, `COM_QUERY`.
    Query,
    /// `Parse`, `COM_STMT_PREPARE`.
    Prepare,
    /// `Bind` (PostgreSQL).
    Bind,
    /// `Describe` (PostgreSQL).
    Describe,
    /// `Execute`, `COM_STMT_EXECUTE`.
    Execute,
    /// `Sync` (PostgreSQL).
    Sync,
    /// `Close`, `COM_STMT_CLOSE`.
    Close,
    /// `Terminate`, `COM_QUIT`.
    Quit,
    /// `ParseComplete`, `COM_STMT_PREPARE_OK`.
    Prepared,
    /// Of parameters or columns.
    Description,
    /// One row.
    Row,
    /// `CommandComplete`, or what ends an answer of MySQL: OK or EOF.
    Complete,
    /// `ReadyForQuery` (PostgreSQL).
    Ready,
    /// `ErrorResponse`, ERR.
    Error,
    /// Any other message.
    Other,
    /// Bytes of which nothing is known.
    Opaque,
}

/// A message: what it is, and how long with all that belongs to it on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) kind: Kind,
    pub(super) length: u64,
}

/// What the first bytes of a message say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Read {
    Frame(Frame),
    /// More of it must be there first.
    More,
    /// This is no such message; from here on nothing can be read.
    Unreadable,
}

impl Read {
    pub(super) fn frame(kind: Kind, length: u64) -> Self {
        Self::Frame(Frame { kind, length })
    }
}

/// Both ways of one connection.
#[derive(Debug)]
pub(super) enum Dialogue {
    /// Nobody has said anything yet. Who speaks first shows the protocol: PostgreSQL's client, MySQL's server.
    Silent,
    Postgres(postgres::Dialogue),
    MySql(mysql::Dialogue),
    Opaque,
}

impl Dialogue {
    /// The message that `bytes` begins with; none if more of it must be there to tell. Each message is asked for until
    /// it is told, and once.
    pub(super) fn next(&mut self, direction: Direction, bytes: &[u8]) -> Option<Frame> {
        if bytes.is_empty() {
            return None;
        }
        if matches!(self, Self::Silent) {
            *self = match direction {
                Direction::Up => Self::Postgres(postgres::Dialogue::default()),
                Direction::Down => Self::MySql(mysql::Dialogue::default()),
            };
        }
        let read = match self {
            Self::Postgres(dialogue) => dialogue.next(direction, bytes),
            Self::MySql(dialogue) => dialogue.next(direction, bytes),
            Self::Silent | Self::Opaque => Read::Unreadable,
        };
        match read {
            Read::Frame(frame) => Some(frame),
            Read::More => None,
            Read::Unreadable => {
                *self = Self::Opaque;
                Some(Frame { kind: Kind::Opaque, length: bytes.len() as u64 })
            }
        }
    }
}
