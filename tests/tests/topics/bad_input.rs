//! Bad input at every door: a clear error that says what to do, and nothing is lost behind it.

use std::error::Error as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use integration_tests::odd_values::{Lazily, Spoilt};
use integration_tests::{eventually, own_name};

use super::side::dialect::{
    ADD, CONFIGURATIONS, ECHO_TEXT, ECHO_TEXT_LONG, NO_SUCH_DATABASE, PORT, SERIES, UNSET, drop_user,
    limited_user,
};
use super::side::{
    Config, Connection, Error, ErrorKind, Outcome, Phase, Pool, Row, all_shared, config, count, drop_table,
    loopback, pool, pool_of, sql, table, writes,
};

const SECRET: &str = "hush-hush-7531";

pub(super) async fn refused(config: Config) -> Error {
    let error = Pool::builder(config.clone()).connect().await.expect_err("refused");
    let alone = Connection::connect(config).await.expect_err("refused without a pool too");
    assert_eq!((error.kind(), error.outcome()), (alone.kind(), alone.outcome()), "{error} and {alone}");
    error
}

#[tokio::test]
async fn a_server_that_refuses_says_why() {
    let error = refused(config().await.database("no_such_database")).await;
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Connect, Outcome::NotSent));
    assert_eq!(error.sqlstate(), Some(NO_SUCH_DATABASE));
    assert!(error.to_string().contains("no_such_database"), "{error}");

    let error = refused(config().await.user("no_such_user").password(SECRET)).await;
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Auth, Outcome::NotSent), "{error}");
    assert!(!format!("{error} {error:?}").contains(SECRET), "{error:?}");

    // What a connection is to begin with.
    for setup in ["SET no_such_setting_at_all = 1", "SELECT no_such_column"] {
        let error = refused(config().await.setup([setup])).await;
        assert_eq!(error.outcome(), Outcome::NotSent, "{error}");
        assert!(error.as_database().is_some() && error.to_string().contains("no_such"), "{error}");
    }
}

/// A port that nobody can listen on as long as the socket is held.
fn port_without_server() -> (tokio::net::TcpSocket, u16) {
    let socket = tokio::net::TcpSocket::new_v4().expect("a socket");
    socket.bind(([127, 0, 0, 1], 0).into()).expect("a port");
    let port = socket.local_addr().expect("its number").port();
    (socket, port)
}

#[tokio::test]
async fn a_server_that_is_not_there_is_named() {
    let (_taken, port) = port_without_server();
    let began = Instant::now();
    let error = refused(loopback(port).password(SECRET)).await;
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Connect, Outcome::NotSent));
    assert!(error.to_string().contains(&format!("127.0.0.1:{port}")), "{error}");
    assert!(error.source().is_some() && error.is_retryable());
    assert!(began.elapsed() < Duration::from_secs(5), "at once");

    let error = refused(Config::new().host("no-such-host.invalid").user("u").password(SECRET)).await;
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Connect, Outcome::NotSent));
    assert!(error.to_string().contains(&format!("no-such-host.invalid:{PORT}")), "{error}");

    // Somebody listens and never says a word.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let silent =
        Config::new().hosts([("127.0.0.1", listener.local_addr().expect("its number").port())]).user("u");
    let error = refused(silent.connect_timeout(Duration::from_millis(200))).await;
    assert_eq!((error.kind(), error.phase()), (ErrorKind::Timeout, Some(Phase::Connect)));
    assert!(error.to_string().contains("connect_timeout (200 ms)"), "{error}");
}

#[tokio::test]
async fn a_pool_that_was_not_waited_for_tells_the_cause_to_those_who_ask() {
    let (_taken, port) = port_without_server();
    let config = loopback(port).query_timeout(Duration::from_millis(300));
    let pool = Pool::builder(config).connect_lazy().expect("never waits");
    let began = Instant::now();
    let error = pool.query::<Row>("SELECT 1", ()).await.expect_err("no server");
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Timeout, Outcome::NotSent));
    assert_eq!(error.phase(), Some(Phase::Queue));
    assert!(error.to_string().contains(&format!("cannot connect to 127.0.0.1:{port}")), "{error}");
    assert!(began.elapsed() < Duration::from_secs(5));
    pool.close().await;
}

