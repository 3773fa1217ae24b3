//! What PostgreSQL spells in its own way. The same names as in `mysql::dialect`.

/// A statement with `$1`, `$2` … for its parameters, each mentioned once and in order.
pub fn sql(text: impl AsRef<str>) -> String {
    text.as_ref().to_owned()
}

/// Gives an integer back.
pub const ECHO: &str = "SELECT $1::int4";
/// Gives its negative back.
pub const NEGATE: &str = "SELECT -$1::int4";
/// Gives a 64-bit integer back.
pub const ECHO_LONG: &str = "SELECT $1::int8";
/// Gives a text back.
pub const ECHO_TEXT: &str = "SELECT $1::text";
/// Gives bytes back.
pub const ECHO_BYTES: &str = "SELECT $1::bytea";
/// Gives an integer and a text back.
pub const ECHO_BOTH: &str = "SELECT $1::int4, $2::text";
/// Gives a text and a 64-bit integer back.
pub const ECHO_TEXT_LONG: &str = "SELECT $1::text, $2::int8";
/// Gives an integer back after a fifth of a second.
pub const ECHO_SLOWLY: &str = "SELECT $1::int4 FROM pg_sleep(0.2)";
/// The sum of two integers.
pub const ADD: &str = "SELECT $1::int4 + $2::int4";
/// A text of so many characters.
pub const REPEAT: &str = "SELECT repeat('x', $1)";
/// Rows from 1 to a number.
pub const SERIES: &str = "SELECT generate_series(1, $1::int4)";
/// Fails while it runs, for 1000 and above ([`OUT_OF_RANGE`]).
pub const EXP: &str = "SELECT exp($1::float8)";

/// Gives an integer of one's own as 64 bits, in a text of its own.
pub fn plus(n: i64) -> String {
    format!("SELECT $1::int8 + {n}")
}

/// Gives 1 after so many seconds.
pub fn sleep(seconds: f64) -> String {
    format!("SELECT 1 FROM pg_sleep({seconds})")
}

/// Takes a lock that belongs to the session.
pub fn lock(key: u32) -> String {
    format!("SELECT pg_advisory_lock({key})")
}

/// Changes what the session remembers.
pub fn remember(word: &str) -> String {
    format!("SET suites.word = '{word}'")
}

/// What it remembers; empty or NULL if nothing.
pub const REMEMBERED: &str = "SELECT current_setting('suites.word', true)";

/// Inserts once, and counts when it is there already: columns `nonce` and `n`.
pub fn upsert(table: &str) -> String {
    format!("INSERT INTO {table} VALUES ($1, 1) ON CONFLICT (nonce) DO UPDATE SET n = {table}.n + 1")
}

/// What opens or ends a transaction.
pub const TRANSACTION_CONTROL: [&str; 8] = [
    "COMMIT",
    "/* */ rollback",
    "BEGIN",
    "START TRANSACTION",
    "END",
    "ABORT",
    "PREPARE TRANSACTION 'x'",
    "COMMIT AND CHAIN",
];

/// A statement that the server refuses with the wish that the whole be run again.
pub const ASKS_AGAIN: &str =
    "DO $$ BEGIN RAISE 'as if others were in the way' USING ERRCODE = '40001'; END $$";

/// Texts that end the transaction that they are part of, where nobody can see it beforehand; and what must be there
/// first, and is dropped afterwards.
pub fn endings(_table: &str) -> (Vec<String>, Vec<String>, Vec<String>) {
    let endings = [
        "SELECT 1; COMMIT",
        "SELECT 1; COMMIT; BEGIN",
        "SELECT 1; COMMIT AND CHAIN",
        "SELECT 1; END; START TRANSACTION; SELECT 2",
        "SELECT 1; ROLLBACK; BEGIN",
        "SELECT 1; ROLLBACK /* and */ AND -- start over\n CHAIN",
        "SELECT 1; COMMIT; BEGIN; SELECT 1 / 0",
    ];
    let asks_again = ["COMMIT; BEGIN", "COMMIT", "ROLLBACK AND CHAIN"]
        .map(|ends| format!("SELECT 1; {ends}; {ASKS_AGAIN}"));
    (Vec::new(), endings.map(str::to_owned).into_iter().chain(asks_again).collect(), Vec::new())
}

