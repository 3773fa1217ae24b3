//! MySQL's packets, as far as their kind and length (MySQL internals, "MySQL Packets", "Command Phase").
//!
//! What a packet of the server is depends on what was asked: commands are remembered until their answer is over.

use std::collections::VecDeque;

use super::dialogue::{Direction, Kind, Read};

/// A payload of this length goes on in the next packet.
const LARGEST: usize = 0xff_ff_ff;
/// Enough of a packet to tell what it is: an OK up to its status flags.
const HEAD: usize = 4 + 21;

const COMPRESS: u32 = 1 << 5;
const TLS: u32 = 1 << 11;
const DEPRECATE_EOF: u32 = 1 << 24;
const COMPRESS_BY_ZSTD: u32 = 1 << 26;
const MORE_RESULTS: u16 = 8;

/// Both ways of a connection.
#[derive(Debug, Default)]
pub(super) struct Dialogue {
    phase: Phase,
    capabilities: u32,
    asked: VecDeque<Asked>,
    answer: Answer,
    /// What goes on in the next packet of this way.
    continued: [Option<Kind>; 2],
}

#[derive(Debug, Default, PartialEq)]
enum Phase {
    #[default]
    Greeting,
    Login,
    Authentication,
    Commands,
    /// Encrypted or compressed.
    Unreadable,
}

/// A command that is to be answered.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Asked {
    Rows,
    Statement,
    OnePacket,
}

/// How far the answer to the oldest command is.
#[derive(Debug, Default, Clone, Copy)]
enum Answer {
    #[default]
    Begins,
    Definitions {
        left: u64,
        then_rows: bool,
    },
    Rows,
}

impl Dialogue {
    pub(super) fn next(&mut self, direction: Direction, bytes: &[u8]) -> Read {
        if self.phase == Phase::Unreadable {
            return Read::Unreadable;
        }
        let [one, two, three, sequence, ..] = *bytes else { return Read::More };
        let payload = u32::from_le_bytes([one, two, three, 0]) as usize;
        let whole = 4 + payload;
        if bytes.len() < whole.min(HEAD) {
            return Read::More;
        }
        let head = &bytes[4..whole.min(HEAD)];
        let continued = &mut self.continued[direction as usize];
        let kind = match (continued.take(), direction) {
            (Some(kind), _) => kind,
            (None, Direction::Up) => self.of_client(head, payload, sequence),
            (None, Direction::Down) => self.of_server(head, payload),
        };
        if payload == LARGEST {
            self.continued[direction as usize] = Some(kind);
        }
        Read::frame(kind, whole as u64)
    }

    fn of_client(&mut self, head: &[u8], payload: usize, sequence: u8) -> Kind {
        match self.phase {
            Phase::Greeting | Phase::Login => {
                self.capabilities = head.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
                if self.capabilities & TLS != 0 && payload == 32 {
                    self.phase = Phase::Unreadable;
                    return Kind::EncryptionRequest;
                }
                self.phase = Phase::Authentication;
                Kind::Login
            }
            Phase::Authentication => Kind::Credentials,
            Phase::Commands | Phase::Unreadable if sequence == 0 => self.command(head),
            // The content of a file that the server asked for.
            Phase::Commands | Phase::Unreadable => Kind::Other,
        }
    }

    fn command(&mut self, head: &[u8]) -> Kind {
        let (kind, asked) = match head.first() {
            Some(0x01) => (Kind::Quit, None),
            Some(0x03) => (Kind::Query, Some(Asked::Rows)),
            Some(0x16) => (Kind::Prepare, Some(Asked::Statement)),
            Some(0x17) => (Kind::Execute, Some(Asked::Rows)),
            // COM_STMT_SEND_LONG_DATA and COM_STMT_CLOSE have no answer.
            Some(0x18) => (Kind::Other, None),
            Some(0x19) => (Kind::Close, None),
            Some(0x11) => {
                self.phase = Phase::Authentication;
                (Kind::Login, None)
            }
            _ => (Kind::Other, Some(Asked::OnePacket)),
        };
        self.asked.extend(asked);
        kind
    }

