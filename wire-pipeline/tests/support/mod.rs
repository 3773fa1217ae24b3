//! A toy protocol and its scripted server, all in memory and in virtual time.
//!
//! ```text
//!  frame     length (4, little endian), then that many bytes
//!  request   kind, id (4), size of the answer (4), delay in ms (4), flags, padding
//!  answer    kind, id (4), status, payload
//! ```
//!
//! The server reads one request, works on it for as long as it says, writes the answer, and only then reads on. A
//! request begins with what opens its unit of work, if anything does; that has no answer of its own.

// Every test file is a crate of its own, and none uses everything.
#![allow(dead_code, missing_docs, unreachable_pub)]

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::BufMut;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, ReadBuf, duplex};
use tokio::sync::watch;
use tokio::time::Instant;
use wire_pipeline::answer::{Budget, Chunks, Collector};
use wire_pipeline::buffer::{Out, ReadBuffer};
use wire_pipeline::error::{Error, ErrorKind, Outcome, ServerError};
use wire_pipeline::estimate::Estimate;
use wire_pipeline::wire::{
    Cancelled, Cancelling, Condition, Connected, Driver, Framed, Occasion, Opening, ParkKey, Received,
    Request, Wire,
};
use wire_pipeline::{Lease, Options, Pool};

pub type Fault = Error<Complaint>;
pub type ToyPool = Pool<Toy>;
pub type ToyLease = Lease<Toy>;

/// Long enough for everything that is not about deadlines.
pub const LIMIT: Duration = Duration::from_secs(60);

/// What a server says against a request, or as its last words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Complaint(pub &'static str);

impl fmt::Display for Complaint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for Complaint {}

impl ServerError for Complaint {
    fn is_retryable(&self) -> bool {
        self.0 == IN_THE_WAY
    }

    fn is_read_only(&self) -> bool {
        self.0 == READ_ONLY
    }
}

const READ_ONLY: &str = "no writes";
/// What is said against work that may succeed when it is run again.
pub const IN_THE_WAY: &str = "others were in the way";

const FAIL: u8 = 1;
const OPEN: u8 = 2;
const TOUCH: u8 = 4;
const END: u8 = 8;
const DIE: u8 = 16;
const PANIC: u8 = 32;
const WRITE: u8 = 64;

const ASK: u8 = 1;
const BEGIN: u8 = 2;
const PREPARE: u8 = 3;
const ROLLBACK: u8 = 4;
const RESET: u8 = 5;
const GOODBYE: u8 = 6;
const LAST_WORDS: u8 = 7;
const CHECK: u8 = 8;

/// A request.
#[derive(Debug, Clone)]
pub struct Ask {
    kind: u8,
    pub id: u32,
    size: u32,
    delay: u32,
    flags: u8,
    padding: usize,
    cold: Option<u32>,
    refused: bool,
    panics: bool,
    opening: Option<u32>,
    estimate: Option<Arc<Estimate>>,
}

/// A request that the server answers at once with nothing.
pub fn ask(id: u32) -> Ask {
    own(ASK, id)
}

/// What opens a unit of work.
pub fn begin(id: u32) -> Ask {
    own(BEGIN, id)
}

fn own(kind: u8, id: u32) -> Ask {
    Ask {
        kind,
        id,
        size: 0,
        delay: 0,
        flags: 0,
        padding: 0,
        cold: None,
        refused: false,
        panics: false,
        opening: None,
        estimate: None,
    }
}

impl Ask {
    /// Bytes of the answer.
    pub fn size(self, size: u32) -> Self {
        Self { size, ..self }
    }

    /// How long the server works on it.
    pub fn takes(self, time: Duration) -> Self {
        Self { delay: time.as_millis() as u32, ..self }
    }

    /// How long it takes is learnt, together with others that say so.
    pub fn learns(self, estimate: &Arc<Estimate>) -> Self {
        Self { estimate: Some(Arc::clone(estimate)), ..self }
    }

    /// Bytes of the request beyond its header.
    pub fn padding(self, padding: usize) -> Self {
        Self { padding, ..self }
    }

    /// The server refuses it.
    pub fn fails(self) -> Self {
        Self { flags: self.flags | FAIL, ..self }
    }

