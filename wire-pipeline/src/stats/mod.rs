//! What a pool tells of itself.

mod histogram;

use std::panic::Location;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

pub use self::histogram::Histogram;
use self::histogram::{Recorder, add};
use crate::wire::Statements;

/// A snapshot of a pool; see the fields. Taking one costs a few atomic loads and a short lock per pipe.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct PoolStats {
    /// One per connection.
    pub pipes: Vec<PipeStats>,
    /// Requests that no pipe can take at the moment.
    pub waiting: usize,
    /// Callers that wait until the pool has room for their requests (`max_in_flight`, `queue_bytes`, `answer_budget`). Each
    /// holds the parameters that it has encoded: that memory is the callers', as the parameters themselves are.
    pub waiting_for_room: usize,
    /// Leases held now.
    pub leased: usize,
    /// One per lease held now, oldest first.
    pub leases: Vec<LeaseStats>,
    /// Callers that wait for a lease.
    pub waiting_for_lease: usize,
    /// Bytes of answers not yet taken by their askers.
    pub answer_bytes: usize,
}

impl PoolStats {
    /// Requests queued and in flight on all pipes.
    pub fn in_flight(&self) -> usize {
        self.pipes.iter().map(|pipe| pipe.in_flight).sum()
    }

    /// What all pipes have done together.
    pub fn work(&self) -> Work {
        let mut work = Work::default();
        for pipe in &self.pipes {
            work.add(&pipe.work);
        }
        work
    }
}

/// A lease that is held.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct LeaseStats {
    /// For how long.
    pub held_for: Duration,
    /// Where in the code it was taken.
    pub taken_at: &'static Location<'static>,
}

/// What a pipe is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PipeState {
    /// No connection; it is being made.
    Connecting,
    /// Its session is being put right.
    Settling,
    /// It serves everybody.
    Shared,
    /// It is being emptied for a lease.
    Draining,
    /// One task has it alone.
    Leased,
    /// Closed for good.
    Closed,
}

/// A snapshot of one pipe: what it is doing, and through [`Deref`](std::ops::Deref) the [`Work`] that it has done.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct PipeStats {
    /// What it is doing.
    pub state: PipeState,
    /// Requests queued and in flight.
    pub in_flight: usize,
    /// Bytes of the requests in its queue.
    pub queued_bytes: usize,
    /// What it has done.
    pub work: Work,
}

impl std::ops::Deref for PipeStats {
    type Target = Work;

    fn deref(&self) -> &Work {
        &self.work
    }
}

/// What a pipe has done since the pool began, over all its connections; or all pipes together.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Work {
    /// Requests answered, with a result or an error of the server.
    pub queries: u64,
    /// Of these, answered with an error.
    pub errors: u64,
    /// Of these, answered when nobody waited any more: the future was dropped, or its time was up.
    pub discarded: u64,
    /// Connections made after the first.
    pub reconnects: u64,
    /// Why connections ended.
    pub losses: Losses,
    /// Writes handed to the kernel.
    pub writes: u64,
    /// Batches by size: `batch_sizes[i]` counts those of 2^i to 2^(i+1) − 1 requests; the last one all larger.
    pub batch_sizes: [u64; BATCH_CLASSES],
    /// Requests that left in batches; divided by their number it is the average batch.
    pub batched: u64,
    /// Reads that brought answers, by how many they completed, in the classes of `batch_sizes`.
    pub answers_per_read: [u64; BATCH_CLASSES],
    /// From the call until the request was written for its connection: waiting for room, for a batch, for a turn.
    pub waits: Histogram,
    /// From there to its answer: the way to the server and back, and those before it on the connection.
    pub service: Histogram,
    /// Requests that were on a connection behind one that kept the server busy for more than 5 ms.
    pub head_of_line_waits: u64,
    /// Statements that are prepared on the connection now.
    pub statements_cached: usize,
    /// Prepared statements that had to make room for others (`statement_cache`).
    pub statements_evicted: u64,
}

impl Work {
    fn add(&mut self, other: &Self) {
        self.queries += other.queries;
        self.errors += other.errors;
        self.discarded += other.discarded;
        self.reconnects += other.reconnects;
        self.losses.add(&other.losses);
        self.writes += other.writes;
        self.batched += other.batched;
        for class in 0..BATCH_CLASSES {
            self.batch_sizes[class] += other.batch_sizes[class];
            self.answers_per_read[class] += other.answers_per_read[class];
        }
        self.waits.add(&other.waits);
        self.service.add(&other.service);
        self.head_of_line_waits += other.head_of_line_waits;
        self.statements_cached += other.statements_cached;
        self.statements_evicted += other.statements_evicted;
    }
}

