//! A rule does what it says, where it says so, and the same again by its seed: with two ends of plain sockets.

use std::io::ErrorKind;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::Direction::{Down, Up};
use super::Kind::{
    Authentication, Bind, Cancel, Close, Complete, Credentials, Describe, Description, EncryptionAnswer,
    EncryptionRequest, Error, Execute, Greeting, Login, Opaque, Other, Prepare, Prepared, Query, Quit, Ready,
    Row, Status, Sync,
};
use super::dialogue::{Dialogue, Frame};
use super::{Direction, Event, Faults, Kind, Proxy, Reaction, Rule};

/// Longer than anything here takes that does not hang.
const LIMIT: Duration = Duration::from_secs(20);
const STARTUP: &[u8] = b"\0\0\0\x08\0\x03\0\0";
/// `ReadyForQuery`: a message to the client.
const READY: &[u8] = b"Z\0\0\0\x05I";

/// What ends an answer of MySQL, and what ends one of several.
const OK: &[u8] = b"\0\0\0\x02\0\0\0";
const OK_MORE: &[u8] = b"\0\xfc\x01\x02\0\x0a\0\0\0";
const EOF: &[u8] = b"\xfe\0\0\x02\0";
const EOF_MORE: &[u8] = b"\xfe\0\0\x0a\0";

/// A message of PostgreSQL.
fn typed(kind: u8, body: &[u8]) -> Vec<u8> {
    let mut message = vec![kind];
    message.extend_from_slice(&(4 + body.len() as u32).to_be_bytes());
    message.extend_from_slice(body);
    message
}

/// A packet of MySQL.
fn packet(sequence: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = (payload.len() as u32).to_le_bytes()[..3].to_vec();
    bytes.push(sequence);
    bytes.extend_from_slice(payload);
    bytes
}

/// The two ends of a connection through a proxy.
struct Ends {
    proxy: Proxy,
    client: TcpStream,
    server: TcpStream,
}

impl Ends {
    async fn new(rules: Vec<Rule>) -> Self {
        Self::with_seed(7, rules).await
    }

    async fn with_seed(seed: u64, rules: Vec<Rule>) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let proxy = Proxy::start(listener.local_addr().unwrap(), Faults { seed, rules }).await;
        let client = TcpStream::connect(("127.0.0.1", proxy.port())).await.unwrap();
        let (server, _) = within(listener.accept()).await.unwrap();
        Self { proxy, client, server }
    }

    /// The client has logged in, as far as the proxy is concerned.
    async fn started(rules: Vec<Rule>) -> Self {
        let mut ends = Self::new(rules).await;
        ends.send(STARTUP).await;
        assert_eq!(ends.arrives(STARTUP.len()).await, STARTUP);
        ends
    }

    async fn send(&mut self, bytes: &[u8]) {
        self.client.write_all(bytes).await.unwrap();
    }

    /// The next bytes at the server.
    async fn arrives(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        within(self.server.read_exact(&mut bytes)).await.unwrap();
        bytes
    }
}

async fn within<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(LIMIT, work).await.expect("it does not hang")
}

/// All bytes until the end, and the error that it ends with.
async fn to_the_end(stream: &mut TcpStream) -> (Vec<u8>, Option<ErrorKind>) {
    let mut bytes = Vec::new();
    let error = within(stream.read_to_end(&mut bytes)).await.err();
    (bytes, error.map(|error| error.kind()))
}

/// Nothing comes, and it does not end either.
async fn is_silent(stream: &mut TcpStream) -> bool {
    let mut byte = [0];
    tokio::time::timeout(Duration::from_millis(100), stream.read(&mut byte)).await.is_err()
}

