//! Database URLs, as far as this crate needs them: who to ask for a version, and what to print. The drivers have
//! readers of their own, with every option; this one must not depend on what it helps to test.

use anyhow::{Context as _, ensure};
use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

/// The parts of `scheme://user:password@host:port/database?options`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    pub(crate) scheme: String,
    pub(crate) user: String,
    pub(crate) password: String,
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) database: String,
    options: Option<String>,
}

impl Address {
    pub(crate) fn parse(url: &str) -> anyhow::Result<Self> {
        let (scheme, rest) = url.split_once("://").context("no `://` in it")?;
        let default_port = match scheme {
            "postgres" | "postgresql" => 5432,
            "mysql" => 3306,
            _ => anyhow::bail!("the scheme must be postgres:// or mysql://"),
        };
        let (rest, options) = match rest.split_once('?') {
            Some((rest, options)) => (rest, Some(options.to_owned())),
            None => (rest, None),
        };
        let (authority, database) = rest.split_once('/').unwrap_or((rest, ""));
        let (login, place) = authority.rsplit_once('@').unwrap_or(("", authority));
        let (user, password) = login.split_once(':').unwrap_or((login, ""));
        ensure!(!place.contains(','), "one host is needed, not a list");
        let (host, port) = split_port(place)?;
        ensure!(!host.is_empty(), "it names no host");
        Ok(Self {
            scheme: scheme.to_owned(),
            user: decoded(user)?,
            password: decoded(password)?,
            host: decoded(host)?,
            port: port.unwrap_or(default_port),
            database: decoded(database)?,
            options,
        })
    }

    /// `host:port`, fit for printing.
    pub(crate) fn place(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }

    pub(crate) fn url_for(&self, user: &str, password: &str) -> String {
        let mut url = format!(
            "{}://{}:{}@{}/{}",
            self.scheme,
            encoded(user),
            encoded(password),
            self.place(),
            encoded(&self.database)
        );
        if let Some(options) = &self.options {
            url.push('?');
            url.push_str(options);
        }
        url
    }
}

fn split_port(place: &str) -> anyhow::Result<(&str, Option<u16>)> {
    let (host, port) = if let Some(rest) = place.strip_prefix('[') {
        let (host, rest) = rest.split_once(']').context("`[` without `]`")?;
        (host, rest.strip_prefix(':'))
    } else {
        match place.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (place, None),
        }
    };
    let port = port.map(|port| port.parse().with_context(|| format!("`{port}` is no port"))).transpose()?;
    Ok((host, port))
}

// Underscores, dots and hyphens are common in names and mean themselves in a URL.
fn encoded(text: &str) -> String {
    const SET: &percent_encoding::AsciiSet = &NON_ALPHANUMERIC.remove(b'_').remove(b'-').remove(b'.');
    utf8_percent_encode(text, SET).to_string()
}

fn decoded(text: &str) -> anyhow::Result<String> {
    Ok(percent_decode_str(text).decode_utf8().context("an escape in it is no UTF-8")?.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_is_read() {
        let address = Address::parse("postgres://me:a%40b@db.example:6000/shop?sslmode=require").unwrap();
        assert_eq!(address.user, "me");
        assert_eq!(address.password, "a@b");
        assert_eq!(address.place(), "db.example:6000");
        assert_eq!(address.database, "shop");
        assert_eq!(address.url_for("you", "x"), "postgres://you:x@db.example:6000/shop?sslmode=require");
    }

    #[test]
    fn ports_have_defaults_and_brackets_are_understood() {
        assert_eq!(Address::parse("mysql://root@localhost").unwrap().port, 3306);
        assert_eq!(Address::parse("postgresql://u@[::1]/d").unwrap().place(), "[::1]:5432");
    }

    #[test]
    fn what_is_no_address_is_refused_with_a_reason() {
        for (url, reason) in [
            ("localhost:5432", "://"),
            ("http://localhost", "scheme"),
            ("postgres://u@h:port/d", "no port"),
            ("postgres://u@a:1,b:2/d", "one host"),
            ("postgres:///d", "no host"),
        ] {
            let error = Address::parse(url).unwrap_err().to_string();
            assert!(error.contains(reason), "{url}: {error}");
        }
    }
}
