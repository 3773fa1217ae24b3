//! What a statement's words say: whether others may share the session that it runs in. Mostly the first ones do.
//!
//! A shared handle refuses what opens or ends a transaction or changes the session, before it is sent. The words are
//! those of MySQL's and MariaDB's grammars (`sql_yacc.yy`); comments are as their scanner has them (`sql_lex.cc`):
//! they do not nest, and what stands in `/*! … */` or `/*M! … */` is run by servers that are new enough. Which ones
//! are is not known here, so such a text is read both ways, and the stricter reading counts.
//!
//! `pg-pipeline` has the same classes, apart from two, and its own reader on purpose: no two grammars agree on words
//! and comments.

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
    /// It chooses the database in which names are looked up: on a session.
    Database,
    /// It commits what came before it: everywhere but in a transaction.
    Commits,
}

/// Functions that take or give back locks of the session. Source: MySQL manual, "Locking Functions".
const LOCKING: &[&str] = &["get_lock", "release_lock", "release_all_locks"];

/// Looks at the first words of `text`, and where these say nothing at the others too.
pub(crate) fn classify(text: &str) -> Class {
    match by_first_words(text) {
        Class::Plain if calls(text, LOCKING) || sets_variable(text) => Class::Session,
        class => class,
    }
}

/// Whether a statement chooses the database in which names are looked up.
pub(crate) fn chooses_database(text: &str) -> bool {
    by_first_words(text) == Class::Database
}

/// Whether one of a script's statements does.
pub(crate) fn script_chooses_database(script: &str) -> bool {
    statements(script).any(chooses_database)
}

/// Whether one of these functions is called, outside of quotes and comments. What stands in `/*! … */` counts.
fn calls(text: &str, functions: &[&str]) -> bool {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$') || byte >= 0x80;
    let mut rest = text;
    loop {
        let at = find_outside(rest, b'(');
        let Some(behind) = rest.get(at + 1..) else { return false };
        let before = rest[..at].trim_ascii_end();
        let begin = before.bytes().rposition(|byte| !is_word(byte)).map_or(0, |last| last + 1);
        if functions.iter().any(|function| before[begin..].eq_ignore_ascii_case(function)) {
            return true;
        }
        rest = behind;
    }
}

/// Whether a user variable gets a value, outside of quotes and comments: `@a := 1`, `INTO @a`, `CALL p(@a)`. It is the
/// session's, so that whoever comes next would find it. Source: MySQL manual, "User-Defined Variables".
fn sets_variable(text: &str) -> bool {
    let first = Words { rest: text, conditional_comments_run: true }.next().unwrap_or_default();
    let is_call = first.eq_ignore_ascii_case("call");
    let mut rest = text;
    loop {
        let at = find_outside(rest, b'@');
        let (before, Some(behind)) = (&rest[..at], rest.get(at + 1..)) else { return false };
        // A variable of the server's: that is what SET is for.
        if let Some(system) = behind.strip_prefix('@') {
            rest = system;
            continue;
        }
        if is_call {
            return true;
        }
        let before = before.trim_ascii_end();
        let word = before.len().checked_sub(4).and_then(|begin| before.get(begin..));
        if word.is_some_and(|word| word.eq_ignore_ascii_case("into")) {
            return true;
        }
        // Behind the name, which may be quoted.
        let name = match behind.bytes().next() {
            Some(quote @ (b'\'' | b'"' | b'`')) => quoted(behind.as_bytes(), quote),
            _ => behind
                .bytes()
                .position(|byte| {
                    !byte.is_ascii_alphanumeric() && !matches!(byte, b'_' | b'$' | b'.') && byte < 0x80
                })
                .unwrap_or(behind.len()),
        };
        rest = behind.get(name..).unwrap_or_default();
        if rest.trim_ascii_start().starts_with(":=") {
            return true;
        }
    }
}

fn by_first_words(text: &str) -> Class {
    let run = classify_reading(text, true);
    if matches!(run, Class::Plain | Class::Commits) && (text.contains("/*!") || text.contains("/*M!")) {
        return match classify_reading(text, false) {
            Class::Plain => run,
            skipped => skipped,
        };
    }
    run
}

/// The classes of a script's statements.
///
/// Cut at semicolons outside of quotes and comments. A backslash is taken to escape, as it does unless `sql_mode` says
/// otherwise; inside of a stored program's body its statements are looked at too.
pub(crate) fn classify_script(script: &str) -> impl Iterator<Item = Class> {
    statements(script).map(classify)
}

fn statements(script: &str) -> impl Iterator<Item = &str> {
    let mut rest = script;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let (statement, behind) = rest.split_at(find_outside(rest, b';'));
        rest = behind.strip_prefix(';').unwrap_or_default();
        Some(statement)
    })
}

