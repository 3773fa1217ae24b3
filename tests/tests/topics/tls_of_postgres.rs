//! Encrypted connections: each mode, certificates, channel binding, and a pool's life over TLS.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::time::Duration;

use futures_util::future::{join_all, try_join_all};
use integration_tests::{eventually, own_name};

use super::side::peer::Peer;
use super::side::{
    CallOptions, ChannelBinding, Config, Connection, DatabaseError, Error, ErrorKind, Outcome, Pool, SslMode,
    SslNegotiation, asleep, at, connections, idle, loopback, pool, pool_of, server,
};

async fn config(mode: SslMode) -> Config {
    at(server().await.expect("a PostgreSQL server").url()).sslmode(mode)
}

/// The authority's file, or one beside it.
async fn file(name: &str) -> PathBuf {
    let server = server().await.expect("a PostgreSQL server");
    server.certificate_authority().expect("a server with certificates").with_file_name(name)
}

/// Who is logged in, and how: without TLS, or by which version.
async fn log_in(config: Config) -> Result<(String, Option<String>), Error> {
    let connection = Connection::connect(config).await?;
    let sql = "SELECT current_user::text, version FROM pg_stat_ssl WHERE pid = pg_backend_pid()";
    let row = connection.query_one(sql, ()).await?;
    connection.close().await;
    Ok(row)
}

async fn encrypted(config: Config) -> bool {
    log_in(config).await.expect("let in").1.is_some()
}

#[tokio::test]
async fn each_mode_encrypts_where_it_says_so() {
    for (mode, is_encrypted) in [
        (SslMode::Disable, false),
        (SslMode::Allow, false),
        (SslMode::Prefer, true),
        (SslMode::Require, true),
    ] {
        assert_eq!(encrypted(config(mode).await).await, is_encrypted, "{mode:?}");
    }
    let authority = file("ca.crt").await;
    for mode in [SslMode::Require, SslMode::VerifyCa, SslMode::VerifyFull] {
        assert!(encrypted(config(mode).await.sslrootcert(&authority)).await, "{mode:?}");
    }
    // Whom the server lets in over TLS only, or without TLS only.
    for (user, mode, is_encrypted) in [
        ("tls_user", SslMode::Allow, true),
        ("tls_user", SslMode::Prefer, true),
        ("plain_user", SslMode::Allow, false),
        ("plain_user", SslMode::Prefer, false),
    ] {
        let (name, version) = log_in(config(mode).await.user(user)).await.expect(user);
        assert_eq!((name.as_str(), version.is_some()), (user, is_encrypted), "{mode:?}");
    }
    for (user, mode) in [("tls_user", SslMode::Disable), ("plain_user", SslMode::Require)] {
        let error = log_in(config(mode).await.user(user)).await.expect_err(user);
        assert_eq!((error.kind(), error.outcome()), (ErrorKind::Auth, Outcome::NotSent), "{error}");
        assert_eq!(error.as_database().map(DatabaseError::code), Some("28000"));
    }
    // A Unix socket is never encrypted, whatever is asked for.
    if let Some(folder) = server().await.expect("a server").socket_dir() {
        let unix = config(SslMode::VerifyFull).await.host(folder.to_str().expect("UTF-8"));
        assert!(!encrypted(unix).await);
    }
}

#[tokio::test]
async fn a_certificate_is_verified_as_far_as_the_mode_says() {
    let authority = file("ca.crt").await;
    let other = file("client.crt").await;
    let here = IpAddr::V4(Ipv4Addr::LOCALHOST);
    // The name counts, not the address that was looked up.
    let elsewhere = |config: Config| config.host("other.internal").hostaddr(here);
    assert!(encrypted(elsewhere(config(SslMode::Require).await)).await);
    assert!(encrypted(elsewhere(config(SslMode::VerifyCa).await.sslrootcert(&authority))).await);
    let full = config(SslMode::VerifyFull).await.sslrootcert(&authority);
    assert!(encrypted(full.clone().host("localhost").hostaddr(here)).await);
    let error = log_in(elsewhere(full.clone())).await.expect_err("another host's");
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Tls, Outcome::NotSent));
    assert!(error.to_string().contains("is for another host"), "{error}");
    for mode in [SslMode::Require, SslMode::VerifyCa, SslMode::VerifyFull] {
        let error = log_in(config(mode).await.sslrootcert(&other)).await.expect_err("another authority");
        assert_eq!(error.kind(), ErrorKind::Tls, "{mode:?}");
    }
    let error =
        log_in(config(SslMode::VerifyFull).await.sslrootcert("system")).await.expect_err("not the system's");
    assert!(error.to_string().contains("system"), "{error}");
    // A pool says so as well, and at once.
    let error =
        Pool::builder(elsewhere(full)).connections(2).connect().await.map(|_| ()).expect_err("no pool");
    assert_eq!(error.kind(), ErrorKind::Tls);
}

