//! Whoever holds a lease for long is named once: in a warning, and all the while in the statistics.

mod support;

use std::fmt::{Debug, Write};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use support::{Server, ask, options, pool, run_on, until_idle};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};
use wire_pipeline::Options;

/// Remembers warnings.
#[derive(Debug, Clone, Default)]
struct Warnings(Arc<Mutex<Vec<String>>>);

struct Text<'a>(&'a mut String);

impl Visit for Text<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, "{field}={value:?} ").expect("a string takes everything");
    }
}

impl Subscriber for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() == Level::WARN
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut text = String::new();
        event.record(&mut Text(&mut text));
        self.0.lock().expect("unpoisoned").push(text);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_held_for_long_is_reported_once_with_its_place() {
    for busy in [false, true] {
        let warnings = Warnings::default();
        let _logging = tracing::subscriber::set_default(warnings.clone());
        let server = Server::new();
        let after = Duration::from_secs(2);
        let pool = pool(&server, Options { lease_report_after: after, ..options(3) }).await;
        let short = pool.lease().await.expect("a lease");
        drop(short);
        let line = line!() + 1;
        let lease = pool.lease().await.expect("a lease");
        if busy {
            run_on(&lease, ask(1).takes(Duration::from_secs(5))).await.expect("an answer");
        } else {
            tokio::time::sleep(Duration::from_secs(5)).await;
        }
        let place = format!("{}:{line}:", file!());
        let said = warnings.0.lock().expect("unpoisoned").clone();
        assert_eq!(said.len(), 1, "{said:?}");
        assert!(said[0].contains(&place) && said[0].contains("held_ms=20"), "{said:?}");
        let stats = pool.stats();
        assert_eq!(stats.leases.len(), 1);
        assert!(stats.leases[0].held_for >= Duration::from_secs(5));
        assert!(stats.leases[0].taken_at.to_string().starts_with(&place));
        drop(lease);
        until_idle(&pool).await;
        assert!(pool.stats().leases.is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_reported_where_that_is_switched_off() {
    let warnings = Warnings::default();
    let _logging = tracing::subscriber::set_default(warnings.clone());
    let server = Server::new();
    let pool = pool(&server, Options { lease_report_after: Duration::ZERO, ..options(3) }).await;
    let lease = pool.lease().await.expect("a lease");
    tokio::time::sleep(Duration::from_secs(24 * 60 * 60)).await;
    drop(lease);
    until_idle(&pool).await;
    assert_eq!(warnings.0.lock().expect("unpoisoned").len(), 0);
}
