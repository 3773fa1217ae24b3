//! From a plain socket to an encrypted one: whether, when, and how libpq's `sslmode` asks for it.
//!
//! ```text
//!             ┌ plain ──────────────────────────────────────────────────────────────▶ (startup)
//!  Attempt ───┤ ask ── SSLRequest ─▶ 'S' ── handshake ──▶ encrypted ────────────────▶ (startup)
//!             │                      'N' ── optional: plain ────────────────────────▶ (startup)
//!             └ direct ───────────── handshake with ALPN ─▶ encrypted ──────────────▶ (startup)
//! ```
//!
//! Knows sockets and TLS; it must not know what is said behind them.
//!
//! Source: PostgreSQL documentation, "SSL Session Encryption" (Frontend/Backend Protocol) and "SSL Mode Descriptions".

use std::fmt;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use wire_pipeline::socket::{self, Socket};

use crate::auth::{self, Channel};
use crate::config::{Ssl, SslMode, SslNegotiation};
use crate::error::{ErrorKind, Fault, Outcome};

/// Source: PostgreSQL documentation, "Message Formats", `SSLRequest`: the length, and 1234·2^16 + 5679.
const SSL_REQUEST: [u8; 8] = [0, 0, 0, 8, 0x04, 0xD2, 0x16, 0x2F];

/// One way to begin a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Attempt {
    Plain,
    /// `optional`: a server that does not speak TLS is taken without.
    Encrypted {
        optional: bool,
    },
}

/// The ways to try with one server, in their order.
pub(crate) fn attempts(mode: SslMode, is_unix: bool) -> &'static [Attempt] {
    if is_unix {
        return &[Attempt::Plain];
    }
    match mode {
        SslMode::Disable => &[Attempt::Plain],
        #[cfg(not(feature = "tls"))]
        _ => &[Attempt::Plain],
        #[cfg(feature = "tls")]
        SslMode::Allow => &[Attempt::Plain, Attempt::Encrypted { optional: false }],
        #[cfg(feature = "tls")]
        SslMode::Prefer => &[Attempt::Encrypted { optional: true }, Attempt::Plain],
        #[cfg(feature = "tls")]
        SslMode::Require | SslMode::VerifyCa | SslMode::VerifyFull => {
            &[Attempt::Encrypted { optional: false }]
        }
    }
}

/// Whether the next way may fare better after this failure: when TLS could not be set up, or when the server has no entry
/// for us with (or without) TLS. Not after a wrong password: it would be shown again, to more people.
pub(crate) fn is_worth_another(failure: &Fault) -> bool {
    failure.kind() == ErrorKind::Tls || failure.server().is_some_and(|error| error.code() == "28000")
}

/// Begins a connection in this way; `name` is what the server's certificate must name.
pub(crate) async fn begin(
    ssl: &Ssl,
    attempt: Attempt,
    mut io: Socket,
    name: &str,
    host: &(impl fmt::Display + Sync),
) -> Result<Socket, Fault> {
    let Attempt::Encrypted { optional } = attempt else { return Ok(io) };
    if ssl.negotiation == SslNegotiation::Postgres {
        let lost = |error| socket::interrupted(host, "PostgreSQL").with_source(error);
        io.write_all(&SSL_REQUEST).await.map_err(lost)?;
        io.flush().await.map_err(lost)?;
        // Room for more than the answer: what comes with it was not encrypted, whoever sent it (CVE-2021-23222).
        let mut answer = [0; 2];
        let count = io.read(&mut answer).await.map_err(lost)?;
        match answer.get(..count) {
            Some(b"S") => {}
            Some(b"N") if optional => return Ok(io),
            Some(b"N") => {
                return Err(failed(format!(
                    "{host} does not offer TLS, and `sslmode={}` asks for it; set `ssl = on` there",
                    ssl.mode.as_str()
                )));
            }
            // What it says is not read: it was not encrypted, and could be anybody's (CVE-2024-10977).
            Some([b'E', ..]) => {
                return Err(failed(format!("{host} answered the question for TLS with an error")));
            }
            // Not a failure of TLS: nothing is tried without it after that.
            Some([b'S' | b'N', _]) => {
                return Err(Fault::new(
                    ErrorKind::Protocol,
                    Outcome::NotSent,
                    format!(
                        "{host} has sent something before the connection was encrypted; somebody may sit in between"
                    ),
                ));
            }
            Some([]) | None => return Err(socket::interrupted(host, "PostgreSQL")),
            Some(_) => {
                return Err(Fault::new(
                    ErrorKind::Protocol,
                    Outcome::NotSent,
                    format!("{host} does not speak PostgreSQL's protocol; check host and port"),
                ));
            }
        }
    }
    encrypt(ssl, io, name, host).await
}

#[cfg(feature = "tls")]
async fn encrypt(
    ssl: &Ssl,
    io: Socket,
    name: &str,
    host: &(impl fmt::Display + Sync),
) -> Result<Socket, Fault> {
    files::tls(ssl)?.encrypt(io, name, host).await
}

#[cfg(not(feature = "tls"))]
#[expect(clippy::unused_async, reason = "the same face as with TLS")]
async fn encrypt(_: &Ssl, _: Socket, _: &str, host: &(impl fmt::Display + Sync)) -> Result<Socket, Fault> {
    Err(failed(format!(
        "{host} needs TLS, which this build of pg-pipeline does not have; enable its feature `tls`"
    )))
}

