//! Work in a transaction that is run again when others were in its way, and how a transaction runs.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
use integration_tests::eventually;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Barrier;

use super::side::dialect::{ISOLATION, READ_ONLY};
use super::side::{
    Client, Error, ErrorKind, Isolation, Outcome, Pool, Tx, drop_table, number, pool, sql, table, terminate,
};
use super::transactions::{COLUMNS, NOTHING, insert, values};

/// Two works that lock the same two rows, in opposite order.
#[tokio::test]
async fn the_victim_of_a_deadlock_runs_again_and_both_are_done() {
    let pool = pool().await;
    let table = table(&pool, "collide", "id int PRIMARY KEY, n int").await;
    for id in [1, 2] {
        pool.execute(sql(format!("INSERT INTO {table} VALUES ($1, 0)")), (id,)).await.expect("a row");
    }
    let update = sql(format!("UPDATE {table} SET n = n + 1 WHERE id = $1"));
    let (met, runs) = (Barrier::new(2), AtomicU32::new(0));
    let work = |first: i32, second: i32| {
        let (met, runs, update) = (&met, &runs, &update);
        let attempt = AtomicU32::new(0);
        pool.transaction().retries(5).run(move |tx| {
            let attempt = attempt.fetch_add(1, Ordering::Relaxed);
            async move {
                runs.fetch_add(1, Ordering::Relaxed);
                tx.execute(update, (first,)).await?;
                if attempt == 0 {
                    met.wait().await;
                }
                tx.execute(update, (second,)).await?;
                Ok::<_, Error>(attempt)
            }
        })
    };
    let (one, other) = tokio::join!(work(1, 2), work(2, 1));
    let attempts = one.expect("done") + other.expect("done");
    assert!(attempts >= 1, "one of them was the victim");
    assert_eq!(runs.load(Ordering::Relaxed), 2 + attempts);
    let rows: Vec<(i32,)> = pool.query(format!("SELECT n FROM {table} ORDER BY id"), ()).await.expect("rows");
    assert_eq!(rows, [(2,), (2,)], "each of them once");
    drop_table(&pool, &table).await;
    pool.close().await;
}

#[tokio::test]
async fn without_retries_the_victim_is_told() {
    let pool = pool().await;
    let table = table(&pool, "no_retries", "id int PRIMARY KEY, n int").await;
    for id in [1, 2] {
        pool.execute(sql(format!("INSERT INTO {table} VALUES ($1, 0)")), (id,)).await.expect("a row");
    }
    let update = sql(format!("UPDATE {table} SET n = n + 1 WHERE id = $1"));
    let met = Barrier::new(2);
    let work = |first: i32, second: i32| {
        let (met, update) = (&met, &update);
        pool.transaction().run(move |tx| async move {
            tx.execute(update, (first,)).await?;
            met.wait().await;
            tx.execute(update, (second,)).await?;
            Ok::<_, Error>(())
        })
    };
    let (one, other) = tokio::join!(work(1, 2), work(2, 1));
    let error = one.err().or(other.err()).expect("one of them was the victim");
    assert!(error.is_retryable(), "{error}");
    drop_table(&pool, &table).await;
    pool.close().await;
}

/// What work may return besides the database's errors.
#[derive(Debug)]
enum Refusal {
    NotEnough(i64),
    Database(Error),
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Self::Database(error)
    }
}

#[tokio::test]
async fn what_fails_is_rolled_back_and_not_run_again() {
    let pool = pool().await;
    let table = table(&pool, "fails", COLUMNS).await;
    let insert = insert(&table);
    let runs = AtomicU32::new(0);
    let error = pool
        .transaction()
        .retries(3)
        .run(async |tx| {
            runs.fetch_add(1, Ordering::Relaxed);
            tx.execute(&insert, (1,)).await?;
            tx.execute(&insert, (1,)).await?;
            Ok::<_, Error>(())
        })
        .await
        .expect_err("a duplicate");
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Database, Outcome::Failed));
    assert_eq!(runs.load(Ordering::Relaxed), 1);
    assert_eq!(values(&pool, &table).await, NOTHING);

    // Work that does not like what it sees.
    let refusal = pool
        .transaction()
        .run(async |tx| {
            tx.execute(&insert, (2,)).await?;
            let (count,): (i64,) = tx.query_one(format!("SELECT count(*) FROM {table}"), ()).await?;
            if count < 2 { Err(Refusal::NotEnough(count)) } else { Ok(()) }
        })
        .await
        .expect_err("refused");
    match refusal {
        Refusal::NotEnough(count) => assert_eq!(count, 1),
        Refusal::Database(error) => panic!("{error}"),
    }
    assert_eq!(values(&pool, &table).await, NOTHING);
    drop_table(&pool, &table).await;
    pool.close().await;
}

#[tokio::test]
async fn work_of_unknown_outcome_is_not_run_again() {
    let (pool, other) = (pool().await, pool().await);
    let table = table(&pool, "unknown", COLUMNS).await;
    let insert = insert(&table);
    let runs = AtomicU32::new(0);
    let error = pool
        .transaction()
        .retries(5)
        .run(async |tx| {
            runs.fetch_add(1, Ordering::Relaxed);
            tx.execute(&insert, (1,)).await?;
            terminate(&other, number(&*tx).await).await;
            // The connection is gone, or goes: nobody can say whether this ran.
            loop {
                tx.execute(&insert, (2,)).await?;
                tx.execute(format!("DELETE FROM {table} WHERE n = 2"), ()).await?;
            }
            #[expect(unreachable_code, reason = "says what the work would return")]
            Ok::<_, Error>(())
        })
        .await
        .expect_err("its connection is gone");
    assert!(!error.is_retryable() || error.outcome() == Outcome::NotSent, "{error}");
    assert_eq!(runs.load(Ordering::Relaxed), 1);
    assert_eq!(values(&other, &table).await, NOTHING);
    drop_table(&other, &table).await;
    pool.close().await;
    other.close().await;
}

