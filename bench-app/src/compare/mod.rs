//! The comparison: every route with every subject on every database, in rounds, each cell on a service
//! process of its own. Progress goes to standard error; the table alone goes to standard output.

mod cell;
mod check;
pub(crate) mod database;
mod json;
mod report;
mod service;
mod table;

use anyhow::{Context as _, Result, bail};
use tokio::signal::unix::{SignalKind, signal};

use self::cell::{Cell, Conditions, Measured};
use self::check::Truth;
use self::database::Running;
use self::json::{Report, Settings, Versions};
use self::report::Row;
use crate::cli::{CompareOptions, Generator};
use crate::cpu_group::{self, CpuGroup};
use crate::process::Machine;
use crate::store;

/// Compares, and says whether every cell ran without errors.
pub(crate) async fn run(options: &CompareOptions) -> Result<bool> {
    let mut terminated = signal(SignalKind::terminate())?;
    // Ending early drops what runs, and the processes that belong to it end with it.
    tokio::select! {
        done = compare(options) => done,
        _ = terminated.recv() => bail!("stopped before the end"),
        _ = tokio::signal::ctrl_c() => bail!("stopped before the end"),
    }
}

async fn compare(options: &CompareOptions) -> Result<bool> {
    options.check()?;
    let (group, scheduling) = CpuGroup::enter();
    let generator = match options.load {
        Some(generator) => generator,
        None => Generator::best().await,
    };
    let version = generator.version().await.context("wrk cannot be run: install it, or use --load own")?;
    let mut versions = Versions::new(generator, &version);
    let conditions = Conditions { options, generator };

    let mut rows = Vec::new();
    for database in &options.databases()? {
        let running = Running::start(*database, options.url.as_deref()).await?;
        cpu_group::take_in(group.as_ref(), running.pid());
        store::seed(running.url()).await?;
        let facts = store::facts(running.url()).await?;
        eprintln!("{database} {}, load from {}", facts.version, generator.name());
        versions.databases.insert(*database, facts.version);
        let truth = Truth::new(facts.worlds)?;

        let cells: Vec<Cell<'_>> = options
            .routes
            .iter()
            .flat_map(|route| options.subjects(*database).map(move |subject| (route, subject)))
            .map(|(route, subject)| Cell { database: *database, subject, route })
            .collect();
        let mut measured: Vec<Vec<Measured>> = vec![Vec::new(); cells.len()];
        for round in 1..=options.rounds {
            for (cell, rounds) in cells.iter().zip(&mut measured) {
                let one = cell::measure(cell, &conditions, &running, &truth).await?;
                let rate = one.seen.requests_per_second();
                let errors = one.seen.errors;
                let (rounds_all, subject, path) = (options.rounds, cell.subject, cell.route.path());
                eprintln!(
                    "round {round}/{rounds_all}  {subject:<14}  {path:<14} {rate:>9.0} requests/s  {errors} errors"
                );
                rounds.push(one);
            }
        }
        rows.extend(
            cells.iter().zip(&measured).filter_map(|(cell, rounds)| Row::new(cell, &conditions, rounds)),
        );
    }

    let report =
        Report { machine: Machine::this(scheduling), versions, settings: Settings::new(options), rows };
    print!("{}", table::render(&report.rows));
    if let Some(path) = &options.json {
        report.write(path)?;
        eprintln!("figures: {}", path.display());
    }
    Ok(report.rows.iter().all(Row::is_clean))
}
