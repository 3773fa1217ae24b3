//! libpq's `sslmode`: how much encryption and verification the user asks for.
//!
//! This module may know the names and their order; it must not know how TLS is done.

use super::invalid;
use crate::error::Fault;

/// How much encryption and verification a connection must have, as libpq's `sslmode`.
///
/// This version makes plain connections only: [`Disable`](Self::Disable), [`Allow`](Self::Allow) and
/// [`Prefer`](Self::Prefer) connect without TLS, and the stronger modes are refused when connecting, unless
/// every host is a Unix socket, to which `sslmode` does not apply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[non_exhaustive]
pub enum SslMode {
    /// Never TLS.
    Disable,
    /// TLS only if the server insists.
    Allow,
    /// TLS if the server offers it. The default, as in libpq; it protects from listeners only.
    #[default]
    Prefer,
    /// TLS, whatever certificate the server shows.
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
