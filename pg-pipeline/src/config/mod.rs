//! What to connect to, as whom, and how the pool behaves.
//!
//! This module may know every option, how it is written and which values this version honours; it must not
//! know how a connection is made. Each form (URL, key=value, environment, builder) is cut into the same name
//! and value pairs, and [`Config::set`] alone says what they mean. No error repeats a value: it may be, or
//! contain, a password.
//!
//! `mysql-pipeline`'s file of this name goes the same way on purpose: the options are each server's, and their reading is the
//! engine's where it is the same.

mod builder;
mod environment;
pub(crate) mod home;
mod host;
mod keywords;
mod not_offered;
pub(crate) mod passfile;
mod role;
pub(crate) mod service;
pub(crate) mod ssl;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

pub(crate) use self::host::{Host, HostKind};
pub use self::role::TargetSessionAttrs;
pub(crate) use self::ssl::Ssl;
pub use self::ssl::{SslMode, SslNegotiation};
use wire_pipeline::config::units::{self, Plain};
use wire_pipeline::config::{self, Password, Setting, hosts, invalid, quoted_list, show_name, text, url};
pub use wire_pipeline::config::{OPTIONS, OptionInfo, PoolOptions};
use wire_pipeline::socket::{Keepalive, Tuning};

use self::environment::VARIABLES;
use self::host::Addresses;
use crate::auth::RequireAuth;
use crate::error::{Error, ErrorKind, Fault, Outcome};
use crate::protocol::startup::{Version, Versions};

/// What to connect to and as whom, and the options of the pool.
///
/// A configuration comes from a URL or from libpq's key=value form (`"…".parse::<Config>()`), from the
/// environment ([`from_env`](Self::from_env)), or from the methods of this type; they can be mixed, and the
/// last word counts. The environment is never read unasked, with one exception: a configuration without a
/// user takes the operating system's user from `USER` (`USERNAME` on Windows) when connecting, as libpq does.
///
/// ```
/// use std::time::Duration;
///
/// use pg_pipeline::Config;
///
/// # fn main() -> Result<(), pg_pipeline::Error> {
/// let from_url: Config = "postgres://app:s%40fe@db.internal/app?connections=4&query_timeout=500ms".parse()?;
/// let from_words: Config = "host=db.internal user=app password='it\\'s safe' dbname=app".parse()?;
/// let built = Config::new().host("db.internal").user("app").password("s@fe").query_timeout(Duration::from_secs(1));
/// # let _ = (from_url, from_words, built);
/// # Ok(())
/// # }
/// ```
///
/// # Options
///
/// The pool's options, documented at [`PoolOptions`], and every option of libpq:
///
/// | option | default | meaning |
/// |---|---|---|
/// | `host` · `hostaddr` · `port` | `localhost` · none · 5432 | lists too, tried in order, each host at all of its addresses; a host that begins with `/` is the directory of a Unix socket |
/// | `user` · `password` · `dbname` | the system's · none · the user's name | |
/// | `passfile` | `~/.pgpass` | passwords by host, port, database and user, for whom no password is set; not used if others may read it |
/// | `service` · `servicefile` | none · `~/.pg_service.conf`, then `$PGSYSCONFDIR/pg_service.conf` | options under a name; those given here win |
/// | `options` · `application_name` · `fallback_application_name` | none | |
/// | `connect_timeout` | 10 s | never without a limit; each host has a share |
/// | `keepalives` · `_idle` · `_interval` · `_count` · `tcp_user_timeout` | on · the system's | a plain number is seconds; of `tcp_user_timeout` milliseconds |
/// | `target_session_attrs` | `any` | [`TargetSessionAttrs`] |
/// | `load_balance_hosts` | `disable` | `random`: hosts, and the addresses of each, in random order |
/// | `sslmode` | `prefer` | [`SslMode`] |
/// | `sslnegotiation` | `postgres` | [`SslNegotiation`] |
/// | `sslrootcert` | `~/.postgresql/root.crt`, else `system` | a file of PEM certificates whose signatures are trusted, or `system` (with `sslmode=verify-full` only) |
/// | `sslcert` · `sslkey` | `~/.postgresql/postgresql.crt` · `.key` | our own certificate; others than the owner must not be able to read the key (a key of root's: others than its group) |
/// | `sslcertmode` | `allow` | `disable`: it is not shown |
/// | `sslcrl` · `sslcrldir` | none | certificates that were revoked: a file, or all files of a folder |
/// | `sslsni` | 1 | whether the server is told which host is wanted |
/// | `ssl_min_protocol_version` · `ssl_max_protocol_version` | `TLSv1.2` · `TLSv1.3` | |
/// | `channel_binding` | `prefer` | [`ChannelBinding`](crate::ChannelBinding) |
/// | `require_auth` | all | the methods of authentication that are accepted: `none`, `password`, `md5`, `scram-sha-256`, `oauth`; or, each behind a `!`, those that are not |
/// | `min_protocol_version` · `max_protocol_version` | 3.0 · 3.0 | 3.0, 3.2 or `latest`; 3.2 has longer keys for cancel requests |
/// | `client_encoding` | UTF8 | nothing else |
///
/// Files are read again for each connection; `service` once. Where this differs from libpq: without a file of roots the
/// system's are used (libpq fails), after a wrong password the same password is not shown again without TLS
/// (`sslmode=prefer`), and there is no host by default that is a Unix socket.
///
/// Understood and not offered: `gssencmode=require` and the rest of GSSAPI, `requirepeer`, `replication`,
/// `sslpassword` (keys must not be encrypted), `sslcertmode=require`, `sslkeylogfile`, `scram_client_key`,
/// `scram_server_key`, and the options of OAuth, in place of which there is
/// [`oauth_token_provider`](Self::oauth_token_provider). A value that asks for something of it parses, and connecting fails
/// with a message that says so.
///
/// An unknown option is an error that names it. In a URL, these characters of a user name or a password must be
/// percent-encoded: `/` (`%2F`), `@` (`%40`), `%` (`%25`), blanks (`%20`), and `:` (`%3A`) in a user name.
#[derive(Clone, Default)]
pub struct Config {
    addresses: Addresses,
    user: Option<String>,
    password: Password,
    database: Option<String>,
    application_name: Option<String>,
    fallback_application_name: Option<String>,
    server_options: Option<String>,
    require_auth: RequireAuth,
    pub(crate) ssl: Ssl,
    passfile: Option<PathBuf>,
    oauth_token: Password,
    target: TargetSessionAttrs,
    load_balance: bool,
    versions: Versions,
    no_keepalive: bool,
    keepalive: Keepalive,
    tcp_user_timeout: Option<Duration>,
    /// Options whose value asks for something that this version does not offer. The values are not kept.
    not_offered: BTreeMap<&'static str, &'static not_offered::Rule>,
    pub(crate) pool: PoolOptions,
}

