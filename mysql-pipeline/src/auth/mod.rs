//! Authentication: who we are, proved in the way that the server's plugin asks for.
//!
//! A pure state machine below the connection phase; it sees the bodies of packets and never the packets' frames. Each
//! method has a file of its own with its states; this one knows the order of methods and factors, and what holds for all.
//!
//! ```text
//!  begin(plugin, challenge) ─► response ─┬─ data ─► the method: send, or wait
//!                                        ├─ switch(plugin, challenge) ─► response, at most 8 times
//!                                        ├─ next factor(plugin, challenge) ─► response, at most twice
//!                                        └─ OK
//! ```
//!
//! | method | file | what leaves us | needs |
//! |---|---|---|---|
//! | `caching_sha2_password` | `caching_sha2` | a digest; the password itself when the server's cache is cold | then a private channel or the server's key |
//! | `sha256_password` | `sha256` | the password itself | a private channel or the server's key |
//! | `mysql_native_password` | `native` | a digest | |
//! | `mysql_clear_password` | `clear` | the password itself | the user's leave and a private channel |
//! | `client_ed25519` | `ed25519` | a signature | |
//! | `parsec` | `parsec` | a signature | |
//!
//! A server may ask for another method after it was answered (MariaDB tries each method of an account in turn, MySQL names
//! the account's one), so any method can follow any other. What a server asks for is never reason enough to let a password
//! out: see [`Channel`].
//!
//! Sources: MySQL internals, "Authentication Phase", `AuthSwitchRequest`, `AuthMoreData`, `AuthNextFactor`; MariaDB
//! documentation, "Connecting" (client/server protocol). Those of each method are in its file.

use std::borrow::Cow;

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use sha2::{Digest as _, Sha256};

use crate::error::{ErrorKind, Fault, Outcome};

mod caching_sha2;
mod clear;
mod ed25519;
mod key;
mod native;
mod parsec;
mod sha256;
#[cfg(test)]
mod tests;

use self::caching_sha2::CachingSha2;
pub(crate) use self::key::{PinnedKey, ServerKey};
use self::parsec::Parsec;
use self::sha256::Sha256Password;

/// Bytes of the challenge in the server's greeting. Source: MySQL sources, `SCRAMBLE_LENGTH`.
pub(crate) const NONCE: usize = 20;

/// Factors of authentication that an account can have. Source: MySQL manual, "Multifactor Authentication".
pub(crate) const FACTORS: usize = 3;

/// How often a server may change its mind. MariaDB asks for each method of an account, and offers fewer than that.
const MOST_SWITCHES: u32 = 8;

/// A method of authentication.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Plugin {
    CachingSha2,
    Clear,
    Ed25519,
    Native,
    Parsec,
    Sha256,
}

impl Plugin {
    const ALL: [Self; 6] =
        [Self::CachingSha2, Self::Clear, Self::Ed25519, Self::Native, Self::Parsec, Self::Sha256];

    /// Its name on the client's side of the protocol.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::CachingSha2 => "caching_sha2_password",
            Self::Clear => "mysql_clear_password",
            Self::Ed25519 => "client_ed25519",
            Self::Native => "mysql_native_password",
            Self::Parsec => "parsec",
            Self::Sha256 => "sha256_password",
        }
    }

    /// The method of a name, if it is offered here.
    pub(crate) fn named(name: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|plugin| plugin.name().as_bytes() == name)
    }

    /// The method that answers a greeting which names this one. Only digests go out unasked, and only those that fit the
    /// greeting's challenge: for anything else the server asks once more.
    pub(crate) fn to_begin_with(named: &[u8]) -> Self {
        match Self::named(named) {
            Some(Self::Native) => Self::Native,
            _ => Self::CachingSha2,
        }
    }

    /// Whether the server can prove afterwards that it knows the password too, so that whoever sits in between gains
    /// nothing. Source: MariaDB Connector/J, `AuthenticationPlugin.isMitMProof`.
    fn binds_both_sides(self) -> bool {
        matches!(self, Self::Native | Self::Ed25519 | Self::Parsec)
    }
}

/// Who can read what is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Channel {
    /// Everybody on the way: no password goes out in clear.
    #[default]
    Open,
    /// Nobody else, or (TLS without verification) nobody who only listens: a password may go out.
    Private,
    /// Whoever holds the certificate, and that is not known yet: no password goes out in any form, and only methods after
    /// which the server can prove itself are taken.
    Unproven,
}

/// What the user allows, and what the channel is.
#[derive(Debug, Clone, Default)]
pub(crate) struct Terms {
    pub(crate) channel: Channel,
    /// `mysql_clear_password` is allowed where the channel is private.
    pub(crate) clear_text: bool,
    /// How the server's public key is had.
    pub(crate) key: ServerKey,
    /// Randomness for this connection.
    pub(crate) seed: [u8; 32],
}

