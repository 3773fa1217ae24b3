//! The connection phase, from the server's greeting to its first OK, as a state machine without socket or clock.
//!
//! This module may know the packets of that phase and their order; it must not know where the server is, where
//! the password comes from, or what the connection is for.
//!
//! ```text
//!  Greeting         HandshakeV10, sequence 0, or an ERR in its place (too many connections)
//!   │ TLS is wanted, and the server has it: SSLRequest, and not a byte may have come behind the greeting
//!   ├──────────────▶ Securing   the driver does the handshake of TLS, and tells what came of it
//!   │                  │
//!   │ ask for the password
//!   ▼                  ▼
//!  Asked
//!   │ HandshakeResponse41
//!   ▼
//!  Authenticating   0x01: see `auth`; 0xFE: another method; 0x02: a further factor
//!   │ OK (where the certificate is still to be proven: with the proof)
//!   ▼
//!  Over             what follows in the buffer belongs to the next phase
//! ```
//!
//! In every state an ERR ends the attempt with the server's own error; a packet of another kind, out of order, or over
//! its size limit is a protocol error.
//!
//! Sources: MySQL internals, "Connection Phase", `Protocol::HandshakeV10`, `Protocol::SSLRequest`,
//! `Protocol::HandshakeResponse41`; MariaDB documentation, "Connecting" (client/server protocol).

use std::borrow::Cow;
use std::mem;
use std::sync::Arc;

use bytes::{BufMut, BytesMut};

use super::packet::{Header, Sequence};
use super::response::{Done, parse_error};
use crate::auth::{self, Authentication, Channel, NONCE, Passwords, Plugin, Terms, Verdict};
use crate::error::{DatabaseError, ErrorKind, Fault, Outcome};

#[cfg(test)]
mod tests;

/// No packet of this phase is nearly as long; nothing is allocated by what a header announces anyway.
const MAX_PACKET: usize = 64 * 1024;

/// Capabilities. Source: MySQL internals, "Capabilities Flags".
mod capability {
    pub(super) const LONG_PASSWORD: u32 = 1;
    /// `affected_rows` counts rows that were found, also those that had the new values already.
    pub(super) const FOUND_ROWS: u32 = 1 << 1;
    pub(super) const LONG_FLAG: u32 = 1 << 2;
    pub(super) const CONNECT_WITH_DB: u32 = 1 << 3;
    pub(super) const PROTOCOL_41: u32 = 1 << 9;
    /// TLS.
    pub(super) const SSL: u32 = 1 << 11;
    pub(super) const TRANSACTIONS: u32 = 1 << 13;
    pub(super) const SECURE_CONNECTION: u32 = 1 << 15;
    pub(super) const MULTI_RESULTS: u32 = 1 << 17;
    pub(super) const PS_MULTI_RESULTS: u32 = 1 << 18;
    pub(super) const PLUGIN_AUTH: u32 = 1 << 19;
    pub(super) const PLUGIN_AUTH_LENENC: u32 = 1 << 21;
    pub(super) const SESSION_TRACK: u32 = 1 << 23;
    pub(super) const DEPRECATE_EOF: u32 = 1 << 24;
    pub(super) const MULTI_FACTOR: u32 = 1 << 28;

    /// Without these there is no talking to each other.
    pub(super) const NEEDED: u32 = PROTOCOL_41 | SECURE_CONNECTION | PLUGIN_AUTH | DEPRECATE_EOF;
    /// What we ask for if the server has it. Never `LOCAL_FILES` (a server could ask for any file of ours, and would
    /// take the commands behind it for the file) and never `MULTI_STATEMENTS` (a text that somebody slipped a second
    /// statement into must not run): scripts switch that on and off for themselves.
    pub(super) const WANTED: u32 = NEEDED
        | LONG_PASSWORD
        | FOUND_ROWS
        | LONG_FLAG
        | TRANSACTIONS
        | MULTI_RESULTS
        | PS_MULTI_RESULTS
        | PLUGIN_AUTH_LENENC
        | SESSION_TRACK
        | MULTI_FACTOR;
}

