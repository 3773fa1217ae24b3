//! An encrypted channel as a stream of plain bytes.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::client::TlsStream;

use crate::socket::Socket;

/// An encrypted channel over a socket.
pub struct Channel {
    stream: TlsStream<Socket>,
    server_name: Box<str>,
}

impl Channel {
    pub(super) fn new(stream: TlsStream<Socket>, server_name: &str) -> Self {
        Self { stream, server_name: server_name.into() }
    }

    /// The socket below.
    pub(crate) fn socket(&self) -> &Socket {
        self.stream.get_ref().0
    }

    /// What the server's certificate was to name.
    pub fn server_name(&self) -> &str {
        &self.server_name
    }

    /// The server's certificate, in DER.
    pub fn certificate(&self) -> Option<&[u8]> {
        self.stream.get_ref().1.peer_certificates()?.first().map(AsRef::as_ref)
    }

    /// What was agreed on by ALPN.
    pub fn protocol(&self) -> Option<&[u8]> {
        self.stream.get_ref().1.alpn_protocol()
    }

    /// Whether something has come that was not read: decrypted, or still in the socket.
    pub(crate) fn has_unread(&self) -> bool {
        // It wants none while there are decrypted bytes, and none behind the other side's farewell.
        !self.stream.get_ref().1.wants_read() || self.socket().has_unread()
    }
}

impl fmt::Debug for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Channel").field("server_name", &self.server_name).finish_non_exhaustive()
    }
}

impl AsyncRead for Channel {
    /// A channel that ends without TLS's own farewell has ended all the same: what is spoken here says by itself where
    /// its messages end, so that nothing can be cut off unseen, and servers that crash say no farewell.
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match ready!(Pin::new(&mut self.stream).poll_read(cx, buffer)) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Poll::Ready(Ok(())),
            result => Poll::Ready(result),
        }
    }
}

impl AsyncWrite for Channel {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
