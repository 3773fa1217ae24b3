//! Channel binding: proof that both sides of SCRAM speak through the same TLS channel, with nobody in between.
//!
//! Source: RFC 5929, section 4 (`tls-server-end-point`): the hash of the server's certificate by the hash of the
//! certificate's own signature; SHA-256 in place of MD5 and SHA-1.

use sha2::{Digest as _, Sha256, Sha384, Sha512};

/// Whether the proof of a password must be bound to the TLS channel, as libpq's `channel_binding`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum ChannelBinding {
    /// Never.
    Disable,
    /// Where the connection is encrypted and the server offers it. The default.
    #[default]
    Prefer,
    /// Always: a server that does not prove that it knows the password, through this very channel, is refused.
    Require,
}

impl ChannelBinding {
    /// The name that URLs and libpq use.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Disable => "disable",
            Self::Prefer => "prefer",
            Self::Require => "require",
        }
    }
}

/// What authentication runs over.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) enum Channel {
    /// Others may read it.
    #[default]
    Plain,
    /// It does not leave this machine.
    Private,
    /// By TLS.
    Encrypted {
        /// What SCRAM can be bound to, unless the certificate's signature has no hash.
        end_point: Option<Vec<u8>>,
    },
}

/// What a channel with this certificate (in DER) is bound to; `None` if it cannot be.
pub(crate) fn end_point(certificate: &[u8]) -> Option<Vec<u8>> {
    Some(match signature_hash(certificate)? {
        Hash::Sha256 => Sha256::digest(certificate).to_vec(),
        Hash::Sha384 => Sha384::digest(certificate).to_vec(),
        Hash::Sha512 => Sha512::digest(certificate).to_vec(),
    })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hash {
    Sha256,
    Sha384,
    Sha512,
}

/// Tags of DER. Source: ITU-T X.690.
const SEQUENCE: u8 = 0x30;
const OBJECT: u8 = 0x06;
/// The first field of RSASSA-PSS's parameters.
const CONTEXT_0: u8 = 0xA0;

/// `Certificate ::= SEQUENCE { tbsCertificate SEQUENCE, signatureAlgorithm SEQUENCE { OBJECT, … }, … }`.
/// Source: RFC 5280, section 4.1.
fn signature_hash(certificate: &[u8]) -> Option<Hash> {
    let (body, _) = take(certificate, SEQUENCE)?;
    let (_, rest) = take(body, SEQUENCE)?;
    let (algorithm, _) = take(rest, SEQUENCE)?;
    let (object, parameters) = take(algorithm, OBJECT)?;
    match object {
        // md5WithRSAEncryption, sha1WithRSAEncryption, ecdsa-with-SHA1, sha256WithRSAEncryption, ecdsa-with-SHA256.
        [0x2A, 0x86, 0x48, 0x86, 0xF7, 0x0D, 1, 1, 4 | 5 | 11]
        | [0x2A, 0x86, 0x48, 0xCE, 0x3D, 4, 1]
        | [0x2A, 0x86, 0x48, 0xCE, 0x3D, 4, 3, 2] => Some(Hash::Sha256),
        [0x2A, 0x86, 0x48, 0x86, 0xF7, 0x0D, 1, 1, 12] | [0x2A, 0x86, 0x48, 0xCE, 0x3D, 4, 3, 3] => {
            Some(Hash::Sha384)
        }
        [0x2A, 0x86, 0x48, 0x86, 0xF7, 0x0D, 1, 1, 13] | [0x2A, 0x86, 0x48, 0xCE, 0x3D, 4, 3, 4] => {
            Some(Hash::Sha512)
        }
        // RSASSA-PSS says in its parameters which; SHA-1 where it does not. Source: RFC 4055, section 3.1.
        [0x2A, 0x86, 0x48, 0x86, 0xF7, 0x0D, 1, 1, 10] => {
            let (fields, _) = take(parameters, SEQUENCE)?;
            let Some((hash, _)) = take(fields, CONTEXT_0) else { return Some(Hash::Sha256) };
            let (hash, _) = take(hash, SEQUENCE)?;
            match take(hash, OBJECT)?.0 {
                // SHA-1, and of NIST's hashes SHA-256, SHA-384, SHA-512.
                [0x2B, 0x0E, 3, 2, 0x1A] | [0x60, 0x86, 0x48, 1, 0x65, 3, 4, 2, 1] => Some(Hash::Sha256),
                [0x60, 0x86, 0x48, 1, 0x65, 3, 4, 2, 2] => Some(Hash::Sha384),
                [0x60, 0x86, 0x48, 1, 0x65, 3, 4, 2, 3] => Some(Hash::Sha512),
                _ => None,
            }
        }
        // Ed25519 and Ed448 have none.
        _ => None,
    }
}

/// The contents of the element at the front, if it has this tag, and what is behind it.
fn take(bytes: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.strip_prefix(&[tag])?.split_first()?;
    let (length, rest) = match *length {
        short @ 0..=0x7F => (usize::from(short), rest),
        long @ 0x81..=0x84 => {
            let (length, rest) = rest.split_at_checked(usize::from(long & 0x7F))?;
            (length.iter().fold(0, |all, byte| all << 8 | usize::from(*byte)), rest)
        }
        _ => return None,
    };
    rest.split_at_checked(length)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An element of DER.
    fn element(tag: u8, contents: &[u8]) -> Vec<u8> {
        let length = u16::try_from(contents.len()).unwrap().to_be_bytes();
        [&[tag, 0x82], &length[..], contents].concat()
    }

    fn certificate(object: &[u8], parameters: &[u8]) -> Vec<u8> {
        let algorithm = element(SEQUENCE, &[element(OBJECT, object), parameters.to_vec()].concat());
        let body = [element(SEQUENCE, &[7; 300]), algorithm, element(3, &[0; 64])].concat();
        element(SEQUENCE, &body)
    }

    #[test]
    fn the_hash_is_the_signatures_own_and_never_a_broken_one() {
        let rsa = |last| [0x2A, 0x86, 0x48, 0x86, 0xF7, 0x0D, 1, 1, last];
        let ecdsa = |last| [0x2A, 0x86, 0x48, 0xCE, 0x3D, 4, 3, last];
        let null = [5, 0];
        for (object, hash) in [
            (rsa(4).to_vec(), Some(Hash::Sha256)),
            (rsa(5).to_vec(), Some(Hash::Sha256)),
            (rsa(11).to_vec(), Some(Hash::Sha256)),
            (rsa(12).to_vec(), Some(Hash::Sha384)),
            (rsa(13).to_vec(), Some(Hash::Sha512)),
            (ecdsa(2).to_vec(), Some(Hash::Sha256)),
            (ecdsa(3).to_vec(), Some(Hash::Sha384)),
            (ecdsa(4).to_vec(), Some(Hash::Sha512)),
            (vec![0x2B, 0x65, 0x70], None),
            (Vec::new(), None),
        ] {
            assert_eq!(signature_hash(&certificate(&object, &null)), hash, "{object:?}");
        }
        let pss = |parameters: &[u8]| signature_hash(&certificate(&rsa(10), &element(SEQUENCE, parameters)));
        let named = |last| {
            let object = element(OBJECT, &[0x60, 0x86, 0x48, 1, 0x65, 3, 4, 2, last]);
            element(CONTEXT_0, &element(SEQUENCE, &object))
        };
        assert_eq!(pss(&[]), Some(Hash::Sha256));
        assert_eq!(pss(&named(1)), Some(Hash::Sha256));
        assert_eq!(pss(&named(2)), Some(Hash::Sha384));
        assert_eq!(pss(&named(3)), Some(Hash::Sha512));
        assert_eq!(pss(&named(9)), None);
        let whole = certificate(&rsa(12), &null);
        assert_eq!(end_point(&whole), Some(Sha384::digest(&whole).to_vec()));
        assert_eq!(end_point(&certificate(&rsa(13), &null)).map(|hash| hash.len()), Some(64));
    }

    #[test]
    fn no_bytes_make_it_panic() {
        let whole = certificate(
            &[0x2A, 0x86, 0x48, 0x86, 0xF7, 0x0D, 1, 1, 10],
            &element(SEQUENCE, &[0xA0, 1, 0x30]),
        );
        for end in 0..whole.len() {
            let _ = end_point(&whole[..end]);
        }
        for at in 0..whole.len() {
            for byte in [0, 0x7F, 0x80, 0x84, 0x85, 0xFF] {
                let mut changed = whole.clone();
                changed[at] = byte;
                let _ = end_point(&changed);
            }
        }
    }
}
