//! Load on the service, from a process of its own, and the figures that come back.
//!
//! Two generators: `wrk` when it is installed, else this program's own. Both keep a fixed number of
//! connections busy (a closed loop), so a figure is only comparable with those of the same generator.

pub(crate) mod own;
pub(crate) mod wrk;

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Result;
use serde::{Deserialize, Serialize};

use crate::cli::Generator;

/// What to put on the service.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Load<'a> {
    pub(crate) addr: SocketAddr,
    pub(crate) path: &'a str,
    pub(crate) concurrency: usize,
    pub(crate) duration: Duration,
}

/// What a generator saw.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Seen {
    /// Answers that arrived whole, whatever their status.
    pub(crate) requests: u64,
    pub(crate) seconds: f64,
    pub(crate) latency_ms: Latency,
    /// Other status than 200, failed connections, timeouts.
    pub(crate) errors: u64,
}

impl Seen {
    pub(crate) fn requests_per_second(&self) -> f64 {
        if self.seconds > 0.0 { self.requests as f64 / self.seconds } else { 0.0 }
    }
}

/// How long answers took, in milliseconds; absent when there was none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Latency {
    pub(crate) p50: Option<f64>,
    pub(crate) p90: Option<f64>,
    pub(crate) p99: Option<f64>,
    pub(crate) p999: Option<f64>,
    pub(crate) max: Option<f64>,
}

impl Generator {
    /// `wrk` when it can be run, else our own.
    pub(crate) async fn best() -> Self {
        if wrk::version().await.is_some() { Self::Wrk } else { Self::Own }
    }

    /// The name that reports carry.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Wrk => "wrk",
            Self::Own => "bench-app",
        }
    }

    pub(crate) async fn version(self) -> Option<String> {
        match self {
            Self::Wrk => wrk::version().await,
            Self::Own => Some(env!("CARGO_PKG_VERSION").to_owned()),
        }
    }

    /// Runs the load and waits for its end.
    pub(crate) async fn run(self, load: Load<'_>) -> Result<Seen> {
        match self {
            Self::Wrk => wrk::run_process(load).await,
            Self::Own => own::run_process(load).await,
        }
    }
}
