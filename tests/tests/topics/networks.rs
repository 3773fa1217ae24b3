//! Networks as services have met them: load balancers that forget connections, answers that never come or trickle in,
//! servers that are away while thousands of tasks ask, and distances that pipelining is there for.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use integration_tests::proxy::{Faults, Kind, Reaction, Rule};
use integration_tests::{eventually, own_name};
use tokio::net::TcpStream;

use super::side::dialect::{ECHO, REPEAT, sleep};
use super::side::{
    CallOptions, ErrorKind, Outcome, Phase, PipeState, Pool, Row, all_shared, asleep, reconnects,
    through_proxy,
};

fn faults(rules: Vec<Rule>) -> Faults {
    Faults { seed: 1, rules }
}

/// Everything is known to every connection from here on, so that no deadline pays for learning it.
async fn warm(pool: &Pool, connections: usize) {
    all_shared(pool).await;
    let leases = connections - if connections > 2 { 2 } else { 1 };
    let mut sessions = Vec::new();
    for _ in 0..leases {
        let session = pool.session().await.expect("a session");
        session.query_one::<(i32,)>(ECHO, (0,)).await.expect("an answer");
        sessions.push(session);
    }
    pool.query_one::<(i32,)>(ECHO, (0,)).await.expect("an answer");
    drop(sessions);
    all_shared(pool).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_a_load_balancer_forgot_are_left_within_the_deadline() {
    let (proxy, config) = through_proxy(&own_name("forgotten"), Faults::NONE).await;
    let timeout = Duration::from_secs(1);
    let config = config.connections(4).query_timeout(timeout);
    let pool = Pool::builder(config).connect().await.expect("a pool");
    warm(&pool, 4).await;
    // Each of the four swallows whatever is sent from here on; the next ones do not.
    let swallow = Rule::up(Reaction::Blackhole).kinds(&[Kind::Bind, Kind::Execute]).times(4);
    proxy.set(faults(vec![swallow]));
    let tasks: Vec<_> = (0..100)
        .map(|n| {
            let pool = pool.clone();
            tokio::spawn(async move {
                let began = Instant::now();
                let answer = pool.query_one::<(i32,)>(ECHO, (n,)).await;
                (answer, n, began.elapsed())
            })
        })
        .collect();
    let mut lost = 0;
    for task in tasks {
        let (answer, n, took) = task.await.expect("no panic");
        assert!(took < timeout * 4, "{took:?}");
        match answer {
            Ok(back) => assert_eq!(back, (n,)),
            Err(error) => {
                let timed_out = error.kind() == ErrorKind::Timeout;
                assert!(timed_out || error.kind() == ErrorKind::Io, "{error:?}");
                assert!(matches!(error.outcome(), Outcome::Unknown | Outcome::NotSent), "{error:?}");
                lost += 1;
            }
        }
    }
    assert!(lost > 0, "what was on a forgotten connection is told");
    // Whatever goes to one that has not been tried yet finds out in its own time.
    eventually("all four are left", || async {
        let _ = pool.query_one::<(i32,)>(ECHO, (1,)).await;
        reconnects(&pool) >= 4
    })
    .await;
    assert_eq!(proxy.cuts(), 4);
    for n in 0..100 {
        assert_eq!(pool.query_one::<(i32,)>(ECHO, (n,)).await.expect("new connections"), (n,));
    }
    pool.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_falls_silent_behind_a_query_is_left_and_others_proceed() {
    let (proxy, config) = through_proxy(&own_name("silent"), Faults::NONE).await;
    let pool = Pool::builder(config).connections(3).connect().await.expect("a pool");
    warm(&pool, 3).await;
    proxy.set(faults(vec![Rule::down(Reaction::Blackhole).times(1)]));
    let limit = Duration::from_secs(1);
    let began = Instant::now();
    let error = pool
        .with(CallOptions::new().timeout(limit))
        .query_one::<(i32,)>(ECHO, (1,))
        .await
        .expect_err("its answer was swallowed");
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Timeout, Outcome::Unknown));
    assert_eq!(error.phase(), Some(Phase::Answer));
    assert!(began.elapsed() >= limit && began.elapsed() < limit * 4, "{:?}", began.elapsed());
    // It is not handed out again: nobody else waits for it, neither before nor after it is given up.
    let began = Instant::now();
    while reconnects(&pool) == 0 {
        let view = pool.with(CallOptions::new().timeout(Duration::from_secs(5)));
        let (back,): (i32,) = view.query_one(ECHO, (2,)).await.expect("others proceed");
        assert_eq!(back, 2);
        assert!(began.elapsed() < Duration::from_secs(30), "the silent connection is never given up");
    }
    all_shared(&pool).await;
    assert_eq!((reconnects(&pool), proxy.cuts()), (1, 1));
    pool.close().await;
}

