//! Passwords: wrong ones, odd ones, and those that are asked for when they are needed.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use integration_tests::own_name;

use super::side::dialect::{REFUSED, drop_user, limited_user, user_with};
use super::side::{Config, Connection, ErrorKind, Outcome, Pool, all_shared, config, pool, server};

/// A user of one's own, with the password `secret`.
async fn new_user(admin: &Pool, topic: &str) -> String {
    let user = own_name(topic);
    for statement in limited_user(&user, 100) {
        admin.execute(statement, ()).await.expect("a user");
    }
    user
}

async fn works(config: Config) {
    let connection = Connection::connect(config.clone()).await.expect("let in");
    assert_eq!(connection.query_one::<(i32,)>("SELECT 1", ()).await.expect("an answer"), (1,));
    connection.close().await;
    let pool = Pool::builder(config).connections(2).connect().await.expect("let in");
    all_shared(&pool).await;
    pool.close().await;
}

#[tokio::test]
async fn a_wrong_password_is_refused_and_not_shown() {
    let admin = pool().await;
    let user = new_user(&admin, "wrong").await;
    for password in ["hush-hush-7531", "Secret", "secret ", "sécret"] {
        let refused = config().await.user(&user).password(password);
        let error = Connection::connect(refused.clone()).await.expect_err("a wrong password");
        assert_eq!((error.kind(), error.outcome()), (ErrorKind::Auth, Outcome::NotSent), "{error}");
        assert_eq!(error.sqlstate(), Some(REFUSED), "{error}");
        assert!(!error.is_retryable());
        assert!(!format!("{error} {error:?} {refused:?}").contains(password), "{error:?}");
        let error = Pool::builder(refused).connect().await.expect_err("in a pool too");
        assert_eq!((error.kind(), error.sqlstate()), (ErrorKind::Auth, Some(REFUSED)), "{error}");
    }
    works(config().await.user(&user).password("secret")).await;
    admin.execute(drop_user(&user), ()).await.expect("dropped");
    admin.close().await;
}

#[tokio::test]
async fn a_provider_is_asked_for_every_connection() {
    let admin = pool().await;
    let user = new_user(&admin, "provided").await;
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let config = config().await.user(&user).password("not this one").password_provider(move || {
        count.fetch_add(1, Ordering::Relaxed);
        async move {
            tokio::task::yield_now().await;
            Ok("secret".to_owned())
        }
    });
    let pool = Pool::builder(config).connections(3).connect().await.expect("a pool");
    all_shared(&pool).await;
    assert_eq!(asked.load(Ordering::Relaxed), 3);
    pool.close().await;
    admin.execute(drop_user(&user), ()).await.expect("dropped");
    admin.close().await;
}

#[tokio::test]
async fn a_provider_that_fails_is_the_cause_and_may_recover() {
    let admin = super::side::pool().await;
    let user = new_user(&admin, "sealed").await;
    let calls = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&calls);
    let failing = config().await.user(&user).password_provider(move || {
        let call = count.fetch_add(1, Ordering::Relaxed);
        async move { if call < 2 { Err("the vault is sealed".into()) } else { Ok("secret".to_owned()) } }
    });
    let error = Connection::connect(failing.clone()).await.expect_err("no password");
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Connect, Outcome::NotSent));
    assert!(
        error.to_string().contains("password provider") && error.to_string().contains("sealed"),
        "{error}"
    );
    assert!(error.is_retryable());
    // A pool that is connecting in the background asks again.
    let pool = Pool::builder(failing).connections(1).connect_lazy().expect("never waits");
    let (one,): (i32,) = pool.query_one("SELECT 1", ()).await.expect("after a while");
    assert_eq!(one, 1);
    assert_eq!(calls.load(Ordering::Relaxed), 3);
    pool.close().await;
    admin.execute(drop_user(&user), ()).await.expect("dropped");
    admin.close().await;
}

#[tokio::test]
async fn passwords_with_every_character_work_in_every_form() {
    let admin = pool().await;
    let user = own_name("odd");
    let password = r"p@:/?#[]%$ {+é&='\";
    for statement in user_with(&user, password) {
        admin.execute(statement, ()).await.expect("a user");
    }
    works(config().await.user(&user).password(password)).await;
    let url = server().await.expect("a server").url_for(&user, password);
    assert!(!url.contains(password));
    let by_url: Config = url.parse().expect("a URL");
    works(by_url).await;
    admin.execute(drop_user(&user), ()).await.expect("dropped");
    admin.close().await;
}
