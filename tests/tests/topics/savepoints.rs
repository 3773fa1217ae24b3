//! Parts of a transaction: kept, undone by word or by being dropped, and parts of parts.

use integration_tests::poll_then_drop;

use super::side::{Client, Error, Pool, Transaction, drop_table, pool, sql, table};
use super::transactions::{COLUMNS, NOTHING, insert, values};

async fn begin(pool: &Pool, topic: &str) -> (Transaction, String, String) {
    let table = table(pool, topic, COLUMNS).await;
    let insert = insert(&table);
    (pool.begin().await.expect("a transaction"), table, insert)
}

async fn end(pool: Pool, tx: Transaction, table: &str, expected: &[i32]) {
    tx.commit().await.expect("committed");
    assert_eq!(values(&pool, table).await, expected);
    drop_table(&pool, table).await;
    pool.close().await;
}

#[tokio::test]
async fn a_part_is_kept_or_undone_and_the_transaction_goes_on() {
    let pool = pool().await;
    let (tx, table, insert) = begin(&pool, "parts").await;
    let kept = tx.savepoint().await.expect("a savepoint");
    kept.execute(&insert, (1,)).await.expect("a write");
    kept.commit().await.expect("kept");
    let undone = tx.savepoint().await.expect("a savepoint");
    undone.execute(&insert, (2,)).await.expect("a write");
    undone.rollback().await.expect("undone");
    let dropped = tx.savepoint().await.expect("a savepoint");
    dropped.execute(&insert, (3,)).await.expect("a write");
    drop(dropped);
    tx.execute(&insert, (4,)).await.expect("a write behind it");
    let last = tx.savepoint().await.expect("a savepoint");
    last.execute(&insert, (5,)).await.expect("a write");
    drop(last);
    // Nothing but COMMIT follows: what was dropped is undone all the same.
    end(pool, tx, &table, &[1, 4]).await;
}

#[tokio::test]
async fn a_failure_inside_of_a_part_is_undone_with_it() {
    let pool = pool().await;
    let (tx, table, insert) = begin(&pool, "failing_part").await;
    tx.execute(&insert, (1,)).await.expect("a write");
    for n in 2..5 {
        let part = tx.savepoint().await.expect("a savepoint");
        part.execute(&insert, (100 + n,)).await.expect("a write");
        part.execute(&insert, (1,)).await.expect_err("it is there already");
        drop(part);
        tx.execute(&insert, (n,)).await.expect("the transaction goes on");
    }
    end(pool, tx, &table, &[1, 2, 3, 4]).await;
}

#[tokio::test]
async fn parts_nest() {
    let pool = pool().await;
    let (tx, table, insert) = begin(&pool, "nested").await;
    let outer = tx.savepoint().await.expect("a savepoint");
    outer.execute(&insert, (1,)).await.expect("a write");
    let inner = outer.savepoint().await.expect("a part of a part");
    inner.execute(&insert, (2,)).await.expect("a write");
    drop(inner);
    let inner = outer.savepoint().await.expect("a part of a part");
    inner.execute(&insert, (3,)).await.expect("a write");
    inner.commit().await.expect("kept");
    outer.commit().await.expect("kept");
    let outer = tx.savepoint().await.expect("a savepoint");
    let inner = outer.savepoint().await.expect("a part of a part");
    inner.execute(&insert, (4,)).await.expect("a write");
    inner.commit().await.expect("kept, as long as the outer one is");
    drop(outer);
    let outer = tx.savepoint().await.expect("a savepoint");
    let inner = outer.savepoint().await.expect("a part of a part");
    inner.execute(&insert, (5,)).await.expect("a write");
    drop(inner);
    outer.execute(&insert, (6,)).await.expect("a write");
    drop(outer);
    end(pool, tx, &table, &[1, 3]).await;
}

