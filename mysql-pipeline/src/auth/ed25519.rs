//! `client_ed25519`: a signature of the server's challenge, by a key that is the password's SHA-512. MariaDB's; its
//! server-side name is `ed25519`.
//!
//! ```text
//!  challenge (32) ─► its signature, 64 bytes, also for an empty password
//! ```
//!
//! Unlike the common form of Ed25519, where a seed of 32 bytes is hashed, the password itself is: of any length.
//!
//! Source: MariaDB documentation, "Authentication Plugin - ed25519", and its client/server protocol, "Connecting"; RFC
//! 8032, section 5.1.

use ed25519_dalek::VerifyingKey;
use ed25519_dalek::hazmat::{ExpandedSecretKey, raw_sign};
use sha2::{Digest as _, Sha512};

use super::{Asked, nonce};
use crate::error::Fault;

/// Source: MariaDB sources, `NONCE_BYTES`.
pub(super) const CHALLENGE: usize = 32;

/// What the server keeps of a password: the public key.
pub(super) fn stored(password: &[u8]) -> Vec<u8> {
    let secret = ExpandedSecretKey::from_bytes(&Sha512::digest(password).into());
    VerifyingKey::from(&secret).to_bytes().to_vec()
}

pub(super) fn respond(asked: &Asked<'_>, challenge: &[u8]) -> Result<Vec<u8>, Fault> {
    let nonce = nonce::<CHALLENGE>(challenge)?;
    let secret = ExpandedSecretKey::from_bytes(&Sha512::digest(asked.password).into());
    let public = VerifyingKey::from(&secret);
    Ok(raw_sign::<Sha512>(&secret, &nonce, &public).to_bytes().to_vec())
}
