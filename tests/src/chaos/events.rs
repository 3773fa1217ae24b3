//! What goes wrong: one event after the other, in an order that a seed shuffles.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use test_servers::{Origin, Stop};

use super::super::disturb;
use super::super::{Connection, Error};
use super::Chaos;
use crate::Random;
use crate::proxy::{Faults, Kind, Reaction, Rule};

/// How long a server may take to be back.
const BACK: Duration = Duration::from_secs(60);

/// More than a pool has.
const ALL_CONNECTIONS: u64 = 1_000;

/// Something that goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Event {
    /// The server is stopped in order and started again.
    Restart,
    /// The same as in a crash.
    Crash,
    /// One process of the server is killed: PostgreSQL ends all its connections and recovers.
    KillProcess,
    /// The server's processes are stopped for a while (SIGSTOP).
    Freeze,
    /// Some connections are ended by an administrator.
    Terminate,
    /// All of them.
    TerminateAll,
    /// Whatever runs is cancelled, again and again.
    Cancel,
    /// The server takes no writes for a while.
    ReadOnly,
    /// The server takes few connections for a while.
    FewConnections,
    /// The server ends connections on which nothing happens, and nothing does.
    IdleOut,
    /// The port is closed for a while.
    Port,
    /// Futures are dropped as fast as can be.
    DropStorm,
    /// The network is slow: it delays, splits, throttles, stalls.
    SlowNetwork,
    /// Connections break.
    BreakingNetwork,
    /// They swallow what they are given.
    SilentNetwork,
    /// New connections fare badly.
    BadLogins,
}

use Event::{
    BadLogins, BreakingNetwork, Cancel, Crash, DropStorm, FewConnections, Freeze, IdleOut, KillProcess, Port,
    ReadOnly, Restart, SilentNetwork, SlowNetwork, Terminate, TerminateAll,
};

/// All of them.
const ALL: [Event; 16] = [
    Restart,
    Crash,
    KillProcess,
    Freeze,
    Terminate,
    TerminateAll,
    Cancel,
    ReadOnly,
    FewConnections,
    IdleOut,
    Port,
    DropStorm,
    SlowNetwork,
    BreakingNetwork,
    SilentNetwork,
    BadLogins,
];

impl Event {
    /// Those that can be had with this server, shuffled.
    pub(super) fn deck(origin: Origin, random: &mut Random) -> Vec<Self> {
        let can = |event: &Self| match event {
            Restart | Crash | Freeze => origin == Origin::Private,
            KillProcess => origin == Origin::Private && disturb::PROCESSES,
            _ => true,
        };
        let mut deck: Vec<Self> = ALL.into_iter().filter(can).collect();
        for last in (1..deck.len()).rev() {
            deck.swap(last, random.below(last as u64 + 1) as usize);
        }
        deck
    }

    /// Whether nobody can be answered meanwhile.
    pub(super) fn is_outage(self) -> bool {
        matches!(self, Restart | Crash | KillProcess | Freeze | IdleOut | Port)
    }
}

impl Chaos {
    /// Lets it happen, and over. The moment from which on the server can be used again.
    pub(super) async fn happen(&mut self, event: Event) -> Instant {
        let ms = |least, more, random: &mut Random| Duration::from_millis(least + random.below(more));
        match event {
            Restart => self.restart(Stop::Fast).await,
            Crash => self.restart(Stop::Immediate).await,
            KillProcess => self.kill_process().await,
            Freeze => {
                let time = ms(500, 1_500, &mut self.random);
                self.freeze(time).await;
            }
            Terminate => {
                let some = 1 + self.random.below(4);
                self.to_connections(some, disturb::terminate).await;
            }
            TerminateAll => self.to_connections(ALL_CONNECTIONS, disturb::terminate).await,
            Cancel => {
                let until = Instant::now() + Duration::from_millis(500);
                while Instant::now() < until {
                    self.to_connections(ALL_CONNECTIONS, disturb::cancel).await;
                }
            }
            ReadOnly => {
                self.administer(disturb::READ_ONLY).await;
                tokio::time::sleep(ms(500, 1_500, &mut self.random)).await;
                self.administer(disturb::WRITABLE).await;
            }
            FewConnections => {
                self.administer_and_end(&disturb::few_connections(&self.user, 4)).await;
                tokio::time::sleep(ms(500, 1_000, &mut self.random)).await;
                self.administer(&disturb::many_connections(&self.user)).await;
            }
            IdleOut => {
                // It holds for new connections.
                self.administer_and_end(&disturb::idle_out(&self.user)).await;
                self.load.pause(true);
                tokio::time::sleep(Duration::from_millis(1_500)).await;
                self.load.pause(false);
                self.administer_and_end(&disturb::never_idle_out(&self.user)).await;
            }
            Port => {
                self.proxy.close().await;
                let away = ms(300, 2_000, &mut self.random);
                self.outage(away).await;
                self.proxy.open().await;
                return Instant::now();
            }
            DropStorm => {
                self.load.storm.store(true, Ordering::Relaxed);
                tokio::time::sleep(ms(500, 500, &mut self.random)).await;
                self.load.storm.store(false, Ordering::Relaxed);
            }
            SlowNetwork | BreakingNetwork | SilentNetwork | BadLogins => {
                let rules = self.network(event);
                let seed = self.random.below(u64::MAX);
                self.proxy.set(Faults { seed, rules });
                tokio::time::sleep(ms(700, 800, &mut self.random)).await;
                self.proxy.heal();
            }
        }
        self.until_server_answers().await
    }

