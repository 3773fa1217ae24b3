//! Authentication: who we are, proved in the way that the server's plugin asks for.
//!
//! A pure state machine below the connection phase; it sees the bodies of packets and never the packets' frames.
//!
//! ```text
//!  begin(plugin, nonce) ─► response ──┬─ switch(plugin, nonce) ─► response, once
//!                                     │
//!   caching_sha2_password             ├─ 0x03 ─► wait             the server's cache knows us
//!                                     └─ 0x04 ─► full authentication:
//!                                          secure channel      ─► the password in clear
//!                                          retrieval allowed   ─► 0x02 ─ key ─► the password, encrypted
//!                                          otherwise           ─► an error that says what to do
//! ```
//!
//! Sources: MySQL internals, "Caching SHA-2 Pluggable Authentication" (`sha2_password`), "Native Authentication",
//! `AuthSwitchRequest`, `AuthMoreData`.

use std::borrow::Cow;

use rand::SeedableRng as _;
use rand::rngs::StdRng;
use rsa::pkcs8::DecodePublicKey as _;
use rsa::traits::PublicKeyParts as _;
use rsa::{Oaep, PublicKey};
use sha1::Sha1;
use sha2::{Digest as _, Sha256};

use crate::error::{ErrorKind, Fault, Outcome};

/// Bytes of the server's challenge. Source: MySQL sources, `SCRAMBLE_LENGTH`.
pub(crate) const NONCE: usize = 20;

const FAST: u8 = 0x03;
const FULL: u8 = 0x04;
const ASK_FOR_KEY: u8 = 0x02;

/// Servers make keys of 2048 bits; a key far beyond every use only costs us time.
const MOST_KEY_BYTES: usize = 16_384 / 8;

/// A method of authentication.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Plugin {
    CachingSha2,
    Native,
}

impl Plugin {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::CachingSha2 => "caching_sha2_password",
            Self::Native => "mysql_native_password",
        }
    }

    /// The plugin of a name, if it is offered here.
    pub(crate) fn named(name: &[u8]) -> Option<Self> {
        [Self::CachingSha2, Self::Native].into_iter().find(|plugin| plugin.name().as_bytes() == name)
    }
}

/// What the user allows, and what the channel is.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Terms {
    /// Nobody else can listen (a Unix socket): the password may go in clear.
    pub(crate) secure: bool,
    /// The server may be asked for its public key.
    pub(crate) key_retrieval: bool,
    /// Randomness for one encryption.
    pub(crate) seed: [u8; 32],
}

/// The client's side of the exchange.
pub(crate) struct Authentication {
    terms: Terms,
    password: Vec<u8>,
    plugin: Plugin,
    nonce: [u8; NONCE],
    state: State,
    switched: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Answered,
    /// The server's cache knows us: only OK can follow.
    Known,
    AskedForKey,
    /// The password went out whole.
    Told,
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
    /// Begins with the plugin that the server named first, or our favourite, and the response that goes out first.
    pub(crate) fn begin(
        terms: Terms,
        password: Option<&str>,
        plugin: Plugin,
        nonce: [u8; NONCE],
    ) -> Result<(Self, Vec<u8>), Fault> {
        let password = password.unwrap_or_default();
        if password.contains('\0') {
            return Err(Fault::new(ErrorKind::Config, Outcome::NotSent, "`password` contains a NUL byte"));
        }
        let password = password.as_bytes().to_vec();
        let machine = Self { terms, password, plugin, nonce, state: State::Answered, switched: false };
        let response = machine.respond();
        Ok((machine, response))
    }

    /// The server wants another plugin: the body behind `0xFE`, a name that ends with NUL and a challenge.
    pub(crate) fn switch(&mut self, body: &[u8]) -> Result<Vec<u8>, Fault> {
        if self.switched || self.state != State::Answered {
            return Err(out_of_turn());
        }
        let mut parts = body.splitn(2, |byte| *byte == 0);
        let (Some(name), Some(challenge)) = (parts.next(), parts.next()) else {
            // Before 4.1 there was one other plugin, and no need to name it.
            return Err(if body.is_empty() { not_offered(b"mysql_old_password") } else { malformed() });
        };
        self.plugin = Plugin::named(name).ok_or_else(|| not_offered(name))?;
        self.nonce = nonce(challenge)?;
        self.switched = true;
        Ok(self.respond())
    }

    /// Takes what follows `0x01`.
    pub(crate) fn more(&mut self, data: &[u8]) -> Result<Verdict, Fault> {
        if self.plugin != Plugin::CachingSha2 {
            return Err(out_of_turn());
        }
        match (self.state, data) {
            (State::Answered, [FAST]) => {
                self.state = State::Known;
                Ok(Verdict::Wait)
            }
            (State::Answered, [FULL]) => self.tell(),
            (State::AskedForKey, key) => {
                let encrypted = self.encrypt(key)?;
                self.state = State::Told;
                Ok(Verdict::Send(encrypted))
            }
            _ => Err(out_of_turn()),
        }
    }

