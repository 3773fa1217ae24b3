//! Becoming another user on a connection that stands: on MySQL and MariaDB, by each method, and in vain.

use std::time::Duration;

use integration_tests::own_name;
use tokio::sync::mpsc;

use super::side::peer::{Peer, answer, packet};
use super::side::{Client, Config, Connection, DatabaseError, ErrorKind, Outcome, config, connections, pool};

async fn mariadb() -> Config {
    test_servers::mariadb().await.expect("a MariaDB server").url().parse().expect("its URL")
}

async fn text(client: &impl Client, expression: &str) -> Option<String> {
    let sql = format!("SELECT CAST({expression} AS CHAR)");
    let (text,): (Option<String>,) = client.query_one(sql, ()).await.expect("a value");
    text
}

/// There and back again, with what must be left behind.
async fn there_and_back(config: Config, user: &str, password: &str) {
    let connection =
        Connection::connect(config.option("timeZone", "+03:00").expect("an offset")).await.expect("in");
    let number = text(&connection, "CONNECTION_ID()").await;
    // A statement that is prepared, a setting and a table: all of the former session.
    connection
        .batch_execute("SET @word = 'former'; CREATE TEMPORARY TABLE scratch (n INT)")
        .await
        .expect("set");
    assert_eq!(text(&connection, "@word").await.as_deref(), Some("former"));
    let connection =
        connection.change_user(user, password, None).await.unwrap_or_else(|error| panic!("{user}: {error}"));
    assert_eq!(text(&connection, "CURRENT_USER()").await, Some(format!("{user}@%")));
    assert_eq!(text(&connection, "@word").await, None);
    assert_eq!(text(&connection, "SCHEMA()").await, None);
    assert_eq!(text(&connection, "@@time_zone").await.as_deref(), Some("+03:00"), "set up again");
    assert_eq!(text(&connection, "@@character_set_client").await.as_deref(), Some("utf8mb4"));
    connection.execute("DO (SELECT 1 FROM scratch)", ()).await.expect_err("gone");
    let connection = connection.change_user("root", "secret", Some("app")).await.expect("back");
    assert_eq!(text(&connection, "SCHEMA()").await.as_deref(), Some("app"));
    assert_eq!(text(&connection, "CONNECTION_ID()").await, number, "the same connection");
    connection.close().await;
}

#[tokio::test]
async fn by_each_method_of_mysql_with_a_cold_and_a_warm_cache() {
    let pool = pool().await;
    for method in ["caching_sha2_password", "sha256_password"] {
        for password in ["secret", ""] {
            let user = own_name("change");
            let create = format!("CREATE USER '{user}'@'%' IDENTIFIED WITH {method} BY '{password}'");
            pool.execute(create, ()).await.expect("a user");
            for _ in 0..2 {
                there_and_back(config().await, &user, password).await;
            }
            pool.execute(format!("DROP USER '{user}'@'%'"), ()).await.expect("dropped");
        }
    }
    pool.close().await;
}

#[tokio::test]
async fn by_each_method_of_mariadb() {
    let admin = Connection::connect(mariadb().await).await.expect("in");
    for method in ["mysql_native_password", "ed25519", "parsec"] {
        for password in ["secret", ""] {
            let user = own_name("change");
            let create =
                format!("CREATE USER '{user}'@'%' IDENTIFIED VIA {method} USING PASSWORD('{password}')");
            admin.execute(create, ()).await.expect("a user");
            there_and_back(mariadb().await, &user, password).await;
            admin.execute(format!("DROP USER '{user}'@'%'"), ()).await.expect("dropped");
        }
    }
    admin.close().await;
}

#[tokio::test]
async fn who_is_refused_has_no_connection_any_more() {
    let (pool, user) = (pool().await, own_name("refused"));
    pool.execute(format!("CREATE USER '{user}'@'%' IDENTIFIED BY 'secret'"), ()).await.expect("a user");
    pool.execute(format!("GRANT ALL PRIVILEGES ON *.* TO '{user}'@'%'"), ()).await.expect("granted");
    for config in [config().await, mariadb().await] {
        let connection = Connection::connect(config).await.expect("in");
        let error = connection.change_user(&own_name("nobody"), "wrong", None).await.expect_err("refused");
        assert_eq!((error.kind(), error.outcome()), (ErrorKind::Auth, Outcome::Failed), "{error}");
        assert_eq!(error.as_database().map(DatabaseError::number), Some(1045), "{error}");
    }
    // Refused, and dropped at any poll: nothing stays behind.
    for polls in 0..12 {
        let connection =
            Connection::connect(config().await.user(&user).password("secret")).await.expect("in");
        drop(integration_tests::poll_then_drop(connection.change_user("root", "secret", None), polls).await);
    }
    integration_tests::eventually("all are gone", || async { connections(&pool, &user).await == 0 }).await;
    pool.execute(format!("DROP USER '{user}'@'%'"), ()).await.expect("dropped");
    pool.close().await;
}

#[tokio::test]
async fn a_server_that_asks_for_the_password_in_clear_gets_nothing_here_either() {
    for said in [
        &b"\xFEmysql_clear_password\0"[..],
        b"\xFEsha256_password\0abcdefghijklmnopqrst\0",
        b"\x01\x04",
        b"\x05",
    ] {
        let (tells, mut heard) = mpsc::unbounded_channel();
        let peer = Peer::start(move |mut talk, _| {
            let tells = tells.clone();
            async move {
                talk.greet().await?;
                loop {
                    let asked = talk.hear().await?;
                    if asked.command == 0x11 {
                        talk.say(&packet(1, said)).await?;
                        tells.send(talk.hear_rest().await?).expect("the test listens");
                        return Ok(());
                    }
                    talk.say(&answer(&asked)).await?;
                }
            }
        })
        .await;
        let connection = Connection::connect(peer.config()).await.expect("in");
        let error = connection.change_user("app", "secret", None).await.expect_err("refused");
        assert!(matches!(error.kind(), ErrorKind::Auth | ErrorKind::Protocol), "{error}");
        assert!(!format!("{error:?}").contains("secret"));
        let rest = tokio::time::timeout(Duration::from_secs(8), heard.recv()).await;
        let rest = rest.expect("we have left").expect("a peer");
        assert!(!rest.windows(6).any(|window| window == b"secret"), "{rest:?}");
    }
}
