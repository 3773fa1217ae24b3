//! The table `world` as the service sees it. Each driver and way of access is one implementation of [`Store`]
//! in a module of its own; nothing outside this folder names a driver.

mod drivers;
pub(crate) mod mysql;
pub(crate) mod postgres;
mod samples;

use std::time::Duration;

use anyhow::Result;
use pg_pipeline::{ErrorKind, Outcome, Routing};
use serde::Serialize;

use crate::cli::Database;

/// Ids of the table are 1 to this.
pub const WORLDS: i32 = 10_000;

/// A row of the table, as the service's answers show it. It loads from the rows of every driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, pg_pipeline::FromRow)]
pub struct World {
    /// From 1 to [`WORLDS`].
    pub id: i32,
    /// What stands beside it.
    #[serde(rename = "randomNumber")]
    #[from_row(rename = "randomnumber")]
    pub random_number: i32,
}

/// One thread's way to the database.
pub trait Store: Clone + Send + Sync + 'static {
    /// Connects; `connections` are all that this store will ever hold.
    fn connect(url: &str, connections: usize) -> impl Future<Output = Result<Self>>;

    /// Reads one row.
    fn world(&self, id: i32) -> impl Future<Output = Result<World, Failure>> + Send;

    /// Asks whether the database answers.
    fn ping(&self) -> impl Future<Output = Result<(), Failure>> + Send;

    /// What is known of the connections now.
    fn samples(&self) -> Vec<Sample>;

    /// Finishes what is under way and says goodbye.
    fn close(self) -> impl Future<Output = ()>;
}

/// Quick and slow queries side by side; for measuring how they get past each other.
pub(crate) trait Mixed: Clone + Send + Sync + 'static {
    /// Connects with `connections`, on which queries find their way by `routing`.
    async fn connect(url: &str, connections: usize, routing: Routing) -> Result<Self>;

    /// Reads one row.
    fn quick(&self, id: i32) -> impl Future<Output = Result<World, Failure>> + Send;

    /// Keeps the server busy for a time.
    fn sleep(&self, time: Duration) -> impl Future<Output = Result<(), Failure>> + Send;

    /// Finishes what is under way and says goodbye.
    async fn close(self);
}

/// Why the database gave no row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The driver's word for it, such as `Timeout`.
    pub kind: String,
    /// What is known of the statement, such as `NotSent`.
    pub outcome: Option<String>,
    /// Whether the database could not be reached or had no room, so that a later try may succeed.
    pub unavailable: bool,
}

impl Failure {
    /// The words are the engine's, the same for every driver.
    fn new(kind: ErrorKind, outcome: Outcome) -> Self {
        use ErrorKind::{Busy, Closed, Connect, Io, Timeout, Tls};
        Self {
            kind: format!("{kind:?}"),
            outcome: Some(format!("{outcome:?}")),
            unavailable: matches!(kind, Connect | Tls | Io | Timeout | Busy | Closed),
        }
    }
}

/// One figure for `/metrics`.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// What it is a figure of.
    pub metric: Metric,
    /// What it is about, such as one of several connections.
    pub labels: Vec<(&'static str, String)>,
    /// The figure.
    pub value: u64,
}

/// A figure's name, type and meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Metric {
    /// As Prometheus knows it.
    pub name: &'static str,
    /// It only grows, until the process ends.
    pub counter: bool,
    /// In words.
    pub help: &'static str,
}

/// Creates the table where it is missing and fills it up. What is there already is left alone.
pub(crate) async fn seed(url: &str) -> Result<()> {
    match Database::of_url(url)? {
        Database::Postgres => postgres::seed(url).await,
        Database::Mysql => mysql::seed(url).await,
    }
}

/// What the comparison must know of a database before it measures.
pub(crate) struct Facts {
    /// The server's own version.
    pub(crate) version: String,
    pub(crate) worlds: Vec<World>,
}

pub(crate) async fn facts(url: &str) -> Result<Facts> {
    match Database::of_url(url)? {
        Database::Postgres => postgres::facts(url).await,
        Database::Mysql => mysql::facts(url).await,
    }
}