impl FromStr for Config {
    type Err = Error;

    /// Reads a URL (`postgres://…` or `postgresql://…`) or libpq's key=value form.
    ///
    /// # Errors
    ///
    /// Of kind [`ErrorKind::Config`](crate::ErrorKind::Config), naming the option or the part of the URL, and never showing a value.
    fn from_str(text: &str) -> Result<Self, Error> {
        Ok(Self::new().apply(Vec::new(), parse_text(text)?)?)
    }
}

impl Config {
    /// Reads the environment: `DATABASE_URL` first, and libpq's `PG…` variables for what it leaves open.
    ///
    /// `DATABASE_URL` may have either form that [`FromStr`] reads. When it names a host, `PGHOST` and
    /// `PGHOSTADDR` do not count. Every variable of libpq that stands for an option is read, except `PGDATESTYLE`,
    /// `PGTZ` and `PGGEQO`, which [`setup`](Self::setup) replaces. Variables that are empty count as unset.
    ///
    /// # Errors
    ///
    /// As for [`FromStr`].
    pub fn from_env() -> Result<Self, Error> {
        let [variables, url] = VARIABLES.settings(config::environment::process, parse_text)?;
        Ok(Self::new().apply(variables, url)?)
    }

    /// Sets any option by the name and in the form that it has in a URL, after percent-decoding.
    ///
    /// ```
    /// # fn main() -> Result<(), pg_pipeline::Error> {
    /// let config = pg_pipeline::Config::new().host("db.internal").option("keepalives_idle", "30s")?;
    /// # let _ = config;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Of kind [`ErrorKind::Config`](crate::ErrorKind::Config) if the option is unknown or the value is none of its values.
    pub fn option(self, name: &str, value: &str) -> Result<Self, Error> {
        Ok(self.apply(Vec::new(), vec![Setting::new(name.to_owned(), value.to_owned())])?)
    }

    /// Weak settings, those of the service that is named, and strong ones.
    fn apply(self, weak: Vec<Setting>, strong: Vec<Setting>) -> Result<Self, Fault> {
        self.apply_with(weak, strong, config::environment::process)
    }

