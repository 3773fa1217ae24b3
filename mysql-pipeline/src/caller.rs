//! How a call runs: look the statement up, encode, submit, decode.
//!
//! Everything here runs in the task that asks. The same code serves shared handles and leases; what differs is which
//! statements they take and what may be run again. `pg-pipeline`'s file of this name also learns what a statement's
//! parameters are; here values say by themselves what they are.

mod form;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;
use wire_pipeline::{Lease, Pool};

use form::Form;

use crate::connect::MyDriver;
use crate::error::{DatabaseError, Error, ErrorKind, Fault, Outcome};
use crate::params::{self, Params};
use crate::protocol::answer::{Answer, Ran, ResultSet};
use crate::protocol::command::Bound;
use crate::protocol::request::{Request, What};
use crate::row::{FromRow, Row, Rows};
use crate::statement::{Class, IntoStatement, Learned, Registry, classify_script};

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
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Executed {
    rows_affected: u64,
    last_insert_id: Option<u64>,
    warnings: u16,
    info: Option<Box<str>>,
}

impl Executed {
    /// Of the last result, as the server's own client shows it.
    fn new(results: Vec<ResultSet>) -> Self {
        let Some(ResultSet { columns, rows, done }) = results.into_iter().next_back() else {
            return Self { rows_affected: 0, last_insert_id: None, warnings: 0, info: None };
        };
        Self {
            rows_affected: if columns > 0 { rows } else { done.affected_rows },
            last_insert_id: Some(done.last_insert_id).filter(|id| *id != 0),
            warnings: done.warnings,
            info: done.info,
        }
    }

    /// Rows that were inserted, matched by an update, deleted or selected; 0 for other statements. A row that
    /// `INSERT … ON DUPLICATE KEY UPDATE` has updated, and one that `REPLACE` has replaced, counts twice.
    pub fn rows_affected(&self) -> u64 {
        self.rows_affected
    }

    /// The first value that was made for an `AUTO_INCREMENT` column.
    pub fn last_insert_id(&self) -> Option<u64> {
        self.last_insert_id
    }

    /// How many warnings `SHOW WARNINGS` would show.
    pub fn warnings(&self) -> u16 {
        self.warnings
    }

    /// What the server says of it, such as `Rows matched: 1  Changed: 0  Warnings: 0`.
    pub fn info(&self) -> Option<&str> {
        self.info.as_deref()
    }
}

/// What a pool, or a connection of its own, knows of statements.
#[derive(Debug)]
pub(crate) struct Knowledge {
    pub(crate) registry: Registry,
    pub(crate) query_timeout: Duration,
}

impl Knowledge {
    pub(crate) fn new(options: &crate::PoolOptions) -> Arc<Self> {
        Arc::new(Self {
            registry: Registry::new(4 * options.statement_cache()),
            query_timeout: options.query_timeout(),
        })
    }
}

/// Where a call's requests go.
#[derive(Clone, Copy)]
pub(crate) enum Lane<'a> {
    /// Any shared pipe.
    Shared(&'a Pool<MyDriver>),
    /// One pipe.
    Leased(&'a Leased),
}

/// A lease as calls see it.
pub(crate) struct Leased {
    pub(crate) lease: Lease<MyDriver>,
    /// What else it takes besides plain statements.
    pub(crate) takes: Takes,
    /// Calls under way: only one that is alone may be run again without changing the order.
    calls: AtomicUsize,
    /// Held from a call's first poll until its request has its place: a large one that waits for room is not overtaken.
    order: tokio::sync::Mutex<()>,
    /// A call was dropped before its answer came.
    unanswered: AtomicBool,
}

/// What a lease takes besides plain statements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Takes {
    /// Everything that belongs to a session.
    Everything,
    /// Everything but what would end the transaction behind the handle's back.
    InTransaction,
}

impl Leased {
    pub(crate) fn new(lease: Lease<MyDriver>, takes: Takes) -> Self {
        Self {
            lease,
            takes,
            calls: AtomicUsize::new(0),
            order: tokio::sync::Mutex::new(()),
            unanswered: AtomicBool::new(false),
        }
    }
}