#[tokio::test]
async fn without_rules_everything_passes_and_the_end_too() {
    let mut ends = Ends::started(Vec::new()).await;
    let large = typed(b'Q', &vec![b'x'; 300_000]);
    let (mut client, server) = (ends.client, &mut ends.server);
    let sender = tokio::spawn({
        let large = large.clone();
        async move {
            client.write_all(&large).await.unwrap();
            client.write_all(b"half a mess").await.unwrap();
            client.shutdown().await.unwrap();
            client
        }
    });
    let (bytes, error) = to_the_end(server).await;
    assert_eq!((bytes.len(), error), (large.len() + 11, None));
    assert!(bytes.starts_with(&large) && bytes.ends_with(b"half a mess"));
    server.write_all(READY).await.unwrap();
    server.shutdown().await.unwrap();
    assert_eq!(to_the_end(&mut sender.await.unwrap()).await, (READY.to_vec(), None));
    assert_eq!(ends.proxy.fired(), 0);
}

#[tokio::test]
async fn a_reset_comes_at_its_byte_of_the_nth_message_of_its_kind_and_both_sides_see_it() {
    let rule = Rule::up(Reaction::Reset).kinds(&[Kind::Sync]).nth(2).at_byte(3);
    let mut ends = Ends::started(vec![rule.clone()]).await;
    let (sync, flush) = (typed(b'S', b""), typed(b'H', b""));
    let all = [&sync[..], &flush, &sync, &flush].concat();
    ends.send(&all).await;
    let (bytes, error) = to_the_end(&mut ends.server).await;
    assert_eq!(error, Some(ErrorKind::ConnectionReset));
    assert_eq!(bytes, all[..13], "sync, flush, and three bytes of the second sync");
    assert_eq!(to_the_end(&mut ends.client).await, (Vec::new(), Some(ErrorKind::ConnectionReset)));
    assert_eq!((rule.fired(), ends.proxy.fired(), ends.proxy.cuts()), (1, 1, 1));
    let at = Some((Direction::Up, Kind::Sync, STARTUP.len() as u64 + 13));
    assert_eq!(ends.proxy.events(), [Event { connection: 0, at, reaction: Reaction::Reset }]);
}

#[tokio::test]
async fn a_fin_comes_at_its_byte_of_the_way_and_both_sides_see_an_orderly_end() {
    let mut ends = Ends::started(vec![Rule::up(Reaction::Fin).offset(10)]).await;
    ends.send(&typed(b'Q', b"select")).await;
    assert_eq!(to_the_end(&mut ends.server).await, (b"Q\0".to_vec(), None));
    assert_eq!(to_the_end(&mut ends.client).await, (Vec::new(), None));
}

#[tokio::test]
async fn a_half_close_ends_one_way_and_the_other_goes_on() {
    let mut ends = Ends::started(vec![Rule::up(Reaction::HalfClose).kinds(&[Kind::Sync]).behind()]).await;
    let sync = typed(b'S', b"");
    ends.send(&[&sync[..], &sync].concat()).await;
    assert_eq!(to_the_end(&mut ends.server).await, (sync, None));
    ends.server.write_all(READY).await.unwrap();
    let mut answer = [0; 6];
    within(ends.client.read_exact(&mut answer)).await.unwrap();
    assert_eq!(answer, READY);
}

#[tokio::test]
async fn a_blackhole_swallows_both_ways_and_tells_nobody() {
    let mut ends =
        Ends::started(vec![Rule::down(Reaction::Blackhole).kinds(&[Kind::Ready]).at_byte(2)]).await;
    ends.server.write_all(READY).await.unwrap();
    let mut begin = [0; 2];
    within(ends.client.read_exact(&mut begin)).await.unwrap();
    ends.send(&typed(b'S', b"")).await;
    assert!(is_silent(&mut ends.client).await && is_silent(&mut ends.server).await);
    // Where the server hangs up, the client does not see it; where the client does, nobody is left.
    ends.server.shutdown().await.unwrap();
    assert!(is_silent(&mut ends.client).await);
    drop(ends.client);
    to_the_end(&mut ends.server).await;
}