/// Whether a statement may end the transaction that it is part of, where its text does not tell: what a procedure or a
/// statement prepared by name does is the server's knowledge, and locking tables commits.
pub(crate) fn may_end_unseen(text: &str) -> bool {
    [true, false].into_iter().any(|conditional_comments_run| {
        let first = Words { rest: text, conditional_comments_run }.next().unwrap_or_default();
        ["call", "execute", "lock", "unlock", "flush"].iter().any(|word| first.eq_ignore_ascii_case(word))
    })
}

/// Whether one of a script's statements may.
pub(crate) fn script_may_end_unseen(script: &str) -> bool {
    statements(script).any(may_end_unseen)
}

/// The script without what is empty at its end: blanks, comments and semicolons, for which the server has an error
/// (1065).
pub(crate) fn without_empty_end(script: &str) -> &str {
    let (mut at, mut end) = (0, 0);
    while let Some(rest) = script.get(at..).filter(|rest| !rest.is_empty()) {
        let length = find_outside(rest, b';');
        let mut words =
            Words { rest: rest.get(..length).unwrap_or_default(), conditional_comments_run: true };
        if words.next().is_some() || !words.rest.is_empty() {
            end = at + length;
        }
        at += length + 1;
    }
    script.get(..end).unwrap_or(script)
}

/// Where `wanted` stands first outside of quotes and comments; the end if it does not.
pub(super) fn find_outside(text: &str, wanted: u8) -> usize {
    let bytes = text.as_bytes();
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        let rest = text.get(at..).unwrap_or_default();
        at += match byte {
            byte if *byte == wanted => return at,
            b'\'' | b'"' | b'`' => quoted(rest.as_bytes(), *byte),
            b'#' => rest.find('\n').unwrap_or(rest.len()),
            b'-' if dashes(rest).is_some() => rest.find('\n').unwrap_or(rest.len()),
            b'/' if rest.starts_with("/*") && conditional(rest).is_none() => {
                rest.find("*/").map_or(rest.len(), |end| end + 2)
            }
            _ => 1,
        };
    }
    bytes.len()
}

/// How long the quoted text is that `bytes` begin with, with its quotes.
fn quoted(bytes: &[u8], quote: u8) -> usize {
    let mut at = 1;
    while let Some(byte) = bytes.get(at) {
        at += 1;
        if *byte == quote {
            return at;
        }
        at += usize::from(*byte == b'\\' && quote != b'`');
    }
    bytes.len()
}

fn classify_reading(text: &str, conditional_comments_run: bool) -> Class {
    let mut words = Words { rest: text, conditional_comments_run };
    let Some(first) = words.next() else { return Class::Plain };
    let is = |word: &str, other: &str| word.eq_ignore_ascii_case(other);
    let any = |word: &str, others: &[&str]| others.iter().any(|other| is(word, other));
    if any(first, &["begin", "commit", "xa"]) {
        return Class::Transaction;
    }
    if any(first, &["savepoint", "release"]) {
        return Class::Savepoint;
    }
    if is(first, "start") {
        // Others of this word begin a replication.
        return if words.any(|word| is(word, "transaction")) { Class::Transaction } else { Class::Plain };
    }
    if is(first, "rollback") {
        // ROLLBACK [ WORK ] TO …
        let to = words.find(|word| !is(word, "work")).is_some_and(|word| is(word, "to"));
        return if to { Class::Savepoint } else { Class::Transaction };
    }
    if is(first, "set") {
        // Switching it on commits.
        let autocommit = text.to_ascii_lowercase().contains("autocommit");
        return if autocommit { Class::Transaction } else { Class::Session };
    }
    if is(first, "use") {
        return Class::Database;
    }
    if any(first, &["lock", "unlock", "prepare", "execute", "deallocate", "handler"]) {
        return Class::Session;
    }
    if is(first, "flush") {
        // FLUSH TABLES … { WITH READ LOCK | FOR EXPORT }
        return if words.any(|word| any(word, &["read", "export"])) {
            Class::Session
        } else {
            Class::Commits
        };
    }
    if any(first, &["create", "drop"]) {
        // CREATE [ OR REPLACE ] TEMPORARY …, DROP { TEMPORARY | PREPARE } …
        return match words.find(|word| !any(word, &["or", "replace"])) {
            Some(word) if any(word, &["temporary", "prepare"]) => Class::Session,
            _ => Class::Commits,
        };
    }
    // Source: MySQL manual, "Statements That Cause an Implicit Commit".
    if any(
        first,
        &[
            "alter",
            "truncate",
            "rename",
            "grant",
            "revoke",
            "analyze",
            "optimize",
            "repair",
            "check",
            "cache",
            "install",
            "uninstall",
            "reset",
        ],
    ) {
        return Class::Commits;
    }
    Class::Plain
}

