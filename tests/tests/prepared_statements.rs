//! Prepared statements on a real server: none is left behind, and those that went away are prepared again.

use integration_tests::postgres;
use pg_pipeline::Pool;

/// A pool of one connection, so that what it has prepared can be counted.
async fn pool_of_one(statement_cache: usize) -> Pool {
    let builder = Pool::builder(postgres().await).connections(1);
    builder.statement_cache(statement_cache).connect().await.expect("a pool")
}

/// How many statements the pool's only connection has prepared, without the one that asks.
async fn prepared(pool: &Pool) -> i64 {
    let sql =
        "SELECT count(*) FROM pg_prepared_statements WHERE statement NOT LIKE '%pg_prepared_statements%'";
    let (count,): (i64,) = pool.query_one(sql, ()).await.expect("a count");
    count
}

async fn number(pool: &Pool, n: i32) -> i32 {
    let (n,): (i32,) = pool.query_one(format!("SELECT {n}"), ()).await.expect("a number");
    n
}

#[tokio::test]
async fn without_a_cache_nothing_is_prepared_by_name() {
    let pool = pool_of_one(0).await;
    for n in 0..10 {
        assert_eq!(number(&pool, n).await, n);
    }
    let concurrent = (0..50).map(|n| {
        let pool = pool.clone();
        tokio::spawn(async move { assert_eq!(number(&pool, n % 7).await, n % 7) })
    });
    for task in concurrent.collect::<Vec<_>>() {
        task.await.expect("its own number");
    }
    assert_eq!(prepared(&pool).await, 0);
    pool.close().await;
}

#[tokio::test]
async fn the_cache_keeps_its_bound_on_the_server_too() {
    let pool = pool_of_one(3).await;
    for n in 0..20 {
        assert_eq!(number(&pool, n).await, n);
    }
    // One of the three places is taken by the statement that counts.
    assert_eq!(prepared(&pool).await, 2);
    pool.close().await;
}

#[tokio::test]
async fn what_fails_leaves_no_statement_behind() {
    let pool = pool_of_one(2).await;
    for n in 0..20 {
        // The first item fails; the statements behind it were to take the places of others.
        let mut batch = pool.batch();
        batch.push("SELECT 1 / (1 - $1::int4)", (1,));
        for item in 0..5 {
            batch.push(format!("SELECT {item} + {n}"), ());
        }
        batch.execute().await.expect_err("a division by zero");
        // One that cannot be parsed, and one that cannot be bound.
        pool.execute(format!("SELECT {n} FROM no_such_table"), ()).await.expect_err("no such table");
        pool.execute("SELECT $1::text::int4", ("\0",)).await.expect_err("text without NUL");
    }
    assert!(prepared(&pool).await <= 1, "{} are prepared", prepared(&pool).await);
    pool.close().await;
}

#[tokio::test]
async fn a_session_that_discards_its_statements_goes_on_also_in_a_transaction() {
    let pool = Pool::builder(postgres().await).connections(2).connect().await.expect("a pool");
    for discard in ["DISCARD ALL", "DEALLOCATE ALL"] {
        let session = pool.session().await.expect("a session");
        for _ in 0..2 {
            session.execute("SELECT 1", ()).await.expect("prepared");
            session.execute("BEGIN", ()).await.expect("prepared");
            session.execute("COMMIT", ()).await.expect("prepared");
            session.batch_execute(discard).await.expect("discarded");
            session.execute("BEGIN", ()).await.expect("prepared again");
            session
                .execute("SELECT 1", ())
                .await
                .expect("prepared again, and the transaction has not failed");
            session.execute("COMMIT", ()).await.expect("prepared again");
        }
    }
    pool.close().await;
}
