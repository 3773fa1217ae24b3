//! A network that breaks in every way that there is, under load: each answer is its own asker's, what was acknowledged
//! is there once, what was not sent is not there, and nobody waits for ever. The server's own books decide.
//!
//! A turned bit is another matter. Without TLS neither protocol has a checksum of its own, so a bit that is turned in a
//! value is a value: nobody can tell. What is asked of bits that are turned in the framing is that every call ends, that
//! nothing panics, and that the pool serves again afterwards.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use integration_tests::proxy::{Faults, Kind, Proxy, Reaction, Rule};
use integration_tests::{Random, eventually, own_name, scale};

use super::side::oracle::{Counts, Known, Oracle, Transfers};
use super::side::{Error, ErrorKind, Outcome, Pool, PoolBuilder, connections, idle, pool, through_proxy};

/// Connections cut per test of cuts; ten times as many in the full run.
const CUTS: u64 = 100;
/// What happens per test of the other faults, at least.
const TIMES: u64 = 12;
/// Answers per test, at least.
const ANSWERS: u64 = 600;
/// Tasks of each kind.
const TASKS: u64 = 24;
/// Longer than anything here takes that does not hang.
const LIMIT: Duration = Duration::from_secs(120);
const SEED: u64 = 1;

/// A pool whose connections all go through a proxy, and tasks that ask and write through it.
struct Load {
    other: Pool,
    pool: Pool,
    proxy: Proxy,
    name: String,
    oracle: Arc<Oracle>,
    tasks: Vec<tokio::task::JoinHandle<()>>,
    began: Instant,
}

impl Load {
    async fn start(
        topic: &str,
        faults: Faults,
        tolerates: fn(&Error) -> bool,
        tuned: fn(PoolBuilder) -> PoolBuilder,
    ) -> Self {
        let (other, name) = (pool().await, own_name(topic));
        let (proxy, config) = through_proxy(&name, faults).await;
        // What stands already is not what is tested: nothing waits for ever on a connection that is swallowed.
        let builder = Pool::builder(config).connections(4).query_timeout(Duration::from_secs(20));
        let pool = tuned(builder).connect_lazy().expect("a pool");
        let oracle = Arc::new(Oracle::new(&other, tolerates).await);
        let tasks = (0..2 * TASKS)
            .map(|task| {
                let (pool, oracle) = (pool.clone(), Arc::clone(&oracle));
                tokio::spawn(async move {
                    let mut random = Random::new(SEED * 1_000 + task + 1);
                    while !oracle.stopped() {
                        // Errors are in the books.
                        let _ = match task % 2 {
                            0 => oracle.write(&pool).await,
                            _ if random.below(20) == 0 => oracle.fail(&pool).await,
                            _ => oracle.echo(&pool, 3_000, &mut random).await,
                        };
                    }
                })
            })
            .collect();
        Self { other, pool, proxy, name, oracle, tasks, began: Instant::now() }
    }