/// `utf8mb4_general_ci`, which every server knows; `SET NAMES` follows.
pub(super) const COLLATION: u8 = 45;

/// What the first packet of ours says.
#[derive(Debug, Clone, Default)]
pub(crate) struct StartupParams {
    pub(crate) user: String,
    pub(crate) database: Option<String>,
    pub(crate) terms: Terms,
    pub(crate) encryption: Encryption,
}

/// Whether the connection is to be encrypted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Encryption {
    /// Never.
    #[default]
    None,
    /// Where the server has it. Whoever sits in between can take that word out of the greeting.
    IfOffered,
    /// Or the attempt fails; the name of the mode that says so.
    Required(&'static str),
}

/// What came of the handshake of TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Secured {
    /// It went as the user asked for.
    Accepted,
    /// Nobody who is trusted has signed the certificate of this digest (SHA-256): the server must prove that it is its own.
    Unproven([u8; 32]),
}

/// One connection attempt.
pub(crate) struct Startup {
    params: StartupParams,
    sequence: Sequence,
    state: State,
    greeting: Greeting,
    /// The greeting's challenge, and the digest of a certificate, which the server's last OK must prove.
    to_prove: Option<([u8; NONCE], [u8; 32])>,
}

enum State {
    Greeting,
    /// The handshake of TLS is the driver's.
    Securing {
        plugin: Plugin,
        nonce: [u8; NONCE],
        capabilities: u32,
    },
    /// The password is wanted from the user of this machine.
    Asked {
        plugin: Plugin,
        nonce: [u8; NONCE],
        capabilities: u32,
    },
    Authenticating(Box<Authentication>),
    /// Done, or failed: nothing can follow.
    Over,
}

/// What to do next.
#[derive(Debug)]
pub(crate) enum Step {
    /// Send these bytes.
    Send(Vec<u8>),
    /// Send these bytes, then do the handshake of TLS, and tell [`Startup::secured`] what came of it.
    StartTls(Vec<u8>),
    /// Find the password and send what [`Startup::answer_password`] makes of it.
    NeedPassword,
    /// The server is ready for commands.
    Done(Greeting),
}

/// What the server told about itself and this connection.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Greeting {
    pub(crate) server_version: String,
    /// What KILL needs.
    pub(crate) connection_id: u32,
    pub(crate) is_mariadb: bool,
}

impl Startup {
    /// Begins an attempt; the server speaks first.
    pub(crate) fn new(params: StartupParams) -> Result<Self, Fault> {
        // A NUL would end the value and make what follows the next field.
        if params.user.contains('\0') {
            return Err(config("`user` contains a NUL byte"));
        }
        if params.database.as_ref().is_some_and(|database| database.contains('\0')) {
            return Err(config("`database` contains a NUL byte"));
        }
        Ok(Self {
            params,
            sequence: Sequence(0),
            state: State::Greeting,
            greeting: Greeting::default(),
            to_prove: None,
        })
    }

    /// Takes whole packets from the front of `input` until there is something to do; `None` when more bytes are
    /// needed. After [`Step::Done`] the rest of `input` is the next phase's. An error ends the attempt.
    pub(crate) fn receive(&mut self, input: &mut BytesMut) -> Result<Option<Step>, Fault> {
        loop {
            let Some(header) = Header::parse(input) else { return Ok(None) };
            if header.len > MAX_PACKET {
                return Err(protocol(
                    "the peer does not speak MySQL's protocol, or sent a packet of impossible length; check host and \
                     port",
                ));
            }
            // Judged by its first byte, because what looks like a length may be one that never comes.
            let first = input.get(Header::LEN);
            let is_greeting = first.is_none_or(|first| matches!(first, 0x0A | 0xFF));
            if matches!(self.state, State::Greeting) && (header.sequence != 0 || !is_greeting) {
                return Err(protocol("the peer does not speak MySQL's protocol; check host and port"));
            }
            if input.len() < header.total() {
                return Ok(None);
            }
            let packet = input.split_to(header.total()).split_off(Header::LEN);
            let step = self.take(header, &packet)?;
            if matches!(step, Some(Step::StartTls(_))) && !input.is_empty() {
                // What came in clear would be taken for what was encrypted.
                self.state = State::Over;
                return Err(protocol("the server, or whoever sits in between, sent something ahead of TLS"));
            }
            if step.is_some() {
                return Ok(step);
            }
        }
    }

