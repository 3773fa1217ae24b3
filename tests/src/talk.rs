//! A scripted server on the loopback: what it says is up to the test, byte by byte. Compiled twice, inside of
//! `postgres::peer` and of `mysql::peer`, which know the protocols: `super` greets, hears whole requests and answers
//! them well, so that a test only writes down where its server is odd.

use std::collections::HashMap;
use std::future::Future;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

use super::super::{Config, loopback};
use super::{answer, greeting};

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
                let talk = Talk { stream, input: Vec::new(), texts: HashMap::new() };
                connections.spawn(script(talk, number));
            }
        });
        Self { port, accepted, task }
    }

    /// Where it listens.
    pub fn config(&self) -> Config {
        loopback(self.port)
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

/// One connection, from the server's side.
#[derive(Debug)]
pub struct Talk {
    stream: TcpStream,
    input: Vec<u8>,
    /// The texts of prepared statements, by what the client calls them.
    pub(super) texts: HashMap<Vec<u8>, String>,
}

impl Talk {
    /// Says something.
    pub async fn say(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes).await
    }

    /// Hears who comes, and lets everybody in.
    pub async fn greet(&mut self) -> io::Result<()> {
        self.hear_startup().await?;
        self.say(&greeting()).await
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

    /// Whatever the client still says until it leaves.
    pub async fn hear_rest(&mut self) -> io::Result<Vec<u8>> {
        while self.stream.read_buf(&mut self.input).await? > 0 {}
        Ok(std::mem::take(&mut self.input))
    }

    /// Says no more; the client can still speak.
    pub async fn fall_silent(&mut self) -> io::Result<()> {
        self.stream.shutdown().await
    }

    /// Keeps the connection, hears nothing and says nothing.
    pub async fn freeze(&mut self) -> io::Result<()> {
        std::future::pending().await
    }

    /// So many bytes of the client's.
    pub(super) async fn fill(&mut self, count: usize) -> io::Result<Vec<u8>> {
        while self.input.len() < count {
            if self.stream.read_buf(&mut self.input).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        let rest = self.input.split_off(count);
        Ok(std::mem::replace(&mut self.input, rest))
    }
}
