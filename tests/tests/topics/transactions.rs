//! Transactions: what is committed stays, everything else is undone, and no connection that others use is ever left
//! inside of one.

use integration_tests::{eventually, own_name, poll_then_drop};

use super::side::dialect::{TRANSACTION_CONTROL, sleep};
use super::side::{
    ErrorKind, Outcome, Pool, Statement, Transaction, all_shared, drop_table, in_transaction, named_pool,
    pool, pool_of, sql, table, writes,
};

pub(super) async fn values(pool: &Pool, table: &str) -> Vec<i32> {
    let rows: Vec<(i32,)> =
        pool.query(format!("SELECT n FROM {table} ORDER BY id"), ()).await.expect("the table's rows");
    rows.into_iter().map(|(n,)| n).collect()
}

pub(super) const NOTHING: [i32; 0] = [];
pub(super) const COLUMNS: &str = "id serial PRIMARY KEY, n int4 UNIQUE";

pub(super) fn insert(table: &str) -> String {
    sql(format!("INSERT INTO {table} (n) VALUES ($1)"))
}

/// Nothing of a pool is inside of a transaction, and no lease is held.
async fn nothing_is_left_open(pool: &Pool, other: &Pool, name: &str) {
    eventually("no lease is held", || async { pool.stats().leased == 0 }).await;
    assert_eq!(in_transaction(other, name).await, 0);
}

#[tokio::test]
async fn commit_keeps_and_rollback_undoes() {
    let pool = pool().await;
    let table = table(&pool, "commit", COLUMNS).await;
    let insert = insert(&table);
    let tx = pool.begin().await.expect("a transaction");
    assert_eq!(tx.execute(&insert, (1,)).await.expect("a write").rows_affected(), 1);
    assert_eq!(values(&pool, &table).await, NOTHING, "not yet");
    let (seen,): (i64,) = tx.query_one(format!("SELECT count(*) FROM {table}"), ()).await.expect("own write");
    assert_eq!(seen, 1);
    tx.commit().await.expect("committed");
    assert_eq!(values(&pool, &table).await, [1]);

    let tx = pool.begin().await.expect("a transaction");
    tx.execute(&insert, (2,)).await.expect("a write");
    tx.rollback().await.expect("rolled back");
    assert_eq!(values(&pool, &table).await, [1]);

    // Nothing sent, nothing to end.
    all_shared(&pool).await;
    let before = writes(&pool);
    pool.begin().await.expect("a transaction").commit().await.expect("nothing to do");
    pool.begin().await.expect("a transaction").rollback().await.expect("nothing to do");
    drop(pool.begin().await.expect("a transaction"));
    all_shared(&pool).await;
    assert_eq!(writes(&pool), before);
    drop_table(&pool, &table).await;
    pool.close().await;
}

#[tokio::test]
async fn the_first_statement_is_inside_of_the_transaction_known_or_not() {
    let pool = pool().await;
    let table = table(&pool, "first_statement", COLUMNS).await;
    // A text that nobody has run before, with and without parameters.
    let tx = pool.begin().await.expect("a transaction");
    tx.execute(sql(format!("INSERT INTO {table} (n) VALUES ($1) /* unknown */")), (1,))
        .await
        .expect("a write");
    drop(tx);
    let tx = pool.begin().await.expect("a transaction");
    tx.execute(format!("INSERT INTO {table} (n) VALUES (2)"), ()).await.expect("a write");
    drop(tx);
    // The same text, known by now, and on whichever pipe.
    for n in 3..20 {
        let tx = pool.begin().await.expect("a transaction");
        tx.execute(insert(&table), (n,)).await.expect("a write");
        drop(tx);
    }
    // A script, and a batch.
    let tx = pool.begin().await.expect("a transaction");
    tx.batch_execute(&format!("INSERT INTO {table} (n) VALUES (30); INSERT INTO {table} (n) VALUES (31)"))
        .await
        .expect("a script");
    drop(tx);
    let tx = pool.begin().await.expect("a transaction");
    let mut batch = tx.batch();
    batch.push(sql(format!("INSERT INTO {table} (n) VALUES ($1) /* batch */")), (40,));
    batch.push(insert(&table), (41,));
    assert_eq!(batch.execute().await.expect("a batch").len(), 2);
    drop(tx);
    eventually("all leases are back", || async { pool.stats().leased == 0 }).await;
    assert_eq!(values(&pool, &table).await, NOTHING, "all were rolled back");
    drop_table(&pool, &table).await;
    pool.close().await;
}

