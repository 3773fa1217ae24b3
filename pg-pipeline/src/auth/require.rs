//! Which methods the user accepts: libpq's `require_auth`.

use super::{auth, config};
use crate::error::Fault;

/// A way of authentication by libpq's name for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Method {
    /// The server asks for nothing.
    None,
    Password,
    Md5,
    ScramSha256,
    Gss,
    Sspi,
    Oauth,
}

impl Method {
    const ALL: [Self; 7] =
        [Self::None, Self::Password, Self::Md5, Self::ScramSha256, Self::Gss, Self::Sspi, Self::Oauth];

    fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Password => "password",
            Self::Md5 => "md5",
            Self::ScramSha256 => "scram-sha-256",
            Self::Gss => "gss",
            Self::Sspi => "sspi",
            Self::Oauth => "oauth",
        }
    }

    fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// The methods that the user accepts: libpq's `require_auth`. Default: all.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct RequireAuth {
    allowed: u8,
}

impl Default for RequireAuth {
    fn default() -> Self {
        Self { allowed: u8::MAX }
    }
}

impl RequireAuth {
    /// Reads a comma-separated list of methods, either all accepted or, each behind a `!`, all refused.
    pub(crate) fn parse(list: &str) -> Result<Self, Fault> {
        if list.trim().is_empty() {
            return Ok(Self::default());
        }
        let wrong = || {
            config(
                "`require_auth` must be a list of none, password, md5, scram-sha-256, gss, sspi and oauth, \
                 each once, and either all or none of them behind a `!`",
            )
        };
        let negated = list.trim_start().starts_with('!');
        let mut named = 0;
        for entry in list.split(',').map(str::trim) {
            let name = match (negated, entry.strip_prefix('!')) {
                (true, Some(name)) => name,
                (false, None) => entry,
                _ => return Err(wrong()),
            };
            let method = Method::ALL.into_iter().find(|method| method.name() == name).ok_or_else(wrong)?;
            if named & method.bit() != 0 {
                return Err(wrong());
            }
            named |= method.bit();
        }
        Ok(Self { allowed: if negated { !named } else { named } })
    }

    pub(super) fn check(self, method: Method) -> Result<(), Fault> {
        if self.allowed & method.bit() != 0 {
            return Ok(());
        }
        Err(auth(match method {
            Method::None => "the server asks for no authentication, which `require_auth` excludes".to_owned(),
            _ => {
                format!("the server asks for {} authentication, which `require_auth` excludes", method.name())
            }
        }))
    }
}

impl std::fmt::Debug for RequireAuth {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list()
            .entries(Method::ALL.into_iter().filter(|m| self.allowed & m.bit() != 0).map(Method::name))
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn require_auth_reads_both_kinds_of_list() {
        let allows = |list: &str, method| RequireAuth::parse(list).unwrap().check(method).is_ok();
        assert!(allows("", Method::None));
        assert!(allows("scram-sha-256", Method::ScramSha256));
        assert!(!allows("scram-sha-256", Method::Password));
        assert!(allows(" md5 , scram-sha-256 ", Method::Md5));
        assert!(allows("!password,!md5", Method::ScramSha256));
        assert!(!allows("!password,!md5", Method::Md5));
        assert!(!allows("!none", Method::None));
        for list in ["scram", "md5,!password", "!md5,password", "md5,md5", "md5,", ",", "!"] {
            let error = RequireAuth::parse(list).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Config, "{list}");
        }
    }
}
