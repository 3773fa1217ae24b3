//! The key=value form: `host=localhost port=5432 password='it''s'`, with libpq's quotes and backslashes.
//!
//! This module may know how the text is cut; it must not know what an option means. No error repeats a piece
//! of the text other than an option's name, because any other piece may belong to a password.
//!
//! Source: PostgreSQL documentation, "Keyword/Value Connection Strings": blanks around `=` are optional, a
//! value with blanks stands in single quotes, and `'` and `\` are written `\'` and `\\`, quoted or not.

use std::iter::Peekable;
use std::str::Chars;

use super::{Setting, invalid, show_name};
use crate::error::Fault;

/// The settings in the order of the text.
pub(super) fn parse(text: &str) -> Result<Vec<Setting>, Fault> {
    let mut settings = Vec::new();
    let mut rest = text.chars().peekable();
    loop {
        skip_blanks(&mut rest);
        if rest.peek().is_none() {
            return Ok(settings);
        }
        let mut name = String::new();
        while let Some(c) = rest.next_if(|c| *c != '=' && !c.is_ascii_whitespace()) {
            name.push(c);
        }
        skip_blanks(&mut rest);
        if rest.next_if_eq(&'=').is_none() {
            return Err(missing_sign(settings.last()));
        }
        skip_blanks(&mut rest);
        let value = match rest.next_if_eq(&'\'') {
            Some(_) => quoted(&name, &mut rest)?,
            None => bare(&mut rest),
        };
        settings.push(Setting::new(name, value));
    }
}

fn skip_blanks(rest: &mut Peekable<Chars<'_>>) {
    while rest.next_if(char::is_ascii_whitespace).is_some() {}
}

fn bare(rest: &mut Peekable<Chars<'_>>) -> String {
    let mut value = String::new();
    while let Some(c) = rest.next_if(|c| !c.is_ascii_whitespace()) {
        // A backslash at the very end stands for nothing, as in libpq.
        value.extend(if c == '\\' { rest.next() } else { Some(c) });
    }
    value
}

fn quoted(name: &str, rest: &mut Peekable<Chars<'_>>) -> Result<String, Fault> {
    let unterminated = || invalid(format!("the value of {} has no closing quote", show_name(name)));
    let mut value = String::new();
    loop {
        match rest.next().ok_or_else(unterminated)? {
            '\'' => return Ok(value),
            '\\' => value.push(rest.next().ok_or_else(unterminated)?),
            c => value.push(c),
        }
    }
}

/// Most often the rest of an unquoted value with blanks, so the word itself is not shown.
fn missing_sign(before: Option<&Setting>) -> Fault {
    match before {
        Some(setting) => invalid(format!(
            "after {} comes a word without `=`; a value with blanks must stand in single quotes",
            show_name(&setting.name)
        )),
        None => invalid(
            "this is neither a URL (postgres://user:password@host/database) nor a list of options (host=… user=…)",
        ),
    }
}
