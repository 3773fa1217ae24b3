//! One connection and everything that belongs to it.
//!
//! A pipe has two halves. The [`Pipe`] in this file is what everybody sees: a queue under one short lock, and a few
//! counters. Everything that depends on the connection belongs to the pump alone: [`core`] is its state without any
//! IO (what is out, what waits), [`pump`] moves the bytes and walks the stages below, [`run`] connects, and connects
//! again.
//!
//! ```text
//!            connected            settled              drain asked         empty
//!  Down ────────────────▶ Settling ──────▶ Shared ───────────────▶ Draining ─────▶ Leased
//!   ▲                      ▲  ▲              │                         │             │
//!   │ lost, from any stage │  └─ found ──────┘     nobody wants it any more          │
//!   │                      │     tainted           (back to Shared)                  │
//!                          └───────────────────── returned ──────────────────────────┘
//!  (settled after a lease: to the next who waits for one, else Shared)
//! ```
//!
//! **The hold rule.** An idle pipe writes at once. While a batch is out, entries gather in the queue and leave
//! together when the oldest batch has been answered whole; nobody wakes the pump for them meanwhile. Held entries
//! can still go to another pipe. There is no timer in it.

pub(crate) mod core;
pub(crate) mod grant;
pub(crate) mod hold;
pub(crate) mod pump;
pub(crate) mod run;

use std::collections::VecDeque;

use crate::entry::{Class, Entry};
use crate::stats::Counters;
use crate::sync::{
    AtomicBool, AtomicU64, AtomicUsize, AtomicWaker, Mutex, MutexGuard, Ordering, PoisonError,
};
use crate::wire::{Opening, Request, Wire};

/// Which pipe of a pool, from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct PipeId(pub(crate) usize);

/// Tells one lease of a pipe from the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct LeaseId(pub(crate) u64);

/// Who may put entries into the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lane {
    /// No connection.
    Down,
    /// The pump puts the session right.
    Settling,
    /// Everybody.
    Shared,
    /// Nobody: it is being emptied for a lease.
    Draining,
    /// The holder of this lease.
    Leased(LeaseId),
    /// Nobody, for ever.
    Closed,
}

/// A pipe as its users and its pump share it. On cache lines of its own: every submission reads the loads of all.
#[repr(align(128))]
pub(crate) struct Pipe<W: Wire> {
    pub(crate) id: PipeId,
    queue: Mutex<Queue<W>>,
    pub(crate) load: Load,
    pub(crate) counters: Counters,
    /// The pump's task.
    pub(crate) waker: AtomicWaker,
}

/// What the lock guards.
pub(crate) struct Queue<W: Wire> {
    pub(crate) entries: VecDeque<Entry<W>>,
    pub(crate) lane: Lane,
    /// Goes out with the first entry of a lease.
    pub(crate) opening: Option<Opening<W::Request>>,
    /// The pump sleeps and would write at once: wake it for a new entry.
    pub(crate) pump_idle: bool,
    /// Somebody wants a lease of this pipe.
    pub(crate) drain: bool,
    /// The lease came back; whether its holder may have changed the session.
    pub(crate) returned: Option<bool>,
    /// The pool is closing.
    pub(crate) closing: bool,
}

/// How busy a pipe is; read without the lock by whoever chooses a pipe.
#[derive(Debug)]
pub(crate) struct Load {
    /// The lane is shared.
    pub(crate) open: AtomicBool,
    /// The oldest entry has been out for too long: nothing new comes here, and what is not sent is given back.
    pub(crate) overdue: AtomicBool,
    /// Entries queued and in flight.
    entries: AtomicUsize,
    /// Expected work of all entries, in microseconds.
    micros: AtomicU64,
    /// The part of it that belongs to slow entries.
    slow_micros: AtomicU64,
    /// Until when the oldest entry may be out without keeping new ones away, in microseconds since the pool began;
    /// [`Load::NOTHING_OUT`] when there is none.
    cool_until: AtomicU64,
    /// What an answer takes at least, in microseconds: the way there and back.
    way_micros: AtomicU64,
}

impl Default for Load {
    fn default() -> Self {
        Self {
            open: AtomicBool::new(false),
            overdue: AtomicBool::new(false),
            entries: AtomicUsize::new(0),
            micros: AtomicU64::new(0),
            slow_micros: AtomicU64::new(0),
            cool_until: AtomicU64::new(Self::NOTHING_OUT),
            way_micros: AtomicU64::new(0),
        }
    }
}

