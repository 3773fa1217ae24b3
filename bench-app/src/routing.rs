//! How quick queries get past slow ones: an open loop at a fixed rate, without HTTP.
//!
//! Queries leave at random moments whose average rate is fixed, whether or not earlier ones are answered, and latency
//! counts from the moment at which a query was meant to leave. Slow queries are a statement of their own, as they mostly
//! are, or surprises: runs of the one statement that all share, of which nothing can be known before. Every way of
//! choosing a connection is measured in the same rounds, and beside them the quick queries alone.

use std::fmt;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use pg_pipeline::Routing;
use tokio::runtime::{Builder, Runtime};

use crate::cli::{Database, RoutingOptions};
use crate::compare::database::Running;
use crate::cpu_group::{self, CpuGroup};
use crate::store::{self, Failure, Mixed, WORLDS, mysql, postgres};

/// Before each measurement, under the same load: statements are prepared, and what they take is learnt.
const WARM_UP: Duration = Duration::from_secs(1);
/// What a quick run of the statement that may also be slow keeps the server busy for.
const QUICK: Duration = Duration::from_micros(100);

/// One line of what is compared.
#[derive(Debug, Clone, Copy)]
struct Cell {
    slow: Slow,
    routing: Routing,
}

/// What the slow queries are.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Slow {
    /// There are none; quick queries read a row.
    None,
    /// A statement of their own beside quick ones that read a row.
    Statement,
    /// There are none; quick queries are the statement of the surprises.
    NoSurprises,
    /// Runs of the only statement.
    Surprises,
}

const fn cell(slow: Slow, routing: Routing) -> Cell {
    Cell { slow, routing }
}

const CELLS: [Cell; 8] = [
    cell(Slow::None, Routing::LeastWork),
    cell(Slow::Statement, Routing::LeastWork),
    cell(Slow::Statement, Routing::LeastInFlight),
    cell(Slow::Statement, Routing::RoundRobin),
    cell(Slow::NoSurprises, Routing::LeastWork),
    cell(Slow::Surprises, Routing::LeastWork),
    cell(Slow::Surprises, Routing::LeastInFlight),
    cell(Slow::Surprises, Routing::RoundRobin),
];

impl Slow {
    /// The quick queries alone, which such slow ones are compared with.
    fn alone(self) -> Self {
        match self {
            Self::None | Self::Statement => Self::None,
            Self::NoSurprises | Self::Surprises => Self::NoSurprises,
        }
    }

    fn are_there(self) -> bool {
        self != self.alone()
    }
}

impl fmt::Display for Slow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::None => "none",
            Self::Statement => "statement",
            Self::NoSurprises => "no surprises",
            Self::Surprises => "surprises",
        })
    }
}

/// One measurement: latencies of the quick and of the slow queries, sorted.
#[derive(Debug, Default)]
struct Measured {
    quick: Vec<Duration>,
    slow: Vec<Duration>,
    failures: Vec<Failure>,
}

/// Measures, prints a table, and says whether every query was answered.
pub(crate) fn run(options: &RoutingOptions) -> Result<bool> {
    ensure!(!options.duration.is_zero(), "--duration 0 measures nothing: give a length such as 4s");
    let (group, _) = CpuGroup::enter();
    let runtime = Builder::new_multi_thread().enable_all().build()?;
    let mut clean = true;
    for database in &options.database {
        let running = runtime.block_on(Running::start(*database, None))?;
        cpu_group::take_in(group.as_ref(), running.pid());
        runtime.block_on(store::seed(running.url()))?;
        let measured = match database {
            Database::Postgres => measure::<postgres::Mixed>(&runtime, running.url(), options),
            Database::Mysql => measure::<mysql::Mixed>(&runtime, running.url(), options),
        }?;
        report(*database, &measured);
        for failure in measured.iter().flatten().flat_map(|one| &one.failures).take(3) {
            eprintln!("{database}: a query failed: {failure:?}");
            clean = false;
        }
    }
    Ok(clean)
}

/// All cells in all rounds.
fn measure<M: Mixed>(runtime: &Runtime, url: &str, options: &RoutingOptions) -> Result<Vec<Vec<Measured>>> {
    let mut measured: Vec<Vec<Measured>> = CELLS.iter().map(|_| Vec::new()).collect();
    for round in 1..=options.rounds {
        for (cell, rounds) in CELLS.iter().zip(&mut measured) {
            eprintln!("round {round}/{}  slow: {}, {:?}", options.rounds, cell.slow, cell.routing);
            let store = runtime.block_on(M::connect(url, options.connections, cell.routing))?;
            put_load(runtime, &store, cell.slow, options, WARM_UP, 0)?;
            rounds.push(put_load(runtime, &store, cell.slow, options, options.duration, round as u64)?);
            runtime.block_on(store.close());
        }
    }
    Ok(measured)
}