#[tokio::test]
async fn silence_and_refusal_meet_connections() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let rules = vec![
        Rule::connection(Reaction::Silence).nth(1),
        Rule::connection(Reaction::Refuse).nth(2),
        Rule::connection(Reaction::Delay { least: Duration::from_millis(50), jitter: Duration::ZERO }).nth(3),
    ];
    let proxy = Proxy::start(listener.local_addr().unwrap(), Faults { seed: 1, rules }).await;
    let connect = || TcpStream::connect(("127.0.0.1", proxy.port()));
    let mut silent = connect().await.unwrap();
    silent.write_all(STARTUP).await.unwrap();
    assert!(is_silent(&mut silent).await);
    let (_, error) = to_the_end(&mut connect().await.unwrap()).await;
    assert_eq!(error, Some(ErrorKind::ConnectionReset));
    let began = Instant::now();
    let _third = connect().await.unwrap();
    within(listener.accept()).await.unwrap();
    assert!(began.elapsed() >= Duration::from_millis(50));
    assert_eq!((proxy.connections(), proxy.cuts()), (3, 2));
}

#[tokio::test]
async fn a_closed_port_refuses_and_an_open_one_takes() {
    let Ends { proxy, mut client, server: _server } = Ends::new(Vec::new()).await;
    proxy.close().await;
    to_the_end(&mut client).await;
    let error = TcpStream::connect(("127.0.0.1", proxy.port())).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    proxy.open().await;
    TcpStream::connect(("127.0.0.1", proxy.port())).await.unwrap();
}

#[tokio::test]
async fn split_writes_every_byte_alone() {
    let mut ends = Ends::started(vec![Rule::down(Reaction::Split(1)).kinds(&[Kind::Row])]).await;
    let row = typed(b'D', &[b'x'; 2_000]);
    ends.server.write_all(&row).await.unwrap();
    let (mut bytes, mut reads) = (Vec::new(), 0);
    while bytes.len() < row.len() {
        within(ends.client.readable()).await.unwrap();
        reads += usize::from(ends.client.try_read_buf(&mut bytes).is_ok_and(|count| count > 0));
        tokio::task::yield_now().await;
    }
    assert_eq!(bytes, row);
    // A read may find several pieces; whole messages would be one or two.
    assert!(reads > 50, "{reads}");
}

#[tokio::test]
async fn delays_bandwidth_and_stalls_take_their_time_and_lose_nothing() {
    let delay = Reaction::Delay { least: Duration::from_millis(80), jitter: Duration::from_millis(20) };
    for (reaction, least) in [
        (delay, 80),
        (Reaction::Stall(Duration::from_millis(80)), 80),
        // 4,005 bytes at 20,000 a second.
        (Reaction::Bandwidth(20_000), 180),
    ] {
        let mut ends = Ends::started(vec![Rule::up(reaction).kinds(&[Kind::Query])]).await;
        let began = Instant::now();
        let query = typed(b'Q', &[b'x'; 4_000]);
        ends.send(&query).await;
        assert_eq!(ends.arrives(query.len()).await, query);
        assert!(began.elapsed() >= Duration::from_millis(least), "{reaction:?}: {:?}", began.elapsed());
        assert!(!reaction.is_fatal() && ends.proxy.cuts() == 0);
    }
}

#[tokio::test]
async fn a_stall_holds_both_ways() {
    let stall = Reaction::Stall(Duration::from_millis(150));
    let mut ends = Ends::started(vec![Rule::up(stall).kinds(&[Kind::Sync]).behind()]).await;
    let began = Instant::now();
    let sync = typed(b'S', b"");
    ends.send(&sync).await;
    ends.arrives(sync.len()).await;
    // It begins behind the message, as soon as that is through.
    while ends.proxy.fired() == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    ends.server.write_all(READY).await.unwrap();
    let mut answer = [0; 6];
    within(ends.client.read_exact(&mut answer)).await.unwrap();
    assert!(began.elapsed() >= Duration::from_millis(140), "{:?}", began.elapsed());
}

#[tokio::test]
async fn one_bit_is_turned_at_its_byte_and_nothing_else() {
    let mut ends =
        Ends::started(vec![Rule::up(Reaction::Flip).kinds(&[Kind::Query]).nth(2).at_byte(5)]).await;
    let query = typed(b'Q', b"select 1\0");
    let all = [&query[..], &query, &query].concat();
    ends.send(&all).await;
    let got = ends.arrives(all.len()).await;
    let changed: Vec<_> = (0..all.len()).filter(|&at| all[at] != got[at]).collect();
    assert_eq!(changed, [query.len() + 5]);
    assert_eq!((all[changed[0]] ^ got[changed[0]]).count_ones(), 1);
}

