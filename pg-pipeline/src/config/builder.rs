//! The builder face of [`Config`]: one method for each option that has a meaning in this version.
//!
//! This module may store values as they come; whether they fit is asked when connecting, so that a chain of
//! calls needs no `?`. `mysql-pipeline`'s file of this name has the common options again on purpose, with its own
//! defaults; the pool's options are written in the engine.

use std::error::Error as StdError;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use wire_pipeline::config::{hosts, units};

use super::ssl::RootCertificates;
use super::{Config, Password, SslMode, SslNegotiation, TargetSessionAttrs};
use crate::auth::ChannelBinding;

impl Config {
    /// A configuration with every option at its default.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the host in place of all earlier ones: a name, an address, the directory of a Unix socket (it begins
    /// with `/`), or a comma-separated list of such, tried in order. Default: `localhost`.
    #[must_use]
    pub fn host(mut self, host: impl AsRef<str>) -> Self {
        self.addresses.hosts = hosts::list(host.as_ref());
        self
    }

    /// Sets several hosts with their ports in place of all earlier ones; they are tried in order.
    #[must_use]
    pub fn hosts<H: Into<String>>(mut self, servers: impl IntoIterator<Item = (H, u16)>) -> Self {
        let (hosts, ports) = servers.into_iter().map(|(host, port)| (host.into(), port.to_string())).unzip();
        self.addresses.hosts = hosts;
        self.addresses.ports = ports;
        self
    }

    /// Sets the address that spares looking the host's name up.
    #[must_use]
    pub fn hostaddr(mut self, address: IpAddr) -> Self {
        self.addresses.numeric = vec![address.to_string()];
        self
    }

    /// Sets the port of all hosts, 1 to 65535. Default: 5432.
    #[must_use]
    pub fn port(mut self, port: u16) -> Self {
        self.addresses.ports = vec![port.to_string()];
        self
    }

    /// Sets the user. Default: the operating system's user.
    #[must_use]
    pub fn user(mut self, user: impl Into<String>) -> Self {
        self.user = Some(user.into()).filter(|user| !user.is_empty());
        self
    }

    /// Sets the password as it is, without any encoding. Default: none; an empty one counts as none.
    #[must_use]
    pub fn password(mut self, password: impl AsRef<str>) -> Self {
        self.password = Password::value(password.as_ref());
        self
    }

    /// Sets where the password comes from: `provider` is called once for every connection whose server asks
    /// for a password, within `connect_timeout`. If it fails, so does that connection attempt, with its error
    /// as the source.
    ///
    /// ```
    /// let config = pg_pipeline::Config::new().host("db.internal").user("app").password_provider(|| async {
    ///     Ok(std::fs::read_to_string("/run/secrets/database-token")?)
    /// });
    /// # let _ = config;
    /// ```
    #[must_use]
    pub fn password_provider<F, Fut>(mut self, provider: F) -> Self
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<String, Box<dyn StdError + Send + Sync>>> + Send + 'static,
    {
        self.password = Password::provider(provider);
        self
    }

    /// Sets the database. Default: the one named like the user.
    #[doc(alias = "dbname")]
    #[must_use]
    pub fn database(mut self, database: impl Into<String>) -> Self {
        self.database = Some(database.into()).filter(|database| !database.is_empty());
        self
    }

    /// Sets the name that the server shows and logs for the connections. Default: none.
    #[must_use]
    pub fn application_name(mut self, name: impl Into<String>) -> Self {
        self.application_name = Some(name.into()).filter(|name| !name.is_empty());
        self
    }

    /// Sets command-line options for the server's process, such as `-c statement_timeout=5s`. Default: none.
    /// Poolers refuse them; [`setup`](Self::setup) works everywhere.
    #[must_use]
    pub fn options(mut self, options: impl Into<String>) -> Self {
        self.server_options = Some(options.into()).filter(|options| !options.is_empty());
        self
    }

