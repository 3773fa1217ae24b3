//! Who connects while the server refuses: one pipe, for all.
//!
//! ```text
//!              a connection is refused
//!  everybody ─────────────────────────▶ one probes, with back-off; the others wait for it
//!      ▲                                         │
//!      └─────────────────────────────────────────┘ it is connected
//! ```
//!
//! Eight pipes that knock at once do not bring a server back sooner, and many clients that do keep it down.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::{Mutex, MutexGuard};

use crate::jitter::{Backoff, Jitter};

pub(crate) struct Recovery {
    refused: AtomicBool,
    /// Held by the pipe that probes.
    probe: Mutex<Backoff>,
}

/// The right to probe, and how long to wait before each attempt.
pub(crate) type Probe<'a> = MutexGuard<'a, Backoff>;

impl Recovery {
    pub(crate) fn new(seed: Option<u64>) -> Self {
        Self { refused: AtomicBool::new(false), probe: Mutex::new(Backoff::new(Jitter::new(seed, u64::MAX))) }
    }

    /// The latest attempt failed: from now on one pipe probes.
    pub(crate) fn refused(&self) {
        self.refused.store(true, Ordering::SeqCst);
    }

    pub(crate) fn is_refused(&self) -> bool {
        self.refused.load(Ordering::SeqCst)
    }

    /// The probe got through: everybody may connect.
    pub(crate) fn over(&self, mut probe: Probe<'_>) {
        probe.reset();
        self.refused.store(false, Ordering::SeqCst);
    }

    /// Waits for the turn to probe. `None`: the server is back, and there is nothing to probe. Cancel safe.
    pub(crate) async fn turn(&self) -> Option<Probe<'_>> {
        let probe = self.probe.lock().await;
        self.is_refused().then_some(probe)
    }
}
