//! A pool under full load while everything goes wrong that can, on a real server of its own, for as long as one likes;
//! and at the end an account of it. The load is in `load`, what goes wrong in `events`.
//!
//! Compiled twice, inside of `postgres` and of `mysql`: `super` is whose driver and server are meant.

mod events;
mod load;
mod report;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use test_servers::{Kind, Server};
use tokio::net::TcpStream;

pub use load::ON_PURPOSE;
pub use report::Report;

use super::dialect::ECHO_LONG;
use super::oracle::{Oracle, Transfers};
use super::{
    Config, Error, ErrorKind, Outcome, PipeState, Pool, PoolBuilder, all_shared, at, called, connections,
    disturb, idle, in_transaction, is_free, prepared,
};
use crate::proxy::{Faults, Proxy};
use crate::{Random, eventually};
use events::Event;
use load::Load;

/// The pool's time for a query.
const QUERY: Duration = Duration::from_secs(5);
/// Its time for a lease.
const ACQUIRE: Duration = Duration::from_secs(3);
/// What no call may take: a transaction that is run four times waits for a lease, and then for each of its statements.
const CALL: Duration = Duration::from_secs(60);
/// How long the pool may take to be whole again once the server can be used.
const WHOLE: Duration = Duration::from_secs(20);
/// The seed with which the pool is as it comes.
const USUAL: u64 = 1;

/// How the pool is set up; a seed picks from what makes a difference.
#[derive(Debug, Clone, Copy)]
struct Setup {
    connections: usize,
    max_in_flight: usize,
    statement_cache: usize,
    max_lifetime: Duration,
}

impl Setup {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed ^ 0x5e_70);
        let mut pick = |choices: [usize; 4]| match seed {
            USUAL => choices[0],
            _ => choices[random.below(4) as usize],
        };
        Self {
            connections: pick([8, 8, 3, 2]),
            max_in_flight: pick([256, 256, 5, 1]),
            statement_cache: pick([256, 256, 3, 0]),
            max_lifetime: Duration::from_secs(pick([1_800, 1_800, 5, 2]) as u64),
        }
    }

    fn apply(self, builder: PoolBuilder) -> PoolBuilder {
        let builder = builder.connections(self.connections).max_in_flight(self.max_in_flight);
        builder.statement_cache(self.statement_cache).max_lifetime(self.max_lifetime)
    }
}

/// A run under way.
struct Chaos {
    random: Random,
    server: Server,
    /// The server's first process, where it is ours.
    process: Option<u32>,
    /// Around the proxy, for whoever disturbs.
    admin: Config,
    user: String,
    proxy: Proxy,
    attempts: Arc<AtomicU64>,
    load: Arc<Load>,
    setup: Setup,
    report: Report,
}

/// Lets everything go wrong for a time. `None` where no server of its own can be had.
pub async fn run(kind: Kind, seed: u64, time: Duration) -> Report {
    let server = test_servers::own_server(kind, "chaos").await.expect("a server of its own");
    let descriptors = descriptors();
    let tasks = alive_tasks();
    let (mut chaos, other) = Chaos::start(server, seed).await;
    let workers = chaos.load.start(seed);
    chaos.go_on_for(time).await;
    let Chaos { admin, user, proxy, load, setup, mut report, .. } = chaos;
    proxy.heal();
    load.oracle.stop();
    for worker in workers {
        match tokio::time::timeout(CALL, worker).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => report.wrong.push(format!("a task ended: {error}")),
            Err(_) => report.wrong.push("a task waits for ever".to_owned()),
        }
    }
    report.leaks = load.leaks();
    report.panics = load.panics.load(Ordering::Relaxed);
    look_for_leaks(&load.pool, &other, &user, setup, &mut report).await;
    report.moved = load.transfers.told_done();
    let (sum, wanted, wrong) = load.transfers.settle(&other).await;
    report.money = (sum, wanted);
    report.wrong.extend(wrong);
    report.counts = load.oracle.settle(&other).await;
    other.close().await;
    drop((load, proxy, admin));
    let back = || async { alive_tasks() <= tasks && self::descriptors() <= descriptors };
    if tokio::time::timeout(Duration::from_secs(10), until(back)).await.is_err() {
        let now = (self::descriptors(), alive_tasks());
        report.leaks.push(format!("(descriptors, tasks): {:?} before, {now:?} after", (descriptors, tasks)));
    }
    report
}

