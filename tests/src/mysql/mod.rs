//! MySQL's side of the suites: its driver's names, its server, and what is asked of it in its own words. The same
//! names as in [`postgres`](crate::postgres).

#[path = "../both.rs"]
mod both;
#[path = "../chaos/mod.rs"]
pub mod chaos;
pub mod dialect;
pub mod disturb;
#[path = "../oracle/mod.rs"]
pub mod oracle;
pub mod peer;
pub mod values;

pub use both::*;
pub use dialect::sql;
pub use mysql_pipeline::*;
pub use test_servers::mysql as server;

/// The server of this run, as a configuration.
pub async fn config() -> Config {
    at(server().await.expect("a MySQL server").url())
}

/// A URL of it, as a configuration; without TLS, so that proxies can read what passes.
pub fn at(url: &str) -> Config {
    // The server is this machine's own: nobody sits in between.
    without_tls(url.parse::<Config>().expect("the server's URL")).public_key_retrieval(true)
}

/// The same without TLS.
pub fn without_tls(config: Config) -> Config {
    config.ssl_mode(SslMode::Disabled)
}

/// The same, for connections that can be told from those of other tests by their user.
pub async fn named_config(name: &str) -> Config {
    let admin = Connection::connect(config().await).await.expect("a connection");
    admin
        .execute(format!("CREATE USER IF NOT EXISTS '{name}'@'%' IDENTIFIED BY 'secret'"), ())
        .await
        .expect("a user");
    admin.execute(format!("GRANT ALL PRIVILEGES ON *.* TO '{name}'@'%'"), ()).await.expect("granted");
    admin.close().await;
    called(config().await, name)
}

/// The same for another server and a user of this name, with the password `secret`.
pub fn called(config: Config, name: &str) -> Config {
    config.user(name).password("secret")
}

/// How many connections of a name the server shows.
pub async fn connections(other: &Pool, name: &str) -> i64 {
    shown(other, name, "TRUE").await
}

/// How many of them are in the middle of [`dialect::sleep`]: nothing of it is only being prepared.
pub async fn asleep(other: &Pool, name: &str) -> i64 {
    shown(other, name, "state = 'User sleep'").await
}

/// How many of them run a statement, or prepare one.
pub async fn active(other: &Pool, name: &str) -> i64 {
    shown(other, name, "command IN ('Query', 'Execute')").await
}

/// How many of them are in a transaction.
pub async fn in_transaction(other: &Pool, name: &str) -> i64 {
    let sql = "SELECT COUNT(*) FROM performance_schema.events_transactions_current AS work \
               JOIN performance_schema.threads AS thread ON thread.thread_id = work.thread_id \
               WHERE processlist_user = ? AND state = 'ACTIVE' AND autocommit = 'NO'";
    let (count,): (i64,) = other.query_one(sql, (name,)).await.expect("a count");
    count
}

async fn shown(other: &Pool, name: &str, condition: &str) -> i64 {
    let sql = format!("SELECT COUNT(*) FROM performance_schema.processlist WHERE user = ? AND {condition}");
    let (count,): (i64,) = other.query_one(sql, (name,)).await.expect("a count");
    count
}

/// The server's number for the connection behind a session.
pub async fn number(client: &impl Client) -> i64 {
    let (id,): (i64,) = client.query_one("SELECT CONNECTION_ID()", ()).await.expect("a number");
    id
}

/// Ends a connection.
pub async fn terminate(other: &Pool, number: i64) {
    other.execute(format!("KILL {number}"), ()).await.expect("killed");
}

/// Ends all connections of a name, and tells how many there were.
pub async fn terminate_all(other: &Pool, name: &str) -> i64 {
    kill(other, &numbers(other, name, "TRUE").await).await
}

/// Ends the connections of a name that run a statement, and tells how many there were.
pub async fn terminate_active(other: &Pool, name: &str) -> i64 {
    kill(other, &numbers(other, name, "command = 'Execute' AND info LIKE '%SLEEP%'").await).await
}

async fn kill(other: &Pool, numbers: &[i64]) -> i64 {
    let mut ended = 0;
    for number in numbers {
        // It may have gone already (1094).
        ended += i64::from(other.execute(format!("KILL {number}"), ()).await.is_ok());
    }
    ended
}

/// Cancels whatever statements the connections of a name run.
pub async fn cancel_all(other: &Pool, name: &str) {
    for number in numbers(other, name, "TRUE").await {
        other.execute(format!("KILL QUERY {number}"), ()).await.expect("sent");
    }
}

async fn numbers(other: &Pool, name: &str, condition: &str) -> Vec<i64> {
    let sql = format!("SELECT id FROM performance_schema.processlist WHERE user = ? AND {condition}");
    let rows: Vec<(i64,)> = other.query(sql, (name,)).await.expect("numbers");
    rows.into_iter().map(|(number,)| number).collect()
}

/// Nobody holds the lock that [`dialect::lock`] takes.
pub async fn is_free(other: &Pool, key: u32) -> bool {
    let (free,): (bool,) =
        other.query_one("SELECT IS_FREE_LOCK(?)", (key.to_string(),)).await.expect("an answer");
    free
}

/// How many statements the connection has prepared, without the one that asks.
pub async fn prepared(client: &impl Client) -> i64 {
    let sql = "SELECT COUNT(*) FROM performance_schema.prepared_statements_instances \
               JOIN performance_schema.threads ON owner_thread_id = thread_id \
               WHERE processlist_id = CONNECTION_ID() AND sql_text NOT LIKE '%prepared_statements_instances%'";
    let (count,): (i64,) = client.query_one(sql, ()).await.expect("a count");
    count
}