#[tokio::test]
async fn configurations_that_cannot_be_used_are_refused_with_what_to_do() {
    for (text, hint) in CONFIGURATIONS {
        let error = Pool::connect(text).await.map(drop).expect_err(text);
        assert_eq!((error.kind(), error.outcome()), (ErrorKind::Config, Outcome::NotSent), "{text}: {error}");
        let shown = format!("{error} {error:?}");
        assert!(shown.contains(hint), "{text}: {error}");
        assert!(!shown.contains("hush"), "{text}: {error}");
    }
    // Understood, and not offered.
    let (option, value) = UNSET;
    let error = refused(config().await.option(option, value).expect("understood")).await;
    assert_eq!(error.kind(), ErrorKind::Config);
    assert!(error.to_string().contains(&format!("`{option}`")), "{error}");
}

#[tokio::test]
async fn no_password_shows_anywhere() {
    let (admin, user) = (super::side::pool().await, own_name("shown"));
    for statement in limited_user(&user, 100) {
        admin.execute(statement, ()).await.expect("a user");
    }
    let config = config().await.user(&user).password("secret").setup(["SELECT 'hush-hush-7531'"]);
    assert!(!format!("{config:?}").contains("secret"));
    let builder = Pool::builder(config.clone()).connections(2);
    assert!(!format!("{builder:?}").contains("secret"));
    let pool = builder.connect().await.expect("a pool");
    let tx = pool.begin().await.expect("a transaction");
    let alone = Connection::connect(config.clone()).await.expect("a connection");
    let shown = format!("{pool:?} {:?} {tx:?} {alone:?} {:?} {config:?}", pool.stats(), pool.batch());
    assert!(!shown.contains("secret") && !shown.contains(SECRET), "{shown}");
    drop(tx);
    alone.close().await;
    pool.close().await;
    admin.execute(drop_user(&user), ()).await.expect("dropped");
    admin.close().await;
}

#[tokio::test]
async fn parameters_that_do_not_fit_are_refused_before_anything_is_sent() {
    let pool = pool().await;
    all_shared(&pool).await;
    let (three,): (i32,) = pool.query_one(ADD, (1, 2)).await.expect("fits");
    assert_eq!(three, 3);
    for error in [
        pool.query::<Row>(ADD, ()).await.expect_err("too few"),
        pool.query::<Row>(ADD, (1,)).await.expect_err("too few"),
        pool.query::<Row>(ADD, (1, 2, 3)).await.expect_err("too many"),
        pool.execute("SELECT 1", (1,)).await.expect_err("too many"),
    ] {
        assert_eq!((error.kind(), error.outcome()), (ErrorKind::Encode, Outcome::NotSent));
        assert!(error.to_string().contains("parameters, and"), "{error}");
        assert!(!error.is_retryable());
    }
    let (three,): (i32,) = pool.query_one(ADD, (1, 2)).await.expect("works afterwards");
    assert_eq!(three, 3);
    pool.close().await;
}

#[tokio::test]
async fn rows_that_do_not_fit_are_told_after_the_statement_ran() {
    let pool = pool().await;
    for (rows, hint) in [(0, "query_opt"), (2, "LIMIT")] {
        let error = pool.query_one::<Row>(SERIES, (rows,)).await.expect_err("not one row");
        assert_eq!((error.kind(), error.outcome()), (ErrorKind::RowCount, Outcome::Completed));
        assert!(error.to_string().contains(hint), "{error}");
    }
    let error = pool.query_opt::<Row>(SERIES, (3,)).await.expect_err("more than one row");
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::RowCount, Outcome::Completed));
    assert!(pool.query_opt::<Row>(SERIES, (0,)).await.expect("none is all right").is_none());
    // One that gives no rows ran, too.
    let table = table(&pool, "rows", "n int4, m int4").await;
    let insert = format!("INSERT INTO {table} VALUES (1, NULL)");
    let error = pool.query_one::<Row>(&insert, ()).await.expect_err("no row");
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::RowCount, Outcome::Completed));
    assert_eq!(count(&pool, &table).await, 1);

    // Rows that are not what was asked for.
    let select = format!("SELECT n FROM {table}");
    let error = pool.query_one::<(String,)>(&select, ()).await.expect_err("a number is no text");
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Decode, Outcome::Completed));
    assert!(error.to_string().contains("column n of type"), "{error}");
    let error = pool.query_one::<(i32, i32)>(&select, ()).await.expect_err("one column");
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Decode, Outcome::Completed));
    let error =
        pool.query_one::<(i32,)>(format!("SELECT m FROM {table}"), ()).await.expect_err("NULL is no i32");
    assert_eq!(error.kind(), ErrorKind::Decode);
    let row: Row = pool.query_one("SELECT 1 AS one", ()).await.expect("a row");
    let error = row.try_get::<i32>("two").expect_err("no such column");
    assert!(error.to_string().contains("no column two") && error.to_string().contains("one"), "{error}");
    row.try_get::<i32>(1).expect_err("no such column");
    assert_eq!(row.get::<i32>(0), 1);
    drop_table(&pool, &table).await;
    pool.close().await;
}

