//! Cases from services in production that have no topic of their own: tenants in schemas, large answers that nobody
//! wants any more, statements that fail and are counted, tasks that panic, programs that are started meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use integration_tests::{eventually, own_name};

use super::side::dialect::{
    ECHO, FAILS_AMONG_ROWS, FAILS_AMONG_ROWS_STATE, NO_SUCH_TABLE, NUMBER_AND_SCHEMA, STALE, many_rows,
    remember, switch_to,
};
use super::side::{
    Client, Error, ErrorKind, Outcome, Pool, Row, Statement, all_shared, config, drop_table, idle, number,
    pool, pool_of, reconnects, sql, table, writes,
};

/// Two schemas with a table of the same name, whose columns differ.
async fn tenants(other: &Pool) -> [String; 2] {
    let tenants = [own_name("tenant"), own_name("tenant")];
    for (tenant, columns) in
        tenants.iter().zip(["n int, word varchar(80)", "word varchar(80), more bigint, n int"])
    {
        other.execute(format!("CREATE SCHEMA {tenant}"), ()).await.expect("a schema");
        other.execute(format!("CREATE TABLE {tenant}.things ({columns})"), ()).await.expect("a table");
        let insert = format!("INSERT INTO {tenant}.things (n, word) VALUES (1, '{tenant}'), (2, '{tenant}')");
        other.execute(insert, ()).await.expect("rows");
    }
    tenants
}

async fn drop_tenants(other: &Pool, tenants: &[String; 2]) {
    for tenant in tenants {
        other.execute(format!("DROP TABLE {tenant}.things"), ()).await.expect("dropped");
        other.execute(format!("DROP SCHEMA {tenant}"), ()).await.expect("dropped");
    }
}

/// Asks with statements that are known from the other tenant; every row must be of this one.
async fn sees_only(client: &impl Client, tenant: &str) {
    let (all, by_number) = ("SELECT * FROM things ORDER BY n", sql("SELECT word FROM things WHERE n = $1"));
    let rows: Vec<Row> = client.query(all, ()).await.expect("rows");
    let seen: Vec<(i32, &str)> = rows.iter().map(|row| (row.get("n"), row.get("word"))).collect();
    assert_eq!(seen, [(1, tenant), (2, tenant)]);
    let (word,): (String,) = client.query_one(by_number, (1,)).await.expect("a row");
    assert_eq!(word, tenant);
    let update = sql("UPDATE things SET n = $1 WHERE n = 1");
    assert_eq!(client.execute(update, (1,)).await.expect("a write").rows_affected(), 1);
}

#[tokio::test]
async fn tenants_of_one_session_never_see_each_others_rows() {
    let (pool, other) = (pool_of(2).await, pool().await);
    let (_, usual): (i64, Option<String>) = pool.query_one(NUMBER_AND_SCHEMA, ()).await.expect("a schema");
    let tenants = tenants(&other).await;
    for round in 0..3 {
        let session = pool.session().await.expect("a session");
        for tenant in &tenants {
            session.execute(switch_to(tenant), ()).await.expect("switched");
            sees_only(&session, tenant).await;
        }
        for tenant in &tenants {
            // Together with what asks, in one go.
            let switch = session.execute(switch_to(tenant), ());
            let (switched, rows) =
                tokio::join!(switch, session.query::<Row>("SELECT * FROM things ORDER BY n", ()));
            switched.expect("switched");
            match rows {
                Ok(rows) => assert!(rows.iter().all(|row| row.get::<&str>("word") == tenant)),
                // PostgreSQL's stale plan is not run again where that could change the order of what is pipelined.
                Err(error) => assert_eq!(error.sqlstate(), STALE, "{error}"),
            }
        }
        for tenant in &tenants {
            let script = format!("SELECT 1; {}; SELECT 2", switch_to(tenant));
            session.batch_execute(&script).await.expect("switched");
            sees_only(&session, tenant).await;
        }
        for tenant in &tenants {
            // In a transaction that began with statements of the other one.
            session.batch_execute("BEGIN").await.expect("open");
            session.execute(switch_to(tenant), ()).await.expect("switched");
            session.batch_execute("COMMIT").await.expect("closed");
            sees_only(&session, tenant).await;
        }
        let own = number(&session).await;
        drop(session);
        // Nobody else is in a tenant's schema now.
        eventually("the connection is shared again", || async {
            let asks = (0..16).map(|_| async {
                let error =
                    pool.query::<Row>("SELECT * FROM things ORDER BY n", ()).await.expect_err("no tenant");
                assert_eq!(error.sqlstate(), Some(NO_SUCH_TABLE), "{error}");
                let (asked, schema): (i64, Option<String>) =
                    pool.query_one(NUMBER_AND_SCHEMA, ()).await.expect("a schema");
                assert_eq!(schema, usual, "round {round}");
                asked == own
            });
            join_all(asks).await.contains(&true)
        })
        .await;
    }
    drop_tenants(&other, &tenants).await;
    pool.close().await;
    other.close().await;
}

