//! Packets around the size where MySQL cuts them, and more than its server takes.

use super::side::{ErrorKind, Outcome, pool, reconnects};

/// The largest frame. Source: MySQL internals, "Sending More Than 16Mb".
const FULL: usize = 0xFF_FFFF;

fn bytes(length: usize) -> Vec<u8> {
    (0..length).map(|n| (n * 7 + n / 251) as u8).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn payloads_around_the_size_of_a_frame_are_sent_and_read_whole() {
    let pool = pool().await;
    let all = bytes(2 * FULL + 1);
    // A request of one parameter: command, id, flags, iterations (10), NULL bitmap, 1, type (4), length (4 below
    // 16 MiB, else 9). A row of one value: 0, NULL bitmap (2), length (4 or 9).
    for payload in [FULL - 1, FULL, FULL + 1, 2 * FULL - 1, 2 * FULL, 2 * FULL + 1] {
        for head in [14 + 4, 14 + 9, 2 + 4, 2 + 9] {
            let sent = &all[..payload - head];
            let (got,): (Vec<u8>,) = pool.query_one("SELECT ?", (sent,)).await.expect("a row");
            assert!(got == sent, "{payload} bytes with {head} of them before the value");
        }
    }
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
    assert_eq!(reconnects(&pool), 0);
    pool.close().await;
}