    /// The server's cache does not know us, and wants the password itself.
    fn tell(&mut self) -> Result<Verdict, Fault> {
        if self.terms.secure {
            self.state = State::Told;
            return Ok(Verdict::Send(self.password_and_nul()));
        }
        if self.terms.key_retrieval {
            self.state = State::AskedForKey;
            return Ok(Verdict::Send(vec![ASK_FOR_KEY]));
        }
        Err(auth(
            "the server does not have this user in its cache, and asks for the password itself, which is not sent \
             over a connection without encryption; on a trusted network set allowPublicKeyRetrieval=true, or connect \
             by a Unix socket",
        ))
    }

    fn respond(&self) -> Vec<u8> {
        if self.password.is_empty() {
            return Vec::new();
        }
        match self.plugin {
            Plugin::CachingSha2 => caching_sha2(&self.password, &self.nonce).to_vec(),
            Plugin::Native => native(&self.password, &self.nonce).to_vec(),
        }
    }

    /// Source: MySQL sources, `sql-common/client_authentication.cc`: the password with its NUL, each byte combined
    /// with the challenge, under RSA with OAEP and SHA-1.
    fn encrypt(&self, key: &[u8]) -> Result<Vec<u8>, Fault> {
        let unusable = || protocol("the server's public key cannot be used");
        let text = std::str::from_utf8(key).map_err(|_| unusable())?;
        let key = PublicKey::from_public_key_pem(text.trim()).map_err(|error| {
            protocol("the server's public key cannot be used").with_source(error.to_string())
        })?;
        if key.size() > MOST_KEY_BYTES {
            return Err(unusable());
        }
        let mut hidden = self.password_and_nul();
        for (byte, mask) in hidden.iter_mut().zip(self.nonce.iter().cycle()) {
            *byte ^= mask;
        }
        let mut random = StdRng::from_seed(self.terms.seed);
        key.encrypt(&mut random, Oaep::<Sha1>::new(), &hidden).map_err(|error| {
            auth("the password cannot be encrypted with the server's public key")
                .with_source(error.to_string())
        })
    }

    fn password_and_nul(&self) -> Vec<u8> {
        [&self.password[..], &[0]].concat()
    }
}

/// A challenge: 20 bytes and a NUL, which some servers leave out.
pub(crate) fn nonce(challenge: &[u8]) -> Result<[u8; NONCE], Fault> {
    let challenge = match challenge {
        [challenge @ .., 0] if challenge.len() == NONCE => challenge,
        challenge => challenge,
    };
    challenge.try_into().map_err(|_| malformed())
}

/// SHA-256 of the password, combined with SHA-256 of its double hash and the challenge.
fn caching_sha2(password: &[u8], nonce: &[u8]) -> [u8; 32] {
    let once = Sha256::digest(password);
    let twice = Sha256::digest(once);
    let mask = Sha256::new().chain_update(twice).chain_update(nonce).finalize();
    let mut response: [u8; 32] = once.into();
    response.iter_mut().zip(mask).for_each(|(byte, mask)| *byte ^= mask);
    response
}

/// SHA-1 of the password, combined with SHA-1 of the challenge and the password's double hash.
fn native(password: &[u8], nonce: &[u8]) -> [u8; 20] {
    let once = Sha1::digest(password);
    let twice = Sha1::digest(once);
    let mask = Sha1::new().chain_update(nonce).chain_update(twice).finalize();
    let mut response: [u8; 20] = once.into();
    response.iter_mut().zip(mask).for_each(|(byte, mask)| *byte ^= mask);
    response
}

