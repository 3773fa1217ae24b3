//! Statements that succeed or fail together, sent in one go.
//!
//! `pg-pipeline`'s file of this name has the same face on purpose; how a batch travels differs, see `caller`.

use std::panic::Location;
use std::sync::Arc;

use wire_pipeline::call;

use crate::caller::{Caller, Executed};
use crate::error::{Error, Fault};
use crate::params::Params;
use crate::statement::{IntoStatement, Learned};

/// Collects statements that are sent without waiting for each other's answers: on a pool they are all or nothing, in a
/// transaction they are part of it. See [`Pool::batch`](crate::Pool::batch).
///
/// ```no_run
/// # async fn example(pool: &mysql_pipeline::Pool) -> Result<(), mysql_pipeline::Error> {
/// let mut batch = pool.batch();
/// for n in 0..100 {
///     batch.push("INSERT INTO numbers (n) VALUES (?)", (n,));
/// }
/// let done = batch.execute().await?;
/// assert_eq!(done.len(), 100);
/// # Ok(())
/// # }
/// ```
#[must_use = "a batch does nothing before execute()"]
pub struct Batch<'a> {
    caller: Caller<'a>,
    items: Vec<(Arc<Learned>, Box<dyn Params + 'a>)>,
    /// The first item that cannot be sent.
    refused: Option<Fault>,
}

impl<'a> Batch<'a> {
    pub(crate) fn new(caller: Caller<'a>) -> Self {
        Self { caller, items: Vec::new(), refused: None }
    }

    /// Adds a statement. What is wrong with it is reported by [`execute`](Self::execute), with its index from 0.
    #[expect(clippy::needless_pass_by_value, reason = "statements are given by value everywhere")]
    pub fn push(&mut self, statement: impl IntoStatement, params: impl Params + 'a) {
        if self.refused.is_some() {
            return;
        }
        match self.caller.look_up(&statement) {
            Ok(learned) => self.items.push((learned, Box::new(params))),
            Err(error) => self.refused = Some(call::in_batch(self.items.len(), error)),
        }
    }

    /// How many statements it holds.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Whether it holds no statements.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Runs the statements in order; one result for each.
    ///
    /// # Errors
    ///
    /// The first failure, with the item's index from 0; then none of the statements has an effect. In a
    /// [`Transaction`](crate::Transaction) only the failed ones have none, as MySQL has it: it is yours to roll back.
    /// On a session a statement that opens, ends or commits a transaction by itself keeps its effect.
    #[track_caller]
    pub fn execute(self) -> impl Future<Output = Result<Vec<Executed>, Error>> + Send + use<'a> {
        let place = Location::caller();
        async move {
            match self.refused {
                Some(error) => Err(error.into()),
                None => Ok(self.caller.run_batch(self.items, place).await?),
            }
        }
    }
}

impl std::fmt::Debug for Batch<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Batch").field("len", &self.len()).finish_non_exhaustive()
    }
}
