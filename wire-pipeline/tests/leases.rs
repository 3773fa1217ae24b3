//! One pipe for one task, and back again in good order.

mod support;

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use support::{
    Door, Seen, Server, Toy, ask, begin, drop_after, options, poll_once, pool, run, run_on, until, until_idle,
};
use tokio::time::Instant;
use wire_pipeline::Options;
use wire_pipeline::error::{ErrorKind, Outcome};
use wire_pipeline::pool::exclusive;
use wire_pipeline::stats::PipeState;

const MS: Duration = Duration::from_millis(1);

#[tokio::test(start_paused = true)]
async fn waiters_are_served_in_order_of_arrival() {
    let server = Server::new();
    let pool = Arc::new(pool(&server, options(2)).await);
    let first = pool.lease().await.expect("a lease");
    let arrivals = Arc::new(std::sync::Mutex::new(Vec::new()));
    let mut waiters = Vec::new();
    for id in 0..10 {
        let (asker, arrivals) = (Arc::clone(&pool), Arc::clone(&arrivals));
        waiters.push(tokio::spawn(async move {
            let lease = asker.lease().await.expect("a lease");
            arrivals.lock().expect("unpoisoned").push(id);
            run_on(&lease, ask(id).takes(MS)).await.expect("an answer");
        }));
        until("it waits", || pool.stats().waiting_for_lease == id as usize + 1).await;
    }
    drop(first);
    for waiter in waiters {
        waiter.await.expect("no panic");
    }
    assert_eq!(*arrivals.lock().expect("unpoisoned"), (0..10).collect::<Vec<_>>());
    until_idle(&pool).await;
}

