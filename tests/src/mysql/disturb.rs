//! How MySQL is disturbed by an administrator, as statements. The same names as in `postgres::disturb`.

use super::Error;

/// Connections are threads of one process.
pub const PROCESSES: bool = false;

/// Creates a user with the password `secret`, for whom limits hold.
pub fn create_user(name: &str) -> Vec<String> {
    vec![
        format!("CREATE USER '{name}'@'%' IDENTIFIED BY 'secret'"),
        format!("GRANT SELECT, INSERT, UPDATE ON app.* TO '{name}'@'%'"),
        format!("GRANT SELECT ON performance_schema.* TO '{name}'@'%'"),
    ]
}

/// The numbers of a user's connections, of which so many, picked at random.
pub fn numbers(user: &str, limit: u64) -> String {
    format!(
        "SELECT CAST(id AS SIGNED) FROM performance_schema.processlist WHERE user = '{user}' \
         ORDER BY RAND() LIMIT {limit}"
    )
}

/// Ends a connection.
pub fn terminate(number: i64) -> String {
    format!("KILL {number}")
}

/// Cancels what it is at.
pub fn cancel(number: i64) -> String {
    format!("KILL QUERY {number}")
}

/// The server takes no writes any more. It waits for statements under way, and new ones wait for it: those that wait for
/// the rows of a transaction whose next statement waits too would keep it for long.
pub const READ_ONLY: &[&str] = &["SET SESSION lock_wait_timeout = 2", "SET GLOBAL super_read_only = ON"];
/// It takes them again.
pub const WRITABLE: &[&str] = &["SET GLOBAL super_read_only = OFF", "SET GLOBAL read_only = OFF"];

/// Only so many connections are taken.
pub fn few_connections(_: &str, limit: u32) -> Vec<String> {
    vec![format!("SET GLOBAL max_connections = {limit}")]
}

/// As many as ever.
pub fn many_connections(_: &str) -> Vec<String> {
    vec!["SET GLOBAL max_connections = 400".to_owned()]
}

/// New connections are ended when nothing happens on them for a moment.
pub fn idle_out(_: &str) -> Vec<String> {
    vec!["SET GLOBAL wait_timeout = 1".to_owned()]
}

/// They are not.
pub fn never_idle_out(_: &str) -> Vec<String> {
    vec!["SET GLOBAL wait_timeout = 28800".to_owned()]
}

/// What a disturbed server may answer.
pub fn may_say(error: &Error) -> bool {
    // ER_QUERY_INTERRUPTED, ER_OPTION_PREVENTS_STATEMENT, ER_SERVER_SHUTDOWN, ER_CON_COUNT_ERROR
    const CODES: [u16; 4] = [1317, 1290, 1053, 1040];
    error.as_database().is_some_and(|error| CODES.contains(&error.number()))
}
