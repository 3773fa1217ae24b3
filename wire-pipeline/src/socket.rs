//! The sockets below a protocol: TCP connections and Unix sockets, opened and tuned, or what the application makes in
//! place of TCP; each of them may be encrypted.
//!
//! Knows names, addresses and the operating system's options; it must not know what is spoken.

use std::fmt;
use std::io;
use std::mem::MaybeUninit;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
#[cfg(unix)]
use tokio::net::UnixStream;

use crate::error::{Error, ErrorKind, Outcome, ServerError};
use crate::transport::{BoxedStream, Transport};

/// Where a server listens.
#[derive(Debug, Clone, Copy)]
pub enum Place<'a> {
    /// A host's name or address in text, the address that spares looking it up, and a port.
    Tcp(&'a str, Option<IpAddr>, u16),
    /// The path of a Unix socket.
    Unix(&'a Path),
}

/// What the operating system is told of a TCP connection.
#[derive(Debug, Clone, Copy, Default)]
pub struct Tuning {
    /// Probes while nothing is sent; `None` for none.
    pub keepalive: Option<Keepalive>,
    /// How long sent bytes may stay unacknowledged (Linux only); `None` leaves it to the operating system.
    pub user_timeout: Option<Duration>,
}

/// Probes of an idle TCP connection; `None` leaves a value to the operating system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Keepalive {
    /// The time without traffic before the first probe.
    pub idle: Option<Duration>,
    /// The time between unanswered probes.
    pub interval: Option<Duration>,
    /// How many unanswered probes make a connection lost.
    pub count: Option<u32>,
}

/// A TCP connection, a Unix socket, or what the application made.
pub enum Socket {
    /// A TCP connection.
    Tcp(TcpStream),
    /// A Unix socket.
    #[cfg(unix)]
    Unix(UnixStream),
    /// What a [`Transport`] gave, and where it leads to, if that is one server.
    Own(BoxedStream, Option<Peer>),
    /// An encrypted channel over one of the others.
    #[cfg(feature = "tls")]
    Encrypted(Box<crate::tls::Channel>),
}

impl Socket {
    /// Where it leads to; `None` for the application's own streams, unless it says that their places are servers.
    pub fn peer(&self) -> Option<Peer> {
        match self {
            Self::Tcp(stream) => stream.peer_addr().ok().map(Peer::Tcp),
            #[cfg(unix)]
            Self::Unix(stream) => {
                stream.peer_addr().ok()?.as_pathname().map(|path| Peer::Unix(path.to_path_buf()))
            }
            Self::Own(_, peer) => peer.clone(),
            #[cfg(feature = "tls")]
            Self::Encrypted(channel) => channel.socket().peer(),
        }
    }

    /// Whether there is something that was not read: decrypted bytes, or what the operating system has of bytes, the end,
    /// or an error. Never waits, and says no of the application's own streams.
    pub fn has_unread(&self) -> bool {
        let mut byte = [MaybeUninit::uninit()];
        let peeked = match self {
            Self::Tcp(stream) => SockRef::from(stream).peek(&mut byte),
            #[cfg(unix)]
            Self::Unix(stream) => SockRef::from(stream).peek(&mut byte),
            Self::Own(..) => return false,
            #[cfg(feature = "tls")]
            Self::Encrypted(channel) => return channel.has_unread(),
        };
        !matches!(peeked, Err(error) if error.kind() == io::ErrorKind::WouldBlock)
    }

    /// Connects to a server, which errors call `host`; by `transport`, if there is one, in place of TCP.
    pub async fn open<S: ServerError>(
        place: Place<'_>,
        tuning: Tuning,
        transport: Option<&Transport>,
        host: &(impl fmt::Display + Sync),
    ) -> Result<Self, Error<S>> {
        let opened = match place {
            Place::Tcp(name, address, port) => match transport {
                Some(transport) => {
                    let peer =
                        transport.is_direct().then(|| Peer::Own(transport.clone(), name.to_owned(), port));
                    transport.open(name, port).await.map(|stream| Self::Own(stream, peer))
                }
                None => tcp(name, address, port, tuning).await,
            },
            #[cfg(unix)]
            Place::Unix(path) => UnixStream::connect(path).await.map(Self::Unix),
            #[cfg(not(unix))]
            Place::Unix(_) => {
                return Err(crate::config::invalid(
                    "unix sockets are not offered on this system; set `host` to a name or an address",
                ));
            }
        };
        opened.map_err(|error| unreachable(host).with_source(error))
    }
}

impl fmt::Debug for Socket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Socket").field(&self.peer()).finish()
    }
}

