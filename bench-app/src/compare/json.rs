//! The report as JSON: machine, versions, settings, and a row per cell.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, Result};
use serde::Serialize;

use super::report::Row;
use crate::cli::{Access, CompareOptions, Database, Generator, Peer, Route};
use crate::process::Machine;

#[derive(Serialize)]
pub(super) struct Report {
    pub(super) machine: Machine,
    pub(super) versions: Versions,
    pub(super) settings: Settings,
    pub(super) rows: Vec<Row>,
}

impl Report {
    pub(super) fn write(&self, path: &Path) -> Result<()> {
        let mut text = serde_json::to_string_pretty(self)?;
        text.push('\n');
        std::fs::write(path, text)
            .with_context(|| format!("the report cannot be written to {}", path.display()))
    }
}

/// Of everything that takes part.
#[derive(Serialize)]
pub(super) struct Versions {
    bench_app: &'static str,
    rustc: &'static str,
    load_generator: String,
    /// As each server names its own.
    #[serde(flatten)]
    pub(super) databases: BTreeMap<Database, String>,
}

impl Versions {
    pub(super) fn new(generator: Generator, version: &str) -> Self {
        Self {
            bench_app: env!("CARGO_PKG_VERSION"),
            rustc: env!("BENCH_APP_RUSTC"),
            load_generator: format!("{} {version}", generator.name()),
            databases: BTreeMap::new(),
        }
    }
}

/// What was asked for.
#[derive(Serialize)]
pub(super) struct Settings {
    full: bool,
    database: Vec<Database>,
    access: Vec<Access>,
    routes: Vec<String>,
    concurrency: usize,
    connections: usize,
    /// Runtimes of one thread each; `null` for one runtime over all cores.
    threads: Option<usize>,
    warmup_seconds: f64,
    duration_seconds: f64,
    rounds: usize,
    rtt_ms: Vec<f64>,
    server_cpu_limit: Option<f64>,
    peers: Vec<Peer>,
}

impl Settings {
    pub(super) fn new(options: &CompareOptions) -> Self {
        Self {
            full: options.full,
            database: options.databases().unwrap_or_default(),
            access: options.access.clone(),
            routes: options.routes.iter().map(Route::path).map(str::to_owned).collect(),
            concurrency: options.concurrency,
            connections: options.connections,
            threads: options.threads,
            warmup_seconds: options.warmup().as_secs_f64(),
            duration_seconds: options.duration().as_secs_f64(),
            rounds: options.rounds,
            rtt_ms: options.rtt.iter().map(|rtt| rtt.as_secs_f64() * 1e3).collect(),
            server_cpu_limit: options.server_cpu_limit,
            peers: options.peers.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{Report, Settings, Versions};
    use crate::cli::{Access, Database, Generator};
    use crate::compare::report::tests::{options, row};
    use crate::process::{Machine, Scheduling};

    fn keys(value: &Value) -> Vec<&str> {
        value.as_object().expect("an object").keys().map(String::as_str).collect()
    }

    #[test]
    fn the_report_has_the_documented_shape() {
        let mut versions = Versions::new(Generator::Wrk, "4.1.0");
        versions.databases.insert(Database::Postgres, "18.6".to_owned());
        let report = Report {
            machine: Machine::this(Scheduling::Even),
            versions,
            settings: Settings::new(&options(&[])),
            rows: vec![row(Access::Pipelined, &[300, 100, 200])],
        };
        let report = serde_json::to_value(&report).expect("every part can be written");

        assert_eq!(keys(&report), ["machine", "rows", "settings", "versions"]);
        assert_eq!(report["versions"]["load_generator"], "wrk 4.1.0");
        assert_eq!(report["versions"]["postgres"], "18.6");
        assert_eq!(report["settings"]["routes"], json!(["/json", "/db", "/queries?n=20"]));
        assert_eq!(
            report["rows"],
            json!([{
                "database": "postgres",
                "subject": "pg-pipeline",
                "access": "pipelined",
                "route": "/db",
                "concurrency": 256,
                "connections": 8,
                "rtt_ms": 0.0,
                "server_cpu_limit": null,
                "load_generator": "wrk",
                "rounds": 3,
                "requests_per_second": {"min": 50.0, "median": 100.0, "max": 150.0},
                "latency_ms": {"p50": null, "p90": null, "p99": 200.0, "p999": null, "max": null},
                "errors": 3,
                "server_cpu_us_per_request": 10.0,
                "database_cpu_us_per_request": null,
                "peak_rss_bytes": 300,
            }])
        );
    }

    #[test]
    fn the_report_is_written_as_a_file() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let report = Report {
            machine: Machine::this(Scheduling::Even),
            versions: Versions::new(Generator::Own, "0.1.0"),
            settings: Settings::new(&options(&["--full"])),
            rows: Vec::new(),
        };
        let path = folder.path().join("report.json");
        report.write(&path).expect("the folder is there");
        let text = std::fs::read_to_string(&path).expect("it was written");
        let report: Value = serde_json::from_str(&text).expect("it is JSON");
        assert_eq!(report["settings"]["duration_seconds"], 15.0);
        assert!(text.ends_with("}\n"));
    }
}
