//! Parts of a transaction: kept, undone by word or by being dropped, and parts of parts.

use std::task::Poll;

use integration_tests::{eventually, poll_then_drop};
use tokio::sync::Notify;

use super::side::{
    Client, Error, ErrorKind, Outcome, Pool, Savepoint, Transaction, drop_table, number, pool, sql, table,
    terminate,
};
use super::transactions::{COLUMNS, NOTHING, insert, values};

/// Polls a future once, without waiting to be woken.
async fn poll_once<F: Future + Unpin>(mut future: F) -> Option<F::Output> {
    std::future::poll_fn(|cx| match std::pin::Pin::new(&mut future).poll(cx) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}

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

/// What is kept after that would be kept by a transaction that its caller takes for broken there.
#[tokio::test]
async fn a_part_that_is_told_to_have_failed_is_not_kept() {
    let pool = pool().await;
    let (tx, table, insert) = begin(&pool, "failed_to_keep").await;
    tx.execute(&insert, (1,)).await.expect("a write");
    let outer = tx.savepoint().await.expect("a savepoint");
    outer.execute(&insert, (2,)).await.expect("a write");
    let inner = outer.savepoint().await.expect("a part of a part");
    // Behind the driver's back, so that the server cannot go back to the inner one.
    outer.execute("RELEASE SAVEPOINT pipeline_savepoint_2", ()).await.expect("released");
    drop(inner);
    let error = outer.commit().await.expect_err("what was dropped cannot be undone");
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Database, Outcome::Failed), "{error}");
    tx.execute(&insert, (3,)).await.expect("the transaction goes on from before the outer one");
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

/// A rollback that is dropped, at whatever point, is done once and in its place: what was asked behind it stays.
#[tokio::test]
async fn a_rollback_dropped_at_any_poll_undoes_once_and_in_its_place() {
    let pool = pool().await;
    let (tx, table, insert) = begin(&pool, "once").await;
    tx.execute(&insert, (0,)).await.expect("known from here on");
    let mut expected = vec![0];
    for polls in 0..8 {
        let n = |i: i32| 10 * (polls + 1) + i;
        let part = tx.savepoint().await.expect("a savepoint");
        part.execute(&insert, (n(0),)).await.expect("a write");
        let mut rollback = Box::pin(part.rollback());
        let mut done = poll_then_drop(&mut rollback, polls as u64 / 2).await;
        // And once more, without waiting for what that leads to.
        if done.is_none() && polls % 2 == 1 {
            done = poll_once(&mut rollback).await;
        }
        let mut behind = Box::pin(tx.execute(&insert, (n(1),)));
        let early = poll_once(&mut behind).await;
        drop(rollback);
        match early {
            Some(done) => done,
            None => behind.await,
        }
        .expect("the transaction goes on");
        tx.execute(&insert, (n(2),)).await.expect("the transaction goes on");
        if let Some(done) = done {
            done.expect("rolled back");
        }
        // A rollback that was never polled was not asked for before the first of them, but when it was dropped.
        expected.extend((if polls == 0 { 2..3 } else { 1..3 }).map(n));
    }
    end(pool, tx, &table, &expected).await;
}

/// The same without anything behind it but the next part, and COMMIT.
#[tokio::test]
async fn a_part_ended_half_way_leaves_the_next_one_alone() {
    let pool = pool().await;
    let (tx, table, insert) = begin(&pool, "next_one").await;
    tx.execute(&insert, (0,)).await.expect("known from here on");
    let mut expected = vec![0];
    for polls in 0..8 {
        let n = |i: i32| 10 * (polls + 1) + i;
        let outer = tx.savepoint().await.expect("a savepoint");
        outer.execute(&insert, (n(0),)).await.expect("a write");
        let undone = outer.savepoint().await.expect("a part of a part");
        undone.execute(&insert, (n(1),)).await.expect("a write");
        poll_then_drop(undone.rollback(), polls as u64).await;
        let kept = outer.savepoint().await.expect("a part of a part");
        kept.execute(&insert, (n(2),)).await.expect("a write");
        poll_then_drop(kept.commit(), polls as u64).await;
        let last = outer.savepoint().await.expect("a part of a part");
        last.execute(&insert, (n(3),)).await.expect("a write");
        last.commit().await.expect("kept");
        poll_then_drop(outer.commit(), polls as u64).await;
        expected.extend([n(0), n(2), n(3)]);
    }
    let last = tx.savepoint().await.expect("a savepoint");
    last.execute(&insert, (1_000,)).await.expect("a write");
    poll_then_drop(last.rollback(), 1).await;
    end(pool, tx, &table, &expected).await;
}

