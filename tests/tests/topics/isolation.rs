//! How a transaction runs: what it sees of others and whether it may write. It holds for that transaction, and for
//! nothing that uses its connection afterwards.

use super::side::dialect::{ISOLATION, READ_ONLY, USUAL_ISOLATION};
use super::side::{Error, Isolation, Tx, all_shared, drop_table, pool, pool_of, table};
use super::transactions::{COLUMNS, insert};

#[tokio::test]
async fn isolation_and_access_hold_for_one_transaction() {
    let pool = pool().await;
    let table = table(&pool, "isolation", COLUMNS).await;
    let read = format!("SELECT count(*) FROM {table}");
    let seen = async |tx: &Tx| -> Result<String, Error> {
        tx.query_one::<(i64,)>(&read, ()).await?;
        let (isolation,): (String,) = tx.query_one(ISOLATION, ()).await?;
        Ok(isolation.to_uppercase())
    };
    let usual = pool.transaction().run(async |tx| seen(&tx).await).await.expect("done");
    for (isolation, name) in [
        (Isolation::ReadUncommitted, "READ UNCOMMITTED"),
        (Isolation::ReadCommitted, "READ COMMITTED"),
        (Isolation::RepeatableRead, "REPEATABLE READ"),
        (Isolation::Serializable, "SERIALIZABLE"),
    ] {
        let work = pool.transaction().isolation(isolation).run(async |tx| seen(&tx).await);
        assert_eq!(work.await.expect("done"), name);
        // Whichever connection was used, the next transaction on it is as usual; six of them are all that are leased.
        for _ in 0..8 {
            let work = pool.transaction().run(async |tx| seen(&tx).await);
            assert_eq!(work.await.expect("done"), usual);
        }
    }
    let insert = insert(&table);
    let tx =
        pool.transaction().read_only().isolation(Isolation::Serializable).begin().await.expect("a lease");
    let error = tx.execute(&insert, (1,)).await.expect_err("it only reads");
    assert_eq!(error.sqlstate(), Some(READ_ONLY), "{error}");
    drop(tx);
    for n in 0..8 {
        let tx = pool.begin().await.expect("a lease");
        tx.execute(&insert, (n,)).await.expect("a write");
        tx.commit().await.expect("committed");
    }
    drop_table(&pool, &table).await;
    pool.close().await;
}

/// Also where the server has not begun anything: the statements touch no table.
#[tokio::test]
async fn the_connection_is_as_usual_however_the_transaction_ended() {
    let pool = pool_of(2).await;
    let table = table(&pool, "as_usual", COLUMNS).await;
    let (read, insert) = (format!("SELECT count(*) FROM {table}"), insert(&table));
    let (usual,): (String,) = pool.query_one(USUAL_ISOLATION, ()).await.expect("a level");
    let mut n = 0;
    for end in ["commit", "rollback", "drop", "fail", "nothing"] {
        all_shared(&pool).await;
        let tx = pool.transaction().isolation(Isolation::Serializable).read_only();
        let tx = tx.begin().await.expect("a lease");
        match end {
            "nothing" => {}
            "fail" => drop(tx.execute("SELECT nothing_like_it", ()).await.expect_err("no such column")),
            _ => drop(tx.execute("SELECT 1", ()).await.expect("works")),
        }
        match end {
            "commit" => tx.commit().await.expect("committed"),
            "rollback" => tx.rollback().await.expect("rolled back"),
            _ => drop(tx),
        }
        // Both connections, with everything that they are used for.
        for _ in 0..4 {
            all_shared(&pool).await;
            let tx = pool.begin().await.expect("the lease");
            tx.query_one::<(i64,)>(&read, ()).await.expect("a count");
            let (isolation,): (String,) = tx.query_one(ISOLATION, ()).await.expect("a level");
            assert_eq!(isolation.to_uppercase(), usual.to_uppercase(), "{end}");
            n += 1;
            tx.execute(&insert, (n,)).await.expect(end);
            tx.commit().await.expect("committed");
            let session = pool.session().await.expect("the lease");
            let (isolation,): (String,) = session.query_one(USUAL_ISOLATION, ()).await.expect("a level");
            assert_eq!(isolation, usual, "{end}");
            n += 1;
            session.execute(&insert, (n,)).await.expect(end);
            drop(session);
            n += 2;
            tokio::try_join!(pool.execute(&insert, (n - 1,)), pool.execute(&insert, (n,))).expect(end);
        }
    }
    drop_table(&pool, &table).await;
    pool.close().await;
}
