//! An axum service over a database, and the comparison that measures it: pipelined against checkout access.
//!
//! `serve` is the service, `seed` fills its table, `compare` (what runs when nothing is said) starts a database
//! and the service in all its variants, puts load on it from processes of their own, and reports; `routing` measures
//! how quick queries get past slow ones. Everything that knows a driver lives in `store`; the rest knows only rows of
//! the table `world`.
//!
//! A library beside its program, because the services of other drivers (`bench-peers`) are this one over a [`Store`] of
//! theirs.

mod cli;
mod compare;
mod cpu_group;
mod http;
mod load;
mod process;
mod routing;
mod seed;
mod serve;
mod store;

use std::process::ExitCode;

use clap::Parser as _;

use crate::cli::{Cli, Command};
pub use crate::serve::{Service, serve};
pub use crate::store::{Failure, Metric, Sample, Store, WORLDS, World};

/// The program: does what its command line says.
pub fn run() -> ExitCode {
    let done = match Cli::parse().chosen() {
        Command::Serve(options) => serve::run(&options).map(|()| true),
        Command::Seed(options) => block_on(seed::run(&options)).map(|()| true),
        Command::Compare(options) => block_on(compare::run(&options)),
        Command::Routing(options) => routing::run(&options),
        Command::Load(options) => block_on(load::own::run(&options)).map(|()| true),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("bench-app: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs `work` on a runtime of this one thread.
fn block_on<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(work)
}
