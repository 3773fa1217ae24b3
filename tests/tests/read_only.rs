//! A server that stops taking writes: the connections to it are given up once that is confirmed. Alone in its program,
//! because the setting is the whole server's.

use std::future::Future;
use std::time::Duration;

use integration_tests::eventually;

/// Longer than a connection is trusted before it is asked what its server takes.
const TRUSTED: Duration = Duration::from_millis(5_500);

macro_rules! side {
    ($side:ident, $off:expr, $on:expr) => {
        mod $side {
            use integration_tests::$side::{
                ErrorKind, Outcome, Pool, all_shared, config, pool, reconnects, table,
            };

            async fn switch(other: &Pool, statements: &[&str]) {
                let session = other.session().await.expect("a session");
                for statement in statements {
                    session.execute(*statement, ()).await.expect("switched");
                }
            }

            #[tokio::test]
            async fn a_server_that_takes_no_writes_is_left_and_found_again() {
                let other = pool().await;
                let table = table(&other, "read_only", "n int").await;
                let pool = Pool::builder(config().await.connections(2)).connect().await.expect("a pool");
                all_shared(&pool).await;
                // The connections must have stood for a while; this is not a wait for a condition.
                tokio::time::sleep(super::TRUSTED).await;
                switch(&other, &$off).await;
                let write = || pool.execute(format!("INSERT INTO {table} VALUES (1)"), ());
                let result = super::settled(|| async {
                    match write().await {
                        Ok(_) => None,
                        Err(error) => Some((error.kind(), error.outcome())),
                    }
                })
                .await;
                let left =
                    super::eventually("the connection is replaced", || async { reconnects(&pool) > 0 });
                let left = tokio::time::timeout(super::Duration::from_secs(15), left).await;
                switch(&other, &$on).await;
                assert_eq!(result, (ErrorKind::Database, Outcome::Failed));
                left.expect("in time");
                super::eventually("writes are taken again", || async { write().await.is_ok() }).await;
                other.execute(format!("DROP TABLE {table}"), ()).await.expect("dropped");
                pool.close().await;
                other.close().await;
            }
        }
    };
}

/// Asks until there is an answer: a setting of the server reaches its sessions in its own time.
async fn settled<T, F: Future<Output = Option<T>>>(mut ask: impl FnMut() -> F) -> T {
    let mut answer = None;
    for _ in 0..1_000 {
        answer = ask().await;
        if answer.is_some() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    answer.expect("within five seconds")
}

side!(
    postgres,
    ["ALTER SYSTEM SET default_transaction_read_only = on", "SELECT pg_reload_conf()"],
    [
        "SET default_transaction_read_only = off",
        "ALTER SYSTEM RESET default_transaction_read_only",
        "SELECT pg_reload_conf()"
    ]
);
side!(
    mysql,
    ["SET GLOBAL super_read_only = ON"],
    ["SET GLOBAL super_read_only = OFF", "SET GLOBAL read_only = OFF"]
);
