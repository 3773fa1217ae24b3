//! Encrypted channels: TLS 1.2 and 1.3 by rustls, with ring for the cryptography, named here and never installed for the
//! whole process.
//!
//! Both drivers ask the server in plain bytes whether it speaks TLS, and then turn the socket into an encrypted one:
//!
//! ```text
//!  Socket (plain) ──ask──▶ the server agrees ──[`Tls::encrypt`]──▶ Socket (encrypted)
//!                                                   │
//!                                                   ├─ `certificate`: the server's, for channel binding
//!                                                   └─ `server_name`: what it was verified for, to do it again
//! ```
//!
//! A driver must see to it that nothing was received behind the server's agreement: what comes ahead of the handshake
//! was not encrypted, whoever sent it (CVE-2021-23222).
//!
//! Files (roots, revocations, our own certificate and key) are read again for every connection, so that renewed ones
//! count from the next connection on. Bytes that the encrypted channel has taken count as sent, as those do that the
//! kernel has taken.
//!
//! Knows sockets, certificates and files; it must not know what is spoken before or behind it.

mod channel;
mod files;
mod verifier;
mod version_1;

#[cfg(test)]
mod tests;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::version::{TLS12, TLS13};
use tokio_rustls::rustls::{ClientConfig, SupportedProtocolVersion};

pub use self::channel::Channel;
use crate::error::{Error, ErrorKind, Outcome, ServerError};
use crate::socket::Socket;

/// How much of a server's certificate is verified.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Verification {
    /// Nothing: the channel is safe from listeners, and from nobody who sits in between.
    None,
    /// An authority that is trusted has signed it, for whatever server.
    Authority,
    /// And it names the host.
    #[default]
    Full,
}

/// Whom we trust to sign certificates.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Roots {
    /// The authorities that the operating system trusts.
    #[default]
    System,
    /// Those in a file of PEM certificates. A certificate that a server shows and that is in this file itself is
    /// trusted too, whoever signed it.
    File(PathBuf),
}

/// Our own certificate, for servers that ask for one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// A file of PEM certificates: our own first, then those that lead to an authority.
    pub certificate: PathBuf,
    /// A file with the PEM key that belongs to it, not encrypted (PKCS#8, PKCS#1 or SEC1).
    pub key: PathBuf,
}

/// A version of TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    /// TLS 1.2, RFC 5246.
    Tls12,
    /// TLS 1.3, RFC 8446.
    Tls13,
}

/// How channels are encrypted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tls {
    /// How much of the server's certificate is verified. Default: all.
    pub verification: Verification,
    /// Whom we trust. Default: whom the system trusts.
    pub roots: Roots,
    /// Files of PEM lists of certificates that were revoked; for each of them, the authority must be trusted. Default: none.
    pub revoked: Vec<PathBuf>,
    /// Our own certificate. Default: none.
    pub identity: Option<Identity>,
    /// Protocols that are offered by ALPN; if there are any, the server must choose one. Default: none.
    pub alpn: &'static [&'static str],
    /// Whether the server is told which host is wanted (SNI; never for an address). Default: yes.
    pub server_name: bool,
    /// The oldest and the newest version that will do. Default: 1.2 and 1.3.
    pub versions: (Version, Version),
}

impl Default for Tls {
    fn default() -> Self {
        Self {
            verification: Verification::default(),
            roots: Roots::default(),
            revoked: Vec::new(),
            identity: None,
            alpn: &[],
            server_name: true,
            versions: (Version::Tls12, Version::Tls13),
        }
    }
}

impl Tls {
    /// Encrypts a connection whose server has agreed to it. `name` is what its certificate must name; errors call the
    /// server `host`. Cancel safe in that the socket is closed.
    ///
    /// # Errors
    ///
    /// Of kind [`Tls`](ErrorKind::Tls): a file that cannot be used, a certificate that is not trusted, a server that
    /// breaks off.
    pub async fn encrypt<S: ServerError>(
        &self,
        socket: Socket,
        name: &str,
        host: &(impl fmt::Display + Sync),
    ) -> Result<Socket, Error<S>> {
        let settings = self.clone();
        // Files are read here, and the system's roots are many.
        let config = tokio::task::spawn_blocking(move || settings.client_config());
        let config = config.await.map_err(|_| failed("the files of TLS could not be read"))?;
        let config = config.map_err(|NotUsable { what, source }| {
            let error = failed(what);
            if let Some(source) = source { error.with_source(source) } else { error }
        })?;
        let server = self.server_name(name)?;
        let stream = TlsConnector::from(Arc::new(config)).connect(server, socket).await;
        let stream = stream.map_err(|cause| {
            failed(format!("no encrypted channel to {host}{}", self.advice(&cause))).with_source(cause)
        })?;
        let channel = Channel::new(stream, name);
        if !self.alpn.is_empty() && channel.protocol().is_none() {
            return Err(failed(format!("{host} did not agree to the protocol {}", self.alpn.join(" or "))));
        }
        Ok(Socket::Encrypted(Box::new(channel)))
    }

