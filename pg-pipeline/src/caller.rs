//! How a call runs: look the statement up, learn it if nobody knows it, encode, submit, decode.
//!
//! Everything here runs in the task that asks. The same code serves shared handles and leases; what differs is which
//! statements they take and what may be run again. `mysql-pipeline`'s file of this name has the same skeleton on purpose:
//! what must be learnt, and what may be run again in which form, is each protocol's.

mod learn;
mod savepoint;

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use bytes::Bytes;
use postgres_types::WrongType;
use tokio::time::Instant;
pub use wire_pipeline::call::CallOptions;
pub(crate) use wire_pipeline::call::Takes;
use wire_pipeline::call::{self, Call, Turn};
use wire_pipeline::row;

pub(crate) use savepoint::Held;

use crate::connect::PgDriver;
use crate::error::{Error, Fault, Outcome};
use crate::params::{self, Params};
use crate::protocol::answer::{Answer, Ran};
use crate::protocol::request::{Part, Request};
use crate::row::{FromRow, Row, Rows};
use crate::statement::{Class, IntoStatement, Learned, Registry, classify};
use crate::types::TypeCache;

static COMMIT: LazyLock<Arc<Learned>> = LazyLock::new(|| Learned::without_parameters("COMMIT"));
static ROLLBACK: LazyLock<Arc<Learned>> = LazyLock::new(|| Learned::without_parameters("ROLLBACK"));

/// The result of a statement whose rows are not wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Executed {
    rows_affected: u64,
}

impl Executed {
    pub(crate) fn new(rows_affected: u64) -> Self {
        Self { rows_affected }
    }

    /// Rows that were inserted, updated, deleted or selected; 0 for other statements.
    pub fn rows_affected(&self) -> u64 {
        self.rows_affected
    }
}

/// What a pool, or a connection of its own, knows of statements and types.
#[derive(Debug)]
pub(crate) struct Knowledge {
    pub(crate) registry: Registry,
    pub(crate) types: TypeCache,
    pub(crate) query_timeout: Duration,
}

impl Knowledge {
    pub(crate) fn new(options: &crate::PoolOptions) -> Arc<Self> {
        Arc::new(Self {
            registry: Registry::new(4 * options.statement_cache()),
            types: TypeCache::default(),
            query_timeout: options.query_timeout(),
        })
    }
}

/// Where a call's requests go.
pub(crate) type Lane<'a> = call::Lane<'a, PgDriver>;
/// A lease as calls see it.
pub(crate) type Leased = call::Leased<PgDriver>;

/// One handle's way to run statements.
#[derive(Clone, Copy)]
pub struct Caller<'a> {
    pub(crate) knowledge: &'a Knowledge,
    pub(crate) lane: Lane<'a>,
    pub(crate) options: CallOptions,
    /// The savepoint whose handle it is.
    pub(crate) savepoint: Option<u32>,
    /// Runs on behalf of a call that has the turn on its lease.
    pub(crate) has_turn: bool,
}

impl<'a> Caller<'a> {
    pub(crate) fn new(knowledge: &'a Knowledge, lane: Lane<'a>) -> Self {
        Self { knowledge, lane, options: CallOptions::new(), savepoint: None, has_turn: false }
    }

    pub(crate) async fn query<R: FromRow>(
        self,
        statement: impl IntoStatement,
        params: impl Params,
    ) -> Result<Vec<R>, Error> {
        row::all(self.rows(statement, params).await?, R::from_row)
    }

    pub(crate) async fn query_opt<R: FromRow>(
        self,
        statement: impl IntoStatement,
        params: impl Params,
    ) -> Result<Option<R>, Error> {
        row::at_most_one(self.rows(statement, params).await?, R::from_row)
    }

    pub(crate) async fn query_one<R: FromRow>(
        self,
        statement: impl IntoStatement,
        params: impl Params,
    ) -> Result<R, Error> {
        row::exactly_one(self.rows(statement, params).await?, R::from_row)
    }

