//! Answers while they are collected, and the memory they may take.
//!
//! A [`Collector`] gathers the messages of one answer. Small answers end up in one allocation of their own size,
//! so that a kept row never keeps a read buffer alive; large ones in chunks of whole messages. The [`Budget`] of a
//! pool counts what all its answers hold until their askers have taken them. Limits never stop reading: an answer
//! over a limit is read to its end, discarded, and fails alone.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use smallvec::SmallVec;
use tokio::sync::Notify;

/// Bytes of answers that a pool may hold.
#[derive(Debug)]
pub struct Budget {
    max_answer: usize,
    limit: usize,
    held: AtomicUsize,
    room: Notify,
}

impl Budget {
    /// At most `max_answer` bytes for one answer and `limit` bytes for all that are held at a time.
    pub fn new(max_answer: usize, limit: usize) -> Arc<Self> {
        Arc::new(Self { max_answer, limit, held: AtomicUsize::new(0), room: Notify::new() })
    }

    /// Bytes held now.
    pub fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    /// Bytes that may be held at a time.
    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    /// Waits until less than the limit is held. Cancel safe.
    pub(crate) async fn room(&self) {
        while self.is_full() {
            let freed = self.room.notified();
            if !self.is_full() {
                return;
            }
            freed.await;
        }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.held() >= self.limit
    }

    /// All of it or nothing: what does not fit takes no room meanwhile from what does.
    fn take(&self, bytes: usize) -> Result<(), Overflow> {
        let fits = |held: usize| held.checked_add(bytes).filter(|held| *held <= self.limit);
        match self.held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits) {
            Ok(_) => Ok(()),
            Err(_) => Err(Overflow::Budget { limit: self.limit }),
        }
    }

    fn give(&self, bytes: usize) {
        let before = self.held.fetch_sub(bytes, Ordering::AcqRel);
        if before >= self.limit.saturating_sub(bytes) {
            self.room.notify_waiters();
        }
    }
}

/// Why an answer was discarded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Overflow {
    /// The answer alone is larger than one answer may be.
    Answer {
        /// `max_answer_bytes`.
        limit: usize,
    },
    /// All answers of the pool together are larger than they may be.
    Budget {
        /// `answer_budget`.
        limit: usize,
    },
}

impl std::fmt::Display for Overflow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Answer { limit } => write!(
                f,
                "the answer is larger than max_answer_bytes ({limit} bytes) and was discarded; fetch it in parts or \
                 raise the limit"
            ),
            Self::Budget { limit } => write!(
                f,
                "the pool's answers together reached answer_budget ({limit} bytes) and this one was discarded; ask \
                 for less at a time or raise the limit"
            ),
        }
    }
}

/// The messages of a complete answer, in order, whole messages in each chunk.
#[derive(Debug)]
pub struct Chunks {
    list: SmallVec<[Bytes; 1]>,
    held: Held,
}

impl Chunks {
    /// The chunks in order.
    pub fn iter(&self) -> impl Iterator<Item = &Bytes> {
        self.list.iter()
    }

    /// Bytes in all chunks.
    pub fn bytes(&self) -> usize {
        self.held.bytes
    }
}

impl IntoIterator for Chunks {
    type Item = Bytes;
    type IntoIter = IntoChunks;

    fn into_iter(self) -> IntoChunks {
        IntoChunks { list: self.list.into_iter(), _held: self.held }
    }
}

/// The chunks in order; counted against the budget until it is dropped.
#[derive(Debug)]
pub struct IntoChunks {
    list: smallvec::IntoIter<[Bytes; 1]>,
    _held: Held,
}

impl Iterator for IntoChunks {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        self.list.next()
    }
}

/// Gives its bytes back to the budget when dropped.
#[derive(Debug)]
struct Held {
    budget: Arc<Budget>,
    bytes: usize,
}

impl Drop for Held {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.budget.give(self.bytes);
        }
    }
}

/// Gathers one answer.
#[derive(Debug)]
pub struct Collector {
    sealed: SmallVec<[Bytes; 1]>,
    current: Vec<u8>,
    held: Held,
    overflow: Option<Overflow>,
}

impl Collector {
    /// A chunk is closed at the first end of a message behind this size.
    const CHUNK: usize = 64 * 1024;

    /// An empty answer; nothing is allocated before bytes arrive.
    pub fn new(budget: &Arc<Budget>) -> Self {
        Self {
            sealed: SmallVec::new(),
            current: Vec::new(),
            held: Held { budget: Arc::clone(budget), bytes: 0 },
            overflow: None,
        }
    }

    /// What it is counted against.
    pub fn budget(&self) -> &Arc<Budget> {
        &self.held.budget
    }

