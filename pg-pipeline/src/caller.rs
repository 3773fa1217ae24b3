//! How a call runs: look the statement up, learn it if nobody knows it, encode, submit, decode.
//!
//! Everything here runs in the task that asks. The same code serves shared handles and leases; what differs is which
//! statements they take and what may be run again.

mod learn;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use postgres_types::WrongType;
use tokio::time::Instant;
use wire_pipeline::{Lease, Pool};

use crate::connect::PgDriver;
use crate::error::{Error, ErrorKind, Fault, Outcome};
use crate::params::{self, Params};
use crate::protocol::answer::{Answer, Ran};
use crate::protocol::request::{Part, Request};
use crate::row::{FromRow, Row, Rows};
use crate::statement::{Class, IntoStatement, Learned, Registry, classify};
use crate::types::TypeCache;

/// Settings of single calls; see [`Pool::with`](crate::Pool::with).
#[derive(Debug, Clone, Copy, Default)]
pub struct CallOptions {
    timeout: Option<Duration>,
    idempotent: bool,
}

impl CallOptions {
    /// The pool's settings.
    pub fn new() -> Self {
        Self::default()
    }

    /// What a longer time is cut to.
    const LONGEST: Duration = Duration::from_secs(7 * 24 * 60 * 60);

    /// The time for queueing, sending and answering together; the pool's `query_timeout` unless set. At most 7 days.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// The statements may be run again when a connection is lost and it is not known whether they ran.
    #[must_use]
    pub fn idempotent(mut self) -> Self {
        self.idempotent = true;
        self
    }
}

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
#[derive(Clone, Copy)]
pub(crate) enum Lane<'a> {
    /// Any shared pipe.
    Shared(&'a Pool<PgDriver>),
    /// One pipe.
    Leased(&'a Leased),
}

/// A lease as calls see it.
pub(crate) struct Leased {
    pub(crate) lease: Lease<PgDriver>,
    /// What else it takes besides plain statements.
    pub(crate) takes: Takes,
    /// Calls under way: only one that is alone may be run again without changing the order.
    calls: AtomicUsize,
    /// Held from a call's first poll until its request has its place, so that a call which must first learn its
    /// statement is not overtaken by one that need not.
    order: tokio::sync::Mutex<()>,
    /// A script has ended the transaction.
    over: AtomicBool,
}

/// What a lease takes besides plain statements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Takes {
    /// Everything that belongs to a session.
    Everything,
    /// One script, with which the lease ends.
    OneScript,
    /// Everything but what would end the transaction behind the handle's back.
    InTransaction,
}

impl Leased {
    pub(crate) fn new(lease: Lease<PgDriver>, takes: Takes) -> Self {
        Self {
            lease,
            takes,
            calls: AtomicUsize::new(0),
            order: tokio::sync::Mutex::new(()),
            over: AtomicBool::new(false),
        }
    }

    /// Fails when a script has ended the transaction: what follows would not be part of it.
    pub(crate) fn check_not_over(&self) -> Result<(), Fault> {
        if self.over.load(Ordering::Acquire) {
            return Err(Fault::new(
                ErrorKind::SessionState,
                Outcome::NotSent,
                "a script has ended this transaction; begin a new one",
            ));
        }
        Ok(())
    }
}

/// Counts a call on a lease while it is under way.
struct Call<'a>(&'a AtomicUsize);

impl<'a> Call<'a> {
    fn begin(calls: &'a AtomicUsize) -> Self {
        calls.fetch_add(1, Ordering::AcqRel);
        Self(calls)
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// The right to take the next place on a lease.
type Turn<'a> = Option<tokio::sync::MutexGuard<'a, ()>>;

/// One handle's way to run statements.
#[derive(Clone, Copy)]
pub struct Caller<'a> {
    pub(crate) knowledge: &'a Knowledge,
    pub(crate) lane: Lane<'a>,
    pub(crate) options: CallOptions,
    /// Runs on behalf of a call that has the turn on its lease.
    pub(crate) has_turn: bool,
}

impl<'a> Caller<'a> {
    pub(crate) fn new(knowledge: &'a Knowledge, lane: Lane<'a>) -> Self {
        Self { knowledge, lane, options: CallOptions::new(), has_turn: false }
    }

    pub(crate) async fn query<R: FromRow>(
        self,
        statement: impl IntoStatement,
        params: impl Params,
    ) -> Result<Vec<R>, Error> {
        let mut rows = self.rows(statement, params).await?;
        let mut all = Vec::new();
        while let Some(row) = rows.next()? {
            all.push(R::from_row(row)?);
        }
        Ok(all)
    }