#[tokio::test]
async fn a_dropped_transaction_is_rolled_back_in_every_state() {
    let name = own_name("dropped");
    let (pool, other) = (named_pool(&name).await, pool().await);
    let table = table(&other, "dropped", COLUMNS).await;
    let insert = insert(&table);
    for round in 0..10 {
        // The first statement is in flight.
        for polls in 0..4 {
            let tx = pool.begin().await.expect("a transaction");
            poll_then_drop(tx.execute(&insert, (1,)), polls).await;
            drop(tx);
        }
        // In flight and unknown.
        let tx = pool.begin().await.expect("a transaction");
        poll_then_drop(tx.execute(format!("INSERT INTO {table} (n) VALUES ({round})"), ()), 2).await;
        drop(tx);
        // Open.
        let tx = pool.begin().await.expect("a transaction");
        tx.execute(&insert, (2,)).await.expect("a write");
        assert!(in_transaction(&other, &name).await >= 1, "and seen to be");
        drop(tx);
        // Failed.
        let tx = pool.begin().await.expect("a transaction");
        tx.execute(&insert, (3,)).await.expect("a write");
        tx.execute(&insert, (3,)).await.expect_err("a duplicate");
        drop(tx);
        // In the middle of pipelined statements.
        let tx = pool.begin().await.expect("a transaction");
        poll_then_drop(
            async {
                tokio::join!(
                    tx.execute(&insert, (4,)),
                    tx.execute(&insert, (5,)),
                    tx.execute(sleep(0.01), ()),
                    tx.execute(&insert, (6,)),
                )
            },
            1 + round % 3,
        )
        .await;
        drop(tx);
    }
    nothing_is_left_open(&pool, &other, &name).await;
    assert_eq!(values(&other, &table).await, NOTHING);
    for n in 100..120 {
        pool.execute(&insert, (n,)).await.expect("a write of its own");
    }
    assert_eq!(values(&other, &table).await, (100..120).collect::<Vec<_>>(), "later writes are committed");
    drop_table(&other, &table).await;
    pool.close().await;
    other.close().await;
}

#[tokio::test]
async fn a_transaction_cancelled_at_any_poll_leaves_nothing_open() {
    let name = own_name("cancelled");
    let (pool, other) = (named_pool(&name).await, pool().await);
    let table = table(&other, "cancelled", COLUMNS).await;
    let insert = insert(&table);
    let mut completed = 0;
    for polls in 0..40 {
        let number = 2 * polls as i32;
        let whole = async {
            let tx = pool.begin().await?;
            tx.execute(&insert, (number,)).await?;
            // Never seen before: it takes an exchange more.
            tx.execute(sql(format!("INSERT INTO {table} (n) VALUES ($1) /* {polls} */")), (-1 - number,))
                .await?;
            tx.commit().await
        };
        if let Some(result) = poll_then_drop(whole, polls).await {
            result.expect("committed");
            completed += 1;
        }
        pool.execute(&insert, (number + 1,)).await.expect("a write of its own");
        let committed = values(&other, &table).await;
        assert!(committed.contains(&(number + 1)), "committed at once, after {polls} polls");
        nothing_is_left_open(&pool, &other, &name).await;
        let committed = values(&other, &table).await;
        assert_eq!(committed.contains(&number), committed.contains(&(-1 - number)), "all or nothing");
    }
    assert!(completed > 0, "with enough polls it ends");
    drop_table(&other, &table).await;
    pool.close().await;
    other.close().await;
}

#[tokio::test]
async fn work_cancelled_at_any_poll_leaves_nothing_open() {
    let name = own_name("cancelled_work");
    let (pool, other) = (named_pool(&name).await, pool().await);
    let table = table(&other, "cancelled_work", COLUMNS).await;
    let insert = insert(&table);
    let mut completed = 0;
    for polls in 0..40 {
        let number = 10 * polls as i32;
        let work = pool.transaction().retries(2).run(async |tx| {
            let part = tx.savepoint().await?;
            tokio::try_join!(part.execute(&insert, (number,)), part.execute(&insert, (number + 1,)))?;
            part.commit().await?;
            let part = tx.savepoint().await?;
            part.execute(&insert, (number + 2,)).await?;
            part.rollback().await?;
            tx.execute(&insert, (number + 3,)).await.map(drop)
        });
        if let Some(result) = poll_then_drop(work, polls).await {
            result.expect("committed");
            completed += 1;
        }
        nothing_is_left_open(&pool, &other, &name).await;
        let committed = values(&other, &table).await;
        let here: Vec<i32> = committed.into_iter().filter(|n| *n >= number).collect();
        assert!(here == NOTHING || here == [number, number + 1, number + 3], "{polls}: {here:?}");
    }
    assert!(completed > 0, "with enough polls it ends");
    drop_table(&other, &table).await;
    pool.close().await;
    other.close().await;
}

