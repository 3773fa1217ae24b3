//! One run from one seed, and many of them on all cores.

use std::cell::RefCell;
use std::panic;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Once, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;
use pg_pipeline::PipeState;
use tokio::runtime::{Builder, Handle};
use tokio::time::{Instant, sleep, timeout};

use crate::account::Account;
use crate::client::Database;
use crate::dice::Dice;
use crate::log::{Log, Seen};
use crate::reports;
use crate::server::{Server, Temper};
use crate::watch::check_reports;
use crate::weather::{Failover, Features, Network, Scope, Settings, Weather, any_temper, widened_temper};
use crate::world::World;

/// How a run went.
#[derive(Debug, Clone)]
pub struct Report {
    /// Over all events in their order.
    pub hash: u64,
    /// Their number.
    pub events: u64,
    /// Calls that were answered well.
    pub fine: u64,
    /// What must never happen, and did.
    pub violations: Vec<String>,
    /// How often each thing happened.
    pub seen: Seen,
}

/// No run takes longer, in its own time.
const LONGEST: Duration = Duration::from_secs(3600);
/// When the weather is fine again a pool must serve within this, whatever its connections went through.
const HEALS_WITHIN: Duration = Duration::from_secs(60);

thread_local! {
    static PANICS: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// Panics are taken down by the thread's run: the engine survives those of a pump, and here there must be none.
fn take_down_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let usual = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            PANICS.with_borrow_mut(|panics| panics.push(info.to_string()));
            if std::env::var_os("SEED").is_some() {
                usual(info);
            }
        }));
    });
}

/// Runs the world of a seed.
pub fn run<D: Database>(scope: Scope, seed: u64, trace: bool) -> Report {
    in_virtual_time(trace, |log| world::<D>(scope, seed, log))
}

/// Runs something with a log on a runtime of its own, whose time passes only when nothing else can be done.
pub fn in_virtual_time<F>(trace: bool, body: impl FnOnce(Arc<Log>) -> F) -> Report
where
    F: Future<Output = u64>,
{
    take_down_panics();
    PANICS.with_borrow_mut(Vec::clear);
    reports::listen();
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().expect("a runtime");
    let (log, fine) = runtime.block_on(async {
        let log = Arc::new(Log::new(trace));
        let fine = if let Ok(fine) = timeout(LONGEST, body(Arc::clone(&log))).await {
            fine
        } else {
            log.violation("the run does not end");
            0
        };
        (log, fine)
    });
    drop(runtime);
    let (hash, events, mut violations, seen) = log.finish();
    violations.extend(PANICS.take());
    Report { hash, events, fine, violations, seen }
}

