//! What a seed decides beforehand: the pool's settings, how its network and its server behave; and the network itself.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::client::Database;
use crate::dice::Dice;
use crate::link::{Break, Direction, End, Fate, Grain, Link};
use crate::log::Log;
use crate::server::{NODES, Server, Temper};

/// The pool's settings.
#[derive(Debug, Clone)]
#[expect(missing_docs, reason = "as the options of the pool")]
pub struct Settings {
    pub seed: u64,
    pub connections: usize,
    pub max_in_flight: usize,
    pub max_answer_bytes: usize,
    pub answer_budget: usize,
    pub queue_bytes: usize,
    pub connect_timeout: Duration,
    pub query_timeout: Duration,
    pub acquire_timeout: Duration,
    pub statement_cache: usize,
    pub max_lifetime: Duration,
    pub stall_timeout: Duration,
    pub lease_report_after: Duration,
    pub hosts: &'static [&'static str],
    /// A statement whose time is up is stopped.
    pub cancels: bool,
}

/// The name that leads to whichever machine takes writes.
const NAME: &[&str] = &["simulated"];
/// A name for each machine.
const NAMES: &[&str] = &["first", "second"];

impl Settings {
    /// Large limits and long times.
    pub fn roomy(seed: u64) -> Self {
        Self {
            seed,
            connections: 3,
            max_in_flight: 64,
            max_answer_bytes: 1 << 20,
            answer_budget: 1 << 20,
            queue_bytes: 1 << 20,
            connect_timeout: Duration::from_secs(1),
            query_timeout: Duration::from_secs(5),
            acquire_timeout: Duration::from_secs(5),
            statement_cache: 64,
            max_lifetime: Duration::ZERO,
            stall_timeout: Duration::from_secs(10),
            lease_report_after: Duration::from_secs(30),
            hosts: NAME,
            cancels: false,
        }
    }

    /// Any.
    pub fn any(seed: u64, dice: &mut Dice) -> Self {
        let millis = |dice: &mut Dice, choices: &[u64]| Duration::from_millis(dice.pick(choices));
        Self {
            seed,
            connections: 1 + dice.below(4) as usize,
            max_in_flight: dice.pick(&[1, 2, 3, 8, 64]),
            max_answer_bytes: dice.pick(&[300, 2000, 1 << 20]),
            answer_budget: dice.pick(&[600, 4000, 1 << 20]),
            queue_bytes: dice.pick(&[1, 1024, 1 << 20]),
            connect_timeout: millis(dice, &[60, 500, 2000]),
            query_timeout: millis(dice, &[40, 300, 2000, 5000]),
            acquire_timeout: millis(dice, &[30, 300, 3000]),
            statement_cache: dice.pick(&[0, 1, 2, 64]),
            max_lifetime: millis(dice, &[0, 0, 1000]),
            stall_timeout: Duration::from_secs(10),
            lease_report_after: Duration::from_secs(30),
            hosts: NAME,
            cancels: false,
        }
    }

    /// The same in the wide world.
    #[must_use]
    pub fn widened(self, features: Features, dice: &mut Dice) -> Self {
        let millis = |dice: &mut Dice, choices: &[u64]| Duration::from_millis(dice.pick(choices));
        Self {
            stall_timeout: millis(dice, &[1, 100, 1000, 10_000]),
            lease_report_after: millis(dice, &[0, 10, 100, 30_000]),
            hosts: if features.failover == Failover::Host { NAMES } else { NAME },
            cancels: features.cancels,
            query_timeout: if features.fine { Duration::from_secs(8) } else { self.query_timeout },
            ..self
        }
    }
}

/// Which world it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// Queries, batches, transactions and sessions, on one server.
    Plain,
    /// All of that, and [`Features`].
    Wide,
}

impl Scope {
    /// `plain` or, if nothing else is said, `wide`.
    pub fn named(name: Option<&str>) -> Self {
        match name {
            Some("plain") => Self::Plain,
            None | Some("wide") => Self::Wide,
            Some(other) => panic!("there is no world {other}"),
        }
    }
}

/// What a wide world does beside the plain one.
#[derive(Debug, Clone, Copy)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts, of which any combination occurs")]
pub struct Features {
    /// Transactions have savepoints.
    pub savepoints: bool,
    /// Transactions are in each other's way, and are run again.
    pub retries: bool,
    /// Some statements are known to be slow.
    pub classes: bool,
    /// Some requests are large.
    pub bulk: bool,
    /// What nobody waits for any more is stopped.
    pub cancels: bool,
    /// Nothing is in the way of anything, and there is time for all of it.
    pub fine: bool,
    /// What becomes of the first machine.
    pub failover: Failover,
}

