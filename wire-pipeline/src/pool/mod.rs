//! A fixed set of pipes behind one cheap handle.
//!
//! [`Pool`] is what drivers wrap; `shared` is what its pipes know of each other. Choosing a pipe is in `route`,
//! requests that no pipe can take wait in `overflow`, `keeper` keeps their deadlines; `leasing` takes
//! pipes out of sharing for those who wait at the `desk`; `health` tells how connecting goes, and `recovery` who
//! connects while the server refuses.

mod desk;
pub(crate) mod health;
mod keeper;
mod leasing;
mod overflow;
mod recovery;
mod route;
pub(crate) mod shared;

use std::future::Future;
use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout};

use crate::entry::Entry;
use crate::faults;
use crate::lease::Lease;
use crate::options::Options;
use crate::pipe::run::run;
use crate::stats::PoolStats;
use crate::wire::{AnswerOf, Driver, Fault, Request, RequestOf};

use shared::{Shared, received};

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
        spawn_all(&shared);
        Self { handle: Arc::new(HandleGuard { shared }) }
    }

    /// Waits until one pipe is up, or for the first failure's cause.
    pub async fn ready(&self) -> Result<(), Fault<D>> {
        self.shared().health.ready().await
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
        async move { Ok(Lease::new(shared, shared.acquire(holder).await?)) }
    }

    /// Takes no new requests, finishes what is out for at most `limit`, says goodbye, and returns when every pipe
    /// has ended. What is not finished by then fails, and the server is asked to stop it, for up to a second more.
    pub async fn close_within(&self, limit: Duration) {
        let shared = self.shared();
        if shared.check_process().is_err() {
            // Whatever is under way belongs to the other process.
            return;
        }
        shared.begin_closing();
        let mut ended = shared.subscribe_running();
        if timeout(limit, ended.wait_for(|running| *running == 0)).await.is_err() {
            shared.abort();
            // Nothing waits for the network any more but requests to stop, and they for a second at most.
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
        let pipes = shared.start().map(|id| run(Arc::clone(&shared), id)).collect();
        (Self { handle: Arc::new(HandleGuard { shared }) }, pipes)
    }
}

/// Connects once, without a pool: a lease whose pipe ends with it.
pub async fn exclusive<D: Driver>(driver: D, options: Options) -> Result<Lease<D>, Fault<D>> {
    let options = Options { connections: 1, ..options };
    let shared = Shared::new(driver, options, true);
    let grant = shared.desk.reserve(Location::caller());
    spawn_all(&shared);
    shared.health.ready().await?;
    let grant = grant.await.map_err(|_| faults::closed())?;
    Ok(Lease::new(&shared, grant))
}

fn spawn_all<D: Driver>(shared: &Arc<Shared<D>>) {
    for id in shared.start() {
        shared.runtime.spawn(run(Arc::clone(shared), id));
    }
    if !shared.exclusive {
        shared.runtime.spawn(keeper::keep(Arc::downgrade(shared)));
    }
}