    /// Whether the server has said that it is MariaDB.
    pub(crate) fn is_mariadb(&self) -> bool {
        self.greeting.is_mariadb
    }

    /// On what terms the rest runs; known once the connection is secured, if it is to be.
    pub(crate) fn channel(&self) -> Channel {
        self.params.terms.channel
    }

    /// Goes on after [`Step::StartTls`]: the password is wanted next.
    pub(crate) fn secured(&mut self, secured: Secured) -> Result<(), Fault> {
        let State::Securing { plugin, nonce, capabilities } = mem::replace(&mut self.state, State::Over)
        else {
            return Err(protocol("TLS was started without being asked for"));
        };
        self.params.terms.channel = match secured {
            Secured::Accepted => Channel::Private,
            Secured::Unproven(certificate) => {
                self.to_prove = Some((nonce, certificate));
                Channel::Unproven
            }
        };
        self.state = State::Asked { plugin, nonce, capabilities };
        Ok(())
    }

    /// What to send after [`Step::NeedPassword`].
    pub(crate) fn answer_password(&mut self, passwords: Passwords) -> Result<Vec<u8>, Fault> {
        let State::Asked { plugin, nonce, capabilities } = mem::replace(&mut self.state, State::Over) else {
            return Err(protocol("a password was given without being asked for"));
        };
        let terms = mem::take(&mut self.params.terms);
        let (authentication, response) = Authentication::begin(terms, passwords, plugin, &nonce)?;
        let packet = self.response(capabilities, plugin, &response)?;
        self.state = State::Authenticating(Box::new(authentication));
        Ok(self.frame(&packet))
    }

    fn take(&mut self, header: Header, packet: &[u8]) -> Result<Option<Step>, Fault> {
        let in_order = self.sequence.accept(header);
        if let [0xFF, ..] = packet {
            self.state = State::Over;
            return Err(refused(parse_error(packet).map_err(|fault| fault.with_outcome(Outcome::NotSent))?));
        }
        if !in_order {
            return Err(protocol("the server sent a packet out of order"));
        }
        match (mem::replace(&mut self.state, State::Over), packet) {
            (State::Greeting, packet) => self.greet(packet).map(Some),
            (State::Authenticating(authentication), [0x00, ..]) => {
                self.check_proof(&authentication, packet)?;
                Ok(Some(Step::Done(mem::take(&mut self.greeting))))
            }
            (State::Authenticating(mut authentication), [0xFE, request @ ..]) => {
                let response = authentication.switch(request)?;
                self.state = State::Authenticating(authentication);
                Ok(Some(Step::Send(self.frame(&response))))
            }
            (State::Authenticating(mut authentication), [0x01, data @ ..]) => {
                let verdict = authentication.more(data)?;
                self.state = State::Authenticating(authentication);
                Ok(self.step(verdict))
            }
            (State::Authenticating(mut authentication), [0x02, request @ ..]) => {
                let response = authentication.next_factor(request)?;
                self.state = State::Authenticating(authentication);
                Ok(Some(Step::Send(self.frame(&response))))
            }
            (State::Authenticating(mut authentication), [_, ..]) => {
                let verdict = authentication.bare(packet)?;
                self.state = State::Authenticating(authentication);
                Ok(self.step(verdict))
            }
            _ => Err(protocol("the server sent a packet that does not belong into the connection phase")),
        }
    }

    fn step(&mut self, verdict: Verdict) -> Option<Step> {
        match verdict {
            Verdict::Send(packet) => Some(Step::Send(self.frame(&packet))),
            Verdict::Wait => None,
        }
    }

