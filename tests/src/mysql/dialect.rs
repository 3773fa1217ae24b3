//! What MySQL spells in its own way. The same names as in `postgres::dialect`.

/// A statement with `$1`, `$2` … for its parameters, each mentioned once and in order.
pub fn sql(text: impl AsRef<str>) -> String {
    let mut pieces = text.as_ref().split('$');
    let mut out = pieces.next().unwrap_or_default().to_owned();
    for (index, piece) in pieces.enumerate() {
        let rest = piece.trim_start_matches(|c: char| c.is_ascii_digit());
        let number = &piece[..piece.len() - rest.len()];
        assert_eq!(number, (index + 1).to_string(), "parameters in order: {}", text.as_ref());
        out.push('?');
        out.push_str(rest);
    }
    out
}

/// Gives an integer back.
pub const ECHO: &str = "SELECT CAST(? AS SIGNED)";
/// Gives its negative back.
pub const NEGATE: &str = "SELECT -CAST(? AS SIGNED)";
/// Gives a 64-bit integer back.
pub const ECHO_LONG: &str = "SELECT CAST(? AS SIGNED)";
/// Gives a text back.
pub const ECHO_TEXT: &str = "SELECT CAST(? AS CHAR)";
/// Gives bytes back.
pub const ECHO_BYTES: &str = "SELECT ?";
/// Gives an integer and a text back.
pub const ECHO_BOTH: &str = "SELECT CAST(? AS SIGNED), CAST(? AS CHAR)";
/// Gives a text and a 64-bit integer back.
pub const ECHO_TEXT_LONG: &str = "SELECT CAST(? AS CHAR), CAST(? AS SIGNED)";
/// Gives an integer back after a fifth of a second.
pub const ECHO_SLOWLY: &str = "SELECT CAST(? AS SIGNED) FROM (SELECT SLEEP(0.2)) AS slept";
/// The sum of two integers.
pub const ADD: &str = "SELECT CAST(? AS SIGNED) + CAST(? AS SIGNED)";
/// A text of so many characters.
pub const REPEAT: &str = "SELECT REPEAT('x', ?)";
/// Rows from 1 to a number, of at most a thousand.
pub const SERIES: &str = "WITH RECURSIVE list (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM list LIMIT 1000) \
                          SELECT n FROM list WHERE n <= ?";
/// Fails while it runs, for 1000 and above ([`OUT_OF_RANGE`]).
pub const EXP: &str = "SELECT EXP(CAST(? AS DOUBLE))";

/// Gives an integer of one's own as 64 bits, in a text of its own.
pub fn plus(n: i64) -> String {
    format!("SELECT CAST(? AS SIGNED) + {n}")
}

/// Gives 1 after so many seconds.
pub fn sleep(seconds: f64) -> String {
    format!("SELECT 1 FROM (SELECT SLEEP({seconds})) AS slept")
}

/// Takes a lock that belongs to the session.
pub fn lock(key: u32) -> String {
    format!("SELECT GET_LOCK('{key}', 10)")
}

/// Changes what the session remembers.
pub fn remember(word: &str) -> String {
    format!("SET @word = '{word}'")
}

/// What it remembers; empty or NULL if nothing.
pub const REMEMBERED: &str = "SELECT CAST(@word AS CHAR)";

/// Inserts once, and counts when it is there already: columns `nonce` and `n`.
pub fn upsert(table: &str) -> String {
    format!("INSERT INTO {table} VALUES (?, 1) ON DUPLICATE KEY UPDATE n = n + 1")
}

/// What opens or ends a transaction.
pub const TRANSACTION_CONTROL: [&str; 8] = [
    "COMMIT",
    "/* */ rollback",
    "BEGIN",
    "START TRANSACTION",
    "/*! ROLLBACK */",
    "SET autocommit = 1",
    "XA START 'x'",
    "COMMIT AND CHAIN",
];

/// A statement that the server refuses with the wish that the whole be run again.
pub const ASKS_AGAIN: &str =
    "SIGNAL SQLSTATE '40001' SET MYSQL_ERRNO = 1213, MESSAGE_TEXT = 'as if others were in the way'";

