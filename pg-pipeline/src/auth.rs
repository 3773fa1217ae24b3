//! Proving who we are: the authentication part of the connection phase, as a state machine without a socket.
//!
//! This module may know authentication messages, passwords and SCRAM; it must not know how messages are framed,
//! where the password comes from, or what follows once the server is satisfied. Its only randomness is the
//! client's SCRAM nonce, which `postgres-protocol` draws (and which also bounds the server's iteration count).
//!
//! ```text
//!  Start ──Ok────────────────────────────────────────────────────► Accepted
//!    ├─ Cleartext, Md5 ─► Asked ──password──► Answered ──Ok──────► Accepted
//!    └─ Sasl ───────────► Asked ──password──► ScramFirst
//!                                                 │ SaslContinue
//!                                                 ▼
//!                                             ScramProof ──SaslFinal, signature right──► ScramProven ──Ok──► Accepted
//! ```
//!
//! Everything else is an error: once SCRAM has begun, an `Ok` counts only after the server has proven that it
//! knows the password too.
//!
//! Source: PostgreSQL documentation, "Start-up" and "SASL Authentication"; codes from "Message Formats".

use std::borrow::Cow;
use std::mem;

use bytes::BytesMut;
use postgres_protocol::authentication::{md5_hash, sasl};
use postgres_protocol::message::frontend;

use crate::error::{ErrorKind, Fault, Outcome};

const OK: i32 = 0;
const CLEARTEXT: i32 = 3;
const MD5: i32 = 5;
const SASL: i32 = 10;
const SASL_CONTINUE: i32 = 11;
const SASL_FINAL: i32 = 12;

/// The client's side of the exchange.
pub(crate) struct Authentication {
    user: String,
    require: RequireAuth,
    state: State,
}

enum State {
    Start,
    /// The password is wanted from the user of this machine.
    Asked(Challenge),
    Answered,
    ScramFirst(sasl::ScramSha256),
    ScramProof(sasl::ScramSha256),
    ScramProven,
    Accepted,
    /// An error was reported; nothing can follow.
    Failed,
}

enum Challenge {
    Cleartext,
    Md5([u8; 4]),
    Scram,
}

/// What an authentication message leads to.
pub(crate) enum Verdict {
    /// Call [`Authentication::answer`] with the password.
    NeedPassword,
    /// Send these bytes.
    Send(Vec<u8>),
    /// Nothing to do until the next message.
    Wait,
    /// The server is satisfied, and so are we.
    Accepted,
}

impl Authentication {
    pub(crate) fn new(user: String, require: RequireAuth) -> Self {
        Self { user, require, state: State::Start }
    }

    /// Whether the server has said anything about authentication yet.
    pub(crate) fn is_begun(&self) -> bool {
        !matches!(self.state, State::Start)
    }

    pub(crate) fn is_accepted(&self) -> bool {
        matches!(self.state, State::Accepted)
    }

    /// Takes the body of one authentication message.
    pub(crate) fn receive(&mut self, body: &[u8]) -> Result<Verdict, Fault> {
        let Some((code, data)) = body.split_first_chunk::<4>() else {
            return Err(malformed());
        };
        let code = i32::from_be_bytes(*code);
        match (mem::replace(&mut self.state, State::Failed), code) {
            (state, OK) => self.receive_ok(&state, data),
            (State::Start, CLEARTEXT) => {
                if !data.is_empty() {
                    return Err(malformed());
                }
                self.challenge(Method::Password, Challenge::Cleartext)
            }
            (State::Start, MD5) => {
                let salt = data.try_into().map_err(|_| malformed())?;
                self.challenge(Method::Md5, Challenge::Md5(salt))
            }
            (State::Start, SASL) => {
                choose_mechanism(data)?;
                self.challenge(Method::ScramSha256, Challenge::Scram)
            }
            (State::ScramFirst(mut scram), SASL_CONTINUE) => {
                scram.update(data).map_err(|cause| {
                    auth("the server's part of SCRAM-SHA-256 authentication is not valid").with_source(cause)
                })?;
                let reply = message(|buffer| frontend::sasl_response(scram.message(), buffer))?;
                self.state = State::ScramProof(scram);
                Ok(Verdict::Send(reply))
            }
            (State::ScramProof(mut scram), SASL_FINAL) => {
                scram.finish(data).map_err(|cause| {
                    auth("the server did not prove that it knows the password; it may be an impostor")
                        .with_source(cause)
                })?;
                self.state = State::ScramProven;
                Ok(Verdict::Wait)
            }
            (State::Start, other) => Err(not_offered(other)),
            _ => Err(protocol("the server sent an authentication message out of turn")),
        }
    }

