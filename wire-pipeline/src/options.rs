//! The engine's options, with their defaults.

use std::time::Duration;

/// How many batches a pipe may have out before it gathers entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BatchesOut {
    /// One near the server, more when the round trip is long against the server's work.
    Adaptive,
    /// Always this many, at least one.
    Fixed(u8),
}

/// How a pool chooses the pipe for a request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Routing {
    /// The pipe with the least expected work, never one whose oldest request is slower than expected. Requests that are
    /// known to be slow (5 ms or more, by how long their statement took before) go one at a time to a pipe, and to half of
    /// the pipes while there were quick ones within the last second, so that the quick ones always find a way past: a burst of
    /// slow ones takes up to twice as long for it.
    #[default]
    LeastWork,
    /// The pipe with the fewest requests: for pools whose statements are all alike, and to compare with.
    LeastInFlight,
    /// One pipe after the other; to compare with.
    RoundRobin,
}

/// Limits and times of a pool.
#[derive(Debug, Clone)]
pub struct Options {
    /// Number of pipes, at least 1.
    pub connections: usize,
    /// Entries per pipe, queued and in flight, at least 1.
    pub max_in_flight: usize,
    /// Bytes of one answer.
    pub max_answer_bytes: usize,
    /// Bytes of all answers held at a time.
    pub answer_budget: usize,
    /// Bytes of requests per pipe, queued and in flight. A single larger request is admitted when it is alone.
    pub queue_bytes: usize,
    /// Name resolution, network, handshake and set-up together.
    pub connect_timeout: Duration,
    /// Queueing, sending and answering of one request together.
    pub query_timeout: Duration,
    /// Waiting for a lease.
    pub acquire_timeout: Duration,
    /// A pipe whose oldest answer is this far behind its asker's deadline is replaced.
    pub stall_timeout: Duration,
    /// A lease held for longer than this is reported; zero means never.
    pub lease_report_after: Duration,
    /// A pipe older than this, give or take a tenth, is replaced; zero means never.
    pub max_lifetime: Duration,
    /// Batches that may be out per pipe.
    pub batches_out: BatchesOut,
    /// How a pipe is chosen.
    pub routing: Routing,
    /// Seed of the jitter in back-off and lifetime; `None` takes one from the operating system.
    pub seed: Option<u64>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            connections: 8,
            max_in_flight: 256,
            max_answer_bytes: 256 << 20,
            answer_budget: 1 << 30,
            queue_bytes: 4 << 20,
            connect_timeout: Duration::from_secs(10),
            query_timeout: Duration::from_secs(30),
            acquire_timeout: Duration::from_secs(5),
            stall_timeout: Duration::from_secs(10),
            lease_report_after: Duration::from_secs(30),
            max_lifetime: Duration::from_secs(30 * 60),
            batches_out: BatchesOut::Adaptive,
            routing: Routing::LeastWork,
            seed: None,
        }
    }
}

impl Options {
    /// How many pipes may be leased at a time: two stay shared where there are more than two, else one; a single
    /// pipe is never leased.
    pub fn max_leases(&self) -> usize {
        match self.connections {
            0 | 1 => 0,
            2 => 1,
            more => more - 2,
        }
    }
}