#[tokio::test]
async fn a_value_that_fails_or_panics_while_it_is_encoded_harms_nobody() {
    let pool = pool_of(2).await;
    all_shared(&pool).await;
    let good = |n: i64| {
        let pool = pool.clone();
        tokio::spawn(async move {
            let (text, back): (String, i64) =
                pool.query_one(ECHO_TEXT_LONG, (n.to_string(), n)).await.expect("its own answer");
            assert_eq!((back, text), (n, n.to_string()));
        })
    };
    good(-1).await.expect("known from here on");
    let before = writes(&pool);
    for round in 0..50 {
        let one = good(round);
        let failing = pool.query::<Row>(ECHO_TEXT_LONG, (Spoilt::Fails, round));
        let two = good(round + 1_000);
        let panicking = tokio::spawn({
            let pool = pool.clone();
            async move { pool.query::<Row>(ECHO_TEXT_LONG, (Spoilt::Panics, round)).await }
        });
        let three = good(round + 2_000);
        let error = failing.await.expect_err("it fails");
        assert_eq!((error.kind(), error.outcome()), (ErrorKind::Encode, Outcome::NotSent));
        let message = error.to_string().replace('$', "");
        assert!(message.contains("parameter 1 cannot") && message.contains("in the middle"), "{error}");
        assert!(panicking.await.expect_err("a panic").is_panic());
        for task in [one, two, three] {
            task.await.expect("not disturbed");
        }
    }
    assert!(writes(&pool) <= before + 150, "nothing was written for what failed");
    // Inside of a transaction: the work before it and behind it is kept.
    let table = table(&pool, "spoilt", "n int8, t text").await;
    let insert = sql(format!("INSERT INTO {table} VALUES ($1, $2)"));
    let tx = pool.begin().await.expect("a transaction");
    tx.execute(&insert, (1_i64, "one")).await.expect("a write");
    tx.execute(&insert, (2_i64, Spoilt::Fails)).await.expect_err("it fails");
    let tx = tokio::spawn({
        let insert = insert.clone();
        async move {
            let inner = Arc::new(tx);
            let outer = Arc::clone(&inner);
            let panicking = tokio::spawn(async move { inner.execute(insert, (3_i64, Spoilt::Panics)).await });
            assert!(panicking.await.expect_err("a panic").is_panic());
            Arc::into_inner(outer).expect("the other one is gone")
        }
    })
    .await
    .expect("no panic here");
    tx.execute(&insert, (4_i64, "four")).await.expect("a write");
    tx.commit().await.expect("committed");
    let kept: Vec<(i64,)> = pool.query(format!("SELECT n FROM {table} ORDER BY n"), ()).await.expect("rows");
    assert_eq!(kept, [(1,), (4,)]);
    eventually("nothing is in flight", || async { pool.stats().in_flight() == 0 }).await;
    drop_table(&pool, &table).await;
    pool.close().await;
}

#[tokio::test]
async fn a_value_that_is_encoded_by_asking_the_pool_itself_is_no_trap() {
    let pool = pool().await;
    let asked = Arc::new(AtomicUsize::new(0));
    let value = Lazily(Arc::new({
        let (pool, asked) = (pool.clone(), Arc::clone(&asked));
        move || {
            let (pool, asked, in_flight) = (pool.clone(), Arc::clone(&asked), pool.stats().in_flight());
            tokio::spawn(async move {
                pool.execute("SELECT 1", ()).await.expect("works");
                asked.fetch_add(1, Ordering::Relaxed);
            });
            in_flight.to_string()
        }
    }));
    for _ in 0..20 {
        let (text,): (String,) = pool.query_one(ECHO_TEXT, (&value,)).await.expect("an answer");
        text.parse::<usize>().expect("a number");
    }
    eventually("all inner calls are answered", || async { asked.load(Ordering::Relaxed) == 20 }).await;
    pool.close().await;
}

#[tokio::test]
async fn scripts_may_be_empty_or_end_with_a_comment() {
    let pool = pool().await;
    let session = pool.session().await.expect("a session");
    for script in
        ["", ";", " \n ", "-- a comment", "/* */", "SELECT 1; -- the end", "SELECT 1;\n/* the */\n;;\n"]
    {
        pool.batch_execute(script).await.unwrap_or_else(|error| panic!("{script:?}: {error}"));
        session.batch_execute(script).await.unwrap_or_else(|error| panic!("{script:?}: {error}"));
    }
    drop(session);
    pool.close().await;
}
