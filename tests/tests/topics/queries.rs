//! What the calls return, on a real server.

use super::side::dialect::{ECHO, ECHO_BOTH, NO_SUCH_COLUMN, NO_SUCH_TABLE, SERIES, SYNTAX, sleep};
use super::side::{
    CallOptions, ErrorKind, FromRow, Outcome, Row, Statement, drop_table, params, pool, sql, table,
};

#[derive(Debug, PartialEq, FromRow)]
struct Pair {
    id: i32,
    #[from_row(rename = "text")]
    name: Option<String>,
}

#[tokio::test]
async fn every_call_and_every_shape_of_a_result() {
    let pool = pool().await;
    let table = table(&pool, "pairs", "id int4 PRIMARY KEY, text text").await;
    let insert = Statement::new(sql(format!("INSERT INTO {table} VALUES ($1, $2)")));
    for (id, name) in [(7, Some("x")), (8, None)] {
        assert_eq!(pool.execute(&insert, (id, name)).await.expect("a write").rows_affected(), 1);
    }
    let by_id = sql(format!("SELECT id, text FROM {table} WHERE id = $1"));
    let row: Row = pool.query_one(&by_id, (7,)).await.expect("a row");
    assert_eq!((row.len(), row.get::<i32>(0), row.get::<&str>("text")), (2, 7, "x"));
    let pair: Pair = pool.query_one(&by_id, params![8]).await.expect("a pair");
    assert_eq!(pair, Pair { id: 8, name: None });
    let pair: Option<(i32, Option<String>)> = pool.query_opt(by_id, (9,)).await.expect("no row");
    assert_eq!(pair, None);
    let all: Vec<Pair> =
        pool.query(format!("SELECT text, id FROM {table} ORDER BY id"), ()).await.expect("rows");
    assert_eq!(all, [Pair { id: 7, name: Some("x".into()) }, Pair { id: 8, name: None }]);
    let series: Vec<(i32,)> = pool.query(SERIES, (3,)).await.expect("rows");
    assert_eq!(series, [(1,), (2,), (3,)]);
    let (a, b) = tokio::try_join!(
        pool.query_one::<Row>(ECHO, (1,)),
        pool.query_one::<(i32, String)>(ECHO_BOTH, (2, "two"))
    )
    .expect("both");
    assert_eq!((a.get::<i32>(0), b), (1, (2, "two".to_owned())));
    let update = sql(format!("UPDATE {table} SET text = $1"));
    for _ in 0..2 {
        // Rows that were found count, also where they are as they should be already.
        assert_eq!(pool.execute(&update, ("y",)).await.expect("a write").rows_affected(), 2);
    }
    assert_eq!(pool.execute(SERIES, (5,)).await.expect("rows that nobody wants").rows_affected(), 5);
    pool.ping().await.expect("it answers");
    drop_table(&pool, &table).await;
    pool.close().await;
}

#[tokio::test]
async fn what_the_server_refuses_is_told_with_its_state() {
    let pool = pool().await;
    for (text, state) in [
        ("SELECT n FROM no_such_table_at_all", NO_SUCH_TABLE),
        ("SELECT no_such_column_at_all", NO_SUCH_COLUMN),
        ("SELEC 1", SYNTAX),
        // A second statement in a text is not run.
        ("SELECT 1; SELECT 2", SYNTAX),
    ] {
        for _ in 0..2 {
            let error = pool.query::<Row>(text, ()).await.expect_err(text);
            assert_eq!((error.kind(), error.outcome()), (ErrorKind::Database, Outcome::Failed), "{text}");
            assert_eq!(error.sqlstate(), Some(state), "{text}: {error}");
            assert!(error.as_database().is_some() && !error.is_retryable(), "{text}");
        }
    }
    let slow = pool.with(CallOptions::new().timeout(std::time::Duration::from_secs(1)));
    let late = slow.query::<Row>(sleep(60.0), ()).await.expect_err("too slow");
    assert_eq!((late.kind(), late.outcome()), (ErrorKind::Timeout, Outcome::Unknown));
    pool.close().await;
}
