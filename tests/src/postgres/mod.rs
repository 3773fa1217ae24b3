//! PostgreSQL's side of the suites: its driver's names, its server, and what is asked of it in its own words. The same
//! names as in [`mysql`](crate::mysql).

#[path = "../both.rs"]
mod both;
#[path = "../chaos/mod.rs"]
pub mod chaos;
pub mod dialect;
pub mod disturb;
#[path = "../oracle/mod.rs"]
pub mod oracle;
pub mod peer;

pub use both::*;
pub use dialect::sql;
pub use pg_pipeline::*;
pub use test_servers::postgres as server;

/// The server of this run, as a configuration.
pub async fn config() -> Config {
    at(server().await.expect("a PostgreSQL server").url())
}

/// A URL of it, as a configuration; without TLS, so that proxies can read what passes.
pub fn at(url: &str) -> Config {
    without_tls(url.parse().expect("the server's URL"))
}

/// The same without TLS.
pub fn without_tls(config: Config) -> Config {
    config.sslmode(SslMode::Disable)
}

/// The same, for connections that can be told from those of other tests by their application's name.
pub async fn named_config(name: &str) -> Config {
    config().await.application_name(name)
}

/// The same for another server and a user of this name, with the password `secret`.
pub fn called(config: Config, name: &str) -> Config {
    config.user(name).password("secret").application_name(name)
}

/// How many connections of a name the server shows.
pub async fn connections(other: &Pool, name: &str) -> i64 {
    in_state(other, name, "%").await
}

/// How many of them are in the middle of [`dialect::sleep`]: nothing of it is only being prepared.
pub async fn asleep(other: &Pool, name: &str) -> i64 {
    let sql = "SELECT count(*) FROM pg_stat_activity WHERE application_name = $1 AND wait_event = 'PgSleep'";
    let (count,): (i64,) = other.query_one(sql, (name,)).await.expect("a count");
    count
}

/// How many of them run a statement, or prepare one.
pub async fn active(other: &Pool, name: &str) -> i64 {
    in_state(other, name, "active").await
}

/// How many of them are in a transaction, at rest.
pub async fn in_transaction(other: &Pool, name: &str) -> i64 {
    in_state(other, name, "idle in transaction%").await
}

async fn in_state(other: &Pool, name: &str, state: &str) -> i64 {
    let (count,): (i64,) = other
        .query_one(
            "SELECT count(*) FROM pg_stat_activity WHERE application_name = $1 AND coalesce(state, '') LIKE $2",
            (name, state),
        )
        .await
        .expect("a count");
    count
}

/// The server's number for the connection behind a session.
pub async fn number(client: &impl Client) -> i64 {
    let (pid,): (i32,) = client.query_one("SELECT pg_backend_pid()", ()).await.expect("a number");
    pid.into()
}

/// Ends a connection.
pub async fn terminate(other: &Pool, number: i64) {
    let (ended,): (bool,) = other
        .query_one("SELECT pg_terminate_backend($1)", (i32::try_from(number).expect("a process"),))
        .await
        .expect("an answer");
    assert!(ended);
}

/// Ends all connections of a name, and tells how many there were.
pub async fn terminate_all(other: &Pool, name: &str) -> i64 {
    let (ended,): (i64,) = other
        .query_one(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = $1",
            (name,),
        )
        .await
        .expect("a count");
    ended
}

/// Ends the connections of a name that run a statement, and tells how many there were.
pub async fn terminate_active(other: &Pool, name: &str) -> i64 {
    let (ended,): (i64,) = other
        .query_one(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
             WHERE application_name = $1 AND state = 'active' AND query LIKE '%sleep%'",
            (name,),
        )
        .await
        .expect("a count");
    ended
}

/// Cancels whatever statements the connections of a name run.
pub async fn cancel_all(other: &Pool, name: &str) {
    other
        .execute("SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE application_name = $1", (name,))
        .await
        .expect("sent");
}

/// Nobody holds the lock that [`dialect::lock`] takes.
pub async fn is_free(other: &Pool, key: u32) -> bool {
    let (free,): (bool,) = other
        .query_one(
            "SELECT NOT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND objid = $1)",
            (key,),
        )
        .await
        .expect("an answer");
    free
}

/// How many statements the connection has prepared, without the one that asks.
pub async fn prepared(client: &impl Client) -> i64 {
    let sql =
        "SELECT count(*) FROM pg_prepared_statements WHERE statement NOT LIKE '%pg_prepared_statements%'";
    let (count,): (i64,) = client.query_one(sql, ()).await.expect("a count");
    count
}