#[tokio::test]
async fn rules_may_change_while_connections_stand() {
    let mut ends = Ends::started(Vec::new()).await;
    let sync = typed(b'S', b"");
    ends.send(&sync).await;
    ends.arrives(sync.len()).await;
    ends.proxy.set(Faults { seed: 1, rules: vec![Rule::up(Reaction::Flip).times(1).at_byte(1)] });
    ends.send(&[&sync[..], &sync].concat()).await;
    let got = ends.arrives(2 * sync.len()).await;
    assert_ne!(got[..5], sync[..]);
    assert_eq!(got[5..], sync[..], "once");
    ends.proxy.heal();
    ends.send(&sync).await;
    assert_eq!(ends.arrives(sync.len()).await, sync);
}

/// What a seed does to two hundred messages, sent in pieces of so many bytes.
async fn events(seed: u64, piece: usize) -> (Vec<Event>, Vec<u8>) {
    let rules = vec![
        Rule::up(Reaction::Flip).kinds(&[Kind::Query]).one_in(5).anywhere(),
        Rule::up(Reaction::Split(7)).every(10),
        Rule::up(Reaction::Fin).offset_between(2_000, 3_000),
    ];
    let mut ends = Ends::with_seed(seed, rules).await;
    let mut bytes = STARTUP.to_vec();
    for n in 0..200 {
        bytes.extend(typed(b'Q', format!("select {n}").as_bytes()));
    }
    let mut client = ends.client;
    let sender = tokio::spawn(async move {
        for piece in bytes.chunks(piece) {
            // It may be cut by then.
            if client.write_all(piece).await.is_err() {
                break;
            }
            tokio::task::yield_now().await;
        }
        client
    });
    let (arrived, _) = to_the_end(&mut ends.server).await;
    drop(sender.await.unwrap());
    (ends.proxy.events(), arrived)
}

#[tokio::test]
async fn the_same_seed_does_the_same_however_bytes_arrive() {
    let first = events(3, 10_000).await;
    assert!(first.0.len() > 20, "{first:?}");
    assert!(first.1.len() >= 2_000 && first.1.len() < 3_000);
    assert_eq!(first, events(3, 10_000).await);
    assert_eq!(first, events(3, 13).await);
    assert_ne!(first, events(4, 10_000).await);
}

/// The kinds of messages that one side sends, in turns with the other; each is offered byte by byte.
fn kinds(talk: &[(Direction, Vec<u8>)]) -> Vec<Kind> {
    let mut dialogue = Dialogue::Silent;
    let mut kinds = Vec::new();
    for (direction, bytes) in talk {
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let told = (1..=rest.len()).find_map(|end| dialogue.next(*direction, &rest[..end]));
            let Frame { kind, length } = told.expect("it can be read");
            rest = &rest[(length as usize).min(rest.len())..];
            kinds.push(kind);
        }
    }
    kinds
}

