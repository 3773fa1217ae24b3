//! What the pipes of a pool know of each other, and of the pool: its limits, its health, and how it ends.
//!
//! Does not know who runs the pipes.

use std::collections::VecDeque;
use std::future::Future;
use std::sync::Arc;

use tokio::runtime::Handle;
use tokio::sync::{Mutex, Semaphore, watch};
use tokio::time::Instant;

use crate::answer::Budget;
use crate::entry::{Class, Entry, Reply};
use crate::error::Outcome;
use crate::faults;
use crate::fork::Process;
use crate::gate::{Gate, Pass};
use crate::options::Options;
use crate::pipe::{Lane, Pipe, PipeId};
use crate::stats::{PipeState, PipeStats, PoolStats};
use crate::sync::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use crate::wire::{AnswerOf, Driver, Fault, Request, Wire};

use super::desk::Desk;
use super::health::Health;
use super::overflow::Overflow;
use super::recovery::Recovery;

/// Handshakes of one pool that may run at a time.
const HANDSHAKES: usize = 2;

/// What the pipes of a pool share.
pub(crate) struct Shared<D: Driver> {
    pub(crate) driver: D,
    pub(crate) options: Options,
    pub(super) pipes: Arc<[Pipe<D::Wire>]>,
    pub(super) gate: Arc<Gate>,
    pub(crate) budget: Arc<Budget>,
    pub(super) overflow: Overflow<D::Wire>,
    pub(crate) desk: Desk<D::Wire>,
    /// One connection for one owner: no sharing, no second connection.
    pub(crate) exclusive: bool,
    pub(crate) handshakes: Semaphore,
    pub(crate) recovery: Recovery,
    /// Held while a pipe is replaced: one at a time.
    pub(crate) retiring: Mutex<()>,
    /// Turns to true when the pool takes no new requests.
    closing: watch::Sender<bool>,
    aborted: AtomicBool,
    /// Pipes whose task runs.
    running: watch::Sender<usize>,
    pub(crate) health: Health<D>,
    pub(super) runtime: Handle,
    /// Whose pool it is.
    process: Process,
    /// Where the search for a pipe begins.
    pub(super) rotation: AtomicUsize,
    pub(super) began: Instant,
    /// When a quick request came last, roughly, in microseconds since the pool began.
    pub(super) quick_at: AtomicU64,
}

impl<D: Driver> Shared<D> {
    pub(super) fn new(driver: D, options: Options, exclusive: bool) -> Arc<Self> {
        let connections = options.connections.max(1);
        let budget = Budget::new(options.max_answer_bytes, options.answer_budget);
        let entries = options.max_in_flight.max(1).saturating_mul(connections);
        let gate = Gate::new(entries, options.queue_bytes.saturating_mul(connections), &budget);
        let max_leases = if exclusive { 1 } else { options.max_leases() };
        Arc::new(Self {
            pipes: (0..connections).map(|id| Pipe::new(PipeId(id))).collect(),
            gate,
            budget,
            overflow: Overflow::new(),
            desk: Desk::new(max_leases),
            exclusive,
            handshakes: Semaphore::new(HANDSHAKES),
            recovery: Recovery::new(options.seed),
            retiring: Mutex::new(()),
            closing: watch::Sender::new(false),
            aborted: AtomicBool::new(false),
            running: watch::Sender::new(0),
            health: Health::new(),
            runtime: Handle::current(),
            process: Process::this(),
            rotation: AtomicUsize::new(0),
            began: Instant::now(),
            quick_at: AtomicU64::new(0),
            driver,
            options,
        })
    }

    /// From now on every pipe has a task; these are to be run.
    pub(super) fn start(&self) -> impl Iterator<Item = PipeId> + use<D> {
        self.running.send_replace(self.pipes.len());
        (0..self.pipes.len()).map(PipeId)
    }

    pub(crate) fn pipe(&self, id: PipeId) -> &Pipe<D::Wire> {
        &self.pipes[id.0]
    }

    pub(crate) fn connected(&self, pipe: &Pipe<D::Wire>) {
        pipe.counters.connected();
        self.health.connected();
    }

    pub(crate) fn connect_failed(&self, error: Fault<D>) {
        tracing::warn!(kind = ?error.kind(), "cannot connect to the database");
        self.health.failed(error.with_outcome(Outcome::NotSent));
    }

    /// Waits for room in `gate`, in order of arrival.
    pub(crate) async fn wait_for_room(
        &self,
        gate: &Arc<Gate>,
        bytes: usize,
        since: Instant,
        deadline: Instant,
    ) -> Result<Pass, Fault<D>> {
        match self.until(deadline, gate.enter(bytes)).await {
            Some(Some(pass)) => Ok(pass),
            Some(None) => Err(self.ended()),
            None if self.has_ended() => Err(self.ended()),
            None => Err(self.with_cause(faults::no_room(since.elapsed(), &gate.fill()))),
        }
    }

    /// Why no pipe has taken an entry of this class that waits since `since`.
    pub(super) fn not_taken(&self, since: Instant, class: Class) -> Fault<D> {
        let open = self.pipes.iter().filter(|pipe| pipe.load.open.load(Ordering::SeqCst)).count();
        let waiting = self.overflow.len(Class::Fast) + self.overflow.len(Class::Slow);
        let slow = class == Class::Slow;
        self.with_cause(faults::not_taken(since.elapsed(), waiting, open, self.pipes.len(), slow))
    }

    /// The error, with the reason for which connections are missing if they are.
    pub(crate) fn with_cause(&self, error: Fault<D>) -> Fault<D> {
        match self.health.failure() {
            Some(failure) => error.with_source(failure),
            None => error,
        }
    }

