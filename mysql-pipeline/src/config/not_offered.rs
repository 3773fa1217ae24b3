//! Options of other drivers that this version understands and does not offer: which of their values ask for nothing,
//! and what to say about the others.
//!
//! This module may know names, values and reasons. A value that asks for something is accepted when it is
//! parsed and refused when connecting, so that a configuration can be read, shown and changed first.
//!
//! `pg-pipeline` has rules of its own on purpose: the values that ask for nothing are of other kinds there.

use wire_pipeline::config::{invalid, units};

use crate::error::Fault;

/// One option that is understood and not offered.
pub(super) struct Rule {
    pub(super) name: &'static str,
    /// The value that asks for nothing; `None` for a text of which every value asks for something.
    neutral: Option<bool>,
    /// What the user would get from it, for the message.
    what: &'static str,
}

const fn rule(name: &'static str, neutral: Option<bool>, what: &'static str) -> Rule {
    Rule { name, neutral, what }
}

/// Source of names and values: MySQL Connector/J, "Configuration Properties"; MySQL manual, "Command Options for
/// Connecting to the Server".
const RULES: &[Rule] = &[
    rule("useSSL", Some(false), "TLS"),
    rule("requireSSL", Some(false), "TLS"),
    rule("verifyServerCertificate", Some(false), "TLS"),
    rule("ssl-ca", None, "TLS"),
    rule("ssl-cert", None, "TLS"),
    rule("ssl-key", None, "TLS"),
    rule("tls-version", None, "TLS"),
    rule("useAffectedRows", Some(false), "counting changed rows instead of matched ones"),
    rule("allowLoadLocalInfile", Some(false), "LOAD DATA LOCAL"),
    rule("local-infile", Some(false), "LOAD DATA LOCAL"),
    rule("allowMultiQueries", Some(false), "several statements in one text outside of scripts"),
    rule("useCompression", Some(false), "compression"),
    rule("compress", Some(false), "compression"),
    rule("cachePrepStmts", Some(true), "statements that are not cached"),
    rule("useServerPrepStmts", Some(true), "statements that are not prepared"),
];

/// The rule for the option `name`, if it is one of these.
pub(super) fn find(name: &str) -> Option<&'static Rule> {
    RULES.iter().find(|rule| rule.name == name)
}

impl Rule {
    /// Whether `value` asks for what is not offered; an error if it is no value of this option.
    pub(super) fn asks(&self, value: &str) -> Result<bool, Fault> {
        match self.neutral {
            _ if value.is_empty() => Ok(false),
            None => Ok(true),
            Some(neutral) => Ok(units::flag(self.name, value)? != neutral),
        }
    }

    /// What connecting answers to a value that asks for something.
    pub(super) fn refusal(&self) -> Fault {
        let Self { name, what, neutral } = self;
        let next = match neutral {
            Some(neutral) => format!("leave it out or set it to {neutral}"),
            None => "leave it out".to_owned(),
        };
        invalid(format!("`{name}` asks for {what}, which this version does not offer; {next}"))
    }
}
