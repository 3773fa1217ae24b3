//! What slips through on MySQL: procedures that change settings or open a transaction. PostgreSQL's functions cannot do
//! the latter.

use integration_tests::own_name;

use super::side::{ErrorKind, Outcome, Row, drop_table, pool, pool_of, table};

#[tokio::test]
async fn a_session_keeps_its_state_and_nobody_else_sees_it() {
    let pool = pool().await;
    let session = pool.session().await.expect("a session");
    session.execute("SET sql_mode = 'ANSI', time_zone = '+05:00'", ()).await.expect("set");
    session
        .batch_execute("CREATE TEMPORARY TABLE mine (a INT); INSERT INTO mine VALUES (1), (2); SET @x = 5")
        .await
        .expect("a script");
    let (rows, x): (i64, i64) =
        session.query_one("SELECT COUNT(*), MAX(@x) FROM mine", ()).await.expect("a row");
    assert_eq!((rows, x), (2, 5));
    session.execute("START TRANSACTION", ()).await.expect("its own");
    drop(session);
    for _ in 0..64 {
        let (x, zone, in_names): (Option<i64>, String, String) = pool
            .query_one("SELECT @x, @@time_zone, @@character_set_client", ())
            .await
            .expect("a clean session");
        assert_eq!((x, zone.as_str(), in_names.as_str()), (None, "+00:00", "utf8mb4"));
    }
    pool.close().await;
}

#[tokio::test]
async fn what_a_procedure_changes_on_a_shared_connection_is_put_right() {
    let pool = pool().await;
    let name = own_name("changes");
    let create = format!(
        "CREATE PROCEDURE {name}() BEGIN SET SESSION sql_mode = ''; SET @leaked = 1; SET time_zone = '+05:00'; END"
    );
    pool.execute(create, ()).await.expect("a procedure");
    for _ in 0..8 {
        pool.execute(format!("CALL {name}()"), ()).await.expect("called");
        let asks = (0..32).map(|_| async {
            let (leaked, zone): (Option<i64>, String) =
                pool.query_one("SELECT @leaked, @@time_zone", ()).await.expect("a clean session");
            assert_eq!((leaked, zone.as_str()), (None, "+00:00"));
        });
        for ask in asks {
            ask.await;
        }
    }
    pool.execute(format!("DROP PROCEDURE {name}"), ()).await.expect("dropped");
    pool.close().await;
}

#[tokio::test]
async fn a_transaction_that_a_procedure_leaves_open_is_rolled_back_and_nobody_is_told_ok() {
    let pool = pool().await;
    let name = own_name("opens");
    let table = table(&pool, "opens_t", "n INT").await;
    pool.execute(
        format!("CREATE PROCEDURE {name}() BEGIN START TRANSACTION; INSERT INTO {table} VALUES (1); END"),
        (),
    )
    .await
    .expect("a procedure");
    let error = pool.execute(format!("CALL {name}()"), ()).await.expect_err("rolled back");
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::SessionState, Outcome::Failed), "{error}");
    let rows: Vec<Row> = pool.query(format!("SELECT * FROM {table}"), ()).await.expect("rows");
    assert!(rows.is_empty());
    pool.execute(format!("DROP PROCEDURE {name}"), ()).await.expect("dropped");
    drop_table(&pool, &table).await;
    pool.close().await;
}

#[tokio::test]
async fn plain_statements_leave_the_session_clean() {
    let pool = pool_of(1).await;
    for n in 0..100 {
        let (back,): (i64,) = pool.query_one("SELECT ?", (n,)).await.expect("a row");
        assert_eq!(back, n);
    }
    // A reset would have forgotten the statement and begun to count anew.
    for (variable, least, most) in [("Com_stmt_execute", 100, 110), ("Com_stmt_prepare", 1, 9)] {
        let sql = format!("SHOW SESSION STATUS LIKE '{variable}'");
        let (_, count): (String, String) = pool.query_one(sql, ()).await.expect("a count");
        let count: u32 = count.parse().expect("a number");
        assert!((least..=most).contains(&count), "{variable}: {count}");
    }
    pool.close().await;
}
