//! The server's public key, under which a password goes out where the channel is open.
//!
//! This module may know how keys are written and how passwords are hidden under them; when that is done is a method's.
//!
//! Source: MySQL sources, `sql-common/client_authentication.cc`: the password with its NUL, each byte combined with the
//! challenge, under RSA with OAEP and SHA-1.

use std::fmt;
use std::sync::Arc;

use rand::SeedableRng as _;
use rand::rngs::StdRng;
use rsa::pkcs8::DecodePublicKey as _;
use rsa::traits::PublicKeyParts as _;
use rsa::{Oaep, PublicKey};
use sha1::Sha1;

use super::{Asked, NONCE, auth, protocol};
use crate::error::Fault;

/// Servers make keys of 2048 bits; a key far beyond every use only costs us time.
const MOST_KEY_BYTES: usize = 16_384 / 8;

/// How the server's public key is had.
#[derive(Debug, Clone, Default)]
pub(crate) enum ServerKey {
    /// Not at all.
    #[default]
    None,
    /// Of the server itself. Whoever sits in between can give one of their own.
    Ask,
    /// It was given beforehand.
    Pinned(PinnedKey),
}

/// A public key that was given beforehand.
#[derive(Clone)]
pub(crate) struct PinnedKey(Arc<PublicKey>);

impl ServerKey {
    /// A key that the server sent.
    pub(super) fn read(text: &[u8]) -> Result<PinnedKey, Fault> {
        PinnedKey::parse(text)
            .map_err(|why| protocol("the server's public key cannot be used").with_source(why))
    }
}

impl PinnedKey {
    /// Reads a key as servers write it, in PEM (`BEGIN PUBLIC KEY`).
    pub(crate) fn parse(text: &[u8]) -> Result<Self, String> {
        let text = std::str::from_utf8(text).map_err(|_| "it is not text".to_owned())?;
        let key = PublicKey::from_public_key_pem(text.trim()).map_err(|error| error.to_string())?;
        if key.size() > MOST_KEY_BYTES {
            return Err("it is too large".to_owned());
        }
        Ok(Self(Arc::new(key)))
    }

    /// The password under this key.
    pub(super) fn encrypt(&self, asked: &Asked<'_>, nonce: &[u8; NONCE]) -> Result<Vec<u8>, Fault> {
        let mut hidden = asked.password_and_nul();
        for (byte, mask) in hidden.iter_mut().zip(nonce.iter().cycle()) {
            *byte ^= mask;
        }
        let mut random = StdRng::from_seed(asked.seed);
        self.0.encrypt(&mut random, Oaep::<Sha1>::new(), &hidden).map_err(|error| {
            auth("the password cannot be encrypted with the server's public key")
                .with_source(error.to_string())
        })
    }
}

impl fmt::Debug for PinnedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PinnedKey")
    }
}
