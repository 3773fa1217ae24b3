//! Certificates for one server: an authority made on the spot and a certificate that it signed. They live as long as
//! the server does.

use anyhow::Context as _;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};

/// PEM texts.
pub(crate) struct Certificates {
    pub(crate) authority: String,
    pub(crate) certificate: String,
    pub(crate) key: String,
    /// For the user `cert_user`, signed by the same authority.
    pub(crate) client: String,
    pub(crate) client_key: String,
}

impl Certificates {
    /// A server certificate for `localhost`, `127.0.0.1` and `::1`.
    pub(crate) fn issue() -> anyhow::Result<Self> {
        let mut authority = CertificateParams::new(Vec::new())?;
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        authority.distinguished_name.push(DnType::CommonName, "test-servers authority");
        let issuer = CertifiedIssuer::self_signed(authority, KeyPair::generate()?)
            .context("signing the test authority's certificate")?;
        let key = KeyPair::generate()?;
        let names = ["localhost", "127.0.0.1", "::1"].map(str::to_owned);
        let mut server = CertificateParams::new(names)?;
        server.distinguished_name.push(DnType::CommonName, "localhost");
        let certificate = server.signed_by(&key, &issuer).context("signing the server's certificate")?;
        let client_key = KeyPair::generate()?;
        let mut client = CertificateParams::new(Vec::new())?;
        client.distinguished_name.push(DnType::CommonName, "cert_user");
        let client = client.signed_by(&client_key, &issuer).context("signing a client's certificate")?;
        Ok(Self {
            authority: issuer.pem(),
            certificate: certificate.pem(),
            key: key.serialize_pem(),
            client: client.pem(),
            client_key: client_key.serialize_pem(),
        })
    }
}
