//! The whole comparison, in small: both databases, both ways of access, every route, one short round.

use std::process::{Command, Output};

use serde_json::Value;

fn bench_app(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_bench-app")).args(arguments).output().expect("the program is built")
}

#[test]
fn every_cell_is_measured_without_errors() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("report.json");
    let done = bench_app(&[
        "compare",
        "--load=own",
        "--rounds=1",
        "--concurrency=16",
        "--warmup=0s",
        "--duration=200ms",
        "--json",
        file.to_str().expect("a plain path"),
    ]);
    let (table, progress) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    assert!(done.status.success(), "{progress}");
    assert_eq!(table.lines().filter(|line| line.contains("pipelined : checkout")).count(), 6, "{table}");

    let text = std::fs::read_to_string(&file).expect("the report was written");
    let report: Value = serde_json::from_str(&text).expect("the report is JSON");
    let rows = report["rows"].as_array().expect("rows");
    let cells: Vec<_> = rows
        .iter()
        .map(|row| (row["subject"].as_str(), row["route"].as_str(), row["access"].as_str()))
        .collect();
    let routes = ["/json", "/db", "/queries?n=20"].map(Some);
    let accesses = ["pipelined", "checkout"].map(Some);
    let subjects = ["pg-pipeline", "mysql-pipeline"].map(Some);
    let expected =
        subjects.map(|subject| routes.map(|route| accesses.map(|access| (subject, route, access))).concat());
    assert_eq!(cells, expected.concat());
    for row in rows {
        assert_eq!(row["errors"], 0, "{row}");
        assert!(row["requests_per_second"]["median"].as_f64().is_some_and(|rate| rate > 0.0), "{row}");
        assert!(row["latency_ms"]["p999"].as_f64().is_some_and(|latency| latency > 0.0), "{row}");
    }
    assert!(report["versions"]["postgres"].is_string() && report["versions"]["mysql"].is_string());
}

#[test]
fn a_database_that_is_not_there_is_an_error_that_says_so() {
    let done = bench_app(&["compare", "--url=postgres://nobody@127.0.0.1:1/nothing"]);
    assert_eq!(done.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&done.stderr).starts_with("bench-app: "), "{done:?}");
}
