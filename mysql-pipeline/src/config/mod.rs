//! What to connect to, as whom, and how the pool behaves.
//!
//! This module may know every option, how it is written and which values this version honours; it must not
//! know how a connection is made. Each form (URL, environment, builder) is cut into the same name and value pairs,
//! and [`set`] alone says what they mean. No error repeats a value: it may be, or contain, a password.
//!
//! `pg-pipeline`'s file of this name goes the same way on purpose: the options are each server's, and their reading is the
//! engine's where it is the same.

mod builder;
mod environment;
mod host;
mod option_file;
mod set;
pub(crate) mod ssl;
mod table;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

pub(crate) use self::host::{Host, HostKind};
pub(crate) use self::ssl::Ssl;
pub use self::ssl::SslMode;
use wire_pipeline::config::{self, Password, Setting, invalid, url};
pub use wire_pipeline::config::{OPTIONS, OptionInfo, PoolOptions};
use wire_pipeline::socket::{Keepalive, Tuning};

use self::environment::VARIABLES;
use self::host::Addresses;
use crate::auth::{FACTORS, Passwords, PinnedKey, ServerKey};
use crate::error::{Error, Fault};
use crate::protocol::command::LARGEST_PACKET;

/// What to connect to and as whom, and the options of the pool.
///
/// A configuration comes from a URL (`"mysql://…".parse::<Config>()`), from the environment
/// ([`from_env`](Self::from_env)), from an option file ([`option_file`](Self::option_file)), or from the methods of this type; they can be mixed, and the last word counts. The
/// environment is never read unasked, with one exception: a configuration without a user takes the operating system's
/// user from `USER` (`USERNAME` on Windows) when connecting, as the mysql client does.
///
/// ```
/// use std::time::Duration;
///
/// use mysql_pipeline::Config;
///
/// # fn main() -> Result<(), mysql_pipeline::Error> {
/// let from_url: Config = "mysql://app:s%40fe@db.internal/app?connections=4&query_timeout=500ms".parse()?;
/// let built = Config::new().host("db.internal").user("app").password("s@fe").query_timeout(Duration::from_secs(1));
/// # let _ = (from_url, built);
/// # Ok(())
/// # }
/// ```
///
/// # Options
///
/// The pool's options, documented at [`PoolOptions`], and these. An unknown option is an error that names it.
///
#[doc = include_str!("options.md")]
///
/// In a URL, these characters of a user name or a password must be percent-encoded: `/` (`%2F`), `@` (`%40`), `%` (`%25`),
/// blanks (`%20`), and `:` (`%3A`) in a user name.
#[derive(Clone, Default)]
pub struct Config {
    addresses: Addresses,
    user: Option<String>,
    password: Password,
    /// For the second and third factor.
    further_passwords: [Password; FACTORS - 1],
    database: Option<String>,
    pub(crate) ssl: Ssl,
    public_key_retrieval: bool,
    public_key_path: Option<String>,
    clear_text: bool,
    time_zone: TimeZone,
    collation: Option<String>,
    session_variables: Option<String>,
    no_keepalive: bool,
    keepalive: Keepalive,
    tcp_user_timeout: Option<Duration>,
    /// Options whose value asks for something that this version does not offer. The values are not kept.
    not_offered: BTreeMap<&'static str, table::Rule>,
    pub(crate) pool: PoolOptions,
}

/// The `time_zone` of the session.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
enum TimeZone {
    /// `+00:00`: what the server says of a moment does not depend on where it stands.
    #[default]
    Utc,
    /// The server's own.
    Server,
    Named(String),
}

impl FromStr for Config {
    type Err = Error;

    /// Reads a URL (`mysql://…`, or `mariadb://…`).
    ///
    /// # Errors
    ///
    /// Of kind [`ErrorKind::Config`](crate::ErrorKind::Config), naming the option or the part of the URL, and never
    /// showing a value.
    fn from_str(text: &str) -> Result<Self, Error> {
        Ok(Self::new().apply(parse_text(text)?)?)
    }
}