#[tokio::test]
async fn tls_comes_first_where_the_server_can() {
    let direct = config(SslMode::Require).await.sslnegotiation(SslNegotiation::Direct);
    assert!(encrypted(direct.clone()).await);
    let full = direct.sslmode(SslMode::VerifyFull).sslrootcert(file("ca.crt").await);
    for (oldest, newest, version) in [("TLSv1.2", "TLSv1.2", "TLSv1.2"), ("TLSv1.2", "TLSv1.3", "TLSv1.3")] {
        let config = full.clone().option("ssl_min_protocol_version", oldest).expect("an option");
        let config = config.option("ssl_max_protocol_version", newest).expect("an option");
        assert_eq!(log_in(config).await.expect("let in").1.as_deref(), Some(version));
    }
}

#[tokio::test]
async fn a_password_is_proven_over_this_very_channel() {
    let over = |mode, binding| async move { config(mode).await.user("scram_user").channel_binding(binding) };
    for binding in [ChannelBinding::Disable, ChannelBinding::Prefer, ChannelBinding::Require] {
        log_in(over(SslMode::Require, binding).await)
            .await
            .unwrap_or_else(|error| panic!("{binding:?}: {error}"));
    }
    // Nothing weaker will do where it is required.
    let error = log_in(over(SslMode::Disable, ChannelBinding::Require).await).await.expect_err("without TLS");
    assert!(error.kind() == ErrorKind::Auth && error.to_string().contains("sslmode=require"), "{error}");
    for user in ["trust_user", "password_user", "md5_user"] {
        let error =
            log_in(over(SslMode::Require, ChannelBinding::Require).await.user(user)).await.expect_err(user);
        assert!(
            error.kind() == ErrorKind::Auth && error.to_string().contains("channel_binding=require"),
            "{error}"
        );
    }
}

#[tokio::test]
async fn a_certificate_of_ours_lets_us_in() {
    let authority = file("ca.crt").await;
    let own = config(SslMode::VerifyFull).await.sslrootcert(authority).user("cert_user").password("");
    let (certificate, key) = (file("client.crt").await, file("client.key").await);
    let (name, _) = log_in(own.clone().sslcert(&certificate, &key)).await.expect("our certificate");
    assert_eq!(name, "cert_user");
    let error = log_in(own.clone()).await.expect_err("no certificate");
    assert_eq!(error.kind(), ErrorKind::Auth, "{error}");
    let hidden = own.clone().sslcert(&certificate, &key).option("sslcertmode", "disable").expect("an option");
    assert_eq!(log_in(hidden).await.expect_err("not shown").kind(), ErrorKind::Auth);
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().expect("a folder");
        let copy = folder.path().join("open.key");
        std::fs::copy(&key, &copy).expect("copied");
        std::fs::set_permissions(&copy, std::fs::Permissions::from_mode(0o644)).expect("set");
        let error = log_in(own.sslcert(&certificate, &copy)).await.expect_err("others may read it");
        assert!(error.kind() == ErrorKind::Tls && error.to_string().contains("0600"), "{error}");
    }
}

#[tokio::test]
async fn a_pool_lives_over_tls_as_without() {
    let name = own_name("tls");
    let authority = file("ca.crt").await;
    let secure = config(SslMode::VerifyFull).await.sslrootcert(authority).application_name(&name);
    let pool = Pool::builder(secure).connections(4).connect().await.expect("a pool");
    let other = pool_of(1).await;
    // Many at once, small and large in both directions.
    let ask = |id: i32| {
        let pool = &pool;
        async move {
            let padding = if id % 100 == 0 { 1_000_000 } else { 10 };
            let text = "x".repeat(padding);
            let row: (i32, String) = pool.query_one("SELECT $1::int4, $2::text", (id, &text)).await?;
            assert!(row == (id, text));
            Ok::<_, Error>(())
        }
    };
    try_join_all((0..2_000).map(ask)).await.expect("each its own");
    let sql = "SELECT count(*) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE application_name = $1 AND ssl";
    let (count,): (i64,) = other.query_one(sql, (&name,)).await.expect("a count");
    assert!((1..=4).contains(&count), "{count}");
    // The server is told to stop, over TLS as well.
    let brief = CallOptions::new().timeout(Duration::from_millis(200));
    let error = pool.with(brief).execute("SELECT pg_sleep(60)", ()).await.expect_err("too long");
    assert_eq!(error.kind(), ErrorKind::Timeout);
    eventually("the server has stopped", || async { asleep(&other, &name).await == 0 }).await;
    // Connections that are ended are made anew.
    let end = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = $1";
    let (ended,): (i64,) = other.query_one(end, (&name,)).await.expect("ended");
    assert!(ended >= 1);
    let again = pool.with(CallOptions::new().idempotent());
    let answers = join_all((0..200).map(|id| again.query_one::<(i32,)>("SELECT $1::int4", (id,)))).await;
    for (id, answer) in answers.into_iter().enumerate() {
        match answer {
            Ok((same,)) => assert_eq!(usize::try_from(same), Ok(id)),
            Err(error) => assert!(matches!(error.kind(), ErrorKind::Io | ErrorKind::Connect), "{error}"),
        }
    }
    let tx = pool.begin().await.expect("a transaction");
    let (one,): (i32,) = tx.query_one("SELECT 1", ()).await.expect("a row");
    tx.commit().await.expect("committed");
    assert_eq!(one, 1);
    idle(&pool).await;
    pool.close().await;
    eventually("none is left", || async { connections(&other, &name).await == 0 }).await;
    other.close().await;
}

