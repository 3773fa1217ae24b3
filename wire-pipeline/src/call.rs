//! How calls reach a pipe: their settings, where their requests go, and the order that they keep on a lease.
//!
//! A driver's call looks its statement up, encodes, submits and decodes; this module is the submitting. Knows what a
//! call must know of the others on its lease; it must not know what a request says.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::{Mutex, MutexGuard};
use tokio::time::Instant;

use crate::error::{Error, ErrorKind, Outcome, Phase, ServerError};
use crate::lease::Lease;
use crate::pool::Pool;
use crate::savepoint::Savepoints;
use crate::wire::{AnswerOf, Driver, Fault, RequestOf};

/// Settings of single calls; a driver's pool takes them with `with`.
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

    /// The statements may be run again, once, when a connection is lost and it is not known whether they ran.
    #[must_use]
    pub fn idempotent(mut self) -> Self {
        self.idempotent = true;
        self
    }

    /// Whether they were said to be [`idempotent`](Self::idempotent).
    pub fn is_idempotent(self) -> bool {
        self.idempotent
    }

    /// When a call that begins now must be over; `usual` is the pool's `query_timeout`.
    pub fn deadline(self, usual: Duration) -> Instant {
        Instant::now() + self.timeout.unwrap_or(usual).min(Self::LONGEST)
    }
}

/// Where a call's requests go.
pub enum Lane<'a, D: Driver> {
    /// Any shared pipe.
    Shared(&'a Pool<D>),
    /// One pipe.
    Leased(&'a Leased<D>),
}

// By hand: deriving would ask `D: Copy`.
impl<D: Driver> Clone for Lane<'_, D> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<D: Driver> Copy for Lane<'_, D> {}

impl<'a, D: Driver> Lane<'a, D> {
    /// Whether requests go to whichever pipe is expected to answer first.
    pub fn is_shared(self) -> bool {
        matches!(self, Self::Shared(_))
    }

    /// The lease, if it is a transaction's.
    pub fn transaction(self) -> Option<&'a Leased<D>> {
        match self {
            Self::Leased(leased) if leased.takes == Takes::InTransaction => Some(leased),
            Self::Leased(_) | Self::Shared(_) => None,
        }
    }

    /// Since which savepoint everything is to be undone, whoever asked for it.
    pub fn to_undo(self) -> Option<u32> {
        match self {
            Self::Shared(_) => None,
            Self::Leased(leased) => leased.savepoints.to_undo(usize::MAX),
        }
    }

    /// Sends a request and waits for its answer, whoever has the turn.
    pub async fn submit(self, request: RequestOf<D>, deadline: Instant) -> Result<AnswerOf<D>, Fault<D>> {
        match self {
            Self::Shared(pool) => pool.submit(request, deadline).await,
            Self::Leased(leased) => leased.lease.submit(request, deadline).await,
        }
    }
}

/// A lease as calls see it.
pub struct Leased<D: Driver> {
    /// The lease.
    pub lease: Lease<D>,
    /// What it takes besides plain statements.
    pub takes: Takes,
    /// Its savepoints.
    pub savepoints: Savepoints,
    /// Calls that were begun, also those that are over: who was first.
    begun: AtomicUsize,
    /// Calls under way: only one that is alone may be run again without changing the order.
    calls: AtomicUsize,
    /// Requests that have had their place, also of calls that are gone.
    placed: AtomicUsize,
    /// Held from a call's first poll until its request has its place: neither a call that must first ask what its
    /// statement is, nor a large one that waits for room, is overtaken.
    order: Mutex<()>,
    /// A call was dropped, or its time ran out, before its answer came.
    unanswered: AtomicBool,
    /// Something of several steps was begun and is not over.
    half_done: AtomicBool,
    /// The server said of a statement that the whole may succeed when it is run again.
    may_retry: AtomicBool,
    /// It is not known whether all of it was undone when the server said so.
    must_not_retry: AtomicBool,
    /// The transaction is over.
    over: AtomicBool,
    /// What the server's answers said when something else than the handle had ended the transaction.
    ended: OnceLock<Fault<D>>,
}

/// What a lease takes besides plain statements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Takes {
    /// Everything that belongs to a session.
    Everything,
    /// One script, with which the lease ends.
    OneScript,
    /// Everything but what would end the transaction behind the handle's back.
    InTransaction,
}