/// The words at the beginning of a text, without white space, comments and empty statements.
struct Words<'a> {
    rest: &'a str,
    conditional_comments_run: bool,
}

impl<'a> Iterator for Words<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        loop {
            let blank = |c: char| c.is_ascii_whitespace() || matches!(c, '\0' | '\x0b' | ';' | '\u{feff}');
            self.rest = self.rest.trim_start_matches(blank);
            if let Some(comment) = self.rest.strip_prefix('#').or_else(|| dashes(self.rest)) {
                self.rest = comment.find('\n').map_or("", |end| &comment[end..]);
            } else if let Some(inside) = conditional(self.rest).filter(|_| self.conditional_comments_run) {
                self.rest = inside;
            } else if let Some(comment) = self.rest.strip_prefix("/*") {
                self.rest = comment.find("*/").map_or("", |end| &comment[end + 2..]);
            } else if let Some(after) = self.rest.strip_prefix("*/").filter(|_| self.conditional_comments_run)
            {
                self.rest = after;
            } else {
                break;
            }
        }
        let is_word = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$') || byte >= 0x80;
        let end = self.rest.bytes().position(|byte| !is_word(byte)).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        (!word.is_empty()).then_some(word)
    }
}

/// What follows two dashes that begin a comment: they do when a blank or the end comes next.
fn dashes(text: &str) -> Option<&str> {
    let comment = text.strip_prefix("--")?;
    comment
        .bytes()
        .next()
        .is_none_or(|next| next.is_ascii_whitespace() || next.is_ascii_control())
        .then_some(comment)
}

