//! Connections that end for a reason of the server's or of time's: noticed before a statement is wasted on them, made
//! again without a storm, and replaced without anybody noticing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use integration_tests::proxy::Faults;
use integration_tests::{eventually, own_name};
use tokio::net::TcpStream;

use super::side::dialect::{ECHO, IDLE_OUT};
use super::side::{
    ErrorKind, Outcome, PipeState, Pool, all_shared, config, knocks_noted, reconnects, shared_pipes,
    through_proxy,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_connection_that_the_server_closes_is_replaced_before_a_statement_is_wasted_on_it() {
    let idle_out = config().await.connections(3).setup([IDLE_OUT]);
    let pool = Pool::builder(idle_out).connect().await.expect("a pool");
    all_shared(&pool).await;
    for round in 0..3 {
        let before = reconnects(&pool);
        eventually("all connections were closed and made again", || async {
            reconnects(&pool) >= before + 3 && shared_pipes(&pool) == 3
        })
        .await;
        for n in 0..30 {
            let (back,): (i32,) =
                pool.query_one(ECHO, (n,)).await.unwrap_or_else(|error| panic!("round {round}: {error:?}"));
            assert_eq!(back, n);
        }
    }
    pool.close().await;
}

/// Nothing of the runtime runs meanwhile, as when the process was stopped or its machine slept.
#[tokio::test]
async fn a_program_that_was_held_up_wastes_no_statement_on_connections_that_were_closed_meanwhile() {
    let idle_out = config().await.connections(2).setup([IDLE_OUT]);
    let pool = Pool::builder(idle_out).connect().await.expect("a pool");
    all_shared(&pool).await;
    pool.query_one::<(i32,)>(ECHO, (0,)).await.expect("known from here on");
    for round in 0..3 {
        // Both were used now, so that they are idle for as long as the program is held up.
        let both = (0..64).map(|n| pool.query_one::<(i32,)>(ECHO, (n,)));
        for answer in futures_util::future::join_all(both).await {
            answer.unwrap_or_else(|error| panic!("round {round}: {error:?}"));
        }
        let before = reconnects(&pool);
        std::thread::sleep(Duration::from_millis(1_500));
        for n in 0..30 {
            let (back,): (i32,) =
                pool.query_one(ECHO, (n,)).await.unwrap_or_else(|error| panic!("round {round}: {error:?}"));
            assert_eq!(back, n);
        }
        assert!(reconnects(&pool) > before, "round {round}: the server had closed a connection");
        all_shared(&pool).await;
    }
    pool.close().await;
}

/// Tasks that ask all the time, until they are told to stop.
struct Askers {
    stop: Arc<AtomicBool>,
    answers: Arc<AtomicUsize>,
    tasks: Vec<tokio::task::JoinHandle<()>>,
}

impl Askers {
    fn start(pool: &Pool) -> Self {
        let (stop, answers) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let task = |n: i32| {
            let (pool, stop, answers) = (pool.clone(), Arc::clone(&stop), Arc::clone(&answers));
            tokio::spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    match pool.query_one::<(i32,)>(ECHO, (n,)).await {
                        Ok((back,)) => {
                            assert_eq!(back, n);
                            answers.fetch_add(1, Ordering::Relaxed);
                        }
                        // What was under way when its connection ended; nothing else fails, it waits.
                        Err(error) => assert_eq!(
                            (error.kind(), error.outcome()),
                            (ErrorKind::Io, Outcome::Unknown),
                            "{error:?}"
                        ),
                    }
                }
            })
        };
        let tasks = (0..50).map(task).collect();
        Self { stop, answers, tasks }
    }

    fn answers(&self) -> usize {
        self.answers.load(Ordering::Relaxed)
    }

    async fn stop(self) {
        self.stop.store(true, Ordering::Relaxed);
        for task in self.tasks {
            task.await.expect("nothing else fails");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_the_server_is_away_one_connection_knocks_and_all_are_back_within_a_second() {
    let (proxy, config) = through_proxy(&own_name("away"), Faults::NONE).await;
    let (config, asked) = knocks_noted(config);
    let pool = Pool::builder(config).query_timeout(Duration::from_secs(20)).connect().await.expect("a pool");
    all_shared(&pool).await;
    let askers = Askers::start(&pool);
    proxy.close().await;
    eventually("all are gone", || async {
        pool.stats().pipes.iter().all(|pipe| pipe.state == PipeState::Connecting)
    })
    .await;
    let began = Instant::now();
    let since = |from: Instant| {
        let asked = asked.lock().expect("unpoisoned");
        asked.iter().copied().filter(|at| *at >= from).collect::<Vec<_>>()
    };
    // The outage itself, for as long as back-off takes to reach its longest wait and stay there.
    tokio::time::sleep(Duration::from_secs(4)).await;
    let knocks = since(began).len();
    let rate = knocks as f64 / began.elapsed().as_secs_f64();
    let answered = askers.answers();
    proxy.open().await;
    let back = Instant::now();
    pool.query_one::<(i32,)>(ECHO, (1,)).await.expect("it is back");
    let first = back.elapsed();
    all_shared(&pool).await;
    let all = back.elapsed();
    let knocked = *since(back).first().expect("it came back") - back;
    println!(
        "knocks: {knocks} ({rate:.1} a second); the next after {knocked:?}, served after {first:?}, all connections \
         after {all:?}"
    );
    assert!(knocks >= 3 && rate < 4.0, "{knocks}");
    // What logging in takes on a busy machine comes on top.
    assert!(knocked < Duration::from_secs(1) && first < Duration::from_secs(2), "{knocked:?}, {first:?}");
    eventually("the others are served too", || async { askers.answers() > answered + 50 }).await;
    askers.stop().await;
    pool.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_that_leads_to_another_server_is_followed_when_the_first_one_is_gone() {
    let (first, config) = through_proxy(&own_name("moved"), Faults::NONE).await;
    let (second, _) = through_proxy("second", Faults::NONE).await;
    // What a name server knows.
    let port = Arc::new(AtomicU16::new(first.port()));
    let config = config.hosts([("database.example", 1)]).transport({
        let port = Arc::clone(&port);
        move |host, _| {
            assert_eq!(host, "database.example");
            TcpStream::connect(("127.0.0.1", port.load(Ordering::SeqCst)))
        }
    });
    let pool = Pool::builder(config).connect().await.expect("a pool");
    all_shared(&pool).await;
    let askers = Askers::start(&pool);
    port.store(second.port(), Ordering::SeqCst);
    first.close().await;
    eventually("all connections lead to the second one", || async {
        reconnects(&pool) >= 8 && shared_pipes(&pool) == 8
    })
    .await;
    let answered = askers.answers();
    eventually("they are served there", || async { askers.answers() > answered + 50 }).await;
    askers.stop().await;
    assert_eq!((first.connections(), second.connections()), (8, 8));
    pool.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_have_lived_their_time_are_replaced_and_no_statement_fails() {
    let config = config().await.connections(4).max_lifetime(Duration::from_secs(1));
    let pool = Pool::builder(config).connect().await.expect("a pool");
    all_shared(&pool).await;
    let stop = Arc::new(AtomicBool::new(false));
    let tasks: Vec<_> = (0..20)
        .map(|n| {
            let (pool, stop) = (pool.clone(), Arc::clone(&stop));
            tokio::spawn(async move {
                let mut answers = 0_u32;
                while !stop.load(Ordering::Relaxed) {
                    let (back,): (i32,) = pool.query_one(ECHO, (n,)).await.expect("an answer");
                    assert_eq!(back, n);
                    answers += 1;
                }
                answers
            })
        })
        .collect();
    eventually("each of them was replaced", || async {
        // By one that is ready before it goes, and at most one at a time.
        assert!(shared_pipes(&pool) >= 3, "{} of 4 are shared", shared_pipes(&pool));
        pool.stats().pipes.iter().all(|pipe| pipe.reconnects >= 1)
    })
    .await;
    stop.store(true, Ordering::Relaxed);
    for task in tasks {
        assert!(task.await.expect("no statement fails") > 0);
    }
    pool.close().await;
}
