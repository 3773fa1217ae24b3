//! The connection phase, from the first byte that we send to the server's first ReadyForQuery, as a state machine
//! without socket or clock.
//!
//! This module may know the messages of that phase and their order; it must not know where the server is, where
//! the password comes from, or what the connection is for.
//!
//! ```text
//!  new ─► StartupMessage
//!   │
//!   ▼
//!  Authenticating   R: see `auth`; v: once, before the first R
//!   │ R(Ok)
//!   ▼
//!  Settling         S: a parameter; K: the key for cancel requests
//!   │ Z(idle)
//!   ▼
//!  Over             what follows in the buffer belongs to the next phase
//! ```
//!
//! In every state: N is handed out, E ends the attempt with the server's own error, and any other message, or one
//! over its size limit, is a protocol error.
//!
//! Source: PostgreSQL documentation, "Message Flow: Start-up" and "Message Formats".

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use bytes::{BufMut as _, Bytes, BytesMut};
use postgres_protocol::message::frontend;

use super::fields::parse_error_fields;
use crate::auth::{Authentication, Channel, ChannelBinding, RequireAuth, Verdict};
use crate::error::{DatabaseError, ErrorKind, Fault, Outcome};

#[cfg(test)]
mod tests;

/// Type byte and length, which counts itself and not the type.
const HEADER: usize = 5;

/// No message of this phase is nearly as long; nothing is allocated by what a header announces anyway.
const MAX_MESSAGE: usize = 64 * 1024;

/// As libpq (`MAX_ERRLEN` in fe-connect.c).
const MAX_REPORT: usize = 30_000;

/// For all parameters together. A server reports about 15 of them, below 1 KiB.
const MAX_PARAMETERS: usize = 256 * 1024;

/// A version of the protocol, as messages write it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Version(u32);

impl Version {
    /// Since PostgreSQL 7.4.
    pub(crate) const V3_0: Self = Self(0x0003_0000);
    /// Since PostgreSQL 18: keys of cancel requests may be longer than 4 bytes. (3.1 was never used.)
    pub(crate) const V3_2: Self = Self(0x0003_0002);
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0 >> 16, self.0 & 0xFFFF)
    }
}

/// The oldest version that will do, and the newest, which is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Versions {
    pub(crate) oldest: Version,
    pub(crate) newest: Version,
}

impl Default for Versions {
    /// What every server and pooler speaks, as libpq.
    fn default() -> Self {
        Self { oldest: Version::V3_0, newest: Version::V3_0 }
    }
}

/// What the first message says.
#[derive(Debug, Clone, Default)]
pub(crate) struct StartupParams {
    pub(crate) user: String,
    /// `None` for the database named like the user.
    pub(crate) database: Option<String>,
    pub(crate) application_name: Option<String>,
    /// libpq's `options`.
    pub(crate) options: Option<String>,
    pub(crate) require_auth: RequireAuth,
    pub(crate) channel: Channel,
    pub(crate) channel_binding: ChannelBinding,
    pub(crate) versions: Versions,
}

/// One connection attempt.
pub(crate) struct Startup {
    authentication: Authentication,
    versions: Versions,
    negotiated: bool,
    parameter_bytes: usize,
    greeting: Greeting,
    over: bool,
}

/// What to do next.
#[derive(Debug)]
pub(crate) enum Step {
    /// Send these bytes.
    Send(Vec<u8>),
    /// Find the password and send what [`Startup::answer_password`] makes of it.
    NeedPassword,
    /// The same with an OAuth token.
    NeedToken,
    /// Show this to whoever wants notices, and go on.
    Notice(Box<DatabaseError>),
    /// The server is ready for queries.
    Done(Greeting),
}

/// What the server told about itself and this connection.
#[derive(Debug, Clone, Default)]
pub(crate) struct Greeting {
    /// As reported by ParameterStatus: `server_version`, `TimeZone` …
    pub(crate) parameters: BTreeMap<String, String>,
    /// What a cancel request must carry; `None` if the server (some poolers) does not take any.
    pub(crate) key: Option<BackendKey>,
}

/// What a cancel request must carry.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct BackendKey {
    pub(crate) process_id: i32,
    /// 4 bytes in protocol 3.0, up to 256 since 3.2.
    pub(crate) secret: Bytes,
}

impl BackendKey {
    /// What is sent, on a connection of its own, to cancel what the backend is at.
    /// Source: PostgreSQL documentation, Message Formats, `CancelRequest`.
    pub(crate) fn cancel_request(&self) -> Bytes {
        let length = 12 + self.secret.len();
        let mut request = BytesMut::with_capacity(length);
        request.put_u32(length as u32);
        request.put_u32(80_877_102);
        request.put_i32(self.process_id);
        request.put_slice(&self.secret);
        request.freeze()
    }
}

