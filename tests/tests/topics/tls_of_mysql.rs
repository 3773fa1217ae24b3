//! Encrypted connections: each mode, certificates, how a cold cache is warmed, and a pool's life over TLS; on MySQL, and on
//! MariaDB with the certificate that it makes itself.

use std::path::PathBuf;
use std::time::Duration;

use futures_util::future::{join_all, try_join_all};
use integration_tests::{eventually, own_name};

use super::side::peer::Peer;
use super::side::{
    CallOptions, Config, Connection, Error, ErrorKind, Outcome, Pool, SslMode, asleep, called, connections,
    idle, loopback, named_config, pool_of, server,
};

/// Without leave to ask for the server's key.
async fn config(mode: SslMode) -> Config {
    let config: Config = server().await.expect("a MySQL server").url().parse().expect("its URL");
    config.ssl_mode(mode)
}

async fn file(name: &str) -> PathBuf {
    let server = server().await.expect("a MySQL server");
    server.certificate_authority().expect("a server with certificates").with_file_name(name)
}

/// By which version of TLS, if any.
async fn version(config: Config) -> Result<Option<String>, Error> {
    let connection = Connection::connect(config).await?;
    let (_, version): (String, String) =
        connection.query_one("SHOW SESSION STATUS LIKE 'Ssl_version'", ()).await?;
    connection.close().await;
    Ok(Some(version).filter(|version| !version.is_empty()))
}

async fn encrypted(config: Config) -> bool {
    version(config).await.expect("let in").is_some()
}

#[tokio::test]
async fn each_mode_encrypts_where_it_says_so() {
    let authority = file("ca.crt").await;
    assert!(!encrypted(config(SslMode::Disabled).await.public_key_retrieval(true)).await);
    assert!(encrypted(config(SslMode::Preferred).await).await);
    assert!(encrypted(config(SslMode::Required).await).await);
    for mode in [SslMode::VerifyCa, SslMode::VerifyIdentity] {
        assert!(encrypted(config(mode).await.ssl_ca(&authority)).await, "{mode:?}");
    }
    for versions in ["TLSv1.2", "TLSv1.3"] {
        let config = config(SslMode::Required).await.option("tls-version", versions).expect("an option");
        assert_eq!(version(config).await.expect("let in").as_deref(), Some(versions));
    }
    // A Unix socket is never encrypted, whatever is asked for.
    if let Some(socket) = server().await.expect("a server").socket() {
        let unix = config(SslMode::VerifyIdentity).await.socket(socket.to_str().expect("UTF-8"));
        assert!(!encrypted(unix).await);
    }
}

#[tokio::test]
async fn a_certificate_is_verified_as_far_as_the_mode_says() {
    let (authority, other) = (file("ca.crt").await, file("client.crt").await);
    // An address that its certificate does not name.
    let elsewhere = |config: Config| config.host("127.0.0.2");
    assert!(encrypted(config(SslMode::VerifyIdentity).await.ssl_ca(&authority).host("localhost")).await);
    for mode in [SslMode::VerifyCa, SslMode::VerifyIdentity] {
        let error = version(config(mode).await.ssl_ca(&other)).await.expect_err("another authority");
        assert_eq!((error.kind(), error.outcome()), (ErrorKind::Tls, Outcome::NotSent), "{mode:?}");
        // Nobody whom the system trusts, and no MariaDB.
        let error = version(config(mode).await).await.expect_err("not the system's");
        assert!(error.kind() == ErrorKind::Tls && error.to_string().contains("system"), "{error}");
    }
    let missing =
        version(config(SslMode::VerifyCa).await.ssl_ca("/no/such/file")).await.expect_err("no file");
    assert!(missing.to_string().contains("/no/such/file"), "{missing}");
    let full = elsewhere(config(SslMode::VerifyIdentity).await.ssl_ca(&authority));
    match version(full).await {
        Err(error) if error.kind() == ErrorKind::Tls => {
            assert!(error.to_string().contains("is for another host"), "{error}");
        }
        // It listens on one address only.
        other => assert_eq!(other.expect_err("another host's").kind(), ErrorKind::Connect),
    }
}

#[tokio::test]
async fn a_cold_cache_is_warmed_over_tls() {
    let user = own_name("cold");
    let admin = pool_of(1).await;
    for plugin in ["caching_sha2_password", "sha256_password"] {
        let sql = format!("CREATE USER '{user}'@'%' IDENTIFIED WITH {plugin} BY 'secret' REQUIRE SSL");
        if let Err(error) = admin.execute(sql, ()).await {
            assert!(plugin == "sha256_password", "{error}");
            continue;
        }
        let own = config(SslMode::Preferred).await.database("").user(&user).password("secret");
        // Cold, then warm.
        assert!(encrypted(own.clone()).await && encrypted(own.clone()).await, "{plugin}");
        let error = version(own.clone().ssl_mode(SslMode::Disabled).public_key_retrieval(true)).await;
        assert_eq!(error.expect_err("the user is let in over TLS only").kind(), ErrorKind::Auth, "{plugin}");
        let error = version(own.password("wrong")).await.expect_err("a wrong password");
        assert_eq!(error.kind(), ErrorKind::Auth, "{plugin}: {error}");
        admin.execute(format!("DROP USER '{user}'@'%'"), ()).await.expect("dropped");
    }
    admin.close().await;
}

