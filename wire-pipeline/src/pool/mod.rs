//! A fixed set of pipes behind one cheap handle.
//!
//! [`Pool`] is what drivers wrap; `Shared` is what its pipes know of each other. Choosing a pipe is in `route`,
//! requests that no pipe can take wait in `overflow`, leases are given out by `desk`, and
//! `recovery` says who connects while the server refuses.

pub(crate) mod desk;
mod overflow;
mod recovery;
mod route;

use std::collections::VecDeque;
use std::future::Future;
use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{Mutex, Semaphore, watch};
use tokio::time::{Instant, timeout};

use crate::answer::Budget;
use crate::entry::{Class, Entry, Reply};
use crate::error::Outcome;
use crate::faults;
use crate::fork::Process;
use crate::gate::{Gate, Pass};
use crate::lease::Lease;
use crate::options::Options;
use crate::pipe::{Lane, Pipe, PipeId};
use crate::stats::{PipeState, PipeStats, PoolStats};
use crate::sync::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use crate::wire::{AnswerOf, Driver, Fault, Request, RequestOf};

use desk::Desk;
use overflow::Overflow;
use recovery::Recovery;

/// Handshakes of one pool that may run at a time.
const HANDSHAKES: usize = 2;

/// A pool of pipes. Cheap to clone; when the last clone is dropped the pipes finish what is out and say goodbye.
pub struct Pool<D: Driver> {
    handle: Arc<HandleGuard<D>>,
}

impl<D: Driver> Clone for Pool<D> {
    fn clone(&self) -> Self {
        Self { handle: Arc::clone(&self.handle) }
    }
}

/// Starts the closing when the last handle goes.
struct HandleGuard<D: Driver> {
    shared: Arc<Shared<D>>,
}

impl<D: Driver> Drop for HandleGuard<D> {
    fn drop(&mut self) {
        self.shared.begin_closing();
    }
}

impl<D: Driver> Pool<D> {
    /// Starts a pool on the current tokio runtime. Never fails: pipes connect in the background.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub fn start(driver: D, options: Options) -> Self {
        let shared = Shared::new(driver, options, false);
        shared.spawn_all();
        Self { handle: Arc::new(HandleGuard { shared }) }
    }

    /// Waits until one pipe is up, or for the first failure's cause.
    pub async fn ready(&self) -> Result<(), Fault<D>> {
        self.shared().ready().await
    }

    /// Sends a request through whichever pipe is expected to answer first, and waits for its answer.
    ///
    /// Cancel safe: a request whose future is dropped before its bytes went out never runs; later its answer is read
    /// and discarded.
    pub async fn submit(&self, request: RequestOf<D>, deadline: Instant) -> Result<AnswerOf<D>, Fault<D>> {
        let shared = self.shared();
        shared.check_process()?;
        let since = Instant::now();
        let pass = match shared.gate.try_enter(request.bytes()) {
            Some(pass) => pass,
            None => shared.wait_for_room(&shared.gate, request.bytes(), since, deadline).await?,
        };
        let (entry, answer) = Entry::new(request, since, deadline, Some(pass));
        shared.place(entry);
        received::<D>(answer.await)
    }

    /// Takes one pipe out of sharing. Waits in order of arrival, at most `acquire_timeout`.
    ///
    /// Reports of leases that are held for long name the caller's place in the code. Cancel safe: giving up loses the
    /// place in the order and nothing else.
    #[track_caller]
    pub fn lease(&self) -> impl Future<Output = Result<Lease<D>, Fault<D>>> + Send + use<'_, D> {
        self.lease_for(Location::caller())
    }

    /// The same for a caller whose place in the code is known.
    pub fn lease_for(
        &self,
        holder: &'static Location<'static>,
    ) -> impl Future<Output = Result<Lease<D>, Fault<D>>> + Send + use<'_, D> {
        let shared = self.shared();
        async move { shared.desk.acquire(shared, holder).await }
    }

    /// Takes no new requests, finishes what is out for at most `limit`, says goodbye, and returns when every pipe
    /// has ended.
    pub async fn close_within(&self, limit: Duration) {
        let shared = self.shared();
        if shared.process.is_over() {
            // Whatever is under way belongs to the other process.
            return;
        }
        shared.begin_closing();
        let mut ended = shared.running.subscribe();
        if timeout(limit, ended.wait_for(|running| *running == 0)).await.is_err() {
            shared.abort();
            // Nothing waits for the network any more: this is a matter of scheduling.
            let _ = ended.wait_for(|running| *running == 0).await;
        }
    }

    /// `future`, or `None` when `deadline` passes first or the pool has ended; on any executor, by the timer of the pool's runtime.
    pub async fn until<F: Future>(&self, deadline: Instant, future: F) -> Option<F::Output> {
        self.shared().until(deadline, future).await
    }

    /// A snapshot of what the pool is doing.
    pub fn stats(&self) -> PoolStats {
        self.shared().stats()
    }

    /// The options it was started with.
    pub fn options(&self) -> &Options {
        &self.shared().options
    }

    /// The driver it was started with.
    pub fn driver(&self) -> &D {
        &self.shared().driver
    }

    fn shared(&self) -> &Arc<Shared<D>> {
        &self.handle.shared
    }
}

#[cfg(test)]
impl<D: Driver> Pool<D> {
    /// A pool whose pipes are the caller's to run; nobody keeps the deadlines of what waits.
    pub(crate) fn with_own_tasks(
        driver: D,
        options: Options,
    ) -> (Self, Vec<impl Future<Output = ()> + Send + 'static>) {
        let shared = Shared::new(driver, options, false);
        shared.running.send_replace(shared.pipes.len());
        let run = |pipe: &Pipe<D::Wire>| crate::pipe::run::run(Arc::clone(&shared), pipe.id);
        let pipes = shared.pipes.iter().map(run).collect();
        (Self { handle: Arc::new(HandleGuard { shared }) }, pipes)
    }
}