    /// Where the certificate is still to be proven, this OK must do it.
    fn check_proof(&self, authentication: &Authentication, packet: &[u8]) -> Result<(), Fault> {
        let Some((nonce, certificate)) = &self.to_prove else { return Ok(()) };
        let expected = authentication.proof_of_server(nonce, certificate);
        let said = Done::parse(packet).map_err(|fault| fault.with_outcome(Outcome::NotSent))?.info;
        if expected.is_some_and(|expected| said.is_some_and(|said| said.as_bytes() == expected)) {
            return Ok(());
        }
        Err(Fault::new(
            ErrorKind::Tls,
            Outcome::NotSent,
            "the server's certificate is not signed by a trusted authority, and the server did not prove that it is its \
             own; set `ssl-ca`, and on a user without a password set one",
        ))
    }

    fn greet(&mut self, packet: &[u8]) -> Result<Step, Fault> {
        let greeting = Handshake::parse(packet)?;
        let missing = capability::NEEDED & !greeting.capabilities;
        if missing != 0 {
            return Err(Fault::new(
                ErrorKind::Connect,
                Outcome::NotSent,
                format!(
                    "the server (or proxy) is too old for this driver: it lacks {}",
                    if missing & capability::DEPRECATE_EOF == 0 { "protocol 4.1" } else { "DEPRECATE_EOF" }
                ),
            ));
        }
        let capabilities = capability::WANTED & greeting.capabilities;
        let capabilities = match &self.params.database {
            Some(_) if greeting.capabilities & capability::CONNECT_WITH_DB == 0 => {
                return Err(protocol("the server does not let us choose a database"));
            }
            Some(_) => capabilities | capability::CONNECT_WITH_DB,
            None => capabilities,
        };
        self.greeting = Greeting {
            server_version: String::from_utf8_lossy(greeting.version).into_owned(),
            connection_id: greeting.connection_id,
            // The other servers have this bit. Source: MariaDB documentation, "Connecting": `CLIENT_MYSQL`.
            is_mariadb: greeting.capabilities & capability::LONG_PASSWORD == 0,
        };
        // It may not be the user's: the server will ask for that one.
        let plugin = Plugin::to_begin_with(greeting.plugin);
        let nonce = greeting.nonce;
        let offered = greeting.capabilities & capability::SSL != 0;
        match self.params.encryption {
            Encryption::Required(mode) if !offered => Err(Fault::new(
                ErrorKind::Tls,
                Outcome::NotSent,
                format!(
                    "the server offers no TLS, or somebody in between has taken that out, and sslMode={mode} asks for it; \
                     nothing was sent; set up TLS on the server"
                ),
            )),
            Encryption::Required(_) | Encryption::IfOffered if offered => {
                let capabilities = capabilities | capability::SSL;
                self.state = State::Securing { plugin, nonce, capabilities };
                let request = self.frame(&head(capabilities));
                Ok(Step::StartTls(request))
            }
            _ => {
                self.state = State::Asked { plugin, nonce, capabilities };
                Ok(Step::NeedPassword)
            }
        }
    }

    fn response(&self, capabilities: u32, plugin: Plugin, response: &[u8]) -> Result<Vec<u8>, Fault> {
        let mut packet = head(capabilities);
        packet.put_slice(self.params.user.as_bytes());
        packet.put_u8(0);
        // One byte of length is enough, with PLUGIN_AUTH_LENENC or without: a response has 0, 20 or 32 bytes.
        let length = u8::try_from(response.len())
            .ok()
            .filter(|length| *length < 0xFB)
            .ok_or_else(|| protocol("a response of impossible length"))?;
        packet.put_u8(length);
        packet.put_slice(response);
        if let Some(database) = &self.params.database {
            packet.put_slice(database.as_bytes());
            packet.put_u8(0);
        }
        packet.put_slice(plugin.name().as_bytes());
        packet.put_u8(0);
        if packet.len() > MAX_PACKET {
            return Err(config("`user` and `database` are too long"));
        }
        Ok(packet)
    }

    /// One packet of ours; the sequence runs on through the phase.
    fn frame(&mut self, packet: &[u8]) -> Vec<u8> {
        let [a, b, c, _] = (packet.len() as u32).to_le_bytes();
        let framed = [&[a, b, c, self.sequence.0], packet].concat();
        self.sequence.0 = self.sequence.0.wrapping_add(1);
        framed
    }
}

