//! How a call runs: look the statement up, encode, submit, decode.
//!
//! Everything here runs in the task that asks. The same code serves shared handles and leases; what differs is which
//! statements they take and what may be run again. `pg-pipeline`'s file of this name has the same skeleton on purpose: it
//! also learns what a statement's parameters are; here values say by themselves what they are, and what cannot be
//! prepared goes as text.

mod form;
mod savepoint;
mod whole;

use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;
pub use wire_pipeline::call::CallOptions;
pub(crate) use wire_pipeline::call::Takes;
use wire_pipeline::call::{self, Call, Turn};
use wire_pipeline::row;

use form::Form;
pub(crate) use savepoint::Held;

use crate::connect::MyDriver;
use crate::error::{DatabaseError, Error, ErrorKind, Fault, Outcome};
use crate::params::{self, Params};
use crate::protocol::answer::{Answer, Ran, ResultSet};
use crate::protocol::command::Bound;
use crate::protocol::request::{Request, What};
use crate::row::{FromRow, Row, Rows};
use crate::statement::{
    Class, IntoStatement, Learned, Registry, classify_script, may_end_unseen, script_may_end_unseen,
    without_empty_end,
};

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
pub(crate) type Lane<'a> = call::Lane<'a, MyDriver>;
/// A lease as calls see it.
pub(crate) type Leased = call::Leased<MyDriver>;

/// One handle's way to run statements.
#[derive(Clone, Copy)]
pub struct Caller<'a> {
    pub(crate) knowledge: &'a Knowledge,
    pub(crate) lane: Lane<'a>,
    pub(crate) options: CallOptions,
    /// The savepoint whose handle it is.
    pub(crate) savepoint: Option<u32>,
}