impl Config {
    /// Reads the environment: `DATABASE_URL` first; for what it leaves open the mysql client's `MYSQL_HOST`,
    /// `MYSQL_TCP_PORT`, `MYSQL_UNIX_PORT` and `MYSQL_PWD`; and for what these leave open `MYSQL_USER`, `MYSQL_PASSWORD` and
    /// `MYSQL_DATABASE`, by which the official images are set up.
    ///
    /// When `DATABASE_URL` names a host or a socket, `MYSQL_HOST` and `MYSQL_UNIX_PORT` do not count. Variables that
    /// are empty count as unset.
    ///
    /// # Errors
    ///
    /// As for [`FromStr`].
    pub fn from_env() -> Result<Self, Error> {
        Ok(Self::new().apply(VARIABLES.settings(config::environment::process, parse_text)?.concat())?)
    }

    /// Sets any option by the name and in the form that it has in a URL, after percent-decoding.
    ///
    /// ```
    /// # fn main() -> Result<(), mysql_pipeline::Error> {
    /// let config = mysql_pipeline::Config::new().host("db.internal").option("allowPublicKeyRetrieval", "true")?;
    /// # let _ = config;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Of kind [`ErrorKind::Config`](crate::ErrorKind::Config) if the option is unknown or the value is none of its
    /// values.
    pub fn option(self, name: &str, value: &str) -> Result<Self, Error> {
        Ok(self.apply(vec![Setting::new(name.to_owned(), value.to_owned())])?)
    }

    /// Reads the groups `[client]`, `[client-server]` and `[client-mariadb]` of an option file of MySQL's programs
    /// (`/etc/mysql/my.cnf`, `~/.my.cnf`), with the files that it includes. What it says wins over what was set before, and
    /// loses to what is set later. No such file is read unasked.
    ///
    /// Names are those of the mysql client (`ssl-ca`, with `_` in place of `-` too) and any other that an option has here;
    /// `loose-` before a name is not understood. Read at once, and by blocking calls.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), mysql_pipeline::Error> {
    /// let config = mysql_pipeline::Config::new().option_file("/etc/app/my.cnf")?.database("app");
    /// # let _ = config;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Of kind [`ErrorKind::Config`](crate::ErrorKind::Config): the file cannot be read, everybody may write to it, a line
    /// cannot be understood (named by its number), an option is unknown, or a value is none of its values.
    pub fn option_file(self, path: impl AsRef<Path>) -> Result<Self, Error> {
        Ok(self.apply(option_file::read(path.as_ref())?)?)
    }

    fn apply(mut self, settings: Vec<Setting>) -> Result<Self, Fault> {
        for Setting { name, value } in settings {
            self.set(&name, &value)?;
        }
        self.addresses.hosts()?;
        self.pool.check()?;
        Ok(self)
    }

    /// Whether this version can connect as this configuration asks; what stands in the way is named.
    pub(crate) fn validate(&self) -> Result<(), Fault> {
        let hosts = self.addresses.hosts()?;
        self.pool.check()?;
        // A Unix socket needs no encryption, and the mysql client does not insist on it there either.
        self.ssl.check(hosts.iter().all(Host::is_unix))?;
        match self.not_offered.first_key_value() {
            Some((name, rule)) => Err(rule.refusal(name)),
            None => Ok(()),
        }
    }

    /// The pool's options.
    pub fn pool_options(&self) -> &PoolOptions {
        &self.pool
    }

    /// The servers in the order in which to try them; at least one.
    pub(crate) fn get_hosts(&self) -> Result<Vec<Host>, Fault> {
        self.addresses.hosts()
    }

    /// The user, or else the operating system's, as far as the environment tells.
    pub(crate) fn get_user(&self) -> Result<String, Fault> {
        self.user.clone().map_or_else(|| config::environment::system_user(config::environment::process), Ok)
    }

    /// The database; `None` for none.
    pub(crate) fn get_database(&self) -> Option<&str> {
        self.database.as_deref()
    }

    /// The passwords for one handshake, as far as there are any; a provider is asked anew each time.
    pub(crate) async fn get_passwords(&self) -> Result<Passwords, Fault> {
        let [second, third] = &self.further_passwords;
        Ok(Passwords([self.password.get().await?, second.get().await?, third.get().await?]))
    }

