//! Proving who we are: the authentication part of the connection phase, as a state machine without a socket.
//!
//! This module may know authentication messages, passwords and SCRAM; it must not know how messages are framed,
//! where the password comes from, or what follows once the server is satisfied. Its only randomness is the
//! client's SCRAM nonce, which `postgres-protocol` draws (and which also bounds the server's iteration count).
//!
//! ```text
//!  Start ──Ok────────────────────────────────────────────────────► Accepted
//!    ├─ Cleartext, Md5 ─► Asked ──password──► Answered ──Ok──────► Accepted
//!    ├─ Sasl, OAuth ────► Asked ──token─────► Answered ──Ok──────► Accepted
//!    │                                            └─ SaslContinue: why not ─► Rejected ─► the server's error
//!    └─ Sasl, SCRAM ────► Asked ──password──► ScramFirst
//!                                                 │ SaslContinue
//!                                                 ▼
//!                                             ScramProof ──SaslFinal, signature right──► ScramProven ──Ok──► Accepted
//! ```
//!
//! Everything else is an error: once SCRAM has begun, an `Ok` counts only after the server has proven that it
//! knows the password too; and where channel binding is required, nothing but a proof over this channel counts.
//!
//! Source: PostgreSQL documentation, "Start-up" and "SASL Authentication"; codes from "Message Formats".

mod binding;
mod require;

use std::borrow::Cow;
use std::mem;

use bytes::BytesMut;
use postgres_protocol::authentication::{md5_hash, sasl};
use postgres_protocol::message::frontend;

pub use self::binding::ChannelBinding;
pub(crate) use self::binding::{Channel, end_point};
use self::require::Method;
pub(crate) use self::require::RequireAuth;
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
    channel: Channel,
    binding: ChannelBinding,
    state: State,
}

enum State {
    Start,
    /// The password is wanted from the user of this machine.
    Asked(Challenge),
    Answered,
    /// A token was sent.
    Shown,
    /// The server has said why the token will not do, and is about to say that it refuses us.
    Rejected,
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
    Scram(Mechanism),
    Oauth,
}

/// A mechanism of SASL that was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mechanism {
    Scram,
    /// With the channel bound to it.
    ScramPlus,
    Oauth,
}

/// What an authentication message leads to.
pub(crate) enum Verdict {
    /// Call [`Authentication::answer`] with the password.
    NeedPassword,
    /// Call [`Authentication::answer`] with a token.
    NeedToken,
    /// Send these bytes.
    Send(Vec<u8>),
    /// Nothing to do until the next message.
    Wait,
    /// The server is satisfied, and so are we.
    Accepted,
}

impl Authentication {
    pub(crate) fn new(user: String, require: RequireAuth, channel: Channel, binding: ChannelBinding) -> Self {
        Self { user, require, channel, binding, state: State::Start }
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
            (State::Start, SASL) => match self.choose_mechanism(data)? {
                Mechanism::Oauth => {
                    self.challenge(Method::Oauth, Challenge::Oauth)?;
                    Ok(Verdict::NeedToken)
                }
                scram => self.challenge(Method::ScramSha256, Challenge::Scram(scram)),
            },
            // Why not, in JSON; the protocol asks for an empty answer before the error comes. Source: RFC 7628, 3.2.3.
            (State::Shown, SASL_CONTINUE) => {
                let reply = message(|buffer| frontend::sasl_response(b"\x01", buffer))?;
                self.state = State::Rejected;
                Ok(Verdict::Send(reply))
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
            State::Start => {
                self.require.check(Method::None)?;
                self.check_binding(None)?;
            }
            State::Answered | State::Shown | State::ScramProven => {}
            State::ScramFirst(_) | State::ScramProof(_) => {
                return Err(auth(
                    "the server let us in before it proved that it knows the password; it may be an impostor",
                ));
            }
            State::Asked(_) | State::Rejected | State::Accepted | State::Failed => {
                return Err(protocol("the server sent an authentication message out of turn"));
            }
        }
        self.state = State::Accepted;
        Ok(Verdict::Accepted)
    }