impl Load {
    /// See `cool_until`.
    pub(crate) const NOTHING_OUT: u64 = u64::MAX;

    /// Whether the oldest entry has been out for so long that new ones are better off elsewhere.
    pub(crate) fn is_hot(&self, now_micros: u64) -> bool {
        self.cool_until.load(Ordering::SeqCst) < now_micros
    }

    pub(crate) fn set_head(&self, cool_until: u64, way_micros: u64) {
        self.cool_until.store(cool_until, Ordering::SeqCst);
        self.way_micros.store(way_micros, Ordering::Relaxed);
    }

    pub(crate) fn way_micros(&self) -> u64 {
        self.way_micros.load(Ordering::Relaxed)
    }

    /// Expected work of the slow entries, in microseconds.
    pub(crate) fn slow_micros(&self) -> u64 {
        self.slow_micros.load(Ordering::SeqCst)
    }

    pub(crate) fn entries(&self) -> usize {
        self.entries.load(Ordering::SeqCst)
    }

    pub(crate) fn micros(&self) -> u64 {
        self.micros.load(Ordering::Relaxed)
    }

    pub(crate) fn add<W: Wire>(&self, entry: &Entry<W>) {
        self.entries.fetch_add(1, Ordering::SeqCst);
        self.micros.fetch_add(u64::from(entry.micros), Ordering::Relaxed);
        if entry.class() == Class::Slow {
            self.slow_micros.fetch_add(u64::from(entry.micros), Ordering::SeqCst);
        }
    }

    /// No entry is left, whatever became of them; nobody may add one meanwhile.
    pub(crate) fn clear(&self) {
        self.entries.store(0, Ordering::SeqCst);
        self.micros.store(0, Ordering::Relaxed);
        self.slow_micros.store(0, Ordering::SeqCst);
        self.set_head(Self::NOTHING_OUT, 0);
    }

    pub(crate) fn sub<W: Wire>(&self, entry: &Entry<W>) {
        self.entries.fetch_sub(1, Ordering::SeqCst);
        self.micros.fetch_sub(u64::from(entry.micros), Ordering::Relaxed);
        if entry.class() == Class::Slow {
            self.slow_micros.fetch_sub(u64::from(entry.micros), Ordering::SeqCst);
        }
    }
}

/// Whose request it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Via {
    /// The shared handle; the pipe takes at most this many entries.
    Pool { max_in_flight: usize },
    /// The holder of a lease.
    Lease(LeaseId),
}

impl<W: Wire> Pipe<W> {
    pub(crate) fn new(id: PipeId) -> Self {
        Self {
            id,
            queue: Mutex::new(Queue {
                entries: VecDeque::new(),
                lane: Lane::Down,
                opening: None,
                pump_idle: false,
                drain: false,
                returned: None,
                closing: false,
            }),
            load: Load::default(),
            counters: Counters::default(),
            waker: AtomicWaker::new(),
        }
    }

    /// The queue. Nothing under this lock makes a system call, wakes, or runs or drops anything of a user's; a panic
    /// under it is impossible by construction, so that poison is ignored.
    pub(crate) fn queue(&self) -> MutexGuard<'_, Queue<W>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts an entry into the queue, or hands it back if this pipe does not take it.
    pub(crate) fn push(&self, mut entry: Entry<W>, via: Via) -> Result<(), Entry<W>> {
        let mut queue = self.queue();
        let admitted = match (via, queue.lane) {
            (Via::Pool { max_in_flight }, Lane::Shared) => self.load.entries() < max_in_flight,
            (Via::Lease(id), Lane::Leased(current)) => id == current,
            _ => false,
        };
        if !admitted {
            drop(queue);
            return Err(entry);
        }
        if let Some(opening) = queue.opening.take() {
            entry.request.open(opening);
        }
        self.load.add(&entry);
        queue.entries.push_back(entry);
        let wake = std::mem::take(&mut queue.pump_idle);
        drop(queue);
        if wake {
            self.waker.wake();
        }
        Ok(())
    }

    /// Changes something that the pump must hear of.
    pub(crate) fn signal(&self, change: impl FnOnce(&mut Queue<W>)) {
        change(&mut self.queue());
        self.waker.wake();
    }
}
