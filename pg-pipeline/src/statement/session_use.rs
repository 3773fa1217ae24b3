//! What a statement holds behind its first words that changes the session: locks of the session, settings, temporary
//! tables.
//!
//! Sees neither what a function does inside of itself nor names in quotes.

use super::scanner::{WordsOutside, behind_blanks};

/// Functions that take or give back locks of the session, or set it. Those of this kind with `_xact_` in their names
/// end with their transaction. Source: PostgreSQL manual, "System Administration Functions".
const FUNCTIONS: &[&str] = &[
    "pg_advisory_lock",
    "pg_advisory_lock_shared",
    "pg_advisory_unlock",
    "pg_advisory_unlock_all",
    "pg_advisory_unlock_shared",
    "pg_try_advisory_lock",
    "pg_try_advisory_lock_shared",
    "set_config",
];

/// The schema of temporary tables, by its other name.
const TEMPORARY: &str = "pg_temp";

/// Whether the statement changes the session, as far as its text tells.
pub(super) fn uses_session(text: &str) -> bool {
    let is = |word: &str, other: &str| word.eq_ignore_ascii_case(other);
    let (mut before_into, mut before) = ("", "");
    for (word, behind) in WordsOutside(text) {
        let is_function = || FUNCTIONS.iter().any(|function| is(word, function));
        if is(word, TEMPORARY) || is_function() && behind_blanks(behind).starts_with('(') {
            return true;
        }
        // SELECT … INTO [ LOCAL | GLOBAL ] { TEMPORARY | TEMP } …; of INSERT and MERGE it would be a table's name.
        let into = is(before, "into") && !is(before_into, "insert") && !is(before_into, "merge");
        if into && (is(word, "temp") || is(word, "temporary")) {
            return true;
        }
        if into && (is(word, "local") || is(word, "global")) {
            continue;
        }
        (before_into, before) = (before, word);
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_changes_the_session_is_seen_wherever_it_stands() {
        for text in [
            "SELECT pg_advisory_lock(1)",
            "SELECT pg_catalog.PG_TRY_ADVISORY_LOCK ($1, 2)",
            "SELECT id FROM t WHERE pg_advisory_lock_shared(id) IS NULL",
            "SELECT pg_advisory_unlock_all()",
            "SELECT set_config('work_mem', $1, false)",
            "SELECT 'it''s', set_config('a', 'b', true)",
            "SELECT E'\\'', pg_advisory_lock(1)",
            "SELECT $1, $x$ $ $y$ $x$, pg_advisory_unlock/* (here */-- )\n (1)",
            "WITH a AS (SELECT 1) SELECT * INTO TEMP t FROM a",
            "SELECT * INTO LOCAL temporary t FROM a",
            "SELECT 1 INTO pg_temp.t",
            "CREATE TABLE pg_temp.t (a int)",
        ] {
            assert!(uses_session(text), "{text}");
        }
    }

    #[test]
    fn what_only_looks_like_it_is_not_taken_for_it() {
        for text in [
            "",
            "SELECT 1",
            "SELECT pg_advisory_xact_lock(1)",
            "SELECT pg_try_advisory_xact_lock_shared(1)",
            "INSERT INTO notes VALUES ('pg_advisory_lock(1)')",
            "INSERT INTO notes VALUES (E'\\'pg_advisory_lock(1)')",
            "INSERT INTO temp VALUES (1)",
            "MERGE INTO temp USING t ON true WHEN MATCHED THEN DO NOTHING",
            "SELECT * INTO t FROM temp",
            "SELECT pg_advisory_lock FROM t",
            "SELECT \"set_config\" FROM t -- set_config(1)",
            "SELECT 1 /* /* pg_advisory_lock(1) */ set_config() */",
            "CREATE FUNCTION f() RETURNS void LANGUAGE sql AS $$ SELECT pg_advisory_lock(1) $$",
            "CREATE FUNCTION f() RETURNS void LANGUAGE sql AS $body$ SELECT set_config('a', $1, false) $body$",
            "SELECT my_set_config(1), set_config2(2), é_set_config(3)",
            "SELECT 'never closed pg_advisory_lock(1)",
            "SELECT $tag$ never closed pg_advisory_lock(1)",
            "$",
        ] {
            assert!(!uses_session(text), "{text}");
        }
    }
}
