//! A scripted PostgreSQL server on the loopback: what it says is up to the test, byte by byte.
//!
//! It knows enough of the protocol to greet a client, to hear whole requests, and to answer them well, so that a test
//! only writes down where its server is odd. Source of the messages: PostgreSQL documentation, "Message Formats".

use std::collections::HashMap;
use std::future::Future;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use pg_pipeline::Config;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

/// ReadyForQuery, idle.
pub const READY: &[u8] = b"Z\0\0\0\x05I";

/// A scripted server; it ends when dropped.
#[derive(Debug)]
pub struct Peer {
    port: u16,
    accepted: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

impl Peer {
    /// Runs `script` on each connection, which it gets together with its number from 0. The connection is closed when
    /// the script ends.
    pub async fn start<F, Fut>(script: F) -> Self
    where
        F: Fn(Talk, usize) -> Fut + Send + 'static,
        Fut: Future<Output = io::Result<()>> + Send + 'static,
    {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a free port");
        let port = listener.local_addr().expect("its address").port();
        let accepted = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&accepted);
        let task = tokio::spawn(async move {
            // Dropped with this task, and everything in it with it.
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let number = counter.fetch_add(1, Ordering::SeqCst);
                connections.spawn(script(Talk::new(stream), number));
            }
        });
        Self { port, accepted, task }
    }

    /// Where it listens.
    pub fn config(&self) -> Config {
        Config::new().host("127.0.0.1").port(self.port).user("somebody")
    }

    /// Connections accepted so far.
    pub fn accepted(&self) -> usize {
        self.accepted.load(Ordering::SeqCst)
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A message of the client.
#[derive(Debug, Clone)]
pub struct Heard {
    /// Its type.
    pub tag: u8,
    /// What follows its length.
    pub body: Vec<u8>,
}

/// Everything up to one Sync, or one simple query.
#[derive(Debug, Clone)]
pub struct Asked {
    /// The messages, in order.
    pub messages: Vec<Heard>,
    /// The text of the statement that is bound last, or parsed if none is bound, or of the simple query.
    pub text: String,
    /// Something is executed, not only prepared.
    pub runs: bool,
}

/// One connection, from the server's side.
#[derive(Debug)]
pub struct Talk {
    stream: TcpStream,
    input: Vec<u8>,
    /// The texts of prepared statements, by name.
    texts: HashMap<Vec<u8>, String>,
}

impl Talk {
    fn new(stream: TcpStream) -> Self {
        Self { stream, input: Vec::new(), texts: HashMap::new() }
    }

    /// Says something.
    pub async fn say(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes).await
    }

    /// Hears the startup message and greets: authenticated, one parameter, a key, ready.
    pub async fn greet(&mut self) -> io::Result<()> {
        self.hear_startup().await?;
        self.say(&greeting()).await
    }

    /// Hears the startup message.
    pub async fn hear_startup(&mut self) -> io::Result<()> {
        let [a, b, c, d] = self.fill(4).await?[..] else { return Err(io::ErrorKind::UnexpectedEof.into()) };
        let length = u32::from_be_bytes([a, b, c, d]) as usize;
        self.fill(length.saturating_sub(4)).await.map(|_| ())
    }

    /// Hears the next request. The client's leaving is an error, which ends the script.
    pub async fn hear(&mut self) -> io::Result<Asked> {
        let mut asked = Asked { messages: Vec::new(), text: String::new(), runs: false };
        loop {
            let header = self.fill(5).await?;
            let [tag, a, b, c, d] = header[..] else { return Err(io::ErrorKind::UnexpectedEof.into()) };
            let length = u32::from_be_bytes([a, b, c, d]) as usize;
            let body = self.fill(length.saturating_sub(4)).await?;
            let mut strings = body.split(|byte| *byte == 0).map(<[u8]>::to_vec);
            let (first, second) = (strings.next().unwrap_or_default(), strings.next().unwrap_or_default());
            match tag {
                b'P' => {
                    asked.text = String::from_utf8_lossy(&second).into_owned();
                    self.texts.insert(first, asked.text.clone());
                }
                b'B' => asked.text = self.texts.get(&second).cloned().unwrap_or_default(),
                b'E' => asked.runs = true,
                b'Q' => (asked.text, asked.runs) = (String::from_utf8_lossy(&first).into_owned(), true),
                b'X' => return Err(io::ErrorKind::ConnectionAborted.into()),
                _ => {}
            }
            asked.messages.push(Heard { tag, body });
            if matches!(tag, b'S' | b'Q') {
                return Ok(asked);
            }
        }
    }

    /// Answers everything well until the client leaves.
    pub async fn serve(&mut self) -> io::Result<()> {
        loop {
            let asked = self.hear().await?;
            self.say(&answer(&asked)).await?;
        }
    }

    /// Hears whatever comes and says nothing until the client leaves.
    pub async fn ignore(&mut self) -> io::Result<()> {
        let mut nowhere = vec![0; 64 * 1024];
        while self.stream.read(&mut nowhere).await? > 0 {}
        Ok(())
    }

    /// Says no more; the client can still speak.
    pub async fn fall_silent(&mut self) -> io::Result<()> {
        self.stream.shutdown().await
    }

    /// Keeps the connection, hears nothing and says nothing.
    pub async fn freeze(&mut self) -> io::Result<()> {
        std::future::pending().await
    }

    async fn fill(&mut self, count: usize) -> io::Result<Vec<u8>> {
        while self.input.len() < count {
            if self.stream.read_buf(&mut self.input).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        let rest = self.input.split_off(count);
        Ok(std::mem::replace(&mut self.input, rest))
    }
}

/// A message of the server.
pub fn message(tag: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len() + 4).expect("small").to_be_bytes();
    [&[tag], &length[..], body].concat()
}

