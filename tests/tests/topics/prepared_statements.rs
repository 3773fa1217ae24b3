//! Prepared statements on a real server: none is left behind, and their number is bounded.

use super::side::dialect::EXP;
use super::side::{Pool, config, prepared, sql};

/// A pool of one connection, so that what it has prepared can be counted.
pub(super) async fn pool_of_one(statement_cache: usize) -> Pool {
    let builder = Pool::builder(config().await).connections(1);
    builder.statement_cache(statement_cache).connect().await.expect("a pool")
}

async fn number(pool: &Pool, n: i32) -> i32 {
    let (n,): (i32,) = pool.query_one(format!("SELECT {n}"), ()).await.expect("a number");
    n
}

#[tokio::test]
async fn without_a_cache_nothing_stays_prepared() {
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
async fn many_distinct_texts_stay_bounded_and_right() {
    let pool = pool_of_one(8).await;
    for round in 0..3 {
        let tasks: Vec<_> = (0..300)
            .map(|n| {
                let pool = pool.clone();
                tokio::spawn(async move { assert_eq!(number(&pool, n).await, n) })
            })
            .collect();
        for task in tasks {
            task.await.expect("its own number");
        }
        let prepared = prepared(&pool).await;
        assert!(prepared <= 8, "{prepared} are prepared in round {round}");
    }
    pool.close().await;
}

#[tokio::test]
async fn what_fails_leaves_no_statement_behind() {
    let pool = pool_of_one(2).await;
    for n in 0..20 {
        for item in 0..5 {
            number(&pool, 100 * n + item).await;
        }
        // One that cannot be prepared, and one that fails while it runs.
        pool.execute(format!("SELECT {n} FROM no_such_table"), ()).await.expect_err("no such table");
        pool.execute(sql(format!("{EXP} + {n}")), (1_000.0,)).await.expect_err("out of range");
    }
    assert!(prepared(&pool).await <= 1, "{} are prepared", prepared(&pool).await);
    pool.close().await;
}
