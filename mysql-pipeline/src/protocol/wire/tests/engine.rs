//! The protocol on the real engine: pools over in-memory streams, and a server that speaks just enough of it.
//!
//! What the server saw, in its order, is what these tests are about; and every answer carries the value that was
//! sent, so that an answer given to somebody else is noticed.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::time::Instant;
use wire_pipeline::answer::Budget;
use wire_pipeline::buffer::ReadBuffer;
use wire_pipeline::wire::{Connected, Driver};
use wire_pipeline::{Lease, Options, Pool};

use crate::error::{ErrorKind, Fault, Outcome};
use crate::protocol::answer::Answer;
use crate::protocol::command::Bound;
use crate::protocol::packet::{Header, Packets};
use crate::protocol::request::Request;
use crate::protocol::wire::MySqlWire;
use crate::statement::Learned;

const SECOND: Duration = Duration::from_secs(1);

/// A server that logs what it is asked.
///
/// It prepares every text with one parameter and answers an execution with a row that holds the parameter, except
/// that it refuses to prepare what begins with `bad`.
struct Server {
    log: Mutex<Vec<Seen>>,
    /// Bytes that it writes at a time.
    piece: usize,
    /// Statements that a connection of this pool keeps.
    cache: usize,
}

/// What a server was asked.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Seen {
    Prepare(String),
    Execute(String, u8),
    Close(String),
    Query(String),
}

fn prepare(text: &str) -> Seen {
    Seen::Prepare(text.into())
}

fn execute(text: &str, value: u8) -> Seen {
    Seen::Execute(text.into(), value)
}

impl Server {
    fn new(piece: usize, cache: usize) -> Arc<Self> {
        Arc::new(Self { log: Mutex::default(), piece, cache })
    }

    /// What it was asked since this was called last.
    fn seen(&self) -> Vec<Seen> {
        std::mem::take(&mut self.log.lock().expect("unpoisoned"))
    }

    async fn serve(self: Arc<Self>, mut io: DuplexStream) {
        let mut statements = HashMap::new();
        let mut last_id = 0_u32;
        loop {
            let mut header = [0; Header::LEN];
            if io.read_exact(&mut header).await.is_err() {
                return;
            }
            let header = Header::parse(&header).expect("whole");
            assert_eq!(header.sequence, 0, "every command begins a count of its own");
            let mut packet = vec![0; header.len];
            io.read_exact(&mut packet).await.expect("a whole command");
            let text = || String::from_utf8(packet[1..].to_vec()).expect("UTF-8");
            let id = || u32::from_le_bytes(*packet[1..].first_chunk().expect("an id"));
            let (seen, response) = match packet[0] {
                0x01 => return,
                0x03 => (Seen::Query(text()), ok(text() == "BEGIN")),
                0x16 if text().starts_with("bad") => (Seen::Prepare(text()), refuse(1064)),
                0x16 => {
                    last_id += 1;
                    statements.insert(last_id, text());
                    (Seen::Prepare(text()), prepared(last_id))
                }
                // Ten bytes, then NULL bitmap, 1, type and sign: the value's lowest byte is at 14.
                0x17 => match statements.get(&id()) {
                    Some(text) => (execute(text, packet[14]), row(packet[14])),
                    None => (execute("unknown", 0), refuse(1243)),
                },
                0x19 => (Seen::Close(statements.remove(&id()).expect("prepared")), Vec::new()),
                other => panic!("command {other:#04X}"),
            };
            self.log.lock().expect("unpoisoned").push(seen);
            for piece in response.chunks(self.piece) {
                if io.write_all(piece).await.is_err() {
                    return;
                }
                tokio::task::yield_now().await;
            }
        }
    }
}

/// Packets with their headers; the sequence of a response begins at 1.
fn frames(packets: &[&[u8]]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (sequence, packet) in (1..).zip(packets) {
        bytes.extend_from_slice(&[packet.len() as u8, 0, 0, sequence]);
        bytes.extend_from_slice(packet);
    }
    bytes
}

