//! This program's own load generator: a closed loop on one thread, in a process of its own.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::process::Stdio;
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, ensure};
use hdrhistogram::Histogram;
use tokio::process::Command;
use tokio::task::LocalSet;

use super::{Latency, Load, Seen};
use crate::cli::LoadOptions;
use crate::http::Client;

/// An answer that takes longer counts as an error.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Starts this program as generator and reads what it prints.
pub(crate) async fn run_process(load: Load<'_>) -> Result<Seen> {
    let program = std::env::current_exe().context("this program does not know its own file")?;
    let output = Command::new(program)
        .arg("load")
        .args(["--addr", &load.addr.to_string()])
        .args(["--route", load.path])
        .args(["--concurrency", &load.concurrency.to_string()])
        .args(["--duration", &format!("{}us", load.duration.as_micros())])
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await
        .context("the load generator cannot be started")?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "the load generator failed ({}): {}", output.status, complaint.trim());
    serde_json::from_slice(&output.stdout).context("the load generator's figures cannot be read")
}

/// What the process does: load, then figures on standard output.
pub(crate) async fn run(options: &LoadOptions) -> Result<()> {
    let load = Load {
        addr: options.addr,
        path: &options.route,
        concurrency: options.concurrency,
        duration: options.duration,
    };
    let seen = LocalSet::new().run_until(generate(load)).await?;
    println!("{}", serde_json::to_string(&seen)?);
    Ok(())
}

/// What all connections of a run add up.
struct Tally {
    /// In microseconds, up to a minute, to three digits.
    latencies: Histogram<u32>,
    requests: u64,
    errors: u64,
}

async fn generate(load: Load<'_>) -> Result<Seen> {
    let latencies = Histogram::new_with_max(60_000_000, 3).map_err(|error| anyhow!("{error}"))?;
    let tally = Rc::new(RefCell::new(Tally { latencies, requests: 0, errors: 0 }));
    let start = Instant::now();
    let end = start + load.duration;
    let (addr, path): (_, Rc<str>) = (load.addr, load.path.into());
    let tasks: Vec<_> = (0..load.concurrency)
        .map(|_| {
            let (path, tally) = (Rc::clone(&path), Rc::clone(&tally));
            tokio::task::spawn_local(async move {
                while !ask_until(end, addr, &path, &tally).await {
                    tally.borrow_mut().errors += 1;
                    // A refused connection costs nothing: without a pause the loop would only count refusals.
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            })
        })
        .collect();
    for task in tasks {
        task.await?;
    }
    let seconds = start.elapsed().as_secs_f64();

    let tally = tally.borrow();
    let at =
        |quantile| (tally.requests > 0).then(|| tally.latencies.value_at_quantile(quantile) as f64 / 1e3);
    Ok(Seen {
        requests: tally.requests,
        seconds,
        latency_ms: Latency {
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p999: at(0.999),
            max: (tally.requests > 0).then(|| tally.latencies.max() as f64 / 1e3),
        },
        errors: tally.errors,
    })
}

/// Asks over one connection, one request after another. False when the connection failed.
async fn ask_until(end: Instant, addr: SocketAddr, path: &str, tally: &RefCell<Tally>) -> bool {
    let mut client = None;
    while Instant::now() < end {
        let asked = Instant::now();
        let answer = tokio::time::timeout(TIMEOUT, async {
            let client = match &mut client {
                Some(client) => client,
                none => none.insert(Client::connect(addr).await?),
            };
            client.get(path).await
        });
        let Ok(Ok(answer)) = answer.await else { return false };
        let mut tally = tally.borrow_mut();
        tally.requests += 1;
        tally.errors += u64::from(answer.status != 200);
        tally.latencies.saturating_record(asked.elapsed().as_micros() as u64);
    }
    true
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use axum::Router;
    use axum::http::StatusCode;
    use axum::routing::get;
    use tokio::net::TcpListener;
    use tokio::task::LocalSet;

    use super::{Seen, generate};
    use crate::load::Load;

    async fn seen(path: &str) -> Seen {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback has free ports");
        let addr = listener.local_addr().expect("it is bound");
        let refuse = || async { StatusCode::SERVICE_UNAVAILABLE };
        let service = Router::new().route("/good", get(|| async { "ok" })).route("/bad", get(refuse));
        tokio::spawn(async move { axum::serve(listener, service).await });
        let load = Load { addr, path, concurrency: 4, duration: Duration::from_millis(100) };
        LocalSet::new().run_until(generate(load)).await.expect("the load runs")
    }

    #[tokio::test]
    async fn requests_and_latencies_are_counted() {
        let seen = seen("/good").await;
        assert!(seen.requests > 4 && seen.errors == 0, "{seen:?}");
        assert!((0.1..5.0).contains(&seen.seconds), "{seen:?}");
        assert!(seen.latency_ms.p50 <= seen.latency_ms.p999 && seen.latency_ms.p999 <= seen.latency_ms.max);
    }

    #[tokio::test]
    async fn another_status_than_200_is_an_error() {
        let seen = seen("/bad").await;
        assert!(seen.requests > 4 && seen.errors == seen.requests, "{seen:?}");
    }

    #[tokio::test]
    async fn a_refused_connection_is_an_error() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback has free ports");
        let addr = listener.local_addr().expect("it is bound");
        drop(listener);
        let load = Load { addr, path: "/", concurrency: 2, duration: Duration::from_millis(30) };
        let seen = LocalSet::new().run_until(generate(load)).await.expect("the load runs");
        assert!(seen.requests == 0 && seen.errors >= 2, "{seen:?}");
        assert_eq!(seen.latency_ms.p50, None);
    }
}
