//! How a pool ends.

mod support;

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use support::{Door, LIMIT, Seen, Server, Toy, ask, options, poll_once, pool, run, run_on, until};
use tokio::runtime::Handle;
use tokio::time::Instant;
use wire_pipeline::error::{ErrorKind, Outcome};
use wire_pipeline::{Options, Pool};

const MS: Duration = Duration::from_millis(1);

#[tokio::test(start_paused = true)]
async fn closing_finishes_what_was_taken_and_takes_nothing_new() {
    let server = Server::new();
    let pool = pool(&server, Options { max_in_flight: 2, ..options(2) }).await;
    let mut all = Box::pin(join_all((0..4).map(|id| run(&pool, ask(id).takes(20 * MS)))));
    assert!(poll_once(all.as_mut()).await.is_none());
    let mut waits_for_room = Box::pin(run(&pool, ask(4)));
    assert!(poll_once(waits_for_room.as_mut()).await.is_none());
    let mut close = Box::pin(pool.close_within(LIMIT));
    assert!(poll_once(close.as_mut()).await.is_none());
    for late in [waits_for_room.await, run(&pool, ask(5)).await] {
        let error = late.expect_err("closed");
        assert_eq!((error.kind(), error.outcome()), (ErrorKind::Closed, Outcome::NotSent));
    }
    assert_eq!(pool.lease().await.err().map(|error| error.kind()), Some(ErrorKind::Closed));
    let (answers, ()) = tokio::join!(all, close);
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
    let goodbyes = || server.take_seen().into_iter().filter(|seen| *seen == Seen::Goodbye).count();
    tokio::task::yield_now().await;
    assert_eq!(goodbyes(), 2);
    assert_eq!(pool.ready().await.expect_err("closed").kind(), ErrorKind::Closed);
}

#[tokio::test(start_paused = true)]
async fn what_was_taken_still_moves_to_another_pipe_while_the_pool_closes() {
    let server = Server::new();
    let pool = pool(&server, options(2)).await;
    let mut sent = Box::pin(join_all((0..2).map(|id| run(&pool, ask(id).takes(20 * MS)))));
    assert!(poll_once(sent.as_mut()).await.is_none());
    until("both pipes are at work", || server.asked().len() == 2).await;
    let mut held = Box::pin(join_all((2..8).map(|id| run(&pool, ask(id)))));
    assert!(poll_once(held.as_mut()).await.is_none());
    let mut close = Box::pin(pool.close_within(LIMIT));
    assert!(poll_once(close.as_mut()).await.is_none());
    server.cut(0);
    let (sent, held, ()) = tokio::join!(sent, held, close);
    assert_eq!(sent.iter().filter(|answer| answer.is_ok()).count(), 1);
    assert!(held.iter().all(Result::is_ok), "{held:?}");
}

