//! Every wait has an end, and the error says where the time went.

mod support;

use std::time::Duration;

use support::{
    LIMIT, Seen, Server, Stops, ask, options, poll_once, pool, run, run_within, until, until_idle,
};
use tokio::time::Instant;
use wire_pipeline::Options;
use wire_pipeline::error::{ErrorKind, Outcome, Phase};
use wire_pipeline::options::BatchesOut;

const MS: Duration = Duration::from_millis(1);

#[tokio::test(start_paused = true)]
async fn sent_and_not_answered_in_time() {
    let server = Server::new();
    let pool = pool(&server, options(1)).await;
    let began = Instant::now();
    let error = run_within(&pool, ask(1).takes(Duration::from_secs(1)), 100 * MS).await.expect_err("slow");
    assert_eq!(
        (error.kind(), error.phase(), error.outcome()),
        (ErrorKind::Timeout, Some(Phase::Answer), Outcome::Unknown)
    );
    assert!(error.to_string().contains("phase answer"), "{error}");
    assert!(!error.is_retryable());
    assert!((100 * MS..=110 * MS).contains(&began.elapsed()), "{:?}", began.elapsed());
    // Its place is taken until the answer has come, and then it is free.
    assert_eq!(pool.stats().in_flight(), 1);
    run(&pool, ask(2)).await.expect("the connection is still good");
    assert_eq!(server.connections(), 1);
    until_idle(&pool).await;
}

#[tokio::test(start_paused = true)]
async fn held_back_and_not_sent_in_time() {
    let server = Server::new();
    let pool = pool(&server, options(1)).await;
    let mut slow = Box::pin(run(&pool, ask(1).takes(Duration::from_secs(1))));
    assert!(poll_once(slow.as_mut()).await.is_none());
    until("it is out", || server.asked() == [1]).await;
    let error = run_within(&pool, ask(2), 100 * MS).await.expect_err("behind it");
    assert_eq!((error.phase(), error.outcome()), (Some(Phase::Queue), Outcome::NotSent));
    assert!(error.is_retryable());
    slow.await.expect("an answer");
    assert_eq!(server.asked(), [1]);
    until_idle(&pool).await;
}

#[tokio::test(start_paused = true)]
async fn no_room_in_time() {
    let server = Server::new();
    let pool = pool(&server, Options { max_in_flight: 1, ..options(1) }).await;
    let mut slow = Box::pin(run(&pool, ask(1).takes(Duration::from_secs(1))));
    assert!(poll_once(slow.as_mut()).await.is_none());
    let error = run_within(&pool, ask(2), 100 * MS).await.expect_err("full");
    assert_eq!((error.phase(), error.outcome()), (Some(Phase::Queue), Outcome::NotSent));
    assert!(error.to_string().contains("max_in_flight"), "{error}");
    slow.await.expect("an answer");
    until_idle(&pool).await;
}

#[tokio::test(start_paused = true)]
async fn half_sent_in_time() {
    let server = Server::with_buffer(256);
    let pool = pool(&server, options(1)).await;
    server.deaf.send_replace(true);
    let error = run_within(&pool, ask(1).padding(10_000), 100 * MS).await.expect_err("nobody reads");
    assert_eq!((error.phase(), error.outcome()), (Some(Phase::Send), Outcome::Unknown));
    assert!(error.to_string().contains("phase send"), "{error}");
    server.deaf.send_replace(false);
    until_idle(&pool).await;
}

#[tokio::test(start_paused = true)]
async fn waiting_for_a_forerunner_is_waiting_to_be_sent() {
    let server = Server::new();
    let pool = pool(&server, options(1)).await;
    let cold = ask(1).needs(1).takes(Duration::from_secs(1));
    let error = run_within(&pool, cold, 100 * MS).await.expect_err("not prepared in time");
    assert_eq!((error.phase(), error.outcome()), (Some(Phase::Queue), Outcome::NotSent));
    run(&pool, ask(2).needs(1)).await.expect("prepared by now");
    assert_eq!(server.asked(), [2]);
    until_idle(&pool).await;
}