    /// Works until enough has gone wrong and enough has been answered.
    async fn until(&self, enough: impl Fn(&Proxy) -> bool) {
        let began = Instant::now();
        while !enough(&self.proxy) || self.oracle.counts().answered < ANSWERS {
            let counts = || format!("{} events, {:#?}", self.proxy.fired(), self.oracle.counts());
            assert!(began.elapsed() < LIMIT * scale() as u32, "seed {SEED}: {}", counts());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Lets the network heal, and checks that nobody waits or panics, and that nothing is left in the pool. The books.
    async fn end(self) -> Counts {
        let Self { other, pool, proxy, name, oracle, tasks, began } = self;
        proxy.heal();
        oracle.stop();
        for task in tasks {
            let ended = tokio::time::timeout(LIMIT, task).await.expect("nobody waits for ever");
            ended.expect("nobody panics");
        }
        rest(&pool, &other, &name).await;
        let counts = oracle.settle(&other).await;
        println!(
            "{name} ({:.1?}): {} events, {} cuts, {counts:?}",
            began.elapsed(),
            proxy.fired(),
            proxy.cuts()
        );
        other.close().await;
        counts
    }

    /// The same, and the books must be right.
    async fn settle(self) {
        self.end().await.assert_true(SEED);
    }
}

/// The pool has healed, nothing is left in it, and the server has none of its connections once it is closed.
async fn rest(pool: &Pool, other: &Pool, name: &str) {
    idle(pool).await;
    eventually("the pool has healed", || async { pool.execute("SELECT 1", ()).await.is_ok() }).await;
    pool.close().await;
    // The server ends them when it has done what had reached it.
    eventually("the server has none of its connections", || async { connections(other, name).await == 0 })
        .await;
}

/// What a network may do to a call: it is not known whether it ran, or it takes too long, or it was not sent because
/// what a statement is was asked in vain on several connections.
fn by_the_network(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Io | ErrorKind::Timeout)
        && matches!(error.outcome(), Outcome::NotSent | Outcome::Unknown)
}

/// The same on leases, of which more than the connection is lost.
fn by_the_network_on_leases(error: &Error) -> bool {
    by_the_network(error) || (error.kind(), error.outcome()) == (ErrorKind::Closed, Outcome::NotSent)
}

fn nothing(_: &Error) -> bool {
    false
}

fn anything(_: &Error) -> bool {
    true
}

fn patient(builder: PoolBuilder) -> PoolBuilder {
    builder
}

/// Connections that say nothing are found out soon.
fn impatient(builder: PoolBuilder) -> PoolBuilder {
    let builder = builder.query_timeout(Duration::from_secs(1)).connect_timeout(Duration::from_secs(1));
    builder.stall_timeout(Duration::from_millis(100))
}

/// Faults that nobody may notice but by the time that they take.
async fn nobody_notices(topic: &str, rules: Vec<Rule>) {
    let load = Load::start(topic, Faults { seed: SEED, rules }, nothing, patient).await;
    load.until(|proxy| proxy.fired() >= TIMES * scale() as u64).await;
    load.settle().await;
}

/// Faults that cost connections.
async fn connections_are_lost(topic: &str, rules: Vec<Rule>) {
    let load = Load::start(topic, Faults { seed: SEED, rules }, by_the_network, impatient).await;
    load.until(|proxy| proxy.cuts() >= TIMES * scale() as u64).await;
    load.settle().await;
}

/// The same at any byte of a message, either way.
async fn anywhere(topic: &str, reaction: Reaction) {
    let rules = [Rule::up(reaction), Rule::down(reaction)];
    connections_are_lost(topic, rules.map(|rule| rule.one_in(400).anywhere()).to_vec()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn delays_cost_nothing_but_time() {
    let delay = Reaction::Delay { least: Duration::from_millis(1), jitter: Duration::from_millis(9) };
    nobody_notices("delays", vec![Rule::up(delay).one_in(50), Rule::down(delay).one_in(50).anywhere()]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn little_bandwidth_costs_nothing_but_time() {
    let slowly = Reaction::Bandwidth(200_000);
    nobody_notices("bandwidth", vec![Rule::up(slowly).one_in(20), Rule::down(slowly).one_in(20)]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_in_single_bytes_are_read_as_ever() {
    nobody_notices(
        "split",
        vec![Rule::up(Reaction::Split(1)).one_in(3), Rule::down(Reaction::Split(1)).one_in(3)],
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stalls_cost_nothing_but_time() {
    let stall = Reaction::Stall(Duration::from_millis(200));
    let rules = [Rule::up(stall), Rule::down(stall)];
    nobody_notices("stall", rules.map(|rule| rule.one_in(1_000).anywhere()).to_vec()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_end_in_order_anywhere_lose_nothing() {
    anywhere("fin", Reaction::Fin).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_are_reset_anywhere_lose_nothing() {
    anywhere("reset", Reaction::Reset).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_end_one_way_lose_nothing() {
    anywhere("half_close", Reaction::HalfClose).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_swallow_everything_are_given_up_and_lose_nothing() {
    anywhere("blackhole", Reaction::Blackhole).await;
}

/// Connections are reset now and then, and half of the new ones fare badly.
async fn new_ones(topic: &str, bad: Rule) {
    let reset = Rule::down(Reaction::Reset).kinds(&[Kind::Complete]).one_in(300);
    connections_are_lost(topic, vec![reset, bad.one_in(2)]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_are_taken_and_then_say_nothing_are_given_up() {
    new_ones("silence", Rule::connection(Reaction::Silence)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_are_refused_are_made_later() {
    new_ones("refuse", Rule::connection(Reaction::Refuse)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn logins_that_break_anywhere_are_made_anew() {
    for (number, reaction) in [Reaction::Reset, Reaction::Fin, Reaction::Blackhole].into_iter().enumerate() {
        let login = |rule: Rule| rule.offset_between(1, 150);
        let rule = if number % 2 == 0 { Rule::down(reaction) } else { Rule::up(reaction) };
        new_ones("login", login(rule)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_port_that_opens_and_closes_loses_nothing() {
    let load = Load::start("port", Faults::NONE, by_the_network, impatient).await;
    for _ in 0..5 * scale() {
        let before = load.oracle.counts().answered;
        load.until(|_| load.oracle.counts().answered > before + 200).await;
        load.proxy.close().await;
        load.proxy.open().await;
    }
    load.settle().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bits_turned_in_the_framing_end_in_errors_and_neither_hang_nor_panic() {
    // Type and length with PostgreSQL, length and sequence with MySQL.
    let rules = (0..4).flat_map(|byte| {
        [Rule::up(Reaction::Flip), Rule::down(Reaction::Flip)].map(|rule| rule.one_in(500).at_byte(byte))
    });
    let faults = Faults { seed: SEED, rules: rules.collect() };
    let load = Load::start("flip", faults, anything, impatient).await;
    load.until(|proxy| proxy.fired() >= TIMES * scale() as u64).await;
    let counts = load.end().await;
    assert!(!counts.failed.is_empty(), "seed {SEED}: somebody noticed");
}

/// Both that nobody else can see it, and that the books would show an answer that is not its asker's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bit_turned_in_a_value_is_a_value_and_only_the_books_show_it() {
    // In the text that is given back, behind what both protocols put before it.
    let rules = vec![Rule::down(Reaction::Flip).kinds(&[Kind::Row]).at_byte(16).one_in(20)];
    let load = Load::start("value", Faults { seed: SEED, rules }, anything, patient).await;
    load.until(|proxy| proxy.fired() >= TIMES * scale() as u64).await;
    let counts = load.end().await;
    // Some are no UTF-8 any more, which is an error of decoding.
    assert!(counts.mixed_up > 0 && counts.lost + counts.doubled + counts.undead == 0, "{counts:?}");
    assert!(counts.failed.keys().all(|kind| kind == "Decode Completed"), "{counts:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_acknowledged_is_there_once_whatever_byte_the_network_breaks_at() {
    let load = Load::start("ledger", Faults::cuts(SEED, 20_000, 20), by_the_network, patient).await;
    load.until(|proxy| proxy.cuts() >= CUTS * scale() as u64).await;
    let failed = load.oracle.counts().failed;
    load.settle().await;
    assert!(failed.contains_key("Io Unknown"), "seed {SEED}: {failed:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transactions_are_whole_whatever_byte_the_network_breaks_at() {
    let (other, name, seed) = (pool().await, own_name("accounts"), 2);
    let (proxy, config) = through_proxy(&name, Faults::cuts(seed, 6_000, 20)).await;
    let pool = Pool::builder(config).query_timeout(Duration::from_secs(20)).connect_lazy().expect("a pool");
    let oracle = Arc::new(Oracle::new(&other, by_the_network_on_leases).await);
    let transfers = Arc::new(Transfers::new(&other).await);
    let stop = Arc::new(AtomicBool::new(false));
    let tasks: Vec<_> = (0..TASKS)
        .map(|task| {
            let (pool, oracle, transfers) = (pool.clone(), Arc::clone(&oracle), Arc::clone(&transfers));
            let stop = Arc::clone(&stop);
            tokio::spawn(async move {
                let mut random = Random::new(seed * 1_000 + task + 1);
                while !stop.load(Ordering::Relaxed) {
                    let _ = transfers.transfer(&oracle, &pool, &mut random).await;
                }
            })
        })
        .collect();
    let began = Instant::now();
    while proxy.cuts() < CUTS * scale() as u64 {
        assert!(began.elapsed() < LIMIT * scale() as u32, "nobody waits for ever");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    proxy.heal();
    stop.store(true, Ordering::Relaxed);
    for task in tasks {
        tokio::time::timeout(LIMIT, task).await.expect("nobody waits for ever").expect("no task fails");
    }
    rest(&pool, &other, &name).await;
    let told = transfers.counts();
    let (sum, wanted, wrong) = transfers.settle(&other).await;
    println!("{} cuts: {told:?}", proxy.cuts());
    assert!(wrong.is_empty(), "seed {seed}: {wrong:?}");
    assert_eq!(sum, wanted, "seed {seed}");
    oracle.settle(&other).await.assert_true(seed);
    assert!(told.contains_key(&Known::Done) && told.contains_key(&Known::NotDone), "{told:?}");
    other.close().await;
}