/// Connects once, without a pool: a lease whose pipe ends with it.
pub async fn exclusive<D: Driver>(driver: D, options: Options) -> Result<Lease<D>, Fault<D>> {
    let options = Options { connections: 1, ..options };
    let shared = Shared::new(driver, options, true);
    let lease = shared.desk.reserve(Location::caller());
    shared.spawn_all();
    shared.ready().await?;
    lease.await.map_err(|_| faults::closed())
}

/// What an asker's slot held. A slot without an answer means that the pipe's task was torn down.
pub(crate) fn received<D: Driver>(
    answer: Result<Reply<D::Wire>, tokio::sync::oneshot::error::RecvError>,
) -> Result<AnswerOf<D>, Fault<D>> {
    answer.unwrap_or_else(|_| Err(faults::runtime_gone().with_outcome(Outcome::Unknown)))
}

/// What the pipes of a pool share.
pub(crate) struct Shared<D: Driver> {
    pub(crate) driver: D,
    pub(crate) options: Options,
    pipes: Box<[Pipe<D::Wire>]>,
    gate: Arc<Gate>,
    pub(crate) budget: Arc<Budget>,
    overflow: Overflow<D::Wire>,
    pub(crate) desk: Desk<D>,
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
    health: watch::Sender<Health<D>>,
    runtime: Handle,
    /// Whose pool it is.
    process: Process,
    /// Where the search for a pipe begins.
    rotation: AtomicUsize,
    began: Instant,
    /// When a quick request came last, roughly, in microseconds since the pool began.
    quick_at: AtomicU64,
}

/// How connecting went.
struct Health<D: Driver> {
    /// A pipe has been up.
    up: bool,
    /// The latest failure.
    failure: Option<Fault<D>>,
}

impl<D: Driver> Shared<D> {
    fn new(driver: D, options: Options, exclusive: bool) -> Arc<Self> {
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
            health: watch::Sender::new(Health { up: false, failure: None }),
            runtime: Handle::current(),
            process: Process::this(),
            rotation: AtomicUsize::new(0),
            began: Instant::now(),
            quick_at: AtomicU64::new(0),
            driver,
            options,
        })
    }

    fn spawn_all(self: &Arc<Self>) {
        self.running.send_replace(self.pipes.len());
        for pipe in &self.pipes {
            self.runtime.spawn(crate::pipe::run::run(Arc::clone(self), pipe.id));
        }
        if !self.exclusive {
            self.runtime.spawn(overflow::keep(Arc::downgrade(self)));
        }
    }

    pub(crate) fn pipe(&self, id: PipeId) -> &Pipe<D::Wire> {
        &self.pipes[id.0]
    }

    async fn ready(&self) -> Result<(), Fault<D>> {
        let mut health = self.health.subscribe();
        let health = health.wait_for(|health| health.up || health.failure.is_some()).await;
        match health {
            Ok(health) if health.up => Ok(()),
            Ok(health) => Err(health.failure.clone().unwrap_or_else(faults::closed)),
            Err(_) => Err(faults::closed()),
        }
    }

    pub(crate) fn connected(&self, pipe: &Pipe<D::Wire>) {
        pipe.counters.connected();
        self.health.send_modify(|health| {
            health.up = true;
            health.failure = None;
        });
    }

    pub(crate) fn connect_failed(&self, error: Fault<D>) {
        tracing::warn!(kind = ?error.kind(), "cannot connect to the database");
        self.health.send_modify(|health| health.failure = Some(error.with_outcome(Outcome::NotSent)));
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

    /// Why no pipe has taken an entry that waits since `since`.
    fn not_taken(&self, since: Instant) -> Fault<D> {
        let open = self.pipes.iter().filter(|pipe| pipe.load.open.load(Ordering::SeqCst)).count();
        let waiting = self.overflow.len(Class::Fast) + self.overflow.len(Class::Slow);
        self.with_cause(faults::not_taken(since.elapsed(), waiting, open, self.pipes.len()))
    }

    /// The error, with the reason for which connections are missing if they are.
    pub(crate) fn with_cause(&self, error: Fault<D>) -> Fault<D> {
        match &self.health.borrow().failure {
            Some(failure) => error.with_source(failure.clone()),
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
        for pipe in &self.pipes {
            pipe.signal(|queue| queue.closing = true);
        }
    }

    fn abort(&self) {
        self.aborted.store(true, Ordering::Release);
        self.wake_all();
    }

    /// Every pump looks at the pool again.
    fn wake_all(&self) {
        for pipe in &self.pipes {
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
        self.desk.turn(self);
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
            self.health.send_modify(|health| {
                health.up = false;
                health.failure.get_or_insert_with(|| self.ended());
            });
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
    fn fail_overflow(&self) {
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

    fn stats(&self) -> PoolStats {
        let (leases, waiting_for_lease) = self.desk.stats();
        PoolStats {
            pipes: self.pipes.iter().map(pipe_stats).collect(),
            waiting: self.overflow.len(Class::Fast) + self.overflow.len(Class::Slow),
            leased: leases.len(),
            leases,
            waiting_for_lease,
            answer_bytes: self.budget.held(),
        }
    }
}

fn pipe_stats<W: crate::wire::Wire>(pipe: &Pipe<W>) -> PipeStats {
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