    /// A server that takes no writes refuses it; if it fails, it is for that reason.
    pub fn writes(self) -> Self {
        Self { flags: self.flags | WRITE, ..self }
    }

    /// The server opens a transaction.
    pub fn opens(self) -> Self {
        Self { flags: self.flags | OPEN, ..self }
    }

    /// The server ends a transaction.
    pub fn ends(self) -> Self {
        Self { flags: self.flags | END, ..self }
    }

    /// The server changes the session.
    pub fn touches(self) -> Self {
        Self { flags: self.flags | TOUCH, ..self }
    }

    /// The server ends the connection instead of answering.
    pub fn kills(self) -> Self {
        Self { flags: self.flags | DIE, ..self }
    }

    /// It needs a forerunner for `key`, which the server prepares in the same time as the request takes.
    pub fn needs(self, key: u32) -> Self {
        Self { cold: Some(key), ..self }
    }

    /// The protocol refuses to write it.
    pub fn unwritable(self) -> Self {
        Self { refused: true, ..self }
    }

    /// The protocol panics when it is to write it.
    pub fn panics_when_written(self) -> Self {
        Self { panics: true, ..self }
    }

    /// The protocol panics when it is to read the answer.
    pub fn panics_when_answered(self) -> Self {
        Self { flags: self.flags | PANIC, ..self }
    }

    fn write(&self, kind: u8, id: u32, out: &mut Out) {
        let padding = if kind == self.kind { self.padding } else { 0 };
        let tail = out.tail();
        tail.put_u32_le((14 + padding) as u32);
        tail.put_u8(kind);
        tail.put_u32_le(id);
        tail.put_u32_le(self.size);
        tail.put_u32_le(self.delay);
        tail.put_u8(self.flags);
        tail.put_bytes(0, padding);
    }
}

impl Request for Ask {
    fn bytes(&self) -> usize {
        self.padding
    }

    fn expected_micros(&self) -> u32 {
        self.estimate.as_ref().map_or(100, |estimate| estimate.expected_micros())
    }

    fn observed_micros(&self, micros: u32) {
        if let Some(estimate) = &self.estimate {
            estimate.observed_micros(micros);
        }
    }

    fn open(&mut self, Opening(opening): Opening<Self>) {
        assert_eq!(self.opening.replace(opening.id), None, "opened twice");
    }

    fn opens(&self) -> bool {
        self.opening.is_some()
    }

    fn take_opening(&mut self) -> Option<Opening<Self>> {
        self.opening.take().map(|id| Opening(Box::new(begin(id))))
    }
}

/// An answer: whose, and the payload.
#[derive(Debug)]
pub struct Reply {
    pub id: u32,
    pub payload: Chunks,
}

#[derive(Debug)]
pub struct ToyWire {
    server: Arc<Server>,
    number: usize,
    budget: Arc<Budget>,
    /// Keys that were prepared, or are being prepared.
    known: HashMap<u32, bool>,
    in_transaction: bool,
    touched: bool,
    last_words: Option<Arc<Complaint>>,
}

#[derive(Debug)]
pub struct Pending {
    kind: u8,
    id: u32,
}

impl Wire for ToyWire {
    type Request = Ask;
    type Pending = Pending;
    type Answer = Reply;
    type Server = Complaint;

    fn frame(&mut self, request: &mut Ask, out: &mut Out) -> Framed<Self> {
        assert!(!request.panics, "told to panic");
        if request.refused {
            return Framed::Refused(Error::new(ErrorKind::Encode, Outcome::NotSent, "unwritable"));
        }
        if let Some(id) = request.cold {
            let key = ParkKey(u64::from(id));
            match self.known.get(&id) {
                Some(true) => {}
                Some(false) => return Framed::Waits { key },
                None => {
                    self.known.insert(id, false);
                    request.write(PREPARE, id, out);
                    return Framed::Ahead { pending: Pending { kind: PREPARE, id }, key };
                }
            }
        }
        if let Some(id) = request.opening.take() {
            request.write(BEGIN, id, out);
        }
        request.write(request.kind, request.id, out);
        Framed::Sent(Pending { kind: request.kind, id: request.id })
    }