/// What becomes of the first machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failover {
    /// Nothing.
    None,
    /// It takes no writes any more, and its name leads to the other one.
    Name,
    /// It goes and comes back; clients know the names of both.
    Host,
}

impl Features {
    /// None of them.
    pub const PLAIN: Self = Self {
        savepoints: false,
        retries: false,
        classes: false,
        bulk: false,
        cancels: false,
        fine: false,
        failover: Failover::None,
    };

    /// Any; those that `WITHOUT=savepoints,retries,classes,bulk,cancels,failover` names are left out, and nothing else
    /// is thrown differently.
    pub fn any(dice: &mut Dice) -> Self {
        let without = std::env::var("WITHOUT").unwrap_or_default();
        let may = |name: &str| !without.split(',').any(|without| without == name);
        let failover = dice.pick(&[Failover::None, Failover::None, Failover::Name, Failover::Host]);
        let fine = dice.happens(120);
        let failover = if may("failover") && !fine { failover } else { Failover::None };
        Self {
            savepoints: dice.happens(700) && may("savepoints"),
            retries: dice.happens(600) && may("retries"),
            classes: dice.happens(500) && may("classes"),
            bulk: dice.happens(300) && may("bulk"),
            // A name that leads elsewhere is no place to have something stopped.
            cancels: dice.happens(800) && may("cancels") && failover != Failover::Name,
            fine,
            failover,
        }
    }
}

/// How the network behaves; shares are thousandths.
#[derive(Debug, Clone, Copy)]
pub struct Weather {
    /// Milliseconds that a piece takes at most.
    pub latency: u64,
    /// How bytes are cut; `None` for any way, connection by connection.
    pub grain: Option<Grain>,
    /// Bytes under way at most.
    pub room: usize,
    /// Connections that break.
    pub breaks: u64,
    /// Connections that are refused, or never come about.
    pub refuses: u64,
    /// Connections whose making takes up to 100 ms.
    pub dawdles: u64,
}

impl Weather {
    /// Nothing happens.
    pub const CALM: Self =
        Self { latency: 0, grain: Some(Grain::Whole), room: 64 * 1024, breaks: 0, refuses: 0, dawdles: 0 };

    /// Any.
    pub fn any(dice: &mut Dice) -> Self {
        let rough = dice.happens(700);
        Self {
            latency: dice.pick(&[0, 0, 1, 5, 40]),
            grain: dice.pick(&[Some(Grain::Whole), None, Some(Grain::Any)]),
            room: dice.pick(&[64, 512, 64 * 1024]),
            breaks: if rough { dice.pick(&[100, 500, 900]) } else { 0 },
            refuses: if rough { dice.pick(&[0, 50, 300]) } else { 0 },
            dawdles: dice.pick(&[0, 200]),
        }
    }

    /// Nothing breaks, and nothing takes long.
    pub fn is_fine(self) -> bool {
        self.latency <= 1 && self.room > 1024 && self.breaks == 0 && self.refuses == 0
    }

    fn fate(self, dice: &mut Dice) -> Fate {
        let grain = self.grain.unwrap_or_else(|| dice.pick(&[Grain::Whole, Grain::Any, Grain::Single]));
        let breaks = dice.happens(self.breaks).then(|| {
            let direction = dice.pick(&[Direction::Up, Direction::Down]);
            let reach = dice.pick(&[200, 1000, 5000]);
            let how = match dice.below(9) {
                0 | 1 => Break::Reset,
                2 | 3 => Break::LateReset,
                4 | 5 => Break::End,
                6 => Break::Stall(1 + dice.below(100)),
                7 => Break::Stall(1 + dice.below(8000)),
                _ => Break::Swallow,
            };
            (direction, dice.below(reach) as usize, how)
        });
        Fate { latency: self.latency, grain, room: self.room, breaks }
    }
}

/// How the server behaves.
pub fn any_temper(dice: &mut Dice) -> Temper {
    if dice.happens(300) {
        return Temper::default();
    }
    plain_temper(dice)
}

