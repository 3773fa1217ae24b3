//! What the value of each option means, once its name is known.
//!
//! This module may know how values are written. No error repeats one: it may be, or contain, a password.

use std::time::Duration;

use wire_pipeline::config::units::{self, Plain};
use wire_pipeline::config::{self, Password, hosts, invalid, show_name, text};

use super::table::{self, Meaning};
use super::{Config, SslMode, TimeZone, ssl};
use crate::error::Fault;

impl Config {
    /// Sets an option by any of its names.
    pub(super) fn set(&mut self, name: &str, value: &str) -> Result<(), Fault> {
        if value.contains('\0') {
            return Err(invalid(format!("the value of {} contains a NUL byte", show_name(name))));
        }
        let Some(known) = table::find(name) else {
            return self.pool.set(&name.replace('-', "_"), value).unwrap_or_else(|| {
                Err(invalid(format!(
                    "unknown option {}; the options are those in the documentation of `Config`, and {}",
                    show_name(name),
                    config::names()
                )))
            });
        };
        match known.meaning {
            Meaning::Host => self.addresses.hosts = hosts::list(value),
            Meaning::Port => self.addresses.ports = hosts::list(value),
            Meaning::Socket => self.addresses.socket = text(value),
            Meaning::User => self.user = text(value),
            Meaning::Password(0) => self.password = Password::value(value),
            Meaning::Password(factor) => {
                if let Some(place) = self.further_passwords.get_mut(factor - 1) {
                    *place = Password::value(value);
                }
            }
            Meaning::Database => self.database = text(value),
            Meaning::SslMode => self.ssl.mode = SslMode::parse(value)?,
            Meaning::SslCa => self.ssl.authority = text(value).map(Into::into),
            Meaning::SslCert => self.ssl.certificate = text(value).map(Into::into),
            Meaning::SslKey => self.ssl.key = text(value).map(Into::into),
            Meaning::SslCrl => self.ssl.revoked = text(value).map(Into::into),
            Meaning::TlsVersions => self.ssl.versions = ssl::versions(name, value)?,
            Meaning::UseSsl if !units::flag(name, value)? => self.ssl.mode = SslMode::Disabled,
            Meaning::UseSsl => self.ssl.at_least(SslMode::Preferred),
            Meaning::RequireSsl => self.at_least(name, value, SslMode::Required)?,
            Meaning::VerifyCa => self.at_least(name, value, SslMode::VerifyCa)?,
            Meaning::VerifyIdentity => self.at_least(name, value, SslMode::VerifyIdentity)?,
            Meaning::PublicKeyRetrieval => self.public_key_retrieval = units::flag(name, value)?,
            Meaning::PublicKeyPath => self.public_key_path = text(value),
            Meaning::ClearText => self.clear_text = units::flag(name, value)?,
            Meaning::TimeZone => self.time_zone = TimeZone::parse(value)?,
            Meaning::Encoding => check_encoding(value)?,
            Meaning::Collation => self.collation = collation(name, value)?,
            Meaning::Keepalive => self.no_keepalive = !units::flag(name, value)?,
            Meaning::KeepaliveIdle => self.keepalive.idle = milliseconds(name, value)?,
            Meaning::KeepaliveInterval => {
                self.keepalive.interval = units::nonzero(units::duration(name, value, Plain::Seconds)?);
            }
            Meaning::KeepaliveCount => {
                self.keepalive.count = Some(units::count(name, value)?).filter(|count| *count != 0);
            }
            Meaning::UserTimeout => self.tcp_user_timeout = milliseconds(name, value)?,
            Meaning::PoolMilliseconds(option) => {
                let time = units::duration(name, value, Plain::Milliseconds)?;
                return self.set_pool(option, &format!("{}ms", time.as_millis()));
            }
            Meaning::Pool(option) => return self.set_pool(option, value),
            Meaning::SessionVariables => {
                self.session_variables = text(value);
            }
            Meaning::NoEffect => {}
            Meaning::Always(rule) => {
                let name = known.names.iter().find(|known| **known == name).unwrap_or(&known.names[0]);
                if rule.asks(name, value)? {
                    self.not_offered.insert(name, rule);
                } else {
                    self.not_offered.remove(name);
                }
            }
        }
        Ok(())
    }

    fn at_least(&mut self, name: &str, value: &str, mode: SslMode) -> Result<(), Fault> {
        if units::flag(name, value)? {
            self.ssl.at_least(mode);
        }
        Ok(())
    }

    fn set_pool(&mut self, option: &str, value: &str) -> Result<(), Fault> {
        self.pool.set(option, value).unwrap_or(Ok(()))
    }
}

impl TimeZone {
    /// It becomes part of a statement, so it is checked letter by letter.
    fn parse(value: &str) -> Result<Self, Fault> {
        let is_zone = |c: char| c.is_ascii_alphanumeric() || "+-:/_".contains(c);
        match value {
            "" | "UTC" | "+00:00" => Ok(Self::Utc),
            "SERVER" => Ok(Self::Server),
            zone if zone != "LOCAL" && zone.chars().all(is_zone) => Ok(Self::Named(zone.to_owned())),
            _ => Err(invalid("`timeZone` must be an offset (+02:00), a name (Europe/Paris) or SERVER")),
        }
    }
}

/// A plain number is milliseconds; zero leaves it to the operating system.
fn milliseconds(name: &str, value: &str) -> Result<Option<Duration>, Fault> {
    Ok(units::nonzero(units::duration(name, value, Plain::Milliseconds)?))
}

fn check_encoding(value: &str) -> Result<(), Fault> {
    let letters: String = value.chars().filter(char::is_ascii_alphanumeric).collect();
    match letters.to_ascii_lowercase().as_str() {
        "" | "utf8" | "utf8mb4" | "auto" => Ok(()),
        _ => Err(invalid("`characterEncoding` must be UTF-8: Rust's text is, and the server converts")),
    }
}

/// It becomes part of a statement too.
fn collation(name: &str, value: &str) -> Result<Option<String>, Fault> {
    let is_word = value.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    let is_one = is_word && value.starts_with("utf8mb4_");
    if !value.is_empty() && !is_one {
        return Err(invalid(format!("`{name}` must be a collation of utf8mb4, as utf8mb4_0900_ai_ci")));
    }
    Ok(text(value))
}