/// What is inside of the conditional comment that `text` begins with, behind its version.
fn conditional(text: &str) -> Option<&str> {
    let inside = text.strip_prefix("/*!").or_else(|| text.strip_prefix("/*M!"))?;
    Some(inside.trim_start_matches(|c: char| c.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_empty_at_the_end_of_a_script_is_left_out() {
        for (script, kept) in [
            ("", ""),
            (" ;; \n", ""),
            ("-- a comment\n/* another */ ; # a third", ""),
            ("SELECT 1", "SELECT 1"),
            ("SELECT 1; SELECT ';' -- it's\n;\n-- over;\n", "SELECT 1; SELECT ';' -- it's\n"),
            ("(SELECT 1); /* over", "(SELECT 1)"),
            ("SELECT 1; /*! SET @x = 1 */", "SELECT 1; /*! SET @x = 1 */"),
            (";SELECT 1;", ";SELECT 1"),
        ] {
            assert_eq!(without_empty_end(script), kept, "{script:?}");
        }
    }

    #[test]
    fn first_words_decide() {
        for (text, class) in [
            ("SELECT 1", Class::Plain),
            ("", Class::Plain),
            ("-- nothing", Class::Plain),
            ("(SELECT 1)", Class::Plain),
            ("WITH x AS (SELECT 1) SELECT * FROM x", Class::Plain),
            ("CALL p()", Class::Plain),
            ("SELECT GET_LOCK('a', 1)", Class::Session),
            ("DO release_all_locks ()", Class::Session),
            ("SELECT 1, (SELECT `get_lock`(1)), /*!50000 release_lock('a') */", Class::Session),
            ("SELECT 'get_lock(1)', `get_lock`, forget_lock(1), 'it''s' -- get_lock(1)", Class::Plain),
            ("SELECT /* get_lock(1) */ get_lock", Class::Plain),
            ("SELECT @a := 42", Class::Session),
            ("SELECT 1 + (@`a b`:=2)", Class::Session),
            ("SELECT id FROM t LIMIT 1 INTO @a, @b", Class::Session),
            ("select 7 into\n@a", Class::Session),
            ("UPDATE t SET n = (@n := @n + 1)", Class::Session),
            ("SELECT @@version, @a, 'x@y := 1', /* @a := 1 */ 'into @a' -- INTO @a", Class::Plain),
            ("GRANT SELECT ON d.* TO 'u'@'%'", Class::Commits),
            ("SELECT @a = 1, @", Class::Plain),
            ("CALL p(1, @out)", Class::Session),
            ("CALL p(1, @@port, 'a@b')", Class::Plain),
            ("START REPLICA", Class::Plain),
            ("SHOW TABLES", Class::Plain),
            ("begin", Class::Transaction),
            ("BEGIN;", Class::Transaction),
            ("Start Transaction", Class::Transaction),
            ("start /* x */ transaction read only", Class::Transaction),
            ("COMMIT", Class::Transaction),
            ("ROLLBACK", Class::Transaction),
            ("ROLLBACK AND CHAIN", Class::Transaction),
            ("XA START 'x'", Class::Transaction),
            ("SET autocommit = 1", Class::Transaction),
            ("SET @@session.AutoCommit = 0", Class::Transaction),
            ("ROLLBACK TO s", Class::Savepoint),
            ("rollback work to savepoint s", Class::Savepoint),
            ("SAVEPOINT s", Class::Savepoint),
            ("RELEASE SAVEPOINT s", Class::Savepoint),
            ("SET x = 1", Class::Session),
            ("SET @x = 1", Class::Session),
            ("USE db", Class::Database),
            ("/*!50000 use */ db", Class::Database),
            ("LOCK TABLES t READ", Class::Session),
            ("UNLOCK TABLES", Class::Session),
            ("PREPARE x FROM 'SELECT 1'", Class::Session),
            ("EXECUTE x", Class::Session),
            ("DEALLOCATE PREPARE x", Class::Session),
            ("DROP PREPARE x", Class::Session),
            ("HANDLER t OPEN", Class::Session),
            ("FLUSH TABLES WITH READ LOCK", Class::Session),
            ("FLUSH TABLES t FOR EXPORT", Class::Session),
            ("CREATE TEMPORARY TABLE t (a int)", Class::Session),
            ("create or replace temporary table t (a int)", Class::Session),
            ("DROP TEMPORARY TABLE t", Class::Session),
            ("CREATE TABLE temporary_t (a int)", Class::Commits),
            ("DROP TABLE t", Class::Commits),
            ("ALTER TABLE t ADD b int", Class::Commits),
            ("TRUNCATE t", Class::Commits),
            ("FLUSH PRIVILEGES", Class::Commits),
            ("SETTING", Class::Plain),
            ("set_x", Class::Plain),
        ] {
            assert_eq!(classify(text), class, "{text}");
        }
    }

    #[test]
    fn every_statement_of_a_script_is_looked_at() {
        let classes = |script| classify_script(script).collect::<Vec<_>>();
        assert_eq!(classes("SELECT 1; COMMIT"), [Class::Plain, Class::Transaction]);
        assert_eq!(
            classes("SELECT ';COMMIT', \"a\\\";COMMIT\", `;COMMIT`; SET x = 1;"),
            [Class::Plain, Class::Session]
        );
        assert_eq!(classes("SELECT 'é;'';COMMIT' -- ;COMMIT\n # ;COMMIT\n /* ;COMMIT */"), [Class::Plain]);
        assert_eq!(classes("SELECT 1 /*! ; COMMIT */"), [Class::Plain, Class::Transaction]);
        assert_eq!(classes("SELECT 'open; COMMIT"), [Class::Plain]);
        assert_eq!(classes(""), []);
    }

    #[test]
    fn what_may_end_a_transaction_unseen_is_told_by_its_first_word() {
        for text in [
            "CALL p()",
            "/* x */ call p",
            "/*!50000 CALL p() */",
            "EXECUTE s",
            "LOCK TABLES t READ",
            "FLUSH TABLES",
        ] {
            assert!(may_end_unseen(text), "{text}");
        }
        for text in ["", "SELECT 'CALL p()'", "callp()", "SELECT 1; CALL p()"] {
            assert!(!may_end_unseen(text), "{text}");
        }
        assert!(script_may_end_unseen("SELECT ';'; CALL p()"));
        assert!(!script_may_end_unseen("SELECT ';CALL p()'; -- CALL p()\n SELECT 1"));
    }

    #[test]
    fn comments_white_space_and_conditions_hide_nothing() {
        for text in [
            "  \t\r\n\x0b\x0c BEGIN",
            "-- comment\nBEGIN",
            "--\nBEGIN",
            "# comment\nBEGIN",
            "/* a /* not nested */ BEGIN",
            "/**/BEGIN",
            "/*! BEGIN */",
            "/*!50000 BEGIN */",
            "/*!50000BEGIN*/",
            "/*M!100100 BEGIN */",
            "/*! */ BEGIN",
            "/*!99999 SELECT */ BEGIN",
            "/*!99999 DROP */ BEGIN",
            "/*! /* x */ BEGIN",
            ";;; BEGIN",
            "\u{feff}BEGIN",
        ] {
            assert_eq!(classify(text), Class::Transaction, "{text:?}");
        }
        assert_eq!(classify("/* BEGIN"), Class::Plain, "an unfinished comment is the server's to refuse");
        assert_eq!(classify("-- x BEGIN"), Class::Plain);
        assert_eq!(classify("--1"), Class::Plain, "no comment, but an expression");
        assert_eq!(classify("SELECT /*! STRAIGHT_JOIN */ 1"), Class::Plain);
        assert_eq!(classify("/* é */ CREATE/**/TEMPORARY/**/TABLE t(a int)"), Class::Session);
    }
}