    fn apply_with(
        mut self,
        weak: Vec<Setting>,
        strong: Vec<Setting>,
        lookup: impl Fn(&str) -> Option<OsString>,
    ) -> Result<Self, Fault> {
        let last = |name: &str| {
            let found = weak.iter().chain(&strong).rfind(|setting| setting.name == name);
            found.map(|setting| setting.value.clone()).filter(|value| !value.is_empty())
        };
        let of_service = match last("service") {
            None => Vec::new(),
            Some(service) => {
                let files = match last("servicefile") {
                    Some(file) => vec![PathBuf::from(file)],
                    None => home::services(lookup),
                };
                service::read(&service, &files)?
            }
        };
        for Setting { name, value } in weak.into_iter().chain(of_service).chain(strong) {
            self.set(&name, &value)?;
        }
        self.addresses.hosts()?;
        self.pool.check()?;
        Ok(self)
    }

    /// What every option means.
    fn set(&mut self, name: &str, value: &str) -> Result<(), Fault> {
        if value.contains('\0') {
            return Err(invalid(format!("the value of {} contains a NUL byte", show_name(name))));
        }
        match name {
            "host" => self.addresses.hosts = hosts::list(value),
            "hostaddr" => self.addresses.numeric = hosts::list(value),
            "port" => self.addresses.ports = hosts::list(value),
            "user" => self.user = text(value),
            "password" => self.password = Password::value(value),
            "dbname" => self.database = text(value),
            "application_name" => self.application_name = text(value),
            "fallback_application_name" => self.fallback_application_name = text(value),
            "options" => self.server_options = text(value),
            "client_encoding" => check_encoding(value)?,
            "require_auth" => self.require_auth = RequireAuth::parse(value)?,
            "passfile" => self.passfile = text(value).map(PathBuf::from),
            // Read before the others.
            "service" | "servicefile" => {}
            "target_session_attrs" => {
                self.target = if value.is_empty() {
                    TargetSessionAttrs::Any
                } else {
                    TargetSessionAttrs::parse(value)?
                };
            }
            "load_balance_hosts" => {
                self.load_balance = match value {
                    "disable" | "" => false,
                    "random" => true,
                    _ => return Err(invalid("`load_balance_hosts` must be disable or random")),
                };
            }
            "min_protocol_version" => self.versions.oldest = protocol_version(name, value)?,
            "max_protocol_version" => self.versions.newest = protocol_version(name, value)?,
            "keepalives" => self.no_keepalive = !units::flag(name, value)?,
            "keepalives_idle" => {
                self.keepalive.idle = units::nonzero(units::duration(name, value, Plain::Seconds)?);
            }
            "keepalives_interval" => {
                self.keepalive.interval = units::nonzero(units::duration(name, value, Plain::Seconds)?);
            }
            "keepalives_count" => {
                self.keepalive.count = Some(units::count(name, value)?).filter(|count| *count != 0);
            }
            "tcp_user_timeout" => {
                self.tcp_user_timeout = units::nonzero(units::duration(name, value, Plain::Milliseconds)?);
            }
            _ => return self.set_other(name, value),
        }
        Ok(())
    }

    fn set_other(&mut self, name: &str, value: &str) -> Result<(), Fault> {
        if let Some(result) = self.ssl.set(name, value).or_else(|| self.pool.set(name, value)) {
            return result;
        }
        let Some(rule) = not_offered::find(name) else {
            return Err(invalid(format!(
                "unknown option {}; the options are libpq's and {}",
                show_name(name),
                config::names()
            )));
        };
        if rule.asks(value)? {
            self.not_offered.insert(rule.name, rule);
        } else {
            self.not_offered.remove(rule.name);
        }
        Ok(())
    }

