//! Bad input at every door: a clear error that says what to do, and nothing is lost behind it.

use std::error::Error as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::BytesMut;
use integration_tests::{all_shared, drop_table, eventually, own_name, pool, postgres, table, writes};
use pg_pipeline::types::{IsNull, ToSql, Type, to_sql_checked};
use pg_pipeline::{Config, Connection, Error, ErrorKind, Outcome, Phase, Pool, Row};

const SECRET: &str = "hush-hush-7531";

async fn refused(config: Config) -> Error {
    let error = Pool::builder(config.clone()).connect().await.expect_err("refused");
    let alone = Connection::connect(config).await.expect_err("refused without a pool too");
    assert_eq!((error.kind(), error.outcome()), (alone.kind(), alone.outcome()), "{error} and {alone}");
    error
}

#[tokio::test]
async fn a_server_that_refuses_says_why_and_no_password_shows() {
    let server = test_servers::postgres().await.expect("a server");
    let config: Config = server.url_for("scram_user", SECRET).parse().expect("a URL");
    let error = refused(config).await;
    assert_eq!(
        (error.kind(), error.outcome(), error.sqlstate()),
        (ErrorKind::Auth, Outcome::NotSent, Some("28P01"))
    );
    assert!(error.to_string().contains("scram_user"), "{error}");
    assert!(!format!("{error} {error:?}").contains(SECRET));

    let config: Config = server.url_for("no_such_user", SECRET).parse().expect("a URL");
    let error = refused(config).await;
    assert_eq!((error.kind(), error.sqlstate()), (ErrorKind::Auth, Some("28P01")));
    assert!(error.to_string().contains("no_such_user") && !format!("{error:?}").contains(SECRET), "{error}");

    let error = refused(postgres().await.database("no_such_database")).await;
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Connect, Outcome::NotSent));
    assert_eq!(error.sqlstate(), Some("3D000"));
    assert!(error.to_string().contains("no_such_database"), "{error}");

    let error = refused(server.url_for("scram_user", "").parse().expect("a URL")).await;
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Auth, Outcome::NotSent));
    assert!(error.to_string().contains("set `password`"), "{error}");

    let error = refused(postgres().await.setup(["SET no_such_parameter = 1"])).await;
    assert_eq!(error.sqlstate(), Some("42704"), "{error}");
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
    let error = refused(Config::new().host("127.0.0.1").port(port).user("u").password(SECRET)).await;
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Connect, Outcome::NotSent));
    assert!(error.to_string().contains(&format!("127.0.0.1:{port}")), "{error}");
    assert!(error.source().is_some() && error.is_retryable());
    assert!(began.elapsed() < Duration::from_secs(5), "at once");

    let error = refused(Config::new().host("no-such-host.invalid").user("u").password(SECRET)).await;
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Connect, Outcome::NotSent));
    assert!(error.to_string().contains("no-such-host.invalid:5432"), "{error}");

    let error = refused(Config::new().host("/no/such/directory").user("u").password(SECRET)).await;
    assert_eq!(error.kind(), ErrorKind::Connect);
    assert!(error.to_string().contains("/no/such/directory"), "{error}");

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
    let config =
        Config::new().host("127.0.0.1").port(port).user("u").query_timeout(Duration::from_millis(300));
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
    let cases = [
        ("mysql://app@host/db", "postgres://"),
        ("http://host", "postgres://"),
        ("just words", "neither a URL"),
        ("postgres://u:hush-hush-7531@host:notaport/db", "`port`"),
        ("postgres://u:hush-hush-7531@host:0/db", "between 1 and 65535"),
        ("postgres://u:hush-hush-7531@host:70000/db", "between 1 and 65535"),
        ("postgres://u:hush%zz-7531@host/db", "%25"),
        ("postgres://u:hush hush@host/db", "percent-encoded"),
        ("postgres://u:hush/hush-7531@host/db", "%2F"),
        ("postgres://u:hush@hush-7531@host/db", "%40"),
        ("postgres://u@[::1/db", "%5B"),
        ("postgres://u@host/db?flavour=sweet", "unknown option `flavour`"),
        ("postgres://u@host/db?connections", "no `=`"),
        ("postgres://u@host/db?connections=many", "connections"),
        ("postgres://u@host/db?connections=0", "between 1 and 1024"),
        ("postgres://u@host/db?query_timeout=0", "between 1 ms and 7 days"),
        ("postgres://u@host/db?sslmode=sometimes", "verify-full"),
        ("postgres://u@host/db?client_encoding=LATIN1", "UTF8"),
        ("host=h user=u password='hush-hush-7531", "closing quote"),
        ("host=h flavour=sweet", "unknown option `flavour`"),
        ("host=h password=hush hush-7531", "single quotes"),
        ("host=a,b port=1,2,3", "3 entries for 2 hosts"),
    ];
    for (text, hint) in cases {
        let error = Pool::connect(text).await.map(drop).expect_err(text);
        assert_eq!((error.kind(), error.outcome()), (ErrorKind::Config, Outcome::NotSent), "{text}: {error}");
        let shown = format!("{error} {error:?}");
        assert!(shown.contains(hint), "{text}: {error}");
        assert!(!shown.contains("hush"), "{text}: {error}");
    }
    for mode in ["require", "verify-ca", "verify-full"] {
        let config = postgres().await.option("sslmode", mode).expect("understood");
        let error = refused(config).await;
        assert_eq!(error.kind(), ErrorKind::Config);
        let message = error.to_string();
        assert!(
            message.contains(&format!("sslmode={mode} needs TLS")) && message.contains("sslmode=prefer"),
            "{error}"
        );
    }
    for mode in ["disable", "allow", "prefer"] {
        let config = postgres().await.option("sslmode", mode).expect("understood");
        Pool::builder(config).connections(1).connect().await.expect("plain connections").close().await;
    }
    let error =
        refused(postgres().await.option("target_session_attrs", "read-write").expect("understood")).await;
    assert!(
        error.to_string().contains("`target_session_attrs`") && error.to_string().contains("any"),
        "{error}"
    );
}

