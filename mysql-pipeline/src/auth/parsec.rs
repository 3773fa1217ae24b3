//! `parsec`: a signature of both sides' challenges, by a key that is derived from the password with the account's own
//! salt. MariaDB's, since 11.6.
//!
//! ```text
//!  challenge (32) ─► an empty packet ─ 'P', factor (0 to 3), salt (18) ─► our challenge (32) and signature (64) ─► Signed
//!
//!  key        PBKDF2 with HMAC-SHA-512 over the password and the salt, 1024 << factor rounds, 32 bytes
//!  signature  Ed25519 of the server's challenge and ours, one behind the other
//! ```
//!
//! The rounds run before the server has proved anything, so a factor far beyond what servers use is refused.
//!
//! Source: MariaDB documentation, "Authentication Plugin - PARSEC", and its client/server protocol, "Connecting";
//! `plugin/auth_parsec` in its sources for the lengths and for the factor's range.

use ed25519_dalek::{Signer as _, SigningKey};
use pbkdf2::pbkdf2_hmac;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use sha2::Sha512;

use super::{Asked, malformed, nonce, out_of_turn, protocol};
use crate::error::Fault;

/// Source: MariaDB sources, `CHALLENGE_SCRAMBLE_LENGTH`.
const CHALLENGE: usize = 32;
/// Source: MariaDB sources, `CHALLENGE_SALT_LENGTH`.
const SALT: usize = 18;
/// PBKDF2, the only derivation there is.
const DERIVATION: u8 = b'P';
/// Servers use at most 3; this allows for more of it later, and takes some tens of milliseconds.
const MOST_FACTOR: u8 = 6;

pub(super) struct Parsec {
    server: [u8; CHALLENGE],
    /// What the server keeps of the password: the account's parameters and the public key. There once it is signed.
    stored: Option<Vec<u8>>,
}

impl Parsec {
    pub(super) fn begin(challenge: &[u8]) -> Result<Self, Fault> {
        Ok(Self { server: nonce(challenge)?, stored: None })
    }

    /// Takes the account's salt, and signs.
    pub(super) fn more(&mut self, asked: &Asked<'_>, data: &[u8]) -> Result<Vec<u8>, Fault> {
        if self.stored.is_some() {
            return Err(out_of_turn());
        }
        let [DERIVATION, factor, salt @ ..] = data else { return Err(malformed()) };
        if salt.len() != SALT {
            return Err(malformed());
        }
        if *factor > MOST_FACTOR {
            return Err(protocol(
                "the server asks for more rounds of key derivation (parsec) than are allowed",
            ));
        }
        let key = derive(asked.password, *factor, salt);
        self.stored = Some([data, &key.verifying_key().to_bytes()].concat());
        let ours = StdRng::from_seed(asked.seed).random();
        Ok(sign(&key, &self.server, &ours))
    }

    /// What the server keeps of the password, once it is signed.
    pub(super) fn stored(&self) -> Option<&[u8]> {
        self.stored.as_deref()
    }
}

/// The account's key.
pub(super) fn derive(password: &[u8], factor: u8, salt: &[u8]) -> SigningKey {
    let mut key = [0; 32];
    pbkdf2_hmac::<Sha512>(password, salt, 1024 << factor, &mut key);
    SigningKey::from_bytes(&key)
}

/// Our challenge, and the signature of both.
pub(super) fn sign(key: &SigningKey, server: &[u8; CHALLENGE], ours: &[u8; CHALLENGE]) -> Vec<u8> {
    let signature = key.sign(&[&server[..], ours].concat());
    [&ours[..], &signature.to_bytes()].concat()
}
