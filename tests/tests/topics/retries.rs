//! Work in a transaction that is run again when others were in its way, and only then.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
use integration_tests::proxy::{Faults, Proxy};
use integration_tests::{eventually, poll_then_drop};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Barrier;

use super::side::dialect::{ASKS_AGAIN, endings};
use super::side::{
    Client, Error, ErrorKind, Isolation, Outcome, Pool, Tx, address, all_shared, config, drop_table, number,
    pool, sql, table, terminate,
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

/// Each counts what is there and adds what follows; only one after the other do they count right.
#[tokio::test]
async fn work_that_cannot_be_put_in_an_order_runs_again() {
    let pool = pool().await;
    let table = table(&pool, "serial", COLUMNS).await;
    let (count, insert) = (format!("SELECT count(*) FROM {table}"), insert(&table));
    let (met, runs) = (Barrier::new(2), AtomicU32::new(0));
    let work = || {
        let (met, runs, count, insert) = (&met, &runs, &count, &insert);
        let attempt = AtomicU32::new(0);
        pool.transaction().isolation(Isolation::Serializable).retries(5).run(move |tx| {
            let attempt = attempt.fetch_add(1, Ordering::Relaxed);
            async move {
                runs.fetch_add(1, Ordering::Relaxed);
                let (count,): (i64,) = tx.query_one(count, ()).await?;
                if attempt == 0 {
                    met.wait().await;
                }
                tx.execute(insert, (i32::try_from(count).expect("a few") + 1,)).await?;
                Ok::<_, Error>(attempt)
            }
        })
    };
    let (one, other) = tokio::join!(work(), work());
    let attempts = one.expect("done") + other.expect("done");
    assert!(attempts >= 1, "one of them was refused");
    assert_eq!(runs.load(Ordering::Relaxed), 2 + attempts);
    assert_eq!(values(&pool, &table).await, [1, 2]);
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
async fn work_whose_commit_was_not_answered_is_not_run_again() {
    let other = pool().await;
    let table = table(&other, "unanswered", COLUMNS).await;
    let insert = insert(&table);
    let proxy = Proxy::start(address().await, Faults::NONE).await;
    let config = config().await.hosts([("127.0.0.1", proxy.port())]);
    let pool = Pool::builder(config).connect().await.expect("a pool");
    all_shared(&pool).await;
    let runs = AtomicU32::new(0);
    let error = pool
        .transaction()
        .retries(5)
        .run(async |tx| {
            let run = runs.fetch_add(1, Ordering::Relaxed);
            tx.execute(&insert, (i32::try_from(run).expect("a few"),)).await?;
            // What is asked next is COMMIT.
            proxy.lose_next_answer();
            Ok::<_, Error>(())
        })
        .await
        .expect_err("nobody knows");
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Io, Outcome::Unknown), "{error}");
    assert!(!error.is_retryable(), "{error}");
    assert_eq!(runs.load(Ordering::Relaxed), 1);
    assert_eq!(values(&other, &table).await, [0], "it was committed, once");
    pool.close().await;
    drop_table(&other, &table).await;
    other.close().await;
}

#[tokio::test]
async fn every_run_has_the_isolation_and_access_that_were_asked_for() {
    let (pool, other) = (pool().await, pool().await);
    let table = table(&pool, "every_run", COLUMNS).await;
    let insert = insert(&table);
    let count = format!("SELECT count(*) FROM {table}");
    let runs = AtomicU32::new(0);
    pool.transaction()
        .isolation(Isolation::RepeatableRead)
        .read_only()
        .retries(3)
        .run(async |tx| {
            let run = runs.fetch_add(1, Ordering::Relaxed);
            let (before,): (i64,) = tx.query_one(&count, ()).await?;
            other.execute(&insert, (i32::try_from(run).expect("a few"),)).await?;
            let (after,): (i64,) = tx.query_one(&count, ()).await?;
            assert_eq!(
                (before, after),
                (i64::from(run), i64::from(run)),
                "it sees what was there when it began"
            );
            let part = tx.savepoint().await?;
            part.execute(&insert, (100,)).await.expect_err("it may not write");
            part.rollback().await?;
            if run < 3 {
                tx.execute(ASKS_AGAIN, ()).await?;
            }
            Ok::<_, Error>(())
        })
        .await
        .expect("done");
    assert_eq!(runs.load(Ordering::Relaxed), 4);
    assert_eq!(values(&pool, &table).await, [0, 1, 2, 3]);
    drop_table(&pool, &table).await;
    pool.close().await;
    other.close().await;
}

/// What work makes of being told that its transaction was ended by other means than its handle.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Then {
    /// It gives up with that error.
    GivesUp,
    /// It goes on with what is refused with the wish that the whole be run again.
    GoesOn,
    /// It sends that without waiting to be told.
    Pipelines,
    /// It does not listen, and goes on.
    Drops,
    /// It takes no notice, and wants to commit.
    Commits,
    /// It gives up with an error of its own.
    Refuses,
}

