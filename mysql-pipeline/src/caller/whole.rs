//! Batches on sessions and connections of their own: all or nothing, whatever the session is in the middle of.
//!
//! ```text
//!  at rest             SET autocommit = 0 ── OK ──▶ statements ── all well ──▶ COMMIT,   SET autocommit = 1
//!                                                             └─ one fails ─▶ ROLLBACK, SET autocommit = 1
//!  in a transaction    SAVEPOINT ───────── OK ──▶ statements ── all well ──▶ RELEASE SAVEPOINT
//!                                                             └─ one fails ─▶ ROLLBACK TO SAVEPOINT
//! ```
//!
//! START TRANSACTION would do as well, but it unlocks tables that the session has locked. Source: MySQL manual, "Table
//! Locking and Transactions".

use std::sync::Arc;

use tokio::time::Instant;
use wire_pipeline::call::{self, Call};

use super::{Caller, Executed, Leased, MOST_STALE};
use crate::error::Fault;
use crate::protocol::answer::Answer;
use crate::protocol::command::Bound;
use crate::protocol::request::Request;
use crate::protocol::response::Status;
use crate::statement::{Class, Learned};

impl Caller<'_> {
    /// Runs statements on a session of which nothing else is sent meanwhile. Statements that open or end a transaction
    /// are left to themselves.
    pub(super) async fn run_whole(
        self,
        leased: &Leased,
        items: &[(Arc<Learned>, Bound)],
        deadline: Instant,
    ) -> Result<Vec<Executed>, Fault> {
        if items.iter().any(|(learned, _)| learned.class == Class::Transaction) {
            return self.run_all(items, deadline).await;
        }
        let whole = self.begin_call();
        let _turn = self.take_turn(&whole, deadline).await?;
        let mut again = MOST_STALE;
        loop {
            let status = say(leased, "DO 0", deadline).await?;
            let at_rest = status.autocommits() && !status.in_transaction();
            leased.set_half_done(at_rest);
            say(leased, if at_rest { "SET autocommit = 0" } else { "SAVEPOINT batch" }, deadline).await?;
            let call = Call::begin_within(self.lane);
            let turn = call.take_turn(deadline).await?;
            let done = self.run_all_in_turn(items, deadline, call, turn).await;
            let end = match (&done, at_rest) {
                (Ok(_), true) => say(leased, "COMMIT", deadline).await,
                (Ok(_), false) => say(leased, "RELEASE SAVEPOINT batch", deadline).await,
                (Err(_), true) => undo_half_done(leased, deadline).await.map(|()| Status::default()),
                (Err(_), false) => say(leased, "ROLLBACK TO SAVEPOINT batch", deadline).await,
            };
            match (done, end) {
                (Err(error), _) if again > 0 && super::may_run_again(&error) => again -= 1,
                (Err(error), _) => return Err(error),
                (Ok(done), Err(error)) if at_rest || error.server().is_none() => {
                    drop(done);
                    return Err(error);
                }
                // A statement that commits by itself has ended the savepoint too.
                (Ok(done), _) => {
                    if at_rest {
                        say(leased, "SET autocommit = 1", deadline).await?;
                        leased.set_half_done(false);
                    }
                    return Ok(done);
                }
            }
        }
    }
}

/// Ends the transaction of a batch that failed, or that was dropped half-way, before anything else is sent.
pub(super) async fn undo_half_done(leased: &Leased, deadline: Instant) -> Result<(), Fault> {
    if leased.is_half_done() {
        say(leased, "ROLLBACK", deadline).await?;
        say(leased, "SET autocommit = 1", deadline).await?;
        leased.set_half_done(false);
    }
    Ok(())
}

async fn say(leased: &Leased, text: &'static str, deadline: Instant) -> Result<Status, Fault> {
    let request = Request { rows: false, ..Request::query(text) };
    match leased.lease.submit(request, deadline).await? {
        Answer::Ran(ran) => ran.results.last().map(|result| result.done.status).ok_or_else(call::mixed_up),
        Answer::Stale(error) => Err(error),
        Answer::Said(_) => Err(call::mixed_up()),
    }
}
