//! Real database servers for tests, demonstrations and benchmarks, with no set-up by hand.
//!
//! [`postgres`], [`mysql`] and [`mariadb`] answer with a running server. They take, in this order: the server that the environment
//! names (`PG_PIPELINE_URL`, `MYSQL_PIPELINE_URL`, `MARIADB_PIPELINE_URL`); a container, if Docker is there and the image can be had; or server
//! binaries from the distribution's packages, fetched once into a private cache, with nothing changed on the system.
//! What was chosen, and why the others were not, is printed in one line.
//!
//! ```no_run
//! # async fn example() -> anyhow::Result<()> {
//! let server = test_servers::postgres().await?;
//! println!("{} at {}", server.version(), server.url());
//! # Ok(())
//! # }
//! ```
//!
//! Servers start once per run and are shared by test threads, test binaries and processes: create what a test needs
//! under a name of its own. A supervisor process owns the servers, and stops and removes them a few seconds after the
//! last process that asked for one has ended, however it ended.
//!
//! | variable | meaning |
//! | --- | --- |
//! | `PG_PIPELINE_URL`, `MYSQL_PIPELINE_URL`, `MARIADB_PIPELINE_URL` | a running server to use, which is left as it is |
//! | `PG_PIPELINE_IMAGE`, `MYSQL_PIPELINE_IMAGE`, `MARIADB_PIPELINE_IMAGE` | the image to run (default `postgres:18`, `mysql:8.4`, `mariadb:11.8`) |
//! | `PIPELINE_SERVERS` | `url`, `docker` or `private`: allow this way only |
//! | `PIPELINE_SERVERS_CACHE` | the folder for server binaries (default: the user's cache folder) |
//! | `PIPELINE_SERVERS_RUN` | the folder where clients and supervisor meet; another folder means other servers |
//! | `PIPELINE_SERVERS_SUPERVISOR` | the supervisor's executable, where cargo is not at hand |

// Clients and the supervisor share modules; in a build for clients the supervisor's half of them lies idle.
#![cfg_attr(not(feature = "supervisor"), allow(dead_code))]

mod address;
mod choice;
mod client;
#[cfg(feature = "supervisor")]
mod docker;
mod executable;
mod lock;
mod meeting;
#[cfg(feature = "supervisor")]
mod private;
mod probe;
mod server;
mod settings;
#[cfg(feature = "supervisor")]
mod setup;
#[cfg(feature = "supervisor")]
mod supervisor;
#[cfg(feature = "supervisor")]
mod tls;

use anyhow::Context as _;

pub use meeting::Stop;
pub use server::{Kind, Origin, Server};
#[cfg(feature = "supervisor")]
#[doc(hidden)]
pub use supervisor::supervise;

/// Roles of every PostgreSQL server that this library starts, one for each way of logging in, with their passwords.
///
/// `trust_user` needs none, `password_user` sends it in clear text, then MD5 and SCRAM-SHA-256. The rule is the same
/// over TCP and over the Unix socket. Besides there are `cert_user`, who shows a certificate, `tls_user` (`secret`), who is
/// let in over TLS only, and `plain_user` (`secret`), who is let in without TLS only. A server that the environment names has them only if its owner made them.
pub const TEST_ROLES: [(&str, &str); 4] =
    [("trust_user", ""), ("password_user", "secret"), ("md5_user", "secret"), ("scram_user", "secret")];

/// A PostgreSQL server, with a database `pipeline`, and [`TEST_ROLES`].
///
/// Cancel safety: the server goes on starting when the future is dropped, and the next call finds it.
///
/// # Errors
///
/// When no way works; the error says what was tried and what to do.
pub async fn postgres() -> anyhow::Result<Server> {
    server(Kind::Postgres).await
}

/// A MySQL server. Its URL is that of `root`; a user `app` with the password `secret` owns the database `app`.
///
/// Cancel safety and errors are those of [`postgres`].
pub async fn mysql() -> anyhow::Result<Server> {
    server(Kind::Mysql).await
}

/// A MariaDB server, with the plugins for `ed25519` and `parsec`, and with TLS as it comes: by a certificate that nobody has
/// signed. Its URL is that of `root`.
///
/// Cancel safety and errors are those of [`postgres`].
pub async fn mariadb() -> anyhow::Result<Server> {
    server(Kind::Mariadb).await
}

/// [`postgres`], [`mysql`] or [`mariadb`], by kind.
pub async fn server(kind: Kind) -> anyhow::Result<Server> {
    tokio::task::spawn_blocking(move || client::server(kind)).await.context("asking for a server")?
}

/// A server of this process's own, told from its others by a name: nobody else is harmed when it is stopped, killed or set up in odd
/// ways. Private binaries come first here, because only these can be stopped and started again ([`Server::stop`],
/// [`Server::resume`]); a server that the environment names is never taken.
///
/// Cancel safety and errors are those of [`postgres`].
pub async fn own_server(kind: Kind, name: &'static str) -> anyhow::Result<Server> {
    tokio::task::spawn_blocking(move || client::own_server(kind, name))
        .await
        .context("asking for a server")?
}

/// The same for callers without a runtime. It blocks while the server starts.
pub fn server_blocking(kind: Kind) -> anyhow::Result<Server> {
    client::server(kind)
}

/// Fetches the private binaries of a server into the cache, so that a later run starts without the network.
#[cfg(feature = "supervisor")]
pub fn install(kind: Kind) -> anyhow::Result<()> {
    private::install(kind, &|text| eprintln!("test-servers: {text}"))
}

/// Tells executables of these very sources from others.
#[doc(hidden)]
pub const FINGERPRINT: &str = meeting::FINGERPRINT;
