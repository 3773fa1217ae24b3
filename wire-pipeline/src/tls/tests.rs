//! Handshakes with a server of our own over TCP: every way of verification with certificates that are right and wrong,
//! and bytes in both directions afterwards.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CertifiedIssuer, DnType, IsCa,
    KeyIdMethod, KeyPair, KeyUsagePurpose, RevokedCertParams, SerialNumber, date_time_ymd,
};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;

use super::files;
use super::*;
use crate::config::tests::{Fault, NoServer};

/// Each authority has a name of its own.
static NUMBER: AtomicUsize = AtomicUsize::new(0);

/// An authority, what it has signed, and a folder for both.
struct Office {
    folder: TempDir,
    authority: CertifiedIssuer<'static, KeyPair>,
}

impl Office {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).expect("parameters");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        params.distinguished_name.push(DnType::CommonName, format!("authority {number}"));
        let authority = CertifiedIssuer::self_signed(params, key()).expect("an authority");
        Self { folder: TempDir::new().expect("a folder"), authority }
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        fs::write(&path, text).expect("written");
        path
    }

    fn roots(&self) -> Roots {
        Roots::File(self.write("roots.pem", &self.authority.pem()))
    }

    /// A certificate for these names, after `change`, and its key.
    fn sign(&self, names: &[&str], change: impl FnOnce(&mut CertificateParams)) -> (String, String) {
        let mut params = named(names);
        change(&mut params);
        let key = key();
        (params.signed_by(&key, &self.authority).expect("signed").pem(), key.serialize_pem())
    }

    fn identity(&self, (certificate, key): &(String, String)) -> Identity {
        Identity { certificate: self.write("own.pem", certificate), key: self.write("own.key", key) }
    }
}

fn key() -> KeyPair {
    KeyPair::generate().expect("a key")
}

fn named(names: &[&str]) -> CertificateParams {
    CertificateParams::new(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>()).expect("names")
}

/// A server's side with this certificate, which asks for one that `clients` has signed.
fn acceptor(
    pems: &(String, String),
    clients: Option<&Office>,
    change: impl FnOnce(&mut ServerConfig),
) -> TlsAcceptor {
    use tokio_rustls::rustls::pki_types::pem::PemObject as _;
    let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions");
    let builder = match clients {
        None => builder.with_no_client_auth(),
        Some(office) => {
            let roots = files::trusted(&office.roots()).ok().expect("roots").roots;
            let provider = Arc::new(ring::default_provider());
            let verifier =
                WebPkiClientVerifier::builder_with_provider(roots, provider).build().expect("a verifier");
            builder.with_client_cert_verifier(verifier)
        }
    };
    let chain =
        CertificateDer::pem_slice_iter(pems.0.as_bytes()).collect::<Result<Vec<_>, _>>().expect("PEM");
    let key = PrivateKeyDer::from_pem_slice(pems.1.as_bytes()).expect("a key");
    let mut config = builder.with_single_cert(chain, key).expect("a certificate");
    change(&mut config);
    TlsAcceptor::from(Arc::new(config))
}

/// A server that echoes; each connection's end is the task's.
struct Echo {
    port: u16,
    task: JoinHandle<std::io::Result<Vec<u8>>>,
}

impl Echo {
    async fn start(pems: &(String, String), change: impl FnOnce(&mut ServerConfig)) -> Self {
        Self::with(pems, None, change).await
    }

    async fn with(
        pems: &(String, String),
        clients: Option<&Office>,
        change: impl FnOnce(&mut ServerConfig),
    ) -> Self {
        let acceptor = acceptor(pems, clients, change);
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("its address").port();
        let task = tokio::spawn(async move {
            let (socket, _) = listener.accept().await?;
            let mut stream = acceptor.accept(socket).await?;
            let mut all = Vec::new();
            let mut piece = vec![0; 10_000];
            loop {
                let count = stream.read(&mut piece).await?;
                if count == 0 {
                    stream.shutdown().await?;
                    return Ok(all);
                }
                all.extend_from_slice(&piece[..count]);
                stream.write_all(&piece[..count]).await?;
                stream.flush().await?;
            }
        });
        Self { port, task }
    }

