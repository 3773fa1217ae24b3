//! Prepared statements of PostgreSQL: what a failure skips, and what a session may forget.

use super::prepared_statements::pool_of_one;
use super::side::{pool_of, prepared};

#[tokio::test]
async fn what_a_failure_skips_leaves_no_statement_behind() {
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
    let pool = pool_of(2).await;
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