fn ok(in_transaction: bool) -> Vec<u8> {
    frames(&[&[0, 0, 0, 2 | u8::from(in_transaction), 0, 0, 0]])
}

fn refuse(number: u16) -> Vec<u8> {
    let [low, high] = number.to_le_bytes();
    frames(&[&[&[0xFF, low, high], &b"#HY000no"[..]].concat()])
}

fn prepared(id: u32) -> Vec<u8> {
    let [a, b, c, d] = id.to_le_bytes();
    frames(&[&[0, a, b, c, d, 1, 0, 1, 0, 0, 0, 0], b"\x03def?", b"\x03defv"])
}

fn row(value: u8) -> Vec<u8> {
    frames(&[&[1], b"\x03defv", &[0, 0, value, 0, 0, 0, 0, 0, 0, 0], &[0xFE, 0, 0, 2, 0, 0, 0]])
}

/// Connects to the server by starting a task of it.
struct InMemory(Arc<Server>);

impl Driver for InMemory {
    type Wire = MySqlWire;
    type Io = DuplexStream;

    async fn connect(&self, budget: &Arc<Budget>) -> Result<Connected<Self>, Fault> {
        let (io, far) = duplex(256);
        tokio::spawn(Arc::clone(&self.0).serve(far));
        Ok(Connected {
            io,
            wire: MySqlWire::new(budget, self.0.cache, Arc::new([])),
            input: ReadBuffer::new(),
            way: Duration::ZERO,
        })
    }
}

async fn pool(server: &Arc<Server>, connections: usize) -> Pool<InMemory> {
    let options = Options { connections, seed: Some(1), ..Options::default() };
    let pool = Pool::start(InMemory(Arc::clone(server)), options);
    pool.ready().await.expect("connects");
    pool
}

fn request(text: &str, value: u8) -> Request {
    let bound = Bound { count: 1, bytes: Bytes::from(vec![0, 1, 8, 0, value, 0, 0, 0, 0, 0, 0, 0]) };
    Request::execute(&Learned::of(text), bound)
}

/// The value in the answer's only row.
fn value(answer: Result<Answer, Fault>) -> Result<u8, Fault> {
    let Answer::Ran(ran) = answer? else { panic!("stale") };
    let [_definition, row] = &Packets::new(&ran.packets).collect::<Vec<_>>()[..] else { panic!("one row") };
    Ok(row[2])
}

async fn ask(pool: &Pool<InMemory>, text: &str, sent: u8) -> Result<(), Fault> {
    let received = value(pool.submit(request(text, sent), Instant::now() + SECOND).await)?;
    assert_eq!(received, sent, "{text}: somebody else's answer");
    Ok(())
}

