//! What happens when a connection is lost: everybody is answered, what was not sent goes elsewhere, and the pool
//! comes back without a storm.

mod support;

use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::future::join_all;
use support::{Door, LIMIT, Server, Toy, ask, options, poll_once, pool, run, until, until_idle};
use tokio::time::Instant;
use wire_pipeline::error::{ErrorKind, Outcome, Phase};
use wire_pipeline::options::BatchesOut;
use wire_pipeline::stats::PipeState;
use wire_pipeline::{Options, Pool};

const MS: Duration = Duration::from_millis(1);

#[tokio::test(start_paused = true)]
async fn what_was_sent_is_unknown_at_once_and_the_rest_runs_elsewhere() {
    for words in [true, false] {
        let server = Server::new();
        let pool = pool(&server, options(2)).await;
        // One on each pipe, then one behind each of them, held back.
        let mut all: Vec<_> = [1, 2].map(|id| Box::pin(run(&pool, ask(id).takes(20 * MS)))).into();
        for request in &mut all {
            assert!(poll_once(request.as_mut()).await.is_none());
        }
        until("both are out", || server.asked().len() == 2).await;
        all.extend([3, 4, 5, 6].map(|id| Box::pin(run(&pool, ask(id)))));
        for request in &mut all {
            assert!(poll_once(request.as_mut()).await.is_none());
        }
        let log = server.take_log();
        let lost = log.iter().position(|(connection, _)| *connection == 0).expect("one is on the first");
        let lost_id = [1, 2][usize::from(log[lost].1 != support::Seen::Ask(1))];
        let began = Instant::now();
        if words {
            server.cut_with_words(0);
        } else {
            server.cut(0);
        }
        for (index, answer) in join_all(all).await.into_iter().enumerate() {
            if index as u32 + 1 != lost_id {
                answer.expect("an answer");
                continue;
            }
            let error = answer.expect_err("its connection was lost");
            assert_eq!((error.kind(), error.outcome()), (ErrorKind::Io, Outcome::Unknown));
            assert_eq!(error.server().map(|words| words.0), words.then_some("last words"));
        }
        assert!(began.elapsed() < 30 * MS, "nobody waits for a connection to come back");
        let mut asked = server.asked();
        asked.sort_unstable();
        assert_eq!(asked, [3, 4, 5, 6], "each ran once");
        until("both pipes are up", || server.connections() == 3).await;
        until_idle(&pool).await;
        assert_eq!(pool.stats().pipes.iter().map(|pipe| pipe.reconnects).sum::<u64>(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn every_request_is_answered_whatever_kills_the_connections() {
    let server = Server::new();
    let pool = pool(&server, Options { max_in_flight: 8, ..options(3) }).await;
    let all = (0..400).map(|id| {
        let request = ask(id).size(id % 100).takes(MS * (id % 2));
        run(&pool, if id % 23 == 7 { request.kills() } else { request })
    });
    let answers = join_all(all).await;
    let unknown = answers.iter().filter_map(|answer| answer.as_ref().err());
    assert!(unknown.clone().all(|error| error.outcome() == Outcome::Unknown));
    assert!(unknown.count() >= 18, "at least those that kill");
    let mut asked = server.asked();
    let count = asked.len();
    asked.sort_unstable();
    asked.dedup();
    assert_eq!(asked.len(), count, "none ran twice");
    for (id, answer) in answers.iter().enumerate() {
        assert!(answer.is_err() || asked.contains(&(id as u32)));
    }
    until_idle(&pool).await;
}

#[tokio::test(start_paused = true)]
async fn what_nobody_could_take_is_served_when_the_only_pipe_comes_back() {
    let server = Server::new();
    let pool = pool(&server, options(1)).await;
    server.door(Door::Refuses);
    server.cut(0);
    until("it is down", || pool.stats().pipes[0].state == PipeState::Connecting).await;
    let mut all = Box::pin(join_all((0..50).map(|id| run(&pool, ask(id)))));
    assert!(poll_once(all.as_mut()).await.is_none());
    assert_eq!(pool.stats().waiting, 50);
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert!(poll_once(all.as_mut()).await.is_none());
    server.door(Door::Open);
    for answer in all.await {
        answer.expect("an answer");
    }
    assert_eq!(server.asked(), (0..50).collect::<Vec<_>>(), "oldest first");
    until_idle(&pool).await;
}

#[tokio::test(start_paused = true)]
async fn a_pool_that_cannot_connect_says_why() {
    let server = Server::new();
    server.door(Door::Refuses);
    let pool = Pool::start(Toy(server), options(1));
    let error = pool.ready().await.expect_err("refused");
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Connect, Outcome::NotSent));
    let error = support::run_within(&pool, ask(1), 300 * MS).await.expect_err("nobody to send it");
    assert_eq!((error.phase(), error.outcome()), (Some(Phase::Queue), Outcome::NotSent));
    assert!(error.to_string().contains("refused"), "{error}");
    assert!(error.is_retryable());
}

#[tokio::test(start_paused = true)]
async fn a_refusal_is_not_the_last_word_while_another_connection_is_being_made() {
    let server = Server::new();
    server.door(Door::TakesOne(20 * MS));
    server.deaf.send_replace(true);
    let pool = Pool::start(Toy(server.clone()), options(4));
    let mut ready = Box::pin(pool.ready());
    until("others are refused", || server.connections() > 2).await;
    assert!(poll_once(ready.as_mut()).await.is_none(), "one shakes hands");
    until("it does no longer", || pool.stats().pipes[0].state == PipeState::Settling).await;
    tokio::time::sleep(200 * MS).await;
    assert!(poll_once(ready.as_mut()).await.is_none(), "its session is being put right");
    server.deaf.send_replace(false);
    ready.await.expect("one connection");
    run(&pool, ask(1)).await.expect("it serves");
    server.door(Door::Open);
}

#[tokio::test(start_paused = true)]
async fn at_most_two_handshakes_run_at_once() {
    let server = Server::new();
    server.door(Door::Slow(10 * MS));
    let pool = pool(&server, options(8)).await;
    assert_eq!(server.connections(), 8);
    for connection in 0..8 {
        server.cut(connection);
        tokio::task::yield_now().await;
        tokio::task::yield_now().await;
    }
    tokio::time::sleep(2000 * MS).await;
    assert!(server.connections() > 8);
    assert_eq!(server.most_handshakes.load(Ordering::SeqCst), 2);
    until_idle(&pool).await;
}

#[tokio::test(start_paused = true)]
async fn one_pipe_knocks_for_all_while_the_server_refuses() {
    let server = Server::new();
    let pool = pool(&server, options(8)).await;
    server.door(Door::Refuses);
    for connection in 0..8 {
        server.cut(connection);
        let lost = || pool.stats().pipes.iter().filter(|pipe| pipe.state == PipeState::Connecting).count();
        until("it is lost", || lost() == connection + 1).await;
    }
    tokio::time::sleep(Duration::from_secs(60)).await;
    // Two at once, and then one with waits that grow to 750 ms, shortened by a quarter at most.
    let tries = server.connections() - 8;
    assert!((75..=120).contains(&tries), "{tries} in a minute");
    server.door(Door::Open);
    let began = Instant::now();
    until("all are up", || pool.stats().pipes.iter().all(|pipe| pipe.state == PipeState::Shared)).await;
    assert!(began.elapsed() <= Duration::from_secs(1), "{:?}", began.elapsed());
    assert_eq!(server.connections(), 8 + tries + 8, "and then each of them connects once");
    until_idle(&pool).await;
}

#[tokio::test(start_paused = true)]
async fn a_server_that_closes_at_once_is_not_hammered() {
    let server = Server::new();
    server.door(Door::ClosesAtOnce);
    let pool = Pool::start(Toy(server.clone()), options(4));
    tokio::time::sleep(Duration::from_secs(60)).await;
    // Waits double from 50 ms to 750 ms, shortened by a quarter at most: a pipe tries 80 to 120 times a minute.
    let tries = server.connections();
    assert!((320..=480).contains(&tries), "{tries}");
    server.door(Door::Open);
    run(&pool, ask(1)).await.expect("it comes back by itself");
}

#[tokio::test(start_paused = true)]
async fn a_handshake_that_hangs_is_given_up() {
    let server = Server::new();
    server.door(Door::Hangs);
    let pool = Pool::start(Toy(server.clone()), Options { connect_timeout: 500 * MS, ..options(1) });
    let error = pool.ready().await.expect_err("it hangs");
    assert_eq!((error.kind(), error.phase()), (ErrorKind::Timeout, Some(Phase::Connect)));
    assert_eq!(
        error.to_string(),
        "timed out in phase connect: no connection within connect_timeout (500 ms)"
    );
    server.door(Door::Open);
    run(&pool, ask(1)).await.expect("it comes back by itself");
}

#[tokio::test(start_paused = true)]
async fn a_forerunner_that_is_never_answered_costs_the_connection_even_when_nobody_waits_any_more() {
    let server = Server::new();
    let pool = pool(&server, options(1)).await;
    let request = ask(1).needs(1).takes(Duration::from_secs(3600));
    let error = support::run_within(&pool, request, 100 * MS).await.expect_err("too slow");
    assert_eq!((error.phase(), error.outcome()), (Some(Phase::Queue), Outcome::NotSent));
    support::run_within(&pool, ask(2), LIMIT).await.expect("another connection");
    assert_eq!(server.connections(), 2);
    until_idle(&pool).await;
}

#[tokio::test(start_paused = true)]
async fn old_pipes_are_replaced_one_at_a_time_and_no_request_fails() {
    let server = Server::new();
    server.door(Door::Slow(5 * MS));
    let lifetime = Duration::from_secs(2);
    let pool = pool(&server, Options { max_lifetime: lifetime, ..options(3) }).await;
    let began = Instant::now();
    let mut id = 0;
    while began.elapsed() < Duration::from_secs(10) {
        let some = (id..id + 6).map(|id| run(&pool, ask(id).takes(MS * (id % 4))));
        for answer in join_all(some).await {
            answer.expect("an answer");
        }
        id += 6;
        let stats = pool.stats();
        let away = stats.pipes.iter().filter(|pipe| pipe.state != PipeState::Shared);
        assert!(away.count() <= 1, "one at a time");
    }
    assert!(pool.stats().pipes.iter().all(|pipe| pipe.reconnects >= 3), "{:?}", pool.stats());
    until_idle(&pool).await;
}

#[tokio::test(start_paused = true)]
async fn a_pool_of_one_pipe_is_replaced_without_a_failed_request_too() {
    let server = Server::new();
    let pool = pool(&server, Options { max_lifetime: Duration::from_secs(1), ..options(1) }).await;
    for id in 0..3_000 {
        run(&pool, ask(id).takes(MS)).await.expect("an answer");
    }
    assert!(server.connections() >= 3);
}

#[tokio::test(start_paused = true)]
async fn what_the_server_said_before_a_write_failed_still_counts() {
    let server = Server::new();
    let several = Options { batches_out: BatchesOut::Fixed(3), ..options(1) };
    let pool = pool(&server, several).await;
    let [mut first, mut second, mut third] = [1, 2, 3].map(|id| {
        let request = ask(id);
        Box::pin(run(&pool, if id < 3 { request.takes(LIMIT / 2) } else { request }))
    });
    for (request, writes) in [(&mut first, 1), (&mut second, 2)] {
        assert!(poll_once(request.as_mut()).await.is_none());
        until("it is out", || pool.stats().pipes[0].writes == writes).await;
    }
    server.break_next_write(1);
    assert!(poll_once(third.as_mut()).await.is_none());
    first.await.expect("it was answered before the connection was lost");
    let error = second.await.expect_err("it was out");
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Io, Outcome::Unknown));
    assert_eq!(error.server().map(|words| words.0), Some("last words"));
    third.await.expect("not a byte of it was written, so it runs on the next connection");
    assert_eq!(pool.stats().pipes[0].queries, 2, "finished answers are counted");
    until_idle(&pool).await;
}

