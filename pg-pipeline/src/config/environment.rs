//! The environment: libpq's `PG…` variables and `DATABASE_URL`, read only when asked to.
//!
//! This module may know which variable stands for which option; it must not know what the option means. It
//! reads variables through a function, so that tests need not change the process's environment.

use std::env;
use std::ffi::OsString;

use super::{Setting, invalid, parse_text};
use crate::error::Fault;

/// Source: PostgreSQL documentation, "Environment Variables". `PGDATESTYLE`, `PGTZ` and `PGGEQO` are not
/// among them: they would go into the startup message, where poolers refuse them, and have `setup` instead.
const VARIABLES: &[(&str, &str)] = &[
    ("PGHOST", "host"),
    ("PGHOSTADDR", "hostaddr"),
    ("PGPORT", "port"),
    ("PGDATABASE", "dbname"),
    ("PGUSER", "user"),
    ("PGPASSWORD", "password"),
    ("PGPASSFILE", "passfile"),
    ("PGREQUIREAUTH", "require_auth"),
    ("PGCHANNELBINDING", "channel_binding"),
    ("PGSERVICE", "service"),
    ("PGSERVICEFILE", "servicefile"),
    ("PGOPTIONS", "options"),
    ("PGAPPNAME", "application_name"),
    ("PGSSLMODE", "sslmode"),
    ("PGREQUIRESSL", "requiressl"),
    ("PGSSLNEGOTIATION", "sslnegotiation"),
    ("PGSSLCOMPRESSION", "sslcompression"),
    ("PGSSLCERT", "sslcert"),
    ("PGSSLKEY", "sslkey"),
    ("PGSSLCERTMODE", "sslcertmode"),
    ("PGSSLROOTCERT", "sslrootcert"),
    ("PGSSLCRL", "sslcrl"),
    ("PGSSLCRLDIR", "sslcrldir"),
    ("PGSSLSNI", "sslsni"),
    ("PGREQUIREPEER", "requirepeer"),
    ("PGSSLMINPROTOCOLVERSION", "ssl_min_protocol_version"),
    ("PGSSLMAXPROTOCOLVERSION", "ssl_max_protocol_version"),
    ("PGGSSENCMODE", "gssencmode"),
    ("PGKRBSRVNAME", "krbsrvname"),
    ("PGGSSLIB", "gsslib"),
    ("PGGSSDELEGATION", "gssdelegation"),
    ("PGCONNECT_TIMEOUT", "connect_timeout"),
    ("PGCLIENTENCODING", "client_encoding"),
    ("PGTARGETSESSIONATTRS", "target_session_attrs"),
    ("PGLOADBALANCEHOSTS", "load_balance_hosts"),
    ("PGMINPROTOCOLVERSION", "min_protocol_version"),
    ("PGMAXPROTOCOLVERSION", "max_protocol_version"),
];

/// The process's environment.
pub(super) fn process(variable: &str) -> Option<OsString> {
    env::var_os(variable)
}

/// The settings that the variables give, weakest first; an empty variable counts as unset.
///
/// What `DATABASE_URL` says wins over the single variables. When it names a host, `PGHOST` and `PGHOSTADDR` do not
/// count at all: half an address from each would be a server that nobody meant.
pub(super) fn settings(lookup: impl Fn(&str) -> Option<OsString>) -> Result<Vec<Setting>, Fault> {
    let read = |variable: &str| match lookup(variable).filter(|value| !value.is_empty()) {
        Some(value) => value
            .into_string()
            .map(Some)
            .map_err(|_| invalid(format!("the environment variable {variable} is not UTF-8"))),
        None => Ok(None),
    };
    let from_url = match read("DATABASE_URL")? {
        Some(url) => parse_text(&url).map_err(|fault| fault.context("DATABASE_URL"))?,
        None => Vec::new(),
    };
    let addressed = from_url.iter().any(|setting| matches!(&*setting.name, "host" | "hostaddr"));
    let mut settings = Vec::new();
    for (variable, option) in VARIABLES {
        if addressed && matches!(*option, "host" | "hostaddr") {
            continue;
        }
        if let Some(value) = read(variable)? {
            settings.push(Setting::new(*option, value));
        }
    }
    settings.extend(from_url);
    Ok(settings)
}

/// The name of the operating system's user, as far as the environment tells.
pub(super) fn system_user(lookup: impl Fn(&str) -> Option<OsString>) -> Option<String> {
    let variable = if cfg!(windows) { "USERNAME" } else { "USER" };
    lookup(variable)?.into_string().ok().filter(|user| !user.is_empty())
}