async fn ask_lease(lease: &Lease<InMemory>, text: &str, sent: u8) -> Result<(), Fault> {
    let received = value(lease.submit(request(text, sent), Instant::now() + SECOND).await)?;
    assert_eq!(received, sent, "{text}: somebody else's answer");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn only_the_requests_of_a_cold_statement_wait_for_its_id() {
    let server = Server::new(usize::MAX, 8);
    let pool = pool(&server, 1).await;
    ask(&pool, "warm", 0).await.expect("an answer");
    server.seen();
    let all = [("cold", 1), ("warm", 2), ("cold", 3), ("warm", 4)];
    let answers = join_all(all.map(|(text, value)| ask(&pool, text, value))).await;
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
    assert_eq!(
        server.seen(),
        [prepare("cold"), execute("warm", 2), execute("warm", 4), execute("cold", 1), execute("cold", 3)]
    );
}

#[tokio::test(start_paused = true)]
async fn on_a_lease_the_order_is_kept_around_a_cold_statement() {
    let server = Server::new(usize::MAX, 8);
    let pool = pool(&server, 2).await;
    let lease = pool.lease().await.expect("a lease");
    ask_lease(&lease, "warm", 0).await.expect("an answer");
    server.seen();
    let all = [("warm", 1), ("cold", 2), ("warm", 3), ("cold", 4)];
    let answers = join_all(all.map(|(text, value)| ask_lease(&lease, text, value))).await;
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
    assert_eq!(
        server.seen(),
        [execute("warm", 1), prepare("cold"), execute("cold", 2), execute("warm", 3), execute("cold", 4)]
    );
}

#[tokio::test(start_paused = true)]
async fn what_opens_a_transaction_goes_out_once_and_before_everything() {
    let server = Server::new(usize::MAX, 8);
    let pool = pool(&server, 2).await;
    let lease = pool.lease().await.expect("a lease");
    lease.set_opening(Request::query("BEGIN"));
    let answers =
        join_all([("cold", 1), ("cold", 2)].map(|(text, value)| ask_lease(&lease, text, value))).await;
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
    let begin = Seen::Query("BEGIN".into());
    assert_eq!(server.seen(), [begin, prepare("cold"), execute("cold", 1), execute("cold", 2)]);
}

#[tokio::test(start_paused = true)]
async fn a_failing_prepare_fails_those_who_wait_for_it_and_nobody_else() {
    let server = Server::new(usize::MAX, 8);
    let pool = pool(&server, 1).await;
    let all = [("bad", 1), ("good", 2), ("bad", 3), ("other", 4)];
    let answers = join_all(all.map(|(text, value)| ask(&pool, text, value))).await;
    for ((text, _), answer) in all.iter().zip(&answers) {
        match answer {
            Ok(()) => assert_ne!(*text, "bad"),
            Err(error) => {
                assert_eq!((error.kind(), error.outcome()), (ErrorKind::Database, Outcome::Failed), "{text}");
                assert_eq!(*text, "bad");
            }
        }
    }
    let prepares = server.seen().into_iter().filter(|seen| *seen == prepare("bad")).count();
    assert_eq!(prepares, 1);
    assert_eq!(pool.stats().in_flight(), 0);
}

#[tokio::test(start_paused = true)]
async fn evicted_statements_are_closed_and_no_answer_is_shifted() {
    let server = Server::new(usize::MAX, 2);
    let pool = pool(&server, 1).await;
    for turn in 0..20_u8 {
        let texts = ["a", "b", "c", "d", "e"];
        let asked = (0..10_u8).map(|n| ask(&pool, texts[usize::from((turn + n * n) % 5)], turn * 10 + n));
        let answers = join_all(asked).await;
        assert!(answers.iter().all(Result::is_ok), "{answers:?}");
    }
    let seen = server.seen();
    let count = |matches: fn(&Seen) -> bool| seen.iter().filter(|seen| matches(seen)).count();
    let prepared = count(|seen| matches!(seen, Seen::Prepare(_)));
    let closed = count(|seen| matches!(seen, Seen::Close(_)));
    let executed = count(|seen| matches!(seen, Seen::Execute(..)));
    assert_eq!(executed, 200);
    assert!(prepared > 20, "{prepared}");
    // What a burst has taken in beyond the bound is closed when the next statement comes.
    assert!(prepared - closed <= 5, "{closed} of {prepared}");
}

#[tokio::test(start_paused = true)]
async fn it_does_not_matter_where_the_servers_bytes_are_cut() {
    for piece in 1..=80 {
        let server = Server::new(piece, 2);
        let pool = pool(&server, 1).await;
        let all = [("a", 1), ("b", 2), ("bad", 3), ("c", 4), ("a", 5), ("d", 6), ("bad", 7), ("b", 8)];
        for _ in 0..2 {
            let answers = join_all(all.map(|(text, value)| ask(&pool, text, value))).await;
            for ((text, value), answer) in all.iter().zip(answers) {
                assert_eq!(answer.is_ok(), *text != "bad", "{text} {value} in pieces of {piece}: {answer:?}");
            }
        }
        pool.close_within(SECOND).await;
    }
}