impl<D: Driver> Leased<D> {
    /// A lease that no call has used yet.
    pub fn new(lease: Lease<D>, takes: Takes) -> Self {
        Self {
            lease,
            takes,
            savepoints: Savepoints::default(),
            begun: AtomicUsize::new(0),
            calls: AtomicUsize::new(0),
            placed: AtomicUsize::new(0),
            order: Mutex::new(()),
            unanswered: AtomicBool::new(false),
            half_done: AtomicBool::new(false),
            may_retry: AtomicBool::new(false),
            must_not_retry: AtomicBool::new(false),
            over: AtomicBool::new(false),
            ended: OnceLock::new(),
        }
    }

    /// Whether a call was dropped, or its time ran out, before its answer came, so that nobody has seen how it went.
    pub fn has_unanswered(&self) -> bool {
        self.unanswered.load(Ordering::Acquire)
    }

    /// Remembers an answer that did not come, one that asks to run the whole again, and one that says that the
    /// transaction was ended.
    fn note(&self, answer: &Result<AnswerOf<D>, Fault<D>>) {
        let Err(error) = answer else { return };
        if error.outcome() == Outcome::Unknown {
            self.unanswered.store(true, Ordering::Release);
        }
        if error.server().is_some_and(ServerError::is_retryable) {
            // Of what is not known to be undone nothing is done again.
            let asked =
                if error.outcome() == Outcome::Failed { &self.may_retry } else { &self.must_not_retry };
            asked.store(true, Ordering::Release);
        }
        if self.takes == Takes::InTransaction
            && error.kind() == ErrorKind::SessionState
            && error.outcome() != Outcome::NotSent
        {
            let _ = self.ended.set(error.clone());
            self.set_over();
        }
    }

    /// Whether the server said of a statement that the whole may succeed when it is run again.
    pub fn may_retry(&self) -> bool {
        self.may_retry.load(Ordering::Acquire)
    }

    /// Whether a part of it may be committed although the server has undone it.
    pub fn must_not_retry(&self) -> bool {
        self.must_not_retry.load(Ordering::Acquire)
    }

    /// What was done since a savepoint is to be undone, behind the calls that were made before and before anything else.
    /// Nothing, when it is over.
    pub fn undo_since(&self, savepoint: u32) {
        self.savepoints.undo_since(savepoint, self.begun.load(Ordering::Acquire));
    }

    /// What was done since a savepoint is undone, and with it what the server said of statements since.
    pub fn undone_since(&self, savepoint: u32) {
        self.savepoints.undone_since(savepoint);
        self.may_retry.store(false, Ordering::Release);
    }

    /// Fails when a savepoint is over: what follows would not be part of it.
    pub fn check_savepoint(&self, number: u32) -> Result<(), Fault<D>> {
        if self.savepoints.is_open(number) {
            return Ok(());
        }
        Err(not_here(
            "this savepoint was rolled back together with an earlier one that it was inside of; go on with the \
             transaction, or with a new savepoint",
        ))
    }

    /// Whether a call has begun something of several steps and not ended it: the next call ends it first. What it is,
    /// the driver knows.
    pub fn is_half_done(&self) -> bool {
        self.half_done.load(Ordering::Acquire)
    }

    /// Something of several steps begins, or is over.
    pub fn set_half_done(&self, half_done: bool) {
        self.half_done.store(half_done, Ordering::Release);
    }

    /// The transaction is over: something else than its handle has ended it, or its end is about to be sent while
    /// somebody may still hold a handle of it.
    pub fn set_over(&self) {
        self.over.store(true, Ordering::Release);
    }

    /// Why the transaction can be neither committed nor undone any more, when something else than its handle has ended it.
    pub fn ended(&self) -> Option<Fault<D>> {
        let error = self.ended.get()?.clone().with_outcome(Outcome::Unknown);
        Some(error.context("what this transaction did before it was ended is committed or undone for good"))
    }

    /// Fails when the transaction is over: what follows would not be part of it.
    pub fn check_not_over(&self) -> Result<(), Fault<D>> {
        if !self.over.load(Ordering::Acquire) {
            return Ok(());
        }
        Err(not_here(match self.ended.get() {
            None => "this transaction is over; begin a new one",
            Some(_) => {
                "this transaction is over: a statement of it has ended it, and committed or undone what came before; \
                 look at what is there, and begin a new one for the rest"
            }
        }))
    }
}

