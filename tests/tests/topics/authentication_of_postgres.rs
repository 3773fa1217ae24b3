//! Every way of logging in to PostgreSQL, over TCP and over the unix socket.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use test_servers::TEST_ROLES;

use super::side::{Config, Connection, DatabaseError, ErrorKind, Outcome, Pool, all_shared, server};

async fn config(user: &str, password: &str) -> Config {
    let server = server().await.expect("a server");
    server.url_for(user, password).parse().expect("a URL")
}

/// The same over the unix socket, where the server has one.
async fn unix_config(user: &str, password: &str) -> Option<Config> {
    let server = server().await.expect("a server");
    let directory = server.socket_dir()?.to_str()?.to_owned();
    Some(config(user, password).await.host(directory))
}

async fn logged_in_as(config: Config, user: &str) {
    let pool = Pool::builder(config)
        .connections(2)
        .connect()
        .await
        .unwrap_or_else(|error| panic!("{user}: {error}"));
    let (name,): (String,) = pool.query_one("SELECT current_user::text", ()).await.expect("a name");
    assert_eq!(name, user);
    all_shared(&pool).await;
    pool.close().await;
}

#[tokio::test]
async fn each_role_logs_in_its_own_way_over_tcp() {
    for (user, password) in TEST_ROLES {
        logged_in_as(config(user, password).await, user).await;
    }
}

#[tokio::test]
async fn each_role_logs_in_its_own_way_over_the_unix_socket() {
    for (user, password) in TEST_ROLES {
        let Some(config) = unix_config(user, password).await else { return };
        // TLS does not concern unix sockets.
        logged_in_as(config.clone().option("sslmode", "require").expect("an option"), user).await;
        logged_in_as(config, user).await;
    }
}

#[tokio::test]
async fn a_wrong_password_is_refused_in_every_way() {
    for (user, _) in &TEST_ROLES[1..] {
        for password in ["wrong", "Secret", "secret ", "sécret"] {
            let over_tcp = Some(config(user, password).await);
            for config in [over_tcp, unix_config(user, password).await].into_iter().flatten() {
                let error = Connection::connect(config).await.expect_err("a wrong password");
                assert_eq!(
                    (error.kind(), error.outcome()),
                    (ErrorKind::Auth, Outcome::NotSent),
                    "{user}: {error}"
                );
                assert_eq!(error.sqlstate(), Some("28P01"), "{user}: {error}");
                assert!(!error.is_retryable());
            }
        }
        let error = Connection::connect(config(user, "").await).await.expect_err("no password");
        assert_eq!((error.kind(), error.outcome()), (ErrorKind::Auth, Outcome::NotSent));
        assert!(error.to_string().contains("set `password`"), "{error}");
    }
}

#[tokio::test]
async fn a_password_for_scram_is_normalised() {
    // SASLprep: the long s is compatible with the short one.
    logged_in_as(config("scram_user", "\u{17f}ecret").await, "scram_user").await;
}

#[tokio::test]
async fn only_ways_that_the_user_accepts_are_taken() {
    let cases = [
        ("trust_user", "none", true),
        ("trust_user", "!none", false),
        ("trust_user", "scram-sha-256", false),
        ("password_user", "password", true),
        ("password_user", "!password,!md5", false),
        ("md5_user", "md5,scram-sha-256", true),
        ("md5_user", "scram-sha-256", false),
        ("scram_user", "scram-sha-256", true),
        ("scram_user", "!scram-sha-256", false),
    ];
    for (user, ways, accepted) in cases {
        let config = config(user, "secret").await.option("require_auth", ways).expect("a list");
        match Connection::connect(config).await {
            Ok(connection) => {
                assert!(accepted, "{user} {ways}");
                connection.close().await;
            }
            Err(error) => {
                assert!(!accepted, "{user} {ways}: {error}");
                assert_eq!((error.kind(), error.outcome()), (ErrorKind::Auth, Outcome::NotSent));
                assert!(error.to_string().contains("`require_auth`"), "{error}");
            }
        }
    }
}

#[tokio::test]
async fn a_provider_is_asked_for_every_connection_that_needs_a_password() {
    for (user, password) in TEST_ROLES {
        let asked = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&asked);
        let config = config(user, "not this one").await.password_provider(move || {
            count.fetch_add(1, Ordering::Relaxed);
            async move {
                tokio::task::yield_now().await;
                Ok(password.to_owned())
            }
        });
        let pool = Pool::builder(config).connections(3).connect().await.expect("a pool");
        all_shared(&pool).await;
        assert_eq!(asked.load(Ordering::Relaxed), if password.is_empty() { 0 } else { 3 }, "{user}");
        pool.close().await;
    }
}