#[tokio::test]
async fn pipelined_statements_run_in_the_order_of_their_first_poll() {
    let pool = pool().await;
    let table = table(&pool, "order", COLUMNS).await;
    let known = Statement::new(insert(&table));
    let unknown = |n: i32, round: i32| sql(format!("INSERT INTO {table} (n) VALUES ($1) /* {n}, {round} */"));
    pool.execute(&known, (-1,)).await.expect("known from here on");
    pool.execute(format!("TRUNCATE {table}"), ()).await.expect("empty");
    for round in 0..20 {
        let n = |i: i32| round * 10 + i;
        let tx = pool.begin().await.expect("a transaction");
        let mut batch = tx.batch();
        batch.push(unknown(5, round), (n(5),));
        batch.push(&known, (n(6),));
        let script =
            format!("INSERT INTO {table} (n) VALUES ({}); INSERT INTO {table} (n) VALUES ({})", n(2), n(3));
        tokio::try_join!(
            async { tx.execute(unknown(0, round), (n(0),)).await.map(|_| ()) },
            async { tx.execute(&known, (n(1),)).await.map(|_| ()) },
            tx.batch_execute(&script),
            async { tx.execute(&known, (n(4),)).await.map(|_| ()) },
            async { batch.execute().await.map(|_| ()) },
            async { tx.execute(unknown(7, round), (n(7),)).await.map(|_| ()) },
            async { tx.execute(&known, (n(8),)).await.map(|_| ()) },
        )
        .expect("all run");
        tx.commit().await.expect("committed");
    }
    let expected: Vec<i32> = (0..20).flat_map(|round| (0..9).map(move |i| round * 10 + i)).collect();
    assert_eq!(values(&pool, &table).await, expected);
    drop_table(&pool, &table).await;
    pool.close().await;
}

#[tokio::test]
async fn transaction_control_by_text_is_refused_and_savepoints_are_not() {
    let pool = pool().await;
    let table = table(&pool, "by_text", COLUMNS).await;
    let insert = insert(&table);
    let tx = pool.begin().await.expect("a transaction");
    tx.execute(&insert, (1,)).await.expect("a write");
    for sql in TRANSACTION_CONTROL {
        let error = tx.execute(sql, ()).await.expect_err(sql);
        assert_eq!((error.kind(), error.outcome()), (ErrorKind::SessionState, Outcome::NotSent), "{sql}");
        assert!(error.to_string().contains("commit()"), "{error}");
        let error = tx.batch_execute(sql).await.expect_err(sql);
        assert_eq!((error.kind(), error.outcome()), (ErrorKind::SessionState, Outcome::NotSent), "{sql}");
    }
    tx.execute("SAVEPOINT s", ()).await.expect("a savepoint");
    tx.execute(&insert, (1,)).await.expect_err("a duplicate");
    tx.execute("ROLLBACK TO SAVEPOINT s", ()).await.expect("back");
    tx.execute(&insert, (2,)).await.expect("a write");
    tx.commit().await.expect("committed");
    assert_eq!(values(&pool, &table).await, [1, 2]);
    drop_table(&pool, &table).await;
    pool.close().await;
}

