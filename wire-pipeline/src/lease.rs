//! One pipe for one task.
//!
//! A lease is owned and `'static`. Requests go out in the order in which they are submitted, also around one that
//! needs a forerunner. Dropping it gives the pipe back: the pump finishes what is out, puts the session right, and
//! only then does anybody else use it. Knows nothing of transactions: what opens and closes a unit of work is the
//! driver's.

use std::sync::Arc;

use tokio::time::Instant;

use crate::entry::Entry;
use crate::faults;
use crate::gate::Gate;
use crate::options::Options;
use crate::pipe::grant::Grant;
use crate::pool::shared::{Shared, received};
use crate::wire::{AnswerOf, Driver, Fault, Opening, Request, RequestOf};

/// One pipe for one task; see the module.
pub struct Lease<D: Driver> {
    shared: Arc<Shared<D>>,
    grant: Grant<D::Wire>,
    gate: Arc<Gate>,
}

impl<D: Driver> Lease<D> {
    pub(crate) fn new(shared: &Arc<Shared<D>>, grant: Grant<D::Wire>) -> Self {
        let gate = Gate::new(shared.options.max_in_flight, shared.options.queue_bytes, &shared.budget);
        Self { shared: Arc::clone(shared), grant, gate }
    }

    /// Sends a request and waits for its answer. What is submitted first goes out first.
    ///
    /// Cancel safe like [`Pool::submit`](crate::Pool::submit).
    pub async fn submit(&self, request: RequestOf<D>, deadline: Instant) -> Result<AnswerOf<D>, Fault<D>> {
        self.enqueue(request, deadline).await?.await
    }

    /// Gives a request its place in the order, as soon as there is room, and returns what waits for its answer.
    ///
    /// When that is dropped before the request went out, it never runs.
    pub async fn enqueue(
        &self,
        request: RequestOf<D>,
        deadline: Instant,
    ) -> Result<impl Future<Output = Result<AnswerOf<D>, Fault<D>>> + Send + use<D>, Fault<D>> {
        self.shared.check_process()?;
        let since = Instant::now();
        let pass = match self.gate.try_enter(request.bytes()) {
            Some(pass) => pass,
            None => self.shared.wait_for_room(&self.gate, request.bytes(), since, deadline).await?,
        };
        let (entry, answer) = Entry::new(request, since, deadline, Some(pass));
        if let Err(entry) = self.grant.push(entry) {
            entry.fail(faults::lease_over());
        }
        Ok(async move { received::<D>(answer.await) })
    }

    /// `future`, or `None` when `deadline` passes first; as [`Pool::until`](crate::Pool::until).
    pub async fn until<F: Future>(&self, deadline: Instant, future: F) -> Option<F::Output> {
        self.shared.until(deadline, future).await
    }

    /// What goes out with the next request, before it and bound to it.
    pub fn set_opening(&self, opening: RequestOf<D>) {
        self.grant.set_opening(Opening(Box::new(opening)));
    }

    /// Takes back an opening that no request has taken along. `None`: it is on its way.
    pub fn take_opening(&self) -> Option<RequestOf<D>> {
        self.grant.take_opening().map(|Opening(request)| *request)
    }

    /// The session may be changed from now on: it is reset before others use it.
    pub fn touch(&self) {
        self.grant.touch();
    }

    /// Whether the connection is still there.
    pub fn is_alive(&self) -> bool {
        self.grant.is_alive()
    }

    /// The options of its pool.
    pub fn options(&self) -> &Options {
        &self.shared.options
    }

    /// The driver of its pool.
    pub fn driver(&self) -> &D {
        &self.shared.driver
    }

    /// Waits until the pipe's task has ended; only for a connection without a pool, after it was dropped.
    pub fn ended(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut running = self.shared.subscribe_running();
        async move {
            let _ = running.wait_for(|running| *running == 0).await;
        }
    }
}
