//! Connections without a pool, alone and behind a classical checkout pool.

use std::time::Duration;

use integration_tests::{eventually, own_name, poll_then_drop};

use super::side::deadpool::{Manager, Pool as CheckoutPool};
use super::side::dialect::{ECHO, LAST_WORDS, REMEMBERED, SCHEME, lock, remember, sleep};
use super::side::{
    Connection, ErrorKind, Outcome, Pool, Row, asleep, connections, named_config, number, pool, sql,
    terminate,
};

async fn connect(name: &str) -> Connection {
    Connection::connect(named_config(name).await).await.expect("a connection")
}

async fn server_shows(other: &Pool, name: &str, count: i64) {
    eventually(&format!("the server shows {count}"), || async { connections(other, name).await == count })
        .await;
}

#[tokio::test]
async fn one_connection_does_everything_and_keeps_its_state() {
    let (name, other) = (own_name("alone"), pool().await);
    let connection = connect(&name).await;
    server_shows(&other, &name, 1).await;
    let own = number(&connection).await;
    connection
        .batch_execute(&format!("CREATE TEMPORARY TABLE scratch (n int4 PRIMARY KEY); {}", remember("kept")))
        .await
        .expect("a script");
    connection.execute("BEGIN", ()).await.expect("transactions are the owner's");
    let mut batch = connection.batch();
    for n in 0..10 {
        batch.push(sql("INSERT INTO scratch VALUES ($1)"), (n,));
    }
    batch.execute().await.expect("a batch");
    connection.execute("COMMIT", ()).await.expect("committed");
    connection.execute("INSERT INTO scratch VALUES (0)", ()).await.expect_err("a duplicate");
    let (one, two) = tokio::try_join!(
        connection.query_one::<(i64,)>("SELECT count(*) FROM scratch", ()),
        connection.query_one::<(String,)>(REMEMBERED, ()),
    )
    .expect("pipelined");
    assert_eq!((one.0, two.0.as_str()), (10, "kept"));
    assert_eq!(number(&connection).await, own);
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
                        .batch_execute(&format!("BEGIN; {}", lock(std::process::id() + 1)))
                        .await
                        .expect("open");
                }
                "under way" => {
                    tokio::select! {
                        _ = connection.execute(sleep(0.3), ()) => panic!("dropped before it is awake"),
                        () = eventually("it sleeps", || async { asleep(&other, &name).await == 1 }) => {}
                    }
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
    let config = named_config(&name).await;
    for polls in 0..20 {
        let config = config.clone();
        drop(poll_then_drop(Connection::connect(config), polls).await);
    }
    server_shows(&other, &name, 0).await;
    other.close().await;
}

#[tokio::test]
async fn a_lost_connection_stays_lost_and_says_so() {
    let (name, other) = (own_name("lost"), pool().await);
    let connection = connect(&name).await;
    let own = number(&connection).await;
    let (asleep, ()) = tokio::join!(connection.query::<Row>(sleep(60.0), ()), async {
        eventually("it sleeps", || async { asleep(&other, &name).await == 1 }).await;
        terminate(&other, own).await;
    });
    let error = asleep.expect_err("terminated");
    assert_eq!(
        (error.kind(), error.outcome(), error.sqlstate()),
        (ErrorKind::Io, Outcome::Unknown, LAST_WORDS)
    );
    eventually("it knows", || async { connection.is_closed() }).await;
    let error = connection.query::<Row>("SELECT 1", ()).await.expect_err("lost");
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Closed, Outcome::NotSent));
    // The server's process may take a moment to go; none comes in its place.
    eventually("the server shows none", || async { connections(&other, &name).await == 0 }).await;
    tokio::time::timeout(Duration::from_secs(5), connection.close()).await.expect("closing does not hang");
    other.close().await;
}

#[tokio::test]
async fn a_checkout_pool_hands_connections_out_and_never_a_lost_one() {
    let (name, other) = (own_name("checkout"), pool().await);
    let manager = Manager::new(named_config(&name).await);
    let checkout = CheckoutPool::builder(manager).max_size(4).build().expect("a pool");
    let tasks: Vec<_> = (0..100_i32)
        .map(|n| {
            let checkout = checkout.clone();
            tokio::spawn(async move {
                let connection = checkout.get().await.expect("a connection");
                let (back,): (i32,) = connection.query_one(ECHO, (n,)).await.expect("an answer");
                assert_eq!(back, n);
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("no task fails");
    }
    assert!(checkout.status().size <= 4);
    assert!(connections(&other, &name).await <= 4);
    for _ in 0..8 {
        let connection = checkout.get().await.expect("a connection");
        let lost = number(&*connection).await;
        terminate(&other, lost).await;
        eventually("it is lost", || async { connection.is_closed() }).await;
        drop(connection);
        for _ in 0..4 {
            let connection = checkout.get().await.expect("a connection");
            assert_ne!(number(&*connection).await, lost);
        }
    }
    checkout.close();
    server_shows(&other, &name, 0).await;
    let error =
        CheckoutPool::builder(Manager::new(format!("{SCHEME}://u@127.0.0.1:1/d").parse().expect("a URL")))
            .build()
            .expect("a pool")
            .get()
            .await
            .expect_err("no server");
    assert!(error.to_string().contains("127.0.0.1:1"), "{error}");
    other.close().await;
}
