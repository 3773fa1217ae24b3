//! Where to connect: the lists `host` and `port` brought together, or a Unix socket.
//!
//! This module may know how the lists fit; it must not resolve a name or open a socket.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;

use wire_pipeline::config::hosts;

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
    /// The one of its addresses that is tried.
    pub(crate) address: Option<IpAddr>,
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
    /// The same, by one of its addresses.
    pub(crate) fn at(&self, address: IpAddr) -> Self {
        Self { address: Some(address), ..self.clone() }
    }

    pub(crate) fn is_unix(&self) -> bool {
        matches!(self.kind, HostKind::Unix(_))
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            HostKind::Tcp(name) => {
                write!(f, "{name}:{}", self.port)?;
                match self.address.map(|address| address.to_string()) {
                    Some(address) if address != *name => write!(f, " ({address})"),
                    _ => Ok(()),
                }
            }
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
    /// The servers in the order in which to try them; at least one.
    pub(super) fn hosts(&self) -> Result<Vec<Host>, Fault> {
        let count = self.hosts.len().max(1);
        let ports = hosts::ports(&self.ports, count, DEFAULT_PORT)?;
        let servers = ports.into_iter().enumerate();
        let servers = servers
            .map(|(index, port)| {
                Ok(Host { kind: kind(hosts::entry(&self.hosts, index))?, port, address: None })
            })
            .collect::<Result<_, Fault>>()?;
        match &self.socket {
            Some(path) => {
                Ok(vec![Host { kind: HostKind::Unix(path.into()), port: DEFAULT_PORT, address: None }])
            }
            None => Ok(servers),
        }
    }
}

fn kind(host: &str) -> Result<HostKind, Fault> {
    if host.is_empty() {
        return Ok(HostKind::Tcp(DEFAULT_HOST.to_owned()));
    }
    if host.starts_with('/') {
        return Ok(HostKind::Unix(host.into()));
    }
    hosts::check_name(host)?;
    Ok(HostKind::Tcp(host.to_owned()))
}