#[tokio::test(start_paused = true)]
async fn no_lease_in_time() {
    let server = Server::new();
    let pool = pool(&server, Options { acquire_timeout: 200 * MS, ..options(2) }).await;
    let line = line!() + 1;
    let held = pool.lease().await.expect("a lease");
    tokio::time::sleep(Duration::from_secs(1)).await;
    let error = pool.lease().await.err().expect("the only one is held");
    assert_eq!(
        (error.kind(), error.phase(), error.outcome()),
        (ErrorKind::Timeout, Some(Phase::Lease), Outcome::NotSent)
    );
    let message = error.to_string();
    let place = format!("held, the oldest for 1.2 s, taken at {}:{line}:", file!());
    assert!(
        message.starts_with(
            "timed out in phase lease: no lease within acquire_timeout (200 ms), 1 of 1 are held"
        ),
        "{message}"
    );
    assert!(message.contains(&place), "{message}");
    assert!(message.ends_with("hold leases for a shorter time or raise `connections`"), "{message}");
    drop(held);
    drop(pool.lease().await.expect("free again"));
    until_idle(&pool).await;
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_stays_silent_is_given_up() {
    let server = Server::new();
    let pool = pool(&server, options(1)).await;
    let error = run_within(&pool, ask(1).takes(Duration::from_secs(3600)), 100 * MS).await.expect_err("slow");
    assert_eq!(error.phase(), Some(Phase::Answer));
    run_within(&pool, ask(2), LIMIT).await.expect("on another connection");
    assert_eq!(server.connections(), 2);
    until_idle(&pool).await;
}

#[tokio::test(start_paused = true)]
async fn what_waits_behind_a_slow_request_moves_to_a_quick_pipe() {
    let server = Server::new();
    let pool = pool(&server, options(2)).await;
    let mut slow = Box::pin(run(&pool, ask(0).takes(Duration::from_secs(2))));
    let mut quick = Box::pin(run(&pool, ask(1).takes(3 * MS)));
    assert!(poll_once(slow.as_mut()).await.is_none());
    assert!(poll_once(quick.as_mut()).await.is_none());
    until("both are out", || server.asked().len() == 2).await;
    let began = Instant::now();
    let all = futures_util::future::join_all((2..10).map(|id| run(&pool, ask(id)))).await;
    assert!(all.iter().all(Result::is_ok));
    assert!(began.elapsed() < 50 * MS, "{:?}", began.elapsed());
    quick.await.expect("an answer");
    slow.await.expect("an answer");
    until_idle(&pool).await;
}

#[tokio::test(start_paused = true)]
async fn what_waits_for_a_forerunner_behind_a_slow_request_moves_too() {
    let server = Server::new();
    let pool = pool(&server, Options { batches_out: BatchesOut::Fixed(8), ..options(2) }).await;
    let mut slow = Box::pin(run(&pool, ask(0).takes(Duration::from_secs(2))));
    assert!(poll_once(slow.as_mut()).await.is_none());
    until("it is out", || server.asked().len() == 1).await;
    let began = Instant::now();
    let cold = (1..9).map(|id| run(&pool, ask(id).needs(id)));
    let answers = futures_util::future::join_all(cold).await;
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
    assert!(began.elapsed() < 50 * MS, "{:?}", began.elapsed());
    slow.await.expect("an answer");
    // The forerunners that nobody waits for any more have been answered too, and their keys serve.
    for id in 1..9 {
        run(&pool, ask(100 + id).needs(id)).await.expect("an answer");
    }
    until_idle(&pool).await;
}

#[tokio::test(start_paused = true)]
async fn the_server_stops_working_on_what_nobody_waits_for_and_nothing_else_is_hit() {
    let server = Server::new();
    server.stops.send_replace(Stops::After(50));
    let pool = pool(&server, options(1)).await;
    let began = Instant::now();
    let slow = run_within(&pool, ask(1).takes(Duration::from_secs(3600)), 100 * MS);
    // It waits behind, and would be hit if it were sent while the request to stop is on its way.
    let behind = async {
        tokio::time::sleep(10 * MS).await;
        run_within(&pool, ask(2).takes(200 * MS), LIMIT).await
    };
    let (slow, behind) = tokio::join!(slow, behind);
    assert_eq!(slow.expect_err("too slow").phase(), Some(Phase::Answer));
    behind.expect("not hit");
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
    assert_eq!((server.asked(), server.connections()), (vec![1, 2], 1));
    until_idle(&pool).await;
}

#[tokio::test(start_paused = true)]
async fn nothing_is_stopped_that_has_neighbours_in_flight() {
    let server = Server::new();
    server.stops.send_replace(Stops::After(0));
    let pool = pool(&server, Options { batches_out: BatchesOut::Fixed(8), ..options(1) }).await;
    let slow = run_within(&pool, ask(1).takes(Duration::from_secs(2)), 100 * MS);
    let neighbour = run_within(&pool, ask(2).takes(MS), LIMIT);
    let began = Instant::now();
    let (slow, neighbour) = tokio::join!(slow, neighbour);
    slow.expect_err("too slow");
    neighbour.expect("unharmed");
    assert!(began.elapsed() >= Duration::from_secs(2), "{:?}", began.elapsed());
    until_idle(&pool).await;
}

#[tokio::test(start_paused = true)]
async fn a_request_to_stop_that_may_come_late_costs_the_connection() {
    let server = Server::new();
    server.stops.send_replace(Stops::Lost);
    let pool = pool(&server, options(1)).await;
    run_within(&pool, ask(1).takes(Duration::from_secs(3600)), 100 * MS).await.expect_err("too slow");
    run_within(&pool, ask(2), LIMIT).await.expect("on another connection");
    assert_eq!(server.connections(), 2);
    until_idle(&pool).await;
}

/// One pipe is at a request to stop, although what it was for has been answered meanwhile, for two seconds more.
async fn stopped_too_late(server: &Server, pool: &support::ToyPool) {
    server.stops.send_replace(Stops::After(2000));
    run_within(pool, ask(1).takes(120 * MS), 100 * MS).await.expect_err("too slow");
    tokio::time::sleep(100 * MS).await;
}

#[tokio::test(start_paused = true)]
async fn what_is_queued_while_a_request_to_stop_is_on_its_way_ends_in_time() {
    let server = Server::new();
    let pool = pool(&server, options(1)).await;
    stopped_too_late(&server, &pool).await;
    let began = Instant::now();
    let error = run_within(&pool, ask(2), 100 * MS).await.expect_err("not sent yet");
    assert_eq!((error.phase(), error.outcome()), (Some(Phase::Queue), Outcome::NotSent));
    assert!((100 * MS..=110 * MS).contains(&began.elapsed()), "{:?}", began.elapsed());
    run_within(&pool, ask(3), LIMIT).await.expect("when the server has heard of it");
    assert_eq!((server.asked(), server.connections()), (vec![1, 3], 1));
    until_idle(&pool).await;
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_for_a_request_to_stop_beside_a_free_connection() {
    let server = Server::new();
    let pool = pool(&server, options(2)).await;
    stopped_too_late(&server, &pool).await;
    let began = Instant::now();
    for id in 2..20 {
        run_within(&pool, ask(id), LIMIT).await.expect("an answer");
    }
    assert!(began.elapsed() < 500 * MS, "{:?}", began.elapsed());
    // Afterwards it serves again.
    tokio::time::sleep(Duration::from_secs(3)).await;
    server.take_log();
    for id in 20..40 {
        run_within(&pool, ask(id), LIMIT).await.expect("an answer");
    }
    let log = server.take_log();
    for connection in 0..2 {
        assert!(log.iter().any(|(on, _)| *on == connection), "connection {connection} is not used: {log:?}");
    }
    until_idle(&pool).await;
}

#[tokio::test(start_paused = true)]
async fn a_session_is_put_right_when_no_request_to_stop_can_hit_that() {
    let server = Server::new();
    server.stops.send_replace(Stops::After(2000));
    let pool = pool(&server, options(3)).await;
    let lease = pool.lease().await.expect("a lease");
    lease.touch();
    let slow = ask(1).takes(120 * MS).touches();
    let slow = lease.submit(slow, Instant::now() + 100 * MS);
    slow.await.map(drop).expect_err("too slow");
    tokio::time::sleep(100 * MS).await;
    drop(lease);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!server.take_seen().contains(&Seen::Reset), "it could be hit");
    until("it is put right", || server.take_seen().contains(&Seen::Reset)).await;
    until_idle(&pool).await;
}
