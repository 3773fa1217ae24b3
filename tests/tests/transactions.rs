//! Transactions: what is committed stays, everything else is undone, and no connection that others use is ever left
//! inside of one.

use integration_tests::{
    all_shared, connections, drop_table, eventually, named_pool, own_name, poll_then_drop, pool, postgres,
    table, writes,
};
use pg_pipeline::{Error, ErrorKind, Outcome, Pool, Statement};

async fn values(pool: &Pool, table: &str) -> Vec<i32> {
    let rows: Vec<(i32,)> =
        pool.query(format!("SELECT n FROM {table} ORDER BY id"), ()).await.expect("the table's rows");
    rows.into_iter().map(|(n,)| n).collect()
}

const NOTHING: [i32; 0] = [];
const COLUMNS: &str = "id serial PRIMARY KEY, n int4 UNIQUE";

fn insert(table: &str) -> String {
    format!("INSERT INTO {table} (n) VALUES ($1)")
}

/// Nothing of a pool is inside of a transaction, and no lease is held.
async fn nothing_is_left_open(pool: &Pool, other: &Pool, name: &str) {
    eventually("no lease is held", || async { pool.stats().leased == 0 }).await;
    assert_eq!(connections(other, name, "idle in transaction%").await, 0);
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
    tx.execute(format!("INSERT INTO {table} (n) VALUES ($1) RETURNING 'unknown'"), (1,))
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
    batch.push(format!("INSERT INTO {table} (n) VALUES ($1) RETURNING 'batch'"), (40,));
    batch.push(insert(&table), (41,));
    assert_eq!(batch.execute().await.expect("a batch").len(), 2);
    drop(tx);
    eventually("all leases are back", || async { pool.stats().leased == 0 }).await;
    assert_eq!(values(&pool, &table).await, NOTHING, "all were rolled back");
    drop_table(&pool, &table).await;
    pool.close().await;
}

#[tokio::test]
async fn a_first_statement_that_cannot_be_parsed_fails_the_transaction() {
    let pool = pool().await;
    let table = table(&pool, "unparsable", COLUMNS).await;
    let tx = pool.begin().await.expect("a transaction");
    let error =
        tx.execute(format!("SELECT nothing_like_it FROM {table}"), ()).await.expect_err("no such column");
    assert_eq!((error.kind(), error.sqlstate()), (ErrorKind::Database, Some("42703")));
    let error = tx.execute(insert(&table), (1,)).await.expect_err("as in every failed transaction");
    assert_eq!((error.outcome(), error.sqlstate()), (Outcome::Failed, Some("25P02")));
    tx.commit().await.expect_err("nothing to commit");
    assert_eq!(values(&pool, &table).await, NOTHING);
    drop_table(&pool, &table).await;
    pool.close().await;
}

#[tokio::test]
async fn begin_shares_the_first_statements_exchange() {
    let pool = pool().await;
    let table = table(&pool, "one_exchange", COLUMNS).await;
    let statement = Statement::new(insert(&table));
    all_shared(&pool).await;
    // Every pipe and the pool know what they need to know.
    for _ in 0..8 {
        let leases = transactions(&pool, 6).await;
        for (n, tx) in leases.iter().enumerate() {
            tx.execute(&statement, (n as i32,)).await.expect("a write");
            tx.execute("SELECT 1", ()).await.expect("a query");
        }
    }
    eventually("all leases are back", || async { pool.stats().leased == 0 }).await;
    all_shared(&pool).await;
    let before = writes(&pool);
    let tx = pool.begin().await.expect("a transaction");
    assert_eq!(writes(&pool), before, "begin() sends nothing");
    tx.execute(&statement, (1,)).await.expect("a write");
    assert_eq!(writes(&pool), before + 1, "BEGIN and the statement in one");
    tx.commit().await.expect("committed");
    assert_eq!(writes(&pool), before + 2);
    all_shared(&pool).await;
    assert_eq!(writes(&pool), before + 2, "a clean return costs nothing");
    drop_table(&pool, &table).await;
    pool.close().await;
}

