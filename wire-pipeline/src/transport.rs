//! Byte streams that the application makes itself: tunnels, proxies in the same process, simulators.
//!
//! A driver that has a [`Transport`] asks it for every connection instead of opening a TCP socket. Knows host names
//! and bytes, and nothing of what is spoken.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncWrite};

/// What a connection needs of a byte stream; every type that can do it is one.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin + ?Sized> Stream for T {}

/// A byte stream of any type.
pub type BoxedStream = Box<dyn Stream>;

type Opening = Pin<Box<dyn Future<Output = io::Result<BoxedStream>> + Send>>;

/// Makes byte streams in place of TCP connections. Cheap to clone.
#[derive(Clone)]
pub struct Transport {
    open: Arc<dyn Fn(String, u16) -> Opening + Send + Sync>,
    is_direct: bool,
}

impl Transport {
    /// `open` is called with host and port for every attempt to connect.
    pub fn new<F, Fut, S>(open: F) -> Self
    where
        F: Fn(String, u16) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = io::Result<S>> + Send + 'static,
        S: Stream + 'static,
    {
        let open = Arc::new(move |host, port| {
            let opening = open(host, port);
            Box::pin(async move { Ok(Box::new(opening.await?) as BoxedStream) }) as Opening
        });
        Self { open, is_direct: false }
    }

    /// The same, of which it is known that all streams to one host and port lead to one server.
    #[must_use]
    pub fn direct(self) -> Self {
        Self { is_direct: true, ..self }
    }

    /// Whether all streams to one host and port lead to one server.
    pub fn is_direct(&self) -> bool {
        self.is_direct
    }

    /// A new stream to `host` and `port`. As cancel safe as what the application gave.
    ///
    /// # Errors
    ///
    /// What the application gives.
    pub async fn open(&self, host: &str, port: u16) -> io::Result<BoxedStream> {
        (self.open)(host.to_owned(), port).await
    }
}

impl fmt::Debug for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Transport")
    }
}
