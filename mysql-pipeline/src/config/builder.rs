//! The builder face of [`Config`]: one method for each option that has a meaning in this version.
//!
//! This module may store values as they come; whether they fit is asked when connecting, so that a chain of
//! calls needs no `?`. `pg-pipeline`'s file of this name has the common options again on purpose, with its own
//! defaults; the pool's options are written in the engine.

use std::error::Error as StdError;
use std::path::PathBuf;
use std::time::Duration;

use wire_pipeline::config::{hosts, units};

use super::{Config, Password, SslMode, TimeZone};

impl Config {
    /// A configuration with every option at its default.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the host in place of all earlier ones: a name, an address, the path of a Unix socket (it begins
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

    /// Sets the port of all hosts, 1 to 65535. Default: 3306.
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
    /// let config = mysql_pipeline::Config::new().host("db.internal").user("app").password_provider(|| async {
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

    /// Sets the database. Default: none.
    #[must_use]
    pub fn database(mut self, database: impl Into<String>) -> Self {
        self.database = Some(database.into()).filter(|database| !database.is_empty());
        self
    }

    /// Sets how much encryption and verification is asked for. Default: [`SslMode::Preferred`].
    #[must_use]
    pub fn ssl_mode(mut self, mode: SslMode) -> Self {
        self.ssl.mode = mode;
        self
    }

    /// Switches TCP keepalive on or off. Default: on.
    #[must_use]
    pub fn keepalives(mut self, on: bool) -> Self {
        self.no_keepalive = !on;
        self
    }

    /// Sets after how long without traffic the first keepalive probe goes out. Default, and zero: the operating system's.
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

    /// Sets after how many unanswered keepalive probes the connection counts as lost. Default, and zero: the operating
    /// system's.
    #[must_use]
    pub fn keepalives_count(mut self, count: u32) -> Self {
        self.keepalive.count = Some(count).filter(|count| *count != 0);
        self
    }

    /// Sets how long sent bytes may stay unacknowledged before the connection is given up (Linux only). Default, and
    /// zero: the operating system's.
    #[must_use]
    pub fn tcp_user_timeout(mut self, timeout: Duration) -> Self {
        self.tcp_user_timeout = units::nonzero(timeout);
        self
    }

    /// Sets the file of PEM certificates whose signatures are trusted. It is read again for each connection. Default: whom
    /// the system trusts.
    #[must_use]
    pub fn ssl_ca(mut self, file: impl Into<PathBuf>) -> Self {
        self.ssl.authority = Some(file.into());
        self
    }

    /// Sets our own certificate, a PEM file with the chain behind it, and its key, a PEM file that is not encrypted. They
    /// are read again for each connection. Default: none.
    #[must_use]
    pub fn ssl_cert(mut self, certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        self.ssl.certificate = Some(certificate.into());
        self.ssl.key = Some(key.into());
        self
    }

    /// Allows to ask the server for its public key, when `caching_sha2_password` has to send the password over a
    /// connection without encryption. Whoever sits in between can answer with a key of their own: on a trusted network
    /// only. Default: off.
    #[must_use]
    pub fn public_key_retrieval(mut self, allowed: bool) -> Self {
        self.public_key_retrieval = allowed;
        self
    }

    /// Sets the file that holds the server's public key (PEM, `BEGIN PUBLIC KEY`), under which `caching_sha2_password` and
    /// `sha256_password` send the password over a connection without encryption. It is read when the pool or connection
    /// is made. Default: none.
    #[must_use]
    pub fn server_public_key_path(mut self, path: impl Into<String>) -> Self {
        self.public_key_path = Some(path.into()).filter(|path| !path.is_empty());
        self
    }

    /// Allows a server to ask for the password in clear (`mysql_clear_password`, for PAM and LDAP), where nobody else can
    /// read it: over TLS or by a Unix socket. Default: off.
    #[must_use]
    pub fn cleartext_plugin(mut self, allowed: bool) -> Self {
        self.clear_text = allowed;
        self
    }

    /// Sets the password for the second factor of authentication. Default: none.
    #[must_use]
    pub fn password2(mut self, password: impl AsRef<str>) -> Self {
        self.further_passwords[0] = Password::value(password.as_ref());
        self
    }

    /// Sets the password for the third factor of authentication. Default: none.
    #[must_use]
    pub fn password3(mut self, password: impl AsRef<str>) -> Self {
        self.further_passwords[1] = Password::value(password.as_ref());
        self
    }

    /// Sets the path of the server's Unix socket, in place of all hosts. Default: none.
    #[must_use]
    pub fn socket(mut self, path: impl Into<String>) -> Self {
        self.addresses.socket = Some(path.into()).filter(|path| !path.is_empty());
        self
    }

    /// Leaves `time_zone` as the server has it. Default: every session has `+00:00`.
    #[must_use]
    pub fn server_time_zone(mut self) -> Self {
        self.time_zone = TimeZone::Server;
        self
    }
}

wire_pipeline::option_setters! { Config, pool, "With 0 each statement is closed again by the next one." }
