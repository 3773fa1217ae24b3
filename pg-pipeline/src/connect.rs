//! From a configuration to an authenticated connection: the only place of this crate that knows of sockets.
//!
//! How they are opened is the engine's. `mysql-pipeline`'s file of this name goes from host to host the same way on
//! purpose: what is said in the handshake, and what ends the search, is each protocol's.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::Instant;
use wire_pipeline::answer::Budget;
use wire_pipeline::buffer::ReadBuffer;
use wire_pipeline::socket::{self, Peer, Place, Socket};
use wire_pipeline::wire::{Cancelled, Cancelling, Connected, Driver};

use crate::config::{Config, Host, HostKind};
use crate::error::{DatabaseError, ErrorKind, Fault, Outcome};
use crate::notice;
use crate::protocol::startup::{Greeting, Startup, StartupParams, Step};
use crate::protocol::wire::PgWire;

/// A connection on which the handshake is over.
struct Greeted {
    io: Socket,
    /// How long it took to open.
    way: Duration,
    greeting: Greeting,
    rest: BytesMut,
}

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
    type Io = Socket;

    async fn connect(&self, budget: &Arc<Budget>) -> Result<Connected<Self>, Fault> {
        let mut failure = None;
        for host in self.config.get_hosts()? {
            match self.connect_to(&host).await {
                Ok(Greeted { io, way, greeting, rest }) => {
                    let statements = self.config.pool_options().statement_cache();
                    let setup = Arc::clone(&self.setup);
                    let wire =
                        PgWire::new(budget, statements, setup, greeting.parameters).with_key(greeting.key);
                    let mut input = ReadBuffer::new();
                    input.extend(&rest);
                    return Ok(Connected { io, wire, input, way });
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

    fn has_unread(&self, io: &Socket) -> bool {
        io.has_unread()
    }

    fn cancel(&self, wire: &PgWire, io: &Socket) -> Option<Cancelling> {
        let (request, peer) = (wire.key()?.cancel_request(), io.peer()?);
        Some(Box::pin(cancel(request, peer)))
    }
}

/// Has a backend stop what it is at. The server ends the connection when it has passed the signal on, and the backend
/// meets it before anything that it is sent later.
/// Source: PostgreSQL documentation, "Canceling Requests in Progress"; `processCancelRequest` in its sources.
async fn cancel(request: Bytes, peer: Peer) -> Cancelled {
    let Ok(mut io) = peer.open::<DatabaseError>().await else { return Cancelled::NotSent };
    if io.write_all(&request).await.is_err() {
        return Cancelled::Unknown;
    }
    match io.read(&mut [0; 1]).await {
        Ok(0) => Cancelled::Heard,
        Ok(_) | Err(_) => Cancelled::Unknown,
    }
}

impl PgDriver {
    async fn connect_to(&self, host: &Host) -> Result<Greeted, Fault> {
        let began = Instant::now();
        let mut io = self.open(host).await?;
        let way = began.elapsed();
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
                Some(Step::Done(greeting)) => {
                    return Ok(Greeted { io, way, greeting, rest: input });
                }
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

    async fn open(&self, host: &Host) -> Result<Socket, Fault> {
        let socket;
        let place = match &host.kind {
            HostKind::Tcp(name, address) => Place::Tcp(name, *address, host.port),
            HostKind::Unix(directory) => {
                socket = host.socket_path(directory);
                Place::Unix(&socket)
            }
        };
        let transport = self.config.pool_options().transport();
        Socket::open(place, self.config.get_tuning(), transport, host).await
    }
}

/// The connection ended before it was authenticated.
fn interrupted(host: &Host) -> Fault {
    socket::interrupted(host, "PostgreSQL")
}