/// How a part is ended.
#[derive(Debug, Clone, Copy, PartialEq)]
enum End {
    Commit,
    Rollback,
    Drop,
}

impl End {
    async fn end(self, part: Savepoint<'_>) -> Result<(), Error> {
        match self {
            Self::Commit => part.commit().await,
            Self::Rollback => part.rollback().await,
            Self::Drop => {
                drop(part);
                Ok(())
            }
        }
    }
}

fn is_over(error: &Error) {
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::SessionState, Outcome::NotSent), "{error}");
    assert!(error.to_string().contains("this savepoint was rolled back"), "{error}");
}

/// The later one is inside of the earlier, whichever is ended first, and the server is asked for nothing that it does
/// not have.
#[tokio::test]
async fn parts_that_overlap_end_in_any_order() {
    let pool = pool().await;
    let (tx, table, insert) = begin(&pool, "overlap").await;
    let mut expected = Vec::new();
    let mut n = 0;
    for outer_ends in [End::Commit, End::Rollback, End::Drop] {
        for inner_ends in [End::Commit, End::Rollback, End::Drop] {
            let what = format!("{outer_ends:?}, {inner_ends:?}");
            n += 10;
            let outer = tx.savepoint().await.expect("a savepoint");
            outer.execute(&insert, (n,)).await.expect("a write");
            let inner = tx.savepoint().await.expect("a savepoint");
            inner.execute(&insert, (n + 1,)).await.expect("a write");
            outer_ends.end(outer).await.expect(&what);
            let outer_stays = outer_ends == End::Commit;
            if outer_stays {
                inner.execute(&insert, (n + 2,)).await.expect("it is still there");
                expected.push(n);
                if inner_ends == End::Commit {
                    expected.extend([n + 1, n + 2]);
                }
                inner_ends.end(inner).await.expect(&what);
            } else {
                is_over(&inner.execute(&insert, (n + 2,)).await.map(drop).expect_err(&what));
                is_over(&inner.savepoint().await.map(drop).expect_err(&what));
                let mut batch = inner.batch();
                batch.push(&insert, (n + 2,));
                is_over(&batch.execute().await.map(drop).expect_err(&what));
                let ended = inner_ends.end(inner).await;
                match inner_ends {
                    End::Commit => is_over(&ended.expect_err(&what)),
                    // What was asked for is so already.
                    End::Rollback | End::Drop => ended.expect(&what),
                }
            }
            tx.execute(&insert, (n + 3,)).await.expect("the transaction goes on");
            expected.push(n + 3);
        }
    }
    end(pool, tx, &table, &expected).await;
}

/// The outer part is dropped while the inner one is being set: there is nothing that the inner one could undo.
#[tokio::test]
async fn a_part_set_while_the_outer_one_is_undone_is_over_or_its_own() {
    let pool = pool().await;
    let (tx, table, insert) = begin(&pool, "being_set").await;
    tx.execute(&insert, (0,)).await.expect("known from here on");
    let mut expected = vec![0];
    for polls in 0..6 {
        let n = |i: i32| 10 * (polls + 1) + i;
        let outer = tx.savepoint().await.expect("a savepoint");
        outer.execute(&insert, (n(0),)).await.expect("a write");
        let mut setting = Box::pin(tx.savepoint());
        let mut set = poll_then_drop(&mut setting, polls as u64 / 2).await;
        if set.is_none() && polls % 2 == 1 {
            set = poll_once(&mut setting).await;
        }
        drop(outer);
        let inner = match set {
            Some(inner) => inner,
            None => setting.await,
        }
        .expect("set");
        match inner.execute(&insert, (n(1),)).await {
            Ok(_) => drop(inner),
            Err(error) => {
                is_over(&error);
                is_over(&inner.commit().await.expect_err("it is over"));
            }
        }
        tx.execute(&insert, (n(2),)).await.expect("the transaction goes on");
        expected.push(n(2));
    }
    end(pool, tx, &table, &expected).await;
}

