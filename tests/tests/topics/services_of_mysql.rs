//! Cases from services in production that only MySQL has: generated keys, a
//! database that can be chosen and never be left, and files of the client that a server asks for.

use futures_util::future::join_all;
use integration_tests::{eventually, own_name};

use super::side::dialect::{NUMBER_AND_SCHEMA, switch_to};
use super::side::{ErrorKind, Outcome, Pool, all_shared, config, count, drop_table, pool, reconnects, table};

/// On a shared connection `SELECT LAST_INSERT_ID()` would tell of whoever inserted last; each answer carries its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_inserts_at_once_are_each_told_their_own_key() {
    let pool = pool().await;
    all_shared(&pool).await;
    let table = table(&pool, "keys", "id BIGINT PRIMARY KEY AUTO_INCREMENT, n INT").await;
    let (insert, find) =
        (format!("INSERT INTO {table} (n) VALUES (?)"), format!("SELECT n FROM {table} WHERE id = ?"));
    let tasks: Vec<_> = (0..1_000)
        .map(|n| {
            let (pool, insert, find) = (pool.clone(), insert.clone(), find.clone());
            tokio::spawn(async move {
                let done = pool.execute(insert, (n,)).await.expect("a write");
                let key = done.last_insert_id().expect("a key");
                let (found,): (i32,) = pool.query_one(find, (key,)).await.expect("its row");
                assert_eq!(found, n);
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("its own key");
    }
    // A session may ask as it is used to.
    let session = pool.session().await.expect("a session");
    for n in 0..10 {
        let key = session.execute(&insert, (n,)).await.expect("a write").last_insert_id();
        let (asked,): (u64,) = session.query_one("SELECT LAST_INSERT_ID()", ()).await.expect("a key");
        assert_eq!(key, Some(asked));
    }
    drop(session);
    drop_table(&pool, &table).await;
    pool.close().await;
}

/// The other tenants are in `services.rs`; here the pool has no database to return to.
#[tokio::test]
async fn a_pool_without_a_database_has_none_again_after_a_session_that_chose_one() {
    let other = pool().await;
    let tenant = own_name("chosen");
    other.execute(format!("CREATE SCHEMA {tenant}"), ()).await.expect("a schema");
    let config = config().await.database("").connections(2);
    let pool = Pool::builder(config).connect().await.expect("a pool");
    for _ in 0..3 {
        let session = pool.session().await.expect("a session");
        session.execute(switch_to(&tenant), ()).await.expect("chosen");
        let (_, chosen): (i64, Option<String>) =
            session.query_one(NUMBER_AND_SCHEMA, ()).await.expect("a schema");
        assert_eq!(chosen.as_deref(), Some(tenant.as_str()));
        let before = reconnects(&pool);
        drop(session);
        // There is no way back to none, so that another connection takes its place.
        eventually("its connection is replaced", || async { reconnects(&pool) > before }).await;
        all_shared(&pool).await;
        let asks = (0..32).map(|_| async {
            let (_, none): (i64, Option<String>) =
                pool.query_one(NUMBER_AND_SCHEMA, ()).await.expect("an answer");
            assert_eq!(none, None);
        });
        join_all(asks).await;
    }
    other.execute(format!("DROP SCHEMA {tenant}"), ()).await.expect("dropped");
    pool.close().await;
    other.close().await;
}

/// As test suites do. Whoever drops the database that is chosen has none from then on.
#[tokio::test]
async fn a_database_that_was_dropped_and_made_again_is_chosen_again() {
    let other = pool().await;
    let tenant = own_name("dropped");
    other.execute(format!("CREATE SCHEMA {tenant}"), ()).await.expect("a schema");
    let config = config().await.database(&tenant).connections(2);
    let pool = Pool::builder(config).connect().await.expect("a pool");
    let asks = async || {
        let asks = (0..32).map(|_| pool.query_one::<(i64, Option<String>)>(NUMBER_AND_SCHEMA, ()));
        let answers = join_all(asks).await.into_iter();
        answers.map(|answer| answer.expect("an answer").1).collect::<Vec<_>>()
    };
    for round in 0..4 {
        all_shared(&pool).await;
        if round % 2 == 0 {
            pool.execute(format!("DROP SCHEMA {tenant}"), ()).await.expect("dropped");
        } else {
            let session = pool.session().await.expect("a session");
            session.execute(format!("DROP SCHEMA {tenant}"), ()).await.expect("dropped");
        }
        other.execute(format!("CREATE SCHEMA {tenant}"), ()).await.expect("a schema");
        eventually("all are where they were", || async {
            asks().await.iter().all(|schema| schema.as_ref() == Some(&tenant))
        })
        .await;
    }
    other.execute(format!("DROP SCHEMA {tenant}"), ()).await.expect("dropped");
    pool.close().await;
    other.close().await;
}

/// The capability is never offered: the server refuses by itself, and asks for nothing.
#[tokio::test]
async fn no_server_is_given_a_file() {
    let pool = pool().await;
    let table = table(&pool, "files", "line TEXT").await;
    let load = format!("LOAD DATA LOCAL INFILE '/etc/hostname' INTO TABLE {table}");
    let session = pool.session().await.expect("a session");
    for error in [
        pool.execute(&load, ()).await.map(drop).expect_err("not offered"),
        session.execute(&load, ()).await.map(drop).expect_err("not offered"),
        session.batch_execute(&load).await.expect_err("not offered"),
    ] {
        assert_eq!((error.kind(), error.outcome()), (ErrorKind::Database, Outcome::Failed), "{error:?}");
    }
    drop(session);
    assert_eq!(count(&pool, &table).await, 0);
    assert_eq!(reconnects(&pool), 0);
    drop_table(&pool, &table).await;
    pool.close().await;
}
