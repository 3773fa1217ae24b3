//! How parts of a transaction are set, kept and undone.
//!
//! Each of these calls takes its turn like any other. What undoes a part keeps the turn until the server has confirmed it:
//! whoever gives up half-way leaves it to the next call, which says the same once more before anything else is sent.
//! `pg-pipeline`'s file of this name has the same face on purpose: what is said is sent in each protocol's way.

use tokio::time::Instant;
use wire_pipeline::call::{self, Call, Turn};
use wire_pipeline::held;

use super::{Caller, Lane};
use crate::connect::MyDriver;
use crate::error::{Fault, Outcome};
use crate::protocol::request::Request;

/// A savepoint that somebody holds.
pub(crate) type Held<'a> = held::Held<'a, MyDriver>;

/// What the names of savepoints begin with; a number follows. Those that are set by text may have any other name.
const SAVEPOINT: &str = "pipeline_savepoint_";

impl<'a> Caller<'a> {
    /// The same for the handle of a savepoint: refused when that is over.
    pub(crate) fn of_savepoint(self, number: u32) -> Self {
        Self { savepoint: Some(number), ..self }
    }

    /// Sets a savepoint behind everything that was asked before.
    pub(crate) async fn set_savepoint(self) -> Result<Held<'a>, Fault> {
        let Lane::Leased(leased) = self.lane else { return Err(call::needs_transaction()) };
        let deadline = self.deadline();
        let mut call = self.begin_call();
        let turn = self.take_turn(&call, deadline).await?;
        let held = Held::about_to_be_set(leased);
        let text = format!("SAVEPOINT {SAVEPOINT}{}", held.number());
        self.say(&mut call, text, deadline, turn).await?;
        Ok(held.is_set())
    }

    /// Keeps what was done since a savepoint; what the server refuses, also of what comes before, is undone.
    pub(crate) async fn keep(self, mut held: Held<'a>) -> Result<(), Fault> {
        let kept = self.ask_to_keep(&held).await;
        if kept.as_ref().is_err_and(|error| error.outcome() == Outcome::Failed) {
            held.undo_after_all();
        }
        kept
    }

    async fn ask_to_keep(self, held: &Held<'a>) -> Result<(), Fault> {
        let deadline = self.deadline();
        let mut call = self.begin_call();
        let turn = self.take_turn(&call, deadline).await?;
        let text = if held.is_innermost() {
            format!("RELEASE SAVEPOINT {SAVEPOINT}{}", held.number())
        } else {
            // Releasing it would release those inside of it too, which may still be undone. It is asked all the same
            // whether all is well.
            "DO 0".to_owned()
        };
        self.say(&mut call, text, deadline, turn).await
    }

    /// Undoes what was done since a savepoint, and waits until that is confirmed.
    pub(crate) async fn undo(self, held: Held<'a>) -> Result<(), Fault> {
        let deadline = self.deadline();
        let call = self.begin_call();
        let _turn = call.take_turn(deadline).await?;
        // From here on it is asked for, whoever does it.
        drop(held);
        self.undo_now(self.lane.to_undo(), deadline).await
    }

    /// Undoes what was done since savepoints that nobody has asked to keep.
    pub(super) async fn undo_what_is_not_kept(self, deadline: Instant) -> Result<(), Fault> {
        if let Lane::Leased(leased) = self.lane {
            leased.savepoints.undo_what_is_not_kept();
        }
        self.undo_now(self.lane.to_undo(), deadline).await.map_err(call::not_undone)
    }

    /// Undoes what savepoints that were dropped before this call have left.
    pub(super) async fn undo_dropped(
        self,
        call: &Call<'a, MyDriver>,
        deadline: Instant,
    ) -> Result<(), Fault> {
        self.undo_now(call.to_undo(), deadline).await.map_err(call::not_undone)
    }

    /// Undoes what was done since a savepoint. Sent twice without anything in between, it does no more than once.
    async fn undo_now(self, since: Option<u32>, deadline: Instant) -> Result<(), Fault> {
        if let (Lane::Leased(leased), Some(number)) = (self.lane, since) {
            let back = Request::part(format!("ROLLBACK TO SAVEPOINT {SAVEPOINT}{number}"));
            self.lane.submit(back, deadline).await?;
            leased.undone_since(number);
        }
        Ok(())
    }

    /// Says what needs no answer but that it is done.
    async fn say(
        self,
        call: &mut Call<'a, MyDriver>,
        text: String,
        deadline: Instant,
        turn: Turn<'a>,
    ) -> Result<(), Fault> {
        let request = Request::part(text);
        call.submit(request, deadline, turn).await.map(drop)
    }
}