/// What was asked of the transaction before a part was dropped came since it was set, also what has no place yet.
#[tokio::test]
async fn what_waited_for_its_place_when_a_part_was_dropped_is_undone_with_it() {
    let pool = pool().await;
    let (tx, table, insert) = begin(&pool, "waited").await;
    tx.execute(&insert, (0,)).await.expect("known from here on");
    let part = tx.savepoint().await.expect("a savepoint");
    part.execute(&insert, (1,)).await.expect("a write");
    // The first rolls a part back, and what follows waits until that is done.
    let first = tx.savepoint().await.expect("a savepoint");
    let mut rollback = Box::pin(first.rollback());
    assert!(poll_once(&mut rollback).await.is_none(), "on its way");
    let mut waits = Box::pin(tx.execute(&insert, (2,)));
    assert!(poll_once(&mut waits).await.is_none(), "behind it");
    drop(part);
    rollback.await.expect("rolled back");
    waits.await.expect("it ran");
    tx.execute(&insert, (3,)).await.expect("a write behind it");
    end(pool, tx, &table, &[0, 3]).await;
}

/// A handle in another task outlives the work: what it has not asked to keep is not kept.
#[tokio::test]
async fn a_part_that_is_open_when_its_work_is_committed_is_not_kept() {
    let pool = pool().await;
    let table = table(&pool, "outlives", COLUMNS).await;
    let insert = insert(&table);
    let (gives, mut takes) = tokio::sync::mpsc::unbounded_channel();
    let (is_set, is_over) = (Notify::new(), Notify::new());
    let work = pool.transaction().run(|tx| {
        gives.send(tx).expect("somebody takes it");
        let is_set = &is_set;
        async move {
            is_set.notified().await;
            Ok::<_, Error>(())
        }
    });
    let other = async {
        let tx = takes.recv().await.expect("a handle");
        let kept = tx.savepoint().await.expect("a savepoint");
        kept.execute(&insert, (1,)).await.expect("a write");
        kept.commit().await.expect("kept");
        let open = tx.savepoint().await.expect("a savepoint");
        open.execute(&insert, (2,)).await.expect("a write");
        is_set.notify_one();
        is_over.notified().await;
        drop(open);
    };
    let work = async {
        work.await.expect("committed");
        is_over.notify_one();
    };
    tokio::join!(work, other);
    assert_eq!(values(&pool, &table).await, [1]);
    drop_table(&pool, &table).await;
    pool.close().await;
}

/// With the connection everything is undone; whoever asks for more is told that, and that nothing was sent.
#[tokio::test]
async fn parts_of_a_transaction_whose_connection_is_lost_say_so() {
    let (pool, other) = (pool().await, pool().await);
    for how in ["rollback", "commit", "drop", "use"] {
        let (tx, table, insert) = begin(&pool, "lost").await;
        tx.execute(&insert, (1,)).await.expect("a write");
        let part = tx.savepoint().await.expect("a savepoint");
        part.execute(&insert, (2,)).await.expect("a write");
        terminate(&other, number(&tx).await).await;
        eventually("the transaction has lost it", || async { !format!("{tx:?}").contains("true") }).await;
        let error = match how {
            "rollback" => part.rollback().await,
            "commit" => part.commit().await,
            "use" => {
                let used = part.execute(&insert, (3,)).await.map(drop);
                drop(part);
                used
            }
            _ => {
                drop(part);
                tx.execute(&insert, (3,)).await.map(drop)
            }
        }
        .expect_err(how);
        let is_lost = |error: &Error| {
            assert!(matches!(error.kind(), ErrorKind::Io | ErrorKind::Closed), "{how}: {error:?}");
            assert_eq!(error.outcome(), Outcome::NotSent, "{how}: {error:?}");
            assert!(!error.to_string().contains("savepoint that was dropped"), "{how}: {error}");
        };
        is_lost(&error);
        is_lost(&tx.commit().await.expect_err(how));
        assert_eq!(values(&other, &table).await, NOTHING, "{how}");
        drop_table(&other, &table).await;
    }
    pool.close().await;
    other.close().await;
}