/// Counts a call on a lease while it is under way.
struct Call<'a> {
    leased: Option<&'a Leased>,
    /// Requests of it that have no answer yet.
    open: usize,
}

impl Call<'_> {
    /// Running it again changes no order.
    fn is_alone(&self) -> bool {
        self.leased.is_none_or(|leased| leased.calls.load(Ordering::Acquire) == 1)
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        let Some(leased) = self.leased else { return };
        if self.open > 0 {
            leased.unanswered.store(true, Ordering::Release);
        }
        leased.calls.fetch_sub(1, Ordering::AcqRel);
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
}

impl<'a> Caller<'a> {
    pub(crate) fn new(knowledge: &'a Knowledge, lane: Lane<'a>) -> Self {
        Self { knowledge, lane, options: CallOptions::new() }
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
        let (_, ran) = self.run(statement, params, false).await?;
        Ok(Executed::new(ran.results.into_vec()))
    }

    async fn rows(self, statement: impl IntoStatement, params: impl Params) -> Result<Rows, Fault> {
        let (learned, ran) = self.run(statement, params, true).await?;
        Rows::new(ran, &learned)
    }

    /// Runs one statement; once more where that is safe and helps.
    async fn run(
        self,
        statement: impl IntoStatement,
        params: impl Params,
        rows: bool,
    ) -> Result<(Arc<Learned>, Ran), Fault> {
        let (learned, idempotent) =
            statement.with_key(|named| (self.knowledge.registry.get_or_insert(named.key), named.idempotent));
        drop(statement);
        self.check_class(learned.class)?;
        let bound = params::encode(&params)?;
        drop(params);
        let deadline = self.deadline();
        let mut call = self.begin_call();
        let mut again =
            Again { stale: true, lost: idempotent || self.options.idempotent, may_have_run: false };
        let mut form = Form::usual(&learned, &bound);
        loop {
            let turn = self.take_turn(deadline).await?;
            let request = self.request(&learned, &bound, &form, rows);
            call.open = 1;
            let answer = self.submit_in_turn(request, deadline, turn).await;
            call.open = 0;
            match answer {
                Ok(Answer::Ran(ran)) => return Ok((learned, ran)),
                // Nothing was executed. Once it is prepared anew; the second time, it is run as text if it can be.
                Ok(Answer::Stale(error)) => {
                    if !call.is_alone() {
                        return Err(again.told(error));
                    }
                    if !std::mem::replace(&mut again.stale, false) {
                        form = form.text(&learned, &bound).ok_or_else(|| again.told(error))?;
                    }
                }
                Err(error) if error.server().is_some_and(DatabaseError::wants_text) && call.is_alone() => {
                    if error.server().is_some_and(DatabaseError::has_no_prepared_form) {
                        learned.set_text_only();
                    }
                    form = form.text(&learned, &bound).ok_or_else(|| again.told(error))?;
                }
                Err(error) if again.lost && is_lost(&error) && matches!(self.lane, Lane::Shared(_)) => {
                    again.lost = false;
                    again.may_have_run = true;
                }
                Err(error) => return Err(again.told(error)),
            }
        }
    }

    fn request(self, learned: &Arc<Learned>, bound: &Bound, form: &Form, rows: bool) -> Request {
        let request = match form {
            Form::Prepared => Request::execute(learned, bound.clone()),
            Form::Text(text) => Request::query(text.clone()),
        };
        Request { rows, part: self.transaction().is_some(), ..request }
    }

