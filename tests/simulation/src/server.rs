//! The servers behind both protocols: two machines with one ledger of what was committed, and their temper.
//!
//! Checks what only a server sees: whom a request to stop may hit. What one connection sees is in
//! [`session`](crate::session); how it looks on the wire is [`postgres`](crate::postgres)'s and
//! [`mysql`](crate::mysql)'s affair.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::dice::Dice;
use crate::log::Log;
use crate::text::{Args, Owner};

/// How ill-tempered a server is, in thousandths of all occasions.
#[derive(Debug, Clone, Copy, Default)]
pub struct Temper {
    /// It refuses.
    pub refuses: u64,
    /// It says that it goes, and goes.
    pub dies: u64,
    /// It goes without a word.
    pub vanishes: u64,
    /// It waits for a while.
    pub pauses: u64,
    /// A transaction's statement is in another's way.
    pub conflicts: u64,
    /// It says of one statement that it takes no writes, though it does.
    pub reluctant: u64,
}

impl Temper {
    /// It does its work, and nothing else.
    pub fn is_even(self) -> bool {
        self.refuses + self.dies + self.vanishes + self.pauses == 0
    }
}

/// What it does at a message boundary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mood {
    /// Its work.
    Fine,
    /// It refuses, for the reason of this number.
    Refuses(u64),
    /// It says why, and ends the connection.
    Dies,
    /// It ends the connection.
    Vanishes,
    /// It waits for so many milliseconds first.
    Pauses(u64),
}

/// All connections' server.
#[derive(Debug)]
pub struct Server {
    log: Arc<Log>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    dice: Dice,
    temper: Temper,
    /// How often each write was committed.
    ledger: HashMap<i64, u32>,
    /// How often each statement was begun with.
    begun: HashMap<i64, u32>,
    /// Of each owner, the statement that came last.
    latest: HashMap<i64, i64>,
    /// For what the wide world alone throws.
    wide: Dice,
    /// The machines that take no writes.
    read_only: [bool; NODES],
    /// When the asker of each statement stops waiting.
    deadlines: HashMap<i64, Instant>,
    /// When the pool stops waiting for anything, once it is being closed.
    closes: Option<Instant>,
    /// What each connection is at.
    stages: HashMap<usize, Stage>,
}

/// Machines.
pub const NODES: usize = 2;

/// What a connection is at, for those who want it to stop.
#[derive(Debug)]
struct Stage {
    node: usize,
    /// The statement that it works on, and what stops it.
    works: Option<(i64, oneshot::Sender<()>)>,
    /// Requests to stop that have come and are not passed on.
    wanted: u32,
}

