//! Where to connect: comma-separated lists of hosts and ports, as every driver takes them.
//!
//! This module may know how lists are written and which of them fit; it must not resolve a name or open a socket, and
//! does not know which port is a server's own.

use super::invalid;
use crate::error::{Error, ServerError};

/// A comma-separated list, `""` for none. Entries may be empty.
pub fn list(value: &str) -> Vec<String> {
    if value.is_empty() {
        Vec::new()
    } else {
        value.split(',').map(|entry| entry.trim().to_owned()).collect()
    }
}

/// An entry of a list, `""` if it has none there.
pub fn entry(list: &[String], index: usize) -> &str {
    list.get(index).map_or("", String::as_str)
}

/// The ports of `count` hosts, from a list with one for all or one for each; `default` where none is given.
pub fn ports<S: ServerError>(list: &[String], count: usize, default: u16) -> Result<Vec<u16>, Error<S>> {
    // More ports than hosts without a host would be a second default host, which is no host at all.
    if list.len() > 1 && list.len() != count {
        return Err(invalid(format!(
            "`port` has {} entries for {count} hosts; give one for all or one for each",
            list.len()
        )));
    }
    (0..count).map(|index| port(entry(list, if list.len() == 1 { 0 } else { index }), default)).collect()
}

fn port<S: ServerError>(port: &str, default: u16) -> Result<u16, Error<S>> {
    if port.is_empty() {
        return Ok(default);
    }
    port.parse().ok().filter(|port| *port != 0).ok_or_else(|| {
        invalid(
            "`port` must lie between 1 and 65535; in a URL an IPv6 address stands in brackets, \
             and `/ @ : [` of the password must be written %2F %40 %3A %5B",
        )
    })
}

/// Refuses what cannot be a host's name or address. Most often it is a piece of a password.
pub fn check_name<S: ServerError>(host: &str) -> Result<(), Error<S>> {
    if host.contains(|c: char| c.is_whitespace() || c.is_control() || matches!(c, '/' | '?' | '#' | '@')) {
        return Err(invalid(
            "`host` contains a character that no host name has; \
             in a URL `/ ? # @` of the password must be written %2F %3F %23 %40",
        ));
    }
    Ok(())
}