    pub(crate) async fn execute(
        self,
        statement: impl IntoStatement,
        params: impl Params,
    ) -> Result<Executed, Error> {
        let ran = self.run(statement, params, false).await?;
        Ok(Executed::new(ran.tags.last().map_or(0, |tag| tag.rows)))
    }

    async fn rows(self, statement: impl IntoStatement, params: impl Params) -> Result<Rows, Fault> {
        let ran = self.run(statement, params, true).await?;
        let columns = match &ran.description {
            Some(description) => self.columns(description).await?,
            None => Arc::from([]),
        };
        Ok(Rows::new(columns, ran.rows))
    }

    /// Runs one statement; once more where that is safe and helps.
    async fn run(
        self,
        statement: impl IntoStatement,
        mut params: impl Params,
        rows: bool,
    ) -> Result<Ran, Fault> {
        params::check_count(params.count())?;
        let (learned, idempotent) =
            statement.with_key(|named| (self.knowledge.registry.get_or_insert(named.key), named.idempotent));
        let mut learned = learned?;
        drop(statement);
        self.check_class(learned.class)?;
        let deadline = self.deadline();
        let mut call = self.begin_call();
        let mut again = Again {
            stale: MOST_STALE,
            lost: idempotent || self.options.is_idempotent(),
            may_have_run: false,
        };
        loop {
            let turn = self.take_turn(&call, deadline).await?;
            let encoded = self.encode(learned, &mut params, deadline).await;
            let (new, bound) = encoded.map_err(|error| again.told(error))?;
            learned = new;
            let request =
                Request::query(Arc::clone(&learned), bound, rows).in_transaction(self.in_transaction());
            let answer = call.submit(request, deadline, turn).await;
            match answer {
                Ok(Answer::Ran(ran)) => return Ok(ran),
                Ok(Answer::Stale(stale)) => {
                    learned = self.renew(&learned, stale.relearn);
                    if !stale.safe || again.stale == 0 || !call.is_alone() {
                        return Err(again.told(stale.error));
                    }
                    again.stale -= 1;
                }
                Ok(Answer::Learnt { .. } | Answer::Script) => return Err(call::mixed_up()),
                Err(error) if again.lost && error.is_lost() && self.lane.is_shared() => {
                    again.lost = false;
                    again.may_have_run = true;
                }
                Err(error) => return Err(again.told(error)),
            }
        }
    }

    /// Encodes the parameters for what the statement takes, which is asked for if nobody knows it. Values of another
    /// type than was learnt before may mean that it has changed: then it is asked for again.
    async fn encode(
        self,
        learned: Arc<Learned>,
        params: &mut (impl Params + ?Sized),
        deadline: Instant,
    ) -> Result<(Arc<Learned>, Bytes), Fault> {
        let known_before = learned.parameters().is_some();
        self.learn(&learned, deadline).await?;
        let error = match params::encode(&*params, learned.parameters().unwrap_or_default()) {
            Ok(bound) => return Ok((learned, bound)),
            Err(error) if known_before && is_of_wrong_type(&error) => error,
            Err(error) => return Err(error),
        };
        self.knowledge.types.forget(learned.parameters().unwrap_or_default());
        let new = learned.renewed(false);
        if self.learn(&new, deadline).await.is_err() || new.parameters() == learned.parameters() {
            return Err(error);
        }
        let new = self.knowledge.registry.replace(&new);
        self.learn(&new, deadline).await?;
        let bound = params::encode(&*params, new.parameters().unwrap_or_default())?;
        Ok((new, bound))
    }

    /// What was known of a statement is out of date: every connection prepares it anew before its next use.
    fn renew(self, learned: &Arc<Learned>, relearn: bool) -> Arc<Learned> {
        if relearn {
            self.knowledge.types.forget(learned.parameters().unwrap_or_default());
        }
        self.knowledge.registry.renew(learned, !relearn)
    }