    fn server_name<S: ServerError>(&self, name: &str) -> Result<ServerName<'static>, Error<S>> {
        match ServerName::try_from(name.to_owned()) {
            Ok(name) => Ok(name),
            Err(cause) if self.verification == Verification::Full => Err(failed(format!(
                "no certificate can name the host `{name}`; verify its authority only, or connect by another name"
            ))
            .with_source(cause)),
            // Nobody looks at it: it is neither verified nor sent.
            Err(_) => Ok(ServerName::from(std::net::Ipv4Addr::UNSPECIFIED)),
        }
    }

    fn client_config(&self) -> Result<ClientConfig, NotUsable> {
        let provider = Arc::new(ring::default_provider());
        let verifier = verifier::verifier(self, &provider)?;
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&self.protocol_versions()?)
            .map_err(|cause| NotUsable::new("these versions of TLS cannot be had", cause))?
            .dangerous()
            .with_custom_certificate_verifier(verifier);
        let mut config = match &self.identity {
            None => builder.with_no_client_auth(),
            Some(identity) => {
                let (certificates, key) = files::identity(identity)?;
                builder.with_client_auth_cert(certificates, key).map_err(|cause| {
                    let Identity { certificate, key } = identity;
                    let (certificate, key) = (certificate.display(), key.display());
                    NotUsable::new(
                        format!("the key in {key} does not belong to the certificate in {certificate}"),
                        cause,
                    )
                })?
            }
        };
        config.alpn_protocols = self.alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
        config.enable_sni = self.server_name;
        Ok(config)
    }

    fn protocol_versions(&self) -> Result<Vec<&'static SupportedProtocolVersion>, NotUsable> {
        let (oldest, newest) = self.versions;
        let all = [(Version::Tls12, &TLS12), (Version::Tls13, &TLS13)];
        let wanted = all.into_iter().filter(|(version, _)| (oldest..=newest).contains(version));
        let wanted: Vec<_> = wanted.map(|(_, version)| version).collect();
        if wanted.is_empty() {
            return Err(NotUsable {
                what: "the oldest version of TLS is newer than the newest one".to_owned(),
                source: None,
            });
        }
        Ok(wanted)
    }

    /// What to do about a handshake that failed.
    fn advice(&self, cause: &std::io::Error) -> &'static str {
        use tokio_rustls::rustls::{CertificateError, Error as TlsError};
        let cause = cause.get_ref().and_then(|cause| cause.downcast_ref::<TlsError>());
        match cause {
            Some(error) if version_1::is_meant(error) => {
                ": its certificate is X.509 of version 1; issue one of version 3, with subject alternative names"
            }
            Some(TlsError::InvalidCertificate(why)) => match why {
                CertificateError::UnknownIssuer if self.roots == Roots::System => {
                    ": the system does not trust who signed its certificate; name the authority's file"
                }
                CertificateError::UnknownIssuer => {
                    ": its certificate is not signed by an authority in the file of roots"
                }
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                    ": its certificate is for another host; only its subject alternative names count, not its common name"
                }
                CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                    ": its certificate has expired"
                }
                CertificateError::Revoked => ": its certificate was revoked",
                _ => ": its certificate is not valid",
            },
            Some(TlsError::AlertReceived(_)) => ": it has refused ours, or has none in common with us",
            _ => "",
        }
    }
}

/// Settings that cannot be used: a file, most often.
struct NotUsable {
    what: String,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl NotUsable {
    fn new(what: impl Into<String>, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self { what: what.into(), source: Some(source.into()) }
    }
}

/// The algorithms that certificates may be signed by.
type Provider = Arc<CryptoProvider>;

#[cold]
fn failed<S: ServerError>(message: impl Into<std::borrow::Cow<'static, str>>) -> Error<S> {
    Error::new(ErrorKind::Tls, Outcome::NotSent, message)
}