#[tokio::test]
async fn the_answer_of_a_long_query_that_the_network_has_dropped_is_not_waited_for_without_end() {
    let name = own_name("dropped");
    let (proxy, config) = through_proxy(&name, Faults::NONE).await;
    let pool = Pool::builder(config.query_timeout(Duration::from_secs(2))).connections(2);
    let pool = pool.connect().await.expect("a pool");
    let other = super::side::pool().await;
    all_shared(&pool).await;
    let slow = sleep(1.0);
    let (error, ()) = tokio::join!(
        async { pool.query::<Row>(&slow, ()).await.expect_err("its answer never comes") },
        async {
            eventually("it runs", || async { asleep(&other, &name).await == 1 }).await;
            proxy.set(faults(vec![Rule::down(Reaction::Blackhole).times(1)]));
        }
    );
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Timeout, Outcome::Unknown), "{error:?}");
    eventually("its connection is replaced", || async { reconnects(&pool) == 1 }).await;
    assert_eq!(pool.query_one::<(i32,)>(ECHO, (1,)).await.expect("a new connection"), (1,));
    pool.close().await;
    other.close().await;
}

/// Without a word of the network, this is what the system itself finds out: the timer of a connection that has nothing
/// to send is that of its keepalive (Linux documentation, "proc_net_tcp": 02).
#[cfg(target_os = "linux")]
#[tokio::test]
async fn the_system_keeps_connections_alive_while_an_answer_is_waited_for() {
    let name = own_name("kept_alive");
    let (proxy, config) = through_proxy(&name, Faults::NONE).await;
    let pool = Pool::builder(config.connections(2)).connect().await.expect("a pool");
    let other = super::side::pool().await;
    all_shared(&pool).await;
    let remote = format!("0100007F:{:04X}", proxy.port());
    let timers = || {
        let table = std::fs::read_to_string("/proc/self/net/tcp").expect("the system's table");
        let fields = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        // Established (01) connections to the proxy: number, local and remote address, state, queues, timer.
        let ours =
            fields.filter(|fields| fields.get(2) == Some(&remote.as_str()) && fields.get(3) == Some(&"01"));
        ours.filter_map(|fields| Some(fields.get(5)?.get(..2)?.to_owned())).collect::<Vec<_>>()
    };
    let slow = sleep(0.5);
    let (slept, ()) = tokio::join!(pool.query::<Row>(&slow, ()), async {
        eventually("it runs", || async { asleep(&other, &name).await == 1 }).await;
        // A timer of a retransmission goes before it for a moment.
        eventually("both are kept alive", || async { timers() == ["02", "02"] }).await;
    });
    slept.expect("awake");
    pool.close().await;
    other.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_trickles_in_does_not_outlive_its_deadline() {
    let (proxy, config) = through_proxy(&own_name("trickle"), Faults::NONE).await;
    let pool = Pool::builder(config).connections(2).connect().await.expect("a pool");
    all_shared(&pool).await;
    pool.query_one::<(String,)>(REPEAT, (10,)).await.expect("known from here on");
    // 100 kB at 10 kB a second: something comes all the time, and the whole takes ten seconds.
    proxy.set(faults(vec![Rule::down(Reaction::Bandwidth(10_000)).kinds(&[Kind::Row]).times(1)]));
    let limit = Duration::from_secs(1);
    let began = Instant::now();
    let view = pool.with(CallOptions::new().timeout(limit));
    let error = view.query_one::<(String,)>(REPEAT, (100_000,)).await.expect_err("too slow");
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Timeout, Outcome::Unknown), "{error:?}");
    assert_eq!(error.phase(), Some(Phase::Answer));
    assert!(began.elapsed() >= limit && began.elapsed() < limit * 4, "{:?}", began.elapsed());
    for n in 0..20 {
        assert_eq!(pool.query_one::<(i32,)>(ECHO, (n,)).await.expect("others proceed"), (n,));
    }
    pool.close_within(Duration::from_millis(10)).await;
}

