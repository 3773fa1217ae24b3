//! libpq's `ssl…` options: how much encryption and verification the user asks for, and with which files.
//!
//! This module may know the names, their order and where libpq looks for files; it must not know how TLS is done.

use std::path::PathBuf;

use wire_pipeline::config::units;

use super::{home, invalid};
use crate::auth::ChannelBinding;
use crate::error::Fault;

/// How much encryption and verification a connection must have, as libpq's `sslmode`.
///
/// It does not apply to Unix sockets, which are never encrypted. Without the crate's feature `tls`, what needs TLS is
/// refused when connecting, and [`Allow`](Self::Allow) and [`Prefer`](Self::Prefer) connect without.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[non_exhaustive]
pub enum SslMode {
    /// Never TLS.
    Disable,
    /// TLS only if the server insists: it refuses us without (SQLSTATE 28000, no entry in `pg_hba.conf`).
    Allow,
    /// TLS if the server offers it. The default, as in libpq; it protects from listeners only, and whoever sits in between
    /// can take it away.
    #[default]
    Prefer,
    /// TLS, whatever certificate the server shows; with `sslrootcert` the same as [`VerifyCa`](Self::VerifyCa), as in
    /// libpq.
    Require,
    /// TLS with a certificate that a trusted authority signed.
    VerifyCa,
    /// As [`VerifyCa`](Self::VerifyCa), and the certificate names the host.
    VerifyFull,
}

impl SslMode {
    /// The name that URLs and libpq use.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Disable => "disable",
            Self::Allow => "allow",
            Self::Prefer => "prefer",
            Self::Require => "require",
            Self::VerifyCa => "verify-ca",
            Self::VerifyFull => "verify-full",
        }
    }

    pub(super) fn parse(value: &str) -> Result<Self, Fault> {
        Ok(match value {
            "disable" => Self::Disable,
            "allow" => Self::Allow,
            "prefer" => Self::Prefer,
            "require" => Self::Require,
            "verify-ca" => Self::VerifyCa,
            "verify-full" => Self::VerifyFull,
            _ => {
                return Err(invalid(
                    "`sslmode` must be one of disable, allow, prefer, require, verify-ca, verify-full",
                ));
            }
        })
    }
}

/// How TLS begins, as libpq's `sslnegotiation`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum SslNegotiation {
    /// The server is asked whether it speaks TLS: one round trip more. The default.
    #[default]
    Postgres,
    /// At once, as with HTTPS; for servers from PostgreSQL 17 on, and `sslmode=require` or above.
    Direct,
}

/// The file of roots.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RootCertificates {
    /// Whom the system trusts.
    System,
    File(PathBuf),
}

/// A version of TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum TlsVersion {
    Tls12,
    Tls13,
}

/// All options of encryption.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ssl {
    pub(crate) mode: SslMode,
    pub(crate) negotiation: SslNegotiation,
    pub(crate) channel_binding: ChannelBinding,
    pub(crate) roots: Option<RootCertificates>,
    pub(crate) certificate: Option<PathBuf>,
    pub(crate) key: Option<PathBuf>,
    /// `sslcertmode=disable`: our certificate is not shown.
    pub(crate) hide_certificate: bool,
    pub(crate) revoked: Option<PathBuf>,
    pub(crate) revoked_folder: Option<PathBuf>,
    pub(crate) hide_name: bool,
    pub(crate) oldest: Option<TlsVersion>,
    pub(crate) newest: Option<TlsVersion>,
}