#[tokio::test]
async fn a_server_without_tls_is_taken_or_not_as_the_mode_says() {
    let peer = Peer::start(|mut talk, _| async move {
        talk.greet().await?;
        talk.serve().await
    });
    let peer = peer.await;
    let plain = loopback(peer.port());
    for mode in [SslMode::Disable, SslMode::Allow, SslMode::Prefer] {
        let connection = Connection::connect(plain.clone().sslmode(mode)).await;
        connection.unwrap_or_else(|error| panic!("{mode:?}: {error}")).close().await;
    }
    for mode in [SslMode::Require, SslMode::VerifyCa, SslMode::VerifyFull] {
        let error = Connection::connect(plain.clone().sslmode(mode)).await.map(|_| ()).expect_err("no TLS");
        assert!(
            error.kind() == ErrorKind::Tls && error.to_string().contains("does not offer TLS"),
            "{error}"
        );
    }
}

/// A peer that hears the question for TLS and says these bytes; whether we are let in, and what it heard behind them.
async fn says(answer: &'static [u8], mode: SslMode) -> (Result<(), Error>, Vec<u8>) {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("its address").port();
    let peer = async {
        let (mut socket, _) = listener.accept().await?;
        let mut question = [0; 8];
        socket.read_exact(&mut question).await?;
        assert_eq!(question, [0, 0, 0, 8, 4, 210, 22, 47]);
        socket.write_all(answer).await?;
        socket.shutdown().await?;
        let mut heard = Vec::new();
        socket.read_to_end(&mut heard).await?;
        Ok::<_, io::Error>(heard)
    };
    let config = loopback(port).password("hunter2").sslmode(mode).connect_timeout(Duration::from_secs(5));
    let (result, heard) = tokio::join!(Connection::connect(config), peer);
    (result.map(|_| ()), heard.unwrap_or_default())
}

#[tokio::test]
async fn nothing_that_comes_ahead_of_tls_is_believed() {
    let cases: [(&[u8], &str); 6] = [
        // A login that is already over, and a demand for the password.
        (b"SR\0\0\0\x08\0\0\0\0Z\0\0\0\x05I", "before the connection was encrypted"),
        (b"SR\0\0\0\x08\0\0\0\x03", "before the connection was encrypted"),
        (b"NR\0\0\0\x08\0\0\0\x03", "before the connection was encrypted"),
        (b"ESERROR\0C28000\0Mtrust me\0\0", "with an error"),
        (b"H", "does not speak PostgreSQL's protocol"),
        (b"", "closed the connection"),
    ];
    for (answer, words) in cases {
        let (result, heard) = says(answer, SslMode::Require).await;
        let error = result.expect_err(words);
        assert!(error.to_string().contains(words), "{error}");
        assert!(!error.to_string().contains("trust me"), "{error}");
        assert_eq!(heard, b"", "nothing is said any more: {words}");
    }
    // Nor is anything said in clear where TLS is only preferred.
    let (result, heard) = says(b"SR\0\0\0\x08\0\0\0\x03", SslMode::Prefer).await;
    assert_eq!((result.expect_err("stuffed").kind(), heard), (ErrorKind::Protocol, Vec::new()));
    // Who says no is told nothing either.
    let (result, heard) = says(b"N", SslMode::Require).await;
    assert_eq!(result.expect_err("no TLS").kind(), ErrorKind::Tls);
    assert_eq!(heard, b"");
}

#[tokio::test]
async fn longer_keys_of_protocol_3_2_cancel_too() {
    let name = own_name("newer");
    let newer = config(SslMode::Require).await.application_name(&name);
    let newer = newer.option("min_protocol_version", "3.2").expect("an option");
    let newer = newer.option("max_protocol_version", "latest").expect("an option");
    let other = pool().await;
    let version: Option<(String,)> = other.query_opt("SHOW server_version_num", ()).await.expect("a row");
    let is_18 =
        version.is_some_and(|(version,)| version.parse::<i32>().is_ok_and(|version| version >= 180_000));
    let pool = match Pool::builder(newer).connections(2).connect().await {
        Ok(pool) => pool,
        Err(error) => {
            assert!(!is_18 && error.to_string().contains("min_protocol_version"), "{error}");
            return;
        }
    };
    let brief = CallOptions::new().timeout(Duration::from_millis(200));
    let error = pool.with(brief).execute("SELECT pg_sleep(60)", ()).await.expect_err("too long");
    assert_eq!(error.kind(), ErrorKind::Timeout);
    eventually("the server has stopped", || async { asleep(&other, &name).await == 0 }).await;
    pool.close().await;
    other.close().await;
}
