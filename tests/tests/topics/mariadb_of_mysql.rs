//! Logging in to MariaDB by each of its methods, and the life of a pool there.

use integration_tests::own_name;

use super::side::{Config, Connection, DatabaseError, Error, ErrorKind, Outcome, Pool, SslMode};

/// Accounts of each method: `VIA` what, and what MariaDB calls the password there.
const METHODS: [&str; 3] = ["mysql_native_password", "ed25519", "parsec"];

async fn config() -> Config {
    test_servers::mariadb().await.expect("a MariaDB server").url().parse().expect("its URL")
}

async fn admin() -> Pool {
    Pool::builder(config().await).connections(1).connect().await.expect("a pool")
}

/// A user whose methods are tried in turn.
async fn new_user(pool: &Pool, topic: &str, methods: &[&str], password: &str) -> String {
    let user = own_name(topic);
    let quoted = password.replace('\\', "\\\\").replace('\'', "''");
    let via = methods.iter().map(|method| format!("{method} USING PASSWORD('{quoted}')"));
    let via = via.collect::<Vec<_>>().join(" OR ");
    pool.execute(format!("CREATE USER '{user}'@'%' IDENTIFIED VIA {via}"), ()).await.expect("a user");
    user
}

async fn drop_user(pool: &Pool, user: &str) {
    pool.execute(format!("DROP USER '{user}'@'%'"), ()).await.expect("dropped");
}

/// Without TLS: over it MariaDB 11.8.9 closes the connection when `parsec` fails and `mysql_native_password` succeeds.
async fn as_user(user: &str, password: &str) -> Config {
    config().await.ssl_mode(SslMode::Disabled).database("").user(user).password(password)
}

async fn log_in(config: Config) -> Result<String, Error> {
    let connection = Connection::connect(config).await?;
    let (user,): (String,) = connection.query_one("SELECT CURRENT_USER()", ()).await?;
    connection.close().await;
    Ok(user)
}

#[tokio::test]
async fn each_method_lets_in_who_knows_the_password() {
    let pool = admin().await;
    for method in METHODS {
        for password in ["secret", "p@:/?#[]%$ {+é&='\\", &"x".repeat(300)] {
            let user = new_user(&pool, "method", &[method], password).await;
            let name = log_in(as_user(&user, password).await).await;
            let name = name.unwrap_or_else(|error| panic!("{method}: {error}"));
            assert_eq!(name, format!("{user}@%"), "{method}");
            for wrong in ["wrong", "Secret", ""] {
                let error = log_in(as_user(&user, wrong).await).await.expect_err(method);
                assert_eq!((error.kind(), error.outcome()), (ErrorKind::Auth, Outcome::NotSent), "{error}");
                assert_eq!(error.as_database().map(DatabaseError::number), Some(1045), "{method}: {error}");
            }
            drop_user(&pool, &user).await;
        }
    }
    pool.close().await;
}

#[tokio::test]
async fn an_empty_password_lets_in_by_each_method() {
    let pool = admin().await;
    for method in METHODS {
        let user = new_user(&pool, "empty", &[method], "").await;
        let name = log_in(as_user(&user, "").await).await;
        assert_eq!(name.unwrap_or_else(|error| panic!("{method}: {error}")), format!("{user}@%"));
        drop_user(&pool, &user).await;
    }
    pool.close().await;
}

#[tokio::test]
async fn an_account_of_several_methods_lets_in_by_any_in_every_order() {
    let pool = admin().await;
    for first in METHODS {
        for second in METHODS {
            let user = own_name("several");
            // The first method has another password: the server goes on to the second one.
            let via = format!("{first} USING PASSWORD('other') OR {second} USING PASSWORD('secret')");
            pool.execute(format!("CREATE USER '{user}'@'%' IDENTIFIED VIA {via}"), ()).await.expect("a user");
            for password in ["other", "secret"] {
                let name = log_in(as_user(&user, password).await).await;
                assert_eq!(
                    name.unwrap_or_else(|error| panic!("{via} {password}: {error}")),
                    format!("{user}@%")
                );
            }
            log_in(as_user(&user, "neither").await).await.expect_err("neither");
            drop_user(&pool, &user).await;
        }
    }
    pool.close().await;
}

#[cfg(unix)]
#[tokio::test]
async fn each_method_works_over_the_unix_socket() {
    let server = test_servers::mariadb().await.expect("a MariaDB server");
    // A server in a container has its socket there.
    let Some(socket) = server.socket() else { return };
    let pool = admin().await;
    for method in METHODS {
        let user = new_user(&pool, "socket", &[method], "secret").await;
        let config = as_user(&user, "secret").await.socket(socket.display().to_string());
        assert_eq!(log_in(config).await.expect(method), format!("{user}@%"));
        drop_user(&pool, &user).await;
    }
    pool.close().await;
}

#[tokio::test]
async fn an_account_of_the_operating_system_is_refused_over_tcp() {
    let pool = admin().await;
    let user = own_name("by_uid");
    pool.execute(format!("CREATE USER '{user}'@'%' IDENTIFIED VIA unix_socket"), ()).await.expect("a user");
    let error = log_in(as_user(&user, "secret").await).await.expect_err("not by TCP");
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Auth, Outcome::NotSent), "{error}");
    drop_user(&pool, &user).await;
    pool.close().await;
}

#[tokio::test]
async fn a_pool_pipelines_leases_and_resets_there_too() {
    let pool = Pool::builder(config().await).connections(3).connect().await.expect("a pool");
    let calls = (0..100_i64).map(|n| {
        let pool = pool.clone();
        tokio::spawn(async move { pool.query_one::<(i64,)>("SELECT CAST(? AS SIGNED)", (n,)).await })
    });
    for (n, call) in calls.collect::<Vec<_>>().into_iter().enumerate() {
        let (back,) = call.await.expect("no panic").expect("an answer");
        assert_eq!(usize::try_from(back), Ok(n));
    }
    let session = pool.session().await.expect("a lease");
    session.execute("SET @word = 'kept'", ()).await.expect("set");
    let word = "SELECT CAST(@word AS CHAR)";
    assert_eq!(
        session.query_one::<(Option<String>,)>(word, ()).await.expect("there").0.as_deref(),
        Some("kept")
    );
    drop(session);
    for _ in 0..3 {
        let session = pool.session().await.expect("a lease");
        assert_eq!(session.query_one::<(Option<String>,)>(word, ()).await.expect("an answer").0, None);
    }
    pool.close().await;
}
