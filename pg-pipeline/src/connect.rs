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
use wire_pipeline::attempts::{self, Share, Shares};
use wire_pipeline::buffer::ReadBuffer;
use wire_pipeline::socket::{self, Peer, Place, Socket};
use wire_pipeline::wire::{Cancelled, Cancelling, Connected, Driver};

use crate::config::{Config, Host, HostKind, Ssl, TargetSessionAttrs};
use crate::encryption::{self, Attempt};
use crate::error::{DatabaseError, ErrorKind, Fault, Outcome};
use crate::notice;
use crate::protocol::role::{self, Judgement};
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
        let Greeted { io, way, greeting, rest } = self.connect_to_any().await?;
        let statements = self.config.pool_options().statement_cache();
        let setup = Arc::clone(&self.setup);
        let wire = PgWire::new(budget, statements, setup, greeting.parameters).with_key(greeting.key);
        let mut input = ReadBuffer::new();
        input.extend(&rest);
        Ok(Connected { io, wire, input, way })
    }

    fn has_unread(&self, io: &Socket) -> bool {
        io.has_unread()
    }

    fn cancel(&self, wire: &PgWire, io: &Socket) -> Option<Cancelling> {
        let (request, peer) = (wire.key()?.cancel_request(), io.peer()?);
        // The key is a secret: it travels as the connection does.
        let encrypted = encryption::again(io).map(|name| (self.config.ssl.clone(), name));
        Some(Box::pin(cancel(request, peer, encrypted)))
    }
}

/// Has a backend stop what it is at. The server ends the connection when it has passed the signal on, and the backend
/// meets it before anything that it is sent later.
/// Source: PostgreSQL documentation, "Canceling Requests in Progress"; `processCancelRequest` in its sources.
async fn cancel(request: Bytes, peer: Peer, encrypted: Option<(Ssl, String)>) -> Cancelled {
    let Ok(mut io) = peer.open::<DatabaseError>().await else { return Cancelled::NotSent };
    if let Some((ssl, name)) = encrypted {
        let attempt = Attempt::Encrypted { optional: false };
        io = match encryption::begin(&ssl, attempt, io, &name, &name).await {
            Ok(io) => io,
            Err(_) => return Cancelled::NotSent,
        };
    }
    if io.write_all(&request).await.is_err() || io.flush().await.is_err() {
        return Cancelled::Unknown;
    }
    match io.read(&mut [0; 1]).await {
        Ok(0) => Cancelled::Heard,
        Ok(_) | Err(_) => Cancelled::Unknown,
    }
}

impl PgDriver {
    /// Tries each host in turn until one takes us and has the role that is wanted, or says that we are not known: the next
    /// one may know the same user no better, and libpq stops there too. Each has its share of the time.
    async fn connect_to_any(&self) -> Result<Greeted, Fault> {
        let mut hosts = self.config.get_hosts()?;
        if self.config.get_load_balance() {
            attempts::shuffle(&mut hosts);
        }
        let target = self.config.get_target();
        // A standby first, and then whatever there is.
        let rounds: &[TargetSessionAttrs] = match target {
            TargetSessionAttrs::PreferStandby => &[TargetSessionAttrs::Standby, TargetSessionAttrs::Any],
            _ => &[target],
        };
        let mut shares =
            Shares::new(self.config.pool_options().connect_timeout(), hosts.len() * rounds.len());
        let mut failure = None;
        for target in rounds {
            for host in &hosts {
                let share = shares.next_share();
                match share.bound(host, self.connect_to_all_of(host, share, *target)).await {
                    Ok(greeted) => return Ok(greeted),
                    Err(error) if error.kind() == ErrorKind::Auth => return Err(error),
                    Err(error) => failure = Some(error),
                }
            }
        }
        Err(failure.unwrap_or_else(no_host))
    }

    /// Tries all addresses of a host.
    async fn connect_to_all_of(
        &self,
        host: &Host,
        share: Share,
        target: TargetSessionAttrs,
    ) -> Result<Greeted, Fault> {
        let mut places = match &host.kind {
            // The application's own streams are given names.
            HostKind::Tcp(name, None) if self.config.pool_options().transport().is_none() => {
                let addresses = attempts::addresses(name, host.port).await;
                let addresses = addresses.map_err(|error| socket::unreachable(host).with_source(error))?;
                let at = |address| Host { kind: HostKind::Tcp(name.clone(), Some(address)), port: host.port };
                addresses.into_iter().map(at).collect()
            }
            HostKind::Tcp(..) | HostKind::Unix(_) => vec![host.clone()],
        };
        if self.config.get_load_balance() {
            attempts::shuffle(&mut places);
        }
        let mut shares = Shares::new(share.time, places.len());
        let mut failure = None;
        for place in places {
            match shares.next_share().bound(&place, self.connect_to(&place, target)).await {
                Ok(greeted) => return Ok(greeted),
                Err(error) if error.kind() == ErrorKind::Auth => return Err(error),
                Err(error) => failure = Some(error),
            }
        }
        Err(failure.unwrap_or_else(no_host))
    }