    /// Statements that succeed or fail together, in one exchange.
    pub(crate) async fn run_batch(
        self,
        mut items: Vec<(Arc<Learned>, Box<dyn Params + '_>)>,
    ) -> Result<Vec<Executed>, Fault> {
        if items.is_empty() {
            return Ok(Vec::new());
        }
        let deadline = self.deadline();
        let mut call = self.begin_call();
        let mut statements: Vec<Arc<Learned>> =
            items.iter().map(|(learned, _)| Arc::clone(learned)).collect();
        let mut again = MOST_STALE;
        loop {
            let turn = self.take_turn(&call, deadline).await?;
            let mut parts = Vec::with_capacity(items.len());
            for (index, (learned, (_, params))) in statements.iter_mut().zip(&mut items).enumerate() {
                let (new, bound) = self
                    .encode(Arc::clone(learned), &mut **params, deadline)
                    .await
                    .map_err(|error| call::in_batch(index, error))?;
                *learned = Arc::clone(&new);
                parts.push(Part { statement: new, bound });
            }
            match call
                .submit(Request::batch(parts).in_transaction(self.in_transaction()), deadline, turn)
                .await?
            {
                Answer::Ran(ran) => return Ok(ran.tags.iter().map(|tag| Executed::new(tag.rows)).collect()),
                Answer::Stale(stale) => {
                    for learned in &mut statements {
                        *learned = self.renew(learned, stale.relearn);
                    }
                    if !stale.safe || again == 0 || !call.is_alone() {
                        return Err(stale.error);
                    }
                    again -= 1;
                }
                Answer::Learnt { .. } | Answer::Script => return Err(call::mixed_up()),
            }
        }
    }

    /// Looks a batch's statement up, and refuses what may not run here.
    pub(crate) fn look_up(self, statement: &impl IntoStatement) -> Result<Arc<Learned>, Fault> {
        let learned = statement.with_key(|named| self.knowledge.registry.get_or_insert(named.key))?;
        self.check_class(learned.class)?;
        Ok(learned)
    }

    /// Runs a script of the simple protocol.
    pub(crate) async fn script(self, text: &str) -> Result<(), Fault> {
        let deadline = self.deadline();
        let mut call = self.begin_call();
        // Of a script only the first words are looked at: what ends a transaction further on is found out afterwards.
        match classify(text) {
            // A script may copy between the server's files.
            Class::Copy => self.check_class(Class::Plain)?,
            class => self.check_class(class)?,
        }
        let turn = self.take_turn(&call, deadline).await?;
        let request = match self.lane {
            Lane::Leased(Leased { takes: Takes::OneScript, .. }) => Request::lone_script(text),
            _ => Request::script(text, self.lane.transaction().is_some()),
        };
        match call.submit(request, deadline, turn).await? {
            Answer::Script => Ok(()),
            Answer::Ran(_) | Answer::Learnt { .. } | Answer::Stale(_) => Err(call::mixed_up()),
        }
    }

    /// Ends a transaction by a statement that takes no parameters, without looking it up.
    /// `in_transaction`: only while one is open.
    async fn run_end(
        self,
        mut call: Call<'a, PgDriver>,
        learned: Arc<Learned>,
        in_transaction: bool,
        deadline: Instant,
        turn: Turn<'a>,
    ) -> Result<Ran, Fault> {
        let bound = params::encode(&(), &[])?;
        let request = Request::query(learned, bound, false).in_transaction(in_transaction).ends();
        match call.submit(request, deadline, turn).await? {
            Answer::Ran(ran) => Ok(ran),
            Answer::Stale(stale) => Err(stale.error),
            Answer::Learnt { .. } | Answer::Script => Err(call::mixed_up()),
        }
    }

    /// When a call that begins now must be over.
    fn deadline(self) -> Instant {
        self.options.deadline(self.knowledge.query_timeout)
    }

    /// Takes the turn on a lease, and first undoes what a dropped savepoint has left.
    async fn take_turn(self, call: &Call<'a, PgDriver>, deadline: Instant) -> Result<Turn<'a>, Fault> {
        let turn = call.take_turn(deadline).await?;
        if !self.has_turn {
            self.undo_dropped(call, deadline).await?;
            self.check_savepoint()?;
        }
        Ok(turn)
    }

    /// Commits a transaction, unless the server turns that into a rollback. `None`: nothing had been sent.
    pub(crate) async fn commit(self) -> Result<Option<Ran>, Fault> {
        let deadline = self.deadline();
        let call = self.begin_call();
        let turn = call.take_turn_to_commit(deadline).await?;
        self.undo_what_is_not_kept(deadline).await?;
        call.set_last();
        if self.takes_back_opening() {
            return Ok(None);
        }
        self.run_end(call, Arc::clone(&COMMIT), true, deadline, turn).await.map(Some)
    }

    /// Rolls a transaction back, whatever state it is in.
    pub(crate) async fn roll_back(self) -> Result<(), Fault> {
        let deadline = self.deadline();
        let call = self.begin_call();
        let turn = call.take_last_turn(deadline).await?;
        if self.takes_back_opening() {
            return Ok(());
        }
        self.run_end(call, Arc::clone(&ROLLBACK), false, deadline, turn).await.map(drop)
    }

    /// What opens the transaction had not been sent, and is not any more.
    fn takes_back_opening(self) -> bool {
        matches!(self.lane, Lane::Leased(leased) if leased.lease.take_opening().is_some())
    }

    fn in_transaction(self) -> bool {
        self.lane.transaction().is_some()
    }

    fn begin_call(self) -> Call<'a, PgDriver> {
        if self.has_turn { Call::begin_within(self.lane) } else { Call::begin(self.lane) }
    }

    /// Refuses what is asked of a savepoint that is over.
    fn check_savepoint(self) -> Result<(), Fault> {
        match (self.lane, self.savepoint) {
            (Lane::Leased(leased), Some(number)) => leased.check_savepoint(number),
            _ => Ok(()),
        }
    }

    fn check_class(self, class: Class) -> Result<(), Fault> {
        if let Lane::Leased(leased) = self.lane {
            leased.check_not_over()?;
        }
        match (class, self.lane) {
            (Class::Copy, _) => {
                Err(call::not_here("COPY moves data in a protocol of its own, which is not offered yet"))
            }
            (Class::Transaction | Class::Savepoint, Lane::Shared(_)) => Err(call::needs_transaction()),
            (Class::Session, Lane::Shared(_)) => Err(call::needs_session()),
            (Class::Transaction, Lane::Leased(Leased { takes: Takes::InTransaction, .. })) => {
                Err(call::ends_transaction())
            }
            (Class::Plain, _) | (_, Lane::Leased(_)) => Ok(()),
        }
    }
}

/// What may still be tried once more.
struct Again {
    stale: u8,
    lost: bool,
    may_have_run: bool,
}

impl Again {
    /// What is known of the statement when it ends with `error`: a run whose connection was lost may have taken place,
    /// whatever became of the next one.
    fn told(&self, error: Fault) -> Fault {
        match error.outcome() {
            Outcome::NotSent | Outcome::Failed if self.may_have_run => error.with_outcome(Outcome::Unknown),
            _ => error,
        }
    }
}

/// How often a statement whose knowledge is out of date is run again. The schema may go on changing meanwhile.
const MOST_STALE: u8 = 3;

fn is_of_wrong_type(error: &Fault) -> bool {
    std::error::Error::source(error).and_then(|source| source.downcast_ref::<WrongType>()).is_some()
}

const _: fn() = || {
    fn is_send_sync<T: Send + Sync>() {}
    is_send_sync::<Caller<'_>>();
    is_send_sync::<Row>();
};