impl<'a> Caller<'a> {
    pub(crate) fn new(knowledge: &'a Knowledge, lane: Lane<'a>) -> Self {
        Self { knowledge, lane, options: CallOptions::new(), savepoint: None }
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
            Again { stale: true, lost: idempotent || self.options.is_idempotent(), may_have_run: false };
        let mut form = Form::usual(&learned, &bound);
        loop {
            let turn = self.take_turn(&call, deadline).await?;
            let request = self.request(&learned, &bound, &form, rows);
            let answer = call.submit(request, deadline, turn).await;
            match answer {
                Ok(Answer::Ran(ran)) => return Ok((learned, ran)),
                Ok(Answer::Said(_)) => return Err(call::mixed_up()),
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
                Err(error) if again.lost && error.is_lost() && self.lane.is_shared() => {
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
        let part = self.lane.transaction().is_some();
        Request { rows, part, guarded: part && may_end_unseen(&learned.text), ..request }
    }

    /// Statements that succeed or fail together: on a pool in a transaction of their own, whose lease names `place`.
    pub(crate) async fn run_batch(
        self,
        items: Vec<(Arc<Learned>, Box<dyn Params + '_>)>,
        place: &'static Location<'static>,
    ) -> Result<Vec<Executed>, Fault> {
        if items.is_empty() {
            return Ok(Vec::new());
        }
        let deadline = self.deadline();
        let mut encoded = Vec::with_capacity(items.len());
        for (index, (learned, params)) in items.into_iter().enumerate() {
            let bound = params::encode(&*params).map_err(|error| call::in_batch(index, error))?;
            encoded.push((learned, bound));
        }
        let pool = match self.lane {
            Lane::Shared(pool) => pool,
            Lane::Leased(leased) if leased.takes == Takes::Everything => {
                return self.run_whole(leased, &encoded, deadline).await;
            }
            Lane::Leased(_) => return self.run_all(&encoded, deadline).await,
        };
        let mut again = MOST_STALE;
        loop {
            let lease = match pool.until(deadline, pool.lease_for(place)).await {
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
                Err(error) if again > 0 && may_run_again(&error) => again -= 1,
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
        let call = self.begin_call();
        let turn = self.take_turn(&call, deadline).await?;
        self.run_all_in_turn(items, deadline, call, turn).await
    }

    async fn run_all_in_turn(
        self,
        items: &[(Arc<Learned>, Bound)],
        deadline: Instant,
        mut call: Call<'a, MyDriver>,
        turn: Turn<'a>,
    ) -> Result<Vec<Executed>, Fault> {
        let requests = items.iter().map(|(learned, bound)| {
            let form = Form::usual(learned, bound);
            self.request(learned, bound, &form, false)
        });
        let mut done = Vec::with_capacity(items.len());
        let mut failure = None;
        for (index, answer) in call.submit_all(requests, deadline, turn).await?.into_iter().enumerate() {
            match answer {
                Ok(Answer::Ran(ran)) => done.push(Executed::new(ran.results.into_vec())),
                Ok(Answer::Said(_)) => return Err(call::mixed_up()),
                Ok(Answer::Stale(error)) | Err(error) => {
                    if error.server().is_some_and(DatabaseError::has_no_prepared_form)
                        && let Some((learned, _)) = items.get(index)
                    {
                        learned.set_text_only();
                    }
                    failure.get_or_insert((index, error));
                }
            }
        }
        match failure {
            Some((index, error)) => Err(call::in_batch(index, error)),
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

    /// Runs a script of several statements, and tells whether it has left a transaction open.
    pub(crate) async fn script(self, text: &str) -> Result<bool, Fault> {
        let deadline = self.deadline();
        let mut call = self.begin_call();
        for class in classify_script(text) {
            self.check_class(class)?;
        }
        let turn = self.take_turn(&call, deadline).await?;
        let what = match without_empty_end(text) {
            "" => What::Query(Bytes::from_static(b"DO 0")),
            text => What::Script(Bytes::copy_from_slice(text.as_bytes())),
        };
        let part = self.lane.transaction().is_some();
        let guarded = part && script_may_end_unseen(text);
        let request = Request { rows: false, part, guarded, ..Request::new(what) };
        match call.submit(request, deadline, turn).await? {
            Answer::Ran(ran) => {
                Ok(ran.results.last().is_some_and(|result| result.done.status.in_transaction()))
            }
            Answer::Stale(error) => Err(error),
            Answer::Said(_) => Err(call::mixed_up()),
        }
    }

    /// Runs a script that has a lease for itself.
    pub(crate) async fn lone_script(self, text: &str) -> Result<(), Fault> {
        if !self.script(text).await? {
            return Ok(());
        }
        // Whatever was not in the transaction has been committed.
        let mut classes = classify_script(text).map(|class| class == Class::Transaction);
        let is_all_of_it = classes.next() == Some(true) && !classes.any(|opens_or_ends| opens_or_ends);
        Err(Fault::new(
            ErrorKind::SessionState,
            if is_all_of_it { Outcome::Failed } else { Outcome::Unknown },
            "the script left a transaction open, which is rolled back; end it with COMMIT",
        ))
    }

    /// Asks the server for nothing.
    pub(crate) async fn ping(self) -> Result<(), Fault> {
        let request = Request { rows: false, ..Request::query("DO 0") };
        self.lane.submit(request, self.deadline()).await.map(drop)
    }

    /// Commits a transaction, unless one of its answers says that there is nothing to commit, or nothing had been sent.
    pub(crate) async fn commit(self) -> Result<(), Fault> {
        self.commit_until(self.deadline()).await
    }

    async fn commit_until(self, deadline: Instant) -> Result<(), Fault> {
        let mut call = self.begin_call();
        let turn = call.take_turn_to_commit(deadline).await?;
        self.undo_what_is_not_kept(deadline).await?;
        call.set_last();
        if self.takes_back_opening() {
            return Ok(());
        }
        // Of these nobody has seen how they went, or will before COMMIT is sent.
        let strict =
            call.has_company() || matches!(self.lane, Lane::Leased(leased) if leased.has_unanswered());
        if strict {
            // Their answers come before this one's.
            self.lane.submit(Request { rows: false, ..Request::query("DO 0") }, deadline).await?;
        }
        let commit = Request { part: true, rows: false, ..Request::new(What::Commit { strict }) };
        call.submit(commit, deadline, turn).await.map(drop)
    }

    /// Rolls a transaction back, whatever state it is in.
    pub(crate) async fn roll_back(self) -> Result<(), Fault> {
        let deadline = self.deadline();
        let mut call = self.begin_call();
        let turn = call.take_last_turn(deadline).await?;
        if self.takes_back_opening() {
            return Ok(());
        }
        let request = Request { rows: false, ..Request::new(What::Rollback) };
        call.submit(request, deadline, turn).await.map(drop)
    }

    /// What opens the transaction had not been sent, and is not any more.
    fn takes_back_opening(self) -> bool {
        matches!(self.lane, Lane::Leased(leased) if leased.lease.take_opening().is_some())
    }

    /// When a call that begins now must be over.
    fn deadline(self) -> Instant {
        self.options.deadline(self.knowledge.query_timeout)
    }

    fn begin_call(self) -> Call<'a, MyDriver> {
        Call::begin(self.lane)
    }

    /// Takes the turn on a lease, and first undoes what a dropped call, or a dropped savepoint, has left.
    async fn take_turn(self, call: &Call<'a, MyDriver>, deadline: Instant) -> Result<Turn<'a>, Fault> {
        let turn = call.take_turn(deadline).await?;
        if let Lane::Leased(leased) = self.lane {
            whole::undo_half_done(leased, deadline).await?;
            self.undo_dropped(call, deadline).await?;
            self.check_savepoint()?;
        }
        Ok(turn)
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
            (Class::Transaction | Class::Savepoint, Lane::Shared(_)) => Err(call::needs_transaction()),
            (Class::Session | Class::Database, Lane::Shared(_)) => Err(call::needs_session()),
            (Class::Transaction, Lane::Leased(Leased { takes: Takes::InTransaction, .. })) => {
                Err(call::ends_transaction())
            }
            (Class::Commits, Lane::Leased(Leased { takes: Takes::InTransaction, .. })) => Err(commits()),
            (Class::Plain | Class::Commits, _) | (_, Lane::Leased(_)) => Ok(()),
        }
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
fn commits() -> Fault {
    call::not_here(
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

/// Nothing of a batch is kept, so all of it may be run again: a connection's knowledge was out of date.
fn may_run_again(error: &Fault) -> bool {
    error.server().is_some_and(|error| error.is_stale() || error.wants_text())
}

const _: fn() = || {
    fn is_send_sync<T: Send + Sync>() {}
    is_send_sync::<Caller<'_>>();
    is_send_sync::<Row>();
};