    fn of_server(&mut self, head: &[u8], payload: usize) -> Kind {
        let first = head.first().copied();
        match self.phase {
            Phase::Greeting => {
                self.phase = Phase::Login;
                if first == Some(0xff) { Kind::Error } else { Kind::Greeting }
            }
            Phase::Login | Phase::Authentication => match first {
                Some(0xff) => Kind::Error,
                Some(0x00) => {
                    let compressed = self.capabilities & (COMPRESS | COMPRESS_BY_ZSTD) != 0;
                    self.phase = if compressed { Phase::Unreadable } else { Phase::Commands };
                    Kind::Complete
                }
                _ => Kind::Authentication,
            },
            Phase::Commands | Phase::Unreadable => self.part_of_answer(first, head, payload),
        }
    }

    fn part_of_answer(&mut self, first: Option<u8>, head: &[u8], payload: usize) -> Kind {
        let asked = self.asked.front().copied();
        match (self.answer, asked, first) {
            (Answer::Definitions { left, then_rows }, ..) => {
                self.definitions(left.saturating_sub(1), then_rows);
                Kind::Description
            }
            (_, _, Some(0xff)) => {
                self.is_over();
                Kind::Error
            }
            // A row may begin with the same byte, for a value that fills the packet.
            (Answer::Rows, _, Some(0xfe)) if payload < LARGEST => self.complete(self.rows_status(head)),
            (Answer::Rows, ..) => Kind::Row,
            (Answer::Begins, Some(Asked::Statement), _) => {
                let count = |at: usize| {
                    let bytes = head.get(at..).and_then(|rest| rest.first_chunk());
                    u64::from(bytes.map_or(0, |bytes| u16::from_le_bytes(*bytes)))
                };
                self.definitions(self.with_eof(count(5)) + self.with_eof(count(7)), false);
                Kind::Prepared
            }
            (Answer::Begins, Some(Asked::Rows), Some(0x00)) => self.complete(status_of_ok(head)),
            // The server asks for a file; the answer begins when it has it.
            (Answer::Begins, Some(Asked::Rows), Some(0xfb)) => Kind::Other,
            (Answer::Begins, Some(Asked::Rows), Some(_)) => {
                let columns = length(head).map_or(0, |(columns, _)| columns);
                self.definitions(self.with_eof(columns), true);
                Kind::Description
            }
            (Answer::Begins, Some(Asked::OnePacket), _) => self.complete(0),
            (Answer::Begins, ..) => Kind::Other,
        }
    }

    fn with_eof(&self, definitions: u64) -> u64 {
        let eof = definitions > 0 && self.capabilities & DEPRECATE_EOF == 0;
        definitions + u64::from(eof)
    }

    fn definitions(&mut self, left: u64, then_rows: bool) {
        match (left, then_rows) {
            (0, true) => self.answer = Answer::Rows,
            (0, false) => self.is_over(),
            (left, then_rows) => self.answer = Answer::Definitions { left, then_rows },
        }
    }

    fn complete(&mut self, status: u16) -> Kind {
        self.answer = Answer::Begins;
        if status & MORE_RESULTS == 0 {
            self.is_over();
        }
        Kind::Complete
    }

    fn is_over(&mut self) {
        self.answer = Answer::Begins;
        self.asked.pop_front();
    }

    /// The status flags of what ends rows: an OK, or an EOF with the number of warnings before them.
    fn rows_status(&self, head: &[u8]) -> u16 {
        if self.capabilities & DEPRECATE_EOF != 0 { status_of_ok(head) } else { u16_at(head, 3) }
    }
}

/// The status flags of an OK, behind two numbers of variable length.
fn status_of_ok(head: &[u8]) -> u16 {
    let skip = |bytes: &[u8]| length(bytes).map_or(bytes.len(), |(_, taken)| taken);
    let rest = head.get(1..).unwrap_or_default();
    let rest = &rest[skip(rest).min(rest.len())..];
    let rest = &rest[skip(rest).min(rest.len())..];
    u16_at(rest, 0)
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |bytes| u16::from_le_bytes(*bytes))
}

/// A length-encoded integer, and how many bytes it takes.
fn length(bytes: &[u8]) -> Option<(u64, usize)> {
    let more = match *bytes.first()? {
        0xfc => 2,
        0xfd => 3,
        0xfe => 8,
        small => return Some((small.into(), 1)),
    };
    let digits = bytes.get(1..=more)?;
    Some((digits.iter().rev().fold(0, |number, digit| number << 8 | u64::from(*digit)), 1 + more))
}
