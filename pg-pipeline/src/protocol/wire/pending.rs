//! A request on its way, and how far its answer is: which messages may come, and in which order.
//!
//! Knows one request at a time and nothing of the connection. Sources: PostgreSQL documentation, "Extended Query" and
//! "Simple Query".

use std::sync::Arc;

use postgres_types::Oid;
use smallvec::SmallVec;
use wire_pipeline::answer::{Budget, Chunks, Collector};

use super::super::cache::{Prepared, StatementId};
use super::super::messages::{Description, Tag, Verb, malformed, parameter_types};
use crate::error::{DatabaseError, ErrorKind, Fault, Outcome};

/// A request on its way.
pub(crate) struct Pending {
    pub(super) kind: Kind,
    pub(super) collector: Collector,
    pub(super) tags: SmallVec<[Tag; 1]>,
    /// Which statement of the request the server is at.
    pub(super) at: usize,
    /// The statement at hand is bound: from here on something may have been executed.
    pub(super) bound: bool,
    /// Something of the request was executed.
    pub(super) executed: bool,
    /// Boxed: it is large, and rare.
    pub(super) error: Option<Box<DatabaseError>>,
    /// Evicted statements whose Close went out with this request and is not confirmed, oldest first.
    pub(super) closes: SmallVec<[StatementId; 1]>,
    /// The parameter types, of [`Kind::Learn`].
    pub(super) parameters: Option<Box<[Oid]>>,
}

pub(super) enum Kind {
    Run {
        parts: SmallVec<[PendingPart; 1]>,
        /// The first part opens a transaction.
        opened: bool,
        /// It is part of a transaction.
        part: bool,
        rows: bool,
    },
    Learn {
        /// What opens a transaction, before the statement is parsed.
        opening: Option<PendingPart>,
        part: PendingPart,
    },
    Script {
        own: bool,
        /// It runs in a transaction that it must not end.
        in_transaction: Option<Ending>,
        /// Its session ends with it.
        alone: bool,
    },
}

/// How far the statements of a script have ended the transaction that it runs in. Its status alone does not tell: a new
/// one may be open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    /// Not at all. `opening`: what comes next has opened it. `chains`: where the script has a ROLLBACK, it is one that
    /// ends the transaction and begins the next; the server reports it like a return to a savepoint.
    NotYet {
        opening: bool,
        chains: bool,
    },
    /// There was a ROLLBACK: of the whole, if a BEGIN follows.
    Perhaps,
    Ended,
}

impl Ending {
    fn after(self, verb: Verb) -> Self {
        match (self, verb) {
            (Self::Ended, _)
            | (_, Verb::Commit)
            | (Self::Perhaps, Verb::Begin)
            | (Self::NotYet { chains: true, .. }, Verb::Rollback) => Self::Ended,
            (Self::NotYet { opening: true, chains }, Verb::Begin) => Self::NotYet { opening: false, chains },
            (Self::NotYet { .. }, Verb::Rollback) => Self::Perhaps,
            (unchanged, _) => unchanged,
        }
    }
}

pub(super) struct PendingPart {
    pub(super) prepared: Arc<Prepared>,
    /// This request parses the statement.
    pub(super) parses: Parses,
}

/// How far parsing and describing are; they are answered in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Parses {
    /// It was done before.
    No,
    Asked,
    Parsed,
    /// What it takes is known.
    HalfDescribed,
    /// What it gives is known, too.
    Described,
}

impl Pending {
    pub(super) fn new(kind: Kind, closes: SmallVec<[StatementId; 1]>, budget: &Arc<Budget>) -> Self {
        Self {
            kind,
            collector: Collector::new(budget),
            tags: SmallVec::new(),
            at: 0,
            bound: false,
            executed: false,
            error: None,
            closes,
            parameters: None,
        }
    }

    /// The engine's own, to put the session right.
    pub(super) fn is_own(&self) -> bool {
        matches!(self.kind, Kind::Script { own: true, .. })
    }

    /// It is part of a transaction.
    pub(super) fn is_part(&self) -> bool {
        matches!(self.kind, Kind::Run { part: true, .. } | Kind::Script { in_transaction: Some(_), .. })
    }

    /// It is a script that has ended the transaction that it ran in; `status` is what the server is in behind it.
    pub(super) fn has_ended_it(&self, status: u8) -> bool {
        let Kind::Script { in_transaction: Some(ending), .. } = self.kind else { return false };
        match ending {
            Ending::Ended => true,
            // As a whole it could not be parsed, and what comes first in it was not run either.
            Ending::NotYet { opening: true, .. } => false,
            Ending::NotYet { opening: false, .. } | Ending::Perhaps => status == b'I',
        }
    }

    /// Whether rows are wanted now.
    pub(super) fn wants_rows(&self) -> bool {
        match &self.kind {
            Kind::Run { parts, rows, .. } => *rows && self.at + 1 == parts.len(),
            Kind::Script { .. } | Kind::Learn { .. } => false,
        }
    }

    /// A row may come now.
    pub(super) fn allows_rows(&self) -> bool {
        match &self.kind {
            Kind::Run { .. } => self.bound && self.error.is_none(),
            Kind::Script { .. } => self.error.is_none(),
            Kind::Learn { .. } => false,
        }
    }

    /// The server has closed the oldest of the evicted statements.
    pub(super) fn closed(&mut self) -> Result<(), Fault> {
        if self.closes.is_empty() {
            return Err(malformed("a CloseComplete that nobody asked for"));
        }
        self.closes.remove(0);
        Ok(())
    }

