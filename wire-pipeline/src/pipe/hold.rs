//! The hold rule: when a pipe may write the next batch.
//!
//! Knows sizes and times of batches, nothing of what is in them.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

use crate::options::BatchesOut;

/// The batches that are out.
#[derive(Debug)]
pub(crate) struct Hold {
    /// Oldest first.
    batches: VecDeque<Batch>,
    policy: BatchesOut,
    /// Shortest recent time from writing to an idle server until its first answer: the round trip and one entry's
    /// work.
    first_answer: Option<Shortest>,
    /// What the round trip is taken for until something was answered.
    first_way: Duration,
    /// Smoothed work on one entry: the time between two answers of a batch. Unknown until a batch had several.
    each: Option<Duration>,
    /// Smoothed time between the first and the last answer of a batch.
    span: Duration,
}

/// A minimum that is slowly forgotten: the way may have become longer.
#[derive(Debug, Clone, Copy)]
struct Shortest {
    took: Duration,
    /// When it was last met, or last let grow.
    at: Instant,
}

#[derive(Debug)]
struct Batch {
    size: u32,
    /// Entries not yet answered.
    left: usize,
    written: Instant,
    /// The server had nothing else to do when this batch was written.
    alone: bool,
    first_answer: Option<Instant>,
}

impl Hold {
    /// Below this a round trip is not worth hiding: larger batches save more.
    const NEAR: Duration = Duration::from_micros(400);
    /// Shorter spans are noise.
    const SHORTEST_SPAN: Duration = Duration::from_micros(100);
    const MOST_BATCHES: usize = 8;
    /// How often a shortest time grows by a sixty-fourth: it doubles in 45 s in which nothing was as quick.
    const FORGET: Duration = Duration::from_secs(1);

    /// `first_way` is what the round trip is taken for until something was answered.
    pub(crate) fn new(policy: BatchesOut, first_way: Duration) -> Self {
        Self {
            batches: VecDeque::new(),
            policy,
            first_answer: None,
            first_way,
            each: None,
            span: Duration::ZERO,
        }
    }

    /// Whether another batch may leave now.
    pub(crate) fn may_write(&self) -> bool {
        self.batches.is_empty() || self.batches.len() < self.allowed()
    }

    /// One batch near the server. Far from it, as many as keep the server busy during a round trip; the server's own
    /// work is no part of the round trip, or slow statements would send everything else after them.
    fn allowed(&self) -> usize {
        if let BatchesOut::Fixed(count) = self.policy {
            return usize::from(count.max(1));
        }
        let round_trip = self.round_trip();
        if round_trip < Self::NEAR {
            return 1;
        }
        let span = self.span.max(Self::SHORTEST_SPAN);
        let hidden = round_trip.as_micros() / span.as_micros().max(1);
        usize::try_from(hidden).unwrap_or(Self::MOST_BATCHES).saturating_add(1).min(Self::MOST_BATCHES)
    }

    /// The way to the server and back, without its work; zero until that is known.
    pub(crate) fn round_trip(&self) -> Duration {
        match (self.first_answer, self.each) {
            (Some(first), Some(each)) => first.took.saturating_sub(each),
            _ => Duration::ZERO,
        }
    }

    /// What an answer of an idle server takes at least, on the way and for its least work. Where only slow statements
    /// have been answered so far, their work is not taken for a long way.
    pub(crate) fn way(&self) -> Duration {
        match (self.first_answer, self.each) {
            (Some(first), Some(each)) => first.took.saturating_sub(each) + each.min(Self::NEAR),
            (Some(first), None) => first.took.min(self.first_way),
            (None, _) => self.first_way,
        }
    }

    /// A batch begins.
    pub(crate) fn begin(&mut self, now: Instant) {
        let alone = self.batches.is_empty();
        self.batches.push_back(Batch { size: 0, left: 0, written: now, alone, first_answer: None });
    }

    /// One more entry leaves with the batch that was begun last. A batch that leaves in several writes may have been
    /// answered as far as it went; then what follows counts as a new one.
    pub(crate) fn add(&mut self, now: Instant) {
        if self.batches.is_empty() {
            self.begin(now);
        }
        if let Some(batch) = self.batches.back_mut() {
            batch.left += 1;
            batch.size += 1;
        }
    }

