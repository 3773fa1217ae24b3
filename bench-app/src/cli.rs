//! The command line: what can be asked for, its defaults, and clear words for what cannot be had.

// The comments of options are what `--help` shows, as they stand.
#![allow(clippy::doc_markdown)]

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use anyhow::bail;
use clap::{Args, Parser, Subcommand, ValueEnum};
use serde::Serialize;

/// A web service over PostgreSQL that measures pipelined against checkout access.
#[derive(Debug, Parser)]
#[command(version, about, subcommand_required = false)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
}

impl Cli {
    /// What to do; without a command the quick comparison, which also writes its report.
    pub(crate) fn chosen(self) -> Command {
        self.command.unwrap_or_else(|| {
            let quick = Self::parse_from(["bench-app", "compare", "--json", DEFAULT_REPORT]);
            quick.command.expect("a command was given")
        })
    }
}

/// Where the report goes when no command was given.
const DEFAULT_REPORT: &str = "bench-report.json";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve /json, /db, /queries?n=20, /metrics and /healthz
    Serve(ServeOptions),
    /// Create and fill the table `world` (10,000 rows)
    Seed(SeedOptions),
    /// Start a database and the service in all variants, measure, print a table (the default)
    Compare(CompareOptions),
    /// Measure how quick queries get past slow ones, by the ways of choosing a connection
    Routing(RoutingOptions),
    /// Put load on one address, and print figures
    #[command(hide = true)]
    Load(LoadOptions),
}

#[derive(Debug, Args)]
pub(crate) struct ServeOptions {
    /// The database, as postgres://user:password@host/database, or mysql://…
    #[arg(long)]
    pub(crate) url: String,
    /// How requests reach the database
    #[arg(long, value_enum, default_value_t = Access::Pipelined)]
    pub(crate) access: Access,
    /// Connections to the database over all threads (pipelined: at least 4 for each thread)
    #[arg(long, default_value_t = 8, value_parser = at_least_one)]
    pub(crate) connections: usize,
    /// One runtime per core: this many threads, each with a runtime, a listener and a share of the connections of its
    /// own [default: one runtime over all cores]
    #[arg(long, value_parser = at_least_one)]
    pub(crate) threads: Option<usize>,
    /// Where to listen; port 0 takes a free one, which is printed
    #[arg(long, default_value = "127.0.0.1:8080")]
    pub(crate) addr: SocketAddr,
}

#[derive(Debug, Args)]
pub(crate) struct SeedOptions {
    /// The database, as postgres://user:password@host/database, or mysql://…
    #[arg(long)]
    pub(crate) url: String,
}

#[derive(Debug, Args)]
pub(crate) struct RoutingOptions {
    /// The databases, separated by commas
    #[arg(long, value_enum, value_delimiter = ',', default_value = "postgres,mysql")]
    pub(crate) database: Vec<Database>,
    /// Connections to the database
    #[arg(long, default_value_t = 8, value_parser = at_least_one)]
    pub(crate) connections: usize,
    /// Queries per second, sent whether or not earlier ones are answered
    #[arg(long, default_value_t = 640, value_parser = at_least_one)]
    pub(crate) rate: usize,
    /// How many of a hundred queries are slow
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u8).range(0..=100))]
    pub(crate) slow_share: u8,
    /// How long a slow query keeps the server busy
    #[arg(long, default_value = "50ms", value_parser = duration)]
    pub(crate) slow: Duration,
    /// Length of each measurement
    #[arg(long, default_value = "4s", value_parser = duration)]
    pub(crate) duration: Duration,
    /// How often each cell is measured; cells alternate
    #[arg(long, default_value_t = 3, value_parser = at_least_one)]
    pub(crate) rounds: usize,
}

