//! From a configuration to an authenticated connection: the only place of this crate that knows of sockets.
//!
//! How they are opened is the engine's. `pg-pipeline`'s file of this name goes from host to host the same way on
//! purpose: what is said in the handshake, and what ends the search, is each protocol's.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use rand::TryRng as _;
use rand::rngs::SysRng;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::Instant;
use wire_pipeline::answer::Budget;
use wire_pipeline::attempts::{self, Share, Shares};
use wire_pipeline::buffer::{Out, ReadBuffer};
use wire_pipeline::socket::{self, Peer, Place, Socket};
use wire_pipeline::wire::{Cancelled, Cancelling, Connected, Driver};

use crate::auth::{Channel, ServerKey, Terms};
use crate::config::{Config, Host, HostKind};
use crate::encryption::{self, Attempt};
use crate::error::{ErrorKind, Fault, Outcome};
use crate::protocol::command;
use crate::protocol::packet::Header;
use crate::protocol::startup::{Greeting, Startup, StartupParams, Step};
use crate::protocol::wire::MySqlWire;

/// A connection on which the handshake is over.
struct Greeted {
    io: Socket,
    /// How long it took to open.
    way: Duration,
    greeting: Greeting,
    rest: BytesMut,
}

/// Makes connections of one configuration.
pub(crate) struct MyDriver {
    config: Config,
    key: ServerKey,
    setup: Arc<[Bytes]>,
    /// On what terms the latest connection was authenticated.
    terms: Arc<Mutex<Terms>>,
}

impl MyDriver {
    /// Checks what can be checked before there is a connection.
    pub(crate) fn new(config: Config) -> Result<Self, Fault> {
        config.validate()?;
        let setup = config.get_setup().map(Bytes::from).collect();
        Ok(Self { key: config.get_server_key()?, config, setup, terms: Arc::default() })
    }

    /// What every new session runs.
    pub(crate) fn setup(&self) -> Arc<[Bytes]> {
        Arc::clone(&self.setup)
    }

    /// On what terms the latest connection was authenticated.
    pub(crate) fn terms(&self) -> Arc<Mutex<Terms>> {
        Arc::clone(&self.terms)
    }
}

impl Driver for MyDriver {
    type Wire = MySqlWire;
    type Io = Socket;

    async fn connect(&self, budget: &Arc<Budget>) -> Result<Connected<Self>, Fault> {
        let Greeted { io, way, greeting, rest } = self.connect_to_any().await?;
        let statements = self.config.pool_options().statement_cache();
        let setup = Arc::clone(&self.setup);
        tracing::debug!(server = greeting.server_version, connection = greeting.connection_id, "connected");
        let wire = MySqlWire::new(budget, statements, setup)
            .with_number(greeting.connection_id)
            .with_database(self.config.get_database());
        let mut input = ReadBuffer::new();
        input.extend(&rest);
        Ok(Connected { io, wire, input, way })
    }

    fn has_unread(&self, io: &Socket) -> bool {
        io.has_unread()
    }

    fn cancel(&self, wire: &MySqlWire, io: &Socket) -> Option<Cancelling> {
        let number = wire.number()?;
        let host = match io.peer()? {
            Peer::Tcp(address) => {
                // The certificate names the host, not its address.
                let name =
                    encryption::server_name(io).map_or_else(|| address.ip().to_string(), str::to_owned);
                Host { kind: HostKind::Tcp(name), port: address.port(), address: Some(address.ip()) }
            }
            Peer::Unix(path) => Host { kind: HostKind::Unix(path), port: 0, address: None },
            Peer::Own(_, name, port) => Host { kind: HostKind::Tcp(name), port, address: None },
        };
        let driver = Self {
            config: self.config.clone(),
            key: self.key.clone(),
            setup: Arc::new([]),
            terms: Arc::default(),
        };
        Some(Box::pin(async move { driver.kill_query(&host, number).await }))
    }
}

impl MyDriver {
    /// Tries each host in turn, and each at all of its addresses, until one takes us or says that we are not known: the
    /// next one may know the same user no better. Each has its share of the time.
    async fn connect_to_any(&self) -> Result<Greeted, Fault> {
        let hosts = self.config.get_hosts()?;
        let mut shares = Shares::new(self.config.pool_options().connect_timeout(), hosts.len());
        let mut failure = None;
        for host in hosts {
            let share = shares.next_share();
            match share.bound(&host, self.connect_to_all_of(&host, share)).await {
                Ok(greeted) => return Ok(greeted),
                Err(error) if error.kind() == ErrorKind::Auth => return Err(error),
                Err(error) => failure = Some(error),
            }
        }
        Err(failure.unwrap_or_else(no_host))
    }

    async fn connect_to_all_of(&self, host: &Host, share: Share) -> Result<Greeted, Fault> {
        let places = match &host.kind {
            // The application's own streams are given names.
            HostKind::Tcp(name) if self.config.pool_options().transport().is_none() => {
                let addresses = attempts::addresses(name, host.port).await;
                let addresses = addresses.map_err(|error| socket::unreachable(host).with_source(error))?;
                addresses.into_iter().map(|address| host.at(address)).collect()
            }
            HostKind::Tcp(_) | HostKind::Unix(_) => vec![host.clone()],
        };
        let mut shares = Shares::new(share.time, places.len());
        let mut failure = None;
        for place in places {
            match shares.next_share().bound(&place, self.connect_to(&place)).await {
                Ok(greeted) => return Ok(greeted),
                Err(error) if error.kind() == ErrorKind::Auth => return Err(error),
                Err(error) => failure = Some(error),
            }
        }
        Err(failure.unwrap_or_else(no_host))
    }

