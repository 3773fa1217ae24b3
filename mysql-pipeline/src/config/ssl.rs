//! MySQL's `ssl-mode`: how much encryption and verification the user asks for.
//!
//! This module may know the names and their order; it must not know how TLS is done.

use wire_pipeline::config::invalid;

use crate::error::Fault;

/// How much encryption and verification a connection must have, as the mysql client's `--ssl-mode`.
///
/// This version makes plain connections only: [`Disabled`](Self::Disabled) and [`Preferred`](Self::Preferred) connect
/// without TLS, and the stronger modes are refused when connecting, unless the server is reached by a Unix socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[non_exhaustive]
pub enum SslMode {
    /// Never TLS.
    Disabled,
    /// TLS if the server offers it. The default, as in the mysql client; it protects from listeners only.
    #[default]
    Preferred,
    /// TLS, whatever certificate the server shows.
    Required,
    /// TLS with a certificate that a trusted authority signed.
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
            "trust" => "REQUIRED",
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
