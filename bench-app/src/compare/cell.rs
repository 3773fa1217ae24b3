//! One measurement: a fresh service, its answers checked, warmed up, measured, stopped.

use std::time::Duration;

use anyhow::{Context as _, Result};

use super::check::Truth;
use super::database::Running;
use super::service::Service;
use crate::cli::{CompareOptions, Database, Generator, Route, Subject};
use crate::http::Client;
use crate::load::{Load, Seen};
use crate::process::{CpuTimes, peak_memory};

/// What is measured.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cell<'a> {
    pub(super) database: Database,
    pub(super) subject: Subject,
    pub(super) route: &'a Route,
}

/// How it is measured; the same for all cells.
#[derive(Clone, Copy)]
pub(super) struct Conditions<'a> {
    pub(super) options: &'a CompareOptions,
    pub(super) generator: Generator,
}

/// What came out of one round.
#[derive(Debug, Clone)]
pub(super) struct Measured {
    pub(super) seen: Seen,
    /// CPU time of the service.
    pub(super) service: Option<Duration>,
    /// CPU time of the database, with all its processes.
    pub(super) database: Option<Duration>,
    /// In bytes.
    pub(super) peak_memory: Option<u64>,
}

pub(super) async fn measure(
    cell: &Cell<'_>,
    conditions: &Conditions<'_>,
    database: &Running,
    truth: &Truth,
) -> Result<Measured> {
    let what = || format!("{} {} {}", cell.database, cell.subject, cell.route.path());
    let mut service =
        Service::start(cell.subject, conditions.options, database.url()).await.with_context(what)?;
    let mut client = Client::connect(service.addr).await.with_context(what)?;
    truth.check(&mut client, cell.route).await.with_context(what)?;
    drop(client);

    let options = conditions.options;
    let load = |duration| Load {
        addr: service.addr,
        path: cell.route.path(),
        concurrency: options.concurrency,
        duration,
    };
    if !options.warmup().is_zero() {
        conditions.generator.run(load(options.warmup())).await.with_context(what)?;
    }
    let before = cpu_times(service.pid, database);
    let seen = conditions.generator.run(load(options.duration())).await.with_context(what)?;
    let after = cpu_times(service.pid, database);
    let peak_memory = peak_memory(service.pid);

    service.check_alive().with_context(what)?;
    service.stop().await.with_context(what)?;
    let spent = |after: Option<CpuTimes>, before: Option<CpuTimes>| Some(after?.since(&before?));
    Ok(Measured { seen, service: spent(after.0, before.0), database: spent(after.1, before.1), peak_memory })
}

fn cpu_times(service: u32, database: &Running) -> (Option<CpuTimes>, Option<CpuTimes>) {
    (CpuTimes::of_process(service), database.pid().and_then(CpuTimes::of_tree))
}
