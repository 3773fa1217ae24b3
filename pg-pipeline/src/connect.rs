//! From a configuration to an authenticated connection: the only place of this crate that opens sockets.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::BytesMut;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
#[cfg(unix)]
use tokio::net::UnixStream;
use wire_pipeline::answer::Budget;
use wire_pipeline::buffer::ReadBuffer;
use wire_pipeline::transport::BoxedStream;
use wire_pipeline::wire::{Connected, Driver};

use crate::config::{Config, Host, HostKind};
use crate::error::{ErrorKind, Fault, Outcome};
use crate::notice;
use crate::protocol::startup::{Greeting, Startup, StartupParams, Step};
use crate::protocol::wire::PgWire;

/// Makes connections of one configuration.
pub(crate) struct PgDriver {
    config: Config,
    setup: Arc<[String]>,
}

impl PgDriver {
    /// Checks what can be checked before there is a connection.
    pub(crate) fn new(config: Config) -> Result<Self, Fault> {
        config.validate()?;
        let setup = config.pool_options().setup().into();
        Ok(Self { config, setup })
    }
}

impl Driver for PgDriver {
    type Wire = PgWire;
    type Io = Stream;

    async fn connect(&self, budget: &Arc<Budget>) -> Result<Connected<Self>, Fault> {
        let mut failure = None;
        for host in self.config.get_hosts()? {
            match self.connect_to(&host).await {
                Ok((io, greeting, rest)) => {
                    let statements = self.config.pool_options().statement_cache();
                    let setup = Arc::clone(&self.setup);
                    let wire = PgWire::new(budget, statements, setup, greeting.parameters);
                    let mut input = ReadBuffer::new();
                    input.extend(&rest);
                    return Ok(Connected { io, wire, input });
                }
                // The next host may know the same user no better: libpq stops here too.
                Err(error) if error.kind() == ErrorKind::Auth => return Err(error),
                Err(error) => failure = Some(error),
            }
        }
        Err(failure.unwrap_or_else(|| {
            Fault::new(ErrorKind::Config, Outcome::NotSent, "no host is configured; set `host`")
        }))
    }
}

impl PgDriver {
    async fn connect_to(&self, host: &Host) -> Result<(Stream, Greeting, BytesMut), Fault> {
        let mut io = self.open(host).await?;
        let (mut startup, hello) = Startup::new(StartupParams {
            user: self.config.get_user()?,
            database: self.config.get_database().map(Into::into),
            application_name: self.config.get_application_name().map(Into::into),
            options: self.config.get_server_options().map(Into::into),
            require_auth: self.config.get_require_auth(),
        })?;
        let mut input = BytesMut::new();
        let mut output = hello;
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
                Some(Step::Notice(notice)) => notice::log(&notice),
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
            HostKind::Tcp(name, address) => {
                if let Some(transport) = self.config.pool_options().transport() {
                    let stream = transport.open(name, host.port).await;
                    return Ok(Stream::Own(stream.map_err(|error| unreachable(host).with_source(error))?));
                }
                let stream = match address {
                    Some(address) => TcpStream::connect(SocketAddr::new(*address, host.port)).await,
                    None => TcpStream::connect((name.as_str(), host.port)).await,
                };
                let stream = stream.map_err(|error| unreachable(host).with_source(error))?;
                self.tune(&stream).map_err(|error| unreachable(host).with_source(error))?;
                Ok(Stream::Tcp(stream))
            }
            #[cfg(unix)]
            HostKind::Unix(_) => {
                let path = host.socket_path().ok_or_else(|| unreachable(host))?;
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
        let socket = SockRef::from(stream);
        if let Some(settings) = self.config.get_keepalive() {
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
        if let Some(timeout) = self.config.get_tcp_user_timeout() {
            socket.set_tcp_user_timeout(Some(timeout))?;
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
        format!("{host} closed the connection during the handshake; is it a PostgreSQL server?"),
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