    async fn encrypt(&self, tls: &Tls, name: &str) -> Result<Socket, Fault> {
        let socket = TcpStream::connect(("127.0.0.1", self.port)).await.expect("it listens");
        tls.encrypt::<NoServer>(Socket::Tcp(socket), name, &"db.internal:1").await
    }
}

/// Whether a server with this certificate is taken; if not, in which words.
async fn taken(pems: &(String, String), tls: &Tls, name: &str) -> Result<(), String> {
    let echo = Echo::start(pems, |_| ()).await;
    let mut socket = match echo.encrypt(tls, name).await {
        Ok(socket) => socket,
        Err(error) => {
            assert_eq!((error.kind(), error.outcome()), (ErrorKind::Tls, Outcome::NotSent));
            assert!(echo.task.await.expect("no panic").is_err());
            return Err(error.to_string());
        }
    };
    socket.write_all(b"ping").await.expect("written");
    socket.flush().await.expect("flushed");
    let mut back = [0; 4];
    socket.read_exact(&mut back).await.expect("read");
    assert_eq!(&back, b"ping");
    socket.shutdown().await.expect("a farewell");
    assert_eq!(echo.task.await.expect("no panic").expect("it ended in order"), b"ping");
    Ok(())
}

fn levels(roots: &Roots) -> [Tls; 3] {
    [Verification::None, Verification::Authority, Verification::Full].map(|verification| Tls {
        verification,
        roots: roots.clone(),
        ..Tls::default()
    })
}

#[tokio::test]
async fn each_level_takes_what_it_is_to_take_and_nothing_else() {
    let office = Office::new();
    let [none, authority, full] = levels(&office.roots());
    let good = office.sign(&["db.internal", "127.0.0.1", "::1"], |_| ());
    for tls in [&none, &authority, &full] {
        for name in ["db.internal", "127.0.0.1", "::1"] {
            taken(&good, tls, name).await.expect("right in every way");
        }
    }
    // Another host's.
    for name in ["other.internal", "127.0.0.2", "internal"] {
        taken(&good, &none, name).await.expect("not verified");
        taken(&good, &authority, name).await.expect("the name is not verified");
        let error = taken(&good, &full, name).await.expect_err("another host's");
        assert!(error.contains("db.internal:1") && error.contains("for another host"), "{error}");
    }
    // Names that no certificate can have.
    taken(&good, &authority, "/run/socket").await.expect("the name is not verified");
    let echo = Echo::start(&good, |_| ()).await;
    let error = echo.encrypt(&full, "/run/socket").await.expect_err("no name");
    assert!(error.to_string().contains("no certificate can name the host"), "{error}");
    // Signed by somebody else, or by nobody.
    let stranger = Office::new().sign(&["db.internal"], |_| ());
    let own = key();
    let alone = (named(&["db.internal"]).self_signed(&own).expect("signed").pem(), own.serialize_pem());
    for pems in [&stranger, &alone] {
        taken(pems, &none, "db.internal").await.expect("not verified");
        for tls in [&authority, &full] {
            let error = taken(pems, tls, "db.internal").await.expect_err("nobody whom we trust");
            assert!(error.contains("not signed by an authority in the file of roots"), "{error}");
        }
    }
    let system = Tls::default();
    let error = taken(&good, &system, "db.internal").await.expect_err("not the system's");
    assert!(error.contains("the system does not trust") || error.contains("trusts no authority"), "{error}");
    // Out of date.
    let old = office.sign(&["db.internal"], |params| params.not_after = date_time_ymd(2020, 1, 1));
    taken(&old, &none, "db.internal").await.expect("not verified");
    for tls in [&authority, &full] {
        let error = taken(&old, tls, "db.internal").await.expect_err("expired");
        assert!(error.contains("has expired"), "{error}");
    }
}

