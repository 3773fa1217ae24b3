//! A pipe's life: connect, pump, and connect again.
//!
//! At most two handshakes of a pool run at a time, one pipe probes for all when the server refuses, waits back off with
//! jitter, and a pipe that has lived its time is replaced only when its successor is ready. Decides when to connect; how
//! is the driver's.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::SemaphorePermit;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::faults;
use crate::jitter::{Backoff, Jitter};
use crate::pipe::pump::{End, Pump, unpanicked};
use crate::pipe::{Lane, PipeId};
use crate::pool::health::Attempt;
use crate::pool::shared::Shared;
use crate::stats::Loss;
use crate::wire::{Connected, Driver, Fault};

/// The next connection waits a little when this one lived for less.
const SHORT_LIFE: Duration = Duration::from_secs(1);
/// How long a server is asked to stop when the pool is closed.
const STOPPED_WITHIN: Duration = Duration::from_secs(1);
/// How long a pipe that cannot be replaced now waits before it asks again.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// Runs one pipe until its pool is closed.
pub(crate) async fn run<D: Driver>(shared: Arc<Shared<D>>, id: PipeId) {
    let _last = LastWill { shared: &shared, id };
    let pipe = shared.pipe(id);
    let salt = id.0 as u64;
    let mut backoff = Backoff::new(Jitter::new(shared.options.seed, 2 * salt));
    let mut lifetimes = Jitter::new(shared.options.seed, 2 * salt + 1);
    let mut successor = None;
    loop {
        let (connected, attempt) = match successor.take() {
            Some(made) => made,
            None => match shared.or_closing(connect_in_turn(&shared)).await {
                None => return,
                Some(Ok(made)) => made,
                // Nobody tries again for a connection of its own.
                Some(Err(error)) => return shared.connect_failed(error),
            },
        };
        let mut pump = Pump::new(&shared, pipe, connected, attempt);
        let born = Instant::now();
        let lifetime = lifetimes.around(shared.options.max_lifetime);
        let (end, next) = live(&shared, &mut pump, lifetime, &mut backoff).await;
        successor = next;
        // A connection that ends at once must not be followed by the next one at once.
        let lived = born.elapsed() > SHORT_LIFE;
        if pump.has_served() || (pump.was_ready() && lived) {
            backoff.reset();
        }
        match end {
            End::Closed => {
                pump.dismantle(&faults::closed());
                return;
            }
            End::Retired => {
                pipe.counters.lost(Loss::Lifetime);
                pump.dismantle(&faults::server_closed());
            }
            End::Lost(why, error) => {
                // The pool is closed, and nobody will wait any more for what is out: the server need not work on it to its
                // end.
                let stop = shared.is_aborted().then(|| pump.ask_to_stop()).flatten();
                if pump.was_ready() {
                    pipe.counters.lost(why);
                }
                tracing::debug!(pipe = id.0, kind = ?error.kind(), "connection lost");
                let served = pump.was_ready();
                pump.dismantle(&error);
                if let Some(stop) = stop {
                    let _ = timeout(STOPPED_WITHIN, stop).await;
                }
                if !served || shared.exclusive {
                    shared.recovery.refused();
                    shared.connect_failed(error);
                }
                if shared.exclusive || shared.is_aborted() {
                    return;
                }
                if !lived && shared.or_closing(sleep(backoff.next())).await.is_none() {
                    return;
                }
            }
        }
    }
}

/// A connection, and the attempt that it is until it is up.
type Made<'a, D> = (Connected<D>, Attempt<'a, D>);

/// Pumps until the end; when its time has come, with a successor that is ready.
async fn live<'a, D: Driver>(
    shared: &'a Arc<Shared<D>>,
    pump: &mut Pump<'_, D>,
    lifetime: Duration,
    backoff: &mut Backoff,
) -> (End<D>, Option<Made<'a, D>>) {
    if lifetime.is_zero() || shared.exclusive {
        return (pump.run().await, None);
    }
    let mut retire_at = Instant::now() + lifetime;
    loop {
        tokio::select! {
            biased;
            end = pump.run() => return (end, None),
            () = sleep_until(retire_at) => {}
        }
        // One pipe of a pool at a time, and only one that everybody uses.
        let Ok(_turn) = shared.retiring.try_lock() else {
            retire_at = Instant::now() + ASK_AGAIN;
            continue;
        };
        if !pump.is_shared() {
            retire_at = Instant::now() + ASK_AGAIN;
            continue;
        }
        let made = tokio::select! {
            biased;
            end = pump.run() => return (end, None),
            made = async { connect(shared, handshake(shared).await?).await } => made,
        };
        match made {
            Ok(made) => {
                pump.retire();
                return (pump.run().await, Some(made));
            }
            // The old one serves on.
            Err(_) => retire_at = Instant::now() + backoff.next(),
        }
    }
}

/// Connects, however long it takes; while the server refuses, one pipe after the other. Fails only for a connection of
/// its own.
async fn connect_in_turn<D: Driver>(shared: &Arc<Shared<D>>) -> Result<Made<'_, D>, Fault<D>> {
    loop {
        let Some(mut probe) = shared.recovery.turn().await else {
            let turn = handshake(shared).await?;
            if shared.recovery.is_refused() {
                // Meanwhile another one was.
                continue;
            }
            match connect(shared, turn).await {
                Err(error) if !shared.exclusive => {
                    shared.recovery.refused();
                    shared.connect_failed(error);
                    continue;
                }
                result => return result,
            }
        };
        loop {
            sleep(probe.next()).await;
            match connect(shared, handshake(shared).await?).await {
                Ok(made) => {
                    shared.recovery.over(probe);
                    return Ok(made);
                }
                Err(error) => shared.connect_failed(error),
            }
        }
    }
}

/// The right to shake hands.
async fn handshake<D: Driver>(shared: &Shared<D>) -> Result<SemaphorePermit<'_>, Fault<D>> {
    shared.handshakes.acquire().await.map_err(|_| faults::closed())
}

async fn connect<'a, D: Driver>(
    shared: &'a Arc<Shared<D>>,
    _turn: SemaphorePermit<'_>,
) -> Result<Made<'a, D>, Fault<D>> {
    let attempt = shared.health.begin();
    let limit = shared.options.connect_timeout;
    // What provides passwords and the like is the user's, and may panic.
    match timeout(limit, unpanicked(shared.driver.connect(&shared.budget))).await {
        Ok(result) => result.unwrap_or_else(|| Err(faults::panicked())),
        Err(_) => Err(faults::connect_timeout(limit)),
    }
    .map(|connected| (connected, attempt))
}

/// However the task ends (its runtime was shut down, a panic): nobody waits for it any more.
struct LastWill<'a, D: Driver> {
    shared: &'a Arc<Shared<D>>,
    id: PipeId,
}

impl<D: Driver> Drop for LastWill<'_, D> {
    fn drop(&mut self) {
        let pipe = self.shared.pipe(self.id);
        pipe.load.open.store(false, std::sync::atomic::Ordering::SeqCst);
        let entries = {
            let mut queue = pipe.queue();
            queue.lane = Lane::Closed;
            std::mem::take(&mut queue.entries)
        };
        self.shared.pipe_ended(entries);
    }
}
