//! The database under test: one that the user names, or one that is started for the comparison and ends with it.

use anyhow::{Context as _, Result, ensure};
use test_servers::Kind;

use crate::cli::Database;

/// A database that answers.
pub(crate) struct Running {
    url: String,
    pid: Option<u32>,
}

impl Running {
    pub(crate) async fn start(database: Database, url: Option<&str>) -> Result<Self> {
        if let Some(url) = url {
            ensure!(Database::of_url(url)? == database, "--url does not name a {database} database");
            return Ok(Self { url: url.to_owned(), pid: None });
        }
        let kind = match database {
            Database::Postgres => Kind::Postgres,
            Database::Mysql => Kind::Mysql,
        };
        // It stays up for as long as this process, and its caretaker stops it some seconds later.
        let server =
            test_servers::server(kind).await.context("no database to compare on (or name one by --url)")?;
        let mut url = server.url().to_owned();
        if database == Database::Mysql {
            // Nobody sits between this process and a server that it has started.
            url.push_str("?allowPublicKeyRetrieval=true");
        }
        Ok(Self { url, pid: server.pid() })
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// The process that all processes of the server descend from, where it runs on this machine and is known.
    pub(crate) fn pid(&self) -> Option<u32> {
        self.pid
    }
}