#[tokio::test]
async fn a_certificate_in_the_file_itself_is_trusted_as_long_as_it_is_valid() {
    let office = Office::new();
    for is_ca in [IsCa::Ca(BasicConstraints::Unconstrained), IsCa::NoCa] {
        let own = key();
        let mut params = named(&["db.internal"]);
        params.is_ca = is_ca;
        let pem = params.self_signed(&own).expect("signed").pem();
        let pems = (pem.clone(), own.serialize_pem());
        let [_, authority, full] = levels(&Roots::File(office.write("self.pem", &pem)));
        taken(&pems, &authority, "other.internal").await.expect("that very one");
        taken(&pems, &full, "db.internal").await.expect("that very one");
        let error = taken(&pems, &full, "other.internal").await.expect_err("another host's");
        assert!(error.contains("for another host"), "{error}");
        params.not_after = date_time_ymd(2020, 1, 1);
        let pem = params.self_signed(&own).expect("signed").pem();
        let [_, authority, _] = levels(&Roots::File(office.write("self.pem", &pem)));
        let error = taken(&(pem, own.serialize_pem()), &authority, "db.internal").await.expect_err("expired");
        assert!(error.contains("has expired"), "{error}");
    }
}

#[tokio::test]
async fn a_revoked_certificate_is_refused() {
    let office = Office::new();
    let serial = SerialNumber::from(42);
    let revoked = office.sign(&["db.internal"], |params| params.serial_number = Some(serial.clone()));
    let good = office.sign(&["db.internal"], |_| ());
    let list = CertificateRevocationListParams {
        this_update: date_time_ymd(2026, 1, 1),
        next_update: date_time_ymd(2099, 1, 1),
        crl_number: SerialNumber::from(1),
        issuing_distribution_point: None,
        revoked_certs: vec![RevokedCertParams {
            serial_number: serial,
            revocation_time: date_time_ymd(2026, 1, 1),
            reason_code: None,
            invalidity_date: None,
        }],
        key_identifier_method: KeyIdMethod::Sha256,
    };
    let list = list.signed_by(&office.authority).expect("signed").pem().expect("PEM");
    let [_, authority, _] = levels(&office.roots());
    taken(&revoked, &authority, "db.internal").await.expect("nobody told us");
    let tls = Tls { revoked: vec![office.write("revoked.pem", &list)], ..authority };
    taken(&good, &tls, "db.internal").await.expect("not revoked");
    let error = taken(&revoked, &tls, "db.internal").await.expect_err("revoked");
    assert!(error.contains("was revoked"), "{error}");
}

#[tokio::test]
async fn a_server_that_wants_our_certificate_gets_it() {
    let office = Office::new();
    let good = office.sign(&["db.internal"], |_| ());
    let [_, _, full] = levels(&office.roots());
    for (identity, welcome) in [(Some(office.identity(&office.sign(&["app"], |_| ()))), true), (None, false)]
    {
        let echo = Echo::with(&good, Some(&office), |_| ()).await;
        let tls = Tls { identity, ..full.clone() };
        // With TLS 1.3 the server's refusal comes behind the handshake.
        let talk = async {
            let mut socket = echo.encrypt(&tls, "db.internal").await.map_err(|error| error.to_string())?;
            socket.write_all(b"x").await.map_err(|error| error.to_string())?;
            socket.flush().await.map_err(|error| error.to_string())?;
            socket.read_u8().await.map_err(|error| error.to_string())
        };
        assert_eq!(talk.await.is_ok(), welcome);
        echo.task.abort();
    }
}

#[tokio::test]
async fn files_are_read_again_for_every_connection() {
    let office = Office::new();
    let other = Office::new();
    let good = office.sign(&["db.internal"], |_| ());
    let path = office.write("changing.pem", &other.authority.pem());
    let tls = Tls { roots: Roots::File(path.clone()), ..Tls::default() };
    taken(&good, &tls, "db.internal").await.expect_err("another authority");
    fs::write(&path, office.authority.pem()).expect("written");
    taken(&good, &tls, "db.internal").await.expect("the right one now");
}

#[tokio::test]
async fn a_renewed_certificate_of_ours_is_shown_from_the_next_connection_on() {
    let office = Office::new();
    let good = office.sign(&["db.internal"], |_| ());
    let [_, _, full] = levels(&office.roots());
    let identity = office.identity(&Office::new().sign(&["app"], |_| ()));
    let tls = Tls { identity: Some(identity), ..full };
    let welcome = || async {
        let echo = Echo::with(&good, Some(&office), |_| ()).await;
        let mut socket = echo.encrypt(&tls, "db.internal").await.ok()?;
        socket.write_all(b"x").await.ok()?;
        socket.flush().await.ok()?;
        socket.read_u8().await.ok()
    };
    assert_eq!(welcome().await, None, "a stranger's");
    office.identity(&office.sign(&["app"], |_| ()));
    assert_eq!(welcome().await, Some(b'x'), "the renewed one");
}

