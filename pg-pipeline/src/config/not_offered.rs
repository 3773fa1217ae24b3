//! libpq's options that this version understands and does not offer: which of their values ask for nothing,
//! and what to say about the others.
//!
//! This module may know names, values and reasons. A value that asks for something is accepted when it is
//! parsed and refused when connecting, so that a configuration can be read, shown and changed first.
//!
//! `mysql-pipeline` has rules of its own on purpose: the values that ask for nothing are of other kinds there.

use super::{invalid, quoted_list};
use crate::error::Fault;

/// One option that is understood and not offered.
pub(super) struct Rule {
    pub(super) name: &'static str,
    values: Values,
    /// What the user would get from it, for the message.
    what: &'static str,
    /// It concerns TLS only, so that it asks for nothing under `sslmode=disable`.
    pub(super) tls_only: bool,
}

enum Values {
    /// Every value but the empty one asks for something.
    Text,
    /// The first list asks for nothing, the second for something; others are mistakes.
    Words(&'static [&'static str], &'static [&'static str]),
    /// No value asks for anything: it refines a feature that is itself refused where it is asked for.
    Inert,
}

use Values::{Inert, Text, Words};

const OFF: &[&str] = &["0", "off", "false", "no"];
const ON: &[&str] = &["1", "on", "true", "yes"];

const fn rule(name: &'static str, values: Values, what: &'static str) -> Rule {
    Rule { name, values, what, tls_only: false }
}

const fn tls(name: &'static str, values: Values, what: &'static str) -> Rule {
    Rule { name, values, what, tls_only: true }
}

/// Source of names and values: PostgreSQL documentation, "Parameter Key Words".
const RULES: &[Rule] = &[
    rule("replication", Words(OFF, &["1", "on", "true", "yes", "database"]), "the replication protocol"),
    rule("gssencmode", Words(&["disable", "prefer"], &["require"]), "GSSAPI encryption"),
    rule("krbsrvname", Inert, "GSSAPI authentication"),
    rule("gsslib", Inert, "GSSAPI authentication"),
    rule("gssdelegation", Words(OFF, ON), "GSSAPI delegation"),
    rule("requirepeer", Text, "checking the owner of the server's process"),
    rule("scram_client_key", Text, "authentication with SCRAM keys instead of a password"),
    rule("scram_server_key", Text, "authentication with SCRAM keys instead of a password"),
    rule("oauth_issuer", Text, "OAuth authentication"),
    rule("oauth_client_id", Text, "OAuth authentication"),
    rule("oauth_client_secret", Text, "OAuth authentication"),
    rule("oauth_scope", Text, "OAuth authentication"),
    rule("oauth_ca_file", Text, "OAuth authentication"),
    // Ignored since servers stopped compressing; TLS libraries come without it.
    tls("sslcompression", Words(&["0", "1"], &[]), "TLS compression"),
    tls("sslpassword", Text, "keys that are encrypted"),
    tls("sslkeylogfile", Text, "writing the keys of TLS to a file"),
];

/// The rule for the option `name`, if it is one of these.
pub(super) fn find(name: &str) -> Option<&'static Rule> {
    RULES.iter().find(|rule| rule.name == name)
}

impl Rule {
    /// Whether `value` asks for what is not offered; an error if it is no value of this option.
    pub(super) fn asks(&self, value: &str) -> Result<bool, Fault> {
        if value.is_empty() {
            return Ok(false);
        }
        match self.values {
            Inert => Ok(false),
            Text => Ok(true),
            Words(neutral, _) if neutral.contains(&value) => Ok(false),
            Words(_, asking) if asking.contains(&value) => Ok(true),
            Words(neutral, asking) => Err(invalid(format!(
                "`{}` must be one of {}",
                self.name,
                quoted_list(neutral.iter().chain(asking).copied())
            ))),
        }
    }

    /// What connecting answers to a value that asks for something.
    pub(super) fn refusal(&self) -> Fault {
        let Self { name, what, .. } = self;
        let next = match self.values {
            Words([neutral, ..], _) => format!("leave it out or set it to {neutral}"),
            _ if self.tls_only => "leave it out, or set sslmode=disable".to_owned(),
            _ => "leave it out".to_owned(),
        };
        invalid(format!("`{name}` asks for {what}, which this version does not offer yet; {next}"))
    }
}
