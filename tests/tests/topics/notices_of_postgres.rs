//! What the server says unasked: notices, parameter status and notifications, in the middle of anything.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use integration_tests::{eventually, own_name};

use super::side::{Pool, Row, Statement, config, drop_table, pool, table};

/// The server tells everything that it does: notices before, between and behind all other messages.
async fn talkative_pool() -> Pool {
    let config = config().await.options("-c client_min_messages=debug5");
    Pool::builder(config).connect().await.expect("a pool")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_talkative_server_does_no_harm() {
    let pool = talkative_pool().await;
    let (level,): (String,) =
        pool.query_one("SELECT current_setting('client_min_messages')", ()).await.expect("a level");
    assert_eq!(level, "debug5");
    let table = table(&pool, "talkative", "n int4 PRIMARY KEY").await;
    let insert = Statement::new(format!("INSERT INTO {table} VALUES ($1)"));
    let tasks: Vec<_> = (0..32_i32)
        .map(|task| {
            let (pool, insert) = (pool.clone(), insert.clone());
            tokio::spawn(async move {
                for n in 0..20_i32 {
                    let number = task * 100 + n;
                    let (back,): (i32,) =
                        pool.query_one("SELECT $1::int4", (number,)).await.expect("an answer");
                    assert_eq!(back, number);
                    pool.execute(&insert, (number,)).await.expect("a write");
                    let error = pool.execute(&insert, (number,)).await.expect_err("a duplicate");
                    assert_eq!(error.sqlstate(), Some("23505"));
                    if n % 5 == 0 {
                        let tx = pool.begin().await.expect("a transaction");
                        tx.execute(&insert, (-1 - number,)).await.expect("a write");
                        tx.batch_execute("SELECT 1; SELECT 2").await.expect("a script");
                        tx.commit().await.expect("committed");
                        let mut batch = pool.batch();
                        batch.push("SELECT 1", ());
                        batch.push(format!("SELECT {number}"), ());
                        batch.execute().await.expect("a batch");
                    }
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("no task fails");
    }
    let session = pool.session().await.expect("a session");
    session.batch_execute("CREATE TEMP TABLE scratch (n serial PRIMARY KEY)").await.expect("a script");
    session.batch_execute("DISCARD ALL").await.expect("a script");
    drop(session);
    let (count,): (i64,) =
        pool.query_one(format!("SELECT count(*) FROM {table}"), ()).await.expect("a count");
    assert_eq!(count, 32 * 24);
    assert!(pool.stats().pipes.iter().all(|pipe| pipe.reconnects == 0), "no connection was lost");
    drop_table(&pool, &table).await;
    pool.close().await;
}

#[tokio::test]
async fn notices_of_every_severity_come_between_rows() {
    let pool = pool().await;
    let function = own_name("speaks");
    pool.execute(
        format!(
            "CREATE FUNCTION {function}(n int4) RETURNS SETOF int4 LANGUAGE plpgsql AS $$ BEGIN
                FOR i IN 1..n LOOP
                    RAISE DEBUG 'debug %', i; RAISE LOG 'log %', i; RAISE INFO 'info %', i;
                    RAISE NOTICE 'notice % %', i, repeat('x', 1000);
                    RAISE WARNING 'warning %', i USING DETAIL = 'a detail', HINT = 'a hint', ERRCODE = '01234';
                    RETURN NEXT i;
                END LOOP;
            END $$"
        ),
        (),
    )
    .await
    .expect("a function");
    let sql = format!("SELECT {function}($1)");
    let (long, short): (Vec<(i32,)>, Vec<(i32,)>) =
        tokio::try_join!(pool.query(&sql, (500,)), pool.query(&sql, (1,))).expect("rows");
    assert_eq!((long.len(), short), (500, vec![(1,)]));
    // A notice right before an error, and one that looks like one.
    let error = pool
        .batch_execute("DO $$ BEGIN RAISE WARNING 'careful'; RAISE EXCEPTION 'no further' USING ERRCODE = 'P0042'; END $$")
        .await
        .expect_err("an exception");
    assert_eq!(error.sqlstate(), Some("P0042"));
    let session = pool.session().await.expect("a session");
    session.execute("ROLLBACK", ()).await.expect("a warning: there is no transaction");
    session.execute("COMMIT", ()).await.expect("a warning too");
    let (one,): (i32,) = session.query_one("SELECT 1", ()).await.expect("works");
    assert_eq!(one, 1);
    drop(session);
    pool.execute(format!("DROP FUNCTION {function}"), ()).await.expect("dropped");
    pool.close().await;
}

#[tokio::test]
async fn notifications_for_a_session_that_listens_disturb_nothing() {
    let (pool, other) = (pool().await, pool().await);
    let channel = own_name("channel");
    let session = pool.session().await.expect("a session");
    session.execute(format!("LISTEN {channel}"), ()).await.expect("listening");
    let stop = Arc::new(AtomicBool::new(false));
    let speaker = tokio::spawn({
        let (other, channel, stop) = (other.clone(), channel.clone(), Arc::clone(&stop));
        async move {
            let mut sent = 0;
            while !stop.load(Ordering::Relaxed) {
                other
                    .execute("SELECT pg_notify($1, $2)", (&channel, "x".repeat(sent % 5_000)))
                    .await
                    .expect("sent");
                sent += 1;
            }
            sent
        }
    });
    for n in 0..300_i32 {
        let rows: Vec<(i32,)> = session.query("SELECT generate_series(1, $1)", (n,)).await.expect("rows");
        assert_eq!(rows.len() as i32, n);
    }
    stop.store(true, Ordering::Relaxed);
    assert!(speaker.await.expect("no panic") > 0);
    drop(session);
    pool.close().await;
    other.close().await;
}

#[tokio::test]
async fn settings_that_the_server_changes_for_everybody_disturb_nothing() {
    // A role's own database setting arrives as parameter status with the handshake; one that changes while connected
    // arrives between messages.
    let (pool, other) = (pool().await, pool().await);
    let session = pool.session().await.expect("a session");
    for n in 0..50_i32 {
        let name = format!("name {n}");
        let (set, row) = tokio::join!(
            session.execute("SELECT set_config('application_name', $1, false)", (&name,)),
            session.query_one::<(String,)>("SELECT current_setting('application_name')", ()),
        );
        set.expect("set");
        assert_eq!(row.expect("a name").0, name);
    }
    drop(session);
    eventually("it is shared again", || async { pool.stats().leased == 0 }).await;
    for _ in 0..16 {
        let row: Row =
            pool.query_one("SELECT current_setting('application_name')", ()).await.expect("a name");
        assert_eq!(row.get::<&str>(0), "");
    }
    pool.close().await;
    other.close().await;
}
