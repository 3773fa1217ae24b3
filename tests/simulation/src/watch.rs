//! What must hold at every moment, by what the pool tells of itself.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pg_pipeline::{PipeState, PoolStats};
use tokio::time::{Instant, sleep};

use crate::client::Database;
use crate::log::Log;
use crate::reports;
use crate::weather::Settings;
use crate::world::{LARGEST, World};

/// How often somebody looks who does nothing else.
const EVERY: Duration = Duration::from_millis(50);
/// The coarse timers of the engine, and rounding.
const SLACK: Duration = Duration::from_millis(15);
/// Bytes of a request beside its large argument; those of a batch.
const OVERHEAD: usize = 400;
const KIB: usize = 1024;

/// Who holds a lease, or is about to, and who has given one back lately.
#[derive(Debug, Default)]
pub struct Holders(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    now: usize,
    gone: VecDeque<Instant>,
}

/// Somebody who may hold leases.
#[derive(Debug)]
pub struct Holding {
    holders: Arc<Holders>,
    most: usize,
}

impl Drop for Holding {
    fn drop(&mut self) {
        self.holders.state().now -= self.most;
        self.gave_back(self.most);
    }
}

impl Holding {
    /// So many leases were given back now, and others are taken.
    pub fn gave_back(&self, leases: usize) {
        let now = Instant::now();
        self.holders.state().gone.extend(std::iter::repeat_n(now, leases));
    }
}

impl Holders {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Somebody may hold a lease from now on.
    pub fn holds(self: &Arc<Self>) -> Holding {
        self.holds_up_to(1)
    }

    /// The same for several, of which nobody sees when they are given back.
    pub fn holds_up_to(self: &Arc<Self>, most: usize) -> Holding {
        self.state().now += most;
        Holding { holders: Arc::clone(self), most }
    }

    /// How many may hold one, and how many have given one back for which `grace` has not passed.
    fn count(&self, grace: Duration) -> (usize, usize) {
        let mut state = self.state();
        while state.gone.front().is_some_and(|gone| gone.elapsed() > grace) {
            state.gone.pop_front();
        }
        (state.now, state.gone.len())
    }
}

impl<D: Database> World<D> {
    /// What the pool tells of itself lies within its limits.
    pub fn check_limits(&self) -> PoolStats {
        let stats = D::stats(&self.pool);
        let Settings { connections, max_in_flight, answer_budget, .. } = self.settings;
        let most = connections * max_in_flight;
        let leases = if connections > 2 { connections - 2 } else { connections - 1 };
        // Statements on leases have limits of their own.
        if stats.pipes.iter().any(|pipe| pipe.in_flight > max_in_flight)
            || stats.waiting > most
            || stats.leased > leases
            || stats.answer_bytes > answer_budget
        {
            self.log.violation(format!("over its limits: {stats:?}"));
        }
        if stats.waiting > 0 {
            self.log.note("waits for a pipe", [stats.waiting as i64, 0, 0]);
        }
        self.check_bytes(&stats);
        self.check_leases(&stats);
        stats
    }

    /// What waits to be sent: on shared pipes together, and on each lease.
    fn check_bytes(&self, stats: &PoolStats) {
        let limit = |bytes: usize| (bytes / KIB).max(1) * KIB;
        // One that is larger than the limit is admitted alone; as text (MySQL) bytes are written as two digits each.
        let largest = 2 * LARGEST * KIB;
        let within = |waits: usize, entries: usize, bytes: usize| {
            waits <= limit(bytes).max(largest) + OVERHEAD * entries
        };
        let Settings { connections, queue_bytes, .. } = self.settings;
        let is_leased = |state: PipeState| state == PipeState::Leased;
        let shared = stats.pipes.iter().filter(|pipe| !is_leased(pipe.state));
        let (waits, entries) = shared
            .fold((0, 0), |(waits, entries), pipe| (waits + pipe.queued_bytes, entries + pipe.in_flight));
        if waits > 0 {
            self.log.note("bytes wait", [waits as i64, entries as i64, 0]);
        }
        let leased = || stats.pipes.iter().filter(|pipe| is_leased(pipe.state));
        if !within(waits, entries, queue_bytes * connections)
            || leased().any(|pipe| !within(pipe.queued_bytes, pipe.in_flight, queue_bytes))
        {
            self.log.violation(format!("too many bytes wait: {stats:?}"));
        }
    }

    /// No lease outlives its holder by more than what may still be out on it and putting its session right.
    fn check_leases(&self, stats: &PoolStats) {
        let Settings { query_timeout, stall_timeout, connect_timeout, lease_report_after, .. } =
            self.settings;
        let grace = query_timeout + stall_timeout + connect_timeout * 2 + SLACK * 2;
        let (now, gone) = self.holders.count(grace);
        if stats.leased > now + gone {
            self.log.violation(format!("{now} hold leases, {gone} have given one back lately: {stats:?}"));
        }
        if lease_report_after.is_zero() {
            return;
        }
        let long = stats.leases.iter().filter(|lease| lease.held_for > lease_report_after + SLACK);
        let unreported = long.filter(|lease| !reports::has_reported(Instant::now() - lease.held_for)).count();
        // One that was given back before its time is not reported while its session is put right.
        let settling = stats.pipes.iter().filter(|pipe| pipe.state == PipeState::Settling).count();
        if unreported > settling {
            self.log
                .violation(format!("{unreported} leases are held for long, and nobody says so: {stats:?}"));
        }
    }

    /// Looks on, for as long as it is polled: at the limits, and that no pipe stands still.
    pub async fn look_on(self) {
        let Settings { query_timeout, stall_timeout, connect_timeout, .. } = self.settings;
        let longest = query_timeout + stall_timeout + connect_timeout + EVERY + SLACK;
        let mut still: Vec<(u64, Instant)> = vec![(0, Instant::now()); self.settings.connections];
        loop {
            let stats = self.check_limits();
            for (pipe, (done, since)) in stats.pipes.iter().zip(&mut still) {
                let now = pipe.queries + pipe.reconnects + pipe.writes;
                let works =
                    pipe.in_flight > 0 && !matches!(pipe.state, PipeState::Connecting | PipeState::Closed);
                if now != *done || !works {
                    (*done, *since) = (now, Instant::now());
                } else if since.elapsed() > longest {
                    self.log.violation(format!("a pipe stands still: {stats:?}"));
                    *since = Instant::now();
                }
            }
            sleep(EVERY).await;
        }
    }
}

/// What was reported of leases that were held for long was due then, and was said in time.
pub fn check_reports(log: &Log, settings: &Settings) {
    for held in reports::all() {
        log.note("lease reported", [held.as_millis() as i64, 0, 0]);
        let after = settings.lease_report_after;
        if after.is_zero() || held < after || held > after + SLACK {
            log.violation(format!("a lease was reported after {held:?}, not after {after:?}"));
        }
    }
}
