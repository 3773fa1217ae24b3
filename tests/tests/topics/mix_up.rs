//! No answer ever reaches another task: thousands of queries over eight pipes, each asking for its own value back.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use integration_tests::{Random, poll_then_drop, scale};

use super::side::dialect::{ECHO_LONG, ECHO_TEXT_LONG, NO_SUCH_TABLE, SERIES_FROM};
use super::side::{Error, ErrorKind, Outcome, Pool, idle, pool, prepared};

/// Tasks, and queries per task: a million in the full run.
const TASKS: u64 = 1_000;
const QUERIES: u64 = 100;

/// What a task does with its queries besides asking.
#[derive(Clone, Copy, PartialEq)]
enum Trouble {
    None,
    OneInFiftyFails,
    FuturesAreDropped,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_task_gets_its_own_answers() {
    run(Trouble::None).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failures_reach_exactly_their_own_task() {
    run(Trouble::OneInFiftyFails).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropped_futures_take_nobody_elses_answer() {
    run(Trouble::FuturesAreDropped).await;
}

async fn run(trouble: Trouble) {
    let pool = pool().await;
    let answered = Arc::new(AtomicUsize::new(0));
    let queries = QUERIES * scale() as u64;
    let tasks: Vec<_> = (0..TASKS)
        .map(|task| {
            let (pool, answered) = (pool.clone(), Arc::clone(&answered));
            tokio::spawn(async move {
                let mut random = Random::new(task + 1);
                for query in 0..queries {
                    if ask(&pool, &mut random, (task * queries + query).cast_signed(), trouble).await {
                        answered.fetch_add(1, Ordering::Relaxed);
                    }
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("no task fails");
    }
    let asked = usize::try_from(TASKS * queries).expect("fits");
    let answered = answered.load(Ordering::Relaxed);
    if trouble == Trouble::FuturesAreDropped {
        assert!(answered > asked / 4 && answered < asked, "{answered} of {asked}");
    } else {
        assert_eq!(answered, asked);
    }
    idle(&pool).await;
    for _ in 0..64 {
        let prepared = prepared(&pool).await;
        assert!(prepared <= 256, "{prepared} statements are prepared");
    }
    pool.close().await;
}

/// Asks for a value of the query's own, and looks whether that is what comes back. False if it was not waited for.
async fn ask(pool: &Pool, random: &mut Random, own: i64, trouble: Trouble) -> bool {
    if trouble == Trouble::OneInFiftyFails && random.below(50) == 0 {
        // The server's message quotes the name: the error is this query's own.
        let name = format!("nowhere_{own}");
        let failed: Error =
            pool.query_one::<(i64,)>(format!("SELECT 1 FROM {name}"), ()).await.expect_err("no table");
        assert_eq!((failed.kind(), failed.outcome()), (ErrorKind::Database, Outcome::Failed));
        assert_eq!(failed.sqlstate(), Some(NO_SUCH_TABLE));
        let message = failed.to_string();
        let quoted = message.split(['"', '\'', '.']).any(|word| word == name);
        assert!(quoted, "{failed} for {name}");
        return true;
    }
    match random.below(4) {
        0 => {
            let asked = pool.query_one::<(i64,)>(ECHO_LONG, (own,));
            check(asked, random, trouble, |(got,)| assert_eq!(got, own)).await
        }
        1 => {
            let text = format!("{own}").repeat(1 + random.below(300) as usize);
            let asked = pool.query_one::<(String, i64)>(ECHO_TEXT_LONG, (&text, own));
            check(asked, random, trouble, |got| assert_eq!(got, (text.clone(), own))).await
        }
        2 => {
            let asked = pool.query_one::<(Option<String>, i64)>(ECHO_TEXT_LONG, (None::<String>, own));
            check(asked, random, trouble, |got| assert_eq!(got, (None, own))).await
        }
        _ => {
            let wanted = random.below(20).cast_signed();
            let list: Vec<i64> = (0..wanted).map(|n| own + n).collect();
            let asked = pool.query::<(i64,)>(SERIES_FROM, (own, wanted));
            check(asked, random, trouble, |got| {
                assert_eq!(got.into_iter().map(|(n,)| n).collect::<Vec<_>>(), list);
            })
            .await
        }
    }
}

async fn check<T>(
    asked: impl Future<Output = Result<T, Error>>,
    random: &mut Random,
    trouble: Trouble,
    compare: impl FnOnce(T),
) -> bool {
    let answer = if trouble == Trouble::FuturesAreDropped && random.below(2) == 0 {
        poll_then_drop(asked, random.below(4)).await
    } else {
        Some(asked.await)
    };
    match answer {
        Some(answer) => {
            compare(answer.expect("an answer"));
            true
        }
        None => false,
    }
}
