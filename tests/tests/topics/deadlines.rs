//! Deadlines: what takes too long is told in time and by the phase that ran out, and nobody else notices.

use std::time::{Duration, Instant};

use integration_tests::{eventually, own_name};

use super::side::dialect::{ECHO, ECHO_BOTH, ECHO_SLOWLY, NEGATE, sleep};
use super::side::{
    CallOptions, ErrorKind, Outcome, Phase, Pool, Row, Statement, active, all_shared, asleep, config,
    connections, drop_table, idle, named_config, named_pool, pool, pool_of, reconnects, sql, table,
};

/// Far more than any of these waits should take, and far less than the server's sleep.
const GENEROUS: Duration = Duration::from_secs(4);

fn limit(milliseconds: u64) -> CallOptions {
    CallOptions::new().timeout(Duration::from_millis(milliseconds))
}

#[tokio::test]
async fn an_answer_that_does_not_come_is_told_by_its_phase() {
    let pool = pool().await;
    all_shared(&pool).await;
    let slow = sleep(60.0);
    for round in 0..2 {
        // Unknown in the first round: learning it is within the deadline too.
        let began = Instant::now();
        let error = pool.with(limit(1_000)).query::<Row>(&slow, ()).await.expect_err("too slow");
        let took = began.elapsed();
        assert_eq!((error.kind(), error.outcome()), (ErrorKind::Timeout, Outcome::Unknown), "round {round}");
        assert_eq!(error.phase(), Some(Phase::Answer));
        assert!(error.to_string().contains("phase answer"), "{error}");
        assert!(!error.is_retryable(), "it may have run");
        assert!(took >= Duration::from_secs(1) && took < GENEROUS, "{took:?}");
    }
    // The others are quick meanwhile: nobody waits behind the sleepers.
    let began = Instant::now();
    for n in 0..200_i32 {
        let (back,): (i32,) = pool.query_one(ECHO, (n,)).await.expect("an answer");
        assert_eq!(back, n);
    }
    assert!(began.elapsed() < GENEROUS, "{:?}", began.elapsed());
    pool.close_within(Duration::from_millis(10)).await;
}

#[tokio::test]
async fn after_a_timeout_queries_are_quick_on_the_other_pipes() {
    let pool = pool().await;
    all_shared(&pool).await;
    let asleep = tokio::time::timeout(Duration::from_millis(100), pool.execute(sleep(5.0), ())).await;
    asleep.expect_err("dropped before its answer");
    for n in 0..8_i32 {
        let began = Instant::now();
        let (back,): (i32,) = pool.query_one(ECHO, (n,)).await.expect("an answer");
        assert_eq!(back, n);
        assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
    }
    pool.close_within(Duration::from_millis(10)).await;
}

#[tokio::test]
async fn answers_that_come_after_their_deadline_reach_nobody() {
    let pool = pool_of(1).await;
    let slow = Statement::new(ECHO_SLOWLY);
    pool.query_one::<(i32,)>(&slow, (0,)).await.expect("known from here on");
    for n in 1..6_i32 {
        let view = pool.with(limit(50));
        let (late, next) = tokio::join!(view.query_one::<(i32,)>(&slow, (n,)), async {
            tokio::time::sleep(Duration::from_millis(60)).await;
            pool.query_one::<(i32,)>(NEGATE, (n,)).await
        });
        assert_eq!(late.expect_err("late").phase(), Some(Phase::Answer));
        assert_eq!(next.expect("its own answer"), (-n,));
    }
    assert_eq!(reconnects(&pool), 0, "the connection is kept");
    pool.close().await;
}