    /// Whether this version can connect as this configuration asks; what stands in the way is named.
    pub(crate) fn validate(&self) -> Result<(), Fault> {
        let hosts = self.addresses.hosts()?;
        self.pool.check()?;
        // As in libpq `sslmode` does not apply to Unix sockets.
        self.ssl.check(hosts.iter().all(Host::is_unix))?;
        if self.versions.oldest > self.versions.newest {
            return Err(invalid("`min_protocol_version` is newer than `max_protocol_version`"));
        }
        for rule in self.not_offered.values() {
            let moot = rule.tls_only && self.ssl.mode == SslMode::Disable;
            if !moot {
                return Err(rule.refusal());
            }
        }
        Ok(())
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

    /// The database; `None` for the one named like the user.
    pub(crate) fn get_database(&self) -> Option<&str> {
        self.database.as_deref()
    }

    /// The password for one handshake with this host, if there is any; a provider is asked anew each time, and so is the
    /// file of passwords.
    pub(crate) async fn get_password(&self, host: &Host) -> Result<Option<String>, Fault> {
        if self.password.is_set() {
            return self.password.get().await;
        }
        let Some(path) = self.passfile.clone().or_else(home::passwords) else { return Ok(None) };
        let user = self.get_user()?;
        let (database, port) = (self.database.clone().unwrap_or_else(|| user.clone()), host.port);
        let name = match &host.kind {
            HostKind::Tcp(name, _) => name.clone(),
            HostKind::Unix(_) => "localhost".to_owned(),
        };
        let found = tokio::task::spawn_blocking(move || {
            let entry = passfile::Entry { host: &name, port, database: &database, user: &user };
            match passfile::find(&path, entry) {
                // One that is not there is as good as empty.
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
                found => found.map_err(|error| {
                    invalid(format!("the password file {} cannot be read", path.display())).with_source(error)
                }),
            }
        });
        found.await.unwrap_or_else(|_| {
            Err(Fault::new(ErrorKind::Connect, Outcome::NotSent, "the password file could not be read"))
        })
    }

    /// The OAuth token for one handshake.
    pub(crate) async fn get_oauth_token(&self) -> Result<Option<String>, Fault> {
        self.oauth_token.get().await
    }

    /// Which servers will do.
    pub(crate) fn get_target(&self) -> TargetSessionAttrs {
        self.target
    }

    /// Whether hosts and addresses are tried in random order.
    pub(crate) fn get_load_balance(&self) -> bool {
        self.load_balance
    }

    /// The versions of the protocol that will do.
    pub(crate) fn get_versions(&self) -> Versions {
        self.versions
    }

    /// `application_name`, or else its fallback.
    pub(crate) fn get_application_name(&self) -> Option<&str> {
        self.application_name.as_deref().or(self.fallback_application_name.as_deref())
    }

    /// libpq's `options`: command-line options for the server's process.
    pub(crate) fn get_server_options(&self) -> Option<&str> {
        self.server_options.as_deref()
    }

    /// The authentication methods that the user accepts.
    pub(crate) fn get_require_auth(&self) -> RequireAuth {
        self.require_auth
    }

    /// What the operating system is told of TCP connections.
    pub(crate) fn get_tuning(&self) -> Tuning {
        let keepalive = (!self.no_keepalive).then_some(self.keepalive);
        Tuning { keepalive, user_timeout: self.tcp_user_timeout }
    }
}

// By hand: the password never shows, nor what may hold one (`options` and `setup` can set any parameter).
impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("host", &self.addresses.hosts)
            .field("hostaddr", &self.addresses.numeric)
            .field("port", &self.addresses.ports)
            .field("user", &self.user)
            .field("password", &self.password)
            .field("dbname", &self.database)
            .field("application_name", &self.get_application_name())
            .field(
                "options",
                &format_args!("{}", if self.server_options.is_some() { "<set>" } else { "none" }),
            )
            .field("require_auth", &self.require_auth)
            .field("ssl", &self.ssl)
            .field("target_session_attrs", &self.target)
            .field("load_balance_hosts", &self.load_balance)
            .field("keepalive", &self.get_tuning().keepalive)
            .field("tcp_user_timeout", &self.tcp_user_timeout)
            .field("not_offered", &self.not_offered.keys().collect::<Vec<_>>())
            .field("pool", &self.pool)
            .finish_non_exhaustive()
    }
}

/// Cuts either text form; blanks around it (the newline of a file) do not count.
fn parse_text(text: &str) -> Result<Vec<Setting>, Fault> {
    let text = text.trim();
    if let Some(rest) = text.strip_prefix("postgres://").or_else(|| text.strip_prefix("postgresql://")) {
        let mut settings = url::parse(rest)?;
        for setting in &mut settings {
            // libpq takes JDBC's `ssl=true` in URLs.
            if setting.name == "ssl" && setting.value == "true" {
                *setting = Setting::new("sslmode", "require".to_owned());
            }
        }
        return Ok(settings);
    }
    let scheme = text.find(|c: char| !c.is_ascii_alphanumeric()).and_then(|end| text.get(end..));
    if scheme.is_some_and(|rest| rest.starts_with("://")) {
        return Err(invalid("the URL must begin with postgres:// or postgresql://"));
    }
    keywords::parse(text)
}

fn protocol_version(name: &str, value: &str) -> Result<Version, Fault> {
    match value {
        "" | "3.0" => Ok(Version::V3_0),
        "3.2" | "latest" => Ok(Version::V3_2),
        _ => Err(invalid(format!("`{name}` must be one of 3.0, 3.2, latest"))),
    }
}

fn check_encoding(value: &str) -> Result<(), Fault> {
    let letters: String = value.chars().filter(char::is_ascii_alphanumeric).collect();
    match letters.to_ascii_lowercase().as_str() {
        "" | "utf8" | "unicode" | "auto" => Ok(()),
        _ => Err(invalid("`client_encoding` must be UTF8: Rust's text is, and the server converts")),
    }
}