    fn challenge(&mut self, method: Method, challenge: Challenge) -> Result<Verdict, Fault> {
        self.require.check(method)?;
        self.check_binding(match challenge {
            Challenge::Scram(mechanism) => Some(mechanism),
            Challenge::Cleartext | Challenge::Md5(_) | Challenge::Oauth => None,
        })?;
        self.state = State::Asked(challenge);
        Ok(Verdict::NeedPassword)
    }

    /// Where channel binding is required, only SCRAM-SHA-256-PLUS will do.
    fn check_binding(&self, mechanism: Option<Mechanism>) -> Result<(), Fault> {
        if self.binding != ChannelBinding::Require || mechanism == Some(Mechanism::ScramPlus) {
            return Ok(());
        }
        Err(auth(match &self.channel {
            Channel::Plain | Channel::Private => {
                "`channel_binding=require` needs a connection that is encrypted by TLS; set `sslmode=require` or above"
            }
            Channel::Encrypted { end_point: None } => {
                "`channel_binding=require` cannot be had: the server's certificate is signed by an algorithm that has no \
                 hash of its own"
            }
            Channel::Encrypted { .. } => {
                "the server does not ask for a method with channel binding (SCRAM-SHA-256-PLUS), which \
                 `channel_binding=require` demands; it may be an impostor"
            }
        }))
    }

    /// One of the mechanisms that the server offers: a list of C strings that ends with an empty one.
    fn choose_mechanism(&self, list: &[u8]) -> Result<Mechanism, Fault> {
        let Some(list) = list.strip_suffix(&[0]) else {
            return Err(malformed());
        };
        let offers = |mechanism: &str| list.split(|byte| *byte == 0).any(|name| name == mechanism.as_bytes());
        let plus = offers(sasl::SCRAM_SHA_256_PLUS);
        if plus && matches!(self.channel, Channel::Plain | Channel::Private) {
            // Whoever sits in between has offered what the server offered to it. As libpq does.
            return Err(auth(
                "the server offers SCRAM-SHA-256-PLUS on a connection without TLS; it may be an impostor",
            ));
        }
        let can_bind = matches!(self.channel, Channel::Encrypted { end_point: Some(_) });
        if plus && can_bind && self.binding != ChannelBinding::Disable {
            Ok(Mechanism::ScramPlus)
        } else if offers(sasl::SCRAM_SHA_256) {
            Ok(Mechanism::Scram)
        } else if offers("OAUTHBEARER") {
            if matches!(self.channel, Channel::Plain) {
                return Err(auth(
                    "the server asks for an OAuth token, which is not sent where others can read it; set `sslmode=require` \
                     or above",
                ));
            }
            Ok(Mechanism::Oauth)
        } else if plus {
            Err(auth(
                "the server insists on SCRAM-SHA-256-PLUS, and its certificate cannot be bound to, or `channel_binding` is \
                 disabled",
            ))
        } else {
            Err(auth(
                "the server offers no SASL mechanism that this version speaks (SCRAM-SHA-256, OAUTHBEARER)",
            ))
        }
    }

    /// What the client says of the channel in SCRAM.
    fn scram_binding(&self, mechanism: Mechanism) -> sasl::ChannelBinding {
        match &self.channel {
            Channel::Encrypted { end_point: Some(hash) } if mechanism == Mechanism::ScramPlus => {
                sasl::ChannelBinding::tls_server_end_point(hash.clone())
            }
            // We could and the server could not, as we were told: it will know if somebody took the offer away.
            Channel::Encrypted { end_point: Some(_) } if self.binding != ChannelBinding::Disable => {
                sasl::ChannelBinding::unrequested()
            }
            _ => sasl::ChannelBinding::unsupported(),
        }
    }

