//! From a configuration to an authenticated connection: the only place of this crate that opens sockets.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use rand::TryRng as _;
use rand::rngs::SysRng;
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
#[cfg(unix)]
use tokio::net::UnixStream;
use wire_pipeline::answer::Budget;
use wire_pipeline::buffer::ReadBuffer;
use wire_pipeline::transport::BoxedStream;
use wire_pipeline::wire::{Connected, Driver};

use crate::auth::Terms;
use crate::config::{Config, Host, HostKind};
use crate::error::{ErrorKind, Fault, Outcome};
use crate::protocol::startup::{Greeting, Startup, StartupParams, Step};
use crate::protocol::wire::MySqlWire;

/// Makes connections of one configuration.
pub(crate) struct MyDriver {
    config: Config,
    setup: Arc<[Bytes]>,
}

impl MyDriver {
    /// Checks what can be checked before there is a connection.
    pub(crate) fn new(config: Config) -> Result<Self, Fault> {
        config.validate()?;
        let setup = config.get_setup().map(Bytes::from).collect();
        Ok(Self { config, setup })
    }
}

impl Driver for MyDriver {
    type Wire = MySqlWire;
    type Io = Stream;

    async fn connect(&self, budget: &Arc<Budget>) -> Result<Connected<Self>, Fault> {
        let mut failure = None;
        for host in self.config.get_hosts()? {
            match self.connect_to(&host).await {
                Ok((io, greeting, rest)) => {
                    let statements = self.config.pool_options().statement_cache();
                    let setup = Arc::clone(&self.setup);
                    tracing::debug!(
                        server = greeting.server_version,
                        connection = greeting.connection_id,
                        "connected"
                    );
                    let wire = MySqlWire::new(budget, statements, setup);
                    let mut input = ReadBuffer::new();
                    input.extend(&rest);
                    return Ok(Connected { io, wire, input });
                }
                // The next host may know the same user no better.
                Err(error) if error.kind() == ErrorKind::Auth => return Err(error),
                Err(error) => failure = Some(error),
            }
        }
        Err(failure.unwrap_or_else(|| {
            Fault::new(ErrorKind::Config, Outcome::NotSent, "no host is configured; set `host`")
        }))
    }
}

impl MyDriver {
    async fn connect_to(&self, host: &Host) -> Result<(Stream, Greeting, BytesMut), Fault> {
        let mut io = self.open(host).await?;
        let mut seed = [0; 32];
        SysRng.try_fill_bytes(&mut seed).map_err(|error| {
            unreachable(host).with_source(format!("the operating system gives no random numbers: {error}"))
        })?;
        let mut startup = Startup::new(StartupParams {
            user: self.config.get_user()?,
            database: self.config.get_database().map(Into::into),
            terms: Terms {
                secure: host.is_unix(),
                key_retrieval: self.config.allows_public_key_retrieval(),
                seed,
            },
        })?;
        let mut input = BytesMut::new();
        let mut output = Vec::new();
        loop {
            if !output.is_empty() {
                io.write_all(&output).await.map_err(|error| interrupted(host).with_source(error))?;
                output.clear();
            }
            match startup.receive(&mut input)? {
                Some(Step::Send(bytes)) => output = bytes,
                Some(Step::NeedPassword) => {
                    let password = self.config.get_password().await?;
                    output = startup.answer_password(password.as_deref())?;
                }
                Some(Step::Done(greeting)) => return Ok((io, greeting, input)),
                None => {
                    let count = io
                        .read_buf(&mut input)
                        .await
                        .map_err(|error| interrupted(host).with_source(error))?;
                    if count == 0 {
                        return Err(interrupted(host));
                    }
                }
            }
        }
    }

    async fn open(&self, host: &Host) -> Result<Stream, Fault> {
        match &host.kind {
            HostKind::Tcp(name) => {
                if let Some(transport) = self.config.pool_options().transport() {
                    let stream = transport.open(name, host.port).await;
                    return Ok(Stream::Own(stream.map_err(|error| unreachable(host).with_source(error))?));
                }
                let stream = TcpStream::connect((name.as_str(), host.port)).await;
                let stream = stream.map_err(|error| unreachable(host).with_source(error))?;
                self.tune(&stream).map_err(|error| unreachable(host).with_source(error))?;
                Ok(Stream::Tcp(stream))
            }
            #[cfg(unix)]
            HostKind::Unix(path) => {
                let stream = UnixStream::connect(path).await;
                Ok(Stream::Unix(stream.map_err(|error| unreachable(host).with_source(error))?))
            }
            #[cfg(not(unix))]
            HostKind::Unix(_) => Err(Fault::new(
                ErrorKind::Config,
                Outcome::NotSent,
                "unix sockets are not offered on this system; set `host` to a name or an address",
            )),
        }
    }

    /// Batches are formed by the pipe, so the kernel need not wait for more.
    fn tune(&self, stream: &TcpStream) -> io::Result<()> {
        stream.set_nodelay(true)?;
        if self.config.has_keepalive() {
            SockRef::from(stream).set_keepalive(true)?;
        }
        Ok(())
    }
}

fn unreachable(host: &Host) -> Fault {
    Fault::new(ErrorKind::Connect, Outcome::NotSent, format!("cannot connect to {host}"))
}

fn interrupted(host: &Host) -> Fault {
    Fault::new(
        ErrorKind::Connect,
        Outcome::NotSent,
        format!("{host} closed the connection during the handshake; is it a MySQL server?"),
    )
}

/// A TCP connection, a unix socket, or what the application made.
pub(crate) enum Stream {
    Tcp(TcpStream),
    #[cfg(unix)]
    Unix(UnixStream),
    Own(BoxedStream),
}

macro_rules! delegate {
    ($self:ident, $stream:ident => $call:expr) => {
        match $self.get_mut() {
            Stream::Tcp($stream) => $call,
            #[cfg(unix)]
            Stream::Unix($stream) => $call,
            Stream::Own($stream) => $call,
        }
    };
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        delegate!(self, stream => Pin::new(stream).poll_read(cx, buffer))
    }
}

impl AsyncWrite for Stream {
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
