//! What `/metrics` shows of a pool. The figures are the engine's and deadpool's, the same for every driver.

use deadpool::Status;
use pg_pipeline::{PipeStats, PoolStats};

use super::{Metric, Sample};

pub(super) fn of_pool(stats: &PoolStats) -> Vec<Sample> {
    let pipes = stats.pipes.iter().enumerate().flat_map(|(index, pipe)| of_pipe(index, pipe));
    let waiting = gauge("pool_waiting", "Requests that no pipe can take at the moment.");
    let leased = gauge("pool_leased", "Leases held.");
    pipes.chain([sample(waiting, stats.waiting as u64), sample(leased, stats.leased as u64)]).collect()
}

pub(super) fn of_checkout(status: &Status) -> Vec<Sample> {
    vec![
        sample(gauge("pool_connections", "Connections that exist."), status.size as u64),
        sample(gauge("pool_idle", "Connections that nobody has taken."), status.available as u64),
        sample(gauge("pool_waiting", "Requests that wait for a connection."), status.waiting as u64),
    ]
}

fn of_pipe(index: usize, pipe: &PipeStats) -> impl Iterator<Item = Sample> {
    let figures = [
        (gauge("pool_in_flight", "Requests queued and in flight."), pipe.in_flight as u64),
        (gauge("pool_queued_bytes", "Bytes of requests not yet sent."), pipe.queued_bytes as u64),
        (counter("pool_queries_total", "Requests answered."), pipe.queries),
        (counter("pool_query_errors_total", "Requests answered with an error."), pipe.errors),
        (counter("pool_reconnects_total", "Connections made after the first."), pipe.reconnects),
        (counter("pool_writes_total", "Writes handed to the kernel."), pipe.writes),
        (counter("pool_batched_total", "Requests that left in batches."), pipe.batched),
        (counter("pool_batches_total", "Batches that left."), pipe.batch_sizes.iter().sum()),
    ];
    let state = vec![("pipe", index.to_string()), ("state", format!("{:?}", pipe.state).to_lowercase())];
    let state =
        Sample { metric: gauge("pool_pipe", "One for each pipe, with its state."), labels: state, value: 1 };
    let labels = vec![("pipe", index.to_string())];
    let figures = figures.map(|(metric, value)| Sample { metric, labels: labels.clone(), value });
    figures.into_iter().chain([state])
}

fn gauge(name: &'static str, help: &'static str) -> Metric {
    Metric { name, counter: false, help }
}

fn counter(name: &'static str, help: &'static str) -> Metric {
    Metric { name, counter: true, help }
}

fn sample(metric: Metric, value: u64) -> Sample {
    Sample { metric, labels: Vec::new(), value }
}
