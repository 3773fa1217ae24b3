//! What a statement's words say: whether others may share the session that it runs in. Mostly the first ones do.
//!
//! A shared handle refuses what opens or ends a transaction or changes the session, before it is sent. The words are
//! those of PostgreSQL's grammar (`src/backend/parser/gram.y`); comments nest, and empty statements before the first
//! word do not count, as its scanner has it (`scan.l`).
//!
//! `mysql-pipeline` has the same classes, apart from one, and its own reader on purpose: no two grammars agree on words
//! and comments.

use super::scanner::{behind_comment, is_word};
use super::session_use::uses_session;

/// Where a statement may run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    /// Everywhere.
    Plain,
    /// It opens or ends a transaction: on a session.
    Transaction,
    /// It marks a place in a transaction, or returns to one: on a transaction or a session.
    Savepoint,
    /// It changes the session, or depends on what is in it: on a session.
    Session,
    /// It moves data in a protocol of its own.
    Copy,
}

/// Looks at the first words of `text`, and where these say nothing at the others too.
pub(crate) fn classify(text: &str) -> Class {
    match by_first_words(text) {
        Class::Plain if uses_session(text) => Class::Session,
        class => class,
    }
}

fn by_first_words(text: &str) -> Class {
    let mut words = Words { rest: text };
    let Some(first) = words.next() else { return Class::Plain };
    let is = |word: &str, other: &str| word.eq_ignore_ascii_case(other);
    let any = |word: &str, others: &[&str]| others.iter().any(|other| is(word, other));
    if any(first, &["begin", "start", "commit", "end", "abort"]) {
        return Class::Transaction;
    }
    if any(first, &["savepoint", "release"]) {
        return Class::Savepoint;
    }
    if is(first, "rollback") {
        // ROLLBACK [ WORK | TRANSACTION ] TO …
        let to = words.find(|word| !any(word, &["work", "transaction"])).is_some_and(|word| is(word, "to"));
        return if to { Class::Savepoint } else { Class::Transaction };
    }
    if is(first, "prepare") {
        let second = words.next().unwrap_or_default();
        return if is(second, "transaction") { Class::Transaction } else { Class::Session };
    }
    if any(
        first,
        &[
            "set",
            "reset",
            "discard",
            "listen",
            "unlisten",
            "declare",
            "fetch",
            "move",
            "close",
            "deallocate",
            "execute",
            "lock",
            "load",
        ],
    ) {
        return Class::Session;
    }
    if is(first, "copy") {
        return Class::Copy;
    }
    if is(first, "create") {
        // CREATE [ OR REPLACE ] [ GLOBAL | LOCAL ] { TEMPORARY | TEMP } …
        for word in words {
            if any(word, &["temp", "temporary"]) {
                return Class::Session;
            }
            if !any(word, &["or", "replace", "global", "local"]) {
                break;
            }
        }
    }
    Class::Plain
}

/// Whether a script may hold a `ROLLBACK AND CHAIN`, which is reported like a return to a savepoint: whether the two words
/// stand together in it, wherever that is.
pub(crate) fn chains(script: &str) -> bool {
    let mut words = Words { rest: script };
    let mut after_and = false;
    while !words.rest.is_empty() {
        match words.next() {
            Some(word) if after_and && word.eq_ignore_ascii_case("chain") => return true,
            Some(word) => after_and = word.eq_ignore_ascii_case("and"),
            None => {
                after_and = false;
                let mut characters = words.rest.chars();
                characters.next();
                words.rest = characters.as_str();
            }
        }
    }
    false
}

/// The words at the beginning of a text, without white space, comments and empty statements.
struct Words<'a> {
    rest: &'a str,
}

