//! Servers from the distribution's own packages, without touching the system: packages are fetched from the mirror
//! that apt is already set up with, unpacked into a cached folder, and run from there on loopback ports with data
//! in a temporary folder. What differs between the servers is in [`postgres`], [`mysql`] and [`mariadb`].

mod account;
mod apt;
mod mariadb;
mod mysql;
mod postgres;
mod process;
mod root;
mod sources;

use std::path::Path;

pub(crate) use process::Running;

use rustix::process::Signal;

use crate::meeting::Stop;
use crate::server::{Facts, Kind};
use crate::supervisor::Record;

/// Starts a server; `note` tells the user what takes a while. One that `may_be_killed` keeps what it has acknowledged
/// when its processes die; others need not, and are quicker.
pub(crate) fn start(
    kind: Kind,
    temporary: &Path,
    may_be_killed: bool,
    record: &Record,
    note: &dyn Fn(&str),
) -> anyhow::Result<(Facts, Running)> {
    match kind {
        Kind::Postgres => postgres::start(temporary, may_be_killed, record, note),
        Kind::Mysql => mysql::start(temporary, may_be_killed, record, note),
        Kind::Mariadb => mariadb::start(temporary, record, note),
    }
}

/// The signal that stops a server (PostgreSQL documentation, "Shutting Down the Server"; MySQL manual, "Unix Signal
/// Handling in MySQL").
pub(crate) fn signal(kind: Kind, how: Stop) -> Signal {
    match (kind, how) {
        (Kind::Postgres, Stop::Fast) => Signal::INT,
        (Kind::Postgres, Stop::Immediate) => Signal::QUIT,
        (Kind::Mysql | Kind::Mariadb, Stop::Fast) => Signal::TERM,
        (Kind::Mysql | Kind::Mariadb, Stop::Immediate) => Signal::KILL,
    }
}

/// Fetches a server's binaries, unless they are there.
pub(crate) fn install(kind: Kind, note: &dyn Fn(&str)) -> anyhow::Result<()> {
    match kind {
        Kind::Postgres => postgres::install(note).map(drop),
        Kind::Mysql => mysql::install(note).map(drop),
        Kind::Mariadb => mariadb::install(note).map(drop),
    }
}