impl Chaos {
    async fn start(server: Server, seed: u64) -> (Self, Pool) {
        let admin = at(server.url()).connect_timeout(Duration::from_secs(5));
        let other = Pool::builder(admin.clone()).connections(2).connect().await.expect("a pool");
        let user = crate::own_name("chaos");
        let oracle = Oracle::new(&other, may_happen).await;
        let transfers = Transfers::new(&other).await;
        for statement in disturb::create_user(&user) {
            other.execute(statement, ()).await.expect("a user");
        }
        let proxy = Proxy::start(super::address_of(&server).await, Faults::NONE).await;
        let attempts = Arc::new(AtomicU64::new(0));
        let counting = Arc::clone(&attempts);
        let config = called(at(server.url()), &user).hosts([("127.0.0.1", proxy.port())]);
        let config = config.transport(move |host, port| {
            counting.fetch_add(1, Ordering::Relaxed);
            TcpStream::connect((host, port))
        });
        let setup = Setup::new(seed);
        let builder = setup.apply(Pool::builder(config)).query_timeout(QUERY);
        let builder = builder.acquire_timeout(ACQUIRE).connect_timeout(Duration::from_secs(2));
        let builder = builder.stall_timeout(Duration::from_millis(500));
        let pool = builder.connect().await.expect("a pool");
        all_shared(&pool).await;
        let chaos = Self {
            random: Random::new(seed),
            process: server.pid(),
            report: Report::new(seed, server.description(), format!("{setup:?}")),
            setup,
            server,
            admin,
            user,
            proxy,
            attempts,
            load: Arc::new(Load::new(pool, oracle, transfers)),
        };
        (chaos, other)
    }

    fn attempts(&self) -> u64 {
        self.attempts.load(Ordering::Relaxed)
    }

    async fn go_on_for(&mut self, time: Duration) {
        let began = Instant::now();
        let mut deck = Vec::new();
        while began.elapsed() < time {
            let calm = Duration::from_millis(100 + self.random.below(400));
            tokio::time::sleep(calm).await;
            if deck.is_empty() {
                deck = Event::deck(self.server.how(), &mut self.random);
            }
            let event = deck.pop().expect("there are events");
            self.load.oracle.excuse_silence(event.is_outage());
            let worse = self.worse_network(event);
            let usable = self.happen(event).await;
            if worse {
                self.proxy.heal();
                *self.report.events.entry("on a bad network".to_owned()).or_default() += 1;
            }
            self.load.oracle.excuse_silence(false);
            *self.report.events.entry(format!("{event:?}")).or_default() += 1;
            let answered = self.load.oracle.counts().answered;
            let (served, whole) = self.recover(event, worse, usable).await;
            let network = if worse { " on a bad network" } else { "" };
            println!(
                "{:6.1?} {event:?}{network}, {answered} answered; served after {served:.2?}, whole after {whole:.2?}",
                began.elapsed()
            );
        }
        self.report.time = began.elapsed();
    }

    /// Waits until the pool is whole again, and notes how long it took since the server could be used until somebody was
    /// served, and until it was whole.
    async fn recover(&mut self, event: Event, worse: bool, usable: Instant) -> (Duration, Duration) {
        let pool = &self.load.pool;
        while usable.elapsed() < WHOLE && pool.query_one::<(i64,)>(ECHO_LONG, (1_i64,)).await.is_err() {}
        let served = usable.elapsed();
        let is_whole = || pool.stats().pipes.iter().all(|pipe| pipe.state != PipeState::Connecting);
        while usable.elapsed() < WHOLE && !is_whole() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        if usable.elapsed() >= WHOLE {
            let stats = pool.stats();
            self.report.wrong.push(format!("not whole {WHOLE:?} after {event:?}: {stats:?}"));
        }
        let whole = usable.elapsed();
        match (event.is_outage(), worse) {
            (true, false) => {
                self.report.served.push(served);
                self.report.whole.push(whole);
            }
            (true, true) => self.report.served_worse.push(served),
            (false, _) => {}
        }
        (served, whole)
    }
}

/// What may come of all this; nothing else may.
fn may_happen(error: &Error) -> bool {
    match (error.kind(), error.outcome()) {
        (ErrorKind::Io | ErrorKind::Timeout, Outcome::NotSent | Outcome::Unknown)
        | (ErrorKind::Closed, Outcome::NotSent) => true,
        (ErrorKind::Database, Outcome::Failed) => disturb::may_say(error),
        _ => false,
    }
}

/// What is left when everybody has stopped, in the pool and on the server.
async fn look_for_leaks(pool: &Pool, other: &Pool, user: &str, setup: Setup, report: &mut Report) {
    idle(pool).await;
    all_shared(pool).await;
    eventually("no transaction is left open", || async { in_transaction(other, user).await == 0 }).await;
    eventually("the server has the pool's connections and no others", || async {
        connections(other, user).await == setup.connections as i64
    })
    .await;
    for key in load::locks() {
        if !is_free(other, key).await {
            report.leaks.push(format!("lock {key} is held"));
        }
    }
    for _ in 0..8 * setup.connections {
        let prepared = prepared(pool).await;
        report.prepared = report.prepared.max(prepared);
        // What was evicted is closed with the next request at the latest.
        if prepared > setup.statement_cache as i64 + 1 {
            report.leaks.push(format!("{prepared} statements are prepared on a connection"));
        }
    }
    pool.close().await;
    eventually("the server has none of them", || async { connections(other, user).await == 0 }).await;
}

async fn until<F: Future<Output = bool>>(mut condition: impl FnMut() -> F) {
    while !condition().await {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

fn alive_tasks() -> usize {
    tokio::runtime::Handle::current().metrics().num_alive_tasks()
}

/// Open files of this process; 0 where nobody counts them.
fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count)
}
