//! Queries on MySQL: what goes in comes out.

use integration_tests::mysql::pool;

#[tokio::test]
async fn values_come_back_as_they_went() {
    let pool = pool().await;
    let (one,): (i64,) = pool.query_one("SELECT 1", ()).await.expect("a row");
    assert_eq!(one, 1);
    let (n, text, none): (i64, String, Option<i64>) =
        pool.query_one("SELECT ?, ?, ?", (7, "é𝄞", None::<i64>)).await.expect("a row");
    assert_eq!((n, text.as_str(), none), (7, "é𝄞", None));
    pool.close().await;
}