#[tokio::test]
async fn files_that_cannot_be_used_are_named() {
    let office = Office::new();
    let good = office.sign(&["db.internal"], |_| ());
    let missing = office.folder.path().join("missing.pem");
    let empty = office.write("empty.pem", "");
    let [_, _, full] = levels(&office.roots());
    let identity = office.identity(&good);
    let foreign = office.write("foreign.key", &key().serialize_pem());
    let encrypted = office.write(
        "encrypted.key",
        "-----BEGIN ENCRYPTED PRIVATE KEY-----\nMAA=\n-----END ENCRYPTED PRIVATE KEY-----\n",
    );
    for (tls, words) in [
        (Tls { roots: Roots::File(missing.clone()), ..full.clone() }, ["missing.pem", "cannot be read"]),
        (Tls { roots: Roots::File(empty.clone()), ..full.clone() }, ["empty.pem", "holds no certificates"]),
        (Tls { revoked: vec![empty.clone()], ..full.clone() }, ["empty.pem", "holds no revocations"]),
        (
            Tls { identity: Some(Identity { key: foreign, ..identity.clone() }), ..full.clone() },
            ["foreign.key", "does not belong"],
        ),
        (
            Tls { identity: Some(Identity { key: encrypted, ..identity.clone() }), ..full.clone() },
            ["encrypted.key", "not encrypted"],
        ),
        (
            Tls { identity: Some(Identity { certificate: missing, ..identity.clone() }), ..full.clone() },
            ["missing.pem", "cannot be read"],
        ),
        (Tls { versions: (Version::Tls13, Version::Tls12), ..full.clone() }, ["oldest version", "newer"]),
    ] {
        let echo = Echo::start(&good, |_| ()).await;
        let error = echo.encrypt(&tls, "db.internal").await.expect_err(words[0]).to_string();
        assert!(words.iter().all(|word| error.contains(word)), "{error}");
    }
}

#[tokio::test]
async fn protocols_and_versions_are_agreed_on() {
    let office = Office::new();
    let good = office.sign(&["db.internal"], |_| ());
    let [_, _, full] = levels(&office.roots());
    let tls = Tls { alpn: &["postgresql"], ..full };
    let echo = Echo::start(&good, |config| config.alpn_protocols = vec![b"postgresql".to_vec()]).await;
    let socket = echo.encrypt(&tls, "db.internal").await.expect("the same protocol");
    let Socket::Encrypted(channel) = &socket else { panic!("encrypted") };
    assert_eq!((channel.protocol(), channel.server_name()), (Some(&b"postgresql"[..]), "db.internal"));
    assert!(channel.certificate().is_some_and(|certificate| certificate.len() > 100));
    assert!(matches!(socket.peer(), Some(crate::socket::Peer::Tcp(address)) if address.port() == echo.port));
    let echo = Echo::start(&good, |_| ()).await;
    let error = echo.encrypt(&tls, "db.internal").await.expect_err("none");
    assert!(error.to_string().contains("did not agree to the protocol postgresql"), "{error}");
    for (version, ours) in [(Version::Tls12, "TLSv1_2"), (Version::Tls13, "TLSv1_3")] {
        let tls = Tls { versions: (version, version), alpn: &[], ..tls.clone() };
        let echo = Echo::start(&good, |_| ()).await;
        let socket = echo.encrypt(&tls, "db.internal").await.expect(ours);
        drop(socket);
        let _ = echo.task.await;
    }
}

#[tokio::test]
async fn large_amounts_pass_both_ways_at_once() {
    let office = Office::new();
    let echo = Echo::start(&office.sign(&["db.internal"], |_| ()), |_| ()).await;
    let [_, _, full] = levels(&office.roots());
    let socket = echo.encrypt(&full, "db.internal").await.expect("encrypted");
    let all: Vec<u8> = (0..4_000_000_u32).map(|n| (n % 251) as u8).collect();
    let (mut reader, mut writer) = tokio::io::split(socket);
    let sent = all.clone();
    let sending = tokio::spawn(async move {
        writer.write_all(&sent).await?;
        writer.shutdown().await
    });
    let mut back = Vec::new();
    reader.read_to_end(&mut back).await.expect("read");
    sending.await.expect("no panic").expect("written");
    assert!(back == all);
    assert!(echo.task.await.expect("no panic").expect("in order") == all);
}

