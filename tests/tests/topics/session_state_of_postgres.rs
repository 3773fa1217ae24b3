//! What slips through on PostgreSQL: settings that the server reports, and everything that a session of its can hold.

use integration_tests::{eventually, own_name};

use super::side::{Pool, config, pool};

#[tokio::test]
async fn settings_that_slip_through_do_not_outlive_their_statement() {
    let config = config().await.application_name("before");
    let pool = Pool::builder(config).connections(1).connect().await.expect("a pool");
    let show = || async {
        let (name,): (String,) =
            pool.query_one("SELECT current_setting('application_name')", ()).await.expect("a setting");
        name
    };
    assert_eq!(show().await, "before");
    // A function that changes a setting, by a name in quotes: its text does not give it away, but the server reports it.
    pool.execute("SELECT \"set_config\"('application_name', 'after', false)", ()).await.expect("it ran");
    assert_eq!(show().await, "before");
    let function = own_name("changes_settings");
    let other = super::side::pool().await;
    other.batch_execute(&format!(
        "CREATE PROCEDURE {function}() LANGUAGE plpgsql AS $$ BEGIN SET application_name = 'after'; END $$"
    ))
    .await
    .expect("a procedure");
    pool.execute(format!("CALL {function}()"), ()).await.expect("it ran");
    assert_eq!(show().await, "before");
    other.batch_execute(&format!("DROP PROCEDURE {function}")).await.expect("dropped");
    other.close().await;
    pool.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_neighbours_write_is_lost_when_settings_slip_through() {
    let pool = pool().await;
    let table = own_name("neighbours");
    pool.batch_execute(&format!("CREATE TABLE {table} (n int8 PRIMARY KEY)")).await.expect("a table");
    let insert = format!("INSERT INTO {table} VALUES ($1)");
    let writers: Vec<_> = (0..50_i64)
        .map(|task| {
            let (pool, insert) = (pool.clone(), insert.clone());
            tokio::spawn(async move {
                for n in 0..100_i64 {
                    pool.execute(&insert, (task * 100 + n,)).await.expect("a write");
                    if n % 20 == 0 {
                        pool.execute(
                            "SELECT \"set_config\"('application_name', $1, false)",
                            (format!("{task}-{n}"),),
                        )
                        .await
                        .expect("it ran");
                    }
                }
            })
        })
        .collect();
    for writer in writers {
        writer.await.expect("no writer fails");
    }
    let (count,): (i64,) =
        pool.query_one(format!("SELECT count(*) FROM {table}"), ()).await.expect("a count");
    assert_eq!(count, 5_000);
    pool.batch_execute(&format!("DROP TABLE {table}")).await.expect("dropped");
    pool.close().await;
}

#[tokio::test]
async fn a_session_is_reset_before_others_use_its_connection() {
    let config = config().await;
    let pool = Pool::builder(config)
        .connections(2)
        .setup(["SET application_name = 'set up'", "SET extra_float_digits = 0"])
        .connect()
        .await
        .expect("a pool");
    for round in 0..5 {
        let session = pool.session().await.expect("a session");
        session
            .batch_execute(
                "SET application_name = 'mine'; SET search_path = pg_catalog; CREATE TEMP TABLE scratch (a int); \
                 LISTEN nothing; PREPARE mine AS SELECT 1; SELECT pg_advisory_lock(4711)",
            )
            .await
            .expect("works");
        let (name,): (String,) =
            session.query_one("SELECT current_setting('application_name')", ()).await.expect("mine");
        assert_eq!(name, "mine");
        let (own,): (i32,) = session.query_one("SELECT pg_backend_pid()", ()).await.expect("a number");
        if round % 2 == 0 {
            session.batch_execute("BEGIN").await.expect("left open");
        }
        drop(session);
        eventually("the connection is shared again", || async {
            let (pid, name, path, temporary, channels, locks): (i32, String, String, i64, i64, i64) = pool
                .query_one(
                    "SELECT pg_backend_pid(), current_setting('application_name'), current_setting('search_path'), \
                     (SELECT count(*) FROM pg_class WHERE relname = 'scratch'), \
                     (SELECT count(*) FROM pg_listening_channels()), \
                     (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid())",
                    (),
                )
                .await
                .expect("a look");
            if pid == own {
                assert_eq!((name.as_str(), temporary, channels, locks), ("set up", 0, 0, 0));
                assert_ne!(path, "pg_catalog");
            }
            pid == own
        })
        .await;
    }
    pool.close().await;
}