    /// `count` answers came, oldest first.
    pub(crate) fn answered(&mut self, mut count: usize, now: Instant) {
        while count > 0 {
            let Some(batch) = self.batches.front_mut() else { return };
            let first = *batch.first_answer.get_or_insert(now);
            let here = count.min(batch.left);
            batch.left -= here;
            count -= here;
            if batch.left > 0 {
                return;
            }
            if batch.alone {
                let took = first.saturating_duration_since(batch.written);
                self.first_answer = Some(Shortest::after(self.first_answer, took, now));
            }
            let span = now.saturating_duration_since(first);
            self.span = (self.span * 7 + span) / 8;
            if batch.size > 1 {
                let each = span / (batch.size - 1);
                self.each = Some(self.each.map_or(each, |before| (before * 7 + each) / 8));
            }
            self.batches.pop_front();
        }
    }
}

impl Shortest {
    fn after(before: Option<Self>, took: Duration, now: Instant) -> Self {
        match before {
            Some(before) if took > before.took => {
                if now.saturating_duration_since(before.at) < Hold::FORGET {
                    before
                } else {
                    Self { took: took.min(before.took * 65 / 64), at: now }
                }
            }
            _ => Self { took, at: now },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WAY: Duration = Duration::from_millis(5);

    fn batch(hold: &mut Hold, now: Instant, entries: usize) {
        hold.begin(now);
        for _ in 0..entries {
            hold.add(now);
        }
    }

    #[test]
    fn the_next_batch_leaves_when_the_oldest_is_answered_whole() {
        let now = Instant::now();
        let mut hold = Hold::new(BatchesOut::Fixed(1), WAY);
        assert!(hold.may_write());
        batch(&mut hold, now, 3);
        assert!(!hold.may_write());
        hold.answered(2, now);
        assert!(!hold.may_write());
        hold.answered(1, now);
        assert!(hold.may_write());
    }

    #[test]
    fn answers_count_across_batches() {
        let now = Instant::now();
        let mut hold = Hold::new(BatchesOut::Fixed(2), WAY);
        batch(&mut hold, now, 2);
        assert!(hold.may_write());
        batch(&mut hold, now, 2);
        assert!(!hold.may_write());
        hold.answered(3, now);
        assert!(hold.may_write());
        hold.answered(1, now);
        assert!(hold.batches.is_empty());
    }

    #[test]
    fn what_leaves_after_the_first_part_was_answered_is_held_for_all_the_same() {
        let now = Instant::now();
        let mut hold = Hold::new(BatchesOut::Fixed(1), WAY);
        batch(&mut hold, now, 2);
        hold.answered(2, now);
        hold.add(now);
        assert!(!hold.may_write());
        hold.answered(1, now);
        assert!(hold.may_write());
    }

    #[test]
    fn a_far_server_gets_more_batches_and_a_near_one_does_not() {
        let mut now = Instant::now();
        let mut settle = |round_trip: Duration| {
            let mut hold = Hold::new(BatchesOut::Adaptive, WAY);
            for _ in 0..20 {
                batch(&mut hold, now, 10);
                now += round_trip;
                hold.answered(1, now);
                now += Duration::from_micros(250);
                hold.answered(9, now);
            }
            batch(&mut hold, now, 1);
            hold.may_write()
        };
        assert!(!settle(Duration::from_micros(60)));
        assert!(settle(Duration::from_millis(1)));
    }

    #[test]
    fn slow_work_is_not_taken_for_a_long_way() {
        let mut now = Instant::now();
        let mut hold = Hold::new(BatchesOut::Adaptive, WAY);
        for _ in 0..20 {
            batch(&mut hold, now, 2);
            now += Duration::from_millis(50);
            hold.answered(1, now);
            now += Duration::from_millis(50);
            hold.answered(1, now);
        }
        batch(&mut hold, now, 1);
        assert!(!hold.may_write());
        assert!(hold.way() < Duration::from_millis(1), "{:?}", hold.way());
    }

    #[test]
    fn slow_statements_alone_do_not_make_the_way_long_either() {
        let mut now = Instant::now();
        let mut hold = Hold::new(BatchesOut::Adaptive, WAY);
        for _ in 0..3 {
            batch(&mut hold, now, 1);
            now += Duration::from_millis(300);
            hold.answered(1, now);
        }
        assert_eq!(hold.way(), WAY);
        batch(&mut hold, now, 1);
        now += Duration::from_millis(1);
        hold.answered(1, now);
        assert_eq!(hold.way(), Duration::from_millis(1));
    }
}
