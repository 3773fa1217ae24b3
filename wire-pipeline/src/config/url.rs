//! The URL form: `scheme://[user[:password]@][host][:port][,…][/dbname][?option=value&…]`.
//!
//! This module may know how a URL is cut and decoded; it must not know what an option means. What it returns
//! are name and value pairs (`user`, `password`, `host`, `port`, `dbname`, and the options as written). No error repeats a piece of the URL other
//! than an option's name, because any other piece may belong to a password.
//!
//! The credentials end at the first `@`, and `/` cannot occur in them unless percent-encoded, as libpq has it
//! (PostgreSQL documentation, "Connection URIs").

use std::borrow::Cow;

use super::{Setting, invalid, show_name};
use crate::error::{Error, ServerError};

/// What follows the scheme, as settings in the order of the URL.
pub fn parse<S: ServerError>(rest: &str) -> Result<Vec<Setting>, Error<S>> {
    let mut settings = Vec::new();
    let mut add = |name: &'static str, value: String| {
        if !value.is_empty() {
            settings.push(Setting::new(name, value));
        }
    };

    let (credentials, rest) = match rest.find(['@', '/']) {
        Some(at) if rest[at..].starts_with('@') => (Some(&rest[..at]), &rest[at + 1..]),
        _ => (None, rest),
    };
    if let Some(credentials) = credentials {
        let (user, password) = credentials.split_once(':').unwrap_or((credentials, ""));
        add("user", decode("user", user)?);
        add("password", decode("password", password)?);
    }

    let (hosts, ports, rest) = cut_hosts(rest)?;
    if hosts.iter().any(|host| !host.is_empty()) {
        add("host", decode("host", &hosts.join(","))?);
    }
    if ports.iter().any(|port| !port.is_empty()) {
        add("port", decode("port", &ports.join(","))?);
    }

    let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
    if let Some(database) = path.strip_prefix('/') {
        // Almost always the end of a password with `/` or `@` in it, which would become a name that is sent, logged
        // and shown.
        if database.contains('@') {
            return Err(invalid(
                "the URL's database name contains `@`; write it %40, \
                 and `/` and `@` of the password %2F and %40",
            ));
        }
        add("dbname", decode("database name", database)?);
    }
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) =
            pair.split_once('=').ok_or_else(|| invalid("an option in the URL has no `=` after its name"))?;
        let name = decode("options' names", name)?;
        let value = decode(&format!("option {}", show_name(&name)), value)?;
        settings.push(Setting::new(name, value));
    }
    Ok(settings)
}

/// Hosts, ports, and what follows them.
type Cut<'a> = (Vec<&'a str>, Vec<&'a str>, &'a str);

/// Hosts and ports, still encoded and as many of one as of the other, and what follows them.
fn cut_hosts<S: ServerError>(mut rest: &str) -> Result<Cut<'_>, Error<S>> {
    let (mut hosts, mut ports) = (Vec::new(), Vec::new());
    loop {
        let host;
        if let Some(bracketed) = rest.strip_prefix('[') {
            (host, rest) = bracketed.split_once(']').ok_or_else(|| {
                invalid("the URL's host has `[` without `]`; if it belongs to the password, write %5B")
            })?;
            if host.is_empty() {
                return Err(invalid("the URL's host has no IPv6 address between `[` and `]`"));
            }
            if !rest.is_empty() && !rest.starts_with([':', '/', '?', ',']) {
                return Err(invalid("the URL's host has something other than a port after `]`"));
            }
        } else {
            (host, rest) = rest.split_at(rest.find([':', '/', '?', ',']).unwrap_or(rest.len()));
        }
        let mut port = "";
        if let Some(after) = rest.strip_prefix(':') {
            (port, rest) = after.split_at(after.find(['/', '?', ',']).unwrap_or(after.len()));
        }
        hosts.push(host);
        ports.push(port);
        match rest.strip_prefix(',') {
            Some(after) => rest = after,
            None => return Ok((hosts, ports, rest)),
        }
    }
}

/// Percent-decoding. A blank is refused, since it is more often a slip than meant.
fn decode<S: ServerError>(field: &str, encoded: &str) -> Result<String, Error<S>> {
    if encoded.contains(|c: char| c.is_ascii_whitespace() || c.is_ascii_control()) {
        return Err(invalid(format!(
            "the URL's {field} contains a blank or control character; write it percent-encoded (a space is %20)"
        )));
    }
    let decoded = percent_decode(encoded.as_bytes()).ok_or_else(|| {
        invalid(format!(
            "the URL's {field} contains a % that is not followed by two hexadecimal digits; write a literal % as %25"
        ))
    })?;
    String::from_utf8(decoded.into_owned())
        .map_err(|_| invalid(format!("the URL's {field} is not UTF-8 after percent-decoding")))
}

fn percent_decode(encoded: &[u8]) -> Option<Cow<'_, [u8]>> {
    if !encoded.contains(&b'%') {
        return Some(Cow::Borrowed(encoded));
    }
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let mut decoded = Vec::with_capacity(encoded.len());
    let mut bytes = encoded.iter().copied();
    while let Some(byte) = bytes.next() {
        decoded.push(match byte {
            b'%' => (digit(bytes.next()?)? << 4) | digit(bytes.next()?)?,
            _ => byte,
        });
    }
    Some(Cow::Owned(decoded))
}
