//! How PostgreSQL is disturbed by an administrator, as statements. The same names as in `mysql::disturb`.

use super::Error;

/// Connections are processes of the system, whose numbers are theirs.
pub const PROCESSES: bool = true;

/// Creates a user with the password `secret`, for whom limits hold.
pub fn create_user(name: &str) -> Vec<String> {
    vec![
        format!("CREATE ROLE {name} LOGIN PASSWORD 'secret'"),
        format!("GRANT SELECT, INSERT, UPDATE ON ALL TABLES IN SCHEMA public TO {name}"),
    ]
}

/// The numbers of a user's connections, of which so many, picked at random.
pub fn numbers(user: &str, limit: u64) -> String {
    format!("SELECT pid::int8 FROM pg_stat_activity WHERE usename = '{user}' ORDER BY random() LIMIT {limit}")
}

/// Ends a connection.
pub fn terminate(number: i64) -> String {
    format!("SELECT pg_terminate_backend({number})")
}

/// Cancels what it is at.
pub fn cancel(number: i64) -> String {
    format!("SELECT pg_cancel_backend({number})")
}

/// The server takes no writes any more.
pub const READ_ONLY: &[&str] =
    &["ALTER SYSTEM SET default_transaction_read_only = on", "SELECT pg_reload_conf()"];
/// It takes them again.
pub const WRITABLE: &[&str] = &[
    "SET default_transaction_read_only = off",
    "ALTER SYSTEM RESET default_transaction_read_only",
    "SELECT pg_reload_conf()",
];

/// Only so many connections are taken.
pub fn few_connections(user: &str, limit: u32) -> Vec<String> {
    vec![format!("ALTER ROLE {user} CONNECTION LIMIT {limit}")]
}

/// As many as ever.
pub fn many_connections(user: &str) -> Vec<String> {
    vec![format!("ALTER ROLE {user} CONNECTION LIMIT -1")]
}

/// New connections are ended when nothing happens on them for a moment.
pub fn idle_out(user: &str) -> Vec<String> {
    let set = |name: &str| format!("ALTER ROLE {user} SET {name} = '300ms'");
    vec![set("idle_session_timeout"), set("idle_in_transaction_session_timeout")]
}

/// They are not.
pub fn never_idle_out(user: &str) -> Vec<String> {
    vec![format!("ALTER ROLE {user} RESET ALL")]
}

/// What a disturbed server may answer.
pub fn may_say(error: &Error) -> bool {
    // query_canceled, read_only_sql_transaction, in_failed_sql_transaction, admin_shutdown, crash_shutdown,
    // cannot_connect_now, too_many_connections, idle_session_timeout, idle_in_transaction_session_timeout
    const STATES: [&str; 9] =
        ["57014", "25006", "25P02", "57P01", "57P02", "57P03", "53300", "57P05", "25P03"];
    error.sqlstate().is_some_and(|state| STATES.contains(&state))
}