/// Streams are a later milestone: an answer that is collected whole is dropped in the middle instead.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_answer_that_nobody_wants_any_more_holds_up_nobody_and_takes_no_memory() {
    let config = config().await.connections(2).max_answer_bytes(64 << 20).answer_budget(64 << 20);
    let pool = Pool::builder(config).connect().await.expect("a pool");
    all_shared(&pool).await;
    pool.query_one::<(i32,)>(ECHO, (0,)).await.expect("known from here on");
    let large = many_rows(1_000_000);
    for round in 0..2 {
        let asked = tokio::spawn({
            let (pool, large) = (pool.clone(), large.clone());
            async move { pool.query::<Row>(large, ()).await.map(|rows| rows.len()) }
        });
        eventually("its rows are coming", || async { pool.stats().answer_bytes > 100_000 }).await;
        asked.abort();
        let ended = asked.await;
        assert!(ended.is_err(), "round {round}: dropped before it was whole");
        let began = Instant::now();
        for n in 0..100 {
            let (back,): (i32,) = pool.query_one(ECHO, (n,)).await.expect("an answer");
            assert_eq!(back, n);
        }
        assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
        // What comes behind is read and thrown away.
        eventually("nothing of it is kept", || async { pool.stats().answer_bytes == 0 }).await;
        eventually("it is over", || async { pool.stats().in_flight() == 0 }).await;
    }
    assert_eq!(reconnects(&pool), 0, "and no connection was given up for it");
    pool.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failures_of_every_kind_leave_the_count_of_what_is_in_flight_right() {
    let (connections, max_in_flight) = (2, 4);
    let builder = Pool::builder(config().await).connections(connections).max_in_flight(max_in_flight);
    let pool = builder.connect().await.expect("a pool");
    all_shared(&pool).await;
    let (stop, most) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let watcher = tokio::spawn({
        let (pool, stop, most) = (pool.clone(), Arc::clone(&stop), Arc::clone(&most));
        async move {
            while !stop.load(Ordering::Relaxed) {
                let fullest = pool.stats().pipes.iter().map(|pipe| pipe.in_flight).max();
                most.fetch_max(fullest.unwrap_or(0), Ordering::Relaxed);
                tokio::task::yield_now().await;
            }
        }
    });
    let tasks: Vec<_> = (0..60)
        .map(|task| {
            let pool = pool.clone();
            tokio::spawn(async move {
                for n in 0..20 {
                    match (task + n) % 3 {
                        0 => drop(
                            pool.execute(format!("SELECT {n} FROM no_such_table"), ())
                                .await
                                .expect_err("no table"),
                        ),
                        1 => drop(pool.query::<Row>(FAILS_AMONG_ROWS, ()).await.expect_err("it fails")),
                        _ => assert_eq!(pool.query_one::<(i32,)>(ECHO, (n,)).await.expect("an answer"), (n,)),
                    }
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("no panic");
    }
    stop.store(true, Ordering::Relaxed);
    watcher.await.expect("no panic");
    let most = most.load(Ordering::Relaxed);
    assert!(most > 0 && most <= max_in_flight, "{most} were in flight on one connection");
    idle(&pool).await;
    assert_eq!(reconnects(&pool), 0);
    pool.close().await;
}

#[tokio::test]
async fn a_statement_that_fails_among_its_rows_is_an_error_and_the_next_one_is_answered() {
    let pool = pool_of(1).await;
    for n in 0..10 {
        let (failed, next) =
            tokio::join!(pool.query::<Row>(FAILS_AMONG_ROWS, ()), pool.query_one::<(i32,)>(ECHO, (n,)));
        let error = failed.expect_err("no rows");
        assert_eq!((error.kind(), error.outcome()), (ErrorKind::Database, Outcome::Failed));
        assert_eq!(error.sqlstate(), Some(FAILS_AMONG_ROWS_STATE), "{error}");
        assert_eq!(next.expect("its own answer"), (n,));
    }
    assert_eq!(reconnects(&pool), 0);
    pool.close().await;
}

/// All but the first one have bound what could not be parsed for the first one.
#[tokio::test]
async fn whoever_asks_for_what_is_gone_is_told_so() {
    let builder = Pool::builder(config().await).connections(1).statement_cache(1);
    let (pool, other) = (builder.connect().await.expect("a pool"), pool().await);
    let table = table(&other, "gone", "n int").await;
    let select = Statement::new(format!("SELECT n FROM {table}"));
    for known in [true, false] {
        if known {
            pool.query::<Row>(&select, ()).await.expect("rows");
            drop_table(&other, &table).await;
        }
        // Known to the pool, and to be prepared again on the connection.
        pool.query_one::<(i32,)>(ECHO, (1,)).await.expect("takes its place");
        for answer in join_all((0..50).map(|_| pool.query::<Row>(&select, ()))).await {
            let error = answer.expect_err("no such table");
            assert_eq!(error.sqlstate(), Some(NO_SUCH_TABLE), "{error}");
            assert_eq!(error.outcome(), Outcome::Failed);
        }
    }
    pool.close().await;
    other.close().await;
}

#[tokio::test]
async fn scripts_and_statements_in_turn_get_their_own_answers() {
    let pool = pool().await;
    let session = pool.session().await.expect("a session");
    let broken = "SELECT 1; SELECT 2 FROM no_such_table; SELECT 3";
    for n in 0..20 {
        let (script, one, failed, two) = tokio::join!(
            session.batch_execute("SELECT 1; SELECT 2; SELECT 3"),
            session.query_one::<(i32,)>(ECHO, (n,)),
            session.batch_execute(broken),
            session.query_one::<(i32,)>(ECHO, (-n,)),
        );
        script.expect("a script");
        assert_eq!((one.expect("its own"), two.expect("its own")), ((n,), (-n,)));
        let error = failed.expect_err("no such table");
        assert_eq!(error.sqlstate(), Some(NO_SUCH_TABLE), "{error}");
        // MySQL has done what stood before it, and PostgreSQL has undone that.
        assert!(matches!(error.outcome(), Outcome::Failed | Outcome::Unknown), "{error:?}");
    }
    // What stands behind the failure did not run.
    let script = format!("SELECT 2 FROM no_such_table; {}", remember("ran"));
    session.batch_execute(&script).await.expect_err("no such table");
    let (word,): (Option<String>,) =
        session.query_one(super::side::dialect::REMEMBERED, ()).await.expect("a word");
    assert!(word.is_none_or(|word| word.is_empty()));
    drop(session);
    assert_eq!(reconnects(&pool), 0);
    pool.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_statement_serves_every_connection_of_every_pool() {
    let (one, two) = (pool().await, pool_of(3).await);
    let statement = Statement::new(ECHO);
    let tasks: Vec<_> = (0..200)
        .map(|n| {
            let (pool, statement) = (if n % 2 == 0 { one.clone() } else { two.clone() }, statement.clone());
            tokio::spawn(async move {
                assert_eq!(pool.query_one::<(i32,)>(statement, (n,)).await.expect("an answer"), (n,));
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("no task fails");
    }
    // Also where each statement has its connection to itself.
    let (a, b) = (one.session().await.expect("a session"), two.session().await.expect("a session"));
    for n in 0..3 {
        for session in [&a, &b] {
            assert_eq!(session.query_one::<(i32,)>(&statement, (n,)).await.expect("an answer"), (n,));
        }
    }
    drop((a, b));
    one.close().await;
    two.close().await;
}

#[tokio::test]
async fn a_task_that_panics_gives_its_lease_back() {
    let pool = pool_of(2).await;
    all_shared(&pool).await;
    for n in 0..3 {
        let panics = tokio::spawn({
            let pool = pool.clone();
            async move {
                let session = pool.session().await.expect("the only lease");
                session.batch_execute(&format!("BEGIN; {}", remember("left"))).await.expect("left open");
                assert!(n > 100, "a fault of the application");
            }
        });
        assert!(panics.await.expect_err("it panics").is_panic());
        let tx = pool.begin().await.expect("the lease is free again");
        let (word,): (Option<String>,) =
            tx.query_one(super::side::dialect::REMEMBERED, ()).await.expect("a word");
        assert!(word.is_none_or(|word| word.is_empty()));
        tx.rollback().await.expect("over");
    }
    eventually("all is given back", || async { pool.stats().leased == 0 }).await;
    assert_eq!(reconnects(&pool), 0);
    pool.close().await;
}

/// A fork that goes on with the parent's connections cannot be written without `unsafe`, in tests as elsewhere, and no
/// runtime of tokio survives one. What programs do is to start others, and these must not hold our connections open.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn programs_that_are_started_meanwhile_inherit_no_connection() {
    let pool = pool().await;
    all_shared(&pool).await;
    let listed = tokio::task::spawn_blocking(|| {
        let null = std::process::Stdio::null;
        let mut list = std::process::Command::new("ls");
        list.args(["-l", "/proc/self/fd"]).stdin(null()).stderr(null()).output()
    });
    let output = listed.await.expect("no panic").expect("ls");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("/dev/null"), "the list is one: {text}");
    assert!(!text.contains("socket:"), "{text}");
    let before = writes(&pool);
    pool.ping().await.expect("untouched");
    assert!(writes(&pool) > before);
    pool.close().await;
}

/// What is asked in a transaction that fails stays its own, whoever asks next: an error is an error of one statement.
#[tokio::test]
async fn what_cannot_be_read_as_asked_fails_alone_and_costs_no_connection() {
    let pool = pool_of(1).await;
    for n in 0..10 {
        let wrong = pool.query_one::<(String,)>(ECHO, (n,));
        let (wrong, right): (Result<(String,), Error>, _) =
            tokio::join!(wrong, pool.query_one::<(i32,)>(ECHO, (n,)));
        let error = wrong.expect_err("an integer is no text");
        assert_eq!((error.kind(), error.outcome()), (ErrorKind::Decode, Outcome::Completed), "{error}");
        assert_eq!(right.expect("its own answer"), (n,));
    }
    assert_eq!(reconnects(&pool), 0);
    pool.close().await;
}
