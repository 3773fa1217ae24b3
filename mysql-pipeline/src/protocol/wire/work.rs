//! What is known of a connection's open transaction, and what is told to those who ask something of it: MySQL goes on
//! working when it has undone one, and when something else than its handle has ended one.
//!
//! Knows answers and the server's status; what is sent when, the connection knows.

use std::sync::Arc;

use bytes::Bytes;
use wire_pipeline::buffer::Out;

use super::super::answer::Answer;
use super::super::command;
use super::super::request::What;
use super::super::response::Status;
use super::pending::{Command, Kind, Pending};
use crate::error::{DatabaseError, ErrorKind, Fault, Outcome};

/// What is known of an open transaction.
#[derive(Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is seen by itself")]
pub(super) struct Work {
    /// The error with which the server has undone all of it. It goes on working in a new one: nothing that follows
    /// may be committed.
    undone: Option<Arc<DatabaseError>>,
    /// Some statement of it was refused.
    failed: bool,
    /// A statement has shown that it is open.
    entered: bool,
    /// Something else than its handle has ended it: what came before is committed or undone, and what follows is part
    /// of another one, which nobody commits.
    ended: bool,
    /// It was undone while something ran that may have ended it before: what that did may be committed.
    unsure: bool,
}

impl Work {
    /// Why a request that is part of it is not sent, if it is not.
    pub(super) fn refusal(&self, what: &What) -> Option<Fault> {
        match (&self.undone, what) {
            _ if self.ended && matches!(what, What::Commit { .. }) => Some(ended()),
            _ if self.ended => Some(ended().with_outcome(Outcome::NotSent)),
            (Some(error), _) if self.unsure => Some(unsure(error)),
            (Some(error), _) => Some(undone(error)),
            (None, What::Commit { strict: true }) if self.failed => Some(failed_unseen()),
            (None, _) => None,
        }
    }

    /// A statement of it was refused.
    pub(super) fn heed(&mut self, error: &DatabaseError) {
        self.failed |= !error.is_stale() && !error.wants_text();
        if error.undoes_transaction() && self.undone.is_none() {
            self.undone = Some(Arc::new(error.clone()));
        }
    }

    /// Whether it shows only now that something else than its handle has ended it: once it is open, it is open until it
    /// ends.
    pub(super) fn is_ended_by(&mut self, status: Status) -> bool {
        let open = status.in_transaction();
        let ends = self.entered && !open && self.undone.is_none() && !self.ended;
        self.entered |= open;
        self.ended |= ends;
        ends
    }

    /// The same where the savepoint around a statement is gone.
    pub(super) fn lost_its_guard(&mut self) -> bool {
        if self.undone.is_some() {
            self.unsure = true;
            return false;
        }
        !std::mem::replace(&mut self.ended, true)
    }

    /// Something else than its handle has ended it.
    pub(super) fn is_ended(&self) -> bool {
        self.ended
    }

    /// What a request that is part of it, or its end, is told instead of `answer`; `ends` says that the request has ended
    /// it.
    pub(super) fn told(&self, answer: Result<Answer, Fault>, ends: bool) -> Result<Answer, Fault> {
        let server = answer.as_ref().err().and_then(|error| error.server().cloned().map(Arc::new));
        let with_server = |fault: Fault| server.into_iter().fold(fault, Fault::with_server);
        match (&self.undone, answer) {
            (_, Ok(_)) if ends => Err(ended().with_outcome(Outcome::Completed)),
            _ if self.ended => Err(with_server(ended())),
            (Some(error), _) if self.unsure => Err(with_server(unsure(error))),
            // What came before it in the same text is undone with everything else.
            (Some(_), Err(error)) if error.kind() == ErrorKind::Database => {
                Err(error.with_outcome(Outcome::Failed))
            }
            (_, answer) => answer,
        }
    }
}

/// A savepoint around what may end the transaction unseen. Source: MySQL manual, "SAVEPOINT": all savepoints of a
/// transaction are deleted when it is committed, or rolled back without naming one.
pub(super) struct Guard(Command);