async fn transactions(pool: &Pool, count: usize) -> Vec<pg_pipeline::Transaction> {
    let mut leases = Vec::new();
    for _ in 0..count {
        leases.push(pool.begin().await.expect("a transaction"));
    }
    leases
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
                    tx.execute("SELECT pg_sleep(0.01)", ()),
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
    for polls in 0..20 {
        let number = 2 * polls as i32;
        let whole = async {
            let tx = pool.begin().await?;
            tx.execute(&insert, (number,)).await?;
            // Never seen before: it takes an exchange more.
            tx.execute(format!("INSERT INTO {table} (n) VALUES ($1) RETURNING {polls}"), (-1 - number,))
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
async fn a_commit_that_the_server_turns_into_a_rollback_is_an_error() {
    let pool = pool().await;
    let table = table(&pool, "turned", COLUMNS).await;
    let insert = insert(&table);
    let tx = pool.begin().await.expect("a transaction");
    tx.execute(&insert, (1,)).await.expect("a write");
    let error = tx.execute(&insert, (1,)).await.expect_err("a duplicate");
    assert_eq!(error.sqlstate(), Some("23505"));
    let error = tx.execute(&insert, (2,)).await.expect_err("the transaction has failed");
    assert_eq!((error.kind(), error.sqlstate()), (ErrorKind::Database, Some("25P02")));
    let error = tx.commit().await.expect_err("rolled back");
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Database, Outcome::Failed));
    assert!(error.to_string().contains("rolled the transaction back"), "{error}");
    assert_eq!(values(&pool, &table).await, NOTHING);
    drop_table(&pool, &table).await;
    pool.close().await;
}

#[tokio::test]
async fn pipelined_statements_run_in_the_order_of_their_first_poll() {
    let pool = pool().await;
    let table = table(&pool, "order", COLUMNS).await;
    let known = Statement::new(insert(&table));
    let unknown = |n: i32, round: i32| format!("INSERT INTO {table} (n) VALUES ($1) RETURNING {n}, {round}");
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
async fn a_failure_among_pipelined_statements_is_told_apart_from_what_it_brings_down() {
    let pool = pool().await;
    let table = table(&pool, "brings_down", COLUMNS).await;
    let insert = Statement::new(insert(&table));
    pool.execute(&insert, (0,)).await.expect("known from here on");
    let tx = pool.begin().await.expect("a transaction");
    let (first, duplicate, behind) =
        tokio::join!(tx.execute(&insert, (1,)), tx.execute(&insert, (1,)), tx.execute(&insert, (2,)));
    first.expect("before the failure");
    assert_eq!(duplicate.expect_err("the cause").sqlstate(), Some("23505"));
    assert_eq!(behind.expect_err("brought down").sqlstate(), Some("25P02"));
    tx.rollback().await.expect("rolled back");
    assert_eq!(values(&pool, &table).await, [0]);
    drop_table(&pool, &table).await;
    pool.close().await;
}

#[tokio::test]
async fn a_deferred_constraint_is_an_error_at_commit_and_at_sync() {
    let pool = pool().await;
    let table = table(&pool, "deferred", "id serial, n int4, UNIQUE (n) DEFERRABLE INITIALLY DEFERRED").await;
    let insert = Statement::new(insert(&table));
    pool.execute(&insert, (1,)).await.expect("the first");
    // Its CommandComplete comes before the error that Sync raises; beside it others run in the same pipe.
    for round in 0..20 {
        let (before, duplicate, behind) = tokio::join!(
            pool.execute(&insert, (10 + round,)),
            pool.execute(&insert, (1,)),
            pool.execute(&insert, (100 + round,)),
        );
        before.expect("its own");
        behind.expect("its own");
        let error = duplicate.expect_err("a duplicate");
        assert_eq!((error.outcome(), error.sqlstate()), (Outcome::Failed, Some("23505")));
    }
    let mut batch = pool.batch();
    batch.push(&insert, (1_000,));
    batch.push(&insert, (1,));
    assert_eq!(batch.execute().await.expect_err("a duplicate").sqlstate(), Some("23505"));
    let tx = pool.begin().await.expect("a transaction");
    tx.execute(&insert, (1,)).await.expect("deferred");
    let error = tx.commit().await.expect_err("a duplicate");
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Database, Outcome::Failed));
    assert_eq!(error.as_database().and_then(|error| error.table()), Some(table.as_str()));
    let (count,): (i64,) =
        pool.query_one(format!("SELECT count(*) FROM {table}"), ()).await.expect("a count");
    assert_eq!(count, 41);
    drop_table(&pool, &table).await;
    pool.close().await;
}