/// Texts that end the transaction that they are part of, where nobody can see it beforehand; and what must be there
/// first, and is dropped afterwards.
pub fn endings(table: &str) -> (Vec<String>, Vec<String>, Vec<String>) {
    let bodies = [
        "COMMIT".to_owned(),
        "ROLLBACK".to_owned(),
        "START TRANSACTION".to_owned(),
        format!("CREATE TABLE {table}_by_the_way (n INT); DROP TABLE {table}_by_the_way"),
        format!("COMMIT; INSERT INTO {table} (n) VALUES (1000)"),
        "COMMIT; SELECT 1; SELECT 2".to_owned(),
        "COMMIT; SELECT nothing_of_that_name".to_owned(),
    ];
    let (mut makes, mut endings, mut drops) = (Vec::new(), Vec::new(), Vec::new());
    for (index, body) in bodies.iter().enumerate() {
        makes.push(format!("CREATE PROCEDURE {table}_{index}() BEGIN {body}; END"));
        endings.push(format!("CALL {table}_{index}()"));
        endings.push(format!("DO 1; CALL {table}_{index}(); DO 2"));
        drops.push(format!("DROP PROCEDURE {table}_{index}"));
    }
    endings.push("PREPARE ending FROM 'COMMIT'; EXECUTE ending".to_owned());
    endings.push(format!("LOCK TABLES {table} WRITE"));
    (makes, endings, drops)
}

/// What may not run on a shared connection.
pub const REFUSED_ON_SHARED: [&str; 16] = [
    "SELECT GET_LOCK('mine', 0)",
    "DO RELEASE_ALL_LOCKS()",
    "SET @x = 1",
    "USE mysql",
    "BEGIN",
    "START TRANSACTION",
    "LOCK TABLES t READ",
    "CREATE TEMPORARY TABLE t (a INT)",
    "/*!50000 SET sql_mode = '' */",
    "# comment\n COMMIT",
    ";; COMMIT",
    "ROLLBACK",
    "-- a comment\nBEGIN",
    "SAVEPOINT s",
    "XA START 'x'",
    "PREPARE s FROM 'SELECT 1'",
];

/// Gives an integer back after a millisecond or two, which go into counting: a SLEEP that is cancelled is no error.
pub const ECHO_A_LITTLE_LATER: &str = "WITH RECURSIVE list (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM list LIMIT 100) \
                                       SELECT CAST(? AS SIGNED) + 0 * COUNT(*) FROM list AS a, list AS b";
/// Rows from a number on, as many as another one says, of at most a hundred.
pub const SERIES_FROM: &str = "WITH RECURSIVE list (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM list LIMIT 100) \
                               SELECT CAST(? AS SIGNED) + n FROM list WHERE n < ?";
/// The state that the server leaves behind when an administrator ends a connection: KILL closes it without a word.
pub const LAST_WORDS: Option<&str> = None;

/// Creates a user with the password `secret` and leave for so many connections.
pub fn limited_user(name: &str, connections: u32) -> Vec<String> {
    vec![
        format!("CREATE USER '{name}'@'%' IDENTIFIED BY 'secret' WITH MAX_USER_CONNECTIONS {connections}"),
        format!("GRANT ALL PRIVILEGES ON *.* TO '{name}'@'%'"),
    ]
}

/// Drops a user.
pub fn drop_user(name: &str) -> String {
    format!("DROP USER '{name}'@'%'")
}

/// What is said to a user who has as many connections as allowed.
pub const TOO_MANY: &str = "max_user_connections";

/// A text back, and one of 100,000 characters.
pub const LARGE_BOTH_WAYS: &str = "SELECT CAST(? AS CHAR), REPEAT('x', 100000)";
/// SQLSTATE of an empty statement (1065).
pub const EMPTY: Option<&str> = Some("42000");

/// So many rows from 1, of at most a million: the number, the next one, its text, NULL, as a float, and `x`.
pub fn many_rows(count: i64) -> String {
    format!(
        "WITH RECURSIVE list (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM list LIMIT 1000) \
         SELECT n, n + 1, CAST(n AS CHAR), NULL, CAST(n AS DOUBLE), 'x' \
         FROM (SELECT 1000 * a.n + b.n + 1 AS n FROM list AS a, list AS b) AS numbers \
         WHERE n <= {count} ORDER BY n"
    )
}

/// Column `v` becomes one type after the other, and is an int4 again at last.
pub const CHANGES_OF_TYPE: [&str; 4] = [
    "MODIFY v BIGINT NOT NULL",
    "MODIFY v DOUBLE NOT NULL",
    "MODIFY v VARCHAR(50) NOT NULL",
    "MODIFY v INT NOT NULL",
];

/// Creates a user with a password.
pub fn user_with(name: &str, password: &str) -> Vec<String> {
    let quoted = password.replace('\\', "\\\\").replace('\'', "''");
    vec![
        format!("CREATE USER '{name}'@'%' IDENTIFIED BY '{quoted}'"),
        format!("GRANT ALL PRIVILEGES ON *.* TO '{name}'@'%'"),
    ]
}