/// What may not run on a shared connection.
pub const REFUSED_ON_SHARED: [&str; 22] = [
    "SELECT pg_advisory_lock(1)",
    "SELECT 1, set_config('application_name', 'mine', false)",
    "SELECT 1 INTO TEMP mine",
    "BEGIN",
    "  \n\t begin isolation level serializable",
    "-- a comment\nBEGIN",
    "/* a /* nested */ comment */ START TRANSACTION",
    ";; COMMIT",
    "ROLLBACK",
    "SAVEPOINT s",
    "SET search_path = pg_catalog",
    "/**/SET/**/LOCAL x.y = 1",
    "RESET ALL",
    "LISTEN channel",
    "UNLISTEN *",
    "DISCARD ALL",
    "DECLARE c CURSOR FOR SELECT 1",
    "PREPARE p AS SELECT 1",
    "DEALLOCATE ALL",
    "CREATE TEMP TABLE t (a int)",
    "LOCK TABLE pg_class",
    "COPY (SELECT 1) TO STDOUT",
];

/// Gives an integer back after a millisecond.
pub const ECHO_A_LITTLE_LATER: &str = "SELECT $1::int4 FROM pg_sleep(0.001)";
/// Rows from a number on, as many as another one says.
pub const SERIES_FROM: &str = "SELECT generate_series($1::int8, $1 + $2 - 1)";
/// The state that the server leaves behind when an administrator ends a connection.
pub const LAST_WORDS: Option<&str> = Some("57P01");

/// Creates a user with the password `secret` and leave for so many connections.
pub fn limited_user(name: &str, connections: u32) -> Vec<String> {
    vec![format!("CREATE ROLE {name} LOGIN PASSWORD 'secret' CONNECTION LIMIT {connections}")]
}

/// Drops a user.
pub fn drop_user(name: &str) -> String {
    format!("DROP ROLE {name}")
}

/// What is said to a user who has as many connections as allowed.
pub const TOO_MANY: &str = "too many connections";

/// A text back, and one of 100,000 characters.
pub const LARGE_BOTH_WAYS: &str = "SELECT $1::text, repeat('x', 100000)";
/// SQLSTATE of an empty statement, which is no error here.
pub const EMPTY: Option<&str> = None;

/// So many rows from 1: the number, the next one, its text, NULL, as a float, and `x`.
pub fn many_rows(count: i64) -> String {
    format!(
        "SELECT n, n + 1, n::text, NULL::text, n::float8, 'x' FROM generate_series(1, {count}::int8) AS n"
    )
}

/// Column `v` becomes one type after the other, and is an int4 again at last.
pub const CHANGES_OF_TYPE: [&str; 4] =
    ["ALTER v TYPE int8", "ALTER v TYPE float8", "ALTER v TYPE text", "ALTER v TYPE int4 USING v::int4"];

/// Creates a user with a password.
pub fn user_with(name: &str, password: &str) -> Vec<String> {
    vec![format!("CREATE ROLE {name} LOGIN PASSWORD '{}'", password.replace('\'', "''"))]
}

