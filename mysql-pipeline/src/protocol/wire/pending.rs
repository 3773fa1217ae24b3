//! What is remembered of a request until its answer is complete, and how its answer is collected.

use std::sync::Arc;

use smallvec::SmallVec;
use wire_pipeline::answer::Collector;
use wire_pipeline::wire::{ParkKey, Received};

use super::super::answer::{Answer, Ran, ResultSet};
use super::super::packet::{Header, Sequence};
use super::super::response::{Prepared, StatementId};
use super::super::{lenenc, malformed};
use super::MySqlWire;
use crate::error::{DatabaseError, ErrorKind, Fault, Outcome};
use crate::statement::Learned;

/// The bytes of a packet that holds a number in text: the header, its length, and 20 digits.
const LONGEST_NUMBER: usize = Header::LEN + 1 + 20;
/// The least that the server can be told to take. Source: MySQL manual, `max_allowed_packet`.
const LEAST_PACKET: usize = 1024;

/// What is remembered of a request, or of its forerunner, until its answer is complete.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "they do not depend on each other")]
pub(crate) struct Pending {
    pub(super) command: Command,
    /// Written behind it and answered next, in this order.
    pub(super) then: SmallVec<[Command; 2]>,
    /// It is a forerunner, and this is who waits for it.
    pub(super) key: Option<ParkKey>,
    pub(super) own: bool,
    /// It is part of a transaction, or its end.
    pub(super) part: bool,
    /// It has ended the transaction that it was part of.
    pub(super) ended: bool,
    /// Whether its rows are binary.
    pub(super) binary: bool,
    /// Whether rows are wanted.
    pub(super) wants_rows: bool,
    pub(super) error: Option<DatabaseError>,
    pub(super) results: SmallVec<[ResultSet; 1]>,
    pub(super) columns: u16,
    pub(super) rows: u64,
    pub(super) collector: Collector,
}

/// A command under way.
#[derive(Debug)]
pub(super) struct Command {
    pub(super) kind: Kind,
    /// The number that the next frame of its response bears.
    pub(super) sequence: Sequence,
    pub(super) state: State,
}

#[derive(Debug)]
pub(super) enum Kind {
    Prepare {
        statement: Arc<Learned>,
        key: ParkKey,
        prepared: Option<Prepared>,
    },
    Execute {
        statement: Arc<Learned>,
        id: StatementId,
    },
    Text,
    /// The question for the largest packet that the server takes, and what has come of the row that tells it.
    LargestPacket(SmallVec<[u8; LONGEST_NUMBER]>),
    /// What opens a transaction.
    Opening,
    /// What ends one.
    Commit,
    Rollback,
    /// `COM_SET_OPTION`.
    Option,
    /// Sets a savepoint before what may end the transaction unseen.
    Guard,
    /// Releases it: there is none any more when the transaction was ended.
    Guarded,
    Reset,
    /// A packet of a dialogue, and what the server says to it.
    Dialogue(Vec<u8>),
}

/// What comes next.
#[derive(Debug, Clone, Copy)]
pub(super) enum State {
    /// OK, ERR, the number of columns, or the answer to a prepare.
    First,
    /// Definitions of columns or parameters.
    Definitions { left: u32 },
    /// Rows, or what ends them. Of the row at hand, `left` bytes of a frame are to come, and `continued` tells
    /// whether another frame follows.
    Rows { left: usize, continued: bool },
}

impl Command {
    pub(super) fn new(kind: Kind, sequence: Sequence) -> Self {
        Self { kind, sequence, state: State::First }
    }
}

/// How far a packet has brought the request at hand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// More packets belong to it.
    Next,
    /// It is complete.
    Complete,
}

/// What the bytes at hand are in the middle of rows.
pub(super) enum Row {
    /// So many of them belong to a row.
    Bytes(usize),
    /// Another packet.
    Other,
    /// It takes more bytes to tell.
    Short,
}

impl Pending {
    /// Makes it a forerunner.
    pub(super) fn ahead(self, key: ParkKey) -> Self {
        Self { key: Some(key), ..self }
    }

    pub(super) fn collect(&mut self, header: Header, packet: &[u8]) {
        let [a, b, c, _] = (header.len as u32).to_le_bytes();
        self.collector.push(&[a, b, c, header.sequence]);
        self.collector.push(packet);
        self.collector.end_message();
    }