/// What was committed cannot be undone: running the work again would do it twice.
#[tokio::test]
async fn work_whose_transaction_was_ended_by_other_means_is_not_run_again() {
    let pool = pool().await;
    let table = table(&pool, "ended", COLUMNS).await;
    let insert = insert(&table);
    let (makes, endings, drops) = endings(&table);
    for statement in makes {
        pool.execute(statement, ()).await.expect("made");
    }
    for ending in endings {
        for then in [Then::GivesUp, Then::GoesOn, Then::Pipelines, Then::Drops, Then::Commits, Then::Refuses]
        {
            let what = format!("{ending}, {then:?}");
            let runs = AtomicU32::new(0);
            let error = pool
                .transaction()
                .retries(3)
                .run(async |tx| {
                    runs.fetch_add(1, Ordering::Relaxed);
                    tx.execute(&insert, (1,)).await?;
                    match then {
                        Then::Drops => {
                            poll_then_drop(tx.batch_execute(&ending), 1).await;
                            tx.execute(ASKS_AGAIN, ()).await?;
                        }
                        Then::Pipelines => {
                            let (ended, asks) =
                                tokio::join!(tx.batch_execute(&ending), tx.execute(ASKS_AGAIN, ()));
                            ended.expect_err(&what);
                            asks?;
                        }
                        _ => {
                            let ended = tx.batch_execute(&ending).await.expect_err(&what);
                            assert_eq!(ended.kind(), ErrorKind::SessionState, "{what}: {ended}");
                            assert!(
                                matches!(ended.outcome(), Outcome::Completed | Outcome::Unknown),
                                "{what}: {ended:?}"
                            );
                            match then {
                                Then::GivesUp => return Err(ended.into()),
                                Then::GoesOn => drop(tx.execute(ASKS_AGAIN, ()).await?),
                                Then::Refuses => return Err(Refusal::NotEnough(0)),
                                _ => {}
                            }
                        }
                    }
                    Ok(())
                })
                .await
                .expect_err(&what);
            let Refusal::Database(error) = error else { panic!("{what}: {error:?}") };
            assert_eq!(
                (error.kind(), error.outcome()),
                (ErrorKind::SessionState, Outcome::Unknown),
                "{what}: {error}"
            );
            assert!(!error.is_retryable(), "{what}: {error}");
            assert!(error.to_string().contains("pool.session()"), "{what}: {error}");
            assert_eq!(runs.load(Ordering::Relaxed), 1, "{what}");
            eventually("all leases are back", || async { pool.stats().leased == 0 }).await;
            assert!(!values(&pool, &table).await.contains(&1000), "{what}: what came behind it is undone");
            pool.execute(format!("DELETE FROM {table}"), ()).await.expect("empty");
        }
        // The same for a transaction of one's own.
        for commits in [true, false] {
            let what = format!("{ending}, {commits}");
            let tx = pool.begin().await.expect("a transaction");
            tx.execute(&insert, (1,)).await.expect("a write");
            tx.batch_execute(&ending).await.expect_err(&what);
            let refused = tx.execute(&insert, (2,)).await.expect_err(&what);
            assert_eq!(
                (refused.kind(), refused.outcome()),
                (ErrorKind::SessionState, Outcome::NotSent),
                "{what}: {refused}"
            );
            let error = if commits { tx.commit().await } else { tx.rollback().await }.expect_err(&what);
            assert_eq!(
                (error.kind(), error.outcome()),
                (ErrorKind::SessionState, Outcome::Unknown),
                "{what}: {error}"
            );
            eventually("all leases are back", || async { pool.stats().leased == 0 }).await;
            pool.execute(format!("DELETE FROM {table}"), ()).await.expect("empty");
        }
    }
    for statement in drops {
        pool.execute(statement, ()).await.expect("dropped");
    }
    drop_table(&pool, &table).await;
    pool.close().await;
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

/// A handle that outlives its work is of no use, and harms nothing.
#[tokio::test]
async fn a_handle_kept_beyond_the_work_runs_nothing() {
    let pool = pool().await;
    let table = table(&pool, "kept", COLUMNS).await;
    let insert = insert(&table);
    for (sends, ends) in [(true, true), (false, true), (true, false), (false, false)] {
        let mut kept = None;
        let result = pool
            .transaction()
            .run(|tx| {
                kept = Some(tx.clone());
                let insert = &insert;
                async move {
                    if sends {
                        tx.execute(insert, (i32::from(ends),)).await?;
                    }
                    if ends { Ok(()) } else { Err(Refusal::NotEnough(0)) }
                }
            })
            .await;
        assert_eq!(result.is_ok(), ends);
        let kept = kept.expect("a handle");
        let error = kept.execute(&insert, (2,)).await.expect_err("it is over");
        assert_eq!((error.kind(), error.outcome()), (ErrorKind::SessionState, Outcome::NotSent));
        drop(kept);
        eventually("all leases are back", || async { pool.stats().leased == 0 }).await;
    }
    assert_eq!(values(&pool, &table).await, [1]);
    drop_table(&pool, &table).await;
    pool.close().await;
}

/// Whoever still writes while the work's end is on its way is told OK for what is committed, and for nothing else.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_handle_is_told_while_the_work_ends_is_true() {
    let pool = pool().await;
    let table = table(&pool, "meanwhile", COLUMNS).await;
    let insert = insert(&table);
    let mut told = Vec::new();
    for round in 0..20 {
        let mut writer = None;
        pool.transaction()
            .run(|tx| {
                let (other, insert) = (tx.clone(), insert.clone());
                let (says, begun) = tokio::sync::oneshot::channel();
                writer = Some(tokio::spawn(async move {
                    let (mut told, mut says) = (Vec::new(), Some(says));
                    for n in round * 1_000.. {
                        match other.execute(&insert, (n,)).await {
                            Ok(_) => {
                                told.push(n);
                                says.take().map(|says| says.send(()));
                            }
                            Err(error) => return (told, error),
                        }
                    }
                    unreachable!("the transaction is over before that");
                }));
                async move {
                    begun.await.expect("it has begun to write");
                    Ok::<_, Error>(())
                }
            })
            .await
            .expect("committed");
        let (numbers, error) = writer.expect("a writer").await.expect("no panic");
        assert_eq!((error.kind(), error.outcome()), (ErrorKind::SessionState, Outcome::NotSent), "{error}");
        told.extend(numbers);
    }
    assert_eq!(values(&pool, &table).await, told);
    assert!(told.len() >= 20, "each of them wrote: {told:?}");
    drop_table(&pool, &table).await;
    pool.close().await;
}

