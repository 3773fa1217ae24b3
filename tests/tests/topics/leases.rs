//! Leases: one task has a connection alone, everybody else goes on, and what it leaves behind is put right.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use integration_tests::{eventually, own_name, poll_then_drop};

use super::side::dialect::{ECHO_LONG, EXP, NO_SUCH_TABLE, REMEMBERED, lock, remember, sleep};
use super::side::{
    Error, ErrorKind, Outcome, Phase, PipeState, Pool, Row, Session, all_shared, asleep, config, connections,
    in_transaction, is_free, loopback, named_pool, number, pool, pool_of, sql,
};

async fn all_leases(pool: &Pool) -> Vec<Session> {
    let mut sessions = Vec::new();
    for _ in 0..6 {
        sessions.push(pool.session().await.expect("a session"));
    }
    sessions
}

#[tokio::test]
async fn when_all_leases_are_held_the_next_one_fails_in_time_and_queries_go_on() {
    let acquire_timeout = Duration::from_millis(300);
    let pool =
        Pool::builder(config().await).acquire_timeout(acquire_timeout).connect().await.expect("a pool");
    all_shared(&pool).await;
    let held = all_leases(&pool).await;
    // Of eight pipes two always stay shared.
    let shared = pool.stats().pipes.iter().filter(|pipe| pipe.state == PipeState::Shared).count();
    assert_eq!((pool.stats().leased, shared), (6, 2));
    // Every holder asks for a second one, as nested transactions do.
    let began = Instant::now();
    let askers: Vec<_> = (0..held.len())
        .map(|_| {
            let pool = pool.clone();
            tokio::spawn(async move { pool.begin().await })
        })
        .collect();
    while askers.iter().any(|asker| !asker.is_finished()) {
        let (one,): (i32,) = pool.query_one("SELECT 1", ()).await.expect("queries go on");
        assert_eq!(one, 1);
        tokio::task::yield_now().await;
    }
    assert!(
        began.elapsed() >= acquire_timeout && began.elapsed() < acquire_timeout * 10,
        "{:?}",
        began.elapsed()
    );
    for asker in askers {
        let error = asker.await.expect("no panic").expect_err("no lease is left");
        assert_eq!((error.kind(), error.outcome()), (ErrorKind::Timeout, Outcome::NotSent));
        assert_eq!(error.phase(), Some(Phase::Lease));
        let message = error.to_string();
        for part in ["acquire_timeout (300 ms)", "6 of 6", "oldest for 0.", "raise `connections`"] {
            assert!(message.contains(part), "{part:?} in {message}");
        }
    }
    drop(held);
    pool.begin().await.expect("there are leases again").rollback().await.expect("nothing to do");
    pool.close().await;
}