#[derive(Debug, Args)]
pub(crate) struct LoadOptions {
    #[arg(long)]
    pub(crate) addr: SocketAddr,
    #[arg(long)]
    pub(crate) route: String,
    #[arg(long, value_parser = at_least_one)]
    pub(crate) concurrency: usize,
    #[arg(long, value_parser = duration)]
    pub(crate) duration: Duration,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct CompareOptions {
    /// As published: 5 s of warm-up and 15 s for each cell, unless said otherwise
    #[arg(long)]
    pub(crate) full: bool,
    /// The databases, separated by commas [default: postgres,mysql, or the one of --url]
    #[arg(long, value_enum, value_delimiter = ',')]
    pub(crate) database: Vec<Database>,
    /// Compare on a running server instead of starting one
    #[arg(long)]
    pub(crate) url: Option<String>,
    /// The variants, separated by commas
    #[arg(long, value_enum, value_delimiter = ',', default_value = "pipelined,checkout")]
    pub(crate) access: Vec<Access>,
    /// The routes, separated by commas
    #[arg(long, value_delimiter = ',', default_value = "/json,/db,/queries?n=20")]
    pub(crate) routes: Vec<Route>,
    /// HTTP connections of the load generator
    #[arg(long, default_value_t = 256, value_parser = at_least_one)]
    pub(crate) concurrency: usize,
    /// Connections to the database over all threads of the service
    #[arg(long, default_value_t = 8, value_parser = at_least_one)]
    pub(crate) connections: usize,
    /// The service has this many threads with a runtime each [default: one runtime over all cores]
    #[arg(long, value_parser = at_least_one)]
    pub(crate) threads: Option<usize>,
    /// Load before each measurement [default: 0.5s; with --full 5s]
    #[arg(long, value_parser = duration)]
    pub(crate) warmup: Option<Duration>,
    /// Length of each measurement [default: 2s; with --full 15s]
    #[arg(long, value_parser = duration)]
    pub(crate) duration: Option<Duration>,
    /// How often each cell is measured; variants alternate
    #[arg(long, default_value_t = 3, value_parser = at_least_one)]
    pub(crate) rounds: usize,
    /// Round trips between service and database (only 0ms so far)
    #[arg(long, value_delimiter = ',', default_value = "0ms", value_parser = duration)]
    pub(crate) rtt: Vec<Duration>,
    /// Other drivers to measure beside, separated by commas; they are in `bench-peers`, which is built by itself
    #[arg(long, value_enum, value_delimiter = ',')]
    pub(crate) peers: Vec<Peer>,
    /// CPUs that the service is held to (not offered yet)
    #[arg(long)]
    pub(crate) server_cpu_limit: Option<f64>,
    /// Which load generator to use [default: wrk when it is installed]
    #[arg(long, value_enum)]
    pub(crate) load: Option<Generator>,
    /// Write the figures to this file
    #[arg(long)]
    pub(crate) json: Option<PathBuf>,
    /// Write a page with charts to this file (not offered yet)
    #[arg(long)]
    pub(crate) html: Option<PathBuf>,
}

impl CompareOptions {
    /// What is measured on a database, in this order.
    pub(crate) fn subjects(&self, database: Database) -> impl Iterator<Item = Subject> {
        let own = self.access.iter().copied().map(Subject::Own);
        let peers = self.peers.iter().copied().filter(move |peer| peer.knows(database));
        own.chain(peers.map(Subject::Peer))
    }

    /// What to compare on.
    pub(crate) fn databases(&self) -> anyhow::Result<Vec<Database>> {
        match &self.url {
            _ if !self.database.is_empty() => Ok(self.database.clone()),
            Some(url) => Ok(vec![Database::of_url(url)?]),
            None => Ok(vec![Database::Postgres, Database::Mysql]),
        }
    }

    /// Refuses what the command line names and this version cannot do.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        if self.rtt.iter().any(|rtt| !rtt.is_zero()) {
            bail!("--rtt other than 0ms is not offered yet: leave it out");
        }
        if self.server_cpu_limit.is_some() {
            bail!("--server-cpu-limit is not offered yet: leave it out");
        }
        if self.html.is_some() {
            bail!("--html is not offered yet: use --json FILE for the figures");
        }
        if self.duration().is_zero() {
            bail!("--duration 0 measures nothing: give a length such as 2s");
        }
        Ok(())
    }

    pub(crate) fn warmup(&self) -> Duration {
        self.warmup.unwrap_or(if self.full { Duration::from_secs(5) } else { Duration::from_millis(500) })
    }

    pub(crate) fn duration(&self) -> Duration {
        self.duration.unwrap_or(Duration::from_secs(if self.full { 15 } else { 2 }))
    }

    /// Runtimes of the service.
    pub(crate) fn runtimes(&self) -> usize {
        self.threads.unwrap_or(1)
    }
}

