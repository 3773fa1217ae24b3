//! What only MySQL's answers hold: generated keys, warnings, information, and results of procedures.

use integration_tests::own_name;

use super::side::{Row, drop_table, pool, table};

#[tokio::test]
async fn statements_tell_what_they_did() {
    let pool = pool().await;
    let table = table(&pool, "done", "id INT PRIMARY KEY AUTO_INCREMENT, n INT").await;
    let insert = format!("INSERT INTO {table} (n) VALUES (?), (?)");
    let first = pool.execute(&insert, (1, 2)).await.expect("inserted");
    assert_eq!((first.rows_affected(), first.last_insert_id()), (2, Some(1)));
    assert_eq!(first.info(), Some("Records: 2  Duplicates: 0  Warnings: 0"));
    // Found rows, not changed ones.
    let update = format!("UPDATE {table} SET n = 1 WHERE id <= 2");
    assert_eq!(pool.execute(&update, ()).await.expect("updated").rows_affected(), 2);
    assert_eq!(pool.execute(&update, ()).await.expect("updated").rows_affected(), 2);
    let warned = pool.execute("SELECT CAST('1x' AS SIGNED)", ()).await.expect("a warning");
    assert_eq!((warned.rows_affected(), warned.warnings(), warned.last_insert_id()), (1, 1, None));
    drop_table(&pool, &table).await;
    pool.close().await;
}

#[tokio::test]
async fn statements_without_a_prepared_form_run_as_text() {
    let pool = pool().await;
    // 1295 on this server, as long as it has no prepared form.
    for sql in ["SHOW PROCESSLIST", "LOCK INSTANCE FOR BACKUP"] {
        let session = pool.session().await.expect("a session");
        for _ in 0..2 {
            session.query::<Row>(sql, ()).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
        }
    }
    pool.close().await;
}

#[tokio::test]
async fn procedures_give_their_rows() {
    let pool = pool().await;
    let name = own_name("proc");
    pool.execute(format!("CREATE PROCEDURE {name}(n INT) BEGIN SELECT n + 1 AS m; SELECT n + 2; END"), ())
        .await
        .expect("a procedure");
    let (m,): (i64,) = pool.query_one(format!("CALL {name}(?)"), (1,)).await.expect("a row");
    assert_eq!(m, 2);
    pool.execute(format!("DROP PROCEDURE {name}"), ()).await.expect("dropped");
    pool.close().await;
}