    fn receive(
        &mut self,
        head: Option<&mut Pending>,
        input: &mut ReadBuffer,
    ) -> Result<Received<Self>, Fault> {
        let data = input.data();
        let Some(length) = data.first_chunk().map(|length| u32::from_le_bytes(*length) as usize) else {
            return Ok(Received::More);
        };
        let Some(body) = data.get(4..4 + length) else { return Ok(Received::More) };
        let (kind, id) = (body[0], u32::from_le_bytes(*body[1..].first_chunk().expect("an id")));
        if kind == LAST_WORDS {
            self.last_words = Some(Arc::new(Complaint("last words")));
            return Err(Error::new(ErrorKind::Io, Outcome::Unknown, "the server ended the connection"));
        }
        // A panic costs the connection; that there was one must not be lost on the test.
        if head.is_none_or(|head| (kind, id) != (head.kind, head.id)) {
            self.server.mixed_up.store(true, Ordering::SeqCst);
            panic!("answers are out of order");
        }
        let status = body[5];
        assert!(status & PANIC == 0, "told to panic");
        let mut collector = Collector::new(&self.budget);
        collector.push(&body[6..]);
        collector.end_message();
        input.consume(4 + length);
        self.in_transaction = status & OPEN != 0;
        self.touched = status & TOUCH != 0;
        let result = match status & (FAIL | WRITE) {
            0 => Ok(()),
            FAIL => Err(Error::refused(Complaint("refused"))),
            _ => Err(Error::refused(Complaint(READ_ONLY))),
        };
        if kind == PREPARE {
            match &result {
                Ok(()) => self.known.insert(id, true),
                Err(_) => self.known.remove(&id),
            };
            return Ok(Received::Forerunner { key: ParkKey(u64::from(id)), result });
        }
        Ok(Received::Answer(result.and_then(|()| {
            let payload = collector
                .finish()
                .map_err(|overflow| Error::new(ErrorKind::Busy, Outcome::Completed, overflow.to_string()))?;
            Ok(Reply { id, payload })
        })))
    }

    fn condition(&self) -> Condition {
        match (self.in_transaction, self.touched) {
            (true, _) => Condition::InTransaction,
            (false, true) => Condition::Touched,
            (false, false) => Condition::Clean,
        }
    }

    fn settle(&mut self, occasion: Occasion) -> Vec<Ask> {
        let touched = self.touched || occasion == Occasion::Returned { touched: true };
        let rollback = self.in_transaction.then(|| own(ROLLBACK, 0));
        let reset = touched.then(|| own(RESET, 0));
        let check = (occasion == Occasion::ReadOnly).then(|| own(CHECK, 0));
        rollback.into_iter().chain(reset).chain(check).collect()
    }

    fn goodbye(&mut self, out: &mut Out) {
        own(GOODBYE, 0).write(GOODBYE, 0, out);
    }

    fn last_words(&self) -> Option<Arc<Complaint>> {
        self.last_words.clone()
    }
}

/// What a server was asked, and on which of its connections, counted from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    Ask(u32),
    Begin(u32),
    Prepare(u32),
    Rollback,
    Reset,
    Goodbye,
    Check,
}

/// How it takes new connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Door {
    Open,
    /// It accepts, and closes at once.
    ClosesAtOnce,
    Refuses,
    /// The handshake never ends.
    Hangs,
    /// The handshake takes this long.
    Slow(Duration),
    /// The first connection's handshake takes this long, and its session is to be put right; others are refused.
    TakesOne(Duration),
}

/// How requests to stop fare.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stops {
    NotOffered,
    /// The server hears of them after this many milliseconds.
    After(u64),
    /// Nobody knows whether it hears of them.
    Lost,
}

/// A scripted server, as the test sees it.
#[derive(Debug)]
pub struct Server {
    /// Bytes that a connection holds on its way, each way.
    buffer: usize,
    log: Mutex<Vec<(usize, Seen)>>,
    door: watch::Sender<Door>,
    /// It does not read beyond a request's length while this is true.
    pub deaf: watch::Sender<bool>,
    /// Which connection is to be cut, and whether with last words.
    cut: watch::Sender<Option<(usize, bool)>>,
    /// The next write of any client fails, and these bytes have arrived by then.
    breaks: Mutex<Option<Vec<u8>>>,
    mixed_up: AtomicBool,
    /// It refuses writes.
    pub read_only: AtomicBool,
    /// Which connection is to stop working, and how often that was said.
    stop: watch::Sender<(usize, usize)>,
    /// How requests to stop fare.
    pub stops: watch::Sender<Stops>,
    pub connections: AtomicUsize,
    handshakes: AtomicUsize,
    pub most_handshakes: AtomicUsize,
}