impl Guard {
    pub(super) fn set(out: &mut Out) -> Self {
        let text = Bytes::from_static(b"SAVEPOINT pipeline_guard");
        Self(Command::new(Kind::Guard, command::query(out, &text)))
    }

    /// Written behind `pending`, whose answers come in between.
    pub(super) fn release(guard: Option<Self>, pending: Pending, out: &mut Out) -> Pending {
        let Some(Self(guard)) = guard else { return pending };
        let text = Bytes::from_static(b"RELEASE SAVEPOINT pipeline_guard");
        let release = Command::new(Kind::Guarded, command::query(out, &text));
        let Pending { command, mut then, .. } = pending;
        then.insert(0, command);
        then.push(release);
        Pending { command: guard, then, ..pending }
    }
}

#[cold]
pub(super) fn not_open() -> Fault {
    Fault::new(ErrorKind::SessionState, Outcome::NotSent, "the transaction could not be opened, or is over")
}

/// As when PostgreSQL turns a COMMIT into a ROLLBACK.
#[cold]
fn undone(error: &Arc<DatabaseError>) -> Fault {
    Fault::new(
        ErrorKind::Database,
        Outcome::Failed,
        "the server has rolled this transaction back; begin a new one and run all of it again",
    )
    .with_server(Arc::clone(error))
}

/// Something else has ended the transaction that its handle stands for.
#[cold]
fn ended() -> Fault {
    Fault::new(
        ErrorKind::SessionState,
        Outcome::Unknown,
        "a statement ended the transaction behind its handle's back: a procedure, or one that commits by itself; use \
         commit() or rollback(), or pool.session() for transactions of your own",
    )
}

/// The transaction was undone in the middle of what may have committed a part of it.
#[cold]
fn unsure(error: &Arc<DatabaseError>) -> Fault {
    Fault::new(
        ErrorKind::Database,
        Outcome::Unknown,
        "the server has rolled this transaction back while a procedure ran, which may have committed before; look at what \
         is there before you run it again",
    )
    .with_server(Arc::clone(error))
}

#[cold]
fn failed_unseen() -> Fault {
    Fault::new(
        ErrorKind::Database,
        Outcome::Failed,
        "the transaction is rolled back instead of committed, because an earlier statement of it failed whose answer \
         was not waited for",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(number: u16) -> DatabaseError {
        DatabaseError::new(number, "HY000".to_owned(), "as it is".to_owned())
    }

    fn says(fault: Option<Fault>) -> Option<(ErrorKind, Outcome)> {
        fault.map(|fault| (fault.kind(), fault.outcome()))
    }

    const COMMIT: What = What::Commit { strict: false };

    #[test]
    fn what_has_lost_its_guard_is_neither_committed_nor_gone_on_with() {
        let mut work = Work::default();
        assert_eq!(says(work.refusal(&COMMIT)), None);
        assert!(work.lost_its_guard(), "the first shows it");
        assert!(!work.lost_its_guard());
        assert_eq!(says(work.refusal(&COMMIT)), Some((ErrorKind::SessionState, Outcome::Unknown)));
        assert_eq!(says(work.refusal(&What::Reset)), Some((ErrorKind::SessionState, Outcome::NotSent)));
        let told = work.told(Err(Fault::refused(refused(1213))), false).expect_err("it is over");
        assert_eq!((told.kind(), told.outcome()), (ErrorKind::SessionState, Outcome::Unknown));
        assert!(!told.is_retryable());
    }

    #[test]
    fn what_is_undone_may_be_run_again_unless_its_guard_was_lost_with_it() {
        let mut work = Work::default();
        work.heed(&refused(1213));
        assert!(work.refusal(&COMMIT).is_some_and(|fault| fault.is_retryable()));
        assert!(!work.lost_its_guard());
        assert_eq!(says(work.refusal(&COMMIT)), Some((ErrorKind::Database, Outcome::Unknown)));
        let told = work.told(Err(Fault::refused(refused(1213))), false).expect_err("refused");
        assert!(!told.is_retryable());
    }
}
