//! `wrk` as load generator. A script makes it print its figures for machines, because its own page rounds them
//! and stops at the 99th percentile.

use std::io::Write as _;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use tokio::process::Command;

use super::{Latency, Load, Seen};
use crate::process;

/// Called by `wrk` at its end (its SCRIPTING page): times are in microseconds.
const SCRIPT: &str = r#"
done = function(summary, latency, requests)
    local errors = summary.errors
    local out = function(name, value) io.write(string.format("bench-app %s %.0f\n", name, value)) end
    out("requests", summary.requests)
    out("duration", summary.duration)
    out("p50", latency:percentile(50))
    out("p90", latency:percentile(90))
    out("p99", latency:percentile(99))
    out("p999", latency:percentile(99.9))
    out("max", latency.max)
    out("errors", errors.connect + errors.read + errors.write + errors.status + errors.timeout)
end
"#;

/// An answer that takes longer counts as an error.
const TIMEOUT: &str = "10s";

/// The installed version, if there is one.
pub(crate) async fn version() -> Option<String> {
    // It prints its version, then its usage, and fails.
    let output = Command::new("wrk").arg("-v").stdin(Stdio::null()).output().await.ok()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let version = text.strip_prefix("wrk ")?.split_whitespace().next()?;
    Some(version.trim_start_matches("debian/").to_owned())
}

pub(crate) async fn run_process(load: Load<'_>) -> Result<Seen> {
    let mut script = tempfile::Builder::new().prefix("bench-app-").suffix(".lua").tempfile()?;
    script.write_all(SCRIPT.as_bytes())?;
    // It takes whole seconds only: an interrupt ends it on time, with all its figures.
    let whole = load.duration.as_secs() + u64::from(load.duration.subsec_nanos() > 0);
    let mut command = Command::new("wrk");
    command
        .args(["-t1", "--timeout", TIMEOUT])
        .arg(format!("-c{}", load.concurrency))
        .arg(format!("-d{whole}s"))
        .arg("-s")
        .arg(script.path())
        .arg(format!("http://{}{}", load.addr, load.path))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    let child = command.spawn().context("wrk cannot be run: install it, or use --load own")?;
    let interrupt = child.id().filter(|_| load.duration.subsec_nanos() > 0).map(|pid| {
        tokio::spawn(async move {
            tokio::time::sleep(load.duration).await;
            process::interrupt(pid);
        })
    });
    let output = child.wait_with_output().await;
    if let Some(interrupt) = interrupt {
        interrupt.abort();
    }
    let output = output.context("wrk cannot be waited for")?;
    let (page, complaint) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    ensure!(output.status.success(), "wrk failed ({}): {}", output.status, complaint.trim());
    parse(&page).with_context(|| format!("wrk printed: {}", page.trim()))
}

/// The figures among everything that it prints.
fn parse(page: &str) -> Result<Seen> {
    let figure = |name: &str| -> Result<u64> {
        let mut lines = page.lines().filter_map(|line| line.trim().strip_prefix("bench-app "));
        let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        value.and_then(|value| value.parse().ok()).with_context(|| format!("the figure `{name}` is missing"))
    };
    let requests = figure("requests")?;
    let milliseconds = |name| figure(name).map(|us| (requests > 0).then_some(us as f64 / 1e3));
    Ok(Seen {
        requests,
        seconds: Duration::from_micros(figure("duration")?).as_secs_f64(),
        latency_ms: Latency {
            p50: milliseconds("p50")?,
            p90: milliseconds("p90")?,
            p99: milliseconds("p99")?,
            p999: milliseconds("p999")?,
            max: milliseconds("max")?,
        },
        errors: figure("errors")?,
    })
}

#[cfg(test)]
mod tests {
    use super::{Latency, Seen, parse};

    const PAGE: &str = "Running 2s test @ http://127.0.0.1:8080/db
  1 threads and 256 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency     5.06ms    1.62ms  21.47ms   75.21%
  101300 requests in 2.01s, 14.20MB read
Requests/sec:  50398.20
bench-app requests 101300
bench-app duration 2010000
bench-app p50 4810
bench-app p90 6900
bench-app p99 10020
bench-app p999 15800
bench-app max 21470
bench-app errors 3
";

    #[test]
    fn the_scripts_lines_are_found_among_the_rest() {
        let latency_ms =
            Latency { p50: Some(4.81), p90: Some(6.9), p99: Some(10.02), p999: Some(15.8), max: Some(21.47) };
        let seen = parse(PAGE).expect("all figures are there");
        assert_eq!(seen, Seen { requests: 101_300, seconds: 2.01, latency_ms, errors: 3 });
        assert!((seen.requests_per_second() - 50_398.0).abs() < 1.0);
    }

    #[test]
    fn no_answer_means_no_latency() {
        let page = PAGE.replace("requests 101300", "requests 0");
        let seen = parse(&page).expect("all figures are there");
        assert_eq!((seen.latency_ms, seen.requests), (Latency::default(), 0));
    }

    #[test]
    fn a_missing_figure_is_named() {
        let page = PAGE.replace("bench-app p999", "p999");
        assert!(parse(&page).expect_err("p999 is missing").to_string().contains("`p999`"));
        assert!(parse("unable to connect to 127.0.0.1:1 Connection refused").is_err());
    }
}
