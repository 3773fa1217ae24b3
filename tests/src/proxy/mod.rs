//! A TCP proxy between a pool and its server that does to connections what networks do: it delays, throttles, splits,
//! stalls, ends, resets and swallows, and turns bits. Rules say what happens when ([`Rule`]); they know the messages of
//! both protocols, and chance in them follows from a seed.
//!
//! For one connection the same bytes and the same seed give the same events ([`Proxy::events`]), however the network
//! cuts them into reads. Which connection has which number is up to who connects first.

mod dialogue;
mod mysql;
mod postgres;
mod rules;
#[cfg(test)]
mod tests;
mod way;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

pub use dialogue::{Direction, Kind};
pub use rules::{Faults, Reaction, Rule};

use crate::Random;
use dialogue::Dialogue;
use way::{End, Link, Way};

/// How many events are remembered.
const EVENTS: usize = 10_000;

/// A running proxy; it ends, and its connections with it, when dropped.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    state: Arc<State>,
    /// Whether it shall listen, and whether it does.
    wanted: watch::Sender<bool>,
    listens: watch::Receiver<bool>,
    task: JoinHandle<()>,
}

#[derive(Debug)]
struct State {
    faults: Mutex<Arc<Faults>>,
    answer_lost: AtomicBool,
    fired: AtomicU64,
    cuts: AtomicU64,
    connections: AtomicU64,
    events: Mutex<Vec<Event>>,
}

/// What a rule did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// Number of the connection, counted from 0.
    pub connection: u64,
    /// Which byte of which way it met, and in what kind of message; none if it met the connection as a whole.
    pub at: Option<(Direction, Kind, u64)>,
    /// What it did.
    pub reaction: Reaction,
}