    fn receive_ok(&mut self, state: &State, data: &[u8]) -> Result<Verdict, Fault> {
        if !data.is_empty() {
            return Err(malformed());
        }
        match state {
            State::Start => self.require.check(Method::None)?,
            State::Answered | State::ScramProven => {}
            State::ScramFirst(_) | State::ScramProof(_) => {
                return Err(auth(
                    "the server let us in before it proved that it knows the password; it may be an impostor",
                ));
            }
            State::Asked(_) | State::Accepted | State::Failed => {
                return Err(protocol("the server sent an authentication message out of turn"));
            }
        }
        self.state = State::Accepted;
        Ok(Verdict::Accepted)
    }

    fn challenge(&mut self, method: Method, challenge: Challenge) -> Result<Verdict, Fault> {
        self.require.check(method)?;
        self.state = State::Asked(challenge);
        Ok(Verdict::NeedPassword)
    }

    /// The message that answers the server's demand for a password.
    pub(crate) fn answer(&mut self, password: Option<&str>) -> Result<Vec<u8>, Fault> {
        let State::Asked(challenge) = mem::replace(&mut self.state, State::Failed) else {
            return Err(protocol("a password was given without being asked for"));
        };
        // An empty password counts as none, as in libpq: no server accepts one.
        let Some(password) = password.filter(|password| !password.is_empty()) else {
            return Err(auth(
                "the server asks for a password and none is set; set `password` or a password provider",
            ));
        };
        if password.contains('\0') {
            return Err(config("`password` contains a NUL byte"));
        }
        let (reply, next) = match challenge {
            Challenge::Cleartext => {
                (message(|buffer| frontend::password_message(password.as_bytes(), buffer))?, State::Answered)
            }
            Challenge::Md5(salt) => {
                let hash = md5_hash(self.user.as_bytes(), password.as_bytes(), salt);
                (message(|buffer| frontend::password_message(hash.as_bytes(), buffer))?, State::Answered)
            }
            Challenge::Scram => {
                // Without TLS there is no channel to bind to, and we say that we could not (`n,,`).
                let binding = sasl::ChannelBinding::unsupported();
                let scram = sasl::ScramSha256::new(password.as_bytes(), binding);
                let reply = message(|buffer| {
                    frontend::sasl_initial_response(sasl::SCRAM_SHA_256, scram.message(), buffer)
                })?;
                (reply, State::ScramFirst(scram))
            }
        };
        self.state = next;
        Ok(reply)
    }
}

/// Whether the mechanisms that the server offers hold one that we speak: a list of C strings that ends with
/// an empty one.
fn choose_mechanism(list: &[u8]) -> Result<(), Fault> {
    let Some(list) = list.strip_suffix(&[0]) else {
        return Err(malformed());
    };
    let mut offers = list.split(|byte| *byte == 0);
    if offers.clone().any(|name| name == sasl::SCRAM_SHA_256.as_bytes()) {
        return Ok(());
    }
    Err(auth(if offers.clone().any(|name| name == sasl::SCRAM_SHA_256_PLUS.as_bytes()) {
        "the server insists on SCRAM-SHA-256-PLUS, which needs TLS, and this version does not offer TLS yet"
    } else if offers.any(|name| name == b"OAUTHBEARER") {
        "the server asks for OAuth authentication, which this version does not offer"
    } else {
        "the server offers no SASL mechanism that this version speaks (SCRAM-SHA-256)"
    }))
}