    /// How the server's public key is had. A file is read now.
    pub(crate) fn get_server_key(&self) -> Result<ServerKey, Fault> {
        match &self.public_key_path {
            Some(path) => {
                let unusable = || invalid("the file of `serverRSAPublicKeyFile` cannot be used");
                let text = std::fs::read(path).map_err(|error| unusable().with_source(error))?;
                let key = PinnedKey::parse(&text).map_err(|why| unusable().with_source(why))?;
                Ok(ServerKey::Pinned(key))
            }
            None if self.public_key_retrieval => Ok(ServerKey::Ask),
            None => Ok(ServerKey::None),
        }
    }

    /// Whether the password may be handed to a server that asks for it in clear, where nobody else can read it.
    pub(crate) fn allows_clear_text(&self) -> bool {
        self.clear_text
    }

    /// What the operating system is told of TCP connections.
    pub(crate) fn get_tuning(&self) -> Tuning {
        let keepalive = (!self.no_keepalive).then_some(self.keepalive);
        Tuning { keepalive, user_timeout: self.tcp_user_timeout }
    }

    /// What every new session runs: a question of the driver's, its own defaults, then the user's.
    ///
    /// The size of a packet is asked for first, because the server ends the connection over a larger one. The session
    /// must report when its state changes, and shared connections rely on autocommit, whatever the server's default.
    pub(crate) fn get_setup(&self) -> impl Iterator<Item = String> {
        let zone = match &self.time_zone {
            TimeZone::Utc => Some("SET time_zone = '+00:00'".to_owned()),
            TimeZone::Server => None,
            TimeZone::Named(zone) => Some(format!("SET time_zone = '{zone}'")),
        };
        let names = match &self.collation {
            Some(collation) => format!("SET NAMES utf8mb4 COLLATE {collation}"),
            None => "SET NAMES utf8mb4".to_owned(),
        };
        let variables = self.session_variables.iter().map(|variables| {
            // Without a word of its own a variable of the server's is the session's, as for Connector/J.
            format!("SET {variables}")
        });
        let own = [
            LARGEST_PACKET.to_owned(),
            names,
            "SET session_track_state_change = ON".to_owned(),
            "SET autocommit = 1".to_owned(),
        ];
        own.into_iter().chain(zone).chain(variables).chain(self.pool.setup().iter().cloned())
    }
}

// By hand: the password never shows, nor what may hold one (`setup` can set any variable).
impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("host", &self.addresses.hosts)
            .field("port", &self.addresses.ports)
            .field("socket", &self.addresses.socket)
            .field("user", &self.user)
            .field("password", &self.password)
            .field("further_passwords", &self.further_passwords)
            .field("database", &self.database)
            .field("ssl", &self.ssl)
            .field("public_key_retrieval", &self.public_key_retrieval)
            .field("public_key_path", &self.public_key_path)
            .field("clear_text", &self.clear_text)
            .field("time_zone", &self.time_zone)
            .field("collation", &self.collation)
            .field("session_variables", &self.session_variables.as_ref().map(|_| "<hidden>"))
            .field("keepalive", &(!self.no_keepalive).then_some(self.keepalive))
            .field("tcp_user_timeout", &self.tcp_user_timeout)
            .field("not_offered", &self.not_offered.keys().collect::<Vec<_>>())
            .field("pool", &self.pool)
            .finish_non_exhaustive()
    }
}

/// Cuts the URL; blanks around it (the newline of a file) do not count.
fn parse_text(text: &str) -> Result<Vec<Setting>, Fault> {
    let text = text.trim();
    match text.strip_prefix("mysql://").or_else(|| text.strip_prefix("mariadb://")) {
        Some(rest) => url::parse(rest),
        None if text.starts_with("jdbc:") => {
            Err(invalid("the URL must begin with mysql:// (leave `jdbc:` out)"))
        }
        None => Err(invalid("the URL must begin with mysql:// (mysql://user:password@host/database)")),
    }
}