    /// Sets how much encryption and verification is asked for. Default: [`SslMode::Prefer`].
    #[must_use]
    pub fn sslmode(mut self, mode: SslMode) -> Self {
        self.ssl.mode = mode;
        self
    }

    /// Sets the file of PEM certificates whose signatures are trusted; `system` for whom the system trusts (with
    /// [`SslMode::VerifyFull`] only). Default: `~/.postgresql/root.crt` if there is one, else the system's.
    #[must_use]
    pub fn sslrootcert(mut self, file: impl Into<PathBuf>) -> Self {
        let file = file.into();
        let is_system = file.as_os_str() == "system";
        self.ssl.roots =
            Some(if is_system { RootCertificates::System } else { RootCertificates::File(file) });
        self
    }

    /// Sets our own certificate, a PEM file with the chain behind it, and its key, a PEM file that is not encrypted and
    /// that nobody else may read. Default: `~/.postgresql/postgresql.crt` and `postgresql.key` if they are there.
    #[must_use]
    pub fn sslcert(mut self, certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        self.ssl.certificate = Some(certificate.into());
        self.ssl.key = Some(key.into());
        self
    }

    /// Sets how TLS begins. Default: [`SslNegotiation::Postgres`].
    #[must_use]
    pub fn sslnegotiation(mut self, negotiation: SslNegotiation) -> Self {
        self.ssl.negotiation = negotiation;
        self
    }

    /// Sets whether the proof of a password is bound to the TLS channel. Default: [`ChannelBinding::Prefer`].
    #[must_use]
    pub fn channel_binding(mut self, binding: ChannelBinding) -> Self {
        self.ssl.channel_binding = binding;
        self
    }

    /// Sets where OAuth tokens come from, for servers that ask for one (`oauth` in `pg_hba.conf`, PostgreSQL 18):
    /// `provider` is called once for every such connection, within `connect_timeout`. A token is sent over TLS and Unix
    /// sockets only. Default: none.
    #[must_use]
    pub fn oauth_token_provider<F, Fut>(mut self, provider: F) -> Self
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<String, Box<dyn StdError + Send + Sync>>> + Send + 'static,
    {
        self.oauth_token = Password::provider(provider);
        self
    }

    /// Sets the role that a server must have. Default: [`TargetSessionAttrs::Any`].
    #[must_use]
    pub fn target_session_attrs(mut self, target: TargetSessionAttrs) -> Self {
        self.target = target;
        self
    }

    /// Sets whether hosts, and the addresses of each, are tried in random order. Default: no.
    #[must_use]
    pub fn load_balance_hosts(mut self, random: bool) -> Self {
        self.load_balance = random;
        self
    }

    /// Switches TCP keepalive on or off. Default: on.
    #[must_use]
    pub fn keepalives(mut self, on: bool) -> Self {
        self.no_keepalive = !on;
        self
    }

    /// Sets after how long without traffic the first keepalive probe goes out. Default, and zero: the
    /// operating system's.
    #[must_use]
    pub fn keepalives_idle(mut self, idle: Duration) -> Self {
        self.keepalive.idle = units::nonzero(idle);
        self
    }

    /// Sets the time between unanswered keepalive probes. Default, and zero: the operating system's.
    #[must_use]
    pub fn keepalives_interval(mut self, interval: Duration) -> Self {
        self.keepalive.interval = units::nonzero(interval);
        self
    }

    /// Sets after how many unanswered keepalive probes the connection counts as lost. Default, and zero: the
    /// operating system's.
    #[must_use]
    pub fn keepalives_count(mut self, count: u32) -> Self {
        self.keepalive.count = Some(count).filter(|count| *count != 0);
        self
    }

    /// Sets how long sent bytes may stay unacknowledged before the connection counts as lost (Linux only).
    /// Default, and zero: the operating system's.
    #[must_use]
    pub fn tcp_user_timeout(mut self, timeout: Duration) -> Self {
        self.tcp_user_timeout = units::nonzero(timeout);
        self
    }
}

wire_pipeline::option_setters! { Config, pool, "With 0 none is named, as transaction poolers need it." }
