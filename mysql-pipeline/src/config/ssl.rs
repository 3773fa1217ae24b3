//! MySQL's `ssl-…` options: how much encryption and verification the user asks for, and with which files.
//!
//! This module may know the names and their order; it must not know how TLS is done.

use std::path::PathBuf;

use wire_pipeline::config::invalid;

use crate::error::Fault;

/// How much encryption and verification a connection must have, as the mysql client's `--ssl-mode`.
///
/// It does not apply to Unix sockets, which are never encrypted. Without the crate's feature `tls`, what needs TLS is
/// refused when connecting, and [`Preferred`](Self::Preferred) connects without.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[non_exhaustive]
pub enum SslMode {
    /// Never TLS.
    Disabled,
    /// TLS if the server offers it. The default, as in the mysql client; it protects from listeners only, and whoever sits
    /// in between can take it away.
    #[default]
    Preferred,
    /// TLS, whatever certificate the server shows.
    Required,
    /// TLS with a certificate that a trusted authority signed (`ssl-ca`, or whom the system trusts). Without `ssl-ca` a
    /// MariaDB server may also prove by the user's password that a certificate is its own (its TLS without configuration,
    /// since 11.4).
    VerifyCa,
    /// As [`VerifyCa`](Self::VerifyCa), and the certificate names the host.
    VerifyIdentity,
}

impl SslMode {
    /// The name that URLs and the mysql client use.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Disabled => "DISABLED",
            Self::Preferred => "PREFERRED",
            Self::Required => "REQUIRED",
            Self::VerifyCa => "VERIFY_CA",
            Self::VerifyIdentity => "VERIFY_IDENTITY",
        }
    }

    pub(super) fn parse(value: &str) -> Result<Self, Fault> {
        // MariaDB's words for the same.
        let value = match value {
            "disable" => "DISABLED",
            "prefer" => "PREFERRED",
            "trust" | "require" => "REQUIRED",
            "verify-ca" => "VERIFY_CA",
            "verify-full" => "VERIFY_IDENTITY",
            value => value,
        };
        [Self::Disabled, Self::Preferred, Self::Required, Self::VerifyCa, Self::VerifyIdentity]
            .into_iter()
            .find(|mode| mode.as_str().eq_ignore_ascii_case(value))
            .ok_or_else(|| {
                invalid("`sslMode` must be one of DISABLED, PREFERRED, REQUIRED, VERIFY_CA, VERIFY_IDENTITY")
            })
    }
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
    /// Whose signatures are trusted, in place of those whom the system trusts.
    pub(crate) authority: Option<PathBuf>,
    pub(crate) certificate: Option<PathBuf>,
    pub(crate) key: Option<PathBuf>,
    pub(crate) revoked: Option<PathBuf>,
    /// Which versions will do; empty for all.
    pub(crate) versions: Vec<TlsVersion>,
}

impl Ssl {
    /// At least as much as this, by options that are older than the mode.
    pub(super) fn at_least(&mut self, mode: SslMode) {
        self.mode = self.mode.max(mode);
    }

    /// What contradicts itself.
    pub(super) fn check(&self, all_unix: bool) -> Result<(), Fault> {
        if self.mode >= SslMode::Required && !all_unix && cfg!(not(feature = "tls")) {
            return Err(invalid(format!(
                "sslMode={} needs TLS; build mysql-pipeline with its feature `tls`, which is on by default",
                self.mode.as_str()
            )));
        }
        if self.mode != SslMode::Disabled && self.certificate.is_some() != self.key.is_some() {
            return Err(invalid("of `ssl-cert` and `ssl-key` only one is set; set both"));
        }
        Ok(())
    }
}

/// A list such as `TLSv1.2,TLSv1.3`; versions below 1.2 are broken, and left out.
pub(super) fn versions(name: &str, list: &str) -> Result<Vec<TlsVersion>, Fault> {
    let mut versions = Vec::new();
    let mut any = false;
    for version in list.split([',', ';']).map(str::trim).filter(|version| !version.is_empty()) {
        any = true;
        match version {
            "TLSv1.2" => versions.push(TlsVersion::Tls12),
            "TLSv1.3" => versions.push(TlsVersion::Tls13),
            "TLSv1" | "TLSv1.1" => {}
            _ => return Err(invalid(format!("`{name}` must be a list of TLSv1.2 and TLSv1.3"))),
        }
    }
    if any && versions.is_empty() {
        return Err(invalid(format!("`{name}` holds no version that is still safe: TLSv1.2, TLSv1.3")));
    }
    Ok(versions)
}