#[tokio::test]
async fn statements_batches_and_scripts_mix_in_one_transaction() {
    let pool = pool_of(2).await;
    let table = table(&pool, "mixed", COLUMNS).await;
    let insert = insert(&table);
    for commits in [false, true] {
        let tx = pool.begin().await.expect("a transaction");
        tx.batch_execute(&format!("INSERT INTO {table} (n) VALUES (1); INSERT INTO {table} (n) VALUES (2)"))
            .await
            .expect("a script");
        tx.execute(&insert, (3,)).await.expect("a statement");
        let mut batch = tx.batch();
        batch.push(&insert, (4,));
        batch.push(sql(format!("DELETE FROM {table} WHERE n = $1")), (1,));
        batch.execute().await.expect("a batch");
        tx.batch_execute("").await.expect("an empty script");
        if commits {
            tx.commit().await.expect("committed");
        } else {
            tx.rollback().await.expect("rolled back");
        }
    }
    assert_eq!(values(&pool, &table).await, [2, 3, 4]);
    drop_table(&pool, &table).await;
    pool.close().await;
}

/// Two transactions that wait for each other, with more statements on their way behind those that wait.
#[tokio::test]
async fn a_deadlock_is_retryable_and_nothing_that_was_behind_it_stays() {
    let pool = pool().await;
    let table = table(&pool, "deadlock", COLUMNS).await;
    for n in [1, 2] {
        pool.execute(insert(&table), (n,)).await.expect("a row");
    }
    let touch = sql(format!("UPDATE {table} SET n = n + 100 WHERE n = $1"));
    let insert = insert(&table);
    for commits in [true, false] {
        let (one, two) = (pool.begin().await.expect("one"), pool.begin().await.expect("two"));
        one.execute(&touch, (1,)).await.expect("locked");
        two.execute(&touch, (2,)).await.expect("locked");
        let cross = async |tx: &Transaction, wants: i32, behind: i32| {
            let (closes, first, second) = tokio::join!(
                tx.execute(&touch, (wants,)),
                tx.execute(&insert, (behind,)),
                tx.execute(&insert, (behind + 1,)),
            );
            closes.and(first).and(second).map(drop)
        };
        let (first, second) = tokio::join!(cross(&one, 2, 10), cross(&two, 1, 20));
        let (winner, loser, error) = match (first, second) {
            (Ok(()), Err(error)) => (one, two, error),
            (Err(error), Ok(())) => (two, one, error),
            other => panic!("one of them is given up: {other:?}"),
        };
        assert_eq!((error.kind(), error.outcome()), (ErrorKind::Database, Outcome::Failed), "{error}");
        assert!(error.is_retryable(), "{error}");
        if commits {
            let error = loser.commit().await.expect_err("there is nothing to commit");
            assert_eq!((error.kind(), error.outcome()), (ErrorKind::Database, Outcome::Failed), "{error}");
        } else {
            drop(loser);
        }
        winner.rollback().await.expect("rolled back");
        eventually("all leases are back", || async { pool.stats().leased == 0 }).await;
        assert_eq!(values(&pool, &table).await, [1, 2], "nothing of either stays");
    }
    drop_table(&pool, &table).await;
    pool.close().await;
}

#[tokio::test]
async fn savepoints_by_text_undo_what_came_behind_them() {
    let pool = pool().await;
    let table = table(&pool, "savepoints", COLUMNS).await;
    let insert = insert(&table);
    let tx = pool.begin().await.expect("a transaction");
    tx.execute(&insert, (1,)).await.expect("a write");
    for (name, n) in [("a", 2), ("b", 3)] {
        tx.execute(format!("SAVEPOINT {name}"), ()).await.expect("a savepoint");
        tx.execute(&insert, (n,)).await.expect("a write");
    }
    // Pipelined with others, and in a script.
    tokio::try_join!(
        async { tx.execute("ROLLBACK TO SAVEPOINT b", ()).await.map(drop) },
        async { tx.execute(&insert, (4,)).await.map(drop) },
        tx.batch_execute("RELEASE SAVEPOINT a; SELECT 1"),
        async { tx.execute(&insert, (5,)).await.map(drop) },
    )
    .expect("all run");
    let error = tx.execute("ROLLBACK TO SAVEPOINT a", ()).await.expect_err("it was released");
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Database, Outcome::Failed), "{error}");
    drop(tx);
    let tx = pool.begin().await.expect("a transaction");
    tx.execute("SAVEPOINT first", ()).await.expect("also as the first statement");
    tx.execute(&insert, (1,)).await.expect("a write");
    tx.execute("ROLLBACK TO SAVEPOINT first", ()).await.expect("back");
    tx.execute(&insert, (6,)).await.expect("a write");
    tx.commit().await.expect("committed");
    assert_eq!(values(&pool, &table).await, [6]);
    drop_table(&pool, &table).await;
    pool.close().await;
}
