//! What is verified of a server's certificate.

use std::sync::Arc;

use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::client::{WebPkiServerVerifier, verify_server_name};
use tokio_rustls::rustls::crypto::{verify_tls12_signature, verify_tls13_signature};
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::server::ParsedCertificate;
use tokio_rustls::rustls::{CertificateError, DigitallySignedStruct, Error, SignatureScheme};

use super::files::{self, Trusted};
use super::{NotUsable, Provider, Tls, Verification, version_1};

pub(super) fn verifier(tls: &Tls, provider: &Provider) -> Result<Arc<dyn ServerCertVerifier>, NotUsable> {
    if tls.verification == Verification::None {
        return Ok(Arc::new(Nothing(Arc::clone(provider))));
    }
    let Trusted { roots, certificates } = files::trusted(&tls.roots)?;
    let mut revoked = Vec::new();
    for path in &tls.revoked {
        revoked.extend(files::revocations(path)?);
    }
    let mut builder =
        WebPkiServerVerifier::builder_with_provider(roots, Arc::clone(provider)).with_crls(revoked);
    // An authority whose list we were not given may sign all the same, as with OpenSSL's `X509_V_FLAG_CRL_CHECK` off.
    builder = builder.allow_unknown_revocation_status();
    let chain =
        builder.build().map_err(|cause| NotUsable::new("the roots or revocations cannot be used", cause))?;
    Ok(Arc::new(Signed { chain, certificates, named: tls.verification == Verification::Full }))
}

/// Signed by one of the roots, or one of them itself.
#[derive(Debug)]
struct Signed {
    chain: Arc<WebPkiServerVerifier>,
    certificates: Vec<CertificateDer<'static>>,
    /// And it names the host.
    named: bool,
}

impl ServerCertVerifier for Signed {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let verified =
            self.chain.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now);
        match verified {
            // The chain is verified before the name is.
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) if !self.named => Ok(ServerCertVerified::assertion()),
            // A certificate that signed itself is an authority, and no authority may show its own in a chain; but it is
            // the very one that we were told to trust. What is left to verify is the name: the time comes before.
            Err(Error::InvalidCertificate(CertificateError::Other(why)))
                if matches!(why.0.downcast_ref(), Some(webpki::Error::CaUsedAsEndEntity))
                    && self.certificates.iter().any(|trusted| trusted == end_entity) =>
            {
                if self.named {
                    verify_server_name(&ParsedCertificate::try_from(end_entity)?, server_name)?;
                }
                Ok(ServerCertVerified::assertion())
            }
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.chain.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.chain.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.chain.supported_verify_schemes()
    }
}

/// Any certificate will do, as long as the server has its key.
#[derive(Debug)]
struct Nothing(Provider);

impl ServerCertVerifier for Nothing {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        match verify_tls12_signature(message, certificate, signed, algorithms) {
            Err(error) if version_1::is_meant(&error) => {
                version_1::verify_tls12_signature(message, certificate, signed, algorithms)
            }
            verified => verified,
        }
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        match verify_tls13_signature(message, certificate, signed, algorithms) {
            Err(error) if version_1::is_meant(&error) => {
                version_1::verify_tls13_signature(message, certificate, signed, algorithms)
            }
            verified => verified,
        }
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
