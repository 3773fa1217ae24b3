//! What configurations of every driver have in common: the pool's options, how values and URLs are written, and where
//! a password comes from.
//!
//! Knows no protocol and no option of a server; what a setting means is the driver's. No error repeats a value: it may
//! be, or contain, a password.

use std::borrow::Cow;

use crate::error::{Error, ErrorKind, Outcome, ServerError};

pub mod environment;
pub mod hosts;
mod options;
mod password;
mod setters;
pub mod units;
pub mod url;

pub use options::{OPTIONS, OptionInfo, PoolOptions, names};
pub use password::Password;

/// One option as it was given. No `Debug`: the value may be a password.
#[derive(Clone)]
pub struct Setting {
    /// Its name, as written.
    pub name: Cow<'static, str>,
    /// Its value, decoded.
    pub value: String,
}

impl Setting {
    /// A setting.
    pub fn new(name: impl Into<Cow<'static, str>>, value: String) -> Self {
        Self { name: name.into(), value }
    }
}

/// An option's name for a message, if it looks like one: what stands in its place may be part of a password.
pub fn show_name(name: &str) -> Cow<'static, str> {
    let is_word = !name.is_empty()
        && name.len() <= 40
        && name.chars().all(|c| c.is_ascii_alphanumeric() || "_-.".contains(c));
    if is_word { format!("`{name}`").into() } else { "whose name is not a word".into() }
}

/// A text; an empty one counts as none.
pub fn text(value: &str) -> Option<String> {
    (!value.is_empty()).then(|| value.to_owned())
}

/// Names in backquotes, with commas between.
pub fn quoted_list<'a>(names: impl Iterator<Item = &'a str>) -> String {
    names.map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

/// A configuration that cannot be used.
#[cold]
pub fn invalid<S: ServerError>(message: impl Into<Cow<'static, str>>) -> Error<S> {
    Error::new(ErrorKind::Config, Outcome::NotSent, message)
}

#[cfg(test)]
pub(crate) mod tests {
    /// A server that these tests have none of.
    #[derive(Debug)]
    pub(crate) struct NoServer;

    impl std::fmt::Display for NoServer {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("no server")
        }
    }

    impl std::error::Error for NoServer {}

    impl crate::error::ServerError for NoServer {
        fn is_retryable(&self) -> bool {
            false
        }
    }

    pub(crate) type Fault = crate::error::Error<NoServer>;
}
