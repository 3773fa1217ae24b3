//! What the engine says of leases that are held for long: the run of each thread listens for its own.

use std::cell::RefCell;
use std::fmt;
use std::sync::Once;
use std::time::Duration;

use tokio::time::Instant;
use tracing::field::{Field, Visit};
use tracing::span;
use tracing::{Event, Level, Metadata, Subscriber};

/// A report: since when the lease was held, and for how long.
type Report = (Instant, Duration);

thread_local! {
    static REPORTS: RefCell<Vec<Report>> = const { RefCell::new(Vec::new()) };
}

/// Begins to listen, and forgets what was heard before.
pub fn listen() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // Somebody else may listen to everything already: then nothing is heard, and the checks say so.
        let _ = tracing::subscriber::set_global_default(Listener);
    });
    REPORTS.with_borrow_mut(Vec::clear);
}

/// Whether a lease held since then was reported; times are told in whole milliseconds.
pub fn has_reported(since: Instant) -> bool {
    const EXACT: Duration = Duration::from_millis(1);
    REPORTS.with_borrow(|reports| {
        reports.iter().any(|(reported, _)| *reported <= since + EXACT && since <= *reported + EXACT)
    })
}

/// For how long each lease had been held when it was reported.
pub fn all() -> Vec<Duration> {
    REPORTS.with_borrow(|reports| reports.iter().map(|(_, held)| *held).collect())
}

struct Listener;

impl Subscriber for Listener {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event()
            && *metadata.level() == Level::WARN
            && metadata.fields().iter().any(|field| field.name() == "held_ms")
    }

    fn event(&self, event: &Event<'_>) {
        event.record(&mut Held);
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

struct Held;

impl Visit for Held {
    fn record_u64(&mut self, field: &Field, value: u64) {
        if field.name() == "held_ms" {
            let held = Duration::from_millis(value);
            REPORTS.with_borrow_mut(|reports| reports.push((Instant::now() - held, held)));
        }
    }

    fn record_debug(&mut self, _: &Field, _: &dyn fmt::Debug) {}
}