    /// Statements that succeed or fail together: on a pool in a transaction of their own.
    pub(crate) async fn run_batch(
        self,
        items: Vec<(Arc<Learned>, Box<dyn Params + '_>)>,
    ) -> Result<Vec<Executed>, Fault> {
        if items.is_empty() {
            return Ok(Vec::new());
        }
        let deadline = self.deadline();
        let mut encoded = Vec::with_capacity(items.len());
        for (index, (learned, params)) in items.into_iter().enumerate() {
            let bound = params::encode(&*params).map_err(|error| in_batch(index, &error))?;
            encoded.push((learned, bound));
        }
        let Lane::Shared(pool) = self.lane else {
            return self.run_all(&encoded, deadline).await;
        };
        let mut again = MOST_STALE;
        loop {
            let lease = match pool.until(deadline, pool.lease()).await {
                Some(lease) => lease?,
                None => return Err(no_lease_in_time()),
            };
            lease.set_opening(Request::query("SET autocommit = 0"));
            let leased = Leased::new(lease, Takes::InTransaction);
            let caller = Caller { lane: Lane::Leased(&leased), ..self };
            match caller.run_all(&encoded, deadline).await {
                Ok(done) => {
                    caller.commit_until(deadline).await?;
                    return Ok(done);
                }
                // Nothing of it is kept, so all of it may be run again.
                Err(error)
                    if again > 0
                        && error.server().is_some_and(|error| error.is_stale() || error.wants_text()) =>
                {
                    again -= 1;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Sends statements without waiting for answers in between. The first failure counts; all answers are awaited.
    async fn run_all(
        self,
        items: &[(Arc<Learned>, Bound)],
        deadline: Instant,
    ) -> Result<Vec<Executed>, Fault> {
        let Lane::Leased(leased) = self.lane else { return Err(mixed_up()) };
        let mut call = self.begin_call();
        let turn = self.take_turn(deadline).await?;
        let mut answers = Vec::with_capacity(items.len());
        let mut failure = None;
        for (index, (learned, bound)) in items.iter().enumerate() {
            let request = self.request(learned, bound, &Form::usual(learned, bound), false);
            call.open += 1;
            match leased.lease.enqueue(request, deadline).await {
                Ok(answer) => answers.push(Box::pin(answer)),
                Err(error) => {
                    call.open -= 1;
                    failure = Some((index, error));
                    break;
                }
            }
        }
        drop(turn);
        let mut done = Vec::with_capacity(answers.len());
        for (index, answer) in answers.into_iter().enumerate() {
            let answer = answer.await;
            call.open -= 1;
            match answer {
                Ok(Answer::Ran(ran)) => done.push(Executed::new(ran.results.into_vec())),
                Ok(Answer::Stale(error)) | Err(error) => {
                    if error.server().is_some_and(DatabaseError::has_no_prepared_form)
                        && let Some((learned, _)) = items.get(index)
                    {
                        learned.set_text_only();
                    }
                    if failure.as_ref().is_none_or(|(first, _)| index < *first) {
                        failure = Some((index, error));
                    }
                }
            }
        }
        match failure {
            Some((index, error)) => Err(in_batch(index, &error)),
            None => Ok(done),
        }
    }

    /// Looks a batch's statement up, and refuses what may not run here.
    pub(crate) fn look_up(self, statement: &impl IntoStatement) -> Result<Arc<Learned>, Fault> {
        let learned = statement.with_key(|named| self.knowledge.registry.get_or_insert(named.key));
        self.check_class(learned.class)?;
        if learned.class == Class::Commits && matches!(self.lane, Lane::Shared(_)) {
            return Err(commits());
        }
        Ok(learned)
    }

    /// Runs a script of several statements.
    pub(crate) async fn script(self, text: &str) -> Result<(), Fault> {
        let deadline = self.deadline();
        let mut call = self.begin_call();
        for class in classify_script(text) {
            self.check_class(class)?;
        }
        let turn = self.take_turn(deadline).await?;
        let what = What::Script(Bytes::copy_from_slice(text.as_bytes()));
        let request = Request { rows: false, part: self.transaction().is_some(), ..Request::new(what) };
        call.open = 1;
        let answer = self.submit_in_turn(request, deadline, turn).await;
        call.open = 0;
        answer.map(drop)
    }

    /// Asks the server for nothing.
    pub(crate) async fn ping(self) -> Result<(), Fault> {
        let request = Request { rows: false, ..Request::query("DO 0") };
        self.submit(request, self.deadline()).await.map(drop)
    }

    /// Commits a transaction, unless one of its answers says that there is nothing to commit.
    pub(crate) async fn commit(self) -> Result<(), Fault> {
        self.commit_until(self.deadline()).await
    }

    async fn commit_until(self, deadline: Instant) -> Result<(), Fault> {
        let strict = matches!(self.lane, Lane::Leased(leased) if leased.unanswered.load(Ordering::Acquire));
        if strict {
            // Calls were dropped: their answers come before this one's.
            self.submit(Request { rows: false, ..Request::query("DO 0") }, deadline).await?;
        }
        let commit = Request { part: true, rows: false, ..Request::new(What::Commit { strict }) };
        self.submit(commit, deadline).await.map(drop)
    }

    pub(crate) async fn roll_back(self) -> Result<(), Fault> {
        let request = Request { rows: false, ..Request::query("ROLLBACK") };
        self.submit(request, self.deadline()).await.map(drop)
    }

    /// The lease, if it is a transaction's.
    fn transaction(self) -> Option<&'a Leased> {
        match self.lane {
            Lane::Leased(leased) if leased.takes == Takes::InTransaction => Some(leased),
            Lane::Leased(_) | Lane::Shared(_) => None,
        }
    }

    fn deadline(self) -> Instant {
        let limit = self.options.timeout.unwrap_or(self.knowledge.query_timeout);
        Instant::now() + limit.min(CallOptions::LONGEST)
    }

    /// On a lease, waits until the calls that were polled before this one have their places.
    async fn take_turn(self, deadline: Instant) -> Result<Turn<'a>, Fault> {
        let Lane::Leased(leased) = self.lane else { return Ok(None) };
        if let Ok(turn) = leased.order.try_lock() {
            return Ok(Some(turn));
        }
        match leased.lease.until(deadline, leased.order.lock()).await {
            Some(turn) => Ok(Some(turn)),
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
                let answer = leased.lease.enqueue(request, deadline).await?;
                drop(turn);
                answer.await
            }
        }
    }

    fn begin_call(&self) -> Call<'a> {
        let leased = match self.lane {
            Lane::Shared(_) => None,
            Lane::Leased(leased) => Some(leased),
        };
        if let Some(leased) = leased {
            leased.calls.fetch_add(1, Ordering::AcqRel);
        }
        Call { leased, open: 0 }
    }

    async fn submit(self, request: Request, deadline: Instant) -> Result<Answer, Fault> {
        match self.lane {
            Lane::Shared(pool) => pool.submit(request, deadline).await,
            Lane::Leased(leased) => leased.lease.submit(request, deadline).await,
        }
    }

    fn check_class(self, class: Class) -> Result<(), Fault> {
        let message = match (class, self.lane) {
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
            (Class::Commits, Lane::Leased(Leased { takes: Takes::InTransaction, .. })) => {
                return Err(commits());
            }
            (Class::Plain | Class::Commits, _) | (_, Lane::Leased(_)) => return Ok(()),
        };
        Err(Fault::new(ErrorKind::SessionState, Outcome::NotSent, message))
    }
}

/// What may still be tried once more.
struct Again {
    stale: bool,
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

/// How often a batch is run again when a connection's knowledge of a statement is out of date.
const MOST_STALE: u8 = 3;

#[cold]
fn in_batch(index: usize, error: &Fault) -> Fault {
    error.clone().context(format!("batch item {index}"))
}

#[cold]
fn commits() -> Fault {
    Fault::new(
        ErrorKind::SessionState,
        Outcome::NotSent,
        "MySQL commits by itself before and after this statement, so it cannot be part of a transaction; run it on the \
         pool or on a session",
    )
}

#[cold]
fn no_lease_in_time() -> Fault {
    Fault::timeout(
        crate::Phase::Lease,
        Outcome::NotSent,
        "timed out in phase lease: no connection was free for the batch",
    )
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
