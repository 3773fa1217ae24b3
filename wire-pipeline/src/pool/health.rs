//! How connecting goes: whether a pipe has been up, which failure came last, and when it is certain that nobody can
//! connect.
//!
//! One server may take one connection and refuse the next. A refusal is the pool's answer only when no other attempt is
//! under way:
//!
//! ```text
//!             begin            connected
//!   (down) ────────▶ attempts ───────────▶ up
//!                       │
//!                       │ failed, and it was the last one
//!                       ▼
//!                    refused ───────────▶ up   (a later attempt)
//! ```
//!
//! Does not know why or when somebody connects.

use tokio::sync::watch;

use crate::faults;
use crate::wire::{Driver, Fault};

/// What those who wait for a pool can know.
pub(crate) struct Health<D: Driver> {
    state: watch::Sender<State<D>>,
}

struct State<D: Driver> {
    /// A pipe has been up.
    up: bool,
    /// Attempts that have neither failed nor led to a pipe that is up.
    attempts: usize,
    /// The latest failure.
    failure: Option<Fault<D>>,
    /// All have failed that were under way.
    refused: bool,
}

impl<D: Driver> State<D> {
    fn judge(&mut self) {
        self.refused |= self.attempts == 0 && self.failure.is_some();
    }
}

/// An attempt to connect, until the pipe is up or this is dropped.
pub(crate) struct Attempt<'a, D: Driver>(&'a Health<D>);

impl<D: Driver> Drop for Attempt<'_, D> {
    fn drop(&mut self) {
        self.0.state.send_modify(|state| {
            state.attempts = state.attempts.saturating_sub(1);
            state.judge();
        });
    }
}

impl<D: Driver> Health<D> {
    pub(super) fn new() -> Self {
        let state = State { up: false, attempts: 0, failure: None, refused: false };
        Self { state: watch::Sender::new(state) }
    }

    pub(crate) fn begin(&self) -> Attempt<'_, D> {
        self.state.send_modify(|state| state.attempts += 1);
        Attempt(self)
    }

    pub(super) fn connected(&self) {
        self.state.send_modify(|state| {
            state.up = true;
            state.failure = None;
            state.refused = false;
        });
    }

    /// An attempt that is over has failed.
    pub(super) fn failed(&self, error: Fault<D>) {
        self.state.send_modify(|state| {
            state.failure = Some(error);
            state.judge();
        });
    }

    /// Nobody will try again.
    pub(super) fn ended(&self, why: impl FnOnce() -> Fault<D>) {
        self.state.send_modify(|state| {
            state.up = false;
            state.failure.get_or_insert_with(why);
            state.refused = true;
        });
    }

    /// The latest failure, if nobody has connected since.
    pub(super) fn failure(&self) -> Option<Fault<D>> {
        self.state.borrow().failure.clone()
    }

    /// A pipe is up, or nobody can connect.
    pub(super) async fn ready(&self) -> Result<(), Fault<D>> {
        let mut state = self.state.subscribe();
        let state = state.wait_for(|state| state.up || state.refused).await;
        match state {
            Ok(state) if state.up => Ok(()),
            Ok(state) => Err(state.failure.clone().unwrap_or_else(faults::closed)),
            Err(_) => Err(faults::closed()),
        }
    }
}
