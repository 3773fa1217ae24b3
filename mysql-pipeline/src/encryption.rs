//! From a plain socket to an encrypted one, as MySQL's `ssl-mode` asks for it. When the server is asked is the connection
//! phase's (`protocol::startup`).
//!
//! ```text
//!             ┌ none ─────────────────────────────────────────────────────────────────▶ plain
//!  Attempt ───┤ TLS, verified as the mode says, if the server has it or always ───────▶ encrypted
//!             └ TLS, and MariaDB proves by the password that the certificate is its own ▶ encrypted
//! ```
//!
//! Knows sockets and TLS; it must not know what is said behind them.

use std::fmt;

use wire_pipeline::socket::Socket;

use crate::config::{Ssl, SslMode};
use crate::error::{ErrorKind, Fault, Outcome};
use crate::protocol::startup::{Encryption, Secured};

/// One way to begin a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Attempt {
    Plain,
    Encrypted,
    /// A certificate that nobody whom we trust has signed is taken from MariaDB, and proven later.
    Proven,
}

/// The ways to try with one server, in their order; the next one only where TLS could not be set up.
pub(crate) fn attempts(ssl: &Ssl, is_unix: bool) -> &'static [Attempt] {
    if is_unix || cfg!(not(feature = "tls")) {
        return &[Attempt::Plain];
    }
    match ssl.mode {
        SslMode::Disabled => &[Attempt::Plain],
        SslMode::Preferred => &[Attempt::Encrypted, Attempt::Plain],
        SslMode::Required => &[Attempt::Encrypted],
        SslMode::VerifyCa | SslMode::VerifyIdentity if ssl.authority.is_some() => &[Attempt::Encrypted],
        SslMode::VerifyCa | SslMode::VerifyIdentity => &[Attempt::Encrypted, Attempt::Proven],
    }
}

impl Attempt {
    /// What the connection phase asks the server for.
    pub(crate) fn encryption(self, mode: SslMode) -> Encryption {
        match self {
            Self::Plain => Encryption::None,
            Self::Encrypted if mode == SslMode::Preferred => Encryption::IfOffered,
            Self::Encrypted | Self::Proven => Encryption::Required(mode.as_str()),
        }
    }
}

/// Encrypts a connection whose server waits for it; `name` is what its certificate must name.
#[cfg(feature = "tls")]
pub(crate) async fn encrypt(
    ssl: &Ssl,
    attempt: Attempt,
    io: Socket,
    name: &str,
    host: &(impl fmt::Display + Sync),
) -> Result<(Socket, Secured), Fault> {
    use sha2::{Digest as _, Sha256};
    use wire_pipeline::tls::{Identity, Roots, Tls, Verification, Version};

    use crate::config::ssl::TlsVersion;

    let verification = match (attempt, ssl.mode) {
        (Attempt::Proven, _) => Verification::None,
        (_, SslMode::VerifyIdentity) => Verification::Full,
        (_, SslMode::VerifyCa) => Verification::Authority,
        _ => Verification::None,
    };
    let version = |version| match version {
        TlsVersion::Tls12 => Version::Tls12,
        TlsVersion::Tls13 => Version::Tls13,
    };
    let tls = Tls {
        verification,
        roots: ssl.authority.clone().map_or(Roots::System, Roots::File),
        revoked: ssl.revoked.iter().cloned().collect(),
        identity: ssl
            .certificate
            .clone()
            .zip(ssl.key.clone())
            .map(|(certificate, key)| Identity { certificate, key }),
        versions: (
            ssl.versions.iter().min().map_or(Version::Tls12, |oldest| version(*oldest)),
            ssl.versions.iter().max().map_or(Version::Tls13, |newest| version(*newest)),
        ),
        ..Tls::default()
    };
    let io = tls.encrypt(io, name, host).await?;
    if attempt != Attempt::Proven {
        return Ok((io, Secured::Accepted));
    }
    let Socket::Encrypted(channel) = &io else { return Err(no_certificate()) };
    let digest = channel.certificate().map(|certificate| Sha256::digest(certificate).into());
    let secured = Secured::Unproven(digest.ok_or_else(no_certificate)?);
    Ok((io, secured))
}

#[cfg(feature = "tls")]
#[cold]
fn no_certificate() -> Fault {
    Fault::new(ErrorKind::Tls, Outcome::NotSent, "the server has shown no certificate")
}

#[cfg(not(feature = "tls"))]
#[expect(clippy::unused_async, reason = "the same face as with TLS")]
pub(crate) async fn encrypt(
    _: &Ssl,
    _: Attempt,
    _: Socket,
    _: &str,
    host: &(impl fmt::Display + Sync),
) -> Result<(Socket, Secured), Fault> {
    let message = format!(
        "{host} needs TLS, which this build of mysql-pipeline does not have; enable its feature `tls`"
    );
    Err(Fault::new(ErrorKind::Tls, Outcome::NotSent, message))
}

/// What the server's certificate was to name, if the connection is encrypted.
pub(crate) fn server_name(io: &Socket) -> Option<&str> {
    match io {
        #[cfg(feature = "tls")]
        Socket::Encrypted(channel) => Some(channel.server_name()),
        _ => None,
    }
}