/// Why connections that had been made ended, and how often.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Losses {
    /// The server or the network ended it.
    pub ended: u64,
    /// An answer was overdue (`stall_timeout`), or a request to stop was on its way for too long.
    pub stalled: u64,
    /// What came was no answer.
    pub protocol: u64,
    /// The session could not be put right; a server that takes no writes any more is among these.
    pub session: u64,
    /// It had lived its time (`max_lifetime`), and was replaced.
    pub lifetime: u64,
}

impl Losses {
    fn add(&mut self, other: &Self) {
        self.ended += other.ended;
        self.stalled += other.stalled;
        self.protocol += other.protocol;
        self.session += other.session;
        self.lifetime += other.lifetime;
    }
}

/// Why a connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Loss {
    Ended,
    Stalled,
    Protocol,
    Session,
    Lifetime,
}

/// Number of classes in [`Work::batch_sizes`].
pub const BATCH_CLASSES: usize = 10;

/// The counters behind [`Work`]; written by the pipe's task alone.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    queries: AtomicU64,
    errors: AtomicU64,
    discarded: AtomicU64,
    connections: AtomicU64,
    losses: [AtomicU64; 5],
    writes: AtomicU64,
    batched: AtomicU64,
    batch_sizes: [AtomicU64; BATCH_CLASSES],
    answers_per_read: [AtomicU64; BATCH_CLASSES],
    waits: Recorder,
    service: Recorder,
    head_of_line_waits: AtomicU64,
    statements_cached: AtomicUsize,
    statements_evicted: AtomicU64,
}

impl Counters {
    /// A read completed so many requests; `flights` counts the engine's own too.
    pub(crate) fn answered(&self, flights: usize, queries: usize, errors: usize) {
        if let Some(class) = batch_class(flights) {
            add(&self.answers_per_read[class], 1);
        }
        add(&self.queries, queries as u64);
        if errors > 0 {
            add(&self.errors, errors as u64);
        }
    }

    /// Nobody waited for an answer.
    pub(crate) fn discarded(&self) {
        add(&self.discarded, 1);
    }

    pub(crate) fn connected(&self) {
        add(&self.connections, 1);
    }

    pub(crate) fn lost(&self, why: Loss) {
        add(&self.losses[why as usize], 1);
        self.statements_cached.store(0, Ordering::Relaxed);
    }

    pub(crate) fn wrote(&self) {
        add(&self.writes, 1);
    }

    pub(crate) fn batch(&self, entries: usize) {
        if let Some(class) = batch_class(entries) {
            add(&self.batch_sizes[class], 1);
            add(&self.batched, entries as u64);
        }
    }

    /// A request has waited for so long until it was written.
    pub(crate) fn waited(&self, time: Duration) {
        self.waits.record(time);
    }

    /// A request was answered so long after it was written.
    pub(crate) fn served(&self, time: Duration) {
        self.service.record(time);
    }

    /// So many requests were behind a slow one.
    pub(crate) fn waited_behind(&self, requests: usize) {
        add(&self.head_of_line_waits, requests as u64);
    }

    /// What the connection has prepared; `evicted` since this was said last.
    pub(crate) fn statements(&self, Statements { cached, evicted }: Statements) {
        self.statements_cached.store(cached, Ordering::Relaxed);
        if evicted > 0 {
            add(&self.statements_evicted, evicted);
        }
    }

    pub(crate) fn snapshot(&self, state: PipeState, in_flight: usize, queued_bytes: usize) -> PipeStats {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let loss = |why: Loss| load(&self.losses[why as usize]);
        let work = Work {
            queries: load(&self.queries),
            errors: load(&self.errors),
            discarded: load(&self.discarded),
            reconnects: load(&self.connections).saturating_sub(1),
            losses: Losses {
                ended: loss(Loss::Ended),
                stalled: loss(Loss::Stalled),
                protocol: loss(Loss::Protocol),
                session: loss(Loss::Session),
                lifetime: loss(Loss::Lifetime),
            },
            writes: load(&self.writes),
            batch_sizes: std::array::from_fn(|class| load(&self.batch_sizes[class])),
            batched: load(&self.batched),
            answers_per_read: std::array::from_fn(|class| load(&self.answers_per_read[class])),
            waits: self.waits.snapshot(),
            service: self.service.snapshot(),
            head_of_line_waits: load(&self.head_of_line_waits),
            statements_cached: self.statements_cached.load(Ordering::Relaxed),
            statements_evicted: load(&self.statements_evicted),
        };
        PipeStats { state, in_flight, queued_bytes, work }
    }
}

fn batch_class(size: usize) -> Option<usize> {
    Some((size.checked_ilog2()? as usize).min(BATCH_CLASSES - 1))
}
