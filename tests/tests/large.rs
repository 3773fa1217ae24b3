//! Values, answers and parameter lists beyond every buffer, with other queries on the same pipe.

use integration_tests::{eventually, pool, postgres, scale};
use pg_pipeline::types::ToSql;
use pg_pipeline::{ErrorKind, Outcome, Pool, Row};

/// Everything through one pipe.
async fn single() -> Pool {
    let config = postgres().await;
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
            let (got,): (i64,) = pool.query_one("SELECT $1::int8", (asked,)).await.expect("a small answer");
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
    let (back, length): (Vec<u8>, i32) =
        pool.query_one("SELECT $1::bytea, length($1::bytea)", (&value,)).await.expect("a large answer");
    assert_eq!(length, 64 << 20);
    assert!(back == value, "the value came back changed");
    stop.send_replace(true);
    assert!(task.await.expect("neighbours") > 0);
    eventually("its memory is given back", || async { pool.stats().answer_bytes == 0 }).await;
    pool.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_million_rows_of_ten_columns() {
    let pool = single().await;
    let (stop, task) = neighbours(&pool);
    let rows = 1_000_000_i32;
    let all: Vec<Row> = pool
        .query(
            "SELECT n, n + 1, n + 2, n + 3, n::int8, n::text, NULL::text, n % 2 = 0, n::float8, 'x' \
             FROM generate_series(1, $1::int4) AS n",
            (rows,),
        )
        .await
        .expect("rows");
    assert_eq!(all.len(), 1_000_000);
    for (row, n) in all.iter().zip(1_i32..).step_by(997) {
        assert_eq!(row.get::<i32>(0), n);
        assert_eq!(row.get::<i32>(3), n + 3);
        assert_eq!(row.get::<i64>(4), i64::from(n));
        assert_eq!(row.get::<&str>(5), n.to_string());
        assert_eq!(row.get::<Option<&str>>(6), None);
        assert_eq!(row.get::<bool>(7), n % 2 == 0);
        assert!((row.get::<f64>(8) - f64::from(n)).abs() < f64::EPSILON);
    }
    stop.send_replace(true);
    assert!(task.await.expect("neighbours") > 0);
    pool.close().await;
}

#[tokio::test]
async fn as_many_parameters_as_the_protocol_counts_and_one_more() {
    let pool = single().await;
    let placeholders: Vec<String> = (1..=65_535).map(|n| format!("(${n}::int4)")).collect();
    let sql = format!("SELECT sum(n), count(*) FROM (VALUES {}) AS v (n)", placeholders.join(","));
    let values: Vec<i32> = (1..=65_535).collect();
    let params: Vec<&(dyn ToSql + Sync)> = values.iter().map(|value| value as _).collect();
    let (sum, count): (i64, i64) = pool.query_one(&sql, &params).await.expect("65,535 parameters");
    assert_eq!((sum, count), (65_535 * 65_536 / 2, 65_535));
    let mut more = params.clone();
    more.push(&1_i32);
    let writes = pool.stats().pipes[0].writes;
    let error = pool.query_one::<(i64, i64)>(&sql, more).await.expect_err("one too many");
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Encode, Outcome::NotSent));
    assert!(error.to_string().contains("at most 65535"), "{error}");
    assert_eq!(pool.stats().pipes[0].writes, writes, "nothing was written");
    assert_eq!(pool.query_one::<(i32,)>("SELECT 1", ()).await.expect("the next one"), (1,));
    pool.close().await;
}

#[tokio::test]
async fn empty_statements_are_answered() {
    let pool = single().await;
    for sql in ["", ";", "-- nothing", "/* nothing */", "  "] {
        assert_eq!(pool.execute(sql, ()).await.expect(sql).rows_affected(), 0);
        assert!(pool.query::<Row>(sql, ()).await.expect(sql).is_empty());
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
                let (back, long): (String, String) = pool
                    .query_one("SELECT $1::text, repeat('x', 100000)", (&sent,))
                    .await
                    .expect("an answer");
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
    let config = postgres().await;
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