#[tokio::test(start_paused = true)]
async fn a_server_that_takes_no_writes_any_more_is_left_once_that_is_confirmed() {
    let server = Server::new();
    let pool = pool(&server, options(2)).await;
    tokio::time::sleep(Duration::from_secs(6)).await;
    server.read_only.store(true, Ordering::SeqCst);
    let error = run(&pool, ask(1).writes()).await.expect_err("no writes");
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Database, Outcome::Failed));
    until("it has another connection", || server.connections() == 3).await;
    let checks = server.take_seen().into_iter().filter(|seen| *seen == support::Seen::Check).count();
    assert_eq!(checks, 1);
    // The new one may have come to the same server; nobody runs in circles for that.
    for id in 2..100 {
        let _ = run(&pool, ask(id).writes()).await;
    }
    assert!(server.connections() <= 4, "{}", server.connections());
    server.read_only.store(false, Ordering::SeqCst);
    run(&pool, ask(100).writes()).await.expect("an answer");
    until_idle(&pool).await;
}

#[tokio::test(start_paused = true)]
async fn a_statement_that_may_not_write_costs_no_connection_where_the_server_takes_writes() {
    let server = Server::new();
    let pool = pool(&server, options(1)).await;
    tokio::time::sleep(Duration::from_secs(6)).await;
    run(&pool, ask(1).writes().fails()).await.expect_err("a session that may not write");
    run(&pool, ask(2).writes()).await.expect("the same connection serves on");
    assert_eq!(server.connections(), 1);
    assert!(server.take_seen().contains(&support::Seen::Check));
    until_idle(&pool).await;
}
