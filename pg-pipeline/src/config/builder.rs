//! The builder face of [`Config`]: one method for each option that has a meaning in this version.
//!
//! This module may store values as they come; whether they fit is asked when connecting, so that a chain of
//! calls needs no `?`.

use std::error::Error as StdError;
use std::io;
use std::net::IpAddr;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use wire_pipeline::transport::Transport;

use super::host::Addresses;
use super::{Config, Password, SslMode, nonzero};

impl Config {
    /// A configuration with every option at its default.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the host in place of all earlier ones: a name, an address, the directory of a Unix socket (it begins
    /// with `/`), or a comma-separated list of such, tried in order. Default: `localhost`.
    #[must_use]
    pub fn host(mut self, host: impl AsRef<str>) -> Self {
        self.addresses.hosts = Addresses::list(host.as_ref());
        self
    }

    /// Sets several hosts with their ports in place of all earlier ones; they are tried in order.
    #[must_use]
    pub fn hosts<H: Into<String>>(mut self, hosts: impl IntoIterator<Item = (H, u16)>) -> Self {
        let (hosts, ports) = hosts.into_iter().map(|(host, port)| (host.into(), port.to_string())).unzip();
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
        self.ssl_mode = mode;
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
        self.keepalive.idle = nonzero(idle);
        self
    }

    /// Sets the time between unanswered keepalive probes. Default, and zero: the operating system's.
    #[must_use]
    pub fn keepalives_interval(mut self, interval: Duration) -> Self {
        self.keepalive.interval = nonzero(interval);
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
        self.tcp_user_timeout = nonzero(timeout);
        self
    }

    /// Sets the number of pipes, 1 to 1024. Default: 8.
    #[must_use]
    pub fn connections(mut self, connections: usize) -> Self {
        self.pool.set_connections(connections);
        self
    }

    /// Sets the number of entries per pipe, 1 to 65,536; 1 switches pipelining off. Default: 256.
    #[must_use]
    pub fn max_in_flight(mut self, entries: usize) -> Self {
        self.pool.set_max_in_flight(entries);
        self
    }

    /// Sets the largest answer in bytes; a larger one fails alone. Default: 256 MiB.
    #[must_use]
    pub fn max_answer_bytes(mut self, bytes: usize) -> Self {
        self.pool.set_max_answer_bytes(bytes);
        self
    }

    /// Sets how many bytes of answers the pool holds at a time. Default: 1 GiB.
    #[must_use]
    pub fn answer_budget(mut self, bytes: usize) -> Self {
        self.pool.set_answer_budget(bytes);
        self
    }

    /// Sets how many bytes per pipe may wait to be sent. Default: 4 MiB.
    #[must_use]
    pub fn queue_bytes(mut self, bytes: usize) -> Self {
        self.pool.set_queue_bytes(bytes);
        self
    }

    /// Sets the time for name resolution, TCP, TLS, authentication and set-up together, 1 ms to 7 days.
    /// Default: 10 s.
    #[must_use]
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.pool.set_connect_timeout(timeout);
        self
    }

    /// Sets the time for a query, queueing included (streams and COPY: per step), 1 ms to 7 days. Default: 30 s.
    #[must_use]
    pub fn query_timeout(mut self, timeout: Duration) -> Self {
        self.pool.set_query_timeout(timeout);
        self
    }

    /// Sets how long to wait for a lease, 1 ms to 7 days. Default: 5 s.
    #[must_use]
    pub fn acquire_timeout(mut self, timeout: Duration) -> Self {
        self.pool.set_acquire_timeout(timeout);
        self
    }

    /// Sets the number of prepared statements per pipe, 0 to 65,536; 0 names none, as transaction poolers need
    /// it. Default: 256.
    #[must_use]
    pub fn statement_cache(mut self, statements: usize) -> Self {
        self.pool.set_statement_cache(statements);
        self
    }

    /// Sets after how long, ± 10 %, a pipe is replaced, 1 s to 365 days; zero for never. Default: 30 min.
    #[must_use]
    pub fn max_lifetime(mut self, lifetime: Duration) -> Self {
        self.pool.set_max_lifetime(lifetime);
        self
    }

    /// Sets the statements that every new pipe runs, and again after a reset, in place of earlier ones. In a
    /// URL or the key=value form each `setup` adds one. Default: none.
    #[must_use]
    pub fn setup<S: Into<String>>(mut self, statements: impl IntoIterator<Item = S>) -> Self {
        self.pool.set_setup(statements.into_iter().map(Into::into).collect());
        self
    }

    /// Sets what makes the byte streams to servers in place of TCP connections: a tunnel, a proxy in the same process,
    /// a simulator. `open` is called with host and port for every attempt to connect, within `connect_timeout`; its
    /// error is the source of the attempt's. Unix sockets are opened as ever, and what tunes TCP sockets does not
    /// apply. Default: none, plain TCP.
    ///
    /// ```
    /// let config = pg_pipeline::Config::new().host("db.internal").user("app").transport(|host, port| async move {
    ///     tokio::net::TcpStream::connect((host, port)).await
    /// });
    /// # let _ = config;
    /// ```
    #[must_use]
    pub fn transport<F, Fut, S>(mut self, open: F) -> Self
    where
        F: Fn(String, u16) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = io::Result<S>> + Send + 'static,
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        self.pool.set_transport(Some(Transport::new(open)));
        self
    }

    /// Sets the seed of the random numbers that spread back-off and lifetimes in time. With the same seed, a runtime of
    /// one thread, paused time and a transport that repeats itself, a pool repeats itself; otherwise leave it alone.
    /// Nothing that must be secret comes from it. Default: from the operating system.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.pool.set_seed(Some(seed));
        self
    }
}