impl Server {
    pub fn new() -> Arc<Self> {
        Self::with_buffer(64 * 1024)
    }

    pub fn with_buffer(buffer: usize) -> Arc<Self> {
        Arc::new(Self {
            buffer,
            log: Mutex::default(),
            door: watch::Sender::new(Door::Open),
            deaf: watch::Sender::new(false),
            cut: watch::Sender::new(None),
            breaks: Mutex::default(),
            mixed_up: AtomicBool::new(false),
            read_only: AtomicBool::new(false),
            stop: watch::Sender::new((0, 0)),
            stops: watch::Sender::new(Stops::NotOffered),
            connections: AtomicUsize::new(0),
            handshakes: AtomicUsize::new(0),
            most_handshakes: AtomicUsize::new(0),
        })
    }

    /// How it takes new connections from now on.
    pub fn door(&self, door: Door) {
        self.door.send_replace(door);
    }

    /// Cuts a connection, before it does anything else.
    pub fn cut(&self, connection: usize) {
        self.cut.send_replace(Some((connection, false)));
    }

    /// Cuts a connection and says so.
    pub fn cut_with_words(&self, connection: usize) {
        self.cut.send_replace(Some((connection, true)));
    }

    /// The next write fails, while the answer of `id` and last words have arrived that nobody has read.
    pub fn break_next_write(&self, id: u32) {
        let mut bytes = vec![6, 0, 0, 0, ASK];
        bytes.put_u32_le(id);
        bytes.put_slice(&[0, 6, 0, 0, 0, LAST_WORDS, 0, 0, 0, 0, 0]);
        *self.breaks.lock().expect("unpoisoned") = Some(bytes);
    }

    /// What it was asked since this was called last.
    pub fn take_log(&self) -> Vec<(usize, Seen)> {
        std::mem::take(&mut self.log.lock().expect("unpoisoned"))
    }

    /// What it was asked, on whichever connection, since this was called last.
    pub fn take_seen(&self) -> Vec<Seen> {
        self.take_log().into_iter().map(|(_, seen)| seen).collect()
    }

    /// Ids of the requests that it has begun to work on, on whichever connection.
    pub fn asked(&self) -> Vec<u32> {
        let log = self.log.lock().expect("unpoisoned");
        log.iter().filter_map(|(_, seen)| if let Seen::Ask(id) = seen { Some(*id) } else { None }).collect()
    }

    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    async fn serve(self: Arc<Self>, connection: usize, mut io: DuplexStream) {
        let mut cut = self.cut.subscribe();
        let cut = cut.wait_for(|cut| cut.is_some_and(|(which, _)| which == connection));
        let words = tokio::select! {
            biased;
            cut = cut => cut.is_ok_and(|cut| cut.is_some_and(|(_, words)| words)),
            () = self.work(connection, &mut io) => false,
        };
        if words {
            let _ = io.write_all(&[6, 0, 0, 0, LAST_WORDS, 0, 0, 0, 0, 0]).await;
        }
    }

