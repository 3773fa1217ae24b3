//! `mysql_native_password`: one digest with SHA-1, which is what MariaDB's accounts have unless told otherwise, and
//! MySQL's had before 8.0. Whoever reads the exchange can try passwords on it at leisure.
//!
//! ```text
//!  challenge (20) ─► SHA1(password) XOR SHA1(challenge + SHA1(SHA1(password))), 20 bytes; or none without a password
//! ```
//!
//! Source: MySQL internals, "Native Authentication"; MariaDB documentation, "Authentication Plugin - `mysql_native_password`".

use sha1::{Digest as _, Sha1};

use super::{Asked, NONCE, nonce};
use crate::error::Fault;

pub(super) fn respond(asked: &Asked<'_>, challenge: &[u8]) -> Result<Vec<u8>, Fault> {
    let nonce = nonce::<NONCE>(challenge)?;
    Ok(if asked.password.is_empty() { Vec::new() } else { digest(asked.password, &nonce).to_vec() })
}

/// What the server keeps of a password. Source: MySQL internals, "Native Authentication".
pub(super) fn stored(password: &[u8]) -> Vec<u8> {
    Sha1::digest(Sha1::digest(password)).to_vec()
}

pub(super) fn digest(password: &[u8], nonce: &[u8]) -> [u8; 20] {
    let once = Sha1::digest(password);
    let twice = Sha1::digest(once);
    let mask = Sha1::new().chain_update(nonce).chain_update(twice).finalize();
    let mut response: [u8; 20] = once.into();
    response.iter_mut().zip(mask).for_each(|(byte, mask)| *byte ^= mask);
    response
}
