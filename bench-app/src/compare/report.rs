//! From the rounds of a cell to its row in the report.

use serde::Serialize;

use super::cell::{Cell, Conditions, Measured};
use crate::cli::Database;
use crate::load::Latency;

/// One measured cell. The names are those of the report's format; absent figures are `null`.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Row {
    pub(super) database: Database,
    pub(super) subject: &'static str,
    pub(super) access: &'static str,
    pub(super) route: String,
    pub(super) concurrency: usize,
    /// Connections to the database that the service held, over all its threads.
    pub(super) connections: usize,
    pub(super) rtt_ms: f64,
    pub(super) server_cpu_limit: Option<f64>,
    pub(super) load_generator: &'static str,
    pub(super) rounds: usize,
    pub(super) requests_per_second: Spread,
    /// Of the round with the median rate.
    pub(super) latency_ms: Latency,
    /// Of all rounds.
    pub(super) errors: u64,
    /// Median of the rounds.
    pub(super) server_cpu_us_per_request: Option<f64>,
    /// Median of the rounds.
    pub(super) database_cpu_us_per_request: Option<f64>,
    /// Highest of the rounds.
    pub(super) peak_rss_bytes: Option<u64>,
}

/// The rounds' lowest, middle and highest figure.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct Spread {
    pub(super) min: f64,
    pub(super) median: f64,
    pub(super) max: f64,
}

impl Row {
    /// The row of a cell that was measured at least once.
    pub(super) fn new(cell: &Cell<'_>, conditions: &Conditions<'_>, rounds: &[Measured]) -> Option<Self> {
        let rate = |round: &Measured| round.seen.requests_per_second();
        let mut by_rate: Vec<&Measured> = rounds.iter().collect();
        by_rate.sort_by(|a, b| rate(a).total_cmp(&rate(b)));
        let (slowest, middle, fastest) =
            (by_rate.first()?, by_rate.get(middle(rounds.len()))?, by_rate.last()?);

        let per_request = |time: Option<std::time::Duration>, round: &Measured| {
            let requests = round.seen.requests;
            time.filter(|_| requests > 0).map(|time| time.as_secs_f64() * 1e6 / requests as f64)
        };
        let runtimes = conditions.options.runtimes();
        let share = cell.subject.connections_per_runtime(conditions.options.connections, runtimes);
        Some(Self {
            database: cell.database,
            subject: cell.subject.driver(cell.database),
            access: cell.subject.access(),
            route: cell.route.path().to_owned(),
            concurrency: conditions.options.concurrency,
            connections: share * runtimes,
            rtt_ms: 0.0,
            server_cpu_limit: None,
            load_generator: conditions.generator.name(),
            rounds: rounds.len(),
            requests_per_second: Spread { min: rate(slowest), median: rate(middle), max: rate(fastest) },
            latency_ms: middle.seen.latency_ms,
            errors: rounds.iter().map(|round| round.seen.errors).sum(),
            server_cpu_us_per_request: median(rounds.iter().map(|round| per_request(round.service, round))),
            database_cpu_us_per_request: median(
                rounds.iter().map(|round| per_request(round.database, round)),
            ),
            peak_rss_bytes: rounds.iter().filter_map(|round| round.peak_memory).max(),
        })
    }

    /// Whether every round had answers and no errors.
    pub(super) fn is_clean(&self) -> bool {
        self.errors == 0 && self.requests_per_second.min > 0.0
    }
}

/// The place of the median in a sorted list; of two middle figures it is the lower one, so that there is a
/// round that it belongs to.
fn middle(length: usize) -> usize {
    length.saturating_sub(1) / 2
}

/// The median of the figures that are there.
fn median(figures: impl Iterator<Item = Option<f64>>) -> Option<f64> {
    let mut figures: Vec<f64> = figures.flatten().collect();
    figures.sort_by(f64::total_cmp);
    figures.get(middle(figures.len())).copied()
}

/// What pipelining is worth on one route.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Ratio {
    /// Pipelined : checkout.
    pub(super) requests_per_second: f64,
    /// Pipelined : checkout, where the kernel gave figures.
    pub(super) server_cpu: Option<f64>,
}

impl Ratio {
    /// Of two rows that differ in their access only.
    pub(super) fn of(pipelined: &Row, checkout: &Row) -> Option<Self> {
        let over = |a: f64, b: f64| (b > 0.0).then(|| a / b);
        let cpu = pipelined.server_cpu_us_per_request.zip(checkout.server_cpu_us_per_request);
        Some(Self {
            requests_per_second: over(
                pipelined.requests_per_second.median,
                checkout.requests_per_second.median,
            )?,
            server_cpu: cpu.and_then(|(pipelined, checkout)| over(pipelined, checkout)),
        })
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::time::Duration;

    use clap::Parser as _;

    use super::{Cell, Conditions, Measured, Ratio, Row};
    use crate::cli::{Access, Cli, Command, CompareOptions, Database, Generator, Route, Subject};
    use crate::load::{Latency, Seen};

    pub(in crate::compare) fn options(arguments: &[&str]) -> CompareOptions {
        let cli = Cli::try_parse_from([&["bench-app", "compare", "--threads=2"], arguments].concat());
        match cli.map(Cli::chosen) {
            Ok(Command::Compare(options)) => options,
            other => panic!("{other:?}"),
        }
    }

    fn measured(requests: u64, p99: f64) -> Measured {
        let latency_ms = Latency { p99: Some(p99), ..Latency::default() };
        Measured {
            seen: Seen { requests, seconds: 2.0, latency_ms, errors: 1 },
            service: Some(Duration::from_micros(10 * requests)),
            database: None,
            peak_memory: Some(requests),
        }
    }

    pub(in crate::compare) fn row(access: Access, rounds: &[u64]) -> Row {
        let options = options(&[]);
        let cell = Cell { database: Database::Postgres, subject: Subject::Own(access), route: &Route::Db };
        let conditions = Conditions { options: &options, generator: Generator::Wrk };
        let rounds: Vec<_> = rounds.iter().map(|requests| measured(*requests, *requests as f64)).collect();
        Row::new(&cell, &conditions, &rounds).expect("there are rounds")
    }

    #[test]
    fn rounds_become_one_row() {
        let row = row(Access::Pipelined, &[300, 100, 200]);
        let rate = row.requests_per_second;
        assert_eq!((rate.min, rate.median, rate.max), (50.0, 100.0, 150.0));
        assert_eq!(row.latency_ms.p99, Some(200.0), "latency is the median round's");
        assert_eq!((row.errors, row.rounds, row.connections), (3, 3, 8));
        assert_eq!((row.server_cpu_us_per_request, row.database_cpu_us_per_request), (Some(10.0), None));
        assert_eq!(row.peak_rss_bytes, Some(300));
        assert!(!row.is_clean());
    }

    #[test]
    fn the_median_of_an_even_number_is_a_round_that_exists() {
        let row = row(Access::Pipelined, &[400, 100, 200, 300]);
        assert_eq!(row.latency_ms.p99, Some(200.0));
    }

    #[test]
    fn ratios_are_of_medians() {
        let ratio =
            Ratio::of(&row(Access::Pipelined, &[300, 100, 200]), &row(Access::Checkout, &[50, 80, 1]));
        assert_eq!(ratio, Some(Ratio { requests_per_second: 4.0, server_cpu: Some(1.0) }));
        assert_eq!(Ratio::of(&row(Access::Pipelined, &[300]), &row(Access::Checkout, &[0])), None);
    }
}