    /// For a third of the events the network is bad besides.
    pub(super) fn worse_network(&mut self, event: Event) -> bool {
        let networks = [SlowNetwork, BreakingNetwork, SilentNetwork, BadLogins];
        let worse = !networks.contains(&event) && self.random.below(3) == 0;
        if worse {
            let network = networks[self.random.below(networks.len() as u64) as usize];
            let rules = self.network(network);
            self.proxy.set(Faults { seed: self.random.below(u64::MAX), rules });
        }
        worse
    }

    fn network(&mut self, event: Event) -> Vec<Rule> {
        let ms = Duration::from_millis;
        let both = |reaction, one_in| {
            [Rule::up(reaction), Rule::down(reaction)].map(|rule| rule.one_in(one_in).anywhere()).to_vec()
        };
        let reset = Rule::down(Reaction::Reset).kinds(&[Kind::Complete]).one_in(300);
        let pick = self.random.below(4);
        match (event, pick) {
            (SlowNetwork, 0) => both(Reaction::Delay { least: ms(1), jitter: ms(20) }, 20),
            (SlowNetwork, 1) => both(Reaction::Split(1), 3),
            (SlowNetwork, 2) => both(Reaction::Bandwidth(200_000), 20),
            (SlowNetwork, _) => both(Reaction::Stall(ms(200)), 1_000),
            (BreakingNetwork, 0) => both(Reaction::Fin, 300),
            (BreakingNetwork, 1) => both(Reaction::HalfClose, 300),
            (BreakingNetwork, _) => both(Reaction::Reset, 300),
            (SilentNetwork, _) => both(Reaction::Blackhole, 2_000),
            (_, 0) => vec![reset, Rule::connection(Reaction::Silence).one_in(2)],
            (_, 1) => vec![reset, Rule::connection(Reaction::Refuse).one_in(2)],
            (_, 2) => vec![reset, Rule::down(Reaction::Reset).offset_between(1, 150).one_in(2)],
            (_, _) => vec![reset, Rule::up(Reaction::Blackhole).offset_between(1, 150).one_in(2)],
        }
    }

    /// Lets time pass in which the server is away, and counts who knocks.
    async fn outage(&mut self, time: Duration) {
        let (before, began) = (self.attempts(), Instant::now());
        tokio::time::sleep(time).await;
        self.report.outages.push((self.attempts() - before, began.elapsed()));
    }

    async fn restart(&mut self, how: Stop) {
        let (before, began) = (self.attempts(), Instant::now());
        let (server, away) = (self.server.clone(), Duration::from_millis(self.random.below(1_000)));
        let stopped = tokio::task::spawn_blocking(move || server.stop(how)).await.expect("no panic");
        stopped.expect("the server stops");
        tokio::time::sleep(away).await;
        let server = self.server.clone();
        let resumed = tokio::task::spawn_blocking(move || server.resume()).await.expect("no panic");
        self.process = Some(resumed.expect("the server starts"));
        self.until_server_answers().await;
        let knocks = (self.attempts() - before, began.elapsed());
        self.report.outages.push(knocks);
    }

