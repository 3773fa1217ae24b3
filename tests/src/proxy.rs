//! A TCP proxy between a pool and its server that cuts, delays and stalls: at random, and the same again by its seed.
//!
//! Knows bytes and nothing of what they mean. A cut passes on everything up to one byte and nothing behind it, so that
//! requests and answers break anywhere.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use crate::Random;

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
    faults: Faults,
    healed: AtomicBool,
    answer_lost: AtomicBool,
    cuts: AtomicU64,
    connections: AtomicU64,
}

/// How bad the network is.
#[derive(Debug, Clone, Copy)]
pub struct Faults {
    /// What happens follows from this.
    pub seed: u64,
    /// A connection is cut before it has carried more bytes than this one way or the other.
    pub cut_within: u64,
    /// One piece of so many is held up for a moment.
    pub delay_one_in: u64,
}

impl Faults {
    /// Nothing breaks that was not asked for.
    pub const NONE: Self = Self { seed: 0, cut_within: u64::MAX, delay_one_in: u64::MAX };
}

/// Which way, and behind which byte, a connection breaks.
#[derive(Debug, Clone, Copy)]
struct Cut {
    upwards: bool,
    after: u64,
    /// Told by RST instead of FIN.
    hard: bool,
}

impl Proxy {
    /// Listens on the loopback, and passes on to `target`.
    pub async fn start(target: SocketAddr, faults: Faults) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a free port");
        let port = listener.local_addr().expect("its address").port();
        let state = Arc::new(State {
            faults,
            healed: AtomicBool::new(false),
            answer_lost: AtomicBool::new(false),
            cuts: AtomicU64::new(0),
            connections: AtomicU64::new(0),
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

    /// Connections cut so far.
    pub fn cuts(&self) -> u64 {
        self.state.cuts.load(Ordering::Relaxed)
    }

    /// Connections taken so far.
    pub fn connections(&self) -> u64 {
        self.state.connections.load(Ordering::Relaxed)
    }

    /// Cuts the connection on which the server answers next, and nothing of that answer comes through.
    pub fn lose_next_answer(&self) {
        self.state.answer_lost.store(true, Ordering::Relaxed);
    }

    /// From now on nothing is cut or delayed.
    pub fn heal(&self) {
        self.state.healed.store(true, Ordering::Relaxed);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Takes connections until it is dropped, and they with it.
async fn pass_on(state: &Arc<State>, listener: TcpListener, target: SocketAddr) {
    let mut connections = JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        while connections.try_join_next().is_some() {}
        connections.spawn(connection(Arc::clone(state), client, target));
    }
}

async fn connection(state: Arc<State>, client: TcpStream, target: SocketAddr) {
    let number = state.connections.fetch_add(1, Ordering::Relaxed);
    let mut random = Random::new(state.faults.seed.wrapping_mul(1_000_003).wrapping_add(number + 1));
    let Ok(server) = TcpStream::connect(target).await else { return };
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let cut = Cut {
        upwards: random.below(2) == 0,
        after: 1 + random.below(state.faults.cut_within),
        hard: random.below(2) == 0,
    };
    let ((client_reads, client_writes), (server_reads, server_writes)) =
        (client.into_split(), server.into_split());
    let up = Way {
        state: &state,
        upwards: true,
        random: Random::new(random.below(u64::MAX)),
        cut: cut.upwards.then_some(cut),
    };
    let down = Way { state: &state, upwards: false, random, cut: (!cut.upwards).then_some(cut) };
    let mut up = std::pin::pin!(up.pass(client_reads, server_writes));
    let mut down = std::pin::pin!(down.pass(server_reads, client_writes));
    // Whichever way ends first: a cut ends both, an end of file lets the other way finish.
    let (first, second) = tokio::select! {
        end = &mut up => (end, None),
        end = &mut down => (end, Some(())),
    };
    let broken = match first {
        End::Cut => true,
        End::Over if second.is_none() => matches!(down.await, End::Cut),
        End::Over => matches!(up.await, End::Cut),
    };
    if broken {
        state.cuts.fetch_add(1, Ordering::Relaxed);
    }
}

#[derive(Debug, PartialEq)]
enum End {
    Over,
    Cut,
}

/// One way of a connection.
struct Way<'a> {
    state: &'a State,
    upwards: bool,
    random: Random,
    cut: Option<Cut>,
}

impl Way<'_> {
    async fn pass(mut self, mut from: OwnedReadHalf, mut to: OwnedWriteHalf) -> End {
        let mut piece = vec![0; 8 * 1024];
        let mut carried = 0;
        loop {
            let Ok(count @ 1..) = from.read(&mut piece).await else {
                let _ = to.shutdown().await;
                return End::Over;
            };
            if !self.upwards && self.state.answer_lost.swap(false, Ordering::Relaxed) {
                return End::Cut;
            }
            let healed = self.state.healed.load(Ordering::Relaxed);
            if !healed && self.random.below(self.state.faults.delay_one_in) == 0 {
                // This is the network's time: it is what is tested, not what is waited for.
                tokio::time::sleep(Duration::from_micros(self.random.below(3_000))).await;
            }
            let cut = self.cut.filter(|cut| !healed && carried + count as u64 >= cut.after);
            let passed = cut.map_or(count, |cut| cut.after.saturating_sub(carried) as usize);
            carried += passed as u64;
            let Some(whole) = piece.get(..passed) else { return End::Cut };
            if to.write_all(whole).await.is_err() {
                return End::Over;
            }
            if let Some(cut) = cut {
                if cut.hard {
                    let _ = to.as_ref().set_zero_linger();
                }
                return End::Cut;
            }
        }
    }
}