/// A call under way.
pub struct Call<'a, D: Driver> {
    lane: Lane<'a, D>,
    /// How many were begun before it.
    number: usize,
    /// It is part of another call, which has the turn.
    within: bool,
    /// Requests of it that have no answer yet.
    open: usize,
    /// How many requests had their place when its latest one had.
    place: usize,
}

impl<'a, D: Driver> Call<'a, D> {
    /// Begins a call.
    pub fn begin(lane: Lane<'a, D>) -> Self {
        let mut number = 0;
        if let Lane::Leased(leased) = lane {
            leased.calls.fetch_add(1, Ordering::AcqRel);
            number = leased.begun.fetch_add(1, Ordering::AcqRel);
        }
        Self { lane, number, within: false, open: 0, place: 0 }
    }

    /// Begins a call on behalf of one that has the turn.
    pub fn begin_within(lane: Lane<'a, D>) -> Self {
        let mut call = Self::begin(lane);
        call.within = true;
        call
    }

    /// Since which savepoint everything is to be undone before its request is sent.
    pub fn to_undo(&self) -> Option<u32> {
        let Lane::Leased(leased) = self.lane else { return None };
        if self.within { None } else { leased.savepoints.to_undo(self.number) }
    }

    /// Running it again changes no order: nobody else is under way, and no request was placed behind its own, whose
    /// call may have been dropped since.
    pub fn is_alone(&self) -> bool {
        match self.lane {
            Lane::Shared(_) => true,
            Lane::Leased(leased) => {
                leased.calls.load(Ordering::Acquire) == 1
                    && leased.placed.load(Ordering::Acquire) == self.place
            }
        }
    }

    /// Whether other calls are under way on the lease.
    pub fn has_company(&self) -> bool {
        matches!(self.lane, Lane::Leased(leased) if leased.calls.load(Ordering::Acquire) > 1)
    }

    /// On a lease, waits until the calls that were polled before this one have their places. Fails when one of them has
    /// ended the transaction.
    pub async fn take_turn(&self, deadline: Instant) -> Result<Turn<'a>, Fault<D>> {
        let Lane::Leased(leased) = self.lane else { return Ok(Turn(None)) };
        if self.within {
            return Ok(Turn(None));
        }
        let turn = self.wait_for_turn(leased, deadline).await?;
        leased.check_not_over()?;
        Ok(turn)
    }

    /// The same for what ends the transaction, whatever state it is in; see [`set_last`](Self::set_last).
    pub async fn take_last_turn(&self, deadline: Instant) -> Result<Turn<'a>, Fault<D>> {
        let Lane::Leased(leased) = self.lane else { return Ok(Turn(None)) };
        let turn = self.wait_for_turn(leased, deadline).await?;
        self.set_last();
        Ok(turn)
    }

    /// The same for what commits: it fails when something else has ended the transaction.
    pub async fn take_turn_to_commit(&self, deadline: Instant) -> Result<Turn<'a>, Fault<D>> {
        let Lane::Leased(leased) = self.lane else { return Ok(Turn(None)) };
        let turn = self.wait_for_turn(leased, deadline).await?;
        match leased.ended() {
            Some(ended) => Err(ended),
            None => leased.check_not_over().map(|()| turn),
        }
    }

    /// The call, which has the turn, ends the transaction: those that have no place yet get none any more.
    pub fn set_last(&self) {
        if let Lane::Leased(leased) = self.lane {
            leased.set_over();
        }
    }

    async fn wait_for_turn(&self, leased: &'a Leased<D>, deadline: Instant) -> Result<Turn<'a>, Fault<D>> {
        if let Ok(turn) = leased.order.try_lock() {
            return Ok(Turn(Some(turn)));
        }
        match leased.lease.until(deadline, leased.order.lock()).await {
            Some(turn) => Ok(Turn(Some(turn))),
            // The lease is over, and what is submitted to it says so.
            None if Instant::now() < deadline => Ok(Turn(None)),
            None => Err(Error::timeout(
                Phase::Queue,
                Outcome::NotSent,
                "timed out in phase queue: calls that were made before on this connection were not sent yet",
            )),
        }
    }

    /// Sends a request and waits for its answer; the turn is given on as soon as the request has its place.
    pub async fn submit(
        &mut self,
        request: RequestOf<D>,
        deadline: Instant,
        turn: Turn<'_>,
    ) -> Result<AnswerOf<D>, Fault<D>> {
        match self.lane {
            Lane::Shared(pool) => pool.submit(request, deadline).await,
            Lane::Leased(leased) => {
                self.open += 1;
                let answer = match leased.lease.enqueue(request, deadline).await {
                    Ok(answer) => {
                        self.place = leased.placed.fetch_add(1, Ordering::AcqRel) + 1;
                        drop(turn);
                        answer.await
                    }
                    Err(error) => Err(error),
                };
                self.open -= 1;
                leased.note(&answer);
                answer
            }
        }
    }
}

