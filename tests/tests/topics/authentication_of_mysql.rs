//! Logging in to MySQL: with a cold and a warm cache on the server, over TCP and over its socket, by each of its methods,
//! and in vain. MariaDB's methods are in `mariadb_of_mysql`.

use integration_tests::own_name;

use super::side::{Config, Connection, DatabaseError, Error, ErrorKind, Outcome, Pool, config, pool, server};

/// A user whom the server's cache does not know yet.
async fn new_user(pool: &Pool, topic: &str, identified: &str) -> String {
    let user = own_name(topic);
    pool.execute(format!("CREATE USER '{user}'@'%' IDENTIFIED {identified}"), ()).await.expect("a user");
    user
}

async fn log_in(config: Config) -> Result<String, Error> {
    let connection = Connection::connect(config).await?;
    let (user,): (String,) = connection.query_one("SELECT CURRENT_USER()", ()).await?;
    connection.close().await;
    Ok(user)
}

/// As somebody else, without a database and without leave to ask for the server's key.
async fn as_user(user: &str, password: &str) -> Config {
    config().await.database("").user(user).password(password).public_key_retrieval(false)
}

#[tokio::test]
async fn a_cold_cache_needs_the_servers_key_and_a_warm_one_does_not() {
    let pool = pool().await;
    let user = new_user(&pool, "cold", "BY 'sec''ret é'").await;
    let config = as_user(&user, "sec'ret é").await;

    let error = log_in(config.clone()).await.expect_err("the cache is cold");
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Auth, Outcome::NotSent));
    assert!(error.to_string().contains("allowPublicKeyRetrieval=true"), "{error}");

    let by_key = log_in(config.clone().public_key_retrieval(true)).await.expect("by key");
    assert_eq!(by_key, format!("{user}@%"));
    assert_eq!(log_in(config.clone()).await.expect("the cache is warm"), by_key);

    pool.execute("FLUSH PRIVILEGES", ()).await.expect("cold again");
    assert_eq!(log_in(config).await.expect_err("cold").kind(), ErrorKind::Auth);
    pool.execute(format!("DROP USER '{user}'@'%'"), ()).await.expect("dropped");
    pool.close().await;
}

#[cfg(unix)]
#[tokio::test]
async fn over_the_socket_the_password_itself_will_do() {
    let server = server().await.expect("a server");
    let Some(socket) = server.socket() else {
        // A server in a container has its socket there.
        return;
    };
    let pool = pool().await;
    let user = new_user(&pool, "socket", "BY 'secret'").await;
    let config = as_user(&user, "secret").await.socket(socket.display().to_string());
    assert_eq!(log_in(config.clone()).await.expect("in clear"), format!("{user}@%"));
    let wrong = log_in(config.password("wrong")).await.expect_err("wrong");
    assert_eq!(wrong.as_database().map(DatabaseError::number), Some(1045), "{wrong}");
    pool.execute(format!("DROP USER '{user}'@'%'"), ()).await.expect("dropped");
    pool.close().await;
}

#[tokio::test]
async fn who_is_not_let_in_is_told_why() {
    let pool = pool().await;
    let user = new_user(&pool, "refused", "BY 'secret'").await;
    let config = as_user(&user, "secret").await.public_key_retrieval(true);
    for (config, number, kind) in [
        (config.clone().password("wrong"), 1045, ErrorKind::Auth),
        (config.clone().password(""), 1045, ErrorKind::Auth),
        (super::side::config().await.database("no_such_database"), 1049, ErrorKind::Connect),
    ] {
        let error = log_in(config).await.expect_err("refused");
        assert_eq!((error.kind(), error.outcome()), (kind, Outcome::NotSent), "{error}");
        assert_eq!(error.as_database().map(DatabaseError::number), Some(number), "{error}");
        assert!(!format!("{error:?}").contains("secret"));
    }
    // To hide who exists, the server may ask somebody unknown for any method.
    let unknown = log_in(config.clone().user("nobody_at_all")).await.expect_err("unknown");
    assert_eq!((unknown.kind(), unknown.outcome()), (ErrorKind::Auth, Outcome::NotSent), "{unknown}");
    let pooled = Pool::builder(config.password("wrong")).connect().await.expect_err("refused");
    assert_eq!(pooled.kind(), ErrorKind::Auth);
    pool.execute(format!("DROP USER '{user}'@'%'"), ()).await.expect("dropped");
    pool.close().await;
}

