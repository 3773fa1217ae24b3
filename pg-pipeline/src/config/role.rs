//! libpq's `target_session_attrs`: which role a server must have.

use super::invalid;
use crate::error::Fault;

/// Which servers will do, as libpq's `target_session_attrs`. Each connection looks for itself, in the order of the hosts
/// (or in any, with `load_balance_hosts`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum TargetSessionAttrs {
    /// All of them. The default.
    #[default]
    Any,
    /// Sessions that take writes by default.
    ReadWrite,
    /// Sessions that do not.
    ReadOnly,
    /// Servers that are not in hot standby.
    Primary,
    /// Servers that are.
    Standby,
    /// Standbys first; any, if there is none.
    PreferStandby,
}

impl TargetSessionAttrs {
    /// The name that URLs and libpq use.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Any => "any",
            Self::ReadWrite => "read-write",
            Self::ReadOnly => "read-only",
            Self::Primary => "primary",
            Self::Standby => "standby",
            Self::PreferStandby => "prefer-standby",
        }
    }

    pub(super) fn parse(value: &str) -> Result<Self, Fault> {
        let all =
            [Self::Any, Self::ReadWrite, Self::ReadOnly, Self::Primary, Self::Standby, Self::PreferStandby];
        all.into_iter().find(|attrs| attrs.as_str() == value).ok_or_else(|| {
            invalid(
                "`target_session_attrs` must be one of any, read-write, read-only, primary, standby, prefer-standby",
            )
        })
    }
}