/// The passwords of each factor. No `Debug`.
#[derive(Default)]
pub(crate) struct Passwords(pub(crate) [Option<String>; FACTORS]);

impl Passwords {
    /// One for the first factor.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn one(password: &str) -> Self {
        Self([Some(password.to_owned()), None, None])
    }
}

/// What a method is told when it is to act.
struct Asked<'a> {
    terms: &'a Terms,
    password: &'a [u8],
    /// Randomness for this once.
    seed: [u8; 32],
}

impl Asked<'_> {
    fn password_and_nul(&self) -> Vec<u8> {
        [self.password, &[0]].concat()
    }
}

/// The client's side of the exchange.
pub(crate) struct Authentication {
    terms: Terms,
    random: StdRng,
    passwords: Passwords,
    factor: usize,
    method: Method,
    switches: u32,
}

/// A method and where it stands.
enum Method {
    CachingSha2(CachingSha2),
    Clear,
    Ed25519,
    Native,
    Parsec(Parsec),
    Sha256(Sha256Password),
}

/// What a packet of the exchange leads to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Send this as one packet.
    Send(Vec<u8>),
    /// Nothing to do until the next packet.
    Wait,
}

impl Authentication {
    /// Begins with a method, and the response that goes out first.
    pub(crate) fn begin(
        terms: Terms,
        passwords: Passwords,
        plugin: Plugin,
        challenge: &[u8],
    ) -> Result<(Self, Vec<u8>), Fault> {
        if passwords.0.iter().flatten().any(|password| password.contains('\0')) {
            return Err(Fault::new(ErrorKind::Config, Outcome::NotSent, "`password` contains a NUL byte"));
        }
        let mut machine = Self {
            random: StdRng::from_seed(terms.seed),
            terms,
            passwords,
            factor: 0,
            method: Method::Native,
            switches: 0,
        };
        let response = machine.start(plugin, challenge)?;
        Ok((machine, response))
    }

    /// The server wants another method: the body behind `0xFE`, a name that ends with NUL and a challenge.
    pub(crate) fn switch(&mut self, body: &[u8]) -> Result<Vec<u8>, Fault> {
        self.switches += 1;
        if self.switches > MOST_SWITCHES {
            return Err(protocol(
                "the server asks for one authentication method after the other without end",
            ));
        }
        let (plugin, challenge) = request(body)?;
        self.start(plugin, challenge)
    }

    /// The server wants one factor more: the body behind `0x02`, as for [`Self::switch`].
    pub(crate) fn next_factor(&mut self, body: &[u8]) -> Result<Vec<u8>, Fault> {
        let (plugin, challenge) = request(body)?;
        self.factor += 1;
        match self.passwords.0.get(self.factor) {
            Some(Some(_)) => self.start(plugin, challenge),
            Some(None) => Err(auth(format!(
                "the server asks for a further factor of authentication, by {}; set `password{}`",
                plugin.name(),
                self.factor + 1
            ))),
            None => Err(protocol("the server asks for more factors of authentication than there are")),
        }
    }

    /// Takes what follows `0x01`.
    pub(crate) fn more(&mut self, data: &[u8]) -> Result<Verdict, Fault> {
        let seed = self.random.random();
        let asked = asked(&self.terms, &self.passwords, self.factor, seed);
        match &mut self.method {
            Method::CachingSha2(method) => method.more(&asked, data),
            Method::Sha256(method) => method.more(&asked, data),
            Method::Parsec(method) => method.more(&asked, data).map(Verdict::Send),
            Method::Clear | Method::Ed25519 | Method::Native => Err(out_of_turn()),
        }
    }

    /// Takes a packet that begins like none of the protocol's own: MariaDB sends a method's data as it is then.
    /// Source: MariaDB sources, `wrap_plguin_req_into_proper_packet`.
    pub(crate) fn bare(&mut self, packet: &[u8]) -> Result<Verdict, Fault> {
        match self.method {
            Method::Parsec(_) => self.more(packet),
            _ => Err(protocol("the server sent a packet that does not belong into the connection phase")),
        }
    }