/// What a server says to a client that it takes.
pub fn greeting() -> Vec<u8> {
    [
        message(b'R', &[0; 4]),
        message(b'S', b"TimeZone\0UTC\0"),
        message(b'K', &[0, 0, 0, 1, 0, 0, 0, 2]),
        READY.to_vec(),
    ]
    .concat()
}

/// ErrorResponse.
pub fn refusal(severity: &str, code: &str) -> Vec<u8> {
    message(b'E', format!("S{severity}\0V{severity}\0C{code}\0Mas it is\0\0").as_bytes())
}

/// ParameterDescription.
pub fn takes(types: &[u32]) -> Vec<u8> {
    let types: Vec<u8> = types.iter().flat_map(|oid| oid.to_be_bytes()).collect();
    message(b't', &[&((types.len() / 4) as u16).to_be_bytes(), &types[..]].concat())
}

/// RowDescription: columns named `c`, in binary.
pub fn gives(types: &[u32]) -> Vec<u8> {
    let columns = types.iter().flat_map(|oid| {
        [&b"c\0\0\0\0\0\0\0"[..], &oid.to_be_bytes(), b"\xff\xff\xff\xff\xff\xff\0\x01"].concat()
    });
    let columns: Vec<u8> = columns.collect();
    message(b'T', &[&(types.len() as u16).to_be_bytes(), &columns[..]].concat())
}

/// DataRow.
pub fn row(values: &[Option<&[u8]>]) -> Vec<u8> {
    let mut body = (values.len() as u16).to_be_bytes().to_vec();
    for value in values {
        let length = value.map_or(u32::MAX, |value| value.len() as u32);
        body.extend_from_slice(&length.to_be_bytes());
        body.extend_from_slice(value.unwrap_or_default());
    }
    message(b'D', &body)
}

/// A good answer. A statement gives the number at its end as an int4, and takes a bytea if it mentions `$1`.
pub fn answer(asked: &Asked) -> Vec<u8> {
    let words = asked.text.rsplit(' ').next().unwrap_or_default();
    let number: i32 = words.parse().unwrap_or(0);
    let done = [row(&[Some(&number.to_be_bytes())]), message(b'C', b"SELECT 1\0")].concat();
    let bytea: &[u32] = if asked.text.contains("$1") { &[17] } else { &[] };
    asked
        .messages
        .iter()
        .flat_map(|heard| match heard.tag {
            b'P' => message(b'1', b""),
            b'D' => [takes(bytea), gives(&[23])].concat(),
            b'B' => message(b'2', b""),
            b'C' => message(b'3', b""),
            b'E' => done.clone(),
            b'S' => READY.to_vec(),
            b'Q' if asked.text.is_empty() => [&message(b'I', b"")[..], READY].concat(),
            b'Q' => [&message(b'C', b"DO\0")[..], READY].concat(),
            _ => Vec::new(),
        })
        .collect()
}