    /// `future`, or `None` when `deadline` passes first, or the pool has ended. Works on any executor: the timer is the
    /// pool's runtime's, and must not be asked any more when that has gone.
    pub(crate) async fn until<F: Future>(&self, deadline: Instant, future: F) -> Option<F::Output> {
        let sleep = {
            let _context = self.runtime.enter();
            tokio::time::sleep_until(deadline)
        };
        let mut running = self.subscribe_running();
        tokio::select! {
            biased;
            output = future => Some(output),
            _ = running.wait_for(|running| *running == 0) => None,
            () = sleep => None,
        }
    }

    /// `future`, or `None` when the pool closes first.
    pub(crate) async fn or_closing<F: Future>(&self, future: F) -> Option<F::Output> {
        let mut closing = self.closing.subscribe();
        tokio::select! {
            biased;
            output = future => Some(output),
            _ = closing.wait_for(|closing| *closing) => None,
        }
    }

    pub(crate) fn is_closing(&self) -> bool {
        *self.closing.borrow()
    }

    pub(crate) fn is_aborted(&self) -> bool {
        self.aborted.load(Ordering::Acquire)
    }

    pub(crate) fn begin_closing(&self) {
        self.closing.send_replace(true);
        self.gate.close();
        self.desk.close();
        for pipe in self.pipes.iter() {
            pipe.signal(|queue| queue.closing = true);
        }
    }

    pub(super) fn abort(&self) {
        self.aborted.store(true, Ordering::Release);
        self.wake_all();
    }

    /// Every pump looks at the pool again.
    pub(super) fn wake_all(&self) {
        for pipe in self.pipes.iter() {
            pipe.waker.wake();
        }
    }

    /// A lost pipe's entries: those of a lease end with it, the others go elsewhere.
    pub(crate) fn vacate(
        self: &Arc<Self>,
        pipe: &Pipe<D::Wire>,
        movable: VecDeque<Entry<D::Wire>>,
        lease_lost: Option<&Fault<D>>,
    ) {
        pipe.load.open.store(false, Ordering::SeqCst);
        pipe.load.overdue.store(false, Ordering::Relaxed);
        let (queued, _opening) = {
            let mut queue = pipe.queue();
            if queue.lane != Lane::Closed {
                queue.lane = Lane::Down;
            }
            queue.drain = false;
            queue.returned = None;
            queue.pump_idle = false;
            (std::mem::take(&mut queue.entries), queue.opening.take())
        };
        // All that was here is answered or goes away, also what a panic has dropped.
        pipe.load.clear();
        for entry in movable.into_iter().chain(queued) {
            match lease_lost {
                Some(error) => entry.fail(error.clone().with_outcome(Outcome::NotSent)),
                None => self.place(entry),
            }
        }
        self.serve_waiters();
    }

    /// A pipe's task is over for good; `entries` were left in its queue.
    pub(crate) fn pipe_ended(&self, entries: VecDeque<Entry<D::Wire>>) {
        for entry in entries {
            entry.fail(self.ended());
        }
        self.running.send_modify(|running| *running = running.saturating_sub(1));
        if self.has_ended() {
            self.gate.close();
            self.desk.close();
            self.health.ended(|| self.ended());
            self.fail_overflow();
            self.overflow.look();
        }
    }

    /// Fails in a process that was forked from the pool's.
    pub(crate) fn check_process(&self) -> Result<(), Fault<D>> {
        if self.process.is_over() { Err(faults::forked()) } else { Ok(()) }
    }

    /// Why nobody works any more.
    pub(crate) fn ended(&self) -> Fault<D> {
        if self.is_closing() { faults::closed() } else { faults::runtime_gone() }
    }

    /// Nobody will serve what waits.
    pub(super) fn fail_overflow(&self) {
        for entry in self.overflow.take_where(|_| true) {
            entry.fail(self.ended());
        }
    }

    /// The number of pipes whose task runs.
    pub(crate) fn subscribe_running(&self) -> watch::Receiver<usize> {
        self.running.subscribe()
    }

    pub(crate) fn has_ended(&self) -> bool {
        *self.running.borrow() == 0
    }

    pub(super) fn stats(&self) -> PoolStats {
        let (leases, waiting_for_lease) = self.desk.stats();
        PoolStats {
            pipes: self.pipes.iter().map(pipe_stats).collect(),
            waiting: self.overflow.len(Class::Fast) + self.overflow.len(Class::Slow),
            waiting_for_room: self.gate.waiting(),
            leased: leases.len(),
            leases,
            waiting_for_lease,
            answer_bytes: self.budget.held(),
        }
    }
}

fn pipe_stats<W: Wire>(pipe: &Pipe<W>) -> PipeStats {
    let (state, bytes) = {
        let queue = pipe.queue();
        let state = match queue.lane {
            Lane::Down => PipeState::Connecting,
            Lane::Settling => PipeState::Settling,
            Lane::Shared => PipeState::Shared,
            Lane::Draining => PipeState::Draining,
            Lane::Leased(_) => PipeState::Leased,
            Lane::Closed => PipeState::Closed,
        };
        (state, queue.entries.iter().map(|entry| entry.request.bytes()).sum())
    };
    pipe.counters.snapshot(state, pipe.load.entries(), bytes)
}

/// What an asker's slot held. A slot without an answer means that the pipe's task was torn down.
pub(crate) fn received<D: Driver>(
    answer: Result<Reply<D::Wire>, tokio::sync::oneshot::error::RecvError>,
) -> Result<AnswerOf<D>, Fault<D>> {
    answer.unwrap_or_else(|_| Err(faults::runtime_gone().with_outcome(Outcome::Unknown)))
}