    /// What a server says in its last OK that knows the password and has the certificate of this digest (SHA-256): `0x01`,
    /// and in upper-case hexadecimal the SHA-256 of what it keeps of the password, of the greeting's challenge, and of the
    /// certificate's digest. `None` where there is no password, or the method is none for that.
    ///
    /// Source: MariaDB documentation, "Mission Impossible: Zero-Configuration SSL"; MariaDB Connector/J,
    /// `validateFingerPrint`; seen on a server of 11.8 with each of the three methods.
    pub(crate) fn proof_of_server(&self, greeted: &[u8; NONCE], certificate: &[u8; 32]) -> Option<Vec<u8>> {
        let password =
            self.passwords.0.get(self.factor)?.as_deref().filter(|password| !password.is_empty())?;
        let stored = match &self.method {
            Method::Native => native::stored(password.as_bytes()),
            Method::Ed25519 => ed25519::stored(password.as_bytes()),
            Method::Parsec(method) => method.stored()?.to_vec(),
            Method::CachingSha2(_) | Method::Clear | Method::Sha256(_) => return None,
        };
        let digest =
            Sha256::new().chain_update(stored).chain_update(greeted).chain_update(certificate).finalize();
        let hex = digest
            .iter()
            .flat_map(|byte| [byte >> 4, byte & 0xF])
            .map(|digit| b"0123456789ABCDEF"[usize::from(digit)]);
        Some([0x01].into_iter().chain(hex).collect())
    }

    fn start(&mut self, plugin: Plugin, challenge: &[u8]) -> Result<Vec<u8>, Fault> {
        if self.terms.channel == Channel::Unproven && !plugin.binds_both_sides() {
            return Err(auth(format!(
                "the server's certificate is not signed by a trusted authority, and authentication by {} cannot prove \
                 it in another way; set `ssl-ca`",
                plugin.name()
            )));
        }
        let seed = self.random.random();
        let asked = asked(&self.terms, &self.passwords, self.factor, seed);
        let (method, response) = match plugin {
            Plugin::CachingSha2 => {
                let (method, response) = CachingSha2::begin(&asked, challenge)?;
                (Method::CachingSha2(method), response)
            }
            Plugin::Clear => (Method::Clear, clear::respond(&asked)?),
            Plugin::Ed25519 => (Method::Ed25519, ed25519::respond(&asked, challenge)?),
            Plugin::Native => (Method::Native, native::respond(&asked, challenge)?),
            Plugin::Parsec => (Method::Parsec(Parsec::begin(challenge)?), Vec::new()),
            Plugin::Sha256 => {
                let (method, response) = Sha256Password::begin(&asked, challenge)?;
                (Method::Sha256(method), response)
            }
        };
        self.method = method;
        Ok(response)
    }
}

fn asked<'a>(terms: &'a Terms, passwords: &'a Passwords, factor: usize, seed: [u8; 32]) -> Asked<'a> {
    let password = passwords.0.get(factor).and_then(Option::as_deref).unwrap_or_default();
    Asked { terms, password: password.as_bytes(), seed }
}

/// A request for a method: its name, which ends with NUL, and its challenge.
fn request(body: &[u8]) -> Result<(Plugin, &[u8]), Fault> {
    let mut parts = body.splitn(2, |byte| *byte == 0);
    let (Some(name), Some(challenge)) = (parts.next(), parts.next()) else {
        // Before 4.1 there was one other method, and no need to name it.
        return Err(if body.is_empty() { not_offered(b"mysql_old_password") } else { malformed() });
    };
    let plugin = Plugin::named(name).ok_or_else(|| not_offered(name))?;
    Ok((plugin, challenge))
}

/// A challenge of so many bytes, and a NUL behind it, which some servers leave out.
pub(crate) fn nonce<const LENGTH: usize>(challenge: &[u8]) -> Result<[u8; LENGTH], Fault> {
    let challenge = match challenge {
        [challenge @ .., 0] if challenge.len() == LENGTH => challenge,
        challenge => challenge,
    };
    challenge.try_into().map_err(|_| malformed())
}

#[cold]
fn not_offered(name: &[u8]) -> Fault {
    let known = [
        "mysql_old_password",
        "auth_gssapi_client",
        "dialog",
        "authentication_kerberos_client",
        "authentication_ldap_sasl_client",
        "authentication_oci_client",
        "authentication_openid_connect_client",
        "authentication_webauthn_client",
    ];
    let name = known.into_iter().find(|known| known.as_bytes() == name).unwrap_or("an unknown method");
    let offered = Plugin::ALL.map(Plugin::name).join(", ");
    auth(format!(
        "the server asks for authentication by {name}, which this version does not offer; it offers {offered}"
    ))
}

#[cold]
fn auth(message: impl Into<Cow<'static, str>>) -> Fault {
    Fault::new(ErrorKind::Auth, Outcome::NotSent, message)
}

#[cold]
fn protocol(message: &'static str) -> Fault {
    Fault::new(ErrorKind::Protocol, Outcome::NotSent, message)
}

#[cold]
fn malformed() -> Fault {
    protocol("the server sent a malformed authentication packet")
}

#[cold]
fn out_of_turn() -> Fault {
    protocol("the server sent an authentication packet out of turn")
}
