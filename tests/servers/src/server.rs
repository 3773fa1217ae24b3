//! What a caller gets to know of a server. Pure values: nothing here starts, stops or asks anything.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, ensure};
use serde::{Deserialize, Serialize};

use crate::address::Address;
use crate::client;
use crate::meeting::{Order, Stop};

/// The servers that this library can start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// PostgreSQL 18.
    Postgres,
    /// MySQL 8.4 as a container, the next long-term release as private binaries.
    Mysql,
    /// MariaDB 11.8, without a certificate: it makes one by itself. The driver for MySQL speaks to it too.
    Mariadb,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Postgres => "PostgreSQL",
            Self::Mysql => "MySQL",
            Self::Mariadb => "MariaDB",
        })
    }
}

/// How a server was had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    /// The caller named a running server in the environment. It was left as it is.
    Url,
    /// A container that the supervisor started and will remove.
    Docker,
    /// Server binaries from the distribution's packages, in a private folder.
    Private,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Url => "URL",
            Self::Docker => "Docker",
            Self::Private => "private binaries",
        })
    }
}

/// A running server. Clones are cheap and describe the same server.
///
/// The server stays up at least as long as the process that asked for it.
#[derive(Clone, Debug)]
pub struct Server {
    facts: Arc<Facts>,
    /// Its name, if it is one's own.
    instance: Arc<str>,
}

/// Everything that the supervisor tells of a server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Facts {
    pub(crate) kind: Kind,
    pub(crate) origin: Origin,
    pub(crate) url: String,
    pub(crate) version: String,
    pub(crate) source: String,
    pub(crate) socket: Option<PathBuf>,
    pub(crate) certificate_authority: Option<PathBuf>,
    pub(crate) pid: Option<u32>,
    pub(crate) folder: Option<PathBuf>,
}

impl Server {
    pub(crate) fn new(facts: Facts) -> Self {
        Self::own(facts, String::new())
    }

    pub(crate) fn own(facts: Facts, instance: String) -> Self {
        Self { facts: Arc::new(facts), instance: instance.into() }
    }

    /// Stops a server of one's own ([`own_server`](crate::own_server)) and waits until it is gone. Its data stays.
    ///
    /// # Errors
    ///
    /// When it is shared with others, runs in a container, or does not stop within 30 s.
    pub fn stop(&self, how: Stop) -> anyhow::Result<()> {
        self.order(Order::Stop(how)).map(drop)
    }

    /// Starts it again, with its data and at the same address, and tells its process. It may take a while until it
    /// answers.
    ///
    /// # Errors
    ///
    /// When it is shared with others, runs in a container, or is still running.
    pub fn resume(&self) -> anyhow::Result<u32> {
        self.order(Order::Resume)?.context("a process")
    }

    fn order(&self, order: Order) -> anyhow::Result<Option<u32>> {
        ensure!(!self.instance.is_empty(), "others use this server too; take one of your own");
        client::order(self.facts.kind, &self.instance, order)
    }

    /// Which server this is.
    pub fn kind(&self) -> Kind {
        self.facts.kind
    }

    /// How this server was had.
    pub fn how(&self) -> Origin {
        self.facts.origin
    }

    /// The URL of a user who may do everything: `postgres://user:password@host:port/database`, or `mysql://…`.
    ///
    /// Unless [`how`](Self::how) is [`Origin::Url`], the host is `127.0.0.1`.
    pub fn url(&self) -> &str {
        &self.facts.url
    }

    /// The same server and database for another user: see [`crate::TEST_ROLES`].
    ///
    /// # Panics
    ///
    /// Never: a server whose URL cannot be read is refused before it becomes a [`Server`].
    pub fn url_for(&self, user: &str, password: &str) -> String {
        let address = Address::parse(&self.facts.url).expect("the URL was read when the server was had");
        address.url_for(user, password)
    }

    /// The server's own version, as it reports it (`18.6 (Debian 18.6-3)`, `9.7.4`).
    pub fn version(&self) -> &str {
        &self.facts.version
    }

    /// The server's Unix socket, for private binaries only.
    pub fn socket(&self) -> Option<&Path> {
        self.facts.socket.as_deref()
    }

    /// The folder of the Unix socket, as PostgreSQL clients want it in `host=`; for private binaries only.
    pub fn socket_dir(&self) -> Option<&Path> {
        self.socket().and_then(Path::parent)
    }

    /// A PEM file with the authority that signed the server's TLS certificate (for `localhost` and `127.0.0.1`). Beside it
    /// are `client.crt` and `client.key`, which it has signed for the user `cert_user`.
    pub fn certificate_authority(&self) -> Option<&Path> {
        self.facts.certificate_authority.as_deref()
    }

    /// The server's first process (PostgreSQL's postmaster), for private binaries only; see [`resume`](Self::resume).
    pub fn pid(&self) -> Option<u32> {
        self.facts.pid
    }

    /// The temporary folder of the server's data, removed with the server; for private binaries only.
    pub fn folder(&self) -> Option<&Path> {
        self.facts.folder.as_deref()
    }

    /// One line for reports: what runs, which version, and where it came from. It holds no password.
    pub fn description(&self) -> String {
        self.facts.description()
    }
}

impl Facts {
    pub(crate) fn description(&self) -> String {
        let place = Address::parse(&self.url).map_or_else(|_| "?".to_owned(), |address| address.place());
        format!("{} {} at {place} from {}", self.kind, self.version, self.source)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server() -> Server {
        Server::new(Facts {
            kind: Kind::Postgres,
            origin: Origin::Private,
            url: "postgres://pipeline:secret@127.0.0.1:5555/pipeline".into(),
            version: "18.6".into(),
            source: "private binaries (testing)".into(),
            socket: Some("/tmp/x/.s.PGSQL.5555".into()),
            certificate_authority: None,
            pid: Some(1),
            folder: Some("/tmp/x".into()),
        })
    }

    #[test]
    fn a_description_shows_the_place_and_hides_the_password() {
        let line = server().description();
        assert_eq!(line, "PostgreSQL 18.6 at 127.0.0.1:5555 from private binaries (testing)");
    }

    #[test]
    fn a_url_for_another_user_keeps_place_and_database() {
        assert_eq!(server().url_for("md5_user", "a/b"), "postgres://md5_user:a%2Fb@127.0.0.1:5555/pipeline");
    }
}