#[tokio::test]
async fn parts_dropped_half_way_are_undone() {
    let pool = pool().await;
    let (tx, table, insert) = begin(&pool, "half_way").await;
    tx.execute(&insert, (0,)).await.expect("a write");
    for polls in 0..6 {
        if let Some(part) = poll_then_drop(tx.savepoint(), polls).await {
            drop(part.expect("a savepoint"));
        }
        let part = tx.savepoint().await.expect("a savepoint");
        poll_then_drop(
            async {
                tokio::join!(
                    part.execute(&insert, (1,)),
                    part.execute(&insert, (2,)),
                    part.execute(&insert, (3,))
                )
            },
            polls,
        )
        .await;
        poll_then_drop(part.rollback(), polls).await;
        let part = tx.savepoint().await.expect("a savepoint");
        part.execute(&insert, (10 + polls as i32,)).await.expect("a write");
        poll_then_drop(part.commit(), polls).await;
    }
    end(pool, tx, &table, &[0, 10, 11, 12, 13, 14, 15]).await;
}

/// What was sent before a part was dropped came since it was set, whoever's call it was; what is sent afterwards stays.
#[tokio::test]
async fn a_part_dropped_between_pipelined_statements_is_undone_between_them() {
    let pool = pool().await;
    let (tx, table, insert) = begin(&pool, "between").await;
    let mut expected = Vec::new();
    for round in 0..10 {
        let n = |i: i32| round * 10 + i;
        let part = tx.savepoint().await.expect("a savepoint");
        let mut before = Box::pin(async {
            tokio::join!(
                part.execute(&insert, (n(0),)),
                tx.execute(&insert, (n(1),)),
                part.execute(&insert, (n(2),))
            )
        });
        assert!(poll_then_drop(&mut before, 1).await.is_none(), "on their way");
        drop(before);
        drop(part);
        tokio::try_join!(
            tx.execute(&insert, (n(3),)),
            tx.execute(sql(format!("INSERT INTO {table} (n) VALUES ($1) /* {round} */")), (n(4),)),
            tx.execute(&insert, (n(5),)),
        )
        .expect("all run");
        expected.extend([n(3), n(4), n(5)]);
    }
    end(pool, tx, &table, &expected).await;
}

#[tokio::test]
async fn savepoints_by_text_do_not_get_in_the_way() {
    let pool = pool().await;
    let (tx, table, insert) = begin(&pool, "by_text").await;
    let part = tx.savepoint().await.expect("a savepoint");
    part.execute(&insert, (1,)).await.expect("a write");
    for name in ["s", "s1", "savepoint_1"] {
        part.execute(format!("SAVEPOINT {name}"), ()).await.expect("set by text");
    }
    part.execute(&insert, (2,)).await.expect("a write");
    part.rollback().await.expect("undone");
    tx.execute(&insert, (3,)).await.expect("a write");
    end(pool, tx, &table, &[3]).await;
}

#[tokio::test]
async fn dropping_a_transaction_undoes_its_parts_too() {
    let pool = pool().await;
    let (tx, table, insert) = begin(&pool, "all_undone").await;
    let part = tx.savepoint().await.expect("a savepoint");
    part.execute(&insert, (1,)).await.expect("a write");
    part.commit().await.expect("kept, as long as the transaction is");
    tx.rollback().await.expect("rolled back");
    assert_eq!(values(&pool, &table).await, NOTHING);
    drop_table(&pool, &table).await;
    pool.close().await;
}

/// What takes any client takes a part of a transaction.
async fn write(client: &impl Client, insert: &str, n: i32) -> Result<u64, Error> {
    Ok(client.execute(insert, (n,)).await?.rows_affected())
}

#[tokio::test]
async fn a_part_is_a_client_and_has_batches() {
    let pool = pool().await;
    let (tx, table, insert) = begin(&pool, "client").await;
    let part = tx.savepoint().await.expect("a savepoint");
    assert_eq!(write(&part, &insert, 1).await.expect("a write"), 1);
    let mut batch = part.batch();
    batch.push(&insert, (2,));
    batch.push(&insert, (3,));
    assert_eq!(batch.execute().await.expect("a batch").len(), 2);
    part.commit().await.expect("kept");
    end(pool, tx, &table, &[1, 2, 3]).await;
}