    pub(crate) async fn query_opt<R: FromRow>(
        self,
        statement: impl IntoStatement,
        params: impl Params,
    ) -> Result<Option<R>, Error> {
        let mut rows = self.rows(statement, params).await?;
        let Some(row) = rows.next()? else { return Ok(None) };
        let first = R::from_row(row)?;
        match rows.next()? {
            None => Ok(Some(first)),
            Some(_) => {
                Err(row_count("several rows came where at most one was expected; add a LIMIT or use query"))
            }
        }
    }

    pub(crate) async fn query_one<R: FromRow>(
        self,
        statement: impl IntoStatement,
        params: impl Params,
    ) -> Result<R, Error> {
        let row = self.query_opt(statement, params).await?;
        row.ok_or_else(|| row_count("no row came where one was expected; use query_opt if that is all right"))
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
        let call = self.begin_call();
        let mut again =
            Again { stale: MOST_STALE, lost: idempotent || self.options.idempotent, may_have_run: false };
        loop {
            let turn = self.take_turn(deadline).await?;
            let encoded = self.encode(learned, &mut params, deadline).await;
            let (new, bound) = encoded.map_err(|error| again.told(error))?;
            learned = new;
            let request = Request::query(Arc::clone(&learned), bound, rows);
            let answer = self.submit_in_turn(request, deadline, turn).await;
            match answer {
                Ok(Answer::Ran(ran)) => return Ok(ran),
                Ok(Answer::Stale(stale)) => {
                    learned = self.renew(&learned, stale.relearn);
                    if !stale.safe || again.stale == 0 || !call.is_alone() {
                        return Err(again.told(stale.error));
                    }
                    again.stale -= 1;
                }
                Ok(Answer::Learnt { .. } | Answer::Script) => return Err(mixed_up()),
                Err(error) if again.lost && is_lost(&error) && matches!(self.lane, Lane::Shared(_)) => {
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
        let call = self.begin_call();
        let mut statements: Vec<Arc<Learned>> =
            items.iter().map(|(learned, _)| Arc::clone(learned)).collect();
        let mut again = MOST_STALE;
        loop {
            let turn = self.take_turn(deadline).await?;
            let mut parts = Vec::with_capacity(items.len());
            for (index, (learned, (_, params))) in statements.iter_mut().zip(&mut items).enumerate() {
                let (new, bound) = self
                    .encode(Arc::clone(learned), &mut **params, deadline)
                    .await
                    .map_err(|error| error.context(format!("batch item {index}")))?;
                *learned = Arc::clone(&new);
                parts.push(Part { statement: new, bound });
            }
            match self.submit_in_turn(Request::batch(parts), deadline, turn).await? {
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
                Answer::Learnt { .. } | Answer::Script => return Err(mixed_up()),
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
        let _call = self.begin_call();
        // Of a script only the first words are looked at: what ends a transaction further on is found out afterwards.
        match classify(text) {
            // A script may copy between the server's files.
            Class::Copy => self.check_class(Class::Plain)?,
            class => self.check_class(class)?,
        }
        let turn = self.take_turn(deadline).await?;
        let request = match self.lane {
            Lane::Leased(Leased { takes: Takes::OneScript, .. }) => Request::lone_script(text),
            _ => Request::script(text, self.transaction().is_some()),
        };
        match self.submit_in_turn(request, deadline, turn).await {
            Ok(Answer::Script) => Ok(()),
            Ok(Answer::Ran(_) | Answer::Learnt { .. } | Answer::Stale(_)) => Err(mixed_up()),
            Err(error) => {
                if let Some(leased) = self.transaction()
                    && error.kind() == ErrorKind::SessionState
                {
                    leased.over.store(true, Ordering::Release);
                }
                Err(error)
            }
        }
    }

    /// The lease, if it is a transaction's.
    fn transaction(self) -> Option<&'a Leased> {
        match self.lane {
            Lane::Leased(leased) if leased.takes == Takes::InTransaction => Some(leased),
            Lane::Leased(_) | Lane::Shared(_) => None,
        }
    }

    /// Runs a statement whose parameters are known to be none, without looking it up.
    /// `in_transaction`: only while one is open.
    pub(crate) async fn run_plain(self, learned: Arc<Learned>, in_transaction: bool) -> Result<Ran, Fault> {
        let bound = params::encode(&(), &[])?;
        let request = Request::query(learned, bound, false).in_transaction(in_transaction);
        match self.submit(request, self.deadline()).await? {
            Answer::Ran(ran) => Ok(ran),
            Answer::Stale(stale) => Err(stale.error),
            Answer::Learnt { .. } | Answer::Script => Err(mixed_up()),
        }
    }

    fn deadline(self) -> Instant {
        let limit = self.options.timeout.unwrap_or(self.knowledge.query_timeout);
        Instant::now() + limit.min(CallOptions::LONGEST)
    }

    /// On a lease, waits until the calls that were polled before this one have their places.
    async fn take_turn(self, deadline: Instant) -> Result<Turn<'a>, Fault> {
        let Lane::Leased(leased) = self.lane else { return Ok(None) };
        if self.has_turn {
            return Ok(None);
        }
        if let Ok(turn) = leased.order.try_lock() {
            return Ok(Some(turn));
        }
        match leased.lease.until(deadline, leased.order.lock()).await {
            Some(turn) => Ok(Some(turn)),
            // The lease is over, and what is submitted to it says so.
            None if Instant::now() < deadline => Ok(None),
            None => Err(Fault::timeout(
                crate::Phase::Queue,
                Outcome::NotSent,
                "timed out in phase queue: calls that were made before on this connection were not sent yet",
            )),
        }
    }

    /// Submits, and gives the turn on as soon as the request has its place.
    async fn submit_in_turn(
        self,
        request: Request,
        deadline: Instant,
        turn: Turn<'_>,
    ) -> Result<Answer, Fault> {
        match self.lane {
            Lane::Shared(pool) => pool.submit(request, deadline).await,
            Lane::Leased(leased) => {
                let request = request.in_transaction(self.transaction().is_some());
                let answer = leased.lease.enqueue(request, deadline).await?;
                drop(turn);
                answer.await
            }
        }
    }

    fn begin_call(&self) -> CallOn<'_> {
        match self.lane {
            Lane::Shared(_) => CallOn::Shared,
            Lane::Leased(leased) => CallOn::Leased(Call::begin(&leased.calls)),
        }
    }

    async fn submit(self, request: Request, deadline: Instant) -> Result<Answer, Fault> {
        match self.lane {
            Lane::Shared(pool) => pool.submit(request, deadline).await,
            Lane::Leased(leased) => leased.lease.submit(request, deadline).await,
        }
    }

    fn check_class(self, class: Class) -> Result<(), Fault> {
        if let Lane::Leased(leased) = self.lane {
            leased.check_not_over()?;
        }
        let message = match (class, self.lane) {
            (Class::Copy, _) => "COPY moves data in a protocol of its own, which is not offered yet",
            (Class::Transaction | Class::Savepoint, Lane::Shared(_)) => {
                "a transaction on a shared connection would swallow the statements of others; use pool.begin(), or \
                 pool.session() for statements of your own"
            }
            (Class::Session, Lane::Shared(_)) => {
                "this statement changes or needs the session of a shared connection; use pool.session()"
            }
            (Class::Transaction, Lane::Leased(Leased { takes: Takes::InTransaction, .. })) => {
                "this statement would end the transaction behind its handle's back; use commit() or rollback(), or \
                 pool.session() for statements of your own"
            }
            (Class::Plain, _) | (_, Lane::Leased(_)) => return Ok(()),
        };
        Err(Fault::new(ErrorKind::SessionState, Outcome::NotSent, message))
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

/// A call under way.
enum CallOn<'a> {
    Shared,
    Leased(Call<'a>),
}

impl CallOn<'_> {
    /// Running it again changes no order.
    fn is_alone(&self) -> bool {
        match self {
            Self::Shared => true,
            Self::Leased(Call(calls)) => calls.load(Ordering::Acquire) == 1,
        }
    }
}

/// How often a statement whose knowledge is out of date is run again. The schema may go on changing meanwhile.
const MOST_STALE: u8 = 3;

fn is_of_wrong_type(error: &Fault) -> bool {
    std::error::Error::source(error).and_then(|source| source.downcast_ref::<WrongType>()).is_some()
}

fn is_lost(error: &Fault) -> bool {
    error.kind() == ErrorKind::Io && error.outcome() == Outcome::Unknown
}

#[cold]
fn row_count(message: &'static str) -> Error {
    Fault::new(ErrorKind::RowCount, Outcome::Completed, message).into()
}

#[cold]
fn mixed_up() -> Fault {
    Fault::new(ErrorKind::Protocol, Outcome::Unknown, "an answer of another kind than the request")
}

const _: fn() = || {
    fn is_send_sync<T: Send + Sync>() {}
    is_send_sync::<Caller<'_>>();
    is_send_sync::<Row>();
};
