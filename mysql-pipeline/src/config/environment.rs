//! The environment: the mysql client's variables and `DATABASE_URL`, read only when asked to.
//!
//! This module may know which variable stands for which option; it must not know what the option means. It
//! reads variables through a function, so that tests need not change the process's environment.

use std::env;
use std::ffi::OsString;

use wire_pipeline::config::{Setting, invalid};

use super::parse_text;
use crate::error::Fault;

/// Source: MySQL manual, "Environment Variables".
const VARIABLES: &[(&str, &str)] = &[
    ("MYSQL_HOST", "host"),
    ("MYSQL_TCP_PORT", "port"),
    ("MYSQL_UNIX_PORT", "socket"),
    ("MYSQL_PWD", "password"),
];

/// The process's environment.
pub(super) fn process(variable: &str) -> Option<OsString> {
    env::var_os(variable)
}

/// The settings that the variables give, weakest first; an empty variable counts as unset.
///
/// What `DATABASE_URL` says wins over the single variables. When it names a host or a socket, no part of an address
/// comes from elsewhere: half an address from each would be a server that nobody meant.
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
    let addressed = from_url.iter().any(|setting| matches!(&*setting.name, "host" | "socket"));
    let mut settings = Vec::new();
    for (variable, option) in VARIABLES {
        if addressed && matches!(*option, "host" | "port" | "socket") {
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