async fn tcp(name: &str, address: Option<IpAddr>, port: u16, tuning: Tuning) -> io::Result<Socket> {
    let stream = match address {
        Some(address) => TcpStream::connect(SocketAddr::new(address, port)).await?,
        None => TcpStream::connect((name, port)).await?,
    };
    // Batches are formed by the pipe, so the kernel need not wait for more.
    stream.set_nodelay(true)?;
    let socket = SockRef::from(&stream);
    if let Some(settings) = tuning.keepalive {
        let mut keepalive = TcpKeepalive::new();
        if let Some(idle) = settings.idle {
            keepalive = keepalive.with_time(idle);
        }
        if let Some(interval) = settings.interval {
            keepalive = keepalive.with_interval(interval);
        }
        if let Some(count) = settings.count {
            keepalive = keepalive.with_retries(count);
        }
        socket.set_tcp_keepalive(&keepalive)?;
    }
    #[cfg(target_os = "linux")]
    if let Some(timeout) = tuning.user_timeout {
        socket.set_tcp_user_timeout(Some(timeout))?;
    }
    Ok(Socket::Tcp(stream))
}

/// Where a socket leads to.
#[derive(Debug, Clone)]
pub enum Peer {
    /// An address.
    Tcp(SocketAddr),
    /// The path of a Unix socket.
    Unix(PathBuf),
    /// A host and a port, by the application's own streams.
    Own(Transport, String, u16),
}

impl Peer {
    /// The same server again, by a connection of its own. The attempt is not tuned: it is for a few bytes.
    pub async fn open<S: ServerError>(&self) -> Result<Socket, Error<S>> {
        match self {
            Self::Tcp(address) => {
                let host = address.ip().to_string();
                let place = Place::Tcp(&host, Some(address.ip()), address.port());
                Socket::open(place, Tuning::default(), None, address).await
            }
            Self::Unix(path) => {
                Socket::open(Place::Unix(path), Tuning::default(), None, &path.display()).await
            }
            Self::Own(transport, host, port) => {
                Socket::open(Place::Tcp(host, None, *port), Tuning::default(), Some(transport), host).await
            }
        }
    }
}

/// There is no connection to `host`.
#[cold]
pub fn unreachable<S: ServerError>(host: &impl fmt::Display) -> Error<S> {
    Error::new(ErrorKind::Connect, Outcome::NotSent, format!("cannot connect to {host}"))
}

/// The connection to `host` ended before it was authenticated; `server` is what should be listening there.
#[cold]
pub fn interrupted<S: ServerError>(host: &impl fmt::Display, server: &str) -> Error<S> {
    Error::new(
        ErrorKind::Connect,
        Outcome::NotSent,
        format!("{host} closed the connection during the handshake; is it a {server} server?"),
    )
}

macro_rules! delegate {
    ($self:ident, $stream:ident => $call:expr) => {
        match $self.get_mut() {
            Socket::Tcp($stream) => $call,
            #[cfg(unix)]
            Socket::Unix($stream) => $call,
            Socket::Own($stream, _) => $call,
            #[cfg(feature = "tls")]
            Socket::Encrypted($stream) => $call,
        }
    };
}

impl AsyncRead for Socket {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        delegate!(self, stream => Pin::new(stream).poll_read(cx, buffer))
    }
}

impl AsyncWrite for Socket {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        delegate!(self, stream => Pin::new(stream).poll_write(cx, bytes))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        delegate!(self, stream => Pin::new(stream).poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        delegate!(self, stream => Pin::new(stream).poll_shutdown(cx))
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;
    use crate::config::tests::NoServer;

    async fn opened(tuning: Tuning) -> TcpStream {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("its address").port();
        let place = Place::Tcp("127.0.0.1", None, port);
        match Socket::open::<NoServer>(place, tuning, None, &"here").await.expect("it listens") {
            Socket::Tcp(stream) => stream,
            _ => panic!("not a TCP connection"),
        }
    }

    #[tokio::test]
    async fn a_connection_is_tuned_as_it_was_said() {
        let keepalive = Keepalive {
            idle: Some(Duration::from_secs(70)),
            interval: Some(Duration::from_secs(7)),
            count: Some(3),
        };
        let tuning = Tuning { keepalive: Some(keepalive), user_timeout: Some(Duration::from_secs(9)) };
        let stream = opened(tuning).await;
        let socket = SockRef::from(&stream);
        assert!(stream.nodelay().expect("told") && socket.keepalive().expect("told"));
        assert_eq!(socket.tcp_keepalive_time().expect("told"), Duration::from_secs(70));
        assert_eq!(socket.tcp_keepalive_interval().expect("told"), Duration::from_secs(7));
        assert_eq!(socket.tcp_keepalive_retries().expect("told"), 3);
        #[cfg(target_os = "linux")]
        assert_eq!(socket.tcp_user_timeout().expect("told"), Some(Duration::from_secs(9)));
    }

    #[tokio::test]
    async fn what_was_not_said_is_left_alone() {
        let stream = opened(Tuning::default()).await;
        let socket = SockRef::from(&stream);
        assert!(stream.nodelay().expect("told") && !socket.keepalive().expect("told"));
        #[cfg(target_os = "linux")]
        assert_eq!(socket.tcp_user_timeout().expect("told").unwrap_or_default(), Duration::ZERO);
    }
}