#[test]
fn messages_of_postgresql_are_known_from_the_first_byte_on() {
    let up = |kinds: &[u8]| (Up, kinds.iter().flat_map(|kind| typed(*kind, b"xyz")).collect::<Vec<_>>());
    let down = |kinds: &[u8]| (Down, kinds.iter().flat_map(|kind| typed(*kind, b"xyz")).collect::<Vec<_>>());
    let talk = [
        (Up, b"\0\0\0\x08\x04\xd2\x16\x2f".to_vec()),
        (Down, b"N".to_vec()),
        (Up, STARTUP.to_vec()),
        down(b"R"),
        up(b"p"),
        down(b"RSKZ"),
        up(b"PDBESCXQ"),
        down(b"1t2TDCZE"),
    ];
    let first = [EncryptionRequest, EncryptionAnswer, Login, Authentication, Credentials];
    let second = [Authentication, Status, Status, Ready];
    let third = [Prepare, Describe, Bind, Execute, Sync, Close, Quit, Query];
    let fourth = [Prepared, Description, Other, Description, Row, Complete, Ready, Error];
    assert_eq!(kinds(&talk), [&first[..], &second, &third, &fourth].concat());
    let encrypted = [
        (Up, b"\0\0\0\x08\x04\xd2\x16\x2f".to_vec()),
        (Down, b"S".to_vec()),
        (Up, b"\x16\x03\x01".to_vec()),
        (Down, b"\x16".to_vec()),
    ];
    assert_eq!(kinds(&encrypted)[..2], [EncryptionRequest, EncryptionAnswer]);
    assert!(kinds(&encrypted)[2..].iter().all(|kind| *kind == Opaque));
    let cancel = [(Up, b"\0\0\0\x10\x04\xd2\x16\x2eabcdefgh".to_vec())];
    assert_eq!(kinds(&cancel), [Cancel]);
}

#[test]
fn packets_of_mysql_are_known_from_the_first_byte_on() {
    let down = |payloads: &[&[u8]]| (Down, payloads.iter().flat_map(|payload| packet(1, payload)).collect());
    let up = |payloads: &[&[u8]]| (Up, payloads.iter().flat_map(|payload| packet(0, payload)).collect());
    for deprecated in [false, true] {
        let login = if deprecated { [0, 0, 0, 1] } else { [0; 4] };
        let separate = |list: &[&'static [u8]]| -> Vec<&'static [u8]> {
            list.iter().copied().filter(|payload| !(deprecated && *payload == b"\xfeseparator")).collect()
        };
        let (end, end_more): (&[u8], &[u8]) =
            if deprecated { (b"\xfe\0\0\x02\0\0\0", b"\xfe\0\0\x0a\0\0\0") } else { (EOF, EOF_MORE) };
        let separator: &[u8] = b"\xfeseparator";
        let talk: Vec<(Direction, Vec<u8>)> = vec![
            down(&[b"\x0a9.7"]),
            (Up, packet(1, &login)),
            down(&[b"\xfecaching_sha2_password"]),
            (Up, packet(3, b"proof")),
            down(&[b"\x01\x03", OK]),
            // Pipelined: prepared with one parameter and two columns, run, closed, and a script of three results.
            up(&[b"\x16select", b"\x17run", b"\x19bye", b"\x03script", b"\x0e", b"\x03nonsense", b"\x01"]),
            down(&[b"\0\x01\0\0\0\x02\0\x01\0\0\0\0"]),
            down(&separate(&[b"param", separator, b"column", b"column", separator])),
            down(&separate(&[b"\x01", b"column", separator, b"\0row", b"\0row", end])),
            down(&separate(&[b"\x01", b"column", separator, b"row", end_more, OK_MORE, OK])),
            down(&[OK, b"\xff\x15\x04#42000no"]),
            // Unasked: the server ends the connection.
            down(&[b"\xff\xbf\x0f#08004bye"]),
        ];
        let gap = |kinds: &[Kind]| if deprecated { Vec::new() } else { kinds.to_vec() };
        let wanted = [
            &[Greeting, Login, Authentication, Credentials, Authentication, Complete][..],
            &[Prepare, Execute, Close, Query, Other, Query, Quit],
            &[Prepared, Description],
            &gap(&[Description]),
            &[Description, Description],
            &gap(&[Description]),
            &[Description, Description],
            &gap(&[Description]),
            &[Row, Row, Complete, Description, Description],
            &gap(&[Description]),
            &[Row, Complete, Complete, Complete, Complete, Error, Error],
        ];
        assert_eq!(kinds(&talk), wanted.concat(), "deprecated: {deprecated}");
    }
    let tls =
        [down(&[b"\x0a9.7"]), (Up, packet(1, &[&[0, 8, 0, 0][..], &[0; 28]].concat())), (Up, vec![22, 3])];
    assert_eq!(kinds(&tls)[..3], [Greeting, EncryptionRequest, Opaque]);
}
