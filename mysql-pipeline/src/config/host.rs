//! Where to connect: the lists `host` and `port` brought together, or a Unix socket.
//!
//! This module may know how the lists fit; it must not resolve a name or open a socket.

use std::fmt;
use std::path::PathBuf;

use wire_pipeline::config::invalid;

use crate::error::Fault;

/// MySQL's registered port.
const DEFAULT_PORT: u16 = 3306;

/// The host that stands in for none. The mysql client would look for a Unix socket where it was built to; a driver
/// cannot know that place, and a name is the same everywhere.
const DEFAULT_HOST: &str = "localhost";

/// One server to try.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Host {
    pub(crate) kind: HostKind,
    pub(crate) port: u16,
}

/// How a server is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum HostKind {
    /// A name, or an address in text.
    Tcp(String),
    /// The path of a Unix socket.
    Unix(PathBuf),
}

impl Host {
    pub(crate) fn is_unix(&self) -> bool {
        matches!(self.kind, HostKind::Unix(_))
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            HostKind::Tcp(name) => write!(f, "{name}:{}", self.port),
            HostKind::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

/// The lists as they were given; an empty one was not given.
#[derive(Debug, Clone, Default)]
pub(super) struct Addresses {
    pub(super) hosts: Vec<String>,
    pub(super) ports: Vec<String>,
    /// Wins over the hosts.
    pub(super) socket: Option<String>,
}

impl Addresses {
    /// A comma-separated list, `""` for none. Entries may be empty.
    pub(super) fn list(value: &str) -> Vec<String> {
        if value.is_empty() {
            Vec::new()
        } else {
            value.split(',').map(|entry| entry.trim().to_owned()).collect()
        }
    }

    /// The servers in the order in which to try them; at least one.
    pub(super) fn hosts(&self) -> Result<Vec<Host>, Fault> {
        let count = self.hosts.len().max(1);
        if self.ports.len() > 1 && self.ports.len() != count {
            return Err(invalid(format!(
                "`port` has {} entries for {count} hosts; give one for all or one for each",
                self.ports.len()
            )));
        }
        let hosts: Vec<Host> = (0..count)
            .map(|index| {
                let port =
                    if self.ports.len() == 1 { entry(&self.ports, 0) } else { entry(&self.ports, index) };
                Ok(Host { kind: kind(entry(&self.hosts, index))?, port: parse_port(port)? })
            })
            .collect::<Result<_, Fault>>()?;
        match &self.socket {
            Some(path) => Ok(vec![Host { kind: HostKind::Unix(path.into()), port: DEFAULT_PORT }]),
            None => Ok(hosts),
        }
    }
}

fn entry(list: &[String], index: usize) -> &str {
    list.get(index).map_or("", String::as_str)
}

fn kind(host: &str) -> Result<HostKind, Fault> {
    if host.is_empty() {
        return Ok(HostKind::Tcp(DEFAULT_HOST.to_owned()));
    }
    if host.starts_with('/') {
        return Ok(HostKind::Unix(host.into()));
    }
    if host.contains(|c: char| c.is_whitespace() || c.is_control() || matches!(c, '/' | '?' | '#' | '@')) {
        return Err(invalid(
            "`host` contains a character that no host name has; \
             in a URL `/ ? # @` of the password must be written %2F %3F %23 %40",
        ));
    }
    Ok(HostKind::Tcp(host.to_owned()))
}

fn parse_port(port: &str) -> Result<u16, Fault> {
    if port.is_empty() {
        return Ok(DEFAULT_PORT);
    }
    port.parse().ok().filter(|port| *port != 0).ok_or_else(|| {
        invalid(
            "`port` must lie between 1 and 65535; in a URL an IPv6 address stands in brackets, \
             and `/ @ : [` of the password must be written %2F %40 %3A %5B",
        )
    })
}