#[tokio::test(start_paused = true)]
async fn a_waiter_that_is_dropped_at_any_poll_leaks_nothing() {
    for polls in 0..8 {
        for busy in [false, true] {
            let server = Server::new();
            let pool = pool(&server, options(3)).await;
            let held = if busy { Some(pool.lease().await.expect("a lease")) } else { None };
            for _ in 0..5 {
                drop(drop_after(pool.lease(), polls).await);
            }
            drop(held);
            until("every pipe is shared again", || {
                let stats = pool.stats();
                stats.leased == 0
                    && stats.waiting_for_lease == 0
                    && stats.pipes.iter().all(|pipe| pipe.state == PipeState::Shared)
            })
            .await;
            drop(pool.lease().await.expect("a lease"));
            until_idle(&pool).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn never_more_leases_than_allowed_and_one_pipe_drains_at_a_time() {
    let server = Server::new();
    let pool = Arc::new(pool(&server, options(5)).await);
    let most = pool.options().max_leases();
    assert_eq!(most, 3);
    let tasks = (0..40).map(|id| {
        let pool = Arc::clone(&pool);
        tokio::spawn(async move {
            run(&pool, ask(1_000 + id).takes(3 * MS)).await.expect("an answer");
            let lease = pool.lease().await.expect("a lease");
            let stats = pool.stats();
            let count = |state| stats.pipes.iter().filter(|pipe| pipe.state == state).count();
            assert!(stats.leased <= most, "{stats:?}");
            assert!(count(PipeState::Draining) <= 1, "{stats:?}");
            assert!(count(PipeState::Shared) >= 1, "{stats:?}");
            // Whoever holds a lease may use the pool as well.
            run(&pool, ask(2_000 + id)).await.expect("an answer");
            run_on(&lease, ask(id).takes(MS)).await.expect("an answer");
        })
    });
    for task in join_all(tasks).await {
        task.expect("no panic");
    }
    until("all came back", || pool.stats().leased == 0).await;
    until_idle(&pool).await;
}

#[tokio::test(start_paused = true)]
async fn a_pipe_is_drained_before_it_is_leased() {
    let server = Server::new();
    let pool = pool(&server, options(2)).await;
    let mut shared = Box::pin(join_all((0..2).map(|id| run(&pool, ask(id).takes(20 * MS)))));
    assert!(poll_once(shared.as_mut()).await.is_none());
    until("both pipes are at work", || server.asked().len() == 2).await;
    let lease = pool.lease().await.expect("a lease");
    run_on(&lease, ask(7)).await.expect("an answer");
    for answer in shared.await {
        answer.expect("an answer");
    }
}

#[tokio::test(start_paused = true)]
async fn a_slow_pipe_is_not_the_one_that_is_drained() {
    let server = Server::new();
    let pool = pool(&server, options(3)).await;
    let mut slow = Box::pin(run(&pool, ask(0).takes(Duration::from_secs(30))));
    assert!(poll_once(slow.as_mut()).await.is_none());
    tokio::time::sleep(20 * MS).await;
    let mut quick = Box::pin(join_all((1..9).map(|id| run(&pool, ask(id).takes(2 * MS)))));
    assert!(poll_once(quick.as_mut()).await.is_none());
    tokio::time::timeout(100 * MS, pool.lease()).await.expect("a quick pipe").expect("a lease");
    quick.await;
}

#[tokio::test(start_paused = true)]
async fn order_is_kept_around_a_request_that_needs_a_forerunner() {
    let server = Server::new();
    let pool = pool(&server, options(2)).await;
    let lease = pool.lease().await.expect("a lease");
    let all = [ask(1), ask(2).needs(9), ask(3), ask(4).needs(9)].map(|request| run_on(&lease, request));
    for answer in join_all(all).await {
        answer.expect("an answer");
    }
    assert_eq!(
        server.take_seen(),
        [Seen::Ask(1), Seen::Prepare(9), Seen::Ask(2), Seen::Ask(3), Seen::Ask(4)]
    );
}

#[tokio::test(start_paused = true)]
async fn an_opening_goes_out_once_with_the_first_request_that_is_sent() {
    for polls in 0..6 {
        let server = Server::new();
        let pool = pool(&server, options(2)).await;
        let lease = pool.lease().await.expect("a lease");
        // Something is out, so that what follows is held back.
        let mut slow = Box::pin(run_on(&lease, ask(1).takes(20 * MS)));
        assert!(poll_once(slow.as_mut()).await.is_none());
        tokio::time::sleep(MS).await;
        lease.set_opening(begin(100));
        assert!(drop_after(run_on(&lease, ask(2)), polls).await.is_none());
        let mut next = Box::pin(run_on(&lease, ask(3)));
        let mut last = Box::pin(run_on(&lease, ask(4)));
        assert!(poll_once(next.as_mut()).await.is_none());
        assert!(poll_once(last.as_mut()).await.is_none());
        slow.await.expect("an answer");
        next.await.expect("an answer");
        last.await.expect("an answer");
        assert_eq!(server.take_seen(), [Seen::Ask(1), Seen::Begin(100), Seen::Ask(3), Seen::Ask(4)]);
        drop(lease);
        until_idle(&pool).await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_follows_an_opening_is_not_sent_before_it_is_answered() {
    let server = Server::new();
    let pool = pool(&server, options(2)).await;
    let lease = pool.lease().await.expect("a lease");
    lease.set_opening(begin(100));
    let first = ask(1).takes(20 * MS).kills();
    let (first, next) = tokio::join!(run_on(&lease, first), run_on(&lease, ask(2)));
    assert_eq!(first.expect_err("no answer").outcome(), Outcome::Unknown);
    assert_eq!(next.expect_err("no connection").outcome(), Outcome::NotSent);
    assert_eq!(server.take_seen(), [Seen::Begin(100), Seen::Ask(1)]);
}

#[tokio::test(start_paused = true)]
async fn an_opening_is_not_lost_with_a_request_that_cannot_be_sent() {
    for cold in [false, true] {
        let server = Server::new();
        let pool = pool(&server, options(2)).await;
        let lease = pool.lease().await.expect("a lease");
        lease.set_opening(begin(100));
        // Refused while it is framed, or because the server refuses what it needs.
        let refused = if cold { ask(1).needs(5).fails() } else { ask(1).unwritable() };
        let (refused, next) = tokio::join!(run_on(&lease, refused), run_on(&lease, ask(2)));
        assert!(refused.is_err());
        next.expect("an answer");
        let seen: Vec<_> = server.take_seen().into_iter().filter(|seen| *seen != Seen::Prepare(5)).collect();
        assert_eq!(seen, [Seen::Begin(100), Seen::Ask(2)], "cold: {cold}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_opening_that_nothing_took_along_can_be_taken_back() {
    let server = Server::new();
    let pool = pool(&server, options(2)).await;
    let lease = pool.lease().await.expect("a lease");
    lease.set_opening(begin(100));
    // What was submitted before it does not take it along, and the pump leaves it where it is.
    run_on(&lease, ask(1)).await.expect("an answer");
    assert_eq!(server.take_seen(), [Seen::Begin(100), Seen::Ask(1)]);
    assert!(lease.take_opening().is_none(), "it is on its way");

    lease.set_opening(begin(101));
    assert!(run_on(&lease, ask(2).unwritable()).await.is_err());
    assert_eq!(lease.take_opening().map(|opening| opening.id), Some(101));
    run_on(&lease, ask(3)).await.expect("an answer");
    assert_eq!(server.take_seen(), [Seen::Ask(3)]);
}

#[tokio::test(start_paused = true)]
async fn what_was_submitted_before_an_opening_does_not_take_it_along() {
    let server = Server::new();
    let pool = pool(&server, options(2)).await;
    let lease = pool.lease().await.expect("a lease");
    let mut slow = Box::pin(run_on(&lease, ask(1).takes(20 * MS)));
    let mut held = Box::pin(run_on(&lease, ask(2)));
    assert!(poll_once(slow.as_mut()).await.is_none());
    tokio::time::sleep(MS).await;
    assert!(poll_once(held.as_mut()).await.is_none());
    lease.set_opening(begin(100));
    tokio::join!(slow, held).0.expect("an answer");
    assert_eq!(lease.take_opening().map(|opening| opening.id), Some(100));
    assert_eq!(server.take_seen(), [Seen::Ask(1), Seen::Ask(2)]);
}

#[tokio::test(start_paused = true)]
async fn an_opening_that_was_never_sent_ends_with_its_lease() {
    for submit in [false, true] {
        let server = Server::new();
        let pool = pool(&server, options(2)).await;
        let lease = pool.lease().await.expect("a lease");
        let mut slow = Box::pin(run_on(&lease, ask(1).takes(20 * MS)));
        assert!(poll_once(slow.as_mut()).await.is_none());
        tokio::time::sleep(MS).await;
        lease.set_opening(begin(100));
        if submit {
            // Held back, and dropped with the opening in it.
            assert!(drop_after(run_on(&lease, ask(2)), 1).await.is_none());
        }
        drop(slow);
        drop(lease);
        until("it came back", || pool.stats().leased == 0).await;
        for answer in join_all((3..20).map(|id| run(&pool, ask(id)))).await {
            answer.expect("nothing was opened on a shared pipe");
        }
        assert!(!server.take_seen().contains(&Seen::Begin(100)));
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_dropped_mid_flight_is_put_right_before_anybody_else_uses_it() {
    let server = Server::new();
    let pool = pool(&server, options(2)).await;
    for polls in 0..6 {
        let lease = pool.lease().await.expect("a lease");
        lease.set_opening(begin(100));
        drop(drop_after(run_on(&lease, ask(1).takes(10 * MS)), polls).await);
        drop(lease);
        let next = pool.lease().await.expect("the next lease");
        run_on(&next, ask(2)).await.expect("an answer");
        let seen = server.take_seen();
        let began = seen.contains(&Seen::Begin(100));
        let expected: &[Seen] = if began {
            &[Seen::Begin(100), Seen::Ask(1), Seen::Rollback, Seen::Ask(2)]
        } else {
            &[Seen::Ask(2)]
        };
        assert_eq!(seen, expected, "after {polls} polls");
        drop(next);
    }
    until("all came back", || pool.stats().leased == 0).await;
    until_idle(&pool).await;
}

#[tokio::test(start_paused = true)]
async fn a_session_that_was_touched_is_reset_and_an_untouched_one_is_not() {
    let server = Server::new();
    let pool = pool(&server, options(2)).await;
    for touch in [false, true] {
        let lease = pool.lease().await.expect("a lease");
        run_on(&lease, ask(1)).await.expect("an answer");
        if touch {
            lease.touch();
        }
        drop(lease);
        until("it came back", || pool.stats().leased == 0).await;
        let expected: &[Seen] = if touch { &[Seen::Ask(1), Seen::Reset] } else { &[Seen::Ask(1)] };
        assert_eq!(server.take_seen(), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn a_connection_lost_under_a_lease_ends_the_lease_and_frees_its_place() {
    let server = Server::new();
    let pool = pool(&server, options(2)).await;
    let lease = pool.lease().await.expect("a lease");
    run_on(&lease, ask(1)).await.expect("an answer");
    let (connection, _) = server.take_log()[0];
    let mut sent = Box::pin(run_on(&lease, ask(2).takes(50 * MS)));
    assert!(poll_once(sent.as_mut()).await.is_none());
    tokio::time::sleep(MS).await;
    let mut held = Box::pin(run_on(&lease, ask(3)));
    assert!(poll_once(held.as_mut()).await.is_none());
    server.cut(connection);
    let error = sent.await.expect_err("lost");
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Io, Outcome::Unknown));
    let error = held.await.expect_err("it belongs to the lease, and is not moved");
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Io, Outcome::NotSent));
    assert!(!lease.is_alive());
    let error = run_on(&lease, ask(4)).await.expect_err("over");
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Closed, Outcome::NotSent));
    // The place is free though the dead lease is still held.
    let next = pool.lease().await.expect("another lease");
    drop(lease);
    run_on(&next, ask(5)).await.expect("an answer");
    assert!(next.is_alive());
    drop(next);
    until("all came back", || pool.stats().leased == 0).await;
    until_idle(&pool).await;
}

#[tokio::test(start_paused = true)]
async fn a_pool_of_one_pipe_has_no_leases() {
    let server = Server::new();
    let pool = pool(&server, options(1)).await;
    let error = pool.lease().await.err().expect("none");
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Config, Outcome::NotSent));
}

#[tokio::test(start_paused = true)]
async fn a_lease_takes_as_much_as_its_limits_allow_at_a_time() {
    let server = Server::new();
    let pool = pool(&server, Options { max_in_flight: 2, ..options(2) }).await;
    let lease = pool.lease().await.expect("a lease");
    let answers = join_all((0..100).map(|id| run_on(&lease, ask(id)))).await;
    assert!(answers.iter().all(Result::is_ok));
    assert_eq!(server.asked(), (0..100).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn a_connection_without_a_pool_ends_with_its_owner_even_when_he_never_came() {
    let server = Server::new();
    let alive = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let before = alive();
    let connection = exclusive(Toy(server.clone()), options(1)).await.expect("connects");
    run_on(&connection, ask(1)).await.expect("an answer");
    let ended = connection.ended();
    drop(connection);
    ended.await;
    assert_eq!(server.take_seen(), [Seen::Ask(1), Seen::Goodbye]);
    // He may go before the connection is made, and before it is handed over.
    for door in [Door::Open, Door::Slow(5 * MS)] {
        server.door(door);
        for polls in 0..6 {
            drop(drop_after(exclusive(Toy(server.clone()), options(1)), polls).await);
            until("its task ends", || alive() == before).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_pipe_that_is_to_be_leased_and_turns_out_to_be_slow_is_passed_over() {
    let server = Server::new();
    let pool = pool(&server, options(3)).await;
    // One on each pipe, the slow one on the first, and nobody knows yet that it is slow.
    let slow = run(&pool, ask(0).takes(Duration::from_secs(3)));
    let quick = join_all((1..3).map(|id| run(&pool, ask(id).takes(4 * MS))));
    let (mut slow, mut quick) = (Box::pin(slow), Box::pin(quick));
    assert!(poll_once(slow.as_mut()).await.is_none());
    assert!(poll_once(quick.as_mut()).await.is_none());
    until("all are out", || server.asked().len() == 3).await;
    let began = Instant::now();
    let lease = pool.lease().await.expect("a lease");
    assert!(began.elapsed() < 50 * MS, "{:?}", began.elapsed());
    run_on(&lease, ask(9)).await.expect("an answer");
    quick.await;
    slow.await.expect("an answer");
    drop(lease);
    until_idle(&pool).await;
}

#[tokio::test(start_paused = true)]
async fn the_last_pipe_that_everybody_can_use_is_not_handed_from_lease_to_lease() {
    let server = Server::new();
    let pool = pool(&server, options(3)).await;
    let first = pool.lease().await.expect("a lease");
    run_on(&first, ask(0)).await.expect("an answer");
    let leased = server.take_log()[0].0;
    let mut next = Box::pin(pool.lease());
    server.door(Door::Refuses);
    for connection in (0..3).filter(|connection| *connection != leased) {
        server.cut(connection);
        until("it is down", || {
            let stats = pool.stats();
            stats.pipes.iter().filter(|pipe| pipe.state == PipeState::Connecting).count() > 0
        })
        .await;
        tokio::time::sleep(MS).await;
    }
    assert!(poll_once(next.as_mut()).await.is_none());
    drop(first);
    // Somebody waits for the pipe that comes back, and it is the only one: it serves everybody.
    support::run_within(&pool, ask(1), Duration::from_secs(1)).await.expect("an answer");
    server.door(Door::Open);
    drop(next.await.expect("a lease, as soon as there is another pipe"));
    until_idle(&pool).await;
}
