//! What callers were told, and whether it was true.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pg_pipeline::{ErrorKind, Outcome};

use crate::client::{Ask, Failure, Told};
use crate::log::Log;
use crate::server::Server;
use crate::text::{Args, Owner};

/// How a call, or a unit of work, ended for its caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// With the right answer.
    Fine,
    /// With an error.
    Error(ErrorKind, Outcome),
    /// The future was dropped; `true` if it had been polled.
    Dropped(bool),
}

#[derive(Debug, Clone, Copy)]
struct Call {
    owner: i64,
    writes: bool,
    refused: bool,
    /// Its own limit is the pool's.
    patient: bool,
    work: i64,
    end: End,
}

/// All calls of a run.
#[derive(Debug)]
pub struct Account {
    log: Arc<Log>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    next: i64,
    calls: BTreeMap<i64, Call>,
    /// How units of work ended, by their owner.
    works: BTreeMap<i64, End>,
    /// Statements that were undone with a savepoint.
    undone: BTreeSet<i64>,
    fine: u64,
}

impl Account {
    /// An empty one.
    pub fn new(log: &Arc<Log>) -> Arc<Self> {
        Arc::new(Self { log: Arc::clone(log), state: Mutex::default() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A number that nothing else has.
    pub fn number(&self) -> i64 {
        let mut state = self.state();
        state.next += 1;
        state.next
    }

    /// Calls that were answered well.
    pub fn fine(&self) -> u64 {
        self.state().fine
    }

    /// How a call ended; `None` if its future was dropped.
    pub fn told(&self, ask: Ask, polled: bool, told: Option<Told>) {
        let id = ask.args.id;
        let end = match told {
            None => End::Dropped(polled),
            Some(Ok(true)) => End::Fine,
            Some(Ok(false)) => {
                self.log.violation(format!("statement {id} got another answer than its own"));
                End::Fine
            }
            Some(Err(failure)) => {
                self.look_at(&format!("statement {id}"), &failure);
                End::Error(failure.kind, failure.outcome)
            }
        };
        self.log.note("told", [id, ask.args.owner, code(end)]);
        let refused = ask.args.size < 0;
        let mut state = self.state();
        state.fine += u64::from(end == End::Fine);
        let Args { owner, work, .. } = ask.args;
        let call = Call { owner, writes: ask.writes, refused, patient: ask.timeout.is_none(), work, end };
        if state.calls.insert(id, call).is_some() {
            drop(state);
            self.log.violation(format!("statement {id} was answered twice"));
        }
    }

    /// What an owner has asked for since then was undone with a savepoint.
    pub fn undone_since(&self, owner: i64, mark: i64) {
        let mut state = self.state();
        let state = &mut *state;
        let since = state.calls.range(mark..).filter(|(_, call)| call.owner == owner);
        state.undone.extend(since.map(|(id, _)| *id));
    }

    /// How a unit of work ended.
    pub fn ended(&self, owner: i64, end: End) {
        self.log.note("work ends", [owner, code(end), 0]);
        self.state().works.insert(owner, end);
    }

    /// How a unit of work ended, from its last call.
    pub fn concluded(&self, owner: i64, result: Option<Result<(), Failure>>) {
        let end = match result {
            None => End::Dropped(true),
            Some(Ok(())) => End::Fine,
            Some(Err(failure)) => {
                self.look_at(&format!("work of {owner}"), &failure);
                End::Error(failure.kind, failure.outcome)
            }
        };
        self.ended(owner, end);
    }

    /// An error that this world does not cause means that a driver misunderstood something.
    pub fn look_at(&self, whose: &str, failure: &Failure) {
        self.log.remark(|| format!("{whose}: {:?} {:?} {}", failure.kind, failure.outcome, failure.words));
        if failure.words.contains("stall_timeout") {
            self.log.note("stalled", [0; 3]);
        }
        let impossible = match failure.kind {
            ErrorKind::Protocol | ErrorKind::Encode | ErrorKind::Auth | ErrorKind::Tls => true,
            // The server may refuse to describe what it has parsed.
            ErrorKind::Decode => !failure.words.contains("interrupted before it described"),
            ErrorKind::Config => !failure.words.contains("cannot lease"),
            _ => false,
        };
        if impossible {
            self.log.violation(format!("{whose}: {:?}: {}", failure.kind, failure.words));
        }
    }

    /// With nothing in the way nobody waits for longer than all of the work takes, however it was spread: checks that no
    /// call ran out of time, if its limit is longer than that.
    pub fn settle_in_time(&self, limit: Duration) {
        /// What a call may cost beside its work, in milliseconds: ways, preparing, and a neighbour that is stopped.
        const EACH: i64 = 60;
        let state = self.state();
        let work: i64 = state.calls.values().map(|call| call.work + EACH).sum();
        if work > limit.as_millis() as i64 {
            return;
        }
        self.log.note("all in time", [state.calls.len() as i64, work, 0]);
        for (id, call) in &state.calls {
            // Those of a batch may have waited for a lease, which has a limit of its own.
            let alone = Owner::of(call.owner) != Owner::Batch;
            if call.patient && alone && matches!(call.end, End::Error(ErrorKind::Timeout, _)) {
                self.log.violation(format!("statement {id} ran out of time with nothing in its way"));
            }
        }
    }

    /// Whether what everybody was told is true, now that the server has come to rest.
    pub fn settle(&self, server: &Server) {
        let state = self.state();
        for (id, call) in &state.calls {
            let begun = server.begun(*id);
            let committed = server.committed(*id);
            let wrong = |words: &str| {
                self.log.violation(format!(
                    "statement {id} of {}: told {:?}, begun {begun} times, committed {committed} times: {words}",
                    call.owner, call.end
                ));
            };
            if committed > 1 {
                wrong("it was committed more than once");
            }
            // What is told of a batch is told of all its statements.
            let batch = Owner::of(call.owner) == Owner::Batch;
            match call.end {
                End::Error(_, Outcome::NotSent) if begun > 0 && !batch => wrong("it had reached the server"),
                End::Dropped(false) if begun > 0 => wrong("nobody had asked for it"),
                End::Fine | End::Error(_, Outcome::Completed) if begun == 0 => wrong("it never ran"),
                _ => {}
            }
            if call.refused && call.end == End::Fine {
                wrong("the server had refused it");
            }
            if !call.writes {
                continue;
            }
            // A batch of which nothing was kept may be run again.
            if begun > 1 && !batch {
                wrong("it ran more than once");
            }
            if state.undone.contains(id) && committed > 0 {
                wrong("it was undone with its savepoint");
            }
            if call.refused && committed > 0 {
                wrong("what was refused is there");
            }
            if matches!(call.end, End::Error(_, Outcome::Failed)) && committed > 0 {
                wrong("what failed is there");
            }
            let alone = matches!(Owner::of(call.owner), Owner::Shared | Owner::Session);
            if alone && matches!(call.end, End::Fine | End::Error(_, Outcome::Completed)) && committed != 1 {
                wrong("what was acknowledged is not there");
            }
        }
        for (owner, end) in &state.works {
            let writes = || state.calls.iter().filter(|(_, call)| call.owner == *owner && call.writes);
            let there = writes().filter(|(id, _)| server.committed(**id) > 0).count();
            let acknowledged = writes()
                .filter(|(_, call)| matches!(call.end, End::Fine | End::Error(_, Outcome::Completed)))
                .filter(|(id, _)| !state.undone.contains(id))
                .map(|(id, _)| *id);
            let missing = acknowledged.filter(|id| server.committed(*id) != 1).count();
            let whole = match end {
                End::Fine => missing == 0,
                End::Error(_, Outcome::Unknown) | End::Dropped(true) => there == 0 || missing == 0,
                End::Error(..) | End::Dropped(false) => there == 0,
            };
            if !whole {
                self.log.violation(format!(
                    "work of {owner}: told {end:?}, {there} of its writes are there, and {missing} are missing"
                ));
            }
        }
    }
}

fn code(end: End) -> i64 {
    match end {
        End::Fine => 0,
        End::Dropped(polled) => 1 + i64::from(polled),
        End::Error(kind, outcome) => 16 + kind as i64 * 16 + outcome as i64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dice::Dice;
    use crate::run::in_virtual_time;
    use crate::server::Temper;
    use crate::session::Session;
    use crate::text::Text;

    /// What is found when a write on the pool is told `told` and the server did `did`.
    fn found(told: Option<Told>, did: impl Fn(&mut Session, Args)) -> Vec<String> {
        let report = in_virtual_time(false, |log| async move {
            let server = Server::new(&log, Dice::new(1, 1), Temper::default());
            let account = Account::new(&log);
            let args = Args { id: account.number(), owner: 0, work: 0, size: 0 };
            did(&mut Session::new(&server, 0, 0), args);
            account.told(
                Ask { args, variant: 0, writes: true, timeout: None, idempotent: false, bulk: 0 },
                true,
                told.clone(),
            );
            account.settle(&server);
            0
        });
        report.violations
    }

    fn write(session: &mut Session, args: Args) {
        session.run(Text::Write { variant: 0 }, args);
        session.commit();
    }

    fn error(outcome: Outcome) -> Told {
        Err(Failure { kind: ErrorKind::Io, outcome, words: String::new() })
    }

    #[test]
    fn truths_are_taken_for_true_and_lies_are_found() {
        let nothing = |_: &mut Session, _: Args| ();
        let twice = |session: &mut Session, args: Args| {
            write(session, args);
            write(session, args);
        };
        assert!(found(Some(Ok(true)), write).is_empty());
        assert!(found(Some(error(Outcome::Unknown)), write).is_empty());
        assert!(found(Some(error(Outcome::Unknown)), nothing).is_empty());
        assert!(found(Some(error(Outcome::NotSent)), nothing).is_empty());
        assert!(found(None, write).is_empty());
        for lie in [
            found(Some(Ok(false)), write),
            found(Some(Ok(true)), nothing),
            found(Some(Ok(true)), twice),
            found(Some(error(Outcome::Unknown)), twice),
            found(Some(error(Outcome::NotSent)), write),
            found(Some(error(Outcome::Failed)), write),
            found(Some(error(Outcome::Completed)), nothing),
            found(None, twice),
        ] {
            assert!(!lie.is_empty());
        }
    }

    #[test]
    fn what_was_undone_and_is_there_is_found() {
        for (marked, is_found) in [(0, true), (2, false)] {
            let report = in_virtual_time(false, |log| async move {
                let server = Server::new(&log, Dice::new(1, 1), Temper::default());
                let account = Account::new(&log);
                let args = Args { id: account.number(), owner: 5, work: 0, size: 0 };
                let mut session = Session::new(&server, 0, 0);
                session.begin();
                write(&mut session, args);
                let ask = Ask { args, variant: 0, writes: true, timeout: None, idempotent: false, bulk: 0 };
                account.told(ask, true, Some(Ok(true)));
                account.undone_since(5, marked);
                account.ended(5, End::Fine);
                account.settle(&server);
                0
            });
            let found = report.violations.iter().any(|found| found.contains("undone with its savepoint"));
            assert_eq!(found, is_found, "{:?}", report.violations);
        }
    }

    #[test]
    fn what_runs_in_somebody_elses_transaction_is_found() {
        let found = found(Some(Ok(true)), |session, args| {
            session.begin();
            write(session, args);
        });
        assert!(found.iter().any(|found| found.contains("in a transaction of")), "{found:?}");
    }
}