#[tokio::test]
async fn a_certificate_of_ours_lets_us_in() {
    let user = own_name("cert");
    let admin = pool_of(1).await;
    admin
        .execute(
            format!("CREATE USER '{user}'@'%' IDENTIFIED BY 'secret' REQUIRE SUBJECT '/CN=cert_user'"),
            (),
        )
        .await
        .expect("a user");
    let own = config(SslMode::Required).await.database("").user(&user).password("secret");
    let (certificate, key) = (file("client.crt").await, file("client.key").await);
    assert!(encrypted(own.clone().ssl_cert(certificate, key)).await);
    assert_eq!(version(own).await.expect_err("no certificate").kind(), ErrorKind::Auth);
    admin.execute(format!("DROP USER '{user}'@'%'"), ()).await.expect("dropped");
    admin.close().await;
}

#[tokio::test]
async fn a_pool_lives_over_tls_as_without() {
    let name = own_name("tls");
    let secure = named_config(&name).await.ssl_mode(SslMode::VerifyIdentity).ssl_ca(file("ca.crt").await);
    let pool = Pool::builder(secure).connections(4).connect().await.expect("a pool");
    let other = pool_of(1).await;
    let ask = |id: i64| {
        let pool = &pool;
        async move {
            let padding = if id % 100 == 0 { 1_000_000 } else { 10 };
            let text = "x".repeat(padding);
            let row: (i64, String) = pool.query_one("SELECT ?, ?", (id, &text)).await?;
            assert!(row == (id, text));
            Ok::<_, Error>(())
        }
    };
    try_join_all((0..2_000).map(ask)).await.expect("each its own");
    // The server is told to stop, by another encrypted connection to the host that the certificate names.
    let brief = CallOptions::new().timeout(Duration::from_millis(500));
    let error = pool.with(brief).query_one::<(i64,)>("SELECT SLEEP(60)", ()).await.expect_err("too long");
    assert_eq!(error.kind(), ErrorKind::Timeout);
    eventually("the server has stopped", || async { asleep(&other, &name).await == 0 }).await;
    let session = pool.session().await.expect("a session");
    let (_, version): (String, String) =
        session.query_one("SHOW SESSION STATUS LIKE 'Ssl_version'", ()).await.expect("a row");
    assert!(version.starts_with("TLS"), "{version}");
    drop(session);
    // Connections that are ended are made anew.
    let sql = "SELECT id FROM performance_schema.processlist WHERE user = ?";
    let ids: Vec<(u64,)> = other.query(sql, (&name,)).await.expect("numbers");
    for (id,) in ids {
        let _ = other.execute(format!("KILL {id}"), ()).await;
    }
    let again = pool.with(CallOptions::new().idempotent());
    for answer in join_all((0..200_i64).map(|id| again.query_one::<(i64,)>("SELECT ?", (id,)))).await {
        if let Err(error) = answer {
            assert!(matches!(error.kind(), ErrorKind::Io | ErrorKind::Connect), "{error}");
        }
    }
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
    for mode in [SslMode::Disabled, SslMode::Preferred] {
        let connection = Connection::connect(plain.clone().ssl_mode(mode)).await;
        connection.unwrap_or_else(|error| panic!("{mode:?}: {error}")).close().await;
    }
    for mode in [SslMode::Required, SslMode::VerifyCa, SslMode::VerifyIdentity] {
        let error = Connection::connect(plain.clone().ssl_mode(mode)).await.map(|_| ()).expect_err("no TLS");
        assert!(error.kind() == ErrorKind::Tls && error.to_string().contains(mode.as_str()), "{error}");
    }
}

#[tokio::test]
async fn mariadb_proves_by_the_password_that_a_certificate_is_its_own() {
    let url = test_servers::mariadb().await.expect("a MariaDB server").url().to_owned();
    let admin: Config = url.parse().expect("its URL");
    assert!(encrypted(admin.clone().ssl_mode(SslMode::Required)).await);
    let pool = Pool::builder(admin.clone()).connections(1).connect().await.expect("a pool");
    for method in ["mysql_native_password", "ed25519", "parsec"] {
        let user = own_name("proof");
        pool.execute(
            format!("CREATE USER '{user}'@'%' IDENTIFIED VIA {method} USING PASSWORD('secret')"),
            (),
        )
        .await
        .expect("a user");
        let own = called(admin.clone().database(""), &user);
        for mode in [SslMode::VerifyCa, SslMode::VerifyIdentity] {
            assert!(encrypted(own.clone().ssl_mode(mode)).await, "{method} {mode:?}");
            let error =
                version(own.clone().ssl_mode(mode).password("wrong")).await.expect_err("a wrong password");
            assert_eq!(error.kind(), ErrorKind::Auth, "{method}: {error}");
        }
        pool.execute(format!("DROP USER '{user}'@'%'"), ()).await.expect("dropped");
    }
    // Without a password there is nothing to prove it by.
    let user = own_name("proof");
    pool.execute(format!("CREATE USER '{user}'@'%'"), ()).await.expect("a user");
    let open = admin.database("").user(&user).password("");
    let error = version(open.clone().ssl_mode(SslMode::VerifyIdentity)).await.expect_err("unproven");
    assert!(error.kind() == ErrorKind::Tls && error.to_string().contains("ssl-ca"), "{error}");
    assert!(encrypted(open.ssl_mode(SslMode::Required)).await);
    pool.execute(format!("DROP USER '{user}'@'%'"), ()).await.expect("dropped");
    pool.close().await;
}
