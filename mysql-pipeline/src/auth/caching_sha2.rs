//! `caching_sha2_password`: a digest with SHA-256, which the server can check while its cache knows the account, and the
//! password itself otherwise. What MySQL's accounts have since 8.0.
//!
//! ```text
//!  challenge (20) ─► Answered: a digest of 32 bytes; none without a password
//!    0x01 0x03 ─► Known: only OK can follow
//!    0x01 0x04 ─► the password itself:
//!        private channel        ─► Told: in clear, with a NUL
//!        the key is pinned      ─► Told: encrypted
//!        the key may be asked   ─► AskedForKey: 0x02 ─ 0x01 key ─► Told: encrypted
//!        otherwise              ─► an error that says what to do
//! ```
//!
//! Source: MySQL internals, "Caching SHA-2 Pluggable Authentication"; `sha2_password` in its sources.

use sha2::{Digest as _, Sha256};

use super::key::ServerKey;
use super::{Asked, Channel, NONCE, Verdict, auth, nonce, out_of_turn};
use crate::error::Fault;

const FAST: u8 = 0x03;
const FULL: u8 = 0x04;
const ASK_FOR_KEY: u8 = 0x02;

pub(super) struct CachingSha2 {
    nonce: [u8; NONCE],
    state: State,
}

enum State {
    Answered,
    /// The server's cache knows us: only OK can follow.
    Known,
    AskedForKey,
    /// The password went out whole.
    Told,
}

impl CachingSha2 {
    pub(super) fn begin(asked: &Asked<'_>, challenge: &[u8]) -> Result<(Self, Vec<u8>), Fault> {
        let nonce = nonce::<NONCE>(challenge)?;
        let response =
            if asked.password.is_empty() { Vec::new() } else { digest(asked.password, &nonce).to_vec() };
        Ok((Self { nonce, state: State::Answered }, response))
    }

    pub(super) fn more(&mut self, asked: &Asked<'_>, data: &[u8]) -> Result<Verdict, Fault> {
        match (&self.state, data) {
            (State::Answered, [FAST]) => {
                self.state = State::Known;
                Ok(Verdict::Wait)
            }
            (State::Answered, [FULL]) => self.tell(asked),
            (State::AskedForKey, key) => {
                let hidden = ServerKey::read(key)?.encrypt(asked, &self.nonce)?;
                self.state = State::Told;
                Ok(Verdict::Send(hidden))
            }
            _ => Err(out_of_turn()),
        }
    }

    /// The server's cache does not know us, and wants the password itself.
    fn tell(&mut self, asked: &Asked<'_>) -> Result<Verdict, Fault> {
        let (state, packet) = match (asked.terms.channel, &asked.terms.key) {
            (Channel::Private, _) => (State::Told, asked.password_and_nul()),
            (Channel::Open, ServerKey::Pinned(key)) => (State::Told, key.encrypt(asked, &self.nonce)?),
            (Channel::Open, ServerKey::Ask) => (State::AskedForKey, vec![ASK_FOR_KEY]),
            (Channel::Open | Channel::Unproven, _) => {
                return Err(auth(
                    "the server does not have this user in its cache, and asks for the password itself, which is not \
                     sent over a connection without encryption; use TLS (sslMode=REQUIRED) or a Unix socket, name the \
                     server's key in serverRSAPublicKeyFile, or on a trusted network set allowPublicKeyRetrieval=true",
                ));
            }
        };
        self.state = state;
        Ok(Verdict::Send(packet))
    }
}

/// SHA-256 of the password, combined with SHA-256 of its double hash and the challenge.
pub(super) fn digest(password: &[u8], nonce: &[u8]) -> [u8; 32] {
    let once = Sha256::digest(password);
    let twice = Sha256::digest(once);
    let mask = Sha256::new().chain_update(twice).chain_update(nonce).finalize();
    let mut response: [u8; 32] = once.into();
    response.iter_mut().zip(mask).for_each(|(byte, mask)| *byte ^= mask);
    response
}