    /// Collects what has arrived of a row; large ones are not gathered in the read buffer first.
    pub(super) fn row(&mut self, data: &[u8]) -> Result<Row, Fault> {
        let Command { kind, sequence, state } = &mut self.command;
        let State::Rows { left, continued } = state else { return Ok(Row::Other) };
        if *left == 0 {
            let Some(header) = Header::parse(data) else { return Ok(Row::Short) };
            if !*continued {
                match data.get(Header::LEN) {
                    None if header.len > 0 => return Ok(Row::Short),
                    None => return Err(malformed("an empty row")),
                    Some(0xFF) => return Ok(Row::Other),
                    // A row of text may begin like this too, with a value of 16 MiB at least.
                    Some(0xFE) if !header.is_continued() => return Ok(Row::Other),
                    Some(first) if *first != 0 && matches!(kind, Kind::Execute { .. }) => {
                        return Err(malformed("a row that is not binary"));
                    }
                    Some(_) if header.len == 0 => return Err(malformed("an empty row")),
                    Some(_) => {}
                }
            }
            if !sequence.accept(header) {
                return Err(malformed("a row out of order"));
            }
            *left = header.total();
            *continued = header.is_continued();
        }
        let here = data.get(..*left).unwrap_or(data);
        if here.is_empty() {
            return Ok(Row::Short);
        }
        if let Kind::LargestPacket(row) = kind {
            let room = LONGEST_NUMBER - row.len();
            row.extend_from_slice(&here[..here.len().min(room)]);
        }
        *left -= here.len();
        if self.wants_rows {
            self.collector.push(here);
        }
        if *left == 0 && !*continued {
            if self.wants_rows {
                self.collector.end_message();
            }
            self.rows += 1;
        }
        Ok(Row::Bytes(here.len()))
    }

    /// Keeps a result. A server may send any number of them: those behind the first count as a part of the answer.
    pub(super) fn keep(&mut self, result: ResultSet) {
        let bytes = size_of::<ResultSet>() + result.done.info.as_ref().map_or(0, |info| info.len());
        if self.results.is_empty() || self.collector.hold(bytes) {
            self.results.push(result);
        }
    }

    /// The command at hand is answered: what was written behind it comes next.
    pub(super) fn command_done(&mut self) -> Step {
        if self.then.is_empty() {
            return Step::Complete;
        }
        self.command = self.then.remove(0);
        Step::Next
    }

    pub(super) fn conclude(&mut self) -> Received<MySqlWire> {
        let error = self.error.take();
        if let Some(key) = self.key {
            return Received::Forerunner {
                key,
                result: error.map_or(Ok(()), |error| Err(Fault::refused(error))),
            };
        }
        if let Kind::Dialogue(said) = &mut self.command.kind
            && error.is_none()
            && !said.is_empty()
        {
            return Received::Answer(Ok(Answer::Said(std::mem::take(said))));
        }
        Received::Answer(match error {
            Some(error) if error.is_stale() && self.results.is_empty() => {
                Ok(Answer::Stale(Fault::refused(error)))
            }
            // What came before it has run.
            Some(error) if !self.results.is_empty() => {
                Err(Fault::refused(error).with_outcome(Outcome::Unknown))
            }
            Some(error) => Err(Fault::refused(error)),
            None => self.ran(),
        })
    }

    pub(super) fn ran(&mut self) -> Result<Answer, Fault> {
        let text = !self.binary;
        let empty = Collector::new(self.collector.budget());
        let packets = std::mem::replace(&mut self.collector, empty)
            .finish()
            .map_err(|overflow| Fault::new(ErrorKind::Busy, Outcome::Completed, overflow.to_string()))?;
        Ok(Answer::Ran(Ran { results: std::mem::take(&mut self.results), packets, text }))
    }
}

/// The number in a text row of one column, if it can be a largest packet.
pub(super) fn largest_packet(row: &[u8]) -> Result<usize, Fault> {
    let number = || -> Option<usize> {
        let mut rest = row.get(Header::LEN..)?;
        std::str::from_utf8(lenenc::take_bytes(&mut rest)?).ok()?.parse().ok()
    };
    number().filter(|bytes| *bytes >= LEAST_PACKET).ok_or_else(|| malformed("no valid max_allowed_packet"))
}
