//! Values, answers and parameter lists beyond every buffer, with other queries on the same pipe.

use integration_tests::{eventually, scale};

use super::side::dialect::{ECHO_BYTES, ECHO_LONG, EMPTY, LARGE_BOTH_WAYS, many_rows};
use super::side::types::ToSql;
use super::side::{ErrorKind, Outcome, Pool, Row, config, drop_table, pool, sql, table, writes};

/// Everything through one pipe.
async fn single() -> Pool {
    let config = config().await;
    Pool::builder(config)
        .connections(1)
        .query_timeout(std::time::Duration::from_secs(120))
        .connect()
        .await
        .expect("a pool")
}

/// Asks small things until told to stop; each answer must be its own.
fn neighbours(pool: &Pool) -> (tokio::sync::watch::Sender<bool>, tokio::task::JoinHandle<i64>) {
    let (stop, stopped) = tokio::sync::watch::channel(false);
    let pool = pool.clone();
    let task = tokio::spawn(async move {
        let mut asked = 0;
        while !*stopped.borrow() {
            let (got,): (i64,) = pool.query_one(ECHO_LONG, (asked,)).await.expect("a small answer");
            assert_eq!(got, asked);
            asked += 1;
        }
        asked
    });
    (stop, task)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_value_of_64_mib_goes_both_ways() {
    let pool = single().await;
    let (stop, task) = neighbours(&pool);
    let value: Vec<u8> = (0..64_u32 << 20).map(|n| (n % 251) as u8).collect();
    let (back,): (Vec<u8>,) = pool.query_one(ECHO_BYTES, (&value,)).await.expect("a large answer");
    assert!(back == value, "the value came back changed");
    stop.send_replace(true);
    assert!(task.await.expect("neighbours") > 0);
    eventually("its memory is given back", || async { pool.stats().answer_bytes == 0 }).await;
    pool.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_great_many_rows_come_whole_and_in_order() {
    let pool = single().await;
    let (stop, task) = neighbours(&pool);
    let rows = if scale() > 1 { 1_000_000 } else { 300_000 };
    let all: Vec<Row> = pool.query(many_rows(rows), ()).await.expect("rows");
    assert_eq!(all.len() as i64, rows);
    for (row, n) in all.iter().zip(1_i64..).step_by(97) {
        assert_eq!((row.get::<i64>(0), row.get::<i64>(1)), (n, n + 1));
        assert_eq!((row.get::<&str>(2), row.get::<Option<&str>>(3)), (&*n.to_string(), None));
        assert!((row.get::<f64>(4) - n as f64).abs() < f64::EPSILON);
        assert_eq!(row.get::<&str>(5), "x");
    }
    stop.send_replace(true);
    assert!(task.await.expect("neighbours") > 0);
    pool.close().await;
}

#[tokio::test]
async fn as_many_parameters_as_the_protocol_counts_and_one_more() {
    let pool = single().await;
    let table = table(&pool, "parameters", "n int4").await;
    pool.execute(format!("INSERT INTO {table} VALUES (1), (65535), (65536)"), ()).await.expect("rows");
    let placeholders: Vec<String> = (1..=65_535).map(|n| format!("${n}")).collect();
    let count = sql(format!("SELECT count(*) FROM {table} WHERE n IN ({})", placeholders.join(",")));
    let values: Vec<i32> = (1..=65_535).collect();
    let params: Vec<&(dyn ToSql + Sync)> = values.iter().map(|value| value as _).collect();
    assert_eq!(pool.query_one::<(i64,)>(&count, &params).await.expect("65,535 parameters"), (2,));
    let mut more = params.clone();
    more.push(&1_i32);
    let before = writes(&pool);
    let error = pool.query_one::<(i64,)>(&count, more).await.expect_err("one too many");
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Encode, Outcome::NotSent));
    assert!(error.to_string().contains("at most 65535"), "{error}");
    assert_eq!(writes(&pool), before, "nothing was written");
    assert_eq!(pool.query_one::<(i32,)>("SELECT 1", ()).await.expect("the next one"), (1,));
    drop_table(&pool, &table).await;
    pool.close().await;
}

#[tokio::test]
async fn empty_statements_are_answered() {
    let pool = single().await;
    for text in ["", ";", "-- nothing", "/* nothing */", "  "] {
        // PostgreSQL takes them, and MySQL calls them errors.
        match pool.execute(text, ()).await {
            Ok(done) => assert_eq!(done.rows_affected(), 0, "{text}"),
            Err(error) => assert_eq!((error.outcome(), error.sqlstate()), (Outcome::Failed, EMPTY), "{text}"),
        }
        if let Ok(rows) = pool.query::<Row>(text, ()).await {
            assert!(rows.is_empty(), "{text}");
        }
    }
    assert_eq!(pool.query_one::<(i32,)>("SELECT 1", ()).await.expect("the next one"), (1,));
    pool.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_requests_with_large_answers_all_at_once_do_not_deadlock() {
    let pool = pool().await;
    let count = if scale() > 1 { 10_000 } else { 2_000 };
    let tasks: Vec<_> = (0..count)
        .map(|n: i32| {
            let pool = pool.clone();
            tokio::spawn(async move {
                let sent = format!("{n}-").repeat(8_000);
                let (back, long): (String, String) =
                    pool.query_one(LARGE_BOTH_WAYS, (&sent,)).await.expect("an answer");
                assert!(back == sent, "another one's answer");
                assert_eq!(long.len(), 100_000);
            })
        })
        .collect();
    let mut most = 0;
    for task in tasks {
        task.await.expect("no task fails");
        most = most.max(pool.stats().answer_bytes);
    }
    assert!(most <= 1 << 30, "{most} bytes of answers");
    assert_eq!(pool.stats().answer_bytes, 0);
    pool.close().await;
}

#[tokio::test]
async fn an_answer_over_its_limit_fails_alone() {
    let config = config().await;
    let pool =
        Pool::builder(config).connections(1).max_answer_bytes(1 << 20).connect().await.expect("a pool");
    let (fits, large, next) = tokio::join!(
        pool.query_one::<(String,)>("SELECT repeat('a', 1000)", ()),
        pool.query_one::<(String,)>("SELECT repeat('b', 2000000)", ()),
        pool.query_one::<(String,)>("SELECT repeat('c', 1000)", ()),
    );
    assert_eq!(fits.expect("fits").0.len(), 1_000);
    let error = large.expect_err("too large");
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Busy, Outcome::Completed));
    assert!(error.to_string().contains("max_answer_bytes"), "{error}");
    assert!(next.expect("the next one").0.starts_with('c'));
    assert_eq!(pool.stats().answer_bytes, 0);
    pool.close().await;
}