#[tokio::test]
async fn what_has_come_is_seen_before_it_is_read() {
    let office = Office::new();
    let echo = Echo::start(&office.sign(&["db.internal"], |_| ()), |_| ()).await;
    let [_, _, full] = levels(&office.roots());
    let mut socket = echo.encrypt(&full, "db.internal").await.expect("encrypted");
    socket.write_all(b"ab").await.expect("written");
    socket.flush().await.expect("flushed");
    // One byte is read, and the other one is decrypted by then.
    assert_eq!(socket.read_u8().await.expect("read"), b'a');
    assert!(socket.has_unread());
    assert_eq!(socket.read_u8().await.expect("read"), b'b');
    assert!(!socket.has_unread());
    // A server that goes without a word has ended.
    echo.task.abort();
    assert_eq!(socket.read(&mut [0; 8]).await.expect("an end"), 0);
    assert!(socket.has_unread());
}

#[tokio::test]
async fn a_server_that_is_none_is_said_to_be_so() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("its address").port();
    let [none, _, _] = levels(&Roots::System);
    for said in [&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], b"", &[0x16, 3, 3, 0xFF, 0xFF]] {
        let socket = TcpStream::connect(("127.0.0.1", port)).await.expect("it listens");
        let (mut other, _) = listener.accept().await.expect("a connection");
        let talk = async {
            let mut first = [0; 5];
            other.read_exact(&mut first).await.expect("a hello");
            other.write_all(said).await.expect("written");
            drop(other);
        };
        let (result, ()) = tokio::join!(none.encrypt::<NoServer>(Socket::Tcp(socket), "x", &"db:1"), talk);
        let error = result.map(|_| ()).expect_err("no handshake");
        assert!(error.to_string().contains("no encrypted channel to db:1"), "{error}");
    }
}

/// What `openssl x509 -req` makes of a request without a file of extensions: X.509 of version 1, and its key.
const VERSION_1: (&str, &str) = (
    "-----BEGIN CERTIFICATE-----\n\
     MIIBJzCBzwIUeSDfWhz53N1UABfvO4PZ+2uVwMswCgYIKoZIzj0EAwIwFjEUMBIG\n\
     A1UEAwwLZGIuaW50ZXJuYWwwIBcNMjYxMjAxMTUyOTQzWhgPMjEyNjExMDcxNTI5\n\
     NDNaMBYxFDASBgNVBAMMC2RiLmludGVybmFsMFkwEwYHKoZIzj0CAQYIKoZIzj0D\n\
     AQcDQgAE3eNDPDvdeYkUGLArtJYD7rbd7dfZemxCQ/W6+OzkH9NgiMKqywMG2Fpf\n\
     lPugEYCB19AtQkxnGD6XQhCtTz1jsjAKBggqhkjOPQQDAgNHADBEAiBc36QExE3D\n\
     zMRThj33jY9PVsY/wWst+c4nAQzig9eyPQIgHPb0eAi/vzQ69sfTBnbvgYwrlPf7\n\
     s23cimtQ5NwjjuQ=\n\
     -----END CERTIFICATE-----\n",
    "-----BEGIN PRIVATE KEY-----\n\
     MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgKBGW2Etd6DMZoZjH\n\
     YuIrWeoTEGQp73iY9Icz9OBABOOhRANCAATd40M8O915iRQYsCu0lgPutt3t19l6\n\
     bEJD9br47OQf02CIwqrLAwbYWl+U+6ARgIHX0C1CTGcYPpdCEK1PPWOy\n\
     -----END PRIVATE KEY-----\n",
);

