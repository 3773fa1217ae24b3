//! What a pool tells of itself.

use std::panic::Location;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A snapshot of a pool; see the fields. Taking one costs a few atomic loads and a short lock per pipe.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct PoolStats {
    /// One per connection.
    pub pipes: Vec<PipeStats>,
    /// Requests that no pipe can take at the moment.
    pub waiting: usize,
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

/// A snapshot of one pipe.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct PipeStats {
    /// What it is doing.
    pub state: PipeState,
    /// Requests queued and in flight.
    pub in_flight: usize,
    /// Bytes of the requests in its queue.
    pub queued_bytes: usize,
    /// Requests answered, with a result or an error of the server.
    pub queries: u64,
    /// Of these, answered with an error.
    pub errors: u64,
    /// Connections made after the first.
    pub reconnects: u64,
    /// Writes handed to the kernel.
    pub writes: u64,
    /// Batches by size: `batch_sizes[i]` counts those of 2^i to 2^(i+1) − 1 requests; the last one all larger.
    pub batch_sizes: [u64; BATCH_CLASSES],
    /// Requests that left in batches; divided by their number it is the average batch.
    pub batched: u64,
}

/// Number of classes in [`PipeStats::batch_sizes`].
pub const BATCH_CLASSES: usize = 10;

/// The counters behind [`PipeStats`]; written by the pump alone.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    queries: AtomicU64,
    errors: AtomicU64,
    connections: AtomicU64,
    writes: AtomicU64,
    batched: AtomicU64,
    batch_sizes: [AtomicU64; BATCH_CLASSES],
}

impl Counters {
    pub(crate) fn answered(&self, queries: u64, errors: u64) {
        self.queries.fetch_add(queries, Ordering::Relaxed);
        if errors > 0 {
            self.errors.fetch_add(errors, Ordering::Relaxed);
        }
    }

    pub(crate) fn connected(&self) {
        self.connections.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn wrote(&self) {
        self.writes.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn batch(&self, entries: usize) {
        if let Some(class) = entries.checked_ilog2() {
            self.batch_sizes[(class as usize).min(BATCH_CLASSES - 1)].fetch_add(1, Ordering::Relaxed);
            self.batched.fetch_add(entries as u64, Ordering::Relaxed);
        }
    }

    pub(crate) fn snapshot(&self, state: PipeState, in_flight: usize, queued_bytes: usize) -> PipeStats {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        PipeStats {
            state,
            in_flight,
            queued_bytes,
            queries: load(&self.queries),
            errors: load(&self.errors),
            reconnects: load(&self.connections).saturating_sub(1),
            writes: load(&self.writes),
            batch_sizes: std::array::from_fn(|class| load(&self.batch_sizes[class])),
            batched: load(&self.batched),
        }
    }
}
