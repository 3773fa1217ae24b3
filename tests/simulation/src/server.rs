//! The server behind both protocols: what statements do, who may see whose transaction, and when it misbehaves.
//!
//! Knows a handful of statements by their text, keeps the ledger of what was committed, and checks what only a server
//! sees: that nothing runs in somebody else's transaction or settings, that a lease's statements come in the order of
//! submission. How all this looks on the wire is [`postgres`](crate::postgres)'s and [`mysql`](crate::mysql)'s affair.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::dice::Dice;
use crate::log::Log;

/// Whose statement it is: what its number says to the server.
///
/// The lowest two bits of an owner's number are its kind; 0 is everybody.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// Nobody: a statement of its own on a shared connection.
    Shared,
    /// A transaction's.
    Transaction,
    /// Part of a batch.
    Batch,
    /// A session's.
    Session,
}

impl Owner {
    /// The kind of an owner's number.
    pub fn of(number: i64) -> Self {
        match number & 3 {
            1 => Self::Transaction,
            2 => Self::Batch,
            3 => Self::Session,
            _ => Self::Shared,
        }
    }

    /// The number of the owner `count` of this kind.
    pub fn number(self, count: i64) -> i64 {
        count * 4
            + match self {
                Self::Shared => return 0,
                Self::Transaction => 1,
                Self::Batch => 2,
                Self::Session => 3,
            }
    }
}

/// What a statement is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Args {
    /// Which statement it is: no two are alike.
    pub id: i64,
    /// Whose it is; see [`Owner`].
    pub owner: i64,
    /// How long the server works on it, in milliseconds.
    pub work: i64,
    /// Bytes of its answer; below zero the server refuses it.
    pub size: i64,
}

/// A statement, as far as a server must know it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Text {
    /// Gives its arguments back.
    Echo {
        /// Which text of the kind it is.
        variant: i64,
    },
    /// Writes its id into the ledger.
    Write {
        /// Which text of the kind it is.
        variant: i64,
    },
    /// Opens a transaction.
    Begin,
    /// Commits it.
    Commit,
    /// Undoes it.
    Rollback,
    /// Changes a setting of the session.
    Mark(i64),
    /// Takes all settings back.
    Reset,
    /// Switches the commit behind every statement.
    Autocommit(bool),
    /// Asks for the largest packet.
    MaxPacket,
    /// Nothing that matters here.
    Other,
}

impl Text {
    /// Reads a statement.
    pub fn parse(text: &str) -> Self {
        let text = text.trim();
        let variant = || number_behind(text, "/* ");
        if text.starts_with("SELECT echo(") {
            Self::Echo { variant: variant() }
        } else if text.starts_with("INSERT INTO ledger") {
            Self::Write { variant: variant() }
        } else if text.starts_with("SET marker") {
            Self::Mark(number_behind(text, "= "))
        } else if text.starts_with("SET autocommit") {
            Self::Autocommit(number_behind(text, "= ") == 1)
        } else if text.starts_with("SELECT @@max_allowed_packet") {
            Self::MaxPacket
        } else {
            match text {
                "BEGIN" => Self::Begin,
                "COMMIT" => Self::Commit,
                "ROLLBACK" => Self::Rollback,
                "RESET ALL" | "DISCARD ALL" => Self::Reset,
                _ => Self::Other,
            }
        }
    }

    /// The arguments that stand in the text itself.
    pub fn args(text: &str) -> Option<Args> {
        let (_, rest) = text.split_once('(')?;
        let (inside, _) = rest.split_once(')')?;
        let mut numbers = inside.split(',').map(|number| number.trim().parse().ok());
        let mut next = || numbers.next().flatten();
        Some(Args { id: next()?, owner: next()?, work: next()?, size: next()? })
    }
}

fn number_behind(text: &str, mark: &str) -> i64 {
    let digits = text.split(mark).nth(1).unwrap_or_default();
    let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    digits[..end].parse().unwrap_or(0)
}

/// What an answer must hold so that nobody takes it for another's.
pub fn check(args: Args, variant: i64) -> i64 {
    let mixed = (args.id as u64 ^ 0x9e37_79b9_7f4a_7c15).wrapping_mul(0xff51_afd7_ed55_8ccd);
    ((mixed >> 3) ^ (variant as u64) << 20 ^ args.owner as u64) as i64
}

/// The padding of an answer.
pub fn padding(args: Args) -> String {
    let letter = char::from(b'a' + (args.id % 26) as u8);
    std::iter::repeat_n(letter, args.size.max(0) as usize).collect()
}

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
}