/// Configurations that cannot be used, and what their errors say.
pub const CONFIGURATIONS: [(&str, &str); 22] = [
    ("mysql://app@host/db", "postgres://"),
    ("http://host", "postgres://"),
    ("just words", "neither a URL"),
    ("postgres://u:hush-hush-7531@host:notaport/db", "`port`"),
    ("postgres://u:hush-hush-7531@host:0/db", "between 1 and 65535"),
    ("postgres://u:hush-hush-7531@host:70000/db", "between 1 and 65535"),
    ("postgres://u:hush%zz-7531@host/db", "%25"),
    ("postgres://u:hush hush@host/db", "percent-encoded"),
    ("postgres://u:hush/hush-7531@host/db", "%2F"),
    ("postgres://u:hush@hush-7531@host/db", "%40"),
    ("postgres://u@[::1/db", "%5B"),
    ("postgres://u@host/db?flavour=sweet", "unknown option `flavour`"),
    ("postgres://u@host/db?connections", "no `=`"),
    ("postgres://u@host/db?connections=many", "connections"),
    ("postgres://u@host/db?connections=0", "between 1 and 1024"),
    ("postgres://u@host/db?query_timeout=0", "between 1 ms and 7 days"),
    ("postgres://u@host/db?sslmode=sometimes", "verify-full"),
    ("postgres://u@host/db?client_encoding=LATIN1", "UTF8"),
    ("host=h user=u password='hush-hush-7531", "closing quote"),
    ("host=h flavour=sweet", "unknown option `flavour`"),
    ("host=h password=hush hush-7531", "single quotes"),
    ("host=a,b port=1,2,3", "3 entries for 2 hosts"),
];
/// An option that is understood and not offered.
pub const UNSET: (&str, &str) = ("gssencmode", "require");

/// SQLSTATE of a key that is there already.
pub const DUPLICATE: &str = "23505";
/// Of a table that is not there.
pub const NO_SUCH_TABLE: &str = "42P01";
/// Of a column that is not there.
pub const NO_SUCH_COLUMN: &str = "42703";
/// Of a slip of the pen.
pub const SYNTAX: &str = "42601";
/// Of a number that is too large.
pub const OUT_OF_RANGE: &str = "22003";
/// Of a check that fails.
pub const CHECK: &str = "23514";
/// Of a statement that was cancelled.
pub const CANCELLED: &str = "57014";
/// Of a database that is not there.
pub const NO_SUCH_DATABASE: &str = "3D000";
/// Of a login that is refused.
pub const REFUSED: &str = "28P01";
/// The port where none is given.
pub const PORT: u16 = 5432;
/// What URLs begin with.
pub const SCHEME: &str = "postgres";

/// The isolation of the transaction that it is part of, which has read something before.
pub const ISOLATION: &str = "SELECT current_setting('transaction_isolation')";
/// The isolation that the connection's transactions have unless they say otherwise.
pub const USUAL_ISOLATION: &str = "SELECT current_setting('default_transaction_isolation')";
/// SQLSTATE of a write in a transaction that only reads.
pub const READ_ONLY: &str = "25006";

/// The driver's own documentation.
pub const DOCUMENTATION: &str = include_str!("../../../pg-pipeline/src/lib.rs");

/// Makes the server close a connection on which nothing happens for a second.
pub const IDLE_OUT: &str = "SET idle_session_timeout = 1000";

/// Columns of a table whose constraint is checked at the end of a transaction.
pub const CHECKED_LATE: &str = "n int UNIQUE DEFERRABLE INITIALLY DEFERRED";

/// A text, the SHA-256 of another one so many times, and a tail of so many characters.
pub const ECHO_WITH_SUM: &str =
    "SELECT $1::text, encode(sha256(convert_to(repeat($2, $3), 'UTF8')), 'hex'), repeat('x', $4)";

/// Makes names without a schema mean those of this one, for the session.
pub fn switch_to(schema: &str) -> String {
    format!("SET search_path = {schema}")
}

/// The connection's number, and the schema that names without one are looked up in.
pub const NUMBER_AND_SCHEMA: &str = "SELECT pg_backend_pid()::int8, current_schema()::text";

/// Has a few rows, and fails behind them (with [`FAILS_AMONG_ROWS_STATE`]).
pub const FAILS_AMONG_ROWS: &str = "SELECT 1 / (4 - n) FROM generate_series(1, 10) AS n";
/// SQLSTATE of that: a division by zero.
pub const FAILS_AMONG_ROWS_STATE: &str = "22012";

/// SQLSTATE of a statement whose plan does not fit any more.
pub const STALE: Option<&str> = Some("0A000");