#[tokio::test]
async fn passwords_with_every_character_work_as_keywords_too() {
    let (admin, role) = (super::side::pool().await, integration_tests::own_name("odd"));
    let password = r"p@:/?#[]%$ {+é&='\";
    let quoted = password.replace('\'', "''");
    admin.execute(format!("CREATE ROLE {role} LOGIN PASSWORD '{quoted}'"), ()).await.expect("a role");
    let server = server().await.expect("a server");
    let place: Vec<&str> = server.url().rsplit('@').next().expect("a place").split([':', '/']).collect();
    let escaped = password.replace('\\', r"\\").replace('\'', r"\'");
    let words =
        format!("host={} port={} dbname={} user={role} password='{escaped}'", place[0], place[1], place[2]);
    logged_in_as(words.parse().expect("key=value"), &role).await;
    admin.execute(format!("DROP ROLE {role}"), ()).await.expect("dropped");
    admin.close().await;
}

/// A server on a Unix socket that asks each of `clients` for a token, and takes this one only; what it was told.
#[cfg(unix)]
async fn wants_token(
    listener: tokio::net::UnixListener,
    good: &str,
    clients: usize,
) -> std::io::Result<Vec<String>> {
    use super::side::peer::{greeting, message, refusal};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    let mut told = Vec::new();
    for _ in 0..clients {
        let (mut socket, _) = listener.accept().await?;
        let length = socket.read_u32().await? as usize;
        socket.read_exact(&mut vec![0; length - 4]).await?;
        socket.write_all(&message(b'R', b"\0\0\0\x0aOAUTHBEARER\0\0")).await?;
        assert_eq!(socket.read_u8().await?, b'p');
        let length = socket.read_u32().await? as usize;
        let mut answer = vec![0; length - 4];
        socket.read_exact(&mut answer).await?;
        let first = answer.strip_prefix(b"OAUTHBEARER\0").expect("the mechanism");
        let (length, first) = first.split_first_chunk::<4>().expect("a length");
        assert_eq!(u32::from_be_bytes(*length) as usize, first.len());
        let first = String::from_utf8(first.to_vec()).expect("a text");
        if first == format!("n,,\x01auth=Bearer {good}\x01\x01") {
            socket.write_all(&greeting()).await?;
        } else {
            let why = b"\0\0\0\x0b{\"status\":\"invalid_token\",\"scope\":\"db\"}";
            socket.write_all(&message(b'R', why)).await?;
            let mut empty = [0; 6];
            socket.read_exact(&mut empty).await?;
            assert_eq!(&empty, b"p\0\0\0\x05\x01");
            socket.write_all(&refusal("FATAL", "28000")).await?;
        }
        told.push(first);
        socket.read_to_end(&mut Vec::new()).await?;
    }
    Ok(told)
}

#[cfg(unix)]
#[tokio::test]
async fn a_token_is_asked_for_anew_and_one_that_is_refused_is_the_servers_error() {
    let folder = tempfile::tempdir().expect("a folder");
    let listener = tokio::net::UnixListener::bind(folder.path().join(".s.PGSQL.5432")).expect("a socket");
    let asked = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&asked);
    let config = Config::new()
        .host(folder.path().to_str().expect("UTF-8"))
        .user("app")
        .connect_timeout(std::time::Duration::from_secs(30));
    let with_tokens = config.clone().oauth_token_provider(move || {
        let token = if counter.fetch_add(1, Ordering::SeqCst) == 0 { "stale.token" } else { "good.token" };
        async move { Ok(token.to_owned()) }
    });
    let clients = async {
        let error = Connection::connect(with_tokens.clone()).await.map(|_| ()).expect_err("a stale token");
        assert_eq!((error.kind(), error.outcome()), (ErrorKind::Auth, Outcome::NotSent), "{error}");
        assert_eq!(error.as_database().map(DatabaseError::code), Some("28000"));
        assert!(!error.to_string().contains("stale.token"), "{error}");
        Connection::connect(with_tokens).await.expect("the next token").close().await;
        // Methods that the user does not accept are not answered.
        let other = config.option("require_auth", "scram-sha-256").expect("an option");
        let error = Connection::connect(other).await.map(|_| ()).expect_err("not accepted");
        assert_eq!(error.kind(), ErrorKind::Auth, "{error}");
    };
    let (told, ()) = tokio::join!(wants_token(listener, "good.token", 3), clients);
    assert_eq!(
        told.expect_err("the last one goes without an answer").kind(),
        std::io::ErrorKind::UnexpectedEof
    );
    assert_eq!(asked.load(Ordering::SeqCst), 2, "once for each connection");
}