/// Puts load on the store, from this thread: it keeps time to some ten microseconds, a runtime's timer to a millisecond.
fn put_load<M: Mixed>(
    runtime: &Runtime,
    store: &M,
    slow: Slow,
    options: &RoutingOptions,
    time: Duration,
    seed: u64,
) -> Result<Measured> {
    let mut random = seed;
    let mut below = |limit: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % limit
    };
    let apart = 1.0 / options.rate as f64;
    let begin = Instant::now();
    let mut at = 0.0;
    let mut out = Vec::new();
    loop {
        // Arrivals that know nothing of each other: gaps are exponential.
        at -= apart * ((below(1 << 20) + 1) as f64 / f64::from(1 << 20)).ln();
        let meant = begin + Duration::from_secs_f64(at);
        if meant > begin + time {
            break;
        }
        std::thread::sleep(meant.saturating_duration_since(Instant::now()));
        let is_slow = slow.are_there() && below(100) < u64::from(options.slow_share);
        let id = i32::try_from(1 + below(u64::from(WORLDS.unsigned_abs())))?;
        let (store, busy) = (store.clone(), options.slow);
        out.push(runtime.spawn(async move {
            let answer = match slow {
                _ if is_slow => store.sleep(busy).await,
                Slow::None | Slow::Statement => store.quick(id).await.map(drop),
                Slow::NoSurprises | Slow::Surprises => store.sleep(QUICK).await,
            };
            answer.map(|()| (is_slow, meant.elapsed()))
        }));
    }
    let mut measured = Measured::default();
    for answer in out {
        match runtime.block_on(answer)? {
            Ok((true, took)) => measured.slow.push(took),
            Ok((false, took)) => measured.quick.push(took),
            Err(failure) => measured.failures.push(failure),
        }
    }
    measured.quick.sort_unstable();
    measured.slow.sort_unstable();
    Ok(measured)
}

/// The table on standard output: medians over the rounds, with the spread of what matters.
fn report(database: Database, measured: &[Vec<Measured>]) {
    println!(
        "{database:<9} {:<13} {:<14} {:>9} {:>9} {:>17} {:>9} {:>9} {:>9} {:>7}",
        "slow", "routing", "quick p50", "p99 ms", "min-max", "p99.9", "slow p50", "p99 ms", "of none"
    );
    for (cell, rounds) in CELLS.iter().zip(measured) {
        let alone = CELLS.iter().zip(measured).find(|(other, _)| other.slow == cell.slow.alone());
        let none = alone.map_or(f64::NAN, |(_, rounds)| median(rounds, |one| &one.quick, 0.99));
        let p99 = spread(rounds, |one| &one.quick, 0.99);
        println!(
            "{:<9} {:<13} {:<14} {:>9.2} {:>9.2} {:>17} {:>9.2} {:>9.2} {:>9.2} {:>6.1}x",
            "",
            cell.slow,
            format!("{:?}", cell.routing),
            median(rounds, |one| &one.quick, 0.5),
            median(rounds, |one| &one.quick, 0.99),
            format!("{:.2}-{:.2}", p99.first().unwrap_or(&f64::NAN), p99.last().unwrap_or(&f64::NAN)),
            median(rounds, |one| &one.quick, 0.999),
            median(rounds, |one| &one.slow, 0.5),
            median(rounds, |one| &one.slow, 0.99),
            median(rounds, |one| &one.quick, 0.99) / none,
        );
    }
}

/// A quantile of every round in milliseconds, sorted.
fn spread(rounds: &[Measured], of: impl Fn(&Measured) -> &[Duration], quantile: f64) -> Vec<f64> {
    let mut all: Vec<f64> = rounds.iter().filter_map(|one| at_quantile(of(one), quantile)).collect();
    all.sort_unstable_by(f64::total_cmp);
    all
}

/// The median over the rounds of a quantile, in milliseconds.
fn median(rounds: &[Measured], of: impl Fn(&Measured) -> &[Duration], quantile: f64) -> f64 {
    let all = spread(rounds, of, quantile);
    all.get(all.len() / 2).copied().unwrap_or(f64::NAN)
}

fn at_quantile(sorted: &[Duration], quantile: f64) -> Option<f64> {
    let index = (sorted.len() as f64 * quantile) as usize;
    sorted.get(index.min(sorted.len().checked_sub(1)?)).map(|took| took.as_secs_f64() * 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_and_medians() {
        let times: Vec<Duration> = (1..=100).map(Duration::from_millis).collect();
        assert_eq!(at_quantile(&times, 0.5), Some(51.0));
        assert_eq!(at_quantile(&times, 0.999), Some(100.0));
        assert_eq!(at_quantile(&[], 0.5), None);
        let round = |ms: u64| Measured { quick: vec![Duration::from_millis(ms)], ..Measured::default() };
        let rounds = [round(3), round(1), round(2)];
        assert!((median(&rounds, |one| &one.quick, 0.99) - 2.0).abs() < 1e-9);
        assert!(median(&rounds, |one| &one.slow, 0.99).is_nan());
    }
}