impl Server {
    /// A server without any connection.
    pub fn new(log: &Arc<Log>, dice: Dice, temper: Temper) -> Arc<Self> {
        let state = State {
            wide: dice.branch(),
            dice,
            temper,
            ledger: HashMap::new(),
            begun: HashMap::new(),
            latest: HashMap::new(),
            read_only: [false; NODES],
            deadlines: HashMap::new(),
            closes: None,
            stages: HashMap::new(),
        };
        Arc::new(Self { log: Arc::clone(log), state: Mutex::new(state) })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What it does now, on `connection`, before what `at` names.
    pub fn mood(&self, connection: usize, at: &'static str) -> Mood {
        let mut state = self.state();
        let Temper { refuses, dies, vanishes, pauses, .. } = state.temper;
        let roll = state.dice.below(1000);
        let mood = if roll < refuses {
            Mood::Refuses(state.dice.below(1000))
        } else if roll < refuses + dies {
            Mood::Dies
        } else if roll < refuses + dies + vanishes {
            Mood::Vanishes
        } else if roll < refuses + dies + vanishes + pauses {
            Mood::Pauses(1 + state.dice.below(200))
        } else {
            return Mood::Fine;
        };
        drop(state);
        self.log.note(at, [connection as i64, i64::from(mood == Mood::Dies), 0]);
        self.log.remark(|| format!("connection {connection}: {mood:?} at {at}"));
        mood
    }

    /// Whether a transaction's statement is in another's way now.
    pub fn conflicts(&self, args: Args) -> bool {
        let mut state = self.state();
        let share = state.temper.conflicts;
        let conflicts = share > 0 && Owner::of(args.owner) == Owner::Transaction && state.wide.happens(share);
        drop(state);
        if conflicts {
            self.log.note("conflict", [args.id, args.owner, 0]);
        }
        conflicts
    }

    /// Whether a machine refuses to write: as a whole, or for no reason this once.
    pub fn refuses_to_write(&self, node: usize) -> bool {
        let mut state = self.state();
        let share = state.temper.reluctant;
        let whole = state.read_only[node];
        let refuses = whole || (share > 0 && state.wide.happens(share));
        drop(state);
        if refuses {
            self.log.note("takes no writes", [node as i64, i64::from(whole), 0]);
        }
        refuses
    }

    /// Whether a machine takes no writes.
    pub fn is_read_only(&self, node: usize) -> bool {
        let read_only = self.state().read_only[node];
        self.log.note("is asked whether it is read-only", [node as i64, i64::from(read_only), 0]);
        read_only
    }

    /// A machine takes no writes from now on.
    pub fn turn_read_only(&self, node: usize) {
        self.state().read_only[node] = true;
        self.log.note("turns read-only", [node as i64, 0, 0]);
    }

    /// Its asker waits for a statement until then.
    pub fn awaited_until(&self, id: i64, deadline: Instant) {
        self.state().deadlines.insert(id, deadline);
    }

    /// The pool is being closed, and nobody waits for anything from then on.
    pub fn awaited_by_nobody_from(&self, closes: Instant) {
        self.state().closes = Some(closes);
    }

    pub(crate) fn arrives(&self, connection: usize, node: usize) {
        self.state().stages.insert(connection, Stage { node, works: None, wanted: 0 });
    }

    pub(crate) fn leaves(&self, connection: usize) {
        self.state().stages.remove(&connection);
    }

    /// A connection begins with a statement; what is given back tells when it is to stop. While a request to stop is on
    /// its way here, only a statement whose time is up may come: it could be hit.
    pub(crate) fn begins(&self, connection: usize, id: i64) -> oneshot::Receiver<()> {
        let (stop, stopped) = oneshot::channel();
        let mut state = self.state();
        let state = &mut *state;
        let awaited = is_awaited(&state.deadlines, state.closes, id);
        if let Some(stage) = state.stages.get_mut(&connection) {
            stage.works = Some((id, stop));
            if stage.wanted > 0 && awaited {
                self.log.violation(format!(
                    "statement {id} came to connection {connection}, where a request to stop is on its way"
                ));
            }
        }
        stopped
    }

    /// A connection puts its session right: not while a request to stop is on its way, which could hit that. Once the pool
    /// has been closed nobody uses the session any more.
    pub(crate) fn resets(&self, connection: usize) {
        let state = self.state();
        let is_used = state.closes.is_none_or(|closes| closes > Instant::now());
        if is_used && state.stages.get(&connection).is_some_and(|stage| stage.wanted > 0) {
            self.log.violation(format!(
                "connection {connection} is put right while a request to stop is on its way"
            ));
        }
    }

    pub(crate) fn ends(&self, connection: usize) {
        if let Some(stage) = self.state().stages.get_mut(&connection) {
            stage.works = None;
        }
    }

    /// Somebody, at a machine, wants a connection's statement to stop.
    pub fn wants_to_stop(&self, node: usize, connection: usize) {
        self.log.note("is to stop", [connection as i64, node as i64, 0]);
        if let Some(stage) = self.state().stages.get_mut(&connection) {
            if stage.node == node {
                stage.wanted += 1;
            } else {
                self.log.violation(format!("connection {connection} is not machine {node}'s to stop"));
            }
        }
    }

    /// It stops, if it is at anything. False when the connection is not there any more.
    pub fn stops(&self, connection: usize) -> bool {
        let mut locked = self.state();
        let State { stages, deadlines, closes, .. } = &mut *locked;
        let Some(stage) = stages.get_mut(&connection) else { return false };
        stage.wanted = stage.wanted.saturating_sub(1);
        let Some((id, sender)) = stage.works.take() else {
            self.log.note("stopped too late", [connection as i64, 0, 0]);
            return true;
        };
        self.log.note("stops", [connection as i64, id, 0]);
        if is_awaited(deadlines, *closes, id) {
            self.log.violation(format!("statement {id} was stopped while its asker waited for it"));
        }
        let _ = sender.send(());
        true
    }

    /// How long a request to stop takes to be passed on, in milliseconds.
    pub fn dawdles(&self) -> u64 {
        let mut state = self.state();
        let most = state.wide.pick(&[1, 1, 4, 40]);
        state.wide.below(most)
    }

    /// Begins with a statement of an owner, and gives back the one of the same owner that came before.
    pub(crate) fn takes_down(&self, args: Args) -> i64 {
        let mut state = self.state();
        *state.begun.entry(args.id).or_default() += 1;
        if args.owner == 0 { 0 } else { state.latest.insert(args.owner, args.id).unwrap_or(0) }
    }

    pub(crate) fn commits(&self, id: i64) {
        *self.state().ledger.entry(id).or_default() += 1;
    }

    /// It is friendly from now on.
    pub fn calm_down(&self) {
        self.state().temper = Temper::default();
    }

    /// How often the write `id` was committed.
    pub fn committed(&self, id: i64) -> u32 {
        self.state().ledger.get(&id).copied().unwrap_or(0)
    }

    /// How often the statement `id` was begun with.
    pub fn begun(&self, id: i64) -> u32 {
        self.state().begun.get(&id).copied().unwrap_or(0)
    }

    /// Where everything is noted.
    pub fn log(&self) -> &Arc<Log> {
        &self.log
    }
}

fn is_awaited(deadlines: &HashMap<i64, Instant>, closes: Option<Instant>, id: i64) -> bool {
    let until = |deadline: Instant| closes.map_or(deadline, |closes| closes.min(deadline));
    deadlines.get(&id).is_some_and(|deadline| until(*deadline) > Instant::now())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::run::in_virtual_time;

    /// What is found when `happens` at a server with a connection at a statement that is awaited for 100 ms.
    fn found<F: Future<Output = ()>>(happens: impl FnOnce(Arc<Server>) -> F) -> Vec<String> {
        let report = in_virtual_time(false, |log| async move {
            let server = Server::new(&log, Dice::new(1, 1), Temper::default());
            server.arrives(7, 0);
            server.awaited_until(1, Instant::now() + Duration::from_millis(100));
            let _stopped = server.begins(7, 1);
            happens(server).await;
            0
        });
        report.violations
    }

    #[test]
    fn who_is_stopped_by_right_and_by_mistake() {
        let by_right = found(|server| async move {
            tokio::time::sleep(Duration::from_millis(100)).await;
            server.wants_to_stop(0, 7);
            assert!(server.stops(7));
            server.resets(7);
        });
        assert!(by_right.is_empty(), "{by_right:?}");
        let early = found(|server| async move {
            server.wants_to_stop(0, 7);
            server.stops(7);
        });
        assert!(early.iter().any(|found| found.contains("while its asker waited")), "{early:?}");
        let elsewhere = found(|server| async move { server.wants_to_stop(1, 7) });
        assert!(elsewhere.iter().any(|found| found.contains("not machine 1's")), "{elsewhere:?}");
        let followed = found(|server| async move {
            server.wants_to_stop(0, 7);
            server.awaited_until(2, Instant::now() + Duration::from_secs(1));
            let _stopped = server.begins(7, 2);
        });
        assert!(followed.iter().any(|found| found.contains("is on its way")), "{followed:?}");
        let reset = found(|server| async move {
            server.wants_to_stop(0, 7);
            server.resets(7);
        });
        assert!(reset.iter().any(|found| found.contains("is put right while")), "{reset:?}");
    }
}