    async fn work(&self, connection: usize, io: &mut DuplexStream) {
        let mut deaf = self.deaf.subscribe();
        let mut state = 0_u8;
        loop {
            let Ok(length) = io.read_u32_le().await else { return };
            let _ = deaf.wait_for(|deaf| !*deaf).await;
            let mut body = vec![0; length as usize];
            if io.read_exact(&mut body).await.is_err() {
                return;
            }
            let number = |at: usize| u32::from_le_bytes(*body[at..].first_chunk().expect("a number"));
            let (kind, id, size, delay, flags) = (body[0], number(1), number(5), number(9), body[13]);
            let seen = match kind {
                ASK => Seen::Ask(id),
                BEGIN => Seen::Begin(id),
                PREPARE => Seen::Prepare(id),
                ROLLBACK => Seen::Rollback,
                RESET => Seen::Reset,
                GOODBYE => Seen::Goodbye,
                CHECK => Seen::Check,
                other => panic!("request {other}"),
            };
            self.log.lock().expect("unpoisoned").push((connection, seen));
            let mut flags = flags;
            if delay > 0 {
                let mut stop = self.stop.subscribe();
                let said = stop.borrow().1;
                let stopped = stop.wait_for(|(which, times)| *which == connection && *times > said);
                tokio::select! {
                    biased;
                    () = tokio::time::sleep(Duration::from_millis(u64::from(delay))) => {}
                    _ = stopped => flags |= FAIL,
                }
            }
            match kind {
                BEGIN => {
                    state |= OPEN;
                    continue;
                }
                ROLLBACK => state &= !OPEN,
                RESET => state &= !TOUCH,
                GOODBYE => return,
                ASK if flags & DIE != 0 => return,
                ASK => {
                    state |= flags & (OPEN | TOUCH);
                    if flags & END != 0 {
                        state &= !OPEN;
                    }
                }
                _ => {}
            }
            let payload = if kind == ASK { size as usize } else { 0 };
            let mut answer = Vec::with_capacity(10 + payload);
            answer.put_u32_le((6 + payload) as u32);
            answer.put_u8(kind);
            answer.put_u32_le(id);
            let is_write = flags & WRITE != 0;
            let refuses = (is_write && flags & FAIL != 0)
                || self.read_only.load(Ordering::SeqCst) && (is_write || kind == CHECK);
            answer.put_u8(state | (flags & (FAIL | PANIC)) | if refuses { WRITE } else { 0 });
            answer.put_bytes(7, payload);
            if io.write_all(&answer).await.is_err() {
                return;
            }
        }
    }
}

/// Connects to a server in memory.
#[derive(Debug, Clone)]
pub struct Toy(pub Arc<Server>);

impl Driver for Toy {
    type Wire = ToyWire;
    type Io = Line;

    async fn connect(&self, budget: &Arc<Budget>) -> Result<Connected<Self>, Fault> {
        let server = &self.0;
        let number = server.connections.fetch_add(1, Ordering::SeqCst);
        let _shaking = Shaking::new(server);
        let (io, far) = duplex(server.buffer);
        let door = *server.door.borrow();
        match door {
            Door::Open => drop(tokio::spawn(Arc::clone(server).serve(number, far))),
            Door::Slow(time) => {
                tokio::time::sleep(time).await;
                drop(tokio::spawn(Arc::clone(server).serve(number, far)));
            }
            Door::TakesOne(time) if number == 0 => {
                tokio::time::sleep(time).await;
                drop(tokio::spawn(Arc::clone(server).serve(number, far)));
            }
            Door::ClosesAtOnce => drop(far),
            Door::Refuses | Door::TakesOne(_) => {
                return Err(Error::new(ErrorKind::Connect, Outcome::NotSent, "refused"));
            }
            Door::Hangs => std::future::pending().await,
        }
        let io = Line { io, late: Vec::new(), broken: false, server: Arc::clone(server) };
        let wire = ToyWire {
            server: Arc::clone(server),
            number,
            budget: Arc::clone(budget),
            known: HashMap::new(),
            in_transaction: false,
            touched: matches!(door, Door::TakesOne(_)),
            last_words: None,
        };
        Ok(Connected { io, wire, input: ReadBuffer::new(), way: Duration::ZERO })
    }

    fn cancel(&self, wire: &ToyWire, _: &Line) -> Option<Cancelling> {
        let (server, number, stops) = (Arc::clone(&self.0), wire.number, *self.0.stops.borrow());
        match stops {
            Stops::NotOffered => None,
            Stops::Lost => Some(Box::pin(async { Cancelled::Unknown })),
            Stops::After(ms) => Some(Box::pin(async move {
                tokio::time::sleep(Duration::from_millis(ms)).await;
                server.stop.send_modify(|(which, times)| {
                    *which = number;
                    *times += 1;
                });
                Cancelled::Heard
            })),
        }
    }
}

/// The client's end of a connection.
#[derive(Debug)]
pub struct Line {
    io: DuplexStream,
    /// Arrived, and not read yet, when a write failed.
    late: Vec<u8>,
    broken: bool,
    server: Arc<Server>,
}