async fn world<D: Database>(scope: Scope, seed: u64, log: Arc<Log>) -> u64 {
    let mut dice = Dice::new(seed, 1);
    let settings = Settings::any(seed, &mut dice);
    let weather = Weather::any(&mut dice);
    let temper = any_temper(&mut dice);
    // What the wide world throws leaves the plain one's numbers as they are.
    let mut wide = Dice::new(seed, 4);
    let (features, settings, weather, temper) = match scope {
        Scope::Plain => (Features::PLAIN, settings, weather, temper),
        Scope::Wide => {
            let features = Features::any(&mut wide);
            let weather = if features.fine { Weather::CALM } else { weather };
            let temper = if features.fine { Temper::default() } else { temper };
            let settings = settings.widened(features, &mut wide);
            (features, settings, weather, widened_temper(temper, features, &mut wide))
        }
    };
    log.remark(|| format!("{}: {settings:?} {weather:?} {temper:?} {features:?}", D::NAME));
    let server = Server::new(&log, Dice::new(seed, 2), temper);
    let network = Network::new(&server, seed, weather);
    let account = Account::new(&log);
    let pool = D::start(&network, &settings);
    let world = World::<D> {
        pool,
        settings: settings.clone(),
        features,
        account: Arc::clone(&account),
        server: Arc::clone(&server),
        holders: Arc::default(),
        log: Arc::clone(&log),
    };
    let onlooker = (scope == Scope::Wide).then(|| tokio::spawn(world.clone().look_on()));
    let fails_over = (features.failover != Failover::None)
        .then(|| tokio::spawn(fail_over(features, wide, Arc::clone(&server), Arc::clone(&network))));

    let clients = 1 + dice.below(5);
    let things = 1 + dice.below(6);
    let tasks: Vec<_> = (0..clients)
        .map(|client| tokio::spawn(world.clone().client(Dice::new(seed, 100 + client), things)))
        .collect();
    let closes_early = dice.happens(100);
    if closes_early {
        sleep(Duration::from_millis(dice.below(500))).await;
        let limit = Duration::from_millis(dice.below(300));
        log.note("closes", [limit.as_millis() as i64, 0, 0]);
        close(&world, limit).await;
    }
    for task in join_all(tasks).await {
        if task.is_err() {
            log.violation("a client panicked");
        }
    }
    for task in fails_over.into_iter().chain(onlooker) {
        task.abort();
    }
    if features.failover == Failover::Name {
        network.lead_to(1);
    }
    server.calm_down();
    network.clear_up();
    check_reports(&log, &world.settings);
    if !closes_early {
        heal(&world).await;
        if features.failover != Failover::None {
            write_again(&world).await;
        }
    }
    rest(&world, closes_early).await;
    if dice.happens(500) {
        close(&world, Duration::from_secs(10)).await;
    }
    drop(world);
    no_task_is_left(&log).await;
    account.settle(&server);
    let nothing_is_in_the_way = weather.is_fine()
        && temper.is_even()
        && features.failover == Failover::None
        && !closes_early
        && settings.connect_timeout >= Duration::from_millis(500);
    if nothing_is_in_the_way {
        account.settle_in_time(settings.query_timeout);
    }
    account.fine()
}

/// The first machine takes no writes any more, and its name leads to the other one; or it goes and comes back.
async fn fail_over(features: Features, mut dice: Dice, server: Arc<Server>, network: Arc<Network>) {
    let mut some_time = |most| sleep(Duration::from_millis(dice.below(most)));
    match features.failover {
        Failover::None => {}
        Failover::Name => {
            some_time(800).await;
            server.turn_read_only(0);
            some_time(200).await;
            network.lead_to(1);
        }
        Failover::Host => {
            some_time(800).await;
            network.set_away(0, true);
            some_time(2000).await;
            network.set_away(0, false);
        }
    }
}

/// Whatever became of the machines, a pool finds one that takes writes, with all of its connections.
async fn write_again<D: Database>(world: &World<D>) {
    let began = Instant::now();
    let mut good = 0;
    while good < 2 * world.settings.connections {
        if world.write().await {
            good += 1;
        } else {
            good = 0;
            sleep(Duration::from_millis(200)).await;
        }
        if began.elapsed() > HEALS_WITHIN {
            world.log.violation("does not write again");
            return;
        }
    }
    world.log.note("writes again", [0; 3]);
}

/// Closing takes no longer than its limit, with what a farewell may take.
async fn close<D: Database>(world: &World<D>, limit: Duration) {
    let began = Instant::now();
    world.server.awaited_by_nobody_from(began + limit);
    D::close(&world.pool, limit).await;
    if began.elapsed() > limit + Duration::from_millis(1100) {
        world.log.violation(format!("closing took {} ms", began.elapsed().as_millis()));
    }
    let stats = D::stats(&world.pool);
    if stats.pipes.iter().any(|pipe| pipe.state != PipeState::Closed) {
        world.log.violation(format!("closed, and not all of it: {stats:?}"));
    }
}

/// Whatever happened, a pool whose server is well again serves.
pub async fn heal<D: Database>(world: &World<D>) {
    let began = Instant::now();
    let mut last = String::new();
    let mut good = 0;
    while good < 2 * world.settings.connections {
        match D::ping(&world.pool).await {
            Ok(()) => good += 1,
            Err(failure) => {
                good = 0;
                last = failure.words;
                sleep(Duration::from_millis(20)).await;
            }
        }
        if began.elapsed() > HEALS_WITHIN {
            world.log.violation(format!("does not serve again: {last}"));
            return;
        }
    }
    world.log.note("healed", [0; 3]);
}