    /// The message that answers the server's demand for a password.
    pub(crate) fn answer(&mut self, password: Option<&str>) -> Result<Vec<u8>, Fault> {
        let State::Asked(challenge) = mem::replace(&mut self.state, State::Failed) else {
            return Err(protocol("a password was given without being asked for"));
        };
        // An empty password counts as none, as in libpq: no server accepts one.
        let Some(password) = password.filter(|password| !password.is_empty()) else {
            return Err(auth(match challenge {
                Challenge::Oauth => "the server asks for an OAuth token; set `oauth_token_provider`",
                _ => "the server asks for a password and none is set; set `password` or a password provider",
            }));
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
            Challenge::Scram(mechanism) => {
                let name = match mechanism {
                    Mechanism::ScramPlus => sasl::SCRAM_SHA_256_PLUS,
                    Mechanism::Scram | Mechanism::Oauth => sasl::SCRAM_SHA_256,
                };
                let scram = sasl::ScramSha256::new(password.as_bytes(), self.scram_binding(mechanism));
                let reply = message(|buffer| frontend::sasl_initial_response(name, scram.message(), buffer))?;
                (reply, State::ScramFirst(scram))
            }
            Challenge::Oauth => {
                if !is_token(password) {
                    return Err(config(
                        "the OAuth token holds characters that no bearer token has (RFC 6750, 2.1)",
                    ));
                }
                // Source: RFC 7628, 3.1: no channel binding, no identity, then key/value pairs behind 0x01 each.
                let first = format!("n,,\x01auth=Bearer {password}\x01\x01");
                let reply = message(|buffer| {
                    frontend::sasl_initial_response("OAUTHBEARER", first.as_bytes(), buffer)
                })?;
                (reply, State::Shown)
            }
        };
        self.state = next;
        Ok(reply)
    }
}