impl<'a, D: Driver> Call<'a, D> {
    /// On a lease, sends requests without waiting for answers in between, and waits for all of the answers, which come
    /// back in the same order. They end with the first request that could not be sent.
    pub async fn submit_all(
        &mut self,
        requests: impl Iterator<Item = RequestOf<D>> + Send,
        deadline: Instant,
        turn: Turn<'a>,
    ) -> Result<Vec<Result<AnswerOf<D>, Fault<D>>>, Fault<D>> {
        let Lane::Leased(leased) = self.lane else { return Err(mixed_up()) };
        let mut waiting = Vec::with_capacity(requests.size_hint().0);
        let mut not_sent = None;
        for request in requests {
            self.open += 1;
            match leased.lease.enqueue(request, deadline).await {
                Ok(answer) => {
                    self.place = leased.placed.fetch_add(1, Ordering::AcqRel) + 1;
                    waiting.push(Box::pin(answer));
                }
                Err(error) => {
                    self.open -= 1;
                    not_sent = Some(Err(error));
                    break;
                }
            }
        }
        drop(turn);
        let mut answers = Vec::with_capacity(waiting.len() + 1);
        for answer in waiting {
            let answer = answer.await;
            self.open -= 1;
            leased.note(&answer);
            answers.push(answer);
        }
        answers.extend(not_sent);
        Ok(answers)
    }
}

impl<D: Driver> Drop for Call<'_, D> {
    fn drop(&mut self) {
        let Lane::Leased(leased) = self.lane else { return };
        if self.open > 0 {
            leased.unanswered.store(true, Ordering::Release);
        }
        leased.calls.fetch_sub(1, Ordering::AcqRel);
    }
}

/// The right to take the next place on a lease. Shared pipes need none.
pub struct Turn<'a>(#[expect(dead_code, reason = "held, never looked at")] Option<MutexGuard<'a, ()>>);

/// A statement of a transaction on a shared pipe.
#[cold]
pub fn needs_transaction<S: ServerError>() -> Error<S> {
    not_here(
        "a transaction on a shared connection would swallow the statements of others; use pool.begin(), or \
         pool.session() for statements of your own",
    )
}

/// A statement that changes the session on a shared pipe.
#[cold]
pub fn needs_session<S: ServerError>() -> Error<S> {
    not_here(
        "this statement changes or needs the session of a shared connection; use pool.session(), or pool.begin() for \
         what lasts for one transaction (SET LOCAL, a cursor, the lock of a table)",
    )
}

/// A statement that ends a transaction, inside of one.
#[cold]
pub fn ends_transaction<S: ServerError>() -> Error<S> {
    not_here(
        "this statement would end the transaction behind its handle's back; use commit() or rollback(), or \
         pool.session() for statements of your own",
    )
}

/// A statement that may not run where it was given, and is not sent.
#[cold]
pub fn not_here<S: ServerError>(message: &'static str) -> Error<S> {
    Error::new(ErrorKind::SessionState, Outcome::NotSent, message)
}

/// What was to be undone before a request could not be undone: the request was not sent.
#[cold]
pub fn not_undone<S: ServerError>(error: Error<S>) -> Error<S> {
    match error.outcome() {
        // The whole was undone, or is over: its own words say so.
        Outcome::NotSent => return error,
        Outcome::Failed if error.is_retryable() => return error,
        Outcome::Failed => error,
        Outcome::Unknown | Outcome::Completed => error.with_outcome(Outcome::NotSent),
    }
    .context(
        "this was not sent, because a savepoint that was dropped before could not be rolled back; roll the transaction \
         back",
    )
}

/// An answer that does not belong to its request: a fault of the driver's.
#[cold]
pub fn mixed_up<S: ServerError>() -> Error<S> {
    Error::new(ErrorKind::Protocol, Outcome::Unknown, "an answer of another kind than the request")
}

/// The same error, told of one statement of several.
#[cold]
pub fn in_batch<S: ServerError>(index: usize, error: Error<S>) -> Error<S> {
    error.context(format_args!("batch item {index}"))
}
