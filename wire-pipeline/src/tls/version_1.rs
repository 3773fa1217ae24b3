//! Certificates of X.509's first version, which have no extensions and so cannot name a host. The verifier of chains reads
//! none of them; where nothing is verified, their key is all that is wanted, and it is read here.
//!
//! They are not rare: `openssl x509 -req` makes them unless it is given a file of extensions (seen with OpenSSL 3.0).
//!
//! Knows where a certificate has its key (RFC 5280, section 4.1), and nothing of who may sign.

use tokio_rustls::rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls13_signature_with_raw_key};
use tokio_rustls::rustls::pki_types::{CertificateDer, SubjectPublicKeyInfoDer};
use tokio_rustls::rustls::{CertificateError, DigitallySignedStruct, Error};
use webpki::RawPublicKeyEntity;

use tokio_rustls::rustls::client::danger::HandshakeSignatureValid;

/// Whether this is what the verifier says of such a certificate.
pub(super) fn is_meant(error: &Error) -> bool {
    let Error::InvalidCertificate(CertificateError::Other(why)) = error else { return false };
    matches!(why.0.downcast_ref(), Some(webpki::Error::UnsupportedCertVersion))
}

/// Whether the server has the certificate's key, in TLS 1.2.
pub(super) fn verify_tls12_signature(
    message: &[u8],
    certificate: &CertificateDer<'_>,
    signed: &DigitallySignedStruct,
    algorithms: &WebPkiSupportedAlgorithms,
) -> Result<HandshakeSignatureValid, Error> {
    let key = key(certificate)?;
    let key = RawPublicKeyEntity::try_from(&key).map_err(|_| CertificateError::BadEncoding)?;
    let possible = algorithms.mapping.iter().filter(|(scheme, _)| *scheme == signed.scheme);
    let mut possible = possible.flat_map(|(_, algorithms)| algorithms.iter());
    if possible.any(|algorithm| key.verify_signature(*algorithm, message, signed.signature()).is_ok()) {
        return Ok(HandshakeSignatureValid::assertion());
    }
    Err(CertificateError::BadSignature.into())
}

/// The same in TLS 1.3.
pub(super) fn verify_tls13_signature(
    message: &[u8],
    certificate: &CertificateDer<'_>,
    signed: &DigitallySignedStruct,
    algorithms: &WebPkiSupportedAlgorithms,
) -> Result<HandshakeSignatureValid, Error> {
    verify_tls13_signature_with_raw_key(message, &key(certificate)?, signed, algorithms)
}

fn key<'a>(certificate: &'a CertificateDer<'_>) -> Result<SubjectPublicKeyInfoDer<'a>, Error> {
    let key = find_key(certificate).ok_or(CertificateError::BadEncoding)?;
    Ok(SubjectPublicKeyInfoDer::from(key))
}

/// Tags of DER. Source: ITU-T X.690.
const INTEGER: u8 = 0x02;
const SEQUENCE: u8 = 0x30;

/// `Certificate ::= SEQUENCE { SEQUENCE { serial INTEGER, algorithm, issuer, validity, subject, key SEQUENCE … } … }`.
fn find_key(certificate: &[u8]) -> Option<&[u8]> {
    let (_, body, _) = element(certificate, SEQUENCE)?;
    let (_, mut fields, _) = element(body, SEQUENCE)?;
    for tag in [INTEGER, SEQUENCE, SEQUENCE, SEQUENCE, SEQUENCE] {
        (_, _, fields) = element(fields, tag)?;
    }
    element(fields, SEQUENCE).map(|(whole, _, _)| whole)
}

/// The element at the front, if it has this tag: whole, its contents, and what is behind it.
fn element(bytes: &[u8], tag: u8) -> Option<(&[u8], &[u8], &[u8])> {
    let (length, rest) = bytes.strip_prefix(&[tag])?.split_first()?;
    let (length, rest) = match *length {
        short @ 0..=0x7F => (usize::from(short), rest),
        long @ 0x81..=0x84 => {
            let (length, rest) = rest.split_at_checked(usize::from(long & 0x7F))?;
            (length.iter().fold(0, |all, byte| all << 8 | usize::from(*byte)), rest)
        }
        _ => return None,
    };
    let (contents, behind) = rest.split_at_checked(length)?;
    let whole = bytes.get(..bytes.len().checked_sub(behind.len())?)?;
    Some((whole, contents, behind))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_bytes_make_it_panic() {
        let field = |tag: u8, contents: &[u8]| [&[tag, contents.len() as u8], contents].concat();
        let fields =
            [INTEGER, SEQUENCE, SEQUENCE, SEQUENCE, SEQUENCE].map(|tag| field(tag, &[1, 2])).concat();
        let key = field(SEQUENCE, &[9; 20]);
        let whole = field(SEQUENCE, &field(SEQUENCE, &[&fields[..], &key].concat()));
        assert_eq!(find_key(&whole), Some(&key[..]));
        for end in 0..whole.len() {
            assert_eq!(find_key(&whole[..end]), None);
        }
        for at in 0..whole.len() {
            for byte in [0, 0x7F, 0x80, 0x81, 0x84, 0x85, 0xFF] {
                let mut changed = whole.clone();
                changed[at] = byte;
                let _ = find_key(&changed);
            }
        }
    }
}