#[tokio::test]
async fn no_password_shows_anywhere() {
    let config = postgres().await.user("scram_user").password("secret").setup(["SELECT 'hush-hush-7531'"]);
    assert!(!format!("{config:?}").contains("secret"));
    let builder = Pool::builder(config.clone()).connections(2);
    assert!(!format!("{builder:?}").contains("secret"));
    let pool = builder.connect().await.expect("a pool");
    let tx = pool.begin().await.expect("a transaction");
    let alone = Connection::connect(config.clone()).await.expect("a connection");
    let shown = format!("{pool:?} {:?} {tx:?} {alone:?} {:?} {config:?}", pool.stats(), pool.batch());
    assert!(!shown.contains("secret") && !shown.contains(SECRET), "{shown}");
    drop(tx);
    pool.close().await;
}

#[tokio::test]
async fn parameters_that_do_not_fit_are_refused_before_anything_is_sent() {
    let pool = pool().await;
    all_shared(&pool).await;
    let sql = "SELECT $1::int4 + $2::int4";
    let (three,): (i32,) = pool.query_one(sql, (1, 2)).await.expect("fits");
    assert_eq!(three, 3);
    for error in [
        pool.query::<Row>(sql, ()).await.expect_err("too few"),
        pool.query::<Row>(sql, (1,)).await.expect_err("too few"),
        pool.query::<Row>(sql, (1, 2, 3)).await.expect_err("too many"),
        pool.execute("SELECT 1", (1,)).await.expect_err("too many"),
    ] {
        assert_eq!((error.kind(), error.outcome()), (ErrorKind::Encode, Outcome::NotSent));
        assert!(error.to_string().contains("parameters, and"), "{error}");
        assert!(!error.is_retryable());
    }
    let error = pool.query::<Row>(sql, (1, "two")).await.expect_err("a wrong type");
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Encode, Outcome::NotSent));
    assert!(error.to_string().contains("$2 cannot be encoded as int4"), "{error}");
    assert!(!error.to_string().contains("two"), "no parameter shows: {error}");
    let error = pool.query::<Row>("SELECT $1::text", ("a\0b",)).await.expect_err("no NUL in a text");
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Database, Outcome::Failed));
    for sql in ["SELECT '\0'", "\0"] {
        let error = pool.query::<Row>(sql, ()).await.expect_err("no NUL in a statement");
        assert_eq!((error.kind(), error.outcome()), (ErrorKind::Encode, Outcome::NotSent));
        assert!(error.to_string().contains("NUL"), "{error}");
        let session = pool.session().await.expect("a session");
        let error = session.batch_execute(sql).await.expect_err("nor in a script");
        assert_eq!((error.kind(), error.outcome()), (ErrorKind::Encode, Outcome::NotSent));
        session.batch_execute("SELECT 1").await.expect("works");
    }
    let (three,): (i32,) = pool.query_one(sql, (1, 2)).await.expect("works afterwards");
    assert_eq!(three, 3);
    pool.close().await;
}

