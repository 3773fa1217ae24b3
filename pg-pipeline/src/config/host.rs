//! Where to connect: libpq's lists `host`, `hostaddr` and `port` brought together.
//!
//! This module may know how the three lists fit; it must not resolve a name or open a socket.

use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use wire_pipeline::config::{hosts, invalid};

use crate::error::Fault;

/// PostgreSQL's registered port.
pub(super) const DEFAULT_PORT: u16 = 5432;

/// The host that stands in for none. libpq would look for a Unix socket in a directory chosen when it was
/// built; a driver cannot know that directory, and a name is the same everywhere.
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
    /// A name, or an address in text, and the address that spares looking the name up.
    Tcp(String, Option<IpAddr>),
    /// The directory of a Unix socket; [`Host::socket_path`] has the socket itself.
    Unix(PathBuf),
}

impl Host {
    /// The path of the socket in the directory of a Unix host.
    ///
    /// Source: PostgreSQL documentation, `unix_socket_directories`: the socket is named `.s.PGSQL.nnnn` after
    /// the port.
    pub(crate) fn socket_path(&self, directory: &Path) -> PathBuf {
        directory.join(format!(".s.PGSQL.{}", self.port))
    }

    pub(crate) fn is_unix(&self) -> bool {
        matches!(self.kind, HostKind::Unix(_))
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            HostKind::Tcp(name, _) => write!(f, "{name}:{}", self.port),
            HostKind::Unix(directory) => write!(f, "{} (port {})", directory.display(), self.port),
        }
    }
}

/// The three lists as they were given; an empty one was not given.
#[derive(Debug, Clone, Default)]
pub(super) struct Addresses {
    pub(super) hosts: Vec<String>,
    pub(super) numeric: Vec<String>,
    pub(super) ports: Vec<String>,
}

impl Addresses {
    /// The servers in the order in which to try them; at least one.
    pub(super) fn hosts(&self) -> Result<Vec<Host>, Fault> {
        let count = match (self.hosts.len(), self.numeric.len()) {
            (0, 0) => 1,
            (0, count) | (count, 0) => count,
            (hosts, addresses) if hosts == addresses => hosts,
            (hosts, addresses) => {
                return Err(invalid(format!(
                    "`hostaddr` has {addresses} entries for {hosts} of `host`; give one for each"
                )));
            }
        };
        let ports = hosts::ports(&self.ports, count, DEFAULT_PORT)?;
        let servers = ports.into_iter().enumerate();
        servers
            .map(|(index, port)| {
                let kind = kind(hosts::entry(&self.hosts, index), hosts::entry(&self.numeric, index))?;
                Ok(Host { kind, port })
            })
            .collect()
    }
}

fn kind(host: &str, address: &str) -> Result<HostKind, Fault> {
    if !address.is_empty() {
        let ip = address.parse().map_err(|_| {
            invalid("`hostaddr` must be a numeric IPv4 or IPv6 address; a name belongs into `host`")
        })?;
        let name = if host.is_empty() { address } else { host };
        return Ok(HostKind::Tcp(name.to_owned(), Some(ip)));
    }
    if host.is_empty() {
        return Ok(HostKind::Tcp(DEFAULT_HOST.to_owned(), None));
    }
    if host.starts_with('/') {
        return Ok(HostKind::Unix(host.into()));
    }
    if host.contains('@') {
        return Err(invalid(
            "`host` contains `@`; in a URL an `@` of the password must be written %40 \
             (sockets in the abstract namespace are not offered)",
        ));
    }
    hosts::check_name(host)?;
    Ok(HostKind::Tcp(host.to_owned(), None))
}