impl<'a> Iterator for Words<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        loop {
            self.rest =
                self.rest.trim_start_matches([' ', '\t', '\n', '\r', '\x0b', '\x0c', ';', '\u{feff}']);
            if let Some(comment) = self.rest.strip_prefix("--") {
                self.rest = comment.find(['\n', '\r']).map_or("", |end| &comment[end..]);
            } else if self.rest.starts_with("/*") {
                self.rest = behind_comment(self.rest);
            } else {
                break;
            }
        }
        let end = self.rest.bytes().position(|byte| !is_word(byte)).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        (!word.is_empty()).then_some(word)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_words_decide() {
        for (text, class) in [
            ("SELECT 1", Class::Plain),
            ("", Class::Plain),
            ("-- nothing", Class::Plain),
            ("(SELECT 1)", Class::Plain),
            ("WITH x AS (SELECT 1) SELECT * FROM x", Class::Plain),
            ("CALL p()", Class::Plain),
            ("NOTIFY c", Class::Plain),
            ("begin", Class::Transaction),
            ("BEGIN;", Class::Transaction),
            ("Start Transaction", Class::Transaction),
            ("COMMIT", Class::Transaction),
            ("END", Class::Transaction),
            ("ROLLBACK", Class::Transaction),
            ("ROLLBACK AND CHAIN", Class::Transaction),
            ("ROLLBACK TO s", Class::Savepoint),
            ("rollback work to savepoint s", Class::Savepoint),
            ("SAVEPOINT s", Class::Savepoint),
            ("RELEASE s", Class::Savepoint),
            ("PREPARE TRANSACTION 'x'", Class::Transaction),
            ("PREPARE x AS SELECT 1", Class::Session),
            ("SET x = 1", Class::Session),
            ("SET LOCAL x = 1", Class::Session),
            ("RESET ALL", Class::Session),
            ("LISTEN c", Class::Session),
            ("UNLISTEN *", Class::Session),
            ("DECLARE c CURSOR FOR SELECT 1", Class::Session),
            ("LOCK TABLE t", Class::Session),
            ("CREATE TEMP TABLE t (a int)", Class::Session),
            ("create local temporary table t (a int)", Class::Session),
            ("CREATE OR REPLACE TEMP VIEW v AS SELECT 1", Class::Session),
            ("CREATE TABLE temp (a int)", Class::Plain),
            ("CREATE OR REPLACE FUNCTION temp() RETURNS int", Class::Plain),
            ("SELECT pg_advisory_lock(1)", Class::Session),
            ("COPY t FROM STDIN", Class::Copy),
            ("SETTING", Class::Plain),
            ("set_x", Class::Plain),
        ] {
            assert_eq!(classify(text), class, "{text}");
        }
    }

    #[test]
    fn a_chain_is_seen_wherever_it_is() {
        for script in [
            "ROLLBACK AND CHAIN",
            "SELECT (1);rollback\n-- x\nand/**/ chain;SELECT 2",
            "SELECT 'x'; ABORT AND CHAIN",
        ] {
            assert!(chains(script), "{script}");
        }
        for script in [
            "",
            "ROLLBACK",
            "ROLLBACK AND NO CHAIN",
            "SELECT a AND chains",
            "SELECT band, chain",
            "SELECT a AND (chain)",
        ] {
            assert!(!chains(script), "{script}");
        }
    }

    #[test]
    fn comments_white_space_and_empty_statements_hide_nothing() {
        for text in [
            "  \t\r\n\x0b\x0c BEGIN",
            "-- comment\nBEGIN",
            "-- comment\r BEGIN",
            "/* a /* nested */ comment */ BEGIN",
            "/**/BEGIN",
            "/***/ BEGIN",
            ";;; BEGIN",
            "; -- x\n ; /* y */ BEGIN/**/",
            "\u{feff}BEGIN",
        ] {
            assert_eq!(classify(text), Class::Transaction, "{text:?}");
        }
        assert_eq!(classify("/* BEGIN"), Class::Plain, "an unfinished comment is the server's to refuse");
        assert_eq!(classify("/* é */ CREATE/**/TEMP/**/TABLE t()"), Class::Session);
    }
}