/// Nothing is left of what was asked.
pub async fn rest<D: Database>(world: &World<D>, closed: bool) {
    let began = Instant::now();
    loop {
        let stats = D::stats(&world.pool);
        let idle = stats.in_flight() == 0
            && stats.waiting == 0
            && stats.leased == 0
            && stats.waiting_for_lease == 0
            && stats.answer_bytes == 0
            && stats.pipes.iter().all(|pipe| {
                pipe.queued_bytes == 0
                    && pipe.state == if closed { PipeState::Closed } else { PipeState::Shared }
            });
        if idle {
            return;
        }
        if began.elapsed() > HEALS_WITHIN {
            world.log.violation(format!("comes to no rest: {stats:?}"));
            return;
        }
        sleep(Duration::from_millis(10)).await;
    }
}

/// The pool, its pipes and the server's connections have ended.
pub async fn no_task_is_left(log: &Log) {
    let began = Instant::now();
    while Handle::current().metrics().num_alive_tasks() > 0 {
        if began.elapsed() > HEALS_WITHIN {
            let left = Handle::current().metrics().num_alive_tasks();
            log.violation(format!("{left} tasks are left"));
            return;
        }
        sleep(Duration::from_millis(10)).await;
    }
}

/// The sum of many runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sum {
    /// Of all hashes, whatever their order.
    pub hash: u64,
    /// Of all events.
    pub events: u64,
    /// Of all calls that were answered well.
    pub fine: u64,
    /// Of runs.
    pub runs: u64,
}

/// A seed that broke a rule, and which.
pub type Broken = (&'static str, u64, Vec<String>);

/// Runs seeds on all cores; a few of those that break a rule come back.
pub fn run_all(
    seeds: std::ops::Range<u64>,
    run: impl Fn(u64) -> Vec<(&'static str, Report)> + Sync,
) -> (Sum, Vec<Broken>) {
    const ENOUGH: usize = 20;
    let next = AtomicU64::new(seeds.start);
    let found = Mutex::new((Sum::default(), Vec::new()));
    let watch = Watch::start();
    std::thread::scope(|scope| {
        let cores = std::thread::available_parallelism().map_or(2, usize::from);
        for _ in 0..cores {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end {
                        return;
                    }
                    let watched = watch.begin(seed);
                    let reports = run(seed);
                    drop(watched);
                    let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
                    for (name, report) in reports {
                        found.0.hash = found.0.hash.wrapping_add(report.hash);
                        found.0.events += report.events;
                        found.0.fine += report.fine;
                        found.0.runs += 1;
                        if !report.violations.is_empty() {
                            found.1.push((name, seed, report.violations));
                        }
                    }
                    if found.1.len() >= ENOUGH {
                        return;
                    }
                }
            });
        }
    });
    found.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// Ends the process, with the seed's name, when a run stands still without giving anybody else a turn.
struct Watch(Arc<Mutex<Vec<(u64, std::time::Instant)>>>);

impl Watch {
    const LIMIT: Duration = Duration::from_secs(120);

    fn start() -> Self {
        let running: Arc<Mutex<Vec<(u64, std::time::Instant)>>> = Arc::default();
        let weak = Arc::downgrade(&running);
        std::thread::spawn(move || {
            while let Some(running) = weak.upgrade() {
                let stuck = running
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .iter()
                    .find(|(_, since)| since.elapsed() > Self::LIMIT)
                    .copied();
                if let Some((seed, _)) = stuck {
                    eprintln!("seed {seed} stands still");
                    std::process::abort();
                }
                drop(running);
                std::thread::sleep(Duration::from_millis(200));
            }
        });
        Self(running)
    }

    fn begin(&self, seed: u64) -> impl Drop + use<> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push((seed, std::time::Instant::now()));
        Watched { running: Arc::clone(&self.0), seed }
    }
}

struct Watched {
    running: Arc<Mutex<Vec<(u64, std::time::Instant)>>>,
    seed: u64,
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.running.lock().unwrap_or_else(PoisonError::into_inner).retain(|(seed, _)| *seed != self.seed);
    }
}
