//! Keeps the deadlines of what waits for a pipe. What waits, and in which order, is the waiting queue's.

use std::sync::Weak;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::pool::shared::Shared;
use crate::wire::Driver;

/// How often deadlines are looked at while something waits.
const TICK: Duration = Duration::from_millis(10);

/// Answers waiting entries whose deadline has passed. Sleeps while nothing waits, and ends with the pool.
pub(crate) async fn keep<D: Driver>(shared: Weak<Shared<D>>) {
    loop {
        let Some(filled) = shared.upgrade().map(|shared| shared.overflow.filled()) else { return };
        let Some(strong) = shared.upgrade() else { return };
        if !strong.has_overflow() {
            if strong.has_ended() {
                return;
            }
            drop(strong);
            filled.notified().await;
            continue;
        }
        let now = Instant::now();
        let expired = strong.overflow.take_where(|entry| entry.deadline <= now || entry.is_abandoned());
        for entry in expired {
            let fault = strong.not_taken(entry.since, entry.class());
            entry.fail(fault);
        }
        // A pipe that got room while nobody looked.
        strong.serve_overflow();
        strong.serve_patient();
        drop(strong);
        sleep(TICK).await;
    }
}