/// Source: RFC 6750, 2.1, `b64token`.
fn is_token(text: &str) -> bool {
    let body = text.trim_end_matches('=');
    !body.is_empty()
        && body.bytes().all(|byte| {
            byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~' | b'+' | b'/')
        })
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
         it offers scram-sha-256, md5, password, oauth and trust"
    ))
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

    fn machine(require: RequireAuth) -> Authentication {
        Authentication::new("u".to_owned(), require, Channel::Plain, ChannelBinding::default())
    }

    fn demand(code: i32, data: &[u8]) -> Vec<u8> {
        [&code.to_be_bytes()[..], data].concat()
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
            let mut machine = machine(RequireAuth::parse(list).unwrap());
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
            (SASL, b"SCRAM-SHA-256-PLUS\0\0", "without TLS"),
            (SASL, b"OAUTHBEARER\0\0", "OAuth"),
            (SASL, b"\0", "no SASL mechanism"),
            (SASL, b"scram-sha-256\0\0", "no SASL mechanism"),
        ];
        for (code, data, word) in cases {
            let mut machine = machine(RequireAuth::default());
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
            let mut machine = machine(RequireAuth::default());
            let error = machine.receive(&body).err().expect("refused");
            assert_eq!(error.kind(), ErrorKind::Protocol, "{body:?}");
        }
    }

    fn encrypted() -> Channel {
        Channel::Encrypted { end_point: Some(vec![7; 32]) }
    }

    /// What is answered to an offer of mechanisms: the mechanism and how its first message begins, or an error's words.
    fn answered(channel: Channel, binding: ChannelBinding, offer: &[u8]) -> Result<String, String> {
        let mut machine = Authentication::new("u".to_owned(), RequireAuth::default(), channel, binding);
        let verdict = machine.receive(&demand(SASL, offer)).map_err(|error| error.to_string())?;
        let secret = if matches!(verdict, Verdict::NeedToken) { "abc.def" } else { "secret" };
        let reply = machine.answer(Some(secret)).map_err(|error| error.to_string())?;
        // Tag, length, the mechanism, a NUL, the message's length, the message.
        let (name, rest) = reply[5..].split_at(reply[5..].iter().position(|byte| *byte == 0).unwrap());
        let first = String::from_utf8_lossy(&rest[5..]).into_owned();
        let begin = first.split(",n=").next().unwrap().to_owned();
        Ok(format!("{} {begin}", String::from_utf8_lossy(name)))
    }

    #[test]
    fn the_channel_is_bound_where_both_sides_can_and_a_missing_offer_is_told() {
        use ChannelBinding::{Disable, Prefer, Require};
        let (plain, plus) = (&b"SCRAM-SHA-256\0\0"[..], &b"SCRAM-SHA-256-PLUS\0SCRAM-SHA-256\0\0"[..]);
        let without = || Channel::Encrypted { end_point: None };
        let cases: [(Channel, ChannelBinding, &[u8], &str); 9] = [
            (Channel::Plain, Prefer, plain, "SCRAM-SHA-256 n,"),
            (Channel::Private, Prefer, plain, "SCRAM-SHA-256 n,"),
            (encrypted(), Prefer, plus, "SCRAM-SHA-256-PLUS p=tls-server-end-point,"),
            (encrypted(), Require, plus, "SCRAM-SHA-256-PLUS p=tls-server-end-point,"),
            (encrypted(), Disable, plus, "SCRAM-SHA-256 n,"),
            (encrypted(), Prefer, plain, "SCRAM-SHA-256 y,"),
            (encrypted(), Disable, plain, "SCRAM-SHA-256 n,"),
            (without(), Prefer, plus, "SCRAM-SHA-256 n,"),
            (Channel::Private, Prefer, b"OAUTHBEARER\0\0", "OAUTHBEARER n,,\x01auth=Bearer abc.def\x01\x01"),
        ];
        for (channel, binding, offer, expected) in cases {
            let shown = format!("{channel:?} {binding:?}");
            assert_eq!(answered(channel, binding, offer).as_deref(), Ok(expected), "{shown}");
        }
        let refused: [(Channel, ChannelBinding, &[u8], &str); 6] = [
            (Channel::Plain, Prefer, plus, "without TLS"),
            (Channel::Plain, Require, plain, "sslmode=require"),
            (encrypted(), Require, plain, "may be an impostor"),
            (without(), Require, plus, "no hash of its own"),
            (encrypted(), Disable, b"SCRAM-SHA-256-PLUS\0\0", "insists on SCRAM-SHA-256-PLUS"),
            (Channel::Plain, Prefer, b"OAUTHBEARER\0\0", "where others can read it"),
        ];
        for (channel, binding, offer, words) in refused {
            let shown = format!("{channel:?} {binding:?}");
            let error = answered(channel, binding, offer).expect_err(&shown);
            assert!(error.contains(words), "{shown}: {error}");
        }
    }

    #[test]
    fn where_channel_binding_is_required_nothing_weaker_lets_in() {
        let cases: [(i32, &[u8]); 4] =
            [(OK, b""), (CLEARTEXT, b""), (MD5, b"salt"), (SASL, b"OAUTHBEARER\0\0")];
        for (code, data) in cases {
            let require = RequireAuth::default();
            let mut machine =
                Authentication::new("u".to_owned(), require, encrypted(), ChannelBinding::Require);
            let error = machine.receive(&demand(code, data)).err().expect("refused");
            assert!(error.to_string().contains("channel_binding=require"), "{error}");
        }
    }

    #[test]
    fn a_token_is_shown_once_and_a_refusal_is_the_servers() {
        let new = || {
            let (require, binding) = (RequireAuth::default(), ChannelBinding::default());
            let mut machine = Authentication::new("u".to_owned(), require, encrypted(), binding);
            assert!(matches!(machine.receive(&demand(SASL, b"OAUTHBEARER\0\0")), Ok(Verdict::NeedToken)));
            machine
        };
        let mut machine = new();
        machine.answer(Some("abc.def-_~+/==")).expect("a token");
        assert!(matches!(machine.receive(&demand(OK, b"")), Ok(Verdict::Accepted)));
        let mut machine = new();
        machine.answer(Some("abc")).expect("a token");
        let why = br#"{"status":"invalid_token"}"#;
        let Ok(Verdict::Send(reply)) = machine.receive(&demand(SASL_CONTINUE, why)) else {
            panic!("an answer")
        };
        assert_eq!(reply, b"p\0\0\0\x05\x01");
        assert!(machine.receive(&demand(OK, b"")).is_err(), "a token that was refused lets nobody in");
        for token in ["a b", "a\x01b", "é", "=", "a\nb"] {
            let error = new().answer(Some(token)).expect_err(token);
            assert_eq!(error.kind(), ErrorKind::Config, "{error}");
        }
        assert!(new().answer(None).expect_err("none").to_string().contains("oauth_token_provider"));
    }
}
