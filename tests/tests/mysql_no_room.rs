//! A MySQL server that has no room for prepared statements: everything goes on as text. Alone in its program, because
//! the limit is the whole server's.

use std::time::Duration;

use integration_tests::mysql::types::{Date, DateTime, Time};
use integration_tests::mysql::values::{self, Server};
use integration_tests::mysql::{Error, Row, all_shared, config, pool};

#[tokio::test]
async fn without_room_for_prepared_statements_everything_runs_as_text() {
    let pool = pool().await;
    all_shared(&pool).await;
    let session = pool.session().await.expect("a session");
    session.execute("SET GLOBAL max_prepared_stmt_count = 0", ()).await.expect("no room");
    let date = Date { year: 2026, month: 11, day: 30 };
    let date_time = DateTime { date, hour: 1, minute: 2, second: 3, microsecond: 4 };
    let time = Time::from_microseconds(-3_600_000_000).expect("in range");
    let asked = async {
        let sql = "SELECT ?, CAST(? AS UNSIGNED), ?, ?, CAST(? AS DATE), CAST(? AS DATETIME(6)), CAST(? AS TIME(6)), ?";
        let params = (-7, u64::MAX, "it's é", &b"\x00\xff"[..], date, date_time, time, None::<i32>);
        for _ in 0..20 {
            type All = (i64, u64, String, Vec<u8>, Date, DateTime, Time, Option<i32>);
            let all: All = pool.query_one(sql, params).await?;
            assert_eq!(all, (-7, u64::MAX, "it's é".to_owned(), vec![0, 255], date, date_time, time, None));
        }
        Ok::<_, Error>(())
    };
    let result = tokio::time::timeout(Duration::from_secs(20), asked).await;
    let lenient = values::lenient(config().await).connect().await.expect("a pool");
    let every_type = tokio::spawn(async move {
        values::check(&lenient, Server::MySql).await;
        lenient.close().await;
    });
    let every_type = every_type.await;
    session.execute("SET GLOBAL max_prepared_stmt_count = 16382", ()).await.expect("room again");
    result.expect("in time").expect("as text");
    every_type.expect("each type, as text");
    let rows: Vec<Row> = pool.query("SELECT ?", (1,)).await.expect("prepared again");
    assert_eq!(rows.len(), 1);
    drop(session);
    pool.close().await;
}