impl AsyncRead for Line {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.broken {
            let count = self.late.len().min(buffer.remaining());
            buffer.put_slice(&self.late[..count]);
            self.late.drain(..count);
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.io).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Line {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let late = self.server.breaks.lock().expect("unpoisoned").take();
        if let Some(late) = late {
            self.late = late;
            self.broken = true;
        }
        if self.broken {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        Pin::new(&mut self.io).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

/// Counts handshakes under way.
struct Shaking<'a>(&'a Server);

impl<'a> Shaking<'a> {
    fn new(server: &'a Server) -> Self {
        let now = server.handshakes.fetch_add(1, Ordering::SeqCst) + 1;
        server.most_handshakes.fetch_max(now, Ordering::SeqCst);
        Self(server)
    }
}

impl Drop for Shaking<'_> {
    fn drop(&mut self) {
        self.0.handshakes.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Options for tests: few pipes, no replacement, and a seed.
pub fn options(connections: usize) -> Options {
    Options { connections, max_lifetime: Duration::ZERO, seed: Some(7), ..Options::default() }
}

/// A pool all of whose pipes are up.
pub async fn pool(server: &Arc<Server>, options: Options) -> ToyPool {
    let pool = Pool::start(Toy(Arc::clone(server)), options);
    until("all pipes are up", || {
        pool.stats().pipes.iter().all(|pipe| pipe.state == wire_pipeline::stats::PipeState::Shared)
    })
    .await;
    pool
}

/// Runs a request on the pool and checks that the answer is its own.
pub async fn run(pool: &ToyPool, ask: Ask) -> Result<(), Fault> {
    run_within(pool, ask, LIMIT).await
}

pub async fn run_within(pool: &ToyPool, ask: Ask, limit: Duration) -> Result<(), Fault> {
    let (id, size) = (ask.id, ask.size);
    check(id, size, pool.submit(ask, Instant::now() + limit).await)
}

/// Runs a request on a lease and checks that the answer is its own.
pub async fn run_on(lease: &ToyLease, ask: Ask) -> Result<(), Fault> {
    let (id, size) = (ask.id, ask.size);
    check(id, size, lease.submit(ask, Instant::now() + LIMIT).await)
}

fn check(id: u32, size: u32, reply: Result<Reply, Fault>) -> Result<(), Fault> {
    let reply = reply?;
    assert_eq!((reply.id, reply.payload.bytes()), (id, size as usize), "somebody else's answer");
    Ok(())
}

/// Lets virtual time pass until `condition` holds.
pub async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    for _ in 0..100_000 {
        if condition() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    panic!("never: {what}");
}

/// Waits until the pool holds nothing: no request, no answer, no place at the gate.
pub async fn until_idle(pool: &ToyPool) {
    until("the pool is idle", || {
        let stats = pool.stats();
        stats.in_flight() == 0 && stats.waiting == 0 && stats.answer_bytes == 0
    })
    .await;
    assert!(!pool.driver().0.mixed_up.load(Ordering::SeqCst), "answers were out of order");
    // Every place of the gate can be taken at once, and is free again.
    let options = pool.options();
    let most = options.max_in_flight * options.connections;
    let server = &pool.driver().0;
    server.deaf.send_replace(true);
    let all = futures_util::future::join_all((0..most).map(|id| run(pool, ask(1_000_000 + id as u32))));
    let mut all = Box::pin(all);
    poll_once(all.as_mut()).await;
    let taken = pool.stats().in_flight() + pool.stats().waiting;
    assert_eq!(taken, most, "places were leaked");
    server.deaf.send_replace(false);
    for answer in all.await {
        answer.expect("an answer");
    }
}

/// Polls a future once.
pub async fn poll_once<F: Future>(mut future: Pin<&mut F>) -> Option<F::Output> {
    std::future::poll_fn(|cx| {
        Poll::Ready(match future.as_mut().poll(cx) {
            Poll::Ready(output) => Some(output),
            Poll::Pending => None,
        })
    })
    .await
}

/// Polls a future at most `polls` times, whenever it is woken or the others had their turn, then drops it.
pub async fn drop_after<F: Future>(future: F, polls: usize) -> Option<F::Output> {
    let mut future = Box::pin(future);
    for _ in 0..polls {
        if let Some(output) = poll_once(future.as_mut()).await {
            return Some(output);
        }
        tokio::task::yield_now().await;
    }
    None
}