#[tokio::test]
async fn rows_that_do_not_fit_are_told_after_the_statement_ran() {
    let pool = pool().await;
    let table = table(&pool, "rows", "n int4").await;
    let insert = format!("INSERT INTO {table} SELECT generate_series(1, $1) RETURNING n");
    for (rows, hint) in [(0, "query_opt"), (2, "LIMIT")] {
        let error = pool.query_one::<Row>(&insert, (rows,)).await.expect_err("not one row");
        assert_eq!((error.kind(), error.outcome()), (ErrorKind::RowCount, Outcome::Completed));
        assert!(error.to_string().contains(hint), "{error}");
    }
    let error = pool.query_opt::<Row>(&insert, (3,)).await.expect_err("more than one row");
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::RowCount, Outcome::Completed));
    assert!(pool.query_opt::<Row>(&insert, (0,)).await.expect("none is all right").is_none());
    let (count,): (i64,) =
        pool.query_one(format!("SELECT count(*) FROM {table}"), ()).await.expect("a count");
    assert_eq!(count, 5, "they ran");

    // Rows that are not what was asked for.
    let error = pool.query_one::<(i64,)>(&insert, (1,)).await.expect_err("int4 is no i64");
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Decode, Outcome::Completed));
    assert!(error.to_string().contains("column n of type int4"), "{error}");
    let error = pool.query_one::<(i32, i32)>(&insert, (1,)).await.expect_err("one column");
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Decode, Outcome::Completed));
    let error = pool.query_one::<(i32,)>("SELECT NULL::int4", ()).await.expect_err("NULL is no i32");
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
async fn statements_that_the_server_refuses_carry_everything_that_it_says() {
    let pool = pool().await;
    let name = own_name("fields");
    pool.execute(format!("CREATE TABLE {name} (n int4 CONSTRAINT {name}_check CHECK (n > 0))"), ())
        .await
        .expect("a table");
    let error = pool.execute("SELEC 1", ()).await.expect_err("a slip");
    let said = error.as_database().expect("the server's error");
    assert_eq!((said.severity(), said.code(), said.position()), ("ERROR", "42601", Some(1)));
    let error = pool.execute(format!("INSERT INTO {name} VALUES ($1)"), (-5,)).await.expect_err("checked");
    let said = error.as_database().expect("the server's error");
    assert_eq!((said.table(), said.schema()), (Some(name.as_str()), Some("public")));
    assert_eq!(said.constraint(), Some(format!("{name}_check").as_str()));
    assert!(said.detail().is_some_and(|detail| detail.contains("-5")), "rows are quoted in the detail");
    assert!(!format!("{error} {error:?}").contains("-5"), "and nowhere else");
    assert!(said.routine().is_some() && said.file().is_some() && said.line().is_some());
    let error = pool.execute("SELECT * FROM no_such_table_at_all", ()).await.expect_err("no table");
    assert_eq!(error.sqlstate(), Some("42P01"));
    let error = pool.execute("SELECT 1/$1::int4", (0,)).await.expect_err("division");
    assert_eq!(
        (error.kind(), error.outcome(), error.sqlstate()),
        (ErrorKind::Database, Outcome::Failed, Some("22012"))
    );
    assert!(!error.is_retryable());
    // Several statements in one are for scripts.
    let error = pool.execute("SELECT 1; SELECT 2", ()).await.expect_err("two statements");
    assert_eq!(error.sqlstate(), Some("42601"));
    let error = pool.batch_execute("SELECT 1; SELECT 1/0").await.expect_err("division");
    assert_eq!((error.kind(), error.sqlstate()), (ErrorKind::Database, Some("22012")));
    drop_table(&pool, &name).await;
    pool.close().await;
}

/// Writes a few bytes and then fails, or panics.
#[derive(Debug)]
enum Spoilt {
    Fails,
    Panics,
}

