//! `sha256_password`: the password itself, every time. Deprecated by MySQL, and still there in old accounts.
//!
//! ```text
//!  challenge (20) ─► no password            ─► Told: NUL
//!                    private channel        ─► Told: in clear, with a NUL
//!                    the key is pinned      ─► Told: encrypted
//!                    the key may be asked   ─► AskedForKey: 0x01 ─ 0x01 key ─► Told: encrypted
//!                    otherwise              ─► an error that says what to do
//! ```
//!
//! Source: MySQL manual, "SHA-256 Pluggable Authentication"; `sha256_password_auth_client` in its sources.

use super::key::ServerKey;
use super::{Asked, Channel, NONCE, Verdict, auth, nonce, out_of_turn};
use crate::error::Fault;

const ASK_FOR_KEY: u8 = 0x01;

pub(super) struct Sha256Password {
    nonce: [u8; NONCE],
    state: State,
}

enum State {
    AskedForKey,
    Told,
}

impl Sha256Password {
    pub(super) fn begin(asked: &Asked<'_>, challenge: &[u8]) -> Result<(Self, Vec<u8>), Fault> {
        let nonce = nonce::<NONCE>(challenge)?;
        let (state, response) = match (asked.terms.channel, &asked.terms.key) {
            _ if asked.password.is_empty() => (State::Told, vec![0]),
            (Channel::Private, _) => (State::Told, asked.password_and_nul()),
            (Channel::Open, ServerKey::Pinned(key)) => (State::Told, key.encrypt(asked, &nonce)?),
            (Channel::Open, ServerKey::Ask) => (State::AskedForKey, vec![ASK_FOR_KEY]),
            (Channel::Open | Channel::Unproven, _) => {
                return Err(auth(
                    "the server asks for the password itself (sha256_password), which is not sent over a connection \
                     without encryption; use TLS (sslMode=REQUIRED) or a Unix socket, name the server's key in \
                     serverRSAPublicKeyFile, or on a trusted network set allowPublicKeyRetrieval=true",
                ));
            }
        };
        Ok((Self { nonce, state }, response))
    }

    pub(super) fn more(&mut self, asked: &Asked<'_>, key: &[u8]) -> Result<Verdict, Fault> {
        match self.state {
            State::AskedForKey => {
                let hidden = ServerKey::read(key)?.encrypt(asked, &self.nonce)?;
                self.state = State::Told;
                Ok(Verdict::Send(hidden))
            }
            State::Told => Err(out_of_turn()),
        }
    }
}