/// Configurations that cannot be used, and what their errors say.
pub const CONFIGURATIONS: [(&str, &str); 18] = [
    ("postgres://app@host/db", "mysql://"),
    ("http://host", "mysql://"),
    ("just words", "mysql://"),
    ("mysql://u:hush-hush-7531@host:notaport/db", "`port`"),
    ("mysql://u:hush-hush-7531@host:0/db", "between 1 and 65535"),
    ("mysql://u:hush-hush-7531@host:70000/db", "between 1 and 65535"),
    ("mysql://u:hush%zz-7531@host/db", "%25"),
    ("mysql://u:hush hush@host/db", "percent-encoded"),
    ("mysql://u:hush/hush-7531@host/db", "%2F"),
    ("mysql://u:hush@hush-7531@host/db", "%40"),
    ("mysql://u@[::1/db", "%5B"),
    ("mysql://u@host/db?flavour=sweet", "unknown option `flavour`"),
    ("mysql://u@host/db?connections", "no `=`"),
    ("mysql://u@host/db?connections=many", "connections"),
    ("mysql://u@host/db?connections=0", "between 1 and 1024"),
    ("mysql://u@host/db?query_timeout=0", "between 1 ms and 7 days"),
    ("mysql://u@host/db?sslMode=sometimes", "VERIFY_IDENTITY"),
    ("mysql://u@host/db?characterEncoding=latin1", "UTF-8"),
];
/// An option that is understood and not offered.
pub const UNSET: (&str, &str) = ("useAffectedRows", "true");

/// SQLSTATE of a key that is there already.
pub const DUPLICATE: &str = "23000";
/// Of a table that is not there.
pub const NO_SUCH_TABLE: &str = "42S02";
/// Of a column that is not there.
pub const NO_SUCH_COLUMN: &str = "42S22";
/// Of a slip of the pen.
pub const SYNTAX: &str = "42000";
/// Of a number that is too large.
pub const OUT_OF_RANGE: &str = "22003";
/// Of a check that fails (3819, which has no state of its own).
pub const CHECK: &str = "HY000";
/// Of a statement that was cancelled.
pub const CANCELLED: &str = "70100";
/// Of a database that is not there.
pub const NO_SUCH_DATABASE: &str = "42000";
/// Of a login that is refused.
pub const REFUSED: &str = "28000";
/// The port where none is given.
pub const PORT: u16 = 3306;
/// What URLs begin with.
pub const SCHEME: &str = "mysql";

/// The isolation of the transaction that it is part of, which has read something before.
pub const ISOLATION: &str = "SELECT isolation_level FROM performance_schema.events_transactions_current \
                             JOIN performance_schema.threads USING (thread_id) \
                             WHERE processlist_id = CONNECTION_ID() AND state = 'ACTIVE'";
/// The isolation that the connection's transactions have unless they say otherwise.
pub const USUAL_ISOLATION: &str = "SELECT REPLACE(@@transaction_isolation, '-', ' ')";
/// SQLSTATE of a write in a transaction that only reads.
pub const READ_ONLY: &str = "25006";

/// The driver's own documentation.
pub const DOCUMENTATION: &str = include_str!("../../../mysql-pipeline/src/lib.rs");

/// Makes the server close a connection on which nothing happens for a second.
pub const IDLE_OUT: &str = "SET SESSION wait_timeout = 1";

/// Columns of a table whose constraint is checked at the end of a transaction: here all are checked at once.
pub const CHECKED_LATE: &str = "n int UNIQUE";

/// A text, the SHA-256 of another one so many times, and a tail of so many characters.
pub const ECHO_WITH_SUM: &str = "SELECT CAST(? AS CHAR), SHA2(REPEAT(?, ?), 256), REPEAT('x', ?)";

/// Makes names without a schema mean those of this one, for the session.
pub fn switch_to(schema: &str) -> String {
    format!("USE {schema}")
}

/// The connection's number, and the schema that names without one are looked up in.
pub const NUMBER_AND_SCHEMA: &str = "SELECT CONNECTION_ID(), SCHEMA()";

/// Has a few rows, and fails behind them (with [`FAILS_AMONG_ROWS_STATE`]).
pub const FAILS_AMONG_ROWS: &str = "SELECT EXP(706 + n) FROM (SELECT 1 AS n UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4) AS list";
/// SQLSTATE of that: a number out of range.
pub const FAILS_AMONG_ROWS_STATE: &str = "22003";

/// SQLSTATE of a statement whose plan does not fit any more: the driver prepares it again.
pub const STALE: Option<&str> = None;