/// What authentication is told of the channel.
pub(crate) fn channel(io: &Socket) -> Channel {
    match io {
        #[cfg(feature = "tls")]
        Socket::Encrypted(channel) => {
            Channel::Encrypted { end_point: channel.certificate().and_then(auth::end_point) }
        }
        #[cfg(unix)]
        Socket::Unix(_) => Channel::Private,
        _ => Channel::Plain,
    }
}

/// How another connection to the same server begins, if this one is encrypted: with the same name.
pub(crate) fn again(io: &Socket) -> Option<String> {
    match io {
        #[cfg(feature = "tls")]
        Socket::Encrypted(channel) => Some(channel.server_name().to_owned()),
        _ => None,
    }
}

#[cold]
fn failed(message: String) -> Fault {
    Fault::new(ErrorKind::Tls, Outcome::NotSent, message)
}

/// Which files are used; looked for anew for each connection.
#[cfg(feature = "tls")]
mod files {
    use std::path::{Path, PathBuf};

    use wire_pipeline::tls::{Identity, Roots, Tls, Verification, Version};

    use super::failed;
    use crate::config::home;
    use crate::config::ssl::{RootCertificates, Ssl, SslMode, SslNegotiation, TlsVersion};
    use crate::error::Fault;

    pub(super) fn tls(ssl: &Ssl) -> Result<Tls, Fault> {
        let verification = match ssl.mode {
            SslMode::VerifyFull => Verification::Full,
            SslMode::VerifyCa => Verification::Authority,
            SslMode::Require if ssl.roots.is_some() => Verification::Authority,
            _ => Verification::None,
        };
        let roots = match &ssl.roots {
            Some(RootCertificates::File(path)) => Roots::File(path.clone()),
            Some(RootCertificates::System) => Roots::System,
            None => home::file("root.crt").map_or(Roots::System, Roots::File),
        };
        let version = |version| match version {
            TlsVersion::Tls12 => Version::Tls12,
            TlsVersion::Tls13 => Version::Tls13,
        };
        Ok(Tls {
            verification,
            roots,
            revoked: revoked(ssl)?,
            identity: identity(ssl)?,
            // PostgreSQL asks for it where TLS comes first, so that nobody takes another protocol's server for it.
            alpn: if ssl.negotiation == SslNegotiation::Direct { &["postgresql"] } else { &[] },
            server_name: !ssl.hide_name,
            versions: (
                ssl.oldest.map_or(Version::Tls12, version),
                ssl.newest.map_or(Version::Tls13, version),
            ),
        })
    }

    fn revoked(ssl: &Ssl) -> Result<Vec<PathBuf>, Fault> {
        let mut files: Vec<PathBuf> = ssl.revoked.iter().cloned().collect();
        if let Some(folder) = &ssl.revoked_folder {
            let unreadable =
                |error| failed(format!("the folder {} cannot be read", folder.display())).with_source(error);
            for entry in std::fs::read_dir(folder).map_err(unreadable)? {
                let path = entry.map_err(unreadable)?.path();
                files.extend(Some(path).filter(|path| path.is_file()));
            }
        }
        Ok(files)
    }

    fn identity(ssl: &Ssl) -> Result<Option<Identity>, Fault> {
        if ssl.hide_certificate {
            return Ok(None);
        }
        let Some(certificate) = ssl.certificate.clone().or_else(|| home::file("postgresql.crt")) else {
            return Ok(None);
        };
        let Some(key) = ssl.key.clone().or_else(|| home::file("postgresql.key")) else {
            return Err(failed(format!(
                "there is a certificate, {}, and no key for it; set `sslkey`",
                certificate.display()
            )));
        };
        check_key(&key)?;
        Ok(Some(Identity { certificate, key }))
    }

    /// As libpq: nobody else may read it, or where it is root's, nobody but its group.
    /// Source: PostgreSQL documentation, "Client Certificates".
    fn check_key(path: &Path) -> Result<(), Fault> {
        #[cfg(unix)]
        {
            use std::os::unix::fs::MetadataExt as _;
            let metadata = std::fs::metadata(path).map_err(|error| {
                failed(format!("the key {} cannot be read", path.display())).with_source(error)
            })?;
            let others = if metadata.uid() == 0 { 0o027 } else { 0o077 };
            if metadata.mode() & others != 0 {
                return Err(failed(format!(
                    "others may read the key {}; its permissions should be 0600 or less, or 0640 if it is root's",
                    path.display()
                )));
            }
        }
        #[cfg(not(unix))]
        let _ = path;
        Ok(())
    }
}

#[cfg(all(test, feature = "tls"))]
mod tests {
    use super::*;

    #[test]
    fn each_mode_has_its_ways_in_their_order() {
        let must = Attempt::Encrypted { optional: false };
        for (mode, ways) in [
            (SslMode::Disable, &[Attempt::Plain][..]),
            (SslMode::Allow, &[Attempt::Plain, must]),
            (SslMode::Prefer, &[Attempt::Encrypted { optional: true }, Attempt::Plain]),
            (SslMode::Require, &[must]),
            (SslMode::VerifyCa, &[must]),
            (SslMode::VerifyFull, &[must]),
        ] {
            assert_eq!(attempts(mode, false), ways, "{mode:?}");
            assert_eq!(attempts(mode, true), [Attempt::Plain], "{mode:?}");
        }
    }
}
