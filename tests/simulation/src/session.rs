//! One connection's session on the server: its transaction with savepoints, its settings, and what may be stopped.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use crate::server::Server;
use crate::text::{Args, Owner, Text};

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
    /// The savepoints that are set: their numbers, and how much had been written.
    savepoints: Vec<(i64, usize)>,
    /// The machine that it is on.
    pub node: usize,
    /// Whose settings are in force.
    marker: i64,
}

impl Session {
    /// A new session.
    pub fn new(server: &Arc<Server>, connection: usize, node: usize) -> Self {
        server.log().note("session begins", [connection as i64, node as i64, 0]);
        server.arrives(connection, node);
        Self {
            server: Arc::clone(server),
            connection,
            open: false,
            failed: false,
            owner: 0,
            writes: Vec::new(),
            savepoints: Vec::new(),
            node,
            marker: 0,
        }
    }

    /// The server.
    pub fn server(&self) -> &Arc<Server> {
        &self.server
    }

    /// Checks that a statement may run here, and writes what it writes.
    pub fn run(&mut self, text: Text, args: Args) {
        let log = self.server.log();
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
        let before = self.server.takes_down(args);
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
            self.server.log().note("commits", [self.connection as i64, id, 0]);
            self.server.commits(id);
        }
        self.end();
    }

    /// Forgets what was written, and ends the transaction.
    pub fn roll_back(&mut self) {
        if self.open || !self.writes.is_empty() {
            self.server.log().note("rolls back", [self.connection as i64, self.writes.len() as i64, 0]);
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
        if marker == 0 {
            self.server.resets(self.connection);
        }
        self.server.log().note("settings", [self.connection as i64, marker, 0]);
        self.marker = marker;
    }

    fn end(&mut self) {
        self.open = false;
        self.failed = false;
        self.owner = 0;
        self.savepoints.clear();
    }

    /// Works on a statement for as long as it takes. True when it is stopped.
    pub async fn works(&self, args: Args) -> bool {
        let mut stopped = self.server.begins(self.connection, args.id);
        let stopped = tokio::select! {
            biased;
            () = sleep(Duration::from_millis(args.work as u64)) => false,
            stop = &mut stopped => stop.is_ok(),
        };
        self.server.ends(self.connection);
        stopped
    }

    /// Sets a savepoint.
    pub fn set_savepoint(&mut self, number: i64) {
        self.server.log().note("savepoint", [self.connection as i64, number, 0]);
        self.savepoints.push((number, self.writes.len()));
    }

    /// Undoes what was written since a savepoint, which stays. False when there is none of this number.
    pub fn go_back(&mut self, number: i64) -> bool {
        let Some(at) = self.savepoints.iter().rposition(|(set, _)| *set == number) else { return false };
        self.server.log().note("rolls back to", [self.connection as i64, number, 0]);
        self.savepoints.truncate(at + 1);
        self.writes.truncate(self.savepoints[at].1);
        self.failed = false;
        true
    }

    /// Forgets a savepoint, and those behind it. False when there is none of this number.
    pub fn release(&mut self, number: i64) -> bool {
        let Some(at) = self.savepoints.iter().rposition(|(set, _)| *set == number) else { return false };
        self.server.log().note("releases", [self.connection as i64, number, 0]);
        self.savepoints.truncate(at);
        true
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.server.leaves(self.connection);
        self.server.log().note("session ends", [self.connection as i64, self.writes.len() as i64, 0]);
    }
}
