//! Answers that the network loses: the server has done the work, and nobody is told. It is done again only for those who
//! said that this does no harm; what was not sent moves by itself, and runs once. A ledger counts.

use integration_tests::proxy::Faults;
use integration_tests::{eventually, own_name};

use super::side::dialect::{sleep, upsert};
use super::side::{
    CallOptions, Client, Error, ErrorKind, Executed, Outcome, Pool, Row, Statement, all_shared, drop_table,
    pool, reconnects, sql, table, through_proxy, writes,
};

/// How often the statement with this number ran.
async fn times(other: &impl Client, ledger: &str, nonce: i64) -> i32 {
    let asked = sql(format!("SELECT n FROM {ledger} WHERE nonce = $1"));
    other.query_opt::<(i32,)>(asked, (nonce,)).await.expect("the ledger").map_or(0, |(n,)| n)
}

fn assert_lost(answer: Result<Executed, Error>) {
    let error = answer.expect_err("its answer was lost");
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Io, Outcome::Unknown), "{error:?}");
    assert!(!error.is_retryable(), "it may have run");
}

#[tokio::test]
async fn work_whose_answer_is_lost_is_done_again_only_for_those_who_allow_it() {
    let other = pool().await;
    let ledger = table(&other, "lost_answer", "nonce bigint PRIMARY KEY, n int NOT NULL").await;
    let (proxy, config) = through_proxy(&own_name("lost_answer"), Faults::NONE).await;
    let pool = Pool::builder(config).connections(1).connect().await.expect("a pool");
    let (plain, again) = (Statement::new(upsert(&ledger)), Statement::new(upsert(&ledger)).idempotent());
    // The next answer is the statement's, and not that of preparing it.
    let ready = async || {
        all_shared(&pool).await;
        pool.execute(&plain, (0_i64,)).await.expect("an answer");
    };
    for round in 0..4_i64 {
        // Not allowed: once, and the outcome is not known.
        ready().await;
        proxy.lose_next_answer();
        assert_lost(pool.execute(&plain, (3 * round + 1,)).await);
        assert_eq!(times(&other, &ledger, 3 * round + 1).await, 1);
        // Allowed by the statement, and by the call: twice, and the second answer counts.
        for nonce in [3 * round + 2, 3 * round + 3] {
            ready().await;
            proxy.lose_next_answer();
            let answer = if nonce % 3 == 2 {
                pool.execute(&again, (nonce,)).await
            } else {
                pool.with(CallOptions::new().idempotent()).execute(&plain, (nonce,)).await
            };
            answer.expect("the second one came");
            assert_eq!(times(&other, &ledger, nonce).await, 2);
        }
    }
    assert_eq!((proxy.cuts(), reconnects(&pool)), (12, 12));
    drop_table(&other, &ledger).await;
    pool.close().await;
    other.close().await;
}

#[tokio::test]
async fn what_was_not_sent_when_its_connection_was_lost_moves_by_itself_and_runs_once() {
    let other = pool().await;
    let ledger = table(&other, "not_sent", "nonce bigint PRIMARY KEY, n int NOT NULL").await;
    let (proxy, config) = through_proxy(&own_name("not_sent"), Faults::NONE).await;
    let pool = Pool::builder(config).connections(1).connect().await.expect("a pool");
    let (insert, slow) = (Statement::new(upsert(&ledger)), Statement::new(sleep(0.2)));
    pool.execute(&insert, (0_i64,)).await.expect("known from here on");
    pool.query::<Row>(&slow, ()).await.expect("known from here on");
    all_shared(&pool).await;
    proxy.lose_next_answer();
    let before = writes(&pool);
    let (slept, behind) = tokio::join!(pool.execute(&slow, ()), async {
        eventually("the slow one is out", || async { writes(&pool) > before }).await;
        // Held back behind it, until its answer comes, which is lost.
        let insert = &insert;
        futures_util::future::join_all((1..=50_i64).map(|nonce| pool.execute(insert, (nonce,)))).await
    });
    assert_lost(slept);
    for (answer, nonce) in behind.into_iter().zip(1..) {
        assert_eq!(answer.expect("it ran on the next connection").rows_affected(), 1);
        assert_eq!(times(&other, &ledger, nonce).await, 1);
    }
    assert_eq!((proxy.cuts(), reconnects(&pool)), (1, 1));
    drop_table(&other, &ledger).await;
    pool.close().await;
    other.close().await;
}

#[tokio::test]
async fn a_transaction_whose_commit_is_lost_is_not_run_again() {
    let other = pool().await;
    let ledger = table(&other, "lost_commit", "nonce bigint PRIMARY KEY, n int NOT NULL").await;
    let (proxy, config) = through_proxy(&own_name("lost_commit"), Faults::NONE).await;
    let pool = Pool::builder(config).connections(2).connect().await.expect("a pool");
    let insert = Statement::new(upsert(&ledger)).idempotent();
    for nonce in 1..=3_i64 {
        all_shared(&pool).await;
        let tx = pool.begin().await.expect("a lease");
        tx.execute(&insert, (nonce,)).await.expect("inside");
        proxy.lose_next_answer();
        let error = tx.commit().await.expect_err("its answer was lost");
        assert_eq!((error.kind(), error.outcome()), (ErrorKind::Io, Outcome::Unknown), "{error:?}");
        assert_eq!(times(&other, &ledger, nonce).await, 1, "the server had committed");
        // The same as work that may be run again: others were not in its way, so it is not.
        all_shared(&pool).await;
        let (work, runs) = (pool.transaction().retries(3), std::cell::Cell::new(0));
        let error = work
            .run(async |tx| {
                runs.set(runs.get() + 1);
                tx.execute(&insert, (-nonce,)).await?;
                proxy.lose_next_answer();
                Ok::<_, Error>(())
            })
            .await
            .expect_err("its answer was lost");
        assert_eq!((error.outcome(), runs.get()), (Outcome::Unknown, 1), "{error:?}");
        assert_eq!(times(&other, &ledger, -nonce).await, 1);
    }
    drop_table(&other, &ledger).await;
    pool.close().await;
    other.close().await;
}
