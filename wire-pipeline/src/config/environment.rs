//! Settings from environment variables.
//!
//! This module may know how variables are read; which there are, and for which option each stands, is the driver's. It
//! reads them through a function, so that tests need not change the process's environment.

use std::env;
use std::ffi::OsString;

use super::{Setting, invalid};
use crate::error::{Error, ServerError};

/// The variables of one driver.
#[derive(Debug)]
pub struct Variables {
    /// Each variable with the option that it stands for, weakest first.
    pub options: &'static [(&'static str, &'static str)],
    /// Options that say where to connect.
    pub names_server: &'static [&'static str],
    /// Options that do not count when `DATABASE_URL` says where to connect: half an address from each would be a
    /// server that nobody meant.
    pub address: &'static [&'static str],
}

/// The process's environment.
pub fn process(variable: &str) -> Option<OsString> {
    env::var_os(variable)
}

impl Variables {
    /// The settings that the single variables give, and those of `DATABASE_URL`, which `parse` reads and which win. An
    /// empty variable counts as unset.
    pub fn settings<S: ServerError>(
        &self,
        lookup: impl Fn(&str) -> Option<OsString>,
        parse: impl FnOnce(&str) -> Result<Vec<Setting>, Error<S>>,
    ) -> Result<[Vec<Setting>; 2], Error<S>> {
        let read = |variable: &str| match lookup(variable).filter(|value| !value.is_empty()) {
            Some(value) => value
                .into_string()
                .map(Some)
                .map_err(|_| invalid(format!("the environment variable {variable} is not UTF-8"))),
            None => Ok(None),
        };
        let from_url = match read("DATABASE_URL")? {
            Some(url) => parse(&url).map_err(|error| error.context("DATABASE_URL"))?,
            None => Vec::new(),
        };
        let addressed = from_url.iter().any(|setting| self.names_server.contains(&&*setting.name));
        let mut settings = Vec::new();
        for (variable, option) in self.options {
            if addressed && self.address.contains(option) {
                continue;
            }
            if let Some(value) = read(variable)? {
                settings.push(Setting::new(*option, value));
            }
        }
        Ok([settings, from_url])
    }
}

/// The name of the operating system's user, as far as the environment tells.
pub fn system_user<S: ServerError>(lookup: impl Fn(&str) -> Option<OsString>) -> Result<String, Error<S>> {
    let variable = if cfg!(windows) { "USERNAME" } else { "USER" };
    let user = lookup(variable).and_then(|user| user.into_string().ok()).filter(|user| !user.is_empty());
    user.ok_or_else(|| {
        invalid("`user` is not set, and the environment does not name the system's user; set it")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::tests::{Fault, NoServer};

    const VARIABLES: Variables = Variables {
        options: &[("TEST_HOST", "host"), ("TEST_USER", "user")],
        names_server: &["host"],
        address: &["host"],
    };

    fn settings(pairs: &[(&str, &str)]) -> Result<Vec<String>, Fault> {
        let lookup = |name: &str| pairs.iter().find(|(known, _)| *known == name).map(|(_, v)| v.into());
        let parse = |url: &str| match url.split_once('=') {
            Some((name, value)) => Ok(vec![Setting::new(name.to_owned(), value.to_owned())]),
            None => Err(invalid("no URL")),
        };
        let settings = VARIABLES.settings::<NoServer>(lookup, parse)?.concat();
        Ok(settings.iter().map(|setting| format!("{}={}", setting.name, setting.value)).collect())
    }

    #[test]
    fn the_url_wins_and_no_address_is_made_of_two_halves() {
        let variables = [("TEST_HOST", "a"), ("TEST_USER", "b")];
        assert_eq!(settings(&variables).unwrap(), ["host=a", "user=b"]);
        let with = |url| settings(&[variables[0], variables[1], ("DATABASE_URL", url)]);
        assert_eq!(with("user=c").unwrap(), ["host=a", "user=b", "user=c"]);
        assert_eq!(with("host=c").unwrap(), ["user=b", "host=c"]);
        assert_eq!(with("").unwrap(), ["host=a", "user=b"], "an empty variable counts as unset");
        assert!(with("c").unwrap_err().to_string().starts_with("DATABASE_URL: "));
    }

    #[test]
    fn the_systems_user_is_taken_from_the_environment() {
        let name = if cfg!(windows) { "USERNAME" } else { "USER" };
        let lookup = |variable: &str| (variable == name).then(|| "somebody".into());
        assert_eq!(system_user::<NoServer>(lookup).unwrap(), "somebody");
        assert!(system_user::<NoServer>(|_| None).is_err());
        assert!(system_user::<NoServer>(|_| Some(OsString::new())).is_err());
    }
}