// By hand: whoever knows the secret can cancel our queries.
impl fmt::Debug for BackendKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BackendKey").field("process_id", &self.process_id).finish_non_exhaustive()
    }
}

impl Startup {
    /// Begins an attempt; the bytes are the first to send.
    ///
    /// Only what is set is sent, and of session parameters only the encoding: poolers refuse others.
    pub(crate) fn new(params: StartupParams) -> Result<(Self, Vec<u8>), Fault> {
        let StartupParams { user, database, application_name, options, .. } = params;
        let database = database.unwrap_or_else(|| user.clone());
        let mut list =
            vec![("user", user.as_str()), ("database", database.as_str()), ("client_encoding", "UTF8")];
        list.extend(application_name.as_deref().map(|name| ("application_name", name)));
        list.extend(options.as_deref().map(|options| ("options", options)));
        // A NUL would end the value and make what follows the next parameter.
        if let Some((name, _)) = list.iter().find(|(_, value)| value.contains('\0')) {
            return Err(config(format!("`{name}` contains a NUL byte")));
        }
        if user.is_empty() {
            return Err(config("`user` is empty"));
        }
        let mut first = BytesMut::new();
        frontend::startup_message(list, &mut first).map_err(|cause| {
            config("the connection's parameters do not fit into a message").with_source(cause)
        })?;
        // Behind the length; `postgres-protocol` asks for 3.0.
        if let Some(version) = first.get_mut(4..8) {
            version.copy_from_slice(&params.versions.newest.0.to_be_bytes());
        }
        let (require, channel, binding) = (params.require_auth, params.channel, params.channel_binding);
        let startup = Self {
            authentication: Authentication::new(user, require, channel, binding),
            versions: params.versions,
            negotiated: false,
            parameter_bytes: 0,
            greeting: Greeting::default(),
            over: false,
        };
        Ok((startup, first.into()))
    }

    /// Takes whole messages from the front of `input` until there is something to do; `None` when more bytes are
    /// needed. After [`Step::Done`] the rest of `input` is the next phase's. An error ends the attempt.
    pub(crate) fn receive(&mut self, input: &mut BytesMut) -> Result<Option<Step>, Fault> {
        while let Some((tag, body)) = next_message(input)? {
            if let Some(step) = self.take(tag, &body)? {
                return Ok(Some(step));
            }
        }
        Ok(None)
    }

    /// What to send after [`Step::NeedPassword`] and [`Step::NeedToken`]; `None` if there is no password, which is an error of kind
    /// [`ErrorKind::Auth`] that says so.
    pub(crate) fn answer_password(&mut self, password: Option<&str>) -> Result<Vec<u8>, Fault> {
        self.authentication.answer(password)
    }

    fn take(&mut self, tag: u8, body: &Bytes) -> Result<Option<Step>, Fault> {
        let settling = self.authentication.is_accepted();
        match tag {
            _ if self.over => return Err(protocol("the connection phase is over")),
            b'E' => return Err(refused(report(body)?)),
            b'N' => return Ok(Some(Step::Notice(Box::new(report(body)?)))),
            b'R' => {
                return Ok(match self.authentication.receive(body)? {
                    Verdict::NeedPassword => Some(Step::NeedPassword),
                    Verdict::NeedToken => Some(Step::NeedToken),
                    Verdict::Send(bytes) => Some(Step::Send(bytes)),
                    Verdict::Wait | Verdict::Accepted => None,
                });
            }
            b'v' if !self.authentication.is_begun() && !self.negotiated => {
                self.negotiated = true;
                negotiate(body, self.versions)?;
            }
            b'S' if settling => self.add_parameter(body)?,
            b'K' if settling => self.greeting.key = Some(backend_key(body)?),
            b'Z' if settling => {
                if **body != *b"I" {
                    return Err(protocol("the server is not idle after the connection phase"));
                }
                self.over = true;
                return Ok(Some(Step::Done(std::mem::take(&mut self.greeting))));
            }
            _ => {
                return Err(protocol(
                    "the server sent a message that does not belong into the connection phase",
                ));
            }
        }
        Ok(None)
    }

    fn add_parameter(&mut self, body: &[u8]) -> Result<(), Fault> {
        let malformed = || protocol("the server sent a malformed ParameterStatus");
        let [name, value, end] = body.splitn(3, |byte| *byte == 0).collect::<Vec<_>>()[..] else {
            return Err(malformed());
        };
        if !end.is_empty() {
            return Err(malformed());
        }
        self.parameter_bytes = self.parameter_bytes.saturating_add(body.len());
        if self.parameter_bytes > MAX_PARAMETERS {
            return Err(protocol("the server reports more parameters than any server has"));
        }
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        self.greeting.parameters.insert(text(name), text(value));
        Ok(())
    }
}

