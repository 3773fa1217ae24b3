//! PostgreSQL's messages, as far as their kind and length (PostgreSQL documentation, "Message Formats").

use super::dialogue::{Direction, Kind, Read};

/// Requests in place of a protocol version, as `StartupMessage` has it.
const CANCEL: u32 = 80_877_102;
const ENCRYPT_BY_TLS: u32 = 80_877_103;
const ENCRYPT_BY_GSS: u32 = 80_877_104;

/// Both ways of a connection.
#[derive(Debug, Default)]
pub(super) struct Dialogue {
    /// The client has named its user, and each message begins with its type.
    started: bool,
    /// The server answers with one byte.
    asked_for_encryption: bool,
    encrypted: bool,
}

impl Dialogue {
    pub(super) fn next(&mut self, direction: Direction, bytes: &[u8]) -> Read {
        match direction {
            _ if self.encrypted => Read::Unreadable,
            Direction::Up if !self.started => self.request(bytes),
            Direction::Up => typed(bytes, from_client),
            Direction::Down if self.asked_for_encryption => self.encryption(bytes),
            Direction::Down => typed(bytes, from_server),
        }
    }

    fn request(&mut self, bytes: &[u8]) -> Read {
        let (Some(length), Some(code)) = (number(bytes, 0), number(bytes, 4)) else { return Read::More };
        if length < 8 {
            return Read::Unreadable;
        }
        let kind = match code {
            CANCEL => Kind::Cancel,
            ENCRYPT_BY_TLS | ENCRYPT_BY_GSS => {
                self.asked_for_encryption = true;
                Kind::EncryptionRequest
            }
            _ => {
                self.started = true;
                Kind::Login
            }
        };
        Read::frame(kind, length.into())
    }

    fn encryption(&mut self, bytes: &[u8]) -> Read {
        self.asked_for_encryption = false;
        match bytes.first() {
            // An old server does not know the request and says so.
            Some(b'E') => typed(bytes, from_server),
            answer => {
                self.encrypted = answer != Some(&b'N');
                Read::frame(Kind::EncryptionAnswer, 1)
            }
        }
    }
}

fn typed(bytes: &[u8], kind: fn(u8) -> Kind) -> Read {
    match (bytes.first(), number(bytes, 1)) {
        (Some(&first), Some(length @ 4..)) => Read::frame(kind(first), 1 + u64::from(length)),
        (_, Some(_)) => Read::Unreadable,
        (_, None) => Read::More,
    }
}

fn from_client(first: u8) -> Kind {
    match first {
        b'Q' => Kind::Query,
        b'P' => Kind::Prepare,
        b'B' => Kind::Bind,
        b'D' => Kind::Describe,
        b'E' => Kind::Execute,
        b'S' => Kind::Sync,
        b'C' => Kind::Close,
        b'X' => Kind::Quit,
        b'p' => Kind::Credentials,
        _ => Kind::Other,
    }
}

fn from_server(first: u8) -> Kind {
    match first {
        b'R' => Kind::Authentication,
        b'S' | b'K' => Kind::Status,
        b'1' => Kind::Prepared,
        b'T' | b't' | b'n' => Kind::Description,
        b'D' => Kind::Row,
        b'C' | b'I' => Kind::Complete,
        b'Z' => Kind::Ready,
        b'E' => Kind::Error,
        _ => Kind::Other,
    }
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}
