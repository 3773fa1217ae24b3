//! The service of `bench-app` over other drivers, each used the plain way that its documentation shows.
//!
//! A program of its own, so that what it depends on is not in the product's builds; `bench-app compare --peers` starts
//! it. Each driver is one implementation of [`bench_app::Store`] in a module of its own.

// The comments of options are what `--help` shows, as they stand.
#![allow(clippy::doc_markdown)]

mod tokio_postgres;

use std::net::SocketAddr;
use std::process::ExitCode;

use bench_app::{Service, serve};
use clap::{Parser, ValueEnum};

/// The same as the service's that these are compared with.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Serve /json, /db and /queries?n=20 over another driver
#[derive(Debug, Parser)]
#[command(version, about)]
struct Cli {
    /// The driver
    #[arg(long, value_enum)]
    driver: Driver,
    /// The database, as postgres://user:password@host/database
    #[arg(long)]
    url: String,
    /// Connections to the database over all threads
    #[arg(long, default_value_t = 8)]
    connections: usize,
    /// This many threads, each with a runtime, a listener and a share of the connections of its own [default: one
    /// runtime over all cores]
    #[arg(long)]
    threads: Option<usize>,
    /// Where to listen; port 0 takes a free one, which is printed
    #[arg(long, default_value = "127.0.0.1:8080")]
    addr: SocketAddr,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Driver {
    /// Clients of tokio-postgres, one for each connection, that all requests share
    TokioPostgres,
}

fn main() -> ExitCode {
    let Cli { driver, url, connections, threads, addr } = Cli::parse();
    let connections = connections.div_ceil(threads.unwrap_or(1).max(1)).max(1);
    let service = Service { url, connections, threads, addr };
    let done = match driver {
        Driver::TokioPostgres => serve::<tokio_postgres::Shared>(&service),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench-peers: {error:#}");
            ExitCode::FAILURE
        }
    }
}