/// How long `count` queries at once take on one connection whose answers are this long under way.
async fn over_a_distance(max_in_flight: usize, count: i32, delay: Duration) -> Duration {
    let (proxy, config) = through_proxy(&own_name("distance"), Faults::NONE).await;
    let pool = Pool::builder(config).connections(1).max_in_flight(max_in_flight);
    let pool = pool.connect().await.expect("a pool");
    all_shared(&pool).await;
    pool.query_one::<(i32,)>(ECHO, (0,)).await.expect("known from here on");
    // Each answer's end is held up: those that come together wait together.
    let reaction = Reaction::Delay { least: delay, jitter: Duration::ZERO };
    proxy.set(faults(vec![Rule::up(reaction).kinds(&[Kind::Sync, Kind::Execute]).every(1)]));
    let began = Instant::now();
    let all = (1..=count).map(|n| {
        let pool = &pool;
        async move { assert_eq!(pool.query_one::<(i32,)>(ECHO, (n,)).await.expect("an answer"), (n,)) }
    });
    futures_util::future::join_all(all).await;
    let took = began.elapsed();
    proxy.heal();
    pool.close().await;
    took
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thousands_of_tasks_wait_for_a_server_that_is_away_and_are_told_in_time() {
    let (proxy, config) = through_proxy(&own_name("herd"), Faults::NONE).await;
    let asked = Arc::new(Mutex::new(Vec::new()));
    let config = config.transport({
        let asked = Arc::clone(&asked);
        move |host, port| {
            asked.lock().expect("unpoisoned").push(Instant::now());
            TcpStream::connect((host, port))
        }
    });
    let limit = Duration::from_secs(3);
    let pool = Pool::builder(config).query_timeout(limit).connect().await.expect("a pool");
    all_shared(&pool).await;
    pool.query_one::<(i32,)>(ECHO, (0,)).await.expect("known from here on");
    proxy.close().await;
    eventually("all are gone", || async {
        pool.stats().pipes.iter().all(|pipe| pipe.state == PipeState::Connecting)
    })
    .await;
    let began = Instant::now();
    let tasks: Vec<_> = (0..10_000)
        .map(|n| {
            let pool = pool.clone();
            tokio::spawn(async move { pool.query_one::<(i32,)>(ECHO, (n,)).await })
        })
        .collect();
    for task in tasks {
        let error = task.await.expect("no panic").expect_err("no server");
        assert_eq!((error.kind(), error.outcome()), (ErrorKind::Timeout, Outcome::NotSent), "{error:?}");
        assert!(error.is_retryable(), "{error:?}");
    }
    let took = began.elapsed();
    assert!(took >= limit && took < limit * 4, "{took:?}");
    // One knocks for all, more and more rarely, however many wait.
    let knocks = asked.lock().expect("unpoisoned").iter().filter(|at| **at >= began).count();
    assert!((2..=4 * (2 + took.as_secs() as usize)).contains(&knocks), "{knocks} in {took:?}");
    proxy.open().await;
    assert_eq!(pool.query_one::<(i32,)>(ECHO, (1,)).await.expect("it is back"), (1,));
    all_shared(&pool).await;
    // Never more than two were being made at once.
    assert_eq!(proxy.connections(), 16);
    pool.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queries_of_many_tasks_share_a_round_trip_unless_told_otherwise() {
    let delay = Duration::from_millis(20);
    // One after the other, nothing can be quicker than this, on whatever machine.
    let alone = over_a_distance(1, 30, delay).await;
    assert!(alone >= delay * 30, "with max_in_flight = 1 they were pipelined: {alone:?}");
    println!("one after the other {alone:?}");
}
