//! Values of many megabytes on MySQL, both ways, and packets around the size where they are cut.

use integration_tests::mysql::{config, pool};
use mysql_pipeline::{ErrorKind, Outcome, Pool};

/// The largest frame. Source: MySQL internals, "Sending More Than 16Mb".
const FULL: usize = 0xFF_FFFF;

fn bytes(length: usize) -> Vec<u8> {
    (0..length).map(|n| (n * 7 + n / 251) as u8).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn payloads_around_the_size_of_a_frame_are_sent_and_read_whole() {
    let pool = pool().await;
    // A request of one parameter: command, id, flags, iterations (10), NULL bitmap, 1, type (4), length (4 below
    // 16 MiB, else 9). A row of one value: 0, NULL bitmap (2), length (4 or 9).
    for payload in [FULL - 1, FULL, FULL + 1, 2 * FULL - 1, 2 * FULL, 2 * FULL + 1] {
        for head in [14 + 4, 14 + 9, 2 + 4, 2 + 9] {
            let sent = bytes(payload - head);
            let (got,): (Vec<u8>,) = pool.query_one("SELECT ?", (&sent,)).await.expect("a row");
            assert!(got == sent, "{payload} bytes with {head} of them before the value");
        }
    }
    pool.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_parameter_of_64_mib_goes_there_and_back_while_others_are_served() {
    let pool = pool().await;
    let sent = bytes(64 << 20);
    let large = pool.query_one::<(Vec<u8>,)>("SELECT ?", (&sent,));
    let small = async {
        for n in 0..1_000_i64 {
            let (got,): (i64,) = pool.query_one("SELECT ?", (n,)).await.expect("a row");
            assert_eq!(got, n);
        }
    };
    let (large, ()) = tokio::join!(large, small);
    assert!(large.expect("a row").0 == sent);
    assert_eq!(pool.stats().answer_bytes, 0);
    pool.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_than_the_server_takes_is_refused_before_it_is_sent() {
    let pool = pool().await;
    let (limit,): (usize,) = {
        let (limit,): (u64,) = pool.query_one("SELECT @@max_allowed_packet", ()).await.expect("a row");
        (usize::try_from(limit).expect("fits"),)
    };
    let sent = vec![0_u8; limit];
    let error = pool.execute("DO ?", (&sent,)).await.expect_err("too large");
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Encode, Outcome::NotSent));
    assert!(error.to_string().contains("max_allowed_packet"), "{error}");
    assert_eq!(pool.stats().pipes.iter().map(|pipe| pipe.reconnects).sum::<u64>(), 0);
    pool.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_over_the_limit_fails_alone() {
    let config = config().await;
    let pool =
        Pool::builder(config).connections(1).max_answer_bytes(1 << 20).connect().await.expect("a pool");
    let large = pool.query::<(String,)>("SELECT REPEAT('x', 3000000)", ());
    let small = pool.query_one::<(i64,)>("SELECT 1", ());
    let (large, small) = tokio::join!(large, small);
    let error = large.expect_err("too large");
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Busy, Outcome::Completed));
    assert_eq!(small.expect("a row"), (1,));
    pool.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_rows_come_whole_and_in_order() {
    let pool = pool().await;
    let rows: Vec<(i64, String)> = pool
        .query(
            "WITH RECURSIVE l (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM l WHERE n < 999) \
             SELECT a.n * 1000 + b.n AS n, REPEAT('x', 20) FROM l a, l b ORDER BY n LIMIT 200000",
            (),
        )
        .await
        .expect("rows");
    assert_eq!(rows.len(), 200_000);
    assert!(rows.iter().enumerate().all(|(index, (n, x))| *n == index as i64 && x.len() == 20));
    pool.close().await;
}