#[tokio::test]
async fn who_waits_longest_is_served_first() {
    let pool = pool_of(2).await;
    all_shared(&pool).await;
    let first = pool.session().await.expect("the only lease");
    let served = Arc::new(Mutex::new(Vec::new()));
    let mut waiters = Vec::new();
    for number in 0..50_usize {
        let (asker, served) = (pool.clone(), Arc::clone(&served));
        waiters.push(tokio::spawn(async move {
            let tx = asker.begin().await.expect("a lease");
            served.lock().expect("unpoisoned").push(number);
            tx.execute("SELECT 1", ()).await.expect("works");
        }));
        eventually("it waits", || async { pool.stats().waiting_for_lease == number + 1 }).await;
    }
    drop(first);
    for waiter in waiters {
        waiter.await.expect("no waiter fails");
    }
    assert_eq!(*served.lock().expect("unpoisoned"), (0..50).collect::<Vec<_>>());
    pool.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_is_overtaken_for_long() {
    let pool = pool().await;
    all_shared(&pool).await;
    let workers: Vec<_> = (0..60)
        .map(|_| {
            let pool = pool.clone();
            tokio::spawn(async move {
                let (mut longest, mut sum) = (Duration::ZERO, Duration::ZERO);
                for _ in 0..10 {
                    let began = Instant::now();
                    let tx = pool.begin().await.expect("a lease");
                    let waited = began.elapsed();
                    longest = longest.max(waited);
                    sum += waited;
                    tx.execute(sleep(0.01), ()).await.expect("works");
                    tx.rollback().await.expect("over");
                }
                (longest, sum / 10)
            })
        })
        .collect();
    let mut waits = Vec::new();
    for worker in workers {
        waits.push(worker.await.expect("no worker fails"));
    }
    let mean = waits.iter().map(|(_, mean)| *mean).sum::<Duration>() / 60;
    let longest = waits.iter().map(|(longest, _)| *longest).max().expect("workers");
    // In order of arrival all wait about equally long; a stack would let some wait for the whole run.
    assert!(longest < mean * 4 + Duration::from_millis(100), "longest {longest:?}, mean {mean:?}");
    pool.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_waiters_that_give_up_leave_the_lease_to_the_next_one() {
    let pool = pool().await;
    all_shared(&pool).await;
    let held = all_leases(&pool).await;
    let waiters: Vec<_> = (0..1_000)
        .map(|_| {
            let pool = pool.clone();
            tokio::spawn(async move { pool.session().await })
        })
        .collect();
    eventually("all wait", || async { pool.stats().waiting_for_lease == 1_000 }).await;
    // Some leases come back while the waiters go.
    let mut held = held.into_iter();
    for (number, waiter) in waiters.iter().enumerate() {
        waiter.abort();
        if number % 200 == 0 {
            drop(held.next());
        }
    }
    for waiter in waiters {
        // Either it was aborted, or it had its lease before: then that is dropped here.
        drop(waiter.await);
    }
    let began = Instant::now();
    let session = pool.session().await.expect("a lease at once");
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    session.execute("SELECT 1", ()).await.expect("works");
    assert_eq!(pool.stats().waiting_for_lease, 0);
    drop((session, held));
    all_shared(&pool).await;
    assert_eq!(pool.stats().leased, 0);
    pool.close().await;
}

#[tokio::test]
async fn an_acquisition_cancelled_at_any_poll_loses_no_lease() {
    let pool = pool_of(2).await;
    all_shared(&pool).await;
    for polls in 0..20 {
        if let Some(session) = poll_then_drop(pool.session(), polls % 5).await {
            session.expect("a session").execute("SELECT 1", ()).await.expect("works");
        }
        if let Some(tx) = poll_then_drop(pool.begin(), polls % 5).await {
            tx.expect("a transaction").execute("SELECT 1", ()).await.expect("works");
        }
    }
    pool.session().await.expect("the lease is still there").execute("SELECT 1", ()).await.expect("works");
    eventually("it is back", || async { pool.stats().leased == 0 }).await;
    pool.close().await;
}

#[tokio::test]
async fn of_two_pipes_one_can_be_leased_and_of_one_none() {
    let two = Pool::builder(config().await)
        .connections(2)
        .acquire_timeout(Duration::from_millis(100))
        .connect()
        .await
        .expect("a pool");
    all_shared(&two).await;
    let session = two.session().await.expect("a session");
    session.execute("SELECT 1", ()).await.expect("works");
    let error = two.begin().await.expect_err("the other pipe stays shared");
    assert!(error.to_string().contains("1 of 1"), "{error}");
    two.query_one::<(i32,)>("SELECT 1", ()).await.expect("works");
    drop(session);
    two.begin().await.expect("a lease again").execute("SELECT 1", ()).await.expect("works");
    two.close().await;

    let one = pool_of(1).await;
    for error in [
        one.begin().await.map(drop).expect_err("none"),
        one.session().await.map(drop).expect_err("none"),
        one.batch_execute("SELECT 1").await.expect_err("none"),
    ] {
        assert_eq!((error.kind(), error.outcome()), (ErrorKind::Config, Outcome::NotSent));
        assert!(error.to_string().contains("set `connections` to 2"), "{error}");
    }
    one.query_one::<(i32,)>("SELECT 1", ()).await.expect("works");
    one.close().await;
}

#[tokio::test]
async fn without_a_connection_to_lease_the_reason_is_told() {
    let socket = tokio::net::TcpSocket::new_v4().expect("a socket");
    socket.bind(([127, 0, 0, 1], 0).into()).expect("a port that nobody listens on");
    let port = socket.local_addr().expect("its number").port();
    let config = loopback(port).acquire_timeout(Duration::from_millis(200));
    let pool = Pool::builder(config).connect_lazy().expect("never waits");
    let error = pool.begin().await.expect_err("no server");
    assert_eq!((error.kind(), error.phase()), (ErrorKind::Timeout, Some(Phase::Lease)));
    let message = error.to_string();
    for part in ["0 of 6 are held", "none was up and free", &format!("cannot connect to 127.0.0.1:{port}")] {
        assert!(message.contains(part), "{part:?} in {message}");
    }
    pool.close().await;
}

#[tokio::test]
async fn a_session_keeps_its_state_across_statements() {
    let pool = pool().await;
    let session = pool.session().await.expect("a session");
    let own = number(&session).await;
    session.execute(remember("kept"), ()).await.expect("set");
    session.execute("CREATE TEMPORARY TABLE scratch (n int4)", ()).await.expect("created");
    for n in 0..20 {
        session.execute(sql("INSERT INTO scratch VALUES ($1)"), (n,)).await.expect("a write");
        // The others' work changes nothing here.
        pool.execute("SELECT 1", ()).await.expect("works");
    }
    assert_eq!(number(&session).await, own);
    let (word,): (String,) = session.query_one(REMEMBERED, ()).await.expect("a word");
    let (count,): (i64,) = session.query_one("SELECT count(*) FROM scratch", ()).await.expect("a count");
    assert_eq!((word.as_str(), count), ("kept", 20));
    drop(session);
    pool.close().await;
}

#[tokio::test]
async fn what_a_session_held_is_free_when_it_is_dropped() {
    let name = own_name("held");
    let (pool, other) = (named_pool(&name).await, pool().await);
    let key = std::process::id();
    for state in ["at rest", "in a transaction", "in a failed transaction", "under way"] {
        let session = pool.session().await.expect("a session");
        session
            .batch_execute(&format!(
                "{}; CREATE TEMPORARY TABLE scratch (n int4); {}",
                lock(key),
                remember("mine")
            ))
            .await
            .expect("held");
        assert!(!is_free(&other, key).await, "{state}");
        match state {
            "in a transaction" => {
                session.batch_execute("BEGIN; INSERT INTO scratch VALUES (1)").await.expect("open");
            }
            "in a failed transaction" => {
                session.batch_execute("BEGIN").await.expect("open");
                session.execute(EXP, (1_000.0,)).await.expect_err("out of range");
            }
            "under way" => {
                tokio::select! {
                    _ = session.execute(sleep(0.3), ()) => panic!("dropped before it is awake"),
                    () = eventually("it sleeps", || async { asleep(&other, &name).await == 1 }) => {}
                }
            }
            _ => {}
        }
        drop(session);
        eventually("the lock is free", || async { is_free(&other, key).await }).await;
        all_shared(&pool).await;
        for n in 0..32 {
            let (word,): (Option<String>,) = pool.query_one(REMEMBERED, ()).await.expect("a look");
            assert!(word.is_none_or(|word| word.is_empty()), "{state}");
            let error = pool.execute("SELECT n FROM scratch", ()).await.expect_err("no such table");
            assert_eq!(error.sqlstate(), Some(NO_SUCH_TABLE), "{state}");
            assert_eq!(pool.query_one::<(i64,)>(ECHO_LONG, (n,)).await.expect("an answer"), (n,));
        }
        assert_eq!(in_transaction(&other, &name).await, 0, "{state}");
        assert_eq!(connections(&other, &name).await, 8, "no connection was thrown away: {state}");
    }
    pool.close().await;
    other.close().await;
}

#[tokio::test]
async fn statements_of_a_session_run_in_the_order_of_their_first_poll() {
    let pool = pool().await;
    let session = pool.session().await.expect("a session");
    session.execute("CREATE TEMPORARY TABLE scratch (id serial, n int4)", ()).await.expect("created");
    for round in 0..10 {
        let base = round * 3;
        tokio::try_join!(
            session.execute(sql(format!("INSERT INTO scratch (n) VALUES ($1) /* {round} */")), (base,)),
            session.execute(sql("INSERT INTO scratch (n) VALUES ($1)"), (base + 1,)),
            session.execute(
                sql(format!("INSERT INTO scratch (n) VALUES ($1) /* again {round} */")),
                (base + 2,)
            ),
        )
        .expect("all run");
    }
    let rows: Vec<(i32,)> = session.query("SELECT n FROM scratch ORDER BY id", ()).await.expect("rows");
    assert_eq!(rows, (0..30).map(|n| (n,)).collect::<Vec<_>>());
    drop(session);
    pool.close().await;
}

#[tokio::test]
async fn whoever_holds_a_lease_is_named_by_the_place_in_the_code_that_took_it() {
    let acquire_timeout = Duration::from_millis(100);
    let config = config().await.connections(3).acquire_timeout(acquire_timeout);
    let pool = Pool::builder(config).connect().await.expect("a pool");
    let place = |line: u32| format!("{}:{line}:", file!());
    let held = || pool.stats().leases.first().map(|lease| lease.taken_at.to_string()).unwrap_or_default();
    all_shared(&pool).await;

    let line = line!() + 1;
    let tx = pool.begin().await.expect("a lease");
    assert!(held().starts_with(&place(line)), "{} is not {}", held(), place(line));
    let error = pool.session().await.expect_err("the only lease is held");
    assert!(error.to_string().contains(&format!("taken at {}", place(line))), "{error}");
    drop(tx);

    let line = line!() + 1;
    let session = pool.session().await.expect("a lease");
    assert!(held().starts_with(&place(line)), "{} is not {}", held(), place(line));
    drop(session);

    let line = line!() + 1;
    let work = pool.transaction().run(async |tx| {
        tx.query::<Row>("SELECT 1", ()).await?;
        Ok::<_, Error>(held())
    });
    let seen = work.await.expect("done");
    assert!(seen.starts_with(&place(line)), "{seen} is not {}", place(line));

    all_shared(&pool).await;
    let slept = sleep(0.2);
    let line = line!() + 1;
    let script = pool.batch_execute(&slept);
    let named = eventually("it is named", || async { held().starts_with(&place(line)) });
    let (done, ()) = tokio::join!(script, named);
    done.expect("a script");
    pool.close().await;
}
