//! A dropped future costs nothing but its answer.

mod support;

use std::time::Duration;

use support::{Server, ask, drop_after, options, poll_once, pool, run, until, until_idle};
use wire_pipeline::Options;

#[tokio::test(start_paused = true)]
async fn a_request_that_is_dropped_before_its_bytes_went_out_never_runs() {
    let server = Server::new();
    let pool = pool(&server, options(1)).await;
    let slow = run(&pool, ask(1).takes(Duration::from_millis(50)));
    let mut slow = Box::pin(slow);
    assert!(poll_once(slow.as_mut()).await.is_none());
    until("the server works on it", || server.asked() == [1]).await;
    // Held back behind the first batch.
    let mut dropped = Box::pin(run(&pool, ask(2)));
    let mut kept = Box::pin(run(&pool, ask(3)));
    assert!(poll_once(dropped.as_mut()).await.is_none());
    assert!(poll_once(kept.as_mut()).await.is_none());
    drop(dropped);
    slow.await.expect("an answer");
    kept.await.expect("an answer");
    assert_eq!(server.asked(), [1, 3]);
    until_idle(&pool).await;
}

#[tokio::test(start_paused = true)]
async fn dropped_at_any_poll_nothing_is_leaked() {
    for cold in [false, true] {
        for polls in 0..12 {
            let server = Server::new();
            let pool = pool(&server, Options { max_in_flight: 4, ..options(2) }).await;
            for round in 0..20 {
                let mut request = ask(round).size(100).takes(Duration::from_millis(u64::from(round % 3)));
                if cold {
                    request = request.needs(round / 2);
                }
                drop(drop_after(run(&pool, request), polls).await);
            }
            run(&pool, ask(100)).await.expect("an answer");
            until_idle(&pool).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn dropped_while_it_waits_for_room_nothing_is_leaked() {
    for polls in 0..6 {
        let server = Server::new();
        let pool = pool(&server, Options { max_in_flight: 1, ..options(1) }).await;
        let mut first = Box::pin(run(&pool, ask(1).takes(Duration::from_millis(20))));
        assert!(poll_once(first.as_mut()).await.is_none());
        for id in 2..10 {
            assert!(drop_after(run(&pool, ask(id)), polls).await.is_none());
        }
        first.await.expect("an answer");
        assert_eq!(server.asked(), [1]);
        until_idle(&pool).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_dropped_request_that_waited_for_a_forerunner_leaves_the_pipe_as_good_as_new() {
    let server = Server::new();
    let pool = pool(&server, options(2)).await;
    let slow = ask(1).needs(1).takes(Duration::from_millis(100));
    let mut cold = Box::pin(run(&pool, slow));
    assert!(poll_once(cold.as_mut()).await.is_none());
    tokio::time::sleep(Duration::from_millis(20)).await;
    drop(cold);
    tokio::time::sleep(Duration::from_millis(200)).await;
    server.take_log();
    // A pipe that was overdue when its only request went away, and has caught up since, serves like the other.
    for id in 0..20 {
        run(&pool, ask(id)).await.expect("an answer");
    }
    let log = server.take_log();
    for connection in 0..2 {
        assert!(log.iter().any(|(on, _)| *on == connection), "connection {connection} is not used: {log:?}");
    }
    until_idle(&pool).await;
}