    /// Tries a place with and without TLS, as `sslmode` says.
    async fn connect_to(&self, host: &Host, target: TargetSessionAttrs) -> Result<Greeted, Fault> {
        let mut failure: Option<Fault> = None;
        for attempt in encryption::attempts(self.config.ssl.mode, host.is_unix()) {
            if failure.as_ref().is_some_and(|failure| !encryption::is_worth_another(failure)) {
                break;
            }
            match self.greet(host, *attempt).await {
                Ok(greeted) => return self.check_role(host, target, greeted).await,
                Err(error) => failure = Some(error),
            }
        }
        Err(failure.unwrap_or_else(no_host))
    }

    async fn greet(&self, host: &Host, attempt: Attempt) -> Result<Greeted, Fault> {
        let began = Instant::now();
        let io = self.open(host).await?;
        let way = began.elapsed();
        let name = if let HostKind::Tcp(name, _) = &host.kind { name } else { "" };
        let mut io = encryption::begin(&self.config.ssl, attempt, io, name, host).await?;
        let (mut startup, hello) = Startup::new(StartupParams {
            user: self.config.get_user()?,
            database: self.config.get_database().map(Into::into),
            application_name: self.config.get_application_name().map(Into::into),
            options: self.config.get_server_options().map(Into::into),
            require_auth: self.config.get_require_auth(),
            channel: encryption::channel(&io),
            channel_binding: self.config.ssl.channel_binding,
            versions: self.config.get_versions(),
        })?;
        let mut input = BytesMut::new();
        let mut output = hello;
        loop {
            if !output.is_empty() {
                send(&mut io, &output, host).await?;
                output.clear();
            }
            match startup.receive(&mut input)? {
                Some(Step::Send(bytes)) => output = bytes,
                Some(Step::NeedPassword) => {
                    let password = self.config.get_password(host).await?;
                    output = startup.answer_password(password.as_deref())?;
                }
                Some(Step::NeedToken) => {
                    let token = self.config.get_oauth_token().await?;
                    output = startup.answer_password(token.as_deref())?;
                }
                Some(Step::Notice(notice)) => notice::log(&notice),
                Some(Step::Done(greeting)) => {
                    return Ok(Greeted { io, way, greeting, rest: input });
                }
                None => receive(&mut io, &mut input, host).await?,
            }
        }
    }

    /// Whether the server has the role that is wanted; it is asked where it does not report it.
    async fn check_role(
        &self,
        host: &Host,
        target: TargetSessionAttrs,
        mut greeted: Greeted,
    ) -> Result<Greeted, Fault> {
        let fits = match role::judge(target, &greeted.greeting.parameters) {
            Judgement::Fits(fits) => fits,
            Judgement::Ask(question) => {
                send(&mut greeted.io, &role::ask(question), host).await?;
                let mut answer = role::Answer::default();
                loop {
                    match answer.receive(target, &mut greeted.rest)? {
                        Some(fits) => break fits,
                        None => receive(&mut greeted.io, &mut greeted.rest, host).await?,
                    }
                }
            }
        };
        if fits {
            return Ok(greeted);
        }
        let wanted = target.as_str();
        Err(Fault::new(
            ErrorKind::Connect,
            Outcome::NotSent,
            format!("{host} has another role than `target_session_attrs={wanted}` asks for"),
        ))
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

async fn send(io: &mut Socket, bytes: &[u8], host: &Host) -> Result<(), Fault> {
    let lost = |error| interrupted(host).with_source(error);
    io.write_all(bytes).await.map_err(lost)?;
    io.flush().await.map_err(lost)
}

/// Some more bytes.
async fn receive(io: &mut Socket, input: &mut BytesMut, host: &Host) -> Result<(), Fault> {
    match io.read_buf(input).await {
        Ok(0) => Err(interrupted(host)),
        Ok(_) => Ok(()),
        Err(error) => Err(interrupted(host).with_source(error)),
    }
}

#[cold]
fn no_host() -> Fault {
    Fault::new(ErrorKind::Config, Outcome::NotSent, "no host is configured; set `host`")
}
