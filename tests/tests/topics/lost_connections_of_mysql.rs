//! KILL QUERY, which MySQL has beside KILL.

use integration_tests::eventually;

use super::side::{DatabaseError, number, pool};

#[tokio::test]
async fn a_killed_query_fails_alone() {
    let (pool, killer) = (pool().await, pool().await);
    let session = pool.session().await.expect("a session");
    let id = number(&session).await;
    let slow = session.query::<(i64,)>("SELECT COUNT(*) FROM information_schema.columns a, information_schema.columns b, information_schema.columns c", ());
    let kill = async {
        eventually("it runs", || async {
            let sql =
                "SELECT COUNT(*) FROM performance_schema.processlist WHERE id = ? AND command = 'Execute'";
            let (runs,): (i64,) = killer.query_one(sql, (id,)).await.expect("a row");
            runs == 1
        })
        .await;
        killer.execute(format!("KILL QUERY {id}"), ()).await.expect("killed");
    };
    let (slow, ()) = tokio::join!(slow, kill);
    let error = slow.expect_err("killed");
    assert_eq!(error.as_database().map(DatabaseError::number), Some(1317), "{error}");
    assert_eq!(number(&session).await, id, "it goes on");
    drop(session);
    pool.close().await;
    killer.close().await;
}