impl Server {
    /// A server without any connection.
    pub fn new(log: &Arc<Log>, dice: Dice, temper: Temper) -> Arc<Self> {
        let state =
            State { dice, temper, ledger: HashMap::new(), begun: HashMap::new(), latest: HashMap::new() };
        Arc::new(Self { log: Arc::clone(log), state: Mutex::new(state) })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What it does now, on `connection`, before what `at` names.
    pub fn mood(&self, connection: usize, at: &'static str) -> Mood {
        let mut state = self.state();
        let Temper { refuses, dies, vanishes, pauses } = state.temper;
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

/// One connection's session.
#[derive(Debug)]
pub struct Session {
    server: Arc<Server>,
    /// Which connection it is.
    pub connection: usize,
    /// A transaction is open.
    pub open: bool,
    /// Something in it failed, and it takes nothing more (PostgreSQL).
    pub failed: bool,
    /// Whose the transaction is, once somebody has used it.
    owner: i64,
    /// Written and not committed.
    writes: Vec<i64>,
    /// Whose settings are in force.
    marker: i64,
}

impl Session {
    /// A new session.
    pub fn new(server: &Arc<Server>, connection: usize) -> Self {
        server.log.note("session begins", [connection as i64, 0, 0]);
        Self {
            server: Arc::clone(server),
            connection,
            open: false,
            failed: false,
            owner: 0,
            writes: Vec::new(),
            marker: 0,
        }
    }

    /// The server.
    pub fn server(&self) -> &Arc<Server> {
        &self.server
    }

    /// Checks that a statement may run here, and writes what it writes.
    pub fn run(&mut self, text: Text, args: Args) {
        let log = &self.server.log;
        log.note("runs", [self.connection as i64, args.id, args.owner]);
        let place = || format!("connection {}, statement {} of {}", self.connection, args.id, args.owner);
        match Owner::of(args.owner) {
            Owner::Shared if self.open => {
                log.violation(format!("{}: in a transaction of {}", place(), self.owner));
            }
            Owner::Transaction if !self.open => {
                log.violation(format!("{}: outside of its transaction", place()));
            }
            _ => {}
        }
        if self.open && self.owner != 0 && self.owner != args.owner {
            log.violation(format!("{}: in the transaction of {}", place(), self.owner));
        }
        if self.marker != 0 && self.marker != args.owner {
            log.violation(format!("{}: under the settings of {}", place(), self.marker));
        }
        if self.open {
            self.owner = args.owner;
        }
        let mut state = self.server.state();
        let state = &mut *state;
        *state.begun.entry(args.id).or_default() += 1;
        let before = if args.owner == 0 { 0 } else { state.latest.insert(args.owner, args.id).unwrap_or(0) };
        // A batch of which nothing was kept may be run again.
        if before > args.id && Owner::of(args.owner) != Owner::Batch {
            log.violation(format!("{}: behind {before}, which was submitted later", place()));
        }
        if let Text::Write { .. } = text {
            self.writes.push(args.id);
        }
    }

    /// Opens a transaction.
    pub fn begin(&mut self) {
        self.open = true;
        self.failed = false;
        self.owner = 0;
    }

    /// Commits what was written, and ends the transaction.
    pub fn commit(&mut self) {
        let writes = std::mem::take(&mut self.writes);
        for id in writes {
            self.server.log.note("commits", [self.connection as i64, id, 0]);
            *self.server.state().ledger.entry(id).or_default() += 1;
        }
        self.end();
    }

    /// Forgets what was written, and ends the transaction.
    pub fn roll_back(&mut self) {
        if self.open || !self.writes.is_empty() {
            self.server.log.note("rolls back", [self.connection as i64, self.writes.len() as i64, 0]);
        }
        self.writes.clear();
        self.end();
    }

    /// Whether there is something to commit.
    pub fn writes_something(&self) -> bool {
        !self.writes.is_empty()
    }

    /// Forgets the latest write.
    pub fn undo(&mut self, id: i64) {
        self.writes.retain(|written| *written != id);
    }

    /// Sets, or takes back, a setting.
    pub fn mark(&mut self, marker: i64) {
        self.server.log.note("settings", [self.connection as i64, marker, 0]);
        self.marker = marker;
    }

    fn end(&mut self) {
        self.open = false;
        self.failed = false;
        self.owner = 0;
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.server.log.note("session ends", [self.connection as i64, self.writes.len() as i64, 0]);
    }
}