    /// Has a connection's statement stop, from a connection of its own to the same server. Once that has said OK, a
    /// statement that is sent later is not hit: an idle connection takes no notice.
    /// Source: MySQL manual, "KILL Statement"; `THD::awake` in its sources.
    async fn kill_query(&self, host: &Host, number: u32) -> Cancelled {
        let Ok(Greeted { mut io, .. }) = self.connect_to(host).await else { return Cancelled::NotSent };
        let mut out = Out::default();
        command::query(&mut out, &Bytes::from(format!("KILL QUERY {number}")));
        let mut heard = [0; Header::LEN + 1];
        if io.write_all(out.front()).await.is_err() || io.flush().await.is_err() {
            return Cancelled::Unknown;
        }
        if io.read_exact(&mut heard).await.is_err() {
            return Cancelled::Unknown;
        }
        match heard.last() {
            Some(0x00) => Cancelled::Heard,
            // Refused: it is not there any more, or not ours to stop.
            Some(0xFF) => Cancelled::NotSent,
            _ => Cancelled::Unknown,
        }
    }

    /// Tries a place with and without TLS, as the mode says.
    async fn connect_to(&self, host: &Host) -> Result<Greeted, Fault> {
        let mut failure: Option<Fault> = None;
        for attempt in encryption::attempts(&self.config.ssl, host.is_unix()) {
            match self.greet(host, *attempt, failure.as_ref()).await {
                Ok(greeted) => return Ok(greeted),
                Err(error) if error.kind() == ErrorKind::Tls => failure = Some(error),
                Err(error) => return Err(error),
            }
        }
        Err(failure.unwrap_or_else(no_host))
    }

    /// `before` is why the way before this one has failed.
    async fn greet(&self, host: &Host, attempt: Attempt, before: Option<&Fault>) -> Result<Greeted, Fault> {
        let began = Instant::now();
        let mut io = self.open(host).await?;
        let way = began.elapsed();
        let mut terms = Terms {
            channel: if host.is_unix() { Channel::Private } else { Channel::Open },
            clear_text: self.config.allows_clear_text(),
            key: self.key.clone(),
            seed: seed().map_err(|error| socket::unreachable(host).with_source(error))?,
        };
        let mut startup = Startup::new(StartupParams {
            user: self.config.get_user()?,
            database: self.config.get_database().map(Into::into),
            terms: terms.clone(),
            encryption: attempt.encryption(self.config.ssl.mode),
        })?;
        let mut input = BytesMut::new();
        let mut output = Vec::new();
        loop {
            if !output.is_empty() {
                send(&mut io, &output, host).await?;
                output.clear();
            }
            match startup.receive(&mut input)? {
                Some(Step::Send(bytes)) => output = bytes,
                Some(Step::StartTls(request)) => {
                    // Only MariaDB can prove itself by the password.
                    if let Some(failure) = before.filter(|_| !startup.is_mariadb()) {
                        return Err(failure.clone());
                    }
                    send(&mut io, &request, host).await?;
                    let name = if let HostKind::Tcp(name) = &host.kind { name } else { "" };
                    let secured;
                    (io, secured) = encryption::encrypt(&self.config.ssl, attempt, io, name, host).await?;
                    startup.secured(secured)?;
                    terms.channel = startup.channel();
                    output = startup.answer_password(self.config.get_passwords().await?)?;
                }
                Some(Step::NeedPassword) => {
                    let passwords = self.config.get_passwords().await?;
                    output = startup.answer_password(passwords)?;
                }
                Some(Step::Done(greeting)) => {
                    *self.terms.lock().unwrap_or_else(PoisonError::into_inner) = terms;
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
        let place = match &host.kind {
            HostKind::Tcp(name) => Place::Tcp(name, host.address, host.port),
            HostKind::Unix(path) => Place::Unix(path),
        };
        let transport = self.config.pool_options().transport();
        Socket::open(place, self.config.get_tuning(), transport, host).await
    }
}

/// Randomness for one authentication.
pub(crate) fn seed() -> Result<[u8; 32], String> {
    let mut seed = [0; 32];
    SysRng
        .try_fill_bytes(&mut seed)
        .map_err(|error| format!("the operating system gives no random numbers: {error}"))?;
    Ok(seed)
}

#[cold]
fn no_host() -> Fault {
    Fault::new(ErrorKind::Config, Outcome::NotSent, "no host is configured; set `host`")
}

async fn send(io: &mut Socket, bytes: &[u8], host: &Host) -> Result<(), Fault> {
    let lost = |error| interrupted(host).with_source(error);
    io.write_all(bytes).await.map_err(lost)?;
    io.flush().await.map_err(lost)
}

/// The connection ended before it was authenticated.
fn interrupted(host: &Host) -> Fault {
    socket::interrupted(host, "MySQL")
}