fn not_offered(code: i32) -> Fault {
    let method = match code {
        1 => "Kerberos V4",
        2 => "Kerberos V5",
        4 => "crypt",
        6 => "SCM credential",
        7 | 8 => "GSSAPI",
        9 => "SSPI",
        SASL_CONTINUE | SASL_FINAL => {
            return protocol("the server sent an authentication message out of turn");
        }
        _ => "an unknown kind of",
    };
    auth(format!(
        "the server asks for {method} authentication, which this version does not offer; \
         it offers scram-sha-256, md5, password and trust"
    ))
}

/// A way of authentication by libpq's name for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Method {
    /// The server asks for nothing.
    None,
    Password,
    Md5,
    ScramSha256,
    Gss,
    Sspi,
    Oauth,
}

impl Method {
    const ALL: [Self; 7] =
        [Self::None, Self::Password, Self::Md5, Self::ScramSha256, Self::Gss, Self::Sspi, Self::Oauth];

    fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Password => "password",
            Self::Md5 => "md5",
            Self::ScramSha256 => "scram-sha-256",
            Self::Gss => "gss",
            Self::Sspi => "sspi",
            Self::Oauth => "oauth",
        }
    }

    fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// The methods that the user accepts: libpq's `require_auth`. Default: all.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct RequireAuth {
    allowed: u8,
}

impl Default for RequireAuth {
    fn default() -> Self {
        Self { allowed: u8::MAX }
    }
}

impl RequireAuth {
    /// Reads a comma-separated list of methods, either all accepted or, each behind a `!`, all refused.
    pub(crate) fn parse(list: &str) -> Result<Self, Fault> {
        if list.trim().is_empty() {
            return Ok(Self::default());
        }
        let wrong = || {
            config(
                "`require_auth` must be a list of none, password, md5, scram-sha-256, gss, sspi and oauth, \
                 each once, and either all or none of them behind a `!`",
            )
        };
        let negated = list.trim_start().starts_with('!');
        let mut named = 0;
        for entry in list.split(',').map(str::trim) {
            let name = match (negated, entry.strip_prefix('!')) {
                (true, Some(name)) => name,
                (false, None) => entry,
                _ => return Err(wrong()),
            };
            let method = Method::ALL.into_iter().find(|method| method.name() == name).ok_or_else(wrong)?;
            if named & method.bit() != 0 {
                return Err(wrong());
            }
            named |= method.bit();
        }
        Ok(Self { allowed: if negated { !named } else { named } })
    }

    fn check(self, method: Method) -> Result<(), Fault> {
        if self.allowed & method.bit() != 0 {
            return Ok(());
        }
        Err(auth(match method {
            Method::None => "the server asks for no authentication, which `require_auth` excludes".to_owned(),
            _ => {
                format!("the server asks for {} authentication, which `require_auth` excludes", method.name())
            }
        }))
    }
}

impl std::fmt::Debug for RequireAuth {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list()
            .entries(Method::ALL.into_iter().filter(|m| self.allowed & m.bit() != 0).map(Method::name))
            .finish()
    }
}

/// Builds one message. What can fail is a value that does not fit the protocol.
fn message(write: impl FnOnce(&mut BytesMut) -> std::io::Result<()>) -> Result<Vec<u8>, Fault> {
    let mut buffer = BytesMut::new();
    write(&mut buffer)
        .map_err(|cause| config("the password does not fit into a message").with_source(cause))?;
    Ok(buffer.into())
}