impl ServeOptions {
    /// Runtimes of the service.
    pub(crate) fn runtimes(&self) -> usize {
        self.threads.unwrap_or(1)
    }
}

/// How requests reach the database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Access {
    /// Many requests share each connection, through the driver's pool
    Pipelined,
    /// Each request takes a connection for itself, through deadpool
    Checkout,
}

/// What others offer; in the program `bench-peers`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Peer {
    /// Clients of tokio-postgres, one for each connection, that all requests share
    TokioPostgres,
}

/// What is measured: a driver, and how requests reach its connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Subject {
    /// The driver of this workspace for the database.
    Own(Access),
    /// Somebody else's.
    Peer(Peer),
}

impl Peer {
    /// Its name, here and on the command line of `bench-peers`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::TokioPostgres => "tokio-postgres",
        }
    }

    /// Whether it speaks with this kind of database.
    pub(crate) fn knows(self, database: Database) -> bool {
        match self {
            Self::TokioPostgres => database == Database::Postgres,
        }
    }
}

impl Subject {
    /// The driver, as reports name it.
    pub(crate) fn driver(self, database: Database) -> &'static str {
        match self {
            Self::Own(_) => database.driver(),
            Self::Peer(peer) => peer.name(),
        }
    }

    /// How requests reach its connections, as reports name it.
    pub(crate) fn access(self) -> &'static str {
        match self {
            Self::Own(Access::Pipelined) => "pipelined",
            Self::Own(Access::Checkout) => "checkout",
            Self::Peer(Peer::TokioPostgres) => "shared",
        }
    }

    /// Each runtime's share of the connections.
    pub(crate) fn connections_per_runtime(self, connections: usize, runtimes: usize) -> usize {
        match self {
            Self::Own(access) => access.connections_per_runtime(connections, runtimes),
            Self::Peer(_) => connections.div_ceil(runtimes.max(1)).max(1),
        }
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Own(access) => access.fmt(f),
            Self::Peer(peer) => f.pad(peer.name()),
        }
    }
}

/// The kind of database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Database {
    Postgres,
    Mysql,
}

/// What puts load on the service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Generator {
    /// The program `wrk`
    Wrk,
    /// This program's own
    Own,
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Pipelined => "pipelined",
            Self::Checkout => "checkout",
        })
    }
}

impl fmt::Display for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Postgres => "postgres",
            Self::Mysql => "mysql",
        })
    }
}

impl Database {
    /// The database that a URL names by its scheme.
    pub(crate) fn of_url(url: &str) -> anyhow::Result<Self> {
        let scheme = url.split_once("://").map(|(scheme, _)| scheme);
        match scheme {
            Some("postgres" | "postgresql") => Ok(Self::Postgres),
            Some("mysql" | "mariadb") => Ok(Self::Mysql),
            _ => bail!("the URL must begin with postgres:// or mysql://"),
        }
    }

    /// The driver of this workspace, as reports name it.
    pub(crate) fn driver(self) -> &'static str {
        match self {
            Self::Postgres => "pg-pipeline",
            Self::Mysql => "mysql-pipeline",
        }
    }
}

/// A route that can be measured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Route {
    Json,
    Db,
    Queries {
        n: u16,
        /// As the user wrote it, and as requests and reports have it.
        path: String,
    },
}

impl Route {
    pub(crate) fn path(&self) -> &str {
        match self {
            Self::Json => "/json",
            Self::Db => "/db",
            Self::Queries { path, .. } => path,
        }
    }
}

impl FromStr for Route {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "/json" => return Ok(Self::Json),
            "/db" => return Ok(Self::Db),
            _ => {}
        }
        let n =
            text.strip_prefix("/queries?n=").and_then(|n| n.parse().ok()).filter(|n| (1..=500).contains(n));
        n.map(|n| Self::Queries { n, path: text.to_owned() }).ok_or_else(|| {
            "the routes are /json, /db and /queries?n=20, with another n from 1 to 500 if wanted".to_owned()
        })
    }
}