/// What `SSLRequest` and the response to the greeting begin with; the former is nothing else.
fn head(capabilities: u32) -> Vec<u8> {
    let mut packet = Vec::with_capacity(128);
    packet.put_u32_le(capabilities);
    // The largest packet that we would send: no limit of ours. Its own the server tells with an error.
    packet.put_u32_le(1 << 30);
    packet.put_u8(COLLATION);
    packet.put_bytes(0, 23);
    packet
}

/// The server's greeting.
struct Handshake<'a> {
    version: &'a [u8],
    connection_id: u32,
    nonce: [u8; NONCE],
    capabilities: u32,
    plugin: &'a [u8],
}

impl<'a> Handshake<'a> {
    fn parse(packet: &'a [u8]) -> Result<Self, Fault> {
        match packet.first() {
            Some(10) => Self::read(packet).ok_or_else(|| protocol("the server sent a malformed greeting")),
            Some(_) => Err(protocol("the peer does not greet as a MySQL server; check host and port")),
            None => Err(protocol("the server sent an empty greeting")),
        }
    }

    /// Source: MySQL internals, `Protocol::HandshakeV10`: 10, version (NUL), connection (4), challenge (8), 0,
    /// capabilities (2), collation (1), status (2), capabilities (2), length of the challenge (1), reserved (10), rest
    /// of the challenge (at least 13, with a NUL), plugin (NUL).
    fn read(packet: &'a [u8]) -> Option<Self> {
        let rest = packet.get(1..)?;
        let end = rest.iter().position(|byte| *byte == 0)?;
        let version = rest.get(..end)?;
        let rest = rest.get(end + 1..)?;
        let (connection_id, rest) = rest.split_first_chunk::<4>()?;
        let (challenge, rest) = rest.split_first_chunk::<8>()?;
        let ([0, low @ .., _, _, _, high0, high1, length], rest) = rest.split_first_chunk::<9>()? else {
            return None;
        };
        let low: [u8; 2] = *low;
        let capabilities = u32::from_le_bytes([low[0], low[1], *high0, *high1]);
        let rest = rest.get(10..)?;
        let remaining = usize::from(*length).saturating_sub(8).max(13);
        let (tail, plugin) = match rest.split_at_checked(remaining) {
            Some(split) => split,
            // Old servers leave the last NUL out.
            None => (rest, &[][..]),
        };
        let tail = tail.get(..NONCE - 8)?;
        let nonce = auth::nonce::<NONCE>(&[challenge, tail].concat()).ok()?;
        let plugin = plugin.split(|byte| *byte == 0).next().unwrap_or_default();
        Some(Self { version, connection_id: u32::from_le_bytes(*connection_id), nonce, capabilities, plugin })
    }
}

/// The server's refusal: some are about who we are, everything else is about this attempt.
pub(crate) fn refused(error: DatabaseError) -> Fault {
    // Host not allowed (1130), no common protocol (1251), password expired (1820, 1862), account locked (3118, 4151).
    let about_us = error.sqlstate().starts_with("28")
        || matches!(error.number(), 1130 | 1251 | 1820 | 1862 | 3118 | 4151);
    let (kind, words) = if matches!(error.number(), 1820 | 1862) {
        // That we could handle such a session is not said: nothing but ALTER USER would run in it.
        (ErrorKind::Auth, "the password has expired; change it with ALTER USER from another client")
    } else if about_us {
        (ErrorKind::Auth, "the server did not authenticate us")
    } else {
        (ErrorKind::Connect, "the server refused the connection")
    };
    Fault::new(kind, Outcome::NotSent, words).with_server(Arc::new(error))
}

#[cold]
fn config(message: impl Into<Cow<'static, str>>) -> Fault {
    Fault::new(ErrorKind::Config, Outcome::NotSent, message)
}

#[cold]
fn protocol(message: &'static str) -> Fault {
    Fault::new(ErrorKind::Protocol, Outcome::NotSent, message)
}