#[tokio::test]
async fn a_certificate_of_version_1_is_taken_where_none_is_verified_and_else_said_to_be_so() {
    use tokio_rustls::rustls::pki_types::pem::PemObject as _;
    use tokio_rustls::rustls::sign::{CertifiedKey, SingleCertAndKey};
    let office = Office::new();
    let good = office.sign(&["x"], |_| ());
    let shown = |pem: &str| {
        let key = PrivateKeyDer::from_pem_slice(pem.as_bytes()).expect("a key");
        let key = ring::default_provider().key_provider.load_private_key(key).expect("a usable key");
        let certificate = CertificateDer::from_pem_slice(VERSION_1.0.as_bytes()).expect("a certificate");
        Arc::new(SingleCertAndKey::from(CertifiedKey::new(vec![certificate], key)))
    };
    let (own, foreign) = (shown(VERSION_1.1), shown(&key().serialize_pem()));
    for version in [Version::Tls12, Version::Tls13] {
        let levels = levels(&Roots::File(office.write("old.pem", VERSION_1.0)));
        let [none, authority, full] = levels.map(|tls| Tls { versions: (version, version), ..tls });
        let echo = Echo::start(&good, |config| config.cert_resolver = own.clone());
        let mut socket = echo.await.encrypt(&none, "db.internal").await.expect("any will do");
        socket.write_all(b"x").await.expect("written");
        socket.flush().await.expect("flushed");
        assert_eq!(socket.read_u8().await.expect("read"), b'x');
        let echo = Echo::start(&good, |config| config.cert_resolver = foreign.clone());
        let error = echo.await.encrypt(&none, "db.internal").await.expect_err("another key").to_string();
        assert!(error.contains("its certificate is not valid"), "{error}");
        for tls in [authority, full] {
            let echo = Echo::start(&good, |config| config.cert_resolver = own.clone());
            let error = echo.await.encrypt(&tls, "db.internal").await.expect_err("no names").to_string();
            assert!(error.contains("version 1; issue one of version 3"), "{error}");
        }
    }
}

/// Hands on what a server says up to so many bytes, and everything that it is told; whether it said more.
async fn cut(mut ours: DuplexStream, mut servers: DuplexStream, after: usize) -> bool {
    let (mut left, mut down, mut up) = (after, vec![0; 4096], vec![0; 4096]);
    loop {
        tokio::select! {
            count = servers.read(&mut down) => {
                let count = count.unwrap_or(0);
                let passes = count.min(left);
                left -= passes;
                if ours.write_all(&down[..passes]).await.is_err() || count == 0 || passes < count {
                    return passes < count;
                }
            }
            count = ours.read(&mut up) => {
                let count = count.unwrap_or(0);
                if count == 0 || servers.write_all(&up[..count]).await.is_err() {
                    return false;
                }
            }
        }
    }
}

#[tokio::test]
async fn a_channel_that_is_cut_anywhere_ends_and_gives_nothing_that_was_not_said() {
    let office = Office::new();
    let acceptor = acceptor(&office.sign(&["db.internal"], |_| ()), None, |_| ());
    let [_, _, full] = levels(&office.roots());
    let said: Vec<u8> = (0..3_000_u32).map(|n| (n % 251) as u8).collect();
    let (mut failed, mut short, mut whole) = (0, 0, 0);
    for after in (0..).step_by(61) {
        let (ours, near) = tokio::io::duplex(1 << 16);
        let (far, servers) = tokio::io::duplex(1 << 16);
        let middle = tokio::spawn(cut(near, far, after));
        let (acceptor, words) = (acceptor.clone(), said.clone());
        let server = tokio::spawn(async move {
            let mut stream = acceptor.accept(servers).await?;
            for piece in words.chunks(1_000) {
                stream.write_all(piece).await?;
                stream.flush().await?;
            }
            stream.shutdown().await
        });
        let mut heard = Vec::new();
        match full.encrypt::<NoServer>(Socket::Own(Box::new(ours), None), "db.internal", &"db:1").await {
            Ok(mut socket) => {
                socket.read_to_end(&mut heard).await.expect("an end, and no error");
                drop(socket);
                assert!(said.starts_with(&heard), "{after}: something else");
                if heard == said { whole += 1 } else { short += 1 }
            }
            Err(error) => {
                assert_eq!((error.kind(), error.outcome()), (ErrorKind::Tls, Outcome::NotSent), "{error}");
                failed += 1;
            }
        }
        let was_cut = middle.await.expect("no panic");
        let _ = server.await.expect("no panic");
        if !was_cut {
            break;
        }
    }
    assert!(failed > 3 && short > 10 && whole > 0, "{failed} {short} {whole}");
}