#[tokio::test]
async fn dropped_or_panicking_work_is_rolled_back() {
    let pool = pool().await;
    let table = table(&pool, "dropped_work", COLUMNS).await;
    let insert = insert(&table);
    let work = pool.transaction().run(async |tx| {
        tx.execute(&insert, (1,)).await?;
        tokio::time::sleep(Duration::from_secs(3600)).await;
        Ok::<_, Error>(())
    });
    tokio::time::timeout(Duration::from_millis(200), work).await.expect_err("it takes an hour");
    let panics = tokio::spawn({
        let (pool, insert) = (pool.clone(), insert.clone());
        async move {
            pool.transaction()
                .run(async |tx| {
                    tx.execute(&insert, (2,)).await?;
                    assert_eq!(insert, "", "work that panics");
                    Ok::<_, Error>(())
                })
                .await
        }
    });
    assert!(panics.await.expect_err("a panic").is_panic());
    eventually("all leases are back", || async { pool.stats().leased == 0 }).await;
    assert_eq!(values(&pool, &table).await, NOTHING);
    drop_table(&pool, &table).await;
    pool.close().await;
}

#[tokio::test]
async fn isolation_and_access_hold_for_one_transaction() {
    let pool = pool().await;
    let table = table(&pool, "isolation", COLUMNS).await;
    let read = format!("SELECT count(*) FROM {table}");
    let seen = async |tx: &Tx| -> Result<String, Error> {
        tx.query_one::<(i64,)>(&read, ()).await?;
        let (isolation,): (String,) = tx.query_one(ISOLATION, ()).await?;
        Ok(isolation.to_uppercase())
    };
    let usual = pool.transaction().run(async |tx| seen(&tx).await).await.expect("done");
    for (isolation, name) in [
        (Isolation::ReadCommitted, "READ COMMITTED"),
        (Isolation::RepeatableRead, "REPEATABLE READ"),
        (Isolation::Serializable, "SERIALIZABLE"),
    ] {
        let work = pool.transaction().isolation(isolation).run(async |tx| seen(&tx).await);
        assert_eq!(work.await.expect("done"), name);
        // Whichever connection was used, the next transaction on it is as usual; six of them are all that are leased.
        for _ in 0..8 {
            let work = pool.transaction().run(async |tx| seen(&tx).await);
            assert_eq!(work.await.expect("done"), usual);
        }
    }
    let insert = insert(&table);
    let tx =
        pool.transaction().read_only().isolation(Isolation::Serializable).begin().await.expect("a lease");
    let error = tx.execute(&insert, (1,)).await.expect_err("it only reads");
    assert_eq!(error.sqlstate(), Some(READ_ONLY), "{error}");
    drop(tx);
    for n in 0..8 {
        let tx = pool.begin().await.expect("a lease");
        tx.execute(&insert, (n,)).await.expect("a write");
        tx.commit().await.expect("committed");
    }
    drop_table(&pool, &table).await;
    pool.close().await;
}

/// A handle that outlives its work is of no use, and harms nothing.
#[tokio::test]
async fn a_handle_kept_beyond_the_work_runs_nothing() {
    let pool = pool().await;
    let table = table(&pool, "kept", COLUMNS).await;
    let insert = insert(&table);
    let kept = pool
        .transaction()
        .run(async |tx| {
            tx.execute(&insert, (1,)).await?;
            Ok::<_, Error>(tx)
        })
        .await
        .expect("done");
    let error = kept.execute(&insert, (2,)).await.expect_err("it is over");
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::SessionState, Outcome::NotSent));
    drop(kept);
    eventually("all leases are back", || async { pool.stats().leased == 0 }).await;
    assert_eq!(values(&pool, &table).await, [1]);
    drop_table(&pool, &table).await;
    pool.close().await;
}

#[derive(Clone)]
struct App {
    pool: Pool,
    insert: String,
}

/// A handler: its future must be `Send`, and its work borrows from it.
async fn add_two(State(app): State<App>) -> Result<String, StatusCode> {
    let numbers = [10, 20];
    let (insert, numbers) = (&app.insert, &numbers[..]);
    let added = app
        .pool
        .transaction()
        .retries(2)
        .run(|tx| async move {
            let mut added = 0;
            for number in numbers {
                added += add(&*tx, insert, *number).await?;
            }
            Ok::<_, Error>(added)
        })
        .await;
    added.map(|added| added.to_string()).map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)
}

async fn add(client: &impl Client, insert: &str, number: i32) -> Result<u64, Error> {
    Ok(client.execute(insert, (number,)).await?.rows_affected())
}

#[tokio::test]
async fn a_handler_of_axum_runs_work_that_borrows_from_it() {
    let pool = pool().await;
    let table = table(&pool, "handler", COLUMNS).await;
    let app = App { pool: pool.clone(), insert: insert(&table) };
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("its address");
    let service = Router::new().route("/", get(add_two)).with_state(app);
    let serving = tokio::spawn(async move { axum::serve(listener, service).await });
    let mut stream = TcpStream::connect(address).await.expect("it listens");
    stream.write_all(b"GET / HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n").await.expect("asked");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("answered");
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("\r\n\r\n2"), "{answer}");
    serving.abort();
    assert_eq!(values(&pool, &table).await, [10, 20]);
    drop_table(&pool, &table).await;
    pool.close().await;
}
