//! What `/metrics` shows of a pool. The figures are the engine's and deadpool's, the same for every driver.

use deadpool::Status;
use pg_pipeline::{Losses, PipeStats, PoolStats, Work};

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
        (counter("pool_discarded_total", "Answers that nobody waited for any more."), pipe.discarded),
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
    figures.into_iter().chain([state]).chain(of_work(&labels, &pipe.work))
}

/// What explains a slow day.
fn of_work(pipe: &[(&'static str, String)], work: &Work) -> Vec<Sample> {
    let labelled = |metric, label: Option<(&'static str, &str)>, value| {
        let label = label.map(|(name, value)| (name, value.to_owned()));
        Sample { metric, labels: pipe.iter().cloned().chain(label).collect(), value }
    };
    let behind = counter("pool_head_of_line_waits_total", "Requests that were behind a slow one.");
    let cached = gauge("pool_statements_cached", "Statements prepared now.");
    let evicted = counter("pool_statements_evicted_total", "Statements that had to make room for others.");
    let reads = counter("pool_reads_total", "Reads that brought answers.");
    let lost = counter("pool_connections_lost_total", "Connections that ended, by reason.");
    let wait =
        gauge("pool_wait_microseconds", "From the call until the request is written, since the start.");
    let service = gauge("pool_service_microseconds", "From there to its answer, since the start.");
    let Losses { ended, stalled, protocol, session, lifetime, .. } = work.losses;
    let mut samples = vec![
        labelled(behind, None, work.head_of_line_waits),
        labelled(cached, None, work.statements_cached as u64),
        labelled(evicted, None, work.statements_evicted),
        labelled(reads, None, work.answers_per_read.iter().sum()),
    ];
    let reasons = [
        ("ended", ended),
        ("stalled", stalled),
        ("protocol", protocol),
        ("session", session),
        ("lifetime", lifetime),
    ];
    samples.extend(reasons.map(|(reason, count)| labelled(lost, Some(("reason", reason)), count)));
    for (metric, times) in [(wait, &work.waits), (service, &work.service)] {
        for (name, quantile) in [("0.5", 0.5), ("0.99", 0.99)] {
            if let Some(time) = times.quantile(quantile) {
                samples.push(labelled(metric, Some(("quantile", name)), time.as_micros() as u64));
            }
        }
    }
    samples
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