#[tokio::test]
async fn a_user_without_a_password_is_let_in() {
    let pool = pool().await;
    let user = new_user(&pool, "open", "BY ''").await;
    assert_eq!(log_in(as_user(&user, "").await).await.expect("let in"), format!("{user}@%"));
    pool.execute(format!("DROP USER '{user}'@'%'"), ()).await.expect("dropped");
    pool.close().await;
}

#[tokio::test]
async fn sha256_takes_the_password_by_key_each_time() {
    let pool = pool().await;
    let user = new_user(&pool, "sha256", "WITH sha256_password BY 'sec''ret é'").await;
    let config = as_user(&user, "sec'ret é").await;
    let error = log_in(config.clone()).await.expect_err("not in clear");
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Auth, Outcome::NotSent));
    assert!(error.to_string().contains("sha256_password"), "{error}");
    for _ in 0..2 {
        log_in(config.clone().public_key_retrieval(true)).await.expect("by key");
    }
    let wrong = log_in(config.public_key_retrieval(true).password("wrong")).await.expect_err("wrong");
    assert_eq!(wrong.as_database().map(DatabaseError::number), Some(1045), "{wrong}");
    let open = new_user(&pool, "sha256_open", "WITH sha256_password BY ''").await;
    log_in(as_user(&open, "").await).await.expect("no password is needed");
    for user in [user, open] {
        pool.execute(format!("DROP USER '{user}'@'%'"), ()).await.expect("dropped");
    }
    pool.close().await;
}

#[tokio::test]
async fn a_pinned_key_will_do_and_another_servers_will_not() {
    let pool = pool().await;
    let folder = tempfile::tempdir().expect("a folder");
    for (method, status) in [
        ("caching_sha2_password", "Caching_sha2_password_rsa_public_key"),
        ("sha256_password", "Rsa_public_key"),
    ] {
        let user = new_user(&pool, "pinned", &format!("WITH {method} BY 'secret'")).await;
        let sql = "SELECT variable_value FROM performance_schema.global_status WHERE variable_name = ?";
        let (key,): (String,) = pool.query_one(sql, (status,)).await.expect("the server's key");
        let path = folder.path().join(method);
        let with = |path: &std::path::Path| path.to_str().expect("UTF-8").to_owned();
        std::fs::write(&path, key).expect("written");
        let config = as_user(&user, "secret").await.server_public_key_path(with(&path));

        // Of the same form, and nobody's.
        let other = folder.path().join("other");
        std::fs::write(&other, OTHER_KEY).expect("written");
        let refused = config.clone().server_public_key_path(with(&other));
        let error = log_in(refused).await.expect_err("the server cannot read it");
        assert_eq!((error.kind(), error.outcome()), (ErrorKind::Auth, Outcome::NotSent), "{error}");

        assert_eq!(log_in(config).await.expect("by key"), format!("{user}@%"));
        pool.execute(format!("DROP USER '{user}'@'%'"), ()).await.expect("dropped");
    }
    for path in ["/nowhere/key.pem", "/dev/null"] {
        let config = as_user("nobody", "secret").await.server_public_key_path(path);
        let error = log_in(config).await.expect_err("no key");
        assert_eq!((error.kind(), error.outcome()), (ErrorKind::Config, Outcome::NotSent), "{error}");
        assert!(error.to_string().contains("serverRSAPublicKeyFile"), "{error}");
    }
    pool.close().await;
}