impl Ssl {
    /// Sets an option, if it is one of these.
    pub(super) fn set(&mut self, name: &str, value: &str) -> Option<Result<(), Fault>> {
        let path = || Some(value).filter(|value| !value.is_empty()).map(PathBuf::from);
        match name {
            "sslmode" => return Some(SslMode::parse(value).map(|mode| self.mode = mode)),
            // Deprecated since `sslmode`, which libpq took it for.
            "requiressl" => {
                return Some(units::flag(name, value).map(|on| {
                    if on {
                        self.mode = SslMode::Require;
                    }
                }));
            }
            "sslnegotiation" => match value {
                "postgres" | "" => self.negotiation = SslNegotiation::Postgres,
                "direct" => self.negotiation = SslNegotiation::Direct,
                _ => return Some(Err(invalid("`sslnegotiation` must be postgres or direct"))),
            },
            "channel_binding" => match value {
                "disable" => self.channel_binding = ChannelBinding::Disable,
                "prefer" | "" => self.channel_binding = ChannelBinding::Prefer,
                "require" => self.channel_binding = ChannelBinding::Require,
                _ => return Some(Err(invalid("`channel_binding` must be one of disable, prefer, require"))),
            },
            "sslrootcert" => {
                self.roots = path().map(|path| match value {
                    "system" => RootCertificates::System,
                    _ => RootCertificates::File(path),
                });
            }
            "sslcert" => self.certificate = path(),
            "sslkey" => self.key = path(),
            "sslcrl" => self.revoked = path(),
            "sslcrldir" => self.revoked_folder = path(),
            "sslcertmode" => match value {
                "allow" | "" => self.hide_certificate = false,
                "disable" => self.hide_certificate = true,
                "require" => {
                    return Some(Err(invalid(
                        "`sslcertmode=require` is not offered: rustls does not tell whether the server has asked; use \
                         allow, and have the server demand a certificate (clientcert in pg_hba.conf)",
                    )));
                }
                _ => return Some(Err(invalid("`sslcertmode` must be one of disable, allow, require"))),
            },
            "sslsni" => return Some(units::flag(name, value).map(|on| self.hide_name = !on)),
            "ssl_min_protocol_version" => {
                return Some(version(name, value).map(|version| self.oldest = version));
            }
            "ssl_max_protocol_version" => {
                if matches!(value, "TLSv1" | "TLSv1.1") {
                    return Some(Err(invalid(
                        "`ssl_max_protocol_version` must be TLSv1.2 or TLSv1.3: older ones are broken",
                    )));
                }
                return Some(version(name, value).map(|version| self.newest = version));
            }
            _ => return None,
        }
        Some(Ok(()))
    }

    /// What contradicts itself.
    pub(super) fn check(&self, all_unix: bool) -> Result<(), Fault> {
        if self.mode >= SslMode::Require && !all_unix && cfg!(not(feature = "tls")) {
            return Err(invalid(format!(
                "sslmode={} needs TLS; build pg-pipeline with its feature `tls`, which is on by default",
                self.mode.as_str()
            )));
        }
        if self.mode == SslMode::Disable {
            return Ok(());
        }
        // As libpq: half-hearted, it would be a surprise in either direction.
        if self.roots == Some(RootCertificates::System) && self.mode != SslMode::VerifyFull {
            return Err(invalid(format!(
                "sslrootcert=system needs sslmode=verify-full, because everybody can have a certificate by one of these \
                 authorities; it is {}",
                self.mode.as_str()
            )));
        }
        if self.negotiation == SslNegotiation::Direct && self.mode < SslMode::Require {
            return Err(invalid(format!(
                "sslnegotiation=direct needs sslmode=require or above; it is {}",
                self.mode.as_str()
            )));
        }
        if self.key.is_some() && self.certificate.is_none() && home::file("postgresql.crt").is_none() {
            return Err(invalid("`sslkey` is set and `sslcert` is not; set both"));
        }
        if let (Some(oldest), Some(newest)) = (self.oldest, self.newest)
            && oldest > newest
        {
            return Err(invalid("`ssl_min_protocol_version` is newer than `ssl_max_protocol_version`"));
        }
        Ok(())
    }
}

/// Versions below 1.2 are broken, and not offered: as a lower limit they mean 1.2.
fn version(name: &str, value: &str) -> Result<Option<TlsVersion>, Fault> {
    Ok(match value {
        "" => None,
        "TLSv1" | "TLSv1.1" | "TLSv1.2" => Some(TlsVersion::Tls12),
        "TLSv1.3" => Some(TlsVersion::Tls13),
        _ => return Err(invalid(format!("`{name}` must be one of TLSv1, TLSv1.1, TLSv1.2, TLSv1.3"))),
    })
}