#[cold]
fn auth(message: impl Into<Cow<'static, str>>) -> Fault {
    Fault::new(ErrorKind::Auth, Outcome::NotSent, message)
}

#[cold]
fn config(message: &'static str) -> Fault {
    Fault::new(ErrorKind::Config, Outcome::NotSent, message)
}

#[cold]
fn protocol(message: &'static str) -> Fault {
    Fault::new(ErrorKind::Protocol, Outcome::NotSent, message)
}

#[cold]
fn malformed() -> Fault {
    protocol("the server sent a malformed authentication message")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn demand(code: i32, data: &[u8]) -> Vec<u8> {
        [&code.to_be_bytes()[..], data].concat()
    }

    #[test]
    fn require_auth_reads_both_kinds_of_list() {
        let allows = |list: &str, method| RequireAuth::parse(list).unwrap().check(method).is_ok();
        assert!(allows("", Method::None));
        assert!(allows("scram-sha-256", Method::ScramSha256));
        assert!(!allows("scram-sha-256", Method::Password));
        assert!(allows(" md5 , scram-sha-256 ", Method::Md5));
        assert!(allows("!password,!md5", Method::ScramSha256));
        assert!(!allows("!password,!md5", Method::Md5));
        assert!(!allows("!none", Method::None));
        for list in ["scram", "md5,!password", "!md5,password", "md5,md5", "md5,", ",", "!"] {
            let error = RequireAuth::parse(list).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Config, "{list}");
        }
    }

    #[test]
    fn a_method_that_the_user_excludes_is_refused_before_a_password_is_asked_for() {
        let cases: [(&str, i32, &[u8]); 4] = [
            ("!none", OK, b""),
            ("scram-sha-256", CLEARTEXT, b""),
            ("scram-sha-256", MD5, b"salt"),
            ("md5", SASL, b"SCRAM-SHA-256\0\0"),
        ];
        for (list, code, data) in cases {
            let mut machine = Authentication::new("u".to_owned(), RequireAuth::parse(list).unwrap());
            let error = machine.receive(&demand(code, data)).err().expect(list);
            assert_eq!(error.kind(), ErrorKind::Auth);
            assert!(error.to_string().contains("require_auth"), "{error}");
        }
    }

    #[test]
    fn methods_that_are_not_offered_are_named() {
        let cases: [(i32, &[u8], &str); 8] = [
            (2, b"", "Kerberos V5"),
            (7, b"", "GSSAPI"),
            (9, b"", "SSPI"),
            (77, b"", "unknown kind"),
            (SASL, b"SCRAM-SHA-256-PLUS\0\0", "needs TLS"),
            (SASL, b"OAUTHBEARER\0\0", "OAuth"),
            (SASL, b"\0", "no SASL mechanism"),
            (SASL, b"scram-sha-256\0\0", "no SASL mechanism"),
        ];
        for (code, data, word) in cases {
            let mut machine = Authentication::new("u".to_owned(), RequireAuth::default());
            let error = machine.receive(&demand(code, data)).err().expect(word);
            assert_eq!(error.kind(), ErrorKind::Auth, "{word}");
            assert!(error.to_string().contains(word), "{error}");
        }
    }

    #[test]
    fn malformed_demands_are_protocol_errors() {
        let bodies = [
            Vec::new(),
            vec![0, 0, 0],
            demand(OK, b"x"),
            demand(CLEARTEXT, b"x"),
            demand(MD5, b"sal"),
            demand(MD5, b"salty"),
            demand(SASL, b""),
            demand(SASL, b"SCRAM-SHA-256"),
            demand(SASL_CONTINUE, b"r=x"),
            demand(SASL_FINAL, b"v=x"),
        ];
        for body in bodies {
            let mut machine = Authentication::new("u".to_owned(), RequireAuth::default());
            let error = machine.receive(&body).err().expect("refused");
            assert_eq!(error.kind(), ErrorKind::Protocol, "{body:?}");
        }
    }
}