#[cold]
fn not_offered(name: &[u8]) -> Fault {
    let known = [
        "mysql_old_password",
        "mysql_clear_password",
        "sha256_password",
        "client_ed25519",
        "parsec",
        "auth_gssapi_client",
        "dialog",
        "authentication_ldap_sasl_client",
        "authentication_webauthn_client",
    ];
    let name = known.into_iter().find(|known| known.as_bytes() == name).unwrap_or("an unknown method");
    auth(format!(
        "the server asks for authentication by {name}, which this version does not offer; it offers \
         caching_sha2_password and mysql_native_password"
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

#[cfg(test)]
mod tests {
    use rsa::PrivateKey;
    use rsa::pkcs8::EncodePublicKey as _;

    use super::*;

    const CHALLENGE: [u8; NONCE] = *b"abcdefghijklmnopqrst";

    fn begin(terms: Terms, password: &str, plugin: Plugin) -> (Authentication, Vec<u8>) {
        Authentication::begin(terms, Some(password), plugin, CHALLENGE).expect("a good password")
    }

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().fold(String::new(), |text, byte| format!("{text}{byte:02x}"))
    }

    #[test]
    fn responses_are_what_the_definitions_say() {
        // Computed independently (Python's hashlib) from the definitions of both plugins.
        assert_eq!(hex(&native(b"secret", &CHALLENGE)), NATIVE);
        assert_eq!(hex(&caching_sha2(b"secret", &CHALLENGE)), CACHING_SHA2);
    }

    const NATIVE: &str = "8817c50fa779daef010ee7577825b0847df9842e";
    const CACHING_SHA2: &str = "c76e2898612a4cf042c77fa8c4702c4c64c0c2c557c53c4d75595aaa6abae809";

    #[test]
    fn an_empty_password_is_an_empty_response() {
        for plugin in [Plugin::CachingSha2, Plugin::Native] {
            assert!(begin(Terms::default(), "", plugin).1.is_empty());
        }
    }

    #[test]
    fn a_user_in_the_cache_waits_for_ok() {
        let (mut machine, response) = begin(Terms::default(), "secret", Plugin::CachingSha2);
        assert_eq!(response.len(), 32);
        assert_eq!(machine.more(&[FAST]).unwrap(), Verdict::Wait);
        assert_eq!(machine.more(&[FULL]).unwrap_err().kind(), ErrorKind::Protocol);
    }

    #[test]
    fn the_password_goes_in_clear_over_a_secure_channel_only() {
        let secure = Terms { secure: true, ..Terms::default() };
        let (mut machine, _) = begin(secure, "secret", Plugin::CachingSha2);
        assert_eq!(machine.more(&[FULL]).unwrap(), Verdict::Send(b"secret\0".to_vec()));
        let (mut machine, _) = begin(Terms::default(), "secret", Plugin::CachingSha2);
        let error = machine.more(&[FULL]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Auth);
        assert!(error.to_string().contains("allowPublicKeyRetrieval=true"), "{error}");
    }

    #[test]
    fn with_leave_the_password_goes_under_the_servers_key() {
        let mut random = StdRng::from_seed([7; 32]);
        let private = PrivateKey::new(&mut random, 1024).expect("a key");
        let pem = private.to_public_key().to_public_key_pem(rsa::pkcs8::LineEnding::LF).expect("a key");
        let terms = Terms { key_retrieval: true, seed: [9; 32], ..Terms::default() };
        let (mut machine, _) = begin(terms, "secret", Plugin::CachingSha2);
        assert_eq!(machine.more(&[FULL]).unwrap(), Verdict::Send(vec![ASK_FOR_KEY]));
        let Verdict::Send(encrypted) = machine.more(pem.as_bytes()).unwrap() else { panic!("not sent") };
        let mut hidden = private.decrypt(Oaep::<Sha1>::new(), &encrypted).expect("our key");
        hidden.iter_mut().zip(CHALLENGE).for_each(|(byte, mask)| *byte ^= mask);
        assert_eq!(hidden, b"secret\0");
        assert!(machine.more(pem.as_bytes()).is_err(), "once");
    }

    #[test]
    fn keys_that_are_none_are_refused() {
        for key in
            [&b""[..], b"\xff", b"-----BEGIN PUBLIC KEY-----\n-----END PUBLIC KEY-----", &[b'x'; 9_000]]
        {
            let terms = Terms { key_retrieval: true, ..Terms::default() };
            let (mut machine, _) = begin(terms, "secret", Plugin::CachingSha2);
            machine.more(&[FULL]).unwrap();
            assert_eq!(machine.more(key).unwrap_err().kind(), ErrorKind::Protocol);
        }
    }

    #[test]
    fn the_server_may_switch_once_to_a_plugin_that_is_offered() {
        let request = b"mysql_native_password\0abcdefghijklmnopqrst\0";
        let (mut machine, _) = begin(Terms::default(), "secret", Plugin::CachingSha2);
        assert_eq!(hex(&machine.switch(request).unwrap()), NATIVE);
        assert_eq!(machine.switch(request).unwrap_err().kind(), ErrorKind::Protocol);
        assert_eq!(machine.more(&[FULL]).unwrap_err().kind(), ErrorKind::Protocol);
        for (request, word) in [
            (&b"mysql_clear_password\0"[..], "mysql_clear_password"),
            (b"sha256_password\0x", "sha256_password"),
            (b"", "mysql_old_password"),
            (b"\xff\xfe\0", "unknown method"),
        ] {
            let (mut machine, _) = begin(Terms::default(), "secret", Plugin::CachingSha2);
            let error = machine.switch(request).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Auth);
            assert!(error.to_string().contains(word), "{error}");
        }
    }

    #[test]
    fn every_shorter_switch_is_refused() {
        let request = b"mysql_native_password\0abcdefghijklmnopqrst\0";
        // Without the last NUL it is whole still.
        for end in 0..request.len() - 1 {
            let (mut machine, _) = begin(Terms::default(), "secret", Plugin::CachingSha2);
            assert!(machine.switch(&request[..end]).is_err(), "{end}");
        }
    }

    #[test]
    fn a_password_that_would_be_cut_off_is_refused() {
        let error = Authentication::begin(Terms::default(), Some("a\0b"), Plugin::Native, CHALLENGE);
        assert_eq!(error.err().expect("refused").kind(), ErrorKind::Config);
    }
}