#[derive(Clone)]
struct App {
    pool: Pool,
    insert: String,
}

/// A handler: its future must be `Send`, and its work borrows from it.
async fn by_closure(State(app): State<App>) -> Result<String, StatusCode> {
    let numbers = [10, 20];
    let (insert, numbers) = (&app.insert, &numbers[..]);
    let work = app.pool.transaction().retries(2).run(|tx| async move {
        let mut added = 0;
        for number in numbers {
            added += add(&*tx, insert, *number).await?;
        }
        Ok::<_, Error>(added)
    });
    answer(work.await)
}

/// The same with an asynchronous closure, and with one inside of it, for a part of the work.
async fn by_nested_closures(State(app): State<App>) -> Result<String, StatusCode> {
    let numbers = vec![30, 40];
    let work = app.pool.transaction().retries(2).run(async |tx| {
        let part = tx.savepoint().await?;
        let add_all = async |numbers: &[i32]| {
            let mut added = 0;
            for number in numbers {
                added += add(&part, &app.insert, *number).await?;
            }
            Ok::<_, Error>(added)
        };
        let added = add_all(&numbers).await?;
        part.commit().await?;
        Ok::<_, Error>(added)
    });
    answer(work.await)
}

/// The same with a function, which takes nothing but the handle.
async fn by_function(State(app): State<App>) -> Result<String, StatusCode> {
    async fn one(tx: Tx) -> Result<u64, Error> {
        Ok(tx.query::<(i32,)>("SELECT 1", ()).await?.len() as u64)
    }
    answer(app.pool.transaction().retries(2).run(one).await)
}

fn answer(added: Result<u64, Error>) -> Result<String, StatusCode> {
    added.map(|added| added.to_string()).map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)
}

async fn add(client: &impl Client, insert: &str, number: i32) -> Result<u64, Error> {
    Ok(client.execute(insert, (number,)).await?.rows_affected())
}

#[tokio::test]
async fn handlers_of_axum_run_work_that_borrows_from_them() {
    let pool = pool().await;
    let table = table(&pool, "handler", COLUMNS).await;
    let app = App { pool: pool.clone(), insert: insert(&table) };
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("its address");
    let service = Router::new()
        .route("/closure", get(by_closure))
        .route("/nested", get(by_nested_closures))
        .route("/function", get(by_function))
        .with_state(app);
    let serving = tokio::spawn(async move { axum::serve(listener, service).await });
    for (path, added) in [("/closure", 2), ("/nested", 2), ("/function", 1)] {
        let mut stream = TcpStream::connect(address).await.expect("it listens");
        let request = format!("GET {path} HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.expect("asked");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.expect("answered");
        assert!(
            answer.starts_with("HTTP/1.1 200") && answer.ends_with(&format!("\r\n\r\n{added}")),
            "{path}: {answer}"
        );
    }
    serving.abort();
    assert_eq!(values(&pool, &table).await, [10, 20, 30, 40]);
    drop_table(&pool, &table).await;
    pool.close().await;
}