    /// One statement has run.
    pub(super) fn complete(&mut self, tag: Tag) -> Result<(), Fault> {
        self.executed = true;
        match &mut self.kind {
            Kind::Run { .. } if self.bound => {
                self.tags.push(tag);
                self.at += 1;
                self.bound = false;
                Ok(())
            }
            Kind::Learn { opening: Some(_), .. } if self.bound => {
                self.at += 1;
                self.bound = false;
                Ok(())
            }
            Kind::Script { in_transaction, .. } => {
                *in_transaction = in_transaction.map(|ending| ending.after(tag.verb));
                Ok(())
            }
            Kind::Run { .. } | Kind::Learn { .. } => Err(malformed("a completion without a statement")),
        }
    }

    /// Any other message of the answer.
    pub(super) fn message(&mut self, tag: u8, body: &[u8]) -> Result<(), Fault> {
        let at = self.at;
        match (&mut self.kind, tag) {
            (Kind::Run { .. }, b'I') if self.bound => self.complete(Tag::default()),
            (Kind::Script { .. }, b'I') => self.complete(Tag::default()),
            // A script's rows are not wanted, whatever they look like.
            (Kind::Script { .. }, b'T') => Ok(()),
            (Kind::Run { parts, .. }, _) => {
                let Some(part) = parts.get_mut(at) else {
                    return Err(malformed("an answer behind the last statement's"));
                };
                part.message_or_bound(tag, body, &mut self.bound)
            }
            (Kind::Learn { opening: Some(part), .. }, _) if at == 0 => {
                part.message_or_bound(tag, body, &mut self.bound)
            }
            (Kind::Learn { part, .. }, _) => {
                if let Some(parameters) = part.message(tag, body)? {
                    self.parameters = Some(parameters);
                }
                Ok(())
            }
            (Kind::Script { .. }, _) => Err(out_of_place()),
        }
    }

    /// Whether everything has been answered that was asked, when there was no error.
    pub(super) fn is_whole(&self) -> bool {
        let whole = match &self.kind {
            Kind::Run { parts, .. } => self.at == parts.len(),
            Kind::Learn { opening, part } => part.is_ready() && self.at == usize::from(opening.is_some()),
            // The simplest script is answered by EmptyQueryResponse.
            Kind::Script { .. } => self.executed,
        };
        whole && self.closes.is_empty()
    }

    /// Why the statement at hand was refused. One that was parsed for somebody before and could not be does not exist
    /// (26000), for the reason that was told there.
    pub(super) fn own_cause(&self, error: DatabaseError) -> DatabaseError {
        let Kind::Run { parts, .. } = &self.kind else { return error };
        let Some(part) = parts.get(self.at).filter(|_| !self.bound) else { return error };
        match part.parses {
            // A statement that was cancelled, or for which the server had no room, says nothing of the next one.
            Parses::Asked if error.code().starts_with("42") => {
                let _ = part.prepared.refusal.set(error.clone());
                error
            }
            Parses::No if error.code() == "26000" => part.prepared.refusal.get().cloned().unwrap_or(error),
            _ => error,
        }
    }

    /// Whether the server refused because what was known of the statement is out of date: then whether its parameter
    /// types are, and whether it may be run again because nothing was executed and no transaction is open.
    pub(super) fn stale(&self, error: &DatabaseError, status: u8) -> Option<(bool, bool)> {
        let relearn = match error.code() {
            // The plan's result changed; the statement does not exist.
            "0A000" | "26000" => false,
            // Types do not fit (any more); of a type that was dropped the server says XX000.
            "42804" | "42883" | "42P08" | "42P18" | "42725" | "42846" | "42P02" | "22P03" | "08P01"
            | "XX000" => true,
            _ => return None,
        };
        if self.bound {
            return None;
        }
        let alone = matches!(&self.kind, Kind::Run { opened: false, .. });
        Some((relearn, alone && !self.executed && status == b'I'))
    }

    pub(super) fn rows(&mut self) -> Result<Chunks, Fault> {
        let empty = Collector::new(self.collector.budget());
        std::mem::replace(&mut self.collector, empty)
            .finish()
            .map_err(|overflow| Fault::new(ErrorKind::Busy, Outcome::Completed, overflow.to_string()))
    }
}

impl PendingPart {
    /// Its Bind may be answered, or somebody else's.
    fn is_ready(&self) -> bool {
        matches!(self.parses, Parses::No | Parses::Described)
    }

    /// What comes before a statement's rows and completion.
    fn message_or_bound(&mut self, tag: u8, body: &[u8], bound: &mut bool) -> Result<(), Fault> {
        if tag == b'2' && !*bound && self.is_ready() {
            *bound = true;
            return Ok(());
        }
        self.message(tag, body).map(|_| ())
    }

    /// The server's answers to Parse and Describe; the parameter types when they come.
    fn message(&mut self, tag: u8, body: &[u8]) -> Result<Option<Box<[Oid]>>, Fault> {
        let mut parameters = None;
        self.parses = match (tag, self.parses) {
            (b'1', Parses::Asked) => Parses::Parsed,
            (b't', Parses::Parsed) => {
                parameters = Some(parameter_types(body)?);
                Parses::HalfDescribed
            }
            (b'T', Parses::HalfDescribed) => {
                let _ = self.prepared.description.set(Some(Arc::new(Description::parse(body)?)));
                Parses::Described
            }
            (b'n', Parses::HalfDescribed) => {
                let _ = self.prepared.description.set(None);
                Parses::Described
            }
            _ => return Err(out_of_place()),
        };
        Ok(parameters)
    }
}

#[cold]
fn out_of_place() -> Fault {
    malformed("a message out of place")
}
