//! The database under test: one that is running already, or one that is started for the comparison and ends
//! with it.

use anyhow::{Result, ensure};

use crate::cli::Database;

/// A database that answers.
pub(super) struct Running {
    url: String,
    pid: Option<u32>,
}

impl Running {
    pub(super) async fn start(database: Database, url: Option<&str>) -> Result<Self> {
        if let Some(url) = url {
            ensure!(Database::of_url(url)? == database, "--url does not name a {database} database");
            return Ok(Self { url: url.to_owned(), pid: None });
        }
        anyhow::bail!("later")
    }

    pub(super) fn url(&self) -> &str {
        &self.url
    }

    /// The process that all processes of the server descend from, where it runs on this machine and is known.
    pub(super) fn pid(&self) -> Option<u32> {
        self.pid
    }
}
