//! Configurations of MySQL in use: what options, option files and lists of hosts come to on a server.

use std::time::{Duration, Instant};

use integration_tests::own_name;

use super::side::peer::Peer;
use super::side::{Client, Config, Connection, ErrorKind, address, at, config, server};

async fn connect(config: Config) -> Connection {
    Connection::connect(config).await.expect("a connection")
}

async fn value(client: &impl Client, expression: &str) -> String {
    let sql = format!("SELECT CAST({expression} AS CHAR)");
    let (value,): (String,) = client.query_one(sql, ()).await.expect("a value");
    value
}

#[tokio::test]
async fn options_of_the_session_hold_on_it_and_after_a_reset() {
    let options = "connectionCollation=utf8mb4_bin&sessionVariables=sql_mode='ANSI',%40word='kept'&timeZone=%2B02:00&connections=2";
    let url = format!("{}?{options}", server().await.expect("a server").url());
    let pool = super::side::Pool::builder(at(&url)).connect().await.expect("a pool");
    for _ in 0..3 {
        let session = pool.session().await.expect("a lease");
        assert_eq!(value(&session, "@@collation_connection").await, "utf8mb4_bin");
        assert!(value(&session, "@@sql_mode").await.contains("ANSI_QUOTES"));
        assert_eq!(value(&session, "@word").await, "kept");
        assert_eq!(value(&session, "@@time_zone").await, "+02:00");
        // What a user changes is undone, and the options are set again.
        session.batch_execute("SET sql_mode = ''; SET @word = 'lost'; SET NAMES latin1").await.expect("set");
    }
    pool.close().await;
}

#[tokio::test]
async fn an_option_file_leads_to_the_server() {
    let address = address().await;
    let folder = tempfile::tempdir().expect("a folder");
    let write = |name: &str, text: String| std::fs::write(folder.path().join(name), text).expect("written");
    write("more.cnf", "[client]\npassword = 'secret' # of all test servers\n".to_owned());
    write(
        "my.cnf",
        format!(
            "[mysqld]\nport = 1\n[client]\nuser = root\nhost = {}\nport = {}\nget-server-public-key\n!include {}\n",
            address.ip(),
            address.port(),
            folder.path().join("more.cnf").display()
        ),
    );
    let config = Config::new().option_file(folder.path().join("my.cnf")).expect("read").database("app");
    let connection = connect(config).await;
    assert_eq!(value(&connection, "SCHEMA()").await, "app");
    connection.close().await;
}

#[tokio::test]
async fn hosts_are_tried_in_turn_and_a_silent_one_leaves_time_to_the_others() {
    let silent = Peer::start(|mut talk, _| async move { talk.freeze().await }).await;
    let leaves = Peer::start(|_, _| async { Ok(()) }).await;
    // Bound and closed at once: nothing listens there.
    let closed = std::net::TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    let places = [closed.expect("a port").port(), leaves.port(), silent.port(), address().await.port()];
    let hosts = |ports: &[u16]| ports.iter().map(|port| ("127.0.0.1", *port)).collect::<Vec<_>>();
    let began = Instant::now();
    let config = config().await.connect_timeout(Duration::from_secs(6));
    let connection = connect(config.clone().hosts(hosts(&places))).await;
    assert_eq!(value(&connection, "1").await, "1");
    connection.close().await;
    assert!(began.elapsed() < Duration::from_secs(6) && silent.accepted() == 1 && leaves.accepted() == 1);
    // None of them: what the last one did is told.
    let error = Connection::connect(config.hosts(hosts(&places[..2]))).await.expect_err("nobody is there");
    assert_eq!(error.kind(), ErrorKind::Connect);
    assert!(error.to_string().contains(&format!("127.0.0.1:{}", leaves.port())), "{error}");
}

#[tokio::test]
async fn all_addresses_of_a_name_are_tried() {
    let port = address().await.port();
    // Where `localhost` has two addresses, the server listens at one of them only.
    let connection = connect(config().await.hosts([("localhost", port)])).await;
    assert_eq!(value(&connection, "1").await, "1");
    connection.close().await;
}

#[tokio::test]
async fn who_is_not_known_is_not_tried_elsewhere() {
    let next = Peer::start(|mut talk, _| async move { talk.freeze().await }).await;
    let hosts = [("127.0.0.1", address().await.port()), ("127.0.0.1", next.port())];
    let config = config().await.hosts(hosts).user(own_name("nobody")).password("wrong");
    let error = Connection::connect(config).await.expect_err("refused");
    assert_eq!((error.kind(), next.accepted()), (ErrorKind::Auth, 0), "{error}");
}