#[tokio::test]
async fn a_serialization_failure_is_retryable() {
    let pool = pool().await;
    let table = table(&pool, "serializable", COLUMNS).await;
    let read = format!("SELECT coalesce(sum(n), 0) FROM {table}");
    let insert = insert(&table);
    let (one, two) = (pool.begin().await.expect("one"), pool.begin().await.expect("two"));
    for tx in [&one, &two] {
        tx.execute("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE", ()).await.expect("serializable");
        let _: (i64,) = tx.query_one(&read, ()).await.expect("a sum");
    }
    one.execute(&insert, (1,)).await.expect("a write");
    one.commit().await.expect("the first wins");
    let failed: Error = async {
        two.execute(&insert, (2,)).await?;
        two.commit().await
    }
    .await
    .expect_err("the second loses");
    assert_eq!((failed.kind(), failed.sqlstate()), (ErrorKind::Database, Some("40001")));
    assert!(failed.is_retryable());
    // Nothing of it stays behind, and the whole unit of work may run again.
    let tx = pool.begin().await.expect("again");
    tx.execute(&insert, (2,)).await.expect("a write");
    tx.commit().await.expect("committed");
    assert_eq!(values(&pool, &table).await, [1, 2]);
    let (level,): (String,) =
        pool.query_one("SELECT current_setting('transaction_isolation')", ()).await.expect("a setting");
    assert_eq!(level, "read committed");
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
    for sql in
        ["COMMIT", "/* */ rollback", "BEGIN", "END", "ABORT", "PREPARE TRANSACTION 'x'", "COMMIT AND CHAIN"]
    {
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
async fn a_script_that_ends_the_transaction_does_not_make_its_commit_a_success() {
    let pool = pool().await;
    let table = table(&pool, "ends", COLUMNS).await;
    let insert = insert(&table);
    for script in ["SELECT 1; ROLLBACK", "SELECT 1; COMMIT", "SAVEPOINT s; ROLLBACK; SELECT 2"] {
        let tx = pool.begin().await.expect("a transaction");
        tx.execute(&insert, (1,)).await.expect("a write");
        let error = tx.batch_execute(script).await.expect_err("it ended the transaction");
        assert_eq!(
            (error.kind(), error.outcome()),
            (ErrorKind::SessionState, Outcome::Completed),
            "{script}"
        );
        let error = tx.execute(&insert, (2,)).await.expect_err("there is no transaction any more");
        assert_eq!((error.kind(), error.outcome()), (ErrorKind::SessionState, Outcome::NotSent), "{script}");
        let error = tx.commit().await.expect_err("there is nothing to commit");
        assert_eq!(error.kind(), ErrorKind::SessionState, "{script}");
        pool.execute(format!("DELETE FROM {table}"), ()).await.expect("empty");
    }
    drop_table(&pool, &table).await;
    pool.close().await;
}

#[tokio::test]
async fn statements_batches_and_scripts_mix_in_one_transaction() {
    let pool = Pool::builder(postgres().await).connections(2).connect().await.expect("a pool");
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
        batch.push(format!("DELETE FROM {table} WHERE n = $1"), (1,));
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