#[tokio::test]
async fn an_expired_password_is_told_from_a_wrong_one() {
    let pool = pool().await;
    let user = new_user(&pool, "expired", "BY 'secret' PASSWORD EXPIRE").await;
    let config = as_user(&user, "secret").await.public_key_retrieval(true);
    for _ in 0..2 {
        let error = log_in(config.clone()).await.expect_err("expired");
        assert_eq!((error.kind(), error.outcome()), (ErrorKind::Auth, Outcome::NotSent), "{error}");
        assert_eq!(error.as_database().map(DatabaseError::number), Some(1862), "{error}");
        assert!(error.to_string().contains("ALTER USER"), "{error}");
    }
    let wrong = log_in(config.clone().password("wrong")).await.expect_err("wrong");
    assert_eq!(wrong.as_database().map(DatabaseError::number), Some(1045), "{wrong}");
    pool.execute(format!("ALTER USER '{user}'@'%' IDENTIFIED BY 'new'"), ()).await.expect("renewed");
    log_in(config.password("new")).await.expect("let in");
    pool.execute(format!("DROP USER '{user}'@'%'"), ()).await.expect("dropped");
    pool.close().await;
}

#[tokio::test]
async fn a_locked_account_is_told_from_a_wrong_password() {
    let pool = pool().await;
    let user = new_user(&pool, "locked", "BY 'secret' ACCOUNT LOCK").await;
    let error = log_in(as_user(&user, "secret").await.public_key_retrieval(true)).await.expect_err("locked");
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Auth, Outcome::NotSent), "{error}");
    assert_eq!(error.as_database().map(DatabaseError::number), Some(3118), "{error}");
    pool.execute(format!("DROP USER '{user}'@'%'"), ()).await.expect("dropped");
    pool.close().await;
}

#[cfg(unix)]
#[tokio::test]
async fn an_account_of_two_factors_lets_in_who_has_both() {
    let server = server().await.expect("a server");
    // A server in a container has its socket there, and does not know our operating system's user.
    let Some(socket) = server.socket() else { return };
    let pool = pool().await;
    // The second factor of a password's kind is in other editions only: here it is the operating system's user.
    let installed = pool.execute("INSTALL PLUGIN auth_socket SONAME 'auth_socket.so'", ()).await;
    if let Err(error) = installed {
        assert_eq!(error.as_database().map(DatabaseError::number), Some(1125), "there already: {error}");
    }
    let me = std::process::Command::new("id").arg("-un").output().expect("our name").stdout;
    let me = String::from_utf8(me).expect("a name").trim().to_owned();
    for (name, is_let_in) in [(&*me, true), ("somebody-else", false)] {
        let user = own_name("factors");
        let second = format!("IDENTIFIED WITH auth_socket AS '{name}'");
        pool.execute(format!("CREATE USER '{user}'@'%' IDENTIFIED BY 'secret' AND {second}"), ())
            .await
            .expect("a user");
        let config = as_user(&user, "secret").await.socket(socket.display().to_string());
        match log_in(config.clone()).await {
            Ok(in_as) => assert!(is_let_in && in_as == format!("{user}@%"), "{in_as}"),
            Err(error) => assert!(!is_let_in && error.kind() == ErrorKind::Auth, "{error}"),
        }
        assert_eq!(
            log_in(config.password("wrong")).await.expect_err("the first factor").kind(),
            ErrorKind::Auth
        );
        pool.execute(format!("DROP USER '{user}'@'%'"), ()).await.expect("dropped");
    }
    pool.close().await;
}

/// A public key to which nobody has the other half.
const OTHER_KEY: &str = "\
-----BEGIN PUBLIC KEY-----
MIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8AMIIBCgKCAQEA4imVq9fKzzygoaAdmaU8
IJH6iXPWoum/MfIGW7+U1o7tfqcZP4l/pPaxOEmrSo8q9gdXhIFUlhs1KTuLZja8
cxU+xIebVRB8iMa4rnKX9Vjo6lciXcMGUfQwnaslpeKdn1ZRpX+CpJEfJEj/xsFW
LNYvOIO3Q/Ipsj1yToJ443JNKUS9OAK2q3iJmKhGqLXlkv4cF+TZ0fKDXUaXGMMn
SpfDNR2t9keU9Qnla0uSK+NU6kn5nR8uj8YDpG+zSirBg3bI+ZT5jmLLAARpwYCd
2M7IJ9EH3Xwxx48TSmJn0zk5eWvZm7IMQaiRj8VQ23kYjoz/tWL4Kn2Fj34nA2RN
zQIDAQAB
-----END PUBLIC KEY-----
";