#[tokio::test(start_paused = true)]
async fn closing_ends_after_its_limit_whatever_the_server_does() {
    let server = Server::new();
    let pool = pool(&server, options(2)).await;
    let began = Instant::now();
    let mut all = Box::pin(join_all((0..6).map(|id| run(&pool, ask(id).takes(Duration::from_secs(3600))))));
    assert!(poll_once(all.as_mut()).await.is_none());
    tokio::time::sleep(MS).await;
    pool.close_within(100 * MS).await;
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    let sent = server.asked();
    for (id, answer) in all.await.into_iter().enumerate() {
        let error = answer.expect_err("aborted");
        assert_eq!(error.kind(), ErrorKind::Closed);
        if sent.contains(&(id as u32)) {
            assert_eq!(error.outcome(), Outcome::Unknown);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn closing_waits_for_a_lease_up_to_its_limit() {
    let server = Server::new();
    let pool = Arc::new(pool(&server, Options { max_in_flight: 2, ..options(2) }).await);
    let lease = pool.lease().await.expect("a lease");
    let closing = tokio::spawn({
        let pool = Arc::clone(&pool);
        async move { pool.close_within(LIMIT).await }
    });
    tokio::time::sleep(50 * MS).await;
    // More than it takes at a time: the lease goes on as if nothing were.
    for answer in join_all((0..10).map(|id| run_on(&lease, ask(id)))).await {
        answer.expect("an answer");
    }
    assert!(!closing.is_finished());
    drop(lease);
    let began = Instant::now();
    closing.await.expect("no panic");
    assert!(began.elapsed() < 100 * MS, "{:?}", began.elapsed());

    let server = Server::new();
    let pool = support::pool(&server, options(2)).await;
    let lease = pool.lease().await.expect("a lease");
    pool.close_within(100 * MS).await;
    assert!(!lease.is_alive());
    assert_eq!(run_on(&lease, ask(1)).await.expect_err("over").kind(), ErrorKind::Closed);
}

#[tokio::test(start_paused = true)]
async fn a_pool_without_a_connection_closes_at_once() {
    for door in [Door::Refuses, Door::Hangs, Door::ClosesAtOnce] {
        let server = Server::new();
        server.door(door);
        let pool = Pool::start(Toy(server), options(3));
        let mut waits = Box::pin(run(&pool, ask(1)));
        assert!(poll_once(waits.as_mut()).await.is_none());
        tokio::time::sleep(300 * MS).await;
        let began = Instant::now();
        pool.close_within(LIMIT).await;
        assert_eq!(began.elapsed(), Duration::ZERO, "{door:?}");
        let error = waits.await.expect_err("closed");
        assert_eq!((error.kind(), error.outcome()), (ErrorKind::Closed, Outcome::NotSent));
    }
}

#[tokio::test(start_paused = true)]
async fn a_dropped_pool_ends_its_tasks() {
    let alive = || Handle::current().metrics().num_alive_tasks();
    let before = alive();
    for busy in [false, true] {
        let server = Server::new();
        let pool = pool(&server, options(3)).await;
        if busy {
            let mut request = Box::pin(run(&pool, ask(1).takes(20 * MS)));
            assert!(poll_once(request.as_mut()).await.is_none());
            drop(request);
        }
        let clone = pool.clone();
        drop(pool);
        run(&clone, ask(2)).await.expect("the last handle counts");
        drop(clone);
        until("no task is left", || alive() == before).await;
    }
}

#[test]
fn a_pool_whose_runtime_has_ended_says_so_and_does_not_hang() {
    let runtime = || {
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime")
    };
    let (first, second) = (runtime(), runtime());
    let server = Server::new();
    let options = Options { max_in_flight: 4, ..options(2) };
    let (pool, lease) = first.block_on(async {
        let pool = pool(&server, options).await;
        let lease = pool.lease().await.expect("a lease");
        (pool, lease)
    });
    let pool = Arc::new(pool);
    // In flight, in the queue, and waiting for room, on another runtime.
    let waiting: Vec<_> = (0..20)
        .map(|id| {
            let pool = Arc::clone(&pool);
            second.spawn(async move { run(&pool, ask(id).takes(Duration::from_secs(3600))).await })
        })
        .collect();
    let waits_for_lease = second.spawn({
        let pool = Arc::clone(&pool);
        async move { pool.lease().await.err() }
    });
    second.block_on(async {
        while pool.stats().in_flight() + pool.stats().waiting < 8 || pool.stats().waiting_for_lease < 1 {
            tokio::task::yield_now().await;
        }
    });
    first.shutdown_timeout(Duration::from_secs(10));
    second.block_on(async {
        let all = async {
            for task in waiting {
                let error = task.await.expect("no panic").expect_err("its runtime is gone");
                assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
                assert!(error.to_string().contains("runtime"), "{error}");
            }
            let error = waits_for_lease.await.expect("no panic").expect("no lease");
            assert_eq!(error.kind(), ErrorKind::Closed);
            let error = run(&pool, ask(1)).await.expect_err("its runtime is gone");
            assert_eq!((error.kind(), error.outcome()), (ErrorKind::Closed, Outcome::NotSent));
            assert_eq!(run_on(&lease, ask(1)).await.expect_err("over").kind(), ErrorKind::Closed);
            pool.ready().await.expect_err("its runtime is gone");
            pool.close_within(LIMIT).await;
        };
        tokio::time::timeout(Duration::from_secs(30), all).await.expect("nobody hangs");
    });
}

#[test]
fn whoever_waits_with_a_deadline_when_the_runtime_of_the_pool_ends_is_told() {
    let runtime = || {
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime")
    };
    let (first, second) = (runtime(), runtime());
    let pool = Arc::new(first.block_on(pool(&Server::new(), options(2))));
    let waiting = second.spawn({
        let pool = Arc::clone(&pool);
        async move { pool.until(Instant::now() + LIMIT, std::future::pending::<()>()).await }
    });
    second.block_on(async {
        // It has been polled: the runtime has one worker, which takes what was spawned first.
        tokio::spawn(async {}).await.expect("no panic");
    });
    first.shutdown_timeout(Duration::from_secs(10));
    let told = second.block_on(async { tokio::time::timeout(Duration::from_secs(10), waiting).await });
    assert_eq!(told.expect("nobody hangs").expect("no panic"), None);
}
