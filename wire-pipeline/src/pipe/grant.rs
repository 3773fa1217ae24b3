//! The right of one holder to a pipe: only its entries go into the queue, until it is dropped. Then the pump finishes
//! what is out and puts the session right.
//!
//! Does not know who gives it, or how long anybody waits for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::{Lane, LeaseId, Pipe, PipeId, Via};
use crate::entry::Entry;
use crate::wire::{Opening, Wire};

/// One pipe for one holder; dropping it gives the pipe back.
pub(crate) struct Grant<W: Wire> {
    pipes: Arc<[Pipe<W>]>,
    pipe: PipeId,
    id: LeaseId,
    touched: AtomicBool,
}

impl<W: Wire> Grant<W> {
    /// The pipe's lane is opened to the holder, and to nobody else.
    pub(crate) fn new(pipes: &Arc<[Pipe<W>]>, pipe: PipeId, id: LeaseId) -> Self {
        let grant = Self { pipes: Arc::clone(pipes), pipe, id, touched: AtomicBool::new(false) };
        let unused = {
            let mut queue = grant.pipe().queue();
            queue.lane = Lane::Leased(id);
            queue.drain = false;
            queue.returned = None;
            queue.opening.take()
        };
        drop(unused);
        grant
    }

    fn pipe(&self) -> &Pipe<W> {
        &self.pipes[self.pipe.0]
    }

    /// Puts an entry into the queue, or hands it back if the connection is lost.
    pub(crate) fn push(&self, entry: Entry<W>) -> Result<(), Entry<W>> {
        self.pipe().push(entry, Via::Lease(self.id))
    }

    /// What goes out with the next entry, before it and bound to it.
    pub(crate) fn set_opening(&self, opening: Opening<W::Request>) {
        let previous = {
            let mut queue = self.pipe().queue();
            if queue.lane == Lane::Leased(self.id) { queue.opening.replace(opening) } else { None }
        };
        drop(previous);
    }

    /// Takes back an opening that no entry has taken along.
    pub(crate) fn take_opening(&self) -> Option<Opening<W::Request>> {
        let mut queue = self.pipe().queue();
        if queue.lane == Lane::Leased(self.id) { queue.opening.take() } else { None }
    }

    /// The session may be changed from now on.
    pub(crate) fn touch(&self) {
        self.touched.store(true, Ordering::Relaxed);
    }

    /// Whether the connection is still there.
    pub(crate) fn is_alive(&self) -> bool {
        self.pipe().queue().lane == Lane::Leased(self.id)
    }
}

impl<W: Wire> Drop for Grant<W> {
    fn drop(&mut self) {
        let touched = self.touched.load(Ordering::Relaxed);
        let mut unused = None;
        self.pipe().signal(|queue| {
            if queue.lane == Lane::Leased(self.id) {
                queue.returned = Some(touched);
                unused = queue.opening.take();
            }
        });
        drop(unused);
    }
}