impl ToSql for Spoilt {
    fn to_sql(
        &self,
        _: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        out.extend_from_slice(b"half of a val");
        match self {
            Self::Fails => Err("it went wrong in the middle".into()),
            Self::Panics => panic!("on purpose"),
        }
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    to_sql_checked!();
}

#[tokio::test]
async fn a_value_that_fails_or_panics_while_it_is_encoded_harms_nobody() {
    let pool = Pool::builder(postgres().await).connections(2).connect().await.expect("a pool");
    all_shared(&pool).await;
    let sql = "SELECT $1::int8, $2::text";
    let good = |n: i64| {
        let pool = pool.clone();
        tokio::spawn(async move {
            let (back, text): (i64, String) =
                pool.query_one(sql, (n, n.to_string())).await.expect("its own answer");
            assert_eq!((back, text), (n, n.to_string()));
        })
    };
    good(-1).await.expect("known from here on");
    let before = writes(&pool);
    for round in 0..50 {
        let one = good(round);
        let failing = pool.query::<Row>(sql, (round, Spoilt::Fails));
        let two = good(round + 1_000);
        let panicking = tokio::spawn({
            let pool = pool.clone();
            async move { pool.query::<Row>(sql, (round, Spoilt::Panics)).await }
        });
        let three = good(round + 2_000);
        let error = failing.await.expect_err("it fails");
        assert_eq!((error.kind(), error.outcome()), (ErrorKind::Encode, Outcome::NotSent));
        assert!(error.to_string().contains("$2") && error.to_string().contains("in the middle"), "{error}");
        assert!(panicking.await.expect_err("a panic").is_panic());
        for task in [one, two, three] {
            task.await.expect("not disturbed");
        }
    }
    assert!(writes(&pool) <= before + 150, "nothing was written for what failed");
    // Inside of a transaction: the work before it and behind it is kept.
    let table = table(&pool, "spoilt", "n int8, t text").await;
    let insert = format!("INSERT INTO {table} VALUES ($1, $2)");
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
    let (sum,): (String,) =
        pool.query_one(format!("SELECT sum(n)::text FROM {table}"), ()).await.expect("a sum");
    assert_eq!(sum, "5");
    eventually("nothing is in flight", || async { pool.stats().in_flight() == 0 }).await;
    drop_table(&pool, &table).await;
    pool.close().await;
}

#[tokio::test]
async fn a_value_that_is_encoded_by_asking_the_pool_itself_is_no_trap() {
    /// Asks for a connection's number while a statement of the same pool is encoded.
    #[derive(Debug)]
    struct Reentrant(Pool, Arc<AtomicUsize>);

    impl ToSql for Reentrant {
        fn to_sql(
            &self,
            r#type: &Type,
            out: &mut BytesMut,
        ) -> Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
            let pool = self.0.clone();
            let asked = Arc::clone(&self.1);
            tokio::spawn(async move {
                pool.execute("SELECT 1", ()).await.expect("works");
                asked.fetch_add(1, Ordering::Relaxed);
            });
            self.0.stats().in_flight().to_string().to_sql(r#type, out)
        }

        fn accepts(r#type: &Type) -> bool {
            *r#type == Type::TEXT
        }

        to_sql_checked!();
    }

    let pool = pool().await;
    let asked = Arc::new(AtomicUsize::new(0));
    let value = Reentrant(pool.clone(), Arc::clone(&asked));
    for _ in 0..20 {
        let (text,): (String,) = pool.query_one("SELECT $1::text", (&value,)).await.expect("an answer");
        text.parse::<usize>().expect("a number");
    }
    eventually("all inner calls are answered", || async { asked.load(Ordering::Relaxed) == 20 }).await;
    pool.close().await;
}

#[tokio::test]
async fn empty_statements_are_no_errors() {
    let pool = pool().await;
    for sql in ["", ";", " \n ", "-- a comment", "/* */"] {
        assert_eq!(pool.execute(sql, ()).await.expect(sql).rows_affected(), 0);
        assert!(pool.query::<Row>(sql, ()).await.expect(sql).is_empty());
        assert!(pool.query_opt::<Row>(sql, ()).await.expect(sql).is_none());
        let error = pool.query_one::<Row>(sql, ()).await.expect_err(sql);
        assert_eq!(error.kind(), ErrorKind::RowCount);
        pool.batch_execute(sql).await.expect(sql);
    }
    pool.close().await;
}
