//! Networks as services have met them: load balancers that forget connections, answers that never come or trickle in,
//! servers that are away while thousands of tasks ask, and distances that pipelining is there for.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use integration_tests::proxy::{Faults, Kind, Reaction, Rule};
use integration_tests::{eventually, own_name};

use super::side::dialect::{ECHO, REPEAT, sleep};
use super::side::{
    CallOptions, ErrorKind, Outcome, Phase, PipeState, Pool, Row, all_shared, asleep, knocks_noted,
    reconnects, through_proxy, writes,
};

/// How long after its deadline an answer is waited for before the connection is given up.
const STALL: Duration = Duration::from_secs(1);

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
    let config = config.connections(4).query_timeout(timeout).stall_timeout(STALL);
    let pool = Pool::builder(config).connect().await.expect("a pool");
    warm(&pool, 4).await;
    // Each of the four swallows what is sent from here on, and nobody is told.
    proxy.set(faults(vec![Rule::up(Reaction::Blackhole).kinds(&[Kind::Execute])]));
    let mut tasks = Vec::new();
    let forgotten = || {
        let events = proxy.events().into_iter();
        events.map(|event| event.connection).collect::<HashSet<_>>().len()
    };
    let asked = Instant::now();
    while tasks.len() < 100 || forgotten() < 4 {
        assert!(asked.elapsed() < Duration::from_secs(30), "some connection is never asked");
        let (pool, n) = (pool.clone(), tasks.len() as i32);
        tasks.push(tokio::spawn(async move {
            let began = Instant::now();
            let answer = pool.query_one::<(i32,)>(ECHO, (n,)).await;
            (answer, n, began.elapsed())
        }));
        tokio::task::yield_now().await;
    }
    // New connections are remembered.
    proxy.heal();
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
    eventually("all four are left", || async { reconnects(&pool) >= 4 }).await;
    all_shared(&pool).await;
    for n in 0..100 {
        assert_eq!(pool.query_one::<(i32,)>(ECHO, (n,)).await.expect("new connections"), (n,));
    }
    pool.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_falls_silent_behind_a_query_is_left_and_others_proceed() {
    let (proxy, config) = through_proxy(&own_name("silent"), Faults::NONE).await;
    let pool = Pool::builder(config.connections(3).stall_timeout(STALL)).connect().await.expect("a pool");
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
    let config = config.query_timeout(Duration::from_secs(2)).stall_timeout(STALL).connections(2);
    let pool = Pool::builder(config).connect().await.expect("a pool");
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
/// to send is that of its keepalive (Linux documentation, `proc_net_tcp`: 02).
#[cfg(target_os = "linux")]
#[tokio::test]
async fn the_system_keeps_connections_alive_while_an_answer_is_waited_for() {
    let other = super::side::pool().await;
    // Switched off there is no timer at all (00).
    for (on, timer) in [(true, "02"), (false, "00")] {
        let name = own_name("kept_alive");
        let (proxy, config) = through_proxy(&name, Faults::NONE).await;
        let pool = Pool::builder(config.connections(2).keepalives(on)).connect().await.expect("a pool");
        all_shared(&pool).await;
        let remote = format!("0100007F:{:04X}", proxy.port());
        let timers = || {
            let table = std::fs::read_to_string("/proc/self/net/tcp").expect("the system's table");
            let fields = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
            // Established (01) connections to the proxy: number, local and remote address, state, queues, timer.
            let is_ours =
                |fields: &Vec<&str>| fields.get(2) == Some(&remote.as_str()) && fields.get(3) == Some(&"01");
            let ours = fields.filter(is_ours);
            ours.filter_map(|fields| Some(fields.get(5)?.get(..2)?.to_owned())).collect::<Vec<_>>()
        };
        let slow = sleep(0.5);
        let (slept, ()) = tokio::join!(pool.query::<Row>(&slow, ()), async {
            eventually("it runs", || async { asleep(&other, &name).await == 1 }).await;
            // A timer of a retransmission goes before it for a moment.
            eventually("both are kept alive, or none", || async { timers() == [timer, timer] }).await;
        });
        slept.expect("awake");
        pool.close().await;
    }
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thousands_of_tasks_wait_for_a_server_that_is_away_and_are_told_in_time() {
    let (proxy, config) = through_proxy(&own_name("herd"), Faults::NONE).await;
    let (config, asked) = knocks_noted(config);
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

/// Asks `COUNT` things at once on one connection, which is shared or a lease; how many of them the server had got when it
/// began to answer, and how many writes they took.
async fn at_once(max_in_flight: usize, leased: bool) -> (u64, u64) {
    let (proxy, config) = through_proxy(&own_name("distance"), Faults::NONE).await;
    let pool = Pool::builder(config).connections(1 + usize::from(leased)).max_in_flight(max_in_flight);
    let pool = pool.connect().await.expect("a pool");
    all_shared(&pool).await;
    let session = if leased { Some(pool.session().await.expect("a session")) } else { None };
    let ask = |n: i32| {
        let (pool, session) = (&pool, session.as_ref());
        async move {
            let answer = match session {
                Some(session) => session.query_one::<(i32,)>(ECHO, (n,)).await,
                None => pool.query_one::<(i32,)>(ECHO, (n,)).await,
            };
            assert_eq!(answer.expect("an answer"), (n,));
        }
    };
    ask(0).await;
    eventually("set-up is over", || async { pool.stats().in_flight() == 0 }).await;
    let nothing = Reaction::Delay { least: Duration::ZERO, jitter: Duration::ZERO };
    let asked = Rule::up(nothing).kinds(&[Kind::Execute]);
    // The first answer takes its time.
    let far = Reaction::Delay { least: Duration::from_millis(200), jitter: Duration::ZERO };
    let answered = Rule::down(far).times(1);
    proxy.set(faults(vec![asked.clone(), answered.clone()]));
    let before = writes(&pool);
    let (_, first) = tokio::join!(join_all((1..=COUNT).map(ask)), async {
        eventually("the server answers", || async { answered.fired() == 1 }).await;
        asked.fired()
    });
    assert_eq!(asked.fired(), COUNT as u64);
    let taken = writes(&pool) - before;
    drop(session);
    pool.close().await;
    (first, taken)
}

const COUNT: i32 = 64;

#[tokio::test]
async fn what_many_tasks_ask_leaves_together_and_one_by_one_where_that_is_asked_for() {
    for leased in [false, true] {
        let (_, writes) = at_once(256, leased).await;
        assert!(writes < COUNT as u64 / 4, "{writes} writes");
        let (before_the_first_answer, writes) = at_once(1, leased).await;
        assert_eq!((before_the_first_answer, writes), (1, COUNT as u64), "on a lease: {leased}");
    }
}