impl Proxy {
    /// Listens on the loopback, and passes on to `target`.
    pub async fn start(target: SocketAddr, faults: Faults) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a free port");
        let port = listener.local_addr().expect("its address").port();
        let state = Arc::new(State {
            faults: Mutex::new(Arc::new(faults)),
            answer_lost: AtomicBool::new(false),
            fired: AtomicU64::new(0),
            cuts: AtomicU64::new(0),
            connections: AtomicU64::new(0),
            events: Mutex::default(),
        });
        let shared = Arc::clone(&state);
        let (wanted, mut wants) = watch::channel(true);
        let (tells, listens) = watch::channel(true);
        let task = tokio::spawn(async move {
            let mut listener = Some(listener);
            loop {
                let open = match listener.take() {
                    Some(open) => open,
                    None => TcpListener::bind(("127.0.0.1", port)).await.expect("the same port"),
                };
                tells.send_replace(true);
                tokio::select! {
                    () = pass_on(&shared, open, target) => {}
                    _ = wants.wait_for(|wanted| !*wanted) => {}
                }
                tells.send_replace(false);
                if wants.wait_for(|wanted| *wanted).await.is_err() {
                    return;
                }
            }
        });
        Self { port, state, wanted, listens, task }
    }

    /// Closes the port and every connection; returns when connecting is refused.
    pub async fn close(&self) {
        self.listen(false).await;
    }

    /// Opens the port again; returns when it is open.
    pub async fn open(&self) {
        self.listen(true).await;
    }

    async fn listen(&self, wanted: bool) {
        self.wanted.send_replace(wanted);
        self.listens.clone().wait_for(|listens| *listens == wanted).await.expect("the proxy runs");
    }

    /// Where it listens.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// How often a rule did something.
    pub fn fired(&self) -> u64 {
        self.state.fired.load(Ordering::Relaxed)
    }

    /// Connections that this made useless.
    pub fn cuts(&self) -> u64 {
        self.state.cuts.load(Ordering::Relaxed)
    }

    /// Connections taken so far.
    pub fn connections(&self) -> u64 {
        self.state.connections.load(Ordering::Relaxed)
    }

    /// The first ten thousand things that rules did, in order.
    pub fn events(&self) -> Vec<Event> {
        self.state.events.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Cuts the connection on which the server answers next, and nothing of that answer comes through.
    pub fn lose_next_answer(&self) {
        self.state.answer_lost.store(true, Ordering::Relaxed);
    }

    /// From the next message on these rules hold, on all connections. The seed of connections that stand stays.
    pub fn set(&self, faults: Faults) {
        *self.state.faults.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(faults);
    }

    /// From now on nothing breaks any more. What has been swallowed stays so: such connections are lost.
    pub fn heal(&self) {
        self.set(Faults::NONE);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl State {
    fn faults(&self) -> Arc<Faults> {
        Arc::clone(&self.faults.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn note(&self, event: Event) {
        self.fired.fetch_add(1, Ordering::Relaxed);
        if event.reaction.is_fatal() {
            self.cuts.fetch_add(1, Ordering::Relaxed);
        }
        let mut events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        if events.len() < EVENTS {
            events.push(event);
        }
    }
}

/// Takes connections until it is dropped, and they with it.
async fn pass_on(state: &Arc<State>, listener: TcpListener, target: SocketAddr) {
    let mut connections = JoinSet::new();
    loop {
        // Without descriptors there is no connection; the next attempt may have one.
        let Ok((client, _)) = listener.accept().await else {
            tokio::task::yield_now().await;
            continue;
        };
        while connections.try_join_next().is_some() {}
        connections.spawn(connection(Arc::clone(state), client, target));
    }
}

/// Random numbers for one use of one connection.
fn random_for(seed: u64, connection: u64, stream: u64) -> Random {
    let mut random = Random::new(seed.wrapping_mul(1_000_003).wrapping_add(connection * 3 + stream + 1));
    // The first numbers of near seeds are near each other.
    random.below(1);
    Random::new(random.below(u64::MAX))
}

async fn connection(state: Arc<State>, mut client: TcpStream, target: SocketAddr) {
    let number = state.connections.fetch_add(1, Ordering::Relaxed);
    let faults = state.faults();
    let mut random = random_for(faults.seed, number, 0);
    for rule in &faults.rules {
        if rule.picks_connection(number, &mut random) {
            state.note(Event { connection: number, at: None, reaction: rule.reaction() });
            if !welcome(rule.reaction(), &mut client, &mut random).await {
                return;
            }
        }
    }
    let Ok(mut server) = TcpStream::connect(target).await else {
        let _ = client.set_zero_linger();
        return;
    };
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let link = Link::new(number, Dialogue::Silent);
    let end = {
        let ((client_reads, client_writes), (server_reads, server_writes)) = (client.split(), server.split());
        let random = |stream| random_for(faults.seed, number, stream);
        let up = Way::new(&state, &link, Direction::Up, random(1), client_reads, server_writes);
        let down = Way::new(&state, &link, Direction::Down, random(2), server_reads, client_writes);
        let (mut up, mut down) = (std::pin::pin!(up.pass()), std::pin::pin!(down.pass()));
        // Whichever way ends first: a cut ends both, an end of file lets the other way finish.
        tokio::select! {
            end = &mut up => if end == End::OfFile { down.await } else { end },
            end = &mut down => if end == End::OfFile { up.await } else { end },
        }
    };
    match end {
        End::OfFile => {}
        End::Reset => {
            let _ = (client.set_zero_linger(), server.set_zero_linger());
        }
        End::Fin => {
            tokio::join!(way::end_orderly(client), way::end_orderly(server));
        }
    }
}

/// What happens to a connection that was just taken; false if that is all.
async fn welcome(reaction: Reaction, client: &mut TcpStream, random: &mut Random) -> bool {
    match reaction {
        Reaction::Delay { least, jitter } => tokio::time::sleep(way::spread(least, jitter, random)).await,
        Reaction::Stall(time) => tokio::time::sleep(time).await,
        Reaction::Silence | Reaction::Blackhole => {
            let (mut reads, _) = client.split();
            way::swallow(&mut reads).await;
            return false;
        }
        Reaction::Refuse | Reaction::Reset => {
            let _ = client.set_zero_linger();
            return false;
        }
        Reaction::Fin | Reaction::HalfClose => return false,
        Reaction::Bandwidth(_) | Reaction::Split(_) | Reaction::Flip => {}
    }
    true
}
