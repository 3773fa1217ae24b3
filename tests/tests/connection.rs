//! Connections without a pool, alone and behind a classical checkout pool.

use std::time::Duration;

use integration_tests::{connections, eventually, own_name, pool, postgres};
use pg_pipeline::deadpool::{Manager, Pool as CheckoutPool};
use pg_pipeline::{Connection, ErrorKind, Outcome, Pool, Row};

async fn connect(name: &str) -> Connection {
    Connection::connect(postgres().await.application_name(name)).await.expect("a connection")
}

async fn server_shows(other: &Pool, name: &str, count: i64) {
    eventually(&format!("the server shows {count}"), || async {
        connections(other, name, "%").await == count
    })
    .await;
}

async fn terminate(other: &Pool, pid: i32) {
    let (ended,): (bool,) =
        other.query_one("SELECT pg_terminate_backend($1)", (pid,)).await.expect("an answer");
    assert!(ended);
}

async fn pid(connection: &Connection) -> i32 {
    let (pid,): (i32,) = connection.query_one("SELECT pg_backend_pid()", ()).await.expect("a number");
    pid
}

#[tokio::test]
async fn one_connection_does_everything_and_keeps_its_state() {
    let (name, other) = (own_name("alone"), pool().await);
    let connection = connect(&name).await;
    assert_eq!(connections(&other, &name, "%").await, 1);
    let own = pid(&connection).await;
    connection
        .batch_execute("CREATE TEMP TABLE scratch (n int4 PRIMARY KEY); SET work_mem = '123kB'")
        .await
        .expect("a script");
    connection.execute("BEGIN", ()).await.expect("transactions are the owner's");
    let mut batch = connection.batch();
    for n in 0..10 {
        batch.push("INSERT INTO scratch VALUES ($1)", (n,));
    }
    batch.execute().await.expect("a batch");
    connection.execute("COMMIT", ()).await.expect("committed");
    connection.execute("INSERT INTO scratch VALUES (0)", ()).await.expect_err("a duplicate");
    let (one, two) = tokio::try_join!(
        connection.query_one::<(i64,)>("SELECT count(*) FROM scratch", ()),
        connection.query_one::<(String,)>("SELECT current_setting('work_mem')", ()),
    )
    .expect("pipelined");
    assert_eq!((one.0, two.0.as_str()), (10, "123kB"));
    assert_eq!(pid(&connection).await, own);
    assert!(!connection.is_closed());
    connection.close().await;
    server_shows(&other, &name, 0).await;
    other.close().await;
}

#[tokio::test]
async fn close_and_drop_leave_nothing_on_the_server() {
    let (name, other) = (own_name("gone"), pool().await);
    for state in ["at rest", "in a transaction", "under way"] {
        for closes in [true, false] {
            let connection = connect(&name).await;
            match state {
                "in a transaction" => {
                    connection
                        .batch_execute("BEGIN; SELECT pg_advisory_lock_shared(42)")
                        .await
                        .expect("open");
                }
                "under way" => {
                    let started =
                        integration_tests::poll_then_drop(connection.execute("SELECT pg_sleep(0.1)", ()), 2);
                    assert!(started.await.is_none());
                }
                _ => {}
            }
            if closes {
                connection.close().await;
            } else {
                drop(connection);
            }
            server_shows(&other, &name, 0).await;
        }
    }
    // Not even when the caller does not wait for the connection to be made.
    for polls in 0..20 {
        let config = postgres().await.application_name(&name);
        drop(integration_tests::poll_then_drop(Connection::connect(config), polls).await);
    }
    server_shows(&other, &name, 0).await;
    other.close().await;
}

#[tokio::test]
async fn a_lost_connection_stays_lost_and_says_so() {
    let (name, other) = (own_name("lost"), pool().await);
    let connection = connect(&name).await;
    let own = pid(&connection).await;
    let (asleep, ()) = tokio::join!(connection.query::<Row>("SELECT pg_sleep(60)", ()), async {
        eventually("it sleeps", || async { connections(&other, &name, "active").await == 1 }).await;
        terminate(&other, own).await;
    });
    let error = asleep.expect_err("terminated");
    assert_eq!(
        (error.kind(), error.outcome(), error.sqlstate()),
        (ErrorKind::Io, Outcome::Unknown, Some("57P01"))
    );
    eventually("it knows", || async { connection.is_closed() }).await;
    let error = connection.query::<Row>("SELECT 1", ()).await.expect_err("lost");
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Closed, Outcome::NotSent));
    // The server's process may take a moment to go; none comes in its place.
    eventually("the server shows none", || async { connections(&other, &name, "%").await == 0 }).await;
    tokio::time::timeout(Duration::from_secs(5), connection.close()).await.expect("closing does not hang");
    other.close().await;
}

#[tokio::test]
async fn a_checkout_pool_hands_connections_out_and_never_a_lost_one() {
    let (name, other) = (own_name("checkout"), pool().await);
    let manager = Manager::new(postgres().await.application_name(&name));
    let checkout = CheckoutPool::builder(manager).max_size(4).build().expect("a pool");
    let tasks: Vec<_> = (0..100_i32)
        .map(|n| {
            let checkout = checkout.clone();
            tokio::spawn(async move {
                let connection = checkout.get().await.expect("a connection");
                let (back,): (i32,) = connection.query_one("SELECT $1::int4", (n,)).await.expect("an answer");
                assert_eq!(back, n);
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("no task fails");
    }
    assert!(checkout.status().size <= 4);
    assert!(connections(&other, &name, "%").await <= 4);
    for _ in 0..8 {
        let connection = checkout.get().await.expect("a connection");
        let lost = pid(&connection).await;
        terminate(&other, lost).await;
        eventually("it is lost", || async { connection.is_closed() }).await;
        drop(connection);
        for _ in 0..4 {
            let connection = checkout.get().await.expect("a connection");
            assert_ne!(pid(&connection).await, lost);
        }
    }
    checkout.close();
    server_shows(&other, &name, 0).await;
    let error = CheckoutPool::builder(Manager::new("postgres://u@127.0.0.1:1/d".parse().expect("a URL")))
        .build()
        .expect("a pool")
        .get()
        .await
        .expect_err("no server");
    assert!(error.to_string().contains("127.0.0.1:1"), "{error}");
    other.close().await;
}