    /// Takes bytes of a message. Over a limit they are dropped, and so is what was collected before.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.hold(bytes.len()) {
            if self.current.is_empty() {
                self.current.reserve_exact(bytes.len());
            }
            self.current.extend_from_slice(bytes);
        }
    }

    /// Counts what is kept of the answer elsewhere; whether it may be kept.
    pub fn hold(&mut self, bytes: usize) -> bool {
        if self.overflow.is_some() {
            return false;
        }
        let limit = self.held.budget.max_answer;
        let taken = if self.held.bytes.saturating_add(bytes) > limit {
            Err(Overflow::Answer { limit })
        } else {
            self.held.budget.take(bytes)
        };
        match taken {
            Ok(()) => {
                self.held.bytes += bytes;
                true
            }
            Err(overflow) => {
                self.discard(overflow);
                false
            }
        }
    }

    /// Tells that a message is whole; chunks end only here.
    pub fn end_message(&mut self) {
        if self.current.len() >= Self::CHUNK {
            self.seal();
        }
    }

    /// Forgets what was collected (the server took it back with an error).
    pub fn clear(&mut self) {
        self.sealed.clear();
        self.current = Vec::new();
        self.held.budget.give(std::mem::take(&mut self.held.bytes));
    }

    /// The complete answer, or why there is none.
    pub fn finish(mut self) -> Result<Chunks, Overflow> {
        if let Some(overflow) = self.overflow {
            return Err(overflow);
        }
        if !self.current.is_empty() {
            self.seal();
        }
        Ok(Chunks { list: self.sealed, held: self.held })
    }

    #[cold]
    fn discard(&mut self, overflow: Overflow) {
        self.clear();
        self.overflow = Some(overflow);
    }

    fn seal(&mut self) {
        self.sealed.push(Bytes::from(std::mem::take(&mut self.current)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn collect(budget: &Arc<Budget>, messages: &[&[u8]]) -> Result<Chunks, Overflow> {
        let mut collector = Collector::new(budget);
        for message in messages {
            let (head, tail) = message.split_at(message.len() / 2);
            collector.push(head);
            collector.push(tail);
            collector.end_message();
        }
        collector.finish()
    }

    #[test]
    fn what_goes_in_comes_out_and_is_given_back() {
        let budget = Budget::new(1 << 20, 1 << 20);
        let long = vec![7; 100_000];
        let chunks = collect(&budget, &[b"first", &long, b"last"]).expect("within the limits");
        assert_eq!(budget.held(), 100_009);
        let all: Vec<u8> = chunks.iter().flat_map(|chunk| chunk.to_vec()).collect();
        assert_eq!(all, [b"first", &long[..], b"last"].concat());
        assert_eq!(chunks.iter().count(), 2, "a chunk ends only where a message ends");
        drop(chunks);
        assert_eq!(budget.held(), 0);
    }

    #[test]
    fn an_answer_over_its_limit_fails_alone_and_frees_its_memory() {
        let budget = Budget::new(10, 100);
        let other = collect(&budget, &[b"fine"]).expect("small");
        assert_eq!(collect(&budget, &[b"0123456789", b"A"]).err(), Some(Overflow::Answer { limit: 10 }));
        assert_eq!(budget.held(), 4);
        drop(other);
    }

    #[test]
    fn the_budget_holds_for_all_answers_together() {
        let budget = Budget::new(80, 100);
        let first = collect(&budget, &[&[1; 60]]).expect("fits");
        assert_eq!(collect(&budget, &[&[2; 60]]).err(), Some(Overflow::Budget { limit: 100 }));
        drop(first);
        assert!(collect(&budget, &[&[2; 60]]).is_ok());
        assert_eq!(budget.held(), 0);
    }

    #[test]
    fn an_answer_that_does_not_fit_takes_no_room_from_one_that_does() {
        let budget = Budget::new(1_000, 1_000);
        let rounds = 200_000;
        let fits = std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..rounds {
                    assert!(budget.take(990).is_ok_and(|()| budget.held() <= 1_000));
                    budget.give(990);
                    // Always too much.
                    assert!(budget.take(1_001).is_err());
                }
            });
            let small = scope.spawn(|| {
                let fits = |_: &u32| budget.take(10).inspect(|()| budget.give(10)).is_ok();
                (0..rounds).filter(fits).count()
            });
            small.join().expect("no panic")
        });
        assert_eq!((fits, budget.held()), (rounds as usize, 0));
    }

    #[tokio::test]
    async fn a_full_budget_wakes_those_who_wait_when_an_answer_is_taken() {
        let budget = Budget::new(100, 100);
        let full = collect(&budget, &[&[1; 100]]).expect("fits");
        let waiting = tokio::spawn({
            let budget = Arc::clone(&budget);
            async move { budget.room().await }
        });
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        drop(full);
        waiting.await.expect("wakes");
    }
}
