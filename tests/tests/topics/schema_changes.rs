//! What changes in the database while a pool is connected: no pipe decodes new bytes with old knowledge, and statements
//! work again without anybody noticing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use integration_tests::{eventually, own_name};

use super::side::dialect::{CHANGES_OF_TYPE, NO_SUCH_TABLE};
use super::side::{ErrorKind, Pool, Row, all_shared, drop_table, pool, sql, table};

const ROWS: i32 = 64;

/// A value that looks different as each of the types that it takes on.
pub(super) fn value(id: i32) -> i32 {
    id * 1_000_003 + 17
}

pub(super) async fn filled(pool: &Pool, topic: &str) -> String {
    let table =
        table(pool, topic, "id int4 PRIMARY KEY, v int4 NOT NULL, w varchar(10) NOT NULL DEFAULT 'w'").await;
    for id in 0..ROWS {
        pool.execute(sql(format!("INSERT INTO {table} (id, v) VALUES ($1, $2)")), (id, value(id)))
            .await
            .expect("a row");
    }
    table
}

/// Reads column `v` as whatever the row says it is.
fn v_of(row: &Row) -> f64 {
    let short = row.try_get::<i32>("v").map(f64::from);
    let long = || row.try_get::<i64>("v").map(|number| number as f64);
    let text = |_| row.get::<&str>("v").parse().expect("a number as text");
    short.or_else(|_| long()).or_else(|_| row.try_get::<f64>("v")).unwrap_or_else(text)
}

/// Queries on all pipes at once, while `changes` are made one after the other, over and over.
async fn under_load(table: &str, pool: &Pool, sql: String, changes: &[&str], rounds: usize) {
    all_shared(pool).await;
    let stop = Arc::new(AtomicBool::new(false));
    let answered = Arc::new(AtomicUsize::new(0));
    let readers: Vec<_> = (0..32)
        .map(|reader: i32| {
            let (pool, sql, stop, answered) =
                (pool.clone(), sql.clone(), Arc::clone(&stop), Arc::clone(&answered));
            tokio::spawn(async move {
                let mut id = reader;
                while !stop.load(Ordering::Relaxed) {
                    id = (id + 7) % ROWS;
                    let row: Row = pool.query_one(&sql, (id,)).await.expect("no error reaches anybody");
                    assert_eq!(row.get::<i32>("id"), id);
                    assert!((v_of(&row) - f64::from(value(id))).abs() < 0.5, "{row:?}");
                    answered.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    let other = super::side::pool().await;
    for change in changes.iter().cycle().take(rounds * changes.len()) {
        let before = answered.load(Ordering::Relaxed);
        other.execute(format!("ALTER TABLE {table} {change}"), ()).await.expect(change);
        eventually("all pipes have answered", || async {
            answered.load(Ordering::Relaxed) > before + 200
                || readers.iter().any(tokio::task::JoinHandle::is_finished)
        })
        .await;
    }
    stop.store(true, Ordering::Relaxed);
    for reader in readers {
        reader.await.expect("no reader fails");
    }
    other.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_column_that_changes_its_type_is_never_read_as_the_old_one() {
    let pool = pool().await;
    let table = filled(&pool, "changes_type").await;
    let by_id = sql(format!("SELECT id, v FROM {table} WHERE id = $1"));
    under_load(&table, &pool, by_id, &CHANGES_OF_TYPE, 5 * integration_tests::scale()).await;
    drop_table(&pool, &table).await;
    pool.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn columns_that_come_and_go_do_not_disturb_select_star() {
    let pool = pool().await;
    let table = filled(&pool, "come_and_go").await;
    let changes = ["ADD x int8 DEFAULT 5", "DROP w", "ADD w varchar(10) DEFAULT 'again'", "DROP x"];
    let by_id = sql(format!("SELECT * FROM {table} WHERE id = $1"));
    under_load(&table, &pool, by_id, &changes, 5 * integration_tests::scale()).await;
    drop_table(&pool, &table).await;
    pool.close().await;
}

#[tokio::test]
async fn after_a_change_every_pipe_serves_the_new_shape_at_once() {
    let pool = pool().await;
    all_shared(&pool).await;
    let table = filled(&pool, "every_pipe").await;
    let by_id = sql(format!("SELECT * FROM {table} WHERE id = $1"));
    for columns in 4..8 {
        // One at a time: the pipes take turns, and each has the statement prepared by the end.
        for _ in 0..32 {
            let row: Row = pool.query_one(&by_id, (1,)).await.expect("a row");
            assert_eq!(row.len(), columns - 1);
        }
        pool.execute(format!("ALTER TABLE {table} ADD c{columns} int8 DEFAULT {columns}"), ())
            .await
            .expect("altered");
    }
    drop_table(&pool, &table).await;
    pool.close().await;
}

#[tokio::test]
async fn a_table_dropped_and_created_again_is_the_new_one() {
    let pool = pool().await;
    all_shared(&pool).await;
    let table = own_name("created_again");
    let (select, insert) =
        (format!("SELECT v FROM {table}"), sql(format!("INSERT INTO {table} (v) VALUES ($1)")));
    for round in 0..4 {
        pool.execute(
            format!("CREATE TABLE {table} (v {})", if round % 2 == 0 { "int4" } else { "varchar(10)" }),
            (),
        )
        .await
        .expect("a table");
        for _ in 0..16 {
            if round % 2 == 0 {
                // The parameter's type has changed with the column's.
                pool.execute(&insert, (round,)).await.expect("a number");
            } else {
                pool.execute(&insert, (round.to_string(),)).await.expect("a text");
            }
        }
        for _ in 0..16 {
            let rows: Vec<Row> = pool.query(&select, ()).await.expect("rows");
            assert_eq!(rows.len(), 16);
            if round % 2 == 0 {
                assert_eq!(rows[0].get::<i32>(0), round);
            } else {
                assert_eq!(rows[0].get::<String>(0), round.to_string());
            }
        }
        drop_table(&pool, &table).await;
        for _ in 0..16 {
            let error = pool.query::<Row>(&select, ()).await.expect_err("no such table");
            assert_eq!((error.kind(), error.sqlstate()), (ErrorKind::Database, Some(NO_SUCH_TABLE)));
        }
    }
    pool.close().await;
}