    async fn kill_process(&mut self) {
        let asked = async {
            let connection = self.administrator().await?;
            let one: (i64,) = connection.query_one(disturb::numbers(&self.user, 1), ()).await?;
            connection.close().await;
            Ok::<_, Error>(one)
        };
        // None if the pool has no connection at the moment.
        let Ok((number,)) = asked.await else { return };
        signal(number as u32, Signal::KILL);
        // The first process notices, and ends the others; until then new connections are still taken.
        self.until_all_are_gone().await;
    }

    async fn freeze(&mut self, time: Duration) {
        let Some(process) = self.process else { return };
        let _frozen = Frozen::new(process);
        tokio::time::sleep(time).await;
    }

    /// Waits until a server that is on its way down or up answers an administrator.
    async fn until_server_answers(&self) -> Instant {
        let deadline = Instant::now() + BACK;
        loop {
            match self.administrator().await {
                Ok(connection) => {
                    let now = Instant::now();
                    connection.close().await;
                    return now;
                }
                Err(error) => assert!(Instant::now() < deadline, "the server is not back: {error}"),
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Waits until the pool has lost a connection.
    async fn until_all_are_gone(&self) {
        let before = super::super::reconnects(&self.load.pool);
        let deadline = Instant::now() + Duration::from_secs(5);
        while super::super::reconnects(&self.load.pool) == before && Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    async fn administrator(&self) -> Result<Connection, Error> {
        Connection::connect(self.admin.clone()).await
    }

    /// Has an administrator run statements; again if that was cut short.
    async fn administer(&self, statements: &[impl AsRef<str>]) {
        self.as_administrator(statements, 0, disturb::terminate).await;
    }

    /// The same, and ends all connections of the pool.
    async fn administer_and_end(&self, statements: &[impl AsRef<str>]) {
        self.as_administrator(statements, ALL_CONNECTIONS, disturb::terminate).await;
    }

    /// Does something to so many connections of the pool.
    async fn to_connections(&self, limit: u64, what: fn(i64) -> String) {
        self.as_administrator(&[""; 0], limit, what).await;
    }

    async fn as_administrator(&self, statements: &[impl AsRef<str>], limit: u64, what: fn(i64) -> String) {
        let deadline = Instant::now() + BACK;
        while let Err(error) = self.try_as_administrator(statements, limit, what).await {
            assert!(Instant::now() < deadline, "no administrator can do it: {error}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// All on one connection: there may be no room for another.
    async fn try_as_administrator(
        &self,
        statements: &[impl AsRef<str>],
        limit: u64,
        what: fn(i64) -> String,
    ) -> Result<(), Error> {
        let connection = self.administrator().await?;
        for statement in statements {
            connection.execute(statement.as_ref(), ()).await?;
        }
        let numbers: Vec<(i64,)> = connection.query(disturb::numbers(&self.user, limit), ()).await?;
        for (number,) in numbers {
            // It may have gone already.
            let _ = connection.execute(what(number), ()).await;
        }
        connection.close().await;
        Ok(())
    }
}

/// Processes that are stopped until this is dropped.
struct Frozen {
    processes: Vec<u32>,
}

impl Frozen {
    fn new(first: u32) -> Self {
        // The first process first: then there are no new ones.
        signal(first, Signal::STOP);
        let mut processes = children(first);
        for child in &processes {
            signal(*child, Signal::STOP);
        }
        processes.push(first);
        Self { processes }
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        for process in &self.processes {
            signal(*process, Signal::CONT);
        }
    }
}

fn signal(process: u32, signal: Signal) {
    if let Some(pid) = Pid::from_raw(process.cast_signed()) {
        // It may have gone already.
        let _ = kill_process(pid, signal);
    }
}

/// The processes that a process has started.
fn children(parent: u32) -> Vec<u32> {
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let is_child = |number: &u32| {
        // The name stands in parentheses and may hold anything; state and parent follow it.
        let stat = std::fs::read_to_string(format!("/proc/{number}/stat")).unwrap_or_default();
        let behind = stat.rsplit(')').next().unwrap_or_default();
        behind.split_whitespace().nth(1).is_some_and(|field| field == parent.to_string())
    };
    numbers.filter(is_child).collect()
}
