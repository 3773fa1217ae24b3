//! What the calls return, on a real server.

use integration_tests::pool;
use pg_pipeline::{FromRow, Row};

#[derive(Debug, PartialEq, FromRow)]
struct Pair {
    id: i32,
    name: Option<String>,
}

#[tokio::test]
async fn every_call_and_every_shape_of_a_result() {
    let pool = pool().await;
    let row: Row = pool.query_one("SELECT $1::int4 AS id, 'x' AS name", (7,)).await.expect("a row");
    assert_eq!((row.get::<i32>(0), row.get::<&str>("name")), (7, "x"));
    let pair: Pair = pool.query_one("SELECT NULL::text AS name, $1::int4 AS id", (7,)).await.expect("a pair");
    assert_eq!(pair, Pair { id: 7, name: None });
    let all: Vec<(i32,)> = pool.query("SELECT generate_series(1, 3)", ()).await.expect("rows");
    assert_eq!(all, [(1,), (2,), (3,)]);
    let none: Option<(i32,)> = pool.query_opt("SELECT 1 WHERE false", ()).await.expect("no row");
    assert_eq!(none, None);
    let (a, b) = tokio::try_join!(
        pool.query_one::<Row>("SELECT 1", ()),
        pool.query_one::<(String,)>("SELECT 'two'", ())
    )
    .expect("both");
    assert_eq!((a.get::<i32>(0), b.0.as_str()), (1, "two"));
    pool.close().await;
}