#[tokio::test]
async fn a_statement_that_was_not_sent_in_time_never_runs() {
    let name = own_name("not_sent");
    let pool = Pool::builder(named_config(&name).await).connections(1).connect().await.expect("a pool");
    let other = super::side::pool().await;
    let table = table(&other, "not_sent", "n int4").await;
    let insert = Statement::new(sql(format!("INSERT INTO {table} VALUES ($1)")));
    pool.execute(&insert, (0,)).await.expect("known from here on");
    pool.execute(sleep(0.0), ()).await.expect("known from here on");
    let sleeper = tokio::spawn({
        let pool = pool.clone();
        async move { pool.execute(sleep(1.0), ()).await }
    });
    eventually("it sleeps", || async { asleep(&other, &name).await == 1 }).await;
    // Held back behind the sleeper on the only pipe.
    let error = pool.with(limit(100)).execute(&insert, (1,)).await.expect_err("no room in time");
    assert_eq!(
        (error.kind(), error.outcome(), error.phase()),
        (ErrorKind::Timeout, Outcome::NotSent, Some(Phase::Queue))
    );
    assert!(error.to_string().contains("phase queue") && error.is_retryable(), "{error}");
    let dropped = tokio::time::timeout(Duration::from_millis(50), pool.execute(&insert, (2,))).await;
    dropped.expect_err("dropped before it was sent");
    sleeper.await.expect("no panic").expect("awake");
    pool.execute(&insert, (3,)).await.expect("works");
    let rows: Vec<(i32,)> = other.query(format!("SELECT n FROM {table} ORDER BY n"), ()).await.expect("rows");
    assert_eq!(rows, [(0,), (3,)]);
    drop_table(&other, &table).await;
    pool.close().await;
    other.close().await;
}

#[tokio::test]
async fn the_pools_own_timeout_holds_for_every_kind_of_call() {
    let pool = Pool::builder(config().await)
        .query_timeout(Duration::from_secs(1))
        .acquire_timeout(GENEROUS)
        .connect()
        .await
        .expect("a pool");
    all_shared(&pool).await;
    let began = Instant::now();
    let session = pool.session().await.expect("a session");
    let alone = pool.begin().await.expect("a transaction");
    let mut batch = pool.batch();
    batch.push(sleep(60.0), ());
    let (query, batch, script, statement, in_transaction) = tokio::join!(
        pool.query::<Row>(sleep(60.0), ()),
        batch.execute(),
        async { pool.batch_execute(&sleep(60.0)).await },
        session.execute(sleep(60.0), ()),
        alone.execute(sleep(60.0), ()),
    );
    let errors = [
        query.map(drop).expect_err("too slow"),
        batch.map(drop).expect_err("too slow"),
        script.expect_err("too slow"),
        statement.map(drop).expect_err("too slow"),
        in_transaction.map(drop).expect_err("too slow"),
    ];
    assert!(began.elapsed() < GENEROUS, "{:?}", began.elapsed());
    for error in errors {
        assert_eq!((error.kind(), error.outcome()), (ErrorKind::Timeout, Outcome::Unknown), "{error}");
        assert_eq!(error.phase(), Some(Phase::Answer), "{error}");
    }
    // A call's own limit wins, in both directions.
    pool.with(limit(60_000)).execute(sleep(1.5), ()).await.expect("in time");
    pool.close_within(Duration::from_millis(10)).await;
}