/// The same in the wide world.
pub fn widened_temper(temper: Temper, features: Features, dice: &mut Dice) -> Temper {
    Temper {
        conflicts: if features.retries { dice.pick(&[30, 200]) } else { 0 },
        reluctant: if features.failover == Failover::Name { dice.pick(&[0, 20]) } else { 0 },
        ..temper
    }
}

fn plain_temper(dice: &mut Dice) -> Temper {
    Temper {
        refuses: dice.pick(&[0, 10, 60]),
        dies: dice.pick(&[0, 0, 5, 20]),
        vanishes: dice.pick(&[0, 0, 5, 20]),
        pauses: dice.pick(&[0, 5, 30]),
        ..Temper::default()
    }
}

/// What leads to the server.
#[derive(Debug)]
pub struct Network {
    server: Arc<Server>,
    log: Arc<Log>,
    seed: u64,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    weather: Weather,
    dice: Dice,
    /// With the machines that they lead to.
    links: Vec<(usize, Arc<Link>)>,
    /// Machines that are away.
    away: [bool; NODES],
    /// Where the name of whichever machine takes writes leads to.
    leads_to: usize,
    /// What happens to connections, if that is told one by one.
    fates: Vec<Fate>,
}

impl Network {
    /// A network without any connection.
    pub fn new(server: &Arc<Server>, seed: u64, weather: Weather) -> Arc<Self> {
        let state = State {
            weather,
            dice: Dice::new(seed, 3),
            links: Vec::new(),
            away: [false; NODES],
            leads_to: 0,
            fates: Vec::new(),
        };
        Arc::new(Self {
            server: Arc::clone(server),
            log: Arc::clone(server.log()),
            seed,
            state: Mutex::new(state),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What happens to the first connections, in their order.
    pub fn foretell(&self, fates: Vec<Fate>) {
        self.state().fates = fates;
    }

    /// Makes a connection, and starts what serves it.
    ///
    /// # Errors
    ///
    /// When it is refused.
    pub async fn connect<D: Database>(&self, host: &str) -> io::Result<End> {
        let node = match host {
            "first" => 0,
            "second" => 1,
            _ => self.state().leads_to,
        };
        let (refused, wait) = {
            let mut state = self.state();
            let weather = state.weather;
            let refused = state.dice.happens(weather.refuses);
            let hangs = refused && state.dice.happens(300);
            let dawdles = state.dice.happens(weather.dawdles);
            let time = state.dice.below(100);
            (
                refused,
                if hangs {
                    100_000
                } else if dawdles {
                    time
                } else {
                    0
                },
            )
        };
        if wait > 0 {
            tokio::time::sleep(Duration::from_millis(wait)).await;
        }
        if refused || self.state().away[node] {
            self.log.note("connection refused", [0; 3]);
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        let (number, server_end, client_end) = {
            let mut state = self.state();
            let number = state.links.len();
            let weather = state.weather;
            let told = state.fates.get(number).copied();
            let fate = told.unwrap_or_else(|| weather.fate(&mut state.dice));
            let dice = Dice::new(self.seed, 1000 + number as u64);
            let (link, client, server) = Link::new(number, fate, dice, &self.log);
            self.log.remark(|| format!("connection {number}: {fate:?}"));
            state.links.push((node, link));
            (number, server, client)
        };
        tokio::spawn(D::serve(server_end, Arc::clone(&self.server), number, node));
        Ok(client_end)
    }

    /// The name leads to another machine from now on.
    pub fn lead_to(&self, node: usize) {
        self.log.note("name leads to", [node as i64, 0, 0]);
        self.state().leads_to = node;
    }

    /// A machine goes, with all its connections, or comes back.
    pub fn set_away(&self, node: usize, away: bool) {
        self.log.note(if away { "machine goes" } else { "machine is back" }, [node as i64, 0, 0]);
        let links = {
            let mut state = self.state();
            state.away[node] = away;
            state.links.clone()
        };
        for (_, link) in links.iter().filter(|(there, _)| away && *there == node) {
            link.reset();
        }
    }

    /// The weather is fine from now on.
    pub fn clear_up(&self) {
        let links = {
            let mut state = self.state();
            state.weather = Weather::CALM;
            state.fates.clear();
            state.away = [false; NODES];
            state.links.clone()
        };
        for (_, link) in links {
            link.heal();
        }
    }

    /// Bytes sent up and down on each connection.
    pub fn sent(&self) -> Vec<(usize, usize)> {
        self.state().links.iter().map(|(_, link)| link.sent()).collect()
    }
}
