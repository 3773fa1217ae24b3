//! Logging in to MySQL: with a cold and a warm cache on the server, over TCP and over its socket, and in vain.

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
async fn methods_that_are_not_offered_are_named() {
    let pool = pool().await;
    let user = new_user(&pool, "sha256", "WITH sha256_password BY 'secret'").await;
    let error = log_in(as_user(&user, "secret").await).await.expect_err("not offered");
    assert_eq!(error.kind(), ErrorKind::Auth);
    assert!(error.to_string().contains("sha256_password"), "{error}");
    pool.execute(format!("DROP USER '{user}'@'%'"), ()).await.expect("dropped");
    pool.close().await;
}