#[tokio::test]
async fn a_lease_that_is_not_free_in_time_is_told_by_its_phase() {
    let pool = Pool::builder(config().await)
        .connections(2)
        .acquire_timeout(Duration::from_millis(150))
        .connect()
        .await
        .expect("a pool");
    all_shared(&pool).await;
    let held = pool.session().await.expect("a session");
    let began = Instant::now();
    let error = pool.begin().await.expect_err("held");
    assert_eq!(
        (error.kind(), error.outcome(), error.phase()),
        (ErrorKind::Timeout, Outcome::NotSent, Some(Phase::Lease))
    );
    assert!(error.to_string().contains("acquire_timeout (150 ms)"), "{error}");
    assert!(began.elapsed() >= Duration::from_millis(150) && began.elapsed() < GENEROUS);
    drop(held);
    pool.begin().await.expect("free again").rollback().await.expect("nothing to do");
    pool.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn futures_dropped_by_a_timeout_leave_the_pool_as_it_was() {
    let name = own_name("dropped");
    let (pool, other) = (named_pool(&name).await, pool().await);
    all_shared(&pool).await;
    let tasks: Vec<_> = (0..50_i32)
        .map(|task| {
            let (pool, text, echo) = (pool.clone(), "x".repeat(5_000), Statement::new(ECHO_BOTH));
            tokio::spawn(async move {
                for n in 0..40_i32 {
                    let number = task * 100 + n;
                    let query = pool.query_one::<(i32, String)>(&echo, (number, &text));
                    let limit = Duration::from_micros(u64::from(number.unsigned_abs() % 16) * 100);
                    if let Ok(answer) = tokio::time::timeout(limit, query).await {
                        assert_eq!(answer.expect("an answer").0, number);
                    }
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("no task fails");
    }
    idle(&pool).await;
    assert_eq!(reconnects(&pool), 0, "no connection was thrown away");
    assert_eq!(connections(&other, &name).await, 8);
    pool.close().await;
    other.close().await;
}

#[tokio::test]
async fn a_deadline_beyond_all_time_is_a_long_one() {
    let pool = pool().await;
    let forever = pool.with(CallOptions::new().timeout(Duration::MAX));
    assert_eq!(forever.query_one::<(i32,)>("SELECT 1", ()).await.expect("answers"), (1,));
    pool.close().await;
}

#[tokio::test]
async fn the_server_stops_what_nobody_waits_for_and_what_comes_next_is_not_hit() {
    let name = own_name("stopped");
    let (pool, other) = (named_pool(&name).await, pool().await);
    all_shared(&pool).await;
    let long = sleep(600.0);
    for _ in 0..5 {
        let view = pool.with(CallOptions::new().timeout(Duration::from_millis(500)));
        let error = view.query::<Row>(&long, ()).await.expect_err("it takes ten minutes");
        assert_eq!((error.kind(), error.outcome()), (ErrorKind::Timeout, Outcome::Unknown));
        eventually("nothing of it runs any more", || async { active(&other, &name).await == 0 }).await;
        eventually("its place is free", || async { pool.stats().in_flight() == 0 }).await;
        let all = (0..50).map(|n| pool.query_one::<(i32,)>(ECHO, (n,)));
        for answer in futures_util::future::join_all(all).await {
            answer.expect("not hit");
        }
    }
    assert_eq!(reconnects(&pool), 0, "and no connection was given up for it");
    pool.close().await;
    // The same on a lease, whose holder goes on.
    let config = named_config(&name).await.query_timeout(Duration::from_secs(1));
    let pool = Pool::builder(config).connect().await.expect("a pool");
    let session = pool.session().await.expect("a session");
    for n in 0..3_i32 {
        let error = session.query::<Row>(&long, ()).await.expect_err("it takes ten minutes");
        assert_eq!((error.kind(), error.outcome()), (ErrorKind::Timeout, Outcome::Unknown));
        let (back,): (i32,) = session.query_one(ECHO, (n,)).await.expect("not hit");
        assert_eq!(back, n);
    }
    drop(session);
    pool.close().await;
    other.close().await;
}

#[tokio::test]
async fn a_pool_that_is_closed_before_its_statements_end_leaves_nothing_running() {
    let name = own_name("cut_short");
    let (pool, other) = (named_pool(&name).await, pool().await);
    let long = sleep(600.0);
    let waits = tokio::spawn({
        let (pool, long) = (pool.clone(), long.clone());
        async move { pool.query::<Row>(&long, ()).await }
    });
    eventually("it runs", || async { asleep(&other, &name).await == 1 }).await;
    let began = Instant::now();
    pool.close_within(Duration::from_millis(100)).await;
    assert!(began.elapsed() < GENEROUS, "{:?}", began.elapsed());
    let error = waits.await.expect("no panic").expect_err("closed");
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Closed, Outcome::Unknown));
    eventually("the server has stopped it", || async { connections(&other, &name).await == 0 }).await;
    other.close().await;
}