/// A length of time such as `500ms`, `0.5s` or `2m`.
fn duration(text: &str) -> Result<Duration, String> {
    let help = || format!("`{text}` is not a length of time; examples are 500ms, 0.5s and 2m");
    let unit = text.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(help)?;
    let (number, unit) = text.split_at(unit);
    let seconds = match unit {
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "m" | "min" => 60.0,
        _ => return Err(help()),
    };
    let number: f64 = number.parse().map_err(|_| help())?;
    match Duration::try_from_secs_f64(number * seconds) {
        Ok(length) if length <= Duration::from_secs(24 * 3600) => Ok(length),
        _ => Err(format!("`{text}` is too long: up to one day can be measured")),
    }
}

fn at_least_one(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) | Err(_) => Err("a whole number from 1 on is needed".to_owned()),
        Ok(number) => Ok(number),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use clap::{CommandFactory as _, Parser as _};

    use super::{Access, Cli, Command, CompareOptions, Database, Route, duration};

    fn parse(arguments: &[&str]) -> Result<Command, clap::Error> {
        Cli::try_parse_from([&["bench-app"], arguments].concat()).map(Cli::chosen)
    }

    fn compare(arguments: &[&str]) -> CompareOptions {
        match parse(&[&["compare"], arguments].concat()) {
            Ok(Command::Compare(options)) => options,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn lengths_of_time() {
        assert_eq!(duration("0.5s"), Ok(Duration::from_millis(500)));
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(duration("0ms"), Ok(Duration::ZERO));
        assert_eq!(duration("2m"), Ok(Duration::from_secs(120)));
        assert_eq!(duration("250us"), Ok(Duration::from_micros(250)));
        for wrong in ["", "5", "s", ".s", "1h", "-1s", "1.2.3s", "1e9s", "99999m", "NaNs"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn nothing_said_is_the_quick_comparison_with_a_report() {
        let Ok(Command::Compare(options)) = parse(&[]) else { panic!("compare is the default") };
        assert_eq!(options.databases().ok(), Some(vec![Database::Postgres, Database::Mysql]));
        assert_eq!(options.access, [Access::Pipelined, Access::Checkout]);
        assert_eq!(
            options.routes.iter().map(Route::path).collect::<Vec<_>>(),
            ["/json", "/db", "/queries?n=20"]
        );
        assert_eq!((options.concurrency, options.connections, options.rounds), (256, 8, 3));
        assert_eq!(
            (options.warmup(), options.duration()),
            (Duration::from_millis(500), Duration::from_secs(2))
        );
        assert!(options.json.is_some());
        assert!(options.check().is_ok());
    }

    #[test]
    fn full_lengths_yield_to_explicit_ones() {
        let options = compare(&["--full"]);
        assert_eq!((options.warmup(), options.duration()), (Duration::from_secs(5), Duration::from_secs(15)));
        let options = compare(&["--full", "--duration", "3s"]);
        assert_eq!((options.warmup(), options.duration()), (Duration::from_secs(5), Duration::from_secs(3)));
    }

    #[test]
    fn lists_are_separated_by_commas() {
        let options = compare(&["--access", "checkout,pipelined", "--routes", "/db,/queries?n=5"]);
        assert_eq!(options.access, [Access::Checkout, Access::Pipelined]);
        assert_eq!(options.routes, [Route::Db, Route::Queries { n: 5, path: "/queries?n=5".into() }]);
    }

    #[test]
    fn what_cannot_be_measured_is_refused() {
        for wrong in [
            "--routes=/cached",
            "--routes=/queries?n=0",
            "--rounds=0",
            "--concurrency=none",
            "--access=direct",
        ] {
            assert!(parse(&["compare", wrong]).is_err(), "{wrong}");
        }
        assert!(parse(&["serve"]).is_err(), "a service needs a URL");
    }

    #[test]
    fn what_is_not_offered_yet_says_so() {
        for later in ["--rtt=0ms,1ms", "--server-cpu-limit=0.4", "--html=report.html"] {
            let refusal = compare(&[later]).check().expect_err(later).to_string();
            assert!(refusal.contains("not offered yet"), "{refusal}");
        }
    }

    #[test]
    fn the_url_names_the_database() {
        assert_eq!(Database::of_url("postgresql://localhost/app").ok(), Some(Database::Postgres));
        assert_eq!(Database::of_url("mysql://localhost/app").ok(), Some(Database::Mysql));
        assert!(Database::of_url("localhost").is_err());
    }
}
