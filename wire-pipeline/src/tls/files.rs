//! Certificates, keys and lists of revocations from files, and the system's roots.

use std::path::Path;
use std::sync::Arc;

use tokio_rustls::rustls::RootCertStore;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};

use super::{Identity, NotUsable, Roots};

/// Those who may sign, and the certificates themselves.
pub(super) struct Trusted {
    pub(super) roots: Arc<RootCertStore>,
    /// What a file holds: a server may show one of them itself.
    pub(super) certificates: Vec<CertificateDer<'static>>,
}

pub(super) fn trusted(roots: &Roots) -> Result<Trusted, NotUsable> {
    let mut store = RootCertStore::empty();
    let certificates = match roots {
        Roots::File(path) => {
            let certificates: Vec<CertificateDer<'static>> = several(path, "certificates")?;
            let (added, _) = store.add_parsable_certificates(certificates.iter().cloned());
            if added == 0 {
                return Err(none(path, "certificates that can be used"));
            }
            certificates
        }
        Roots::System => {
            let found = rustls_native_certs::load_native_certs();
            store.add_parsable_certificates(found.certs);
            if store.is_empty() {
                let what = "the system trusts no authority that could be read; name a file of roots";
                let source = found.errors.into_iter().next();
                return Err(match source {
                    Some(source) => NotUsable::new(what, source),
                    None => NotUsable { what: what.to_owned(), source: None },
                });
            }
            Vec::new()
        }
    };
    Ok(Trusted { roots: Arc::new(store), certificates })
}

pub(super) fn revocations(path: &Path) -> Result<Vec<CertificateRevocationListDer<'static>>, NotUsable> {
    several(path, "revocations")
}

pub(super) fn identity(
    identity: &Identity,
) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), NotUsable> {
    let certificates = several(&identity.certificate, "certificates")?;
    let path = &identity.key;
    let key = PrivateKeyDer::from_pem_file(path).map_err(|cause| {
        let what = match &cause {
            tokio_rustls::rustls::pki_types::pem::Error::NoItemsFound => format!(
                "{} holds no private key that can be used; it must be PEM, and not encrypted",
                path.display()
            ),
            _ => format!("the private key in {} cannot be read", path.display()),
        };
        NotUsable::new(what, cause)
    })?;
    Ok((certificates, key))
}

fn several<T: PemObject>(path: &Path, what: &str) -> Result<Vec<T>, NotUsable> {
    let unreadable =
        |cause| NotUsable::new(format!("the {what} in {} cannot be read", path.display()), cause);
    let all: Vec<T> =
        T::pem_file_iter(path).map_err(unreadable)?.collect::<Result<_, _>>().map_err(unreadable)?;
    if all.is_empty() { Err(none(path, what)) } else { Ok(all) }
}

fn none(path: &Path, what: &str) -> NotUsable {
    NotUsable { what: format!("{} holds no {what}; it must be PEM", path.display()), source: None }
}