/// One whole message from the front of `input`, judged by its header as soon as that has arrived.
fn next_message(input: &mut BytesMut) -> Result<Option<(u8, Bytes)>, Fault> {
    let Some(&tag) = input.first() else {
        return Ok(None);
    };
    let limit = match tag {
        b'E' | b'N' => MAX_REPORT,
        b'R' | b'v' | b'S' | b'K' | b'Z' => MAX_MESSAGE,
        _ => {
            return Err(protocol(
                "the peer does not speak PostgreSQL's protocol, or sent a message out of turn; \
                 check host and port",
            ));
        }
    };
    let Some((header, _)) = input.split_first_chunk::<HEADER>() else {
        return Ok(None);
    };
    let [_, a, b, c, d] = *header;
    let length = usize::try_from(u32::from_be_bytes([a, b, c, d])).unwrap_or(usize::MAX);
    if tag == b'E' && [a, b, c, d].iter().all(|byte| matches!(byte, b' '..=b'~')) {
        return plain_refusal(input);
    }
    if length < HEADER - 1 || length > limit {
        return Err(protocol("the server sent a message of impossible length"));
    }
    let whole = length + 1;
    if input.len() < whole {
        return Ok(None);
    }
    let body = input.split_to(whole).split_off(HEADER).freeze();
    Ok(Some((tag, body)))
}

/// A server that cannot even start a process for us answers as in protocol 2: `E`, text, NUL. As a length the
/// first letters would be far over every limit, so the two cannot be confused.
///
/// Source: `report_fork_failure_to_client` in PostgreSQL's postmaster.c.
fn plain_refusal<T>(input: &[u8]) -> Result<Option<T>, Fault> {
    let text = input.get(1..).unwrap_or_default();
    let end = text.iter().take(MAX_REPORT).position(|byte| *byte == 0);
    match end.and_then(|end| text.get(..end)) {
        Some(text) => Err(Fault::new(
            ErrorKind::Connect,
            Outcome::NotSent,
            format!("the server refused the connection: {}", String::from_utf8_lossy(text).trim_end()),
        )),
        None if text.len() < MAX_REPORT => Ok(None),
        None => Err(protocol("the server sent a message of impossible length")),
    }
}

fn report(body: &[u8]) -> Result<DatabaseError, Fault> {
    parse_error_fields(body).map_err(|fault| fault.with_outcome(Outcome::NotSent))
}

/// The server's refusal: class 28 is about who we are, everything else about this attempt.
fn refused(error: DatabaseError) -> Fault {
    let (kind, words) = if error.code().starts_with("28") {
        (ErrorKind::Auth, "the server did not authenticate us")
    } else {
        (ErrorKind::Connect, "the server refused the connection")
    };
    Fault::new(kind, Outcome::NotSent, words).with_server(Arc::new(error))
}

/// NegotiateProtocolVersion: the newest version that the server speaks of those up to ours, and the options of the
/// protocol that it does not know, of which we ask for none.
///
/// The documentation calls the number a minor version; servers send the whole version. Some poolers send it although
/// they speak what was asked for.
fn negotiate(body: &[u8], versions: Versions) -> Result<(), Fault> {
    let Some((version, options)) = body.split_first_chunk::<4>() else {
        return Err(protocol("the server sent a malformed NegotiateProtocolVersion"));
    };
    let version = match u32::from_be_bytes(*version) {
        minor @ 0..=0xFFFF => Version(Version::V3_0.0 | minor),
        whole => Version(whole),
    };
    if version > versions.newest || version < Version::V3_0 {
        return Err(protocol("the server answers with a version of the protocol that was not asked for"));
    }
    if options != [0; 4] {
        return Err(protocol("the server rejects protocol options that were not asked for"));
    }
    if version < versions.oldest {
        let Versions { oldest, .. } = versions;
        return Err(Fault::new(
            ErrorKind::Connect,
            Outcome::NotSent,
            format!("the server speaks protocol {version} at most, and `min_protocol_version` is {oldest}"),
        ));
    }
    Ok(())
}

fn backend_key(body: &Bytes) -> Result<BackendKey, Fault> {
    let malformed = || protocol("the server sent a malformed BackendKeyData");
    let (process_id, secret) = body.split_first_chunk::<4>().ok_or_else(malformed)?;
    if !(4..=256).contains(&secret.len()) {
        return Err(malformed());
    }
    Ok(BackendKey { process_id: i32::from_be_bytes(*process_id), secret: Bytes::copy_from_slice(secret) })
}

#[cold]
fn config(message: impl Into<Cow<'static, str>>) -> Fault {
    Fault::new(ErrorKind::Config, Outcome::NotSent, message)
}

#[cold]
fn protocol(message: &'static str) -> Fault {
    Fault::new(ErrorKind::Protocol, Outcome::NotSent, message)
}
