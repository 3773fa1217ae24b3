//! Transcripts of the connection phase, byte by byte.

use super::*;
use crate::auth::{Channel, ServerKey};

const CHALLENGE: &[u8; NONCE] = b"abcdefghijklmnopqrst";
/// Everything that a server of today has.
const ALL: u32 = u32::MAX;

/// `HandshakeV10` of a server with `capabilities` and `plugin`.
fn greeting(capabilities: u32, plugin: &str) -> Vec<u8> {
    let [c0, c1, c2, c3] = capabilities.to_le_bytes();
    let mut packet = b"\x0A8.4.0\0\x07\0\0\0".to_vec(); // protocol 10, version, connection 7
    packet.extend_from_slice(&CHALLENGE[..8]);
    packet.extend_from_slice(&[0, c0, c1, 255, 2, 0, c2, c3, 21]); // collation 255, autocommit, 21 bytes of challenge
    packet.extend_from_slice(&[0; 10]);
    packet.extend_from_slice(&CHALLENGE[8..]);
    packet.push(0);
    packet.extend_from_slice(plugin.as_bytes());
    packet.push(0);
    packet
}

fn framed(sequence: u8, packet: &[u8]) -> Vec<u8> {
    [&[packet.len() as u8, (packet.len() >> 8) as u8, 0, sequence], packet].concat()
}

fn startup(database: Option<&str>, terms: Terms) -> Startup {
    started(StartupParams {
        user: "app".to_owned(),
        database: database.map(Into::into),
        terms,
        ..Default::default()
    })
}

fn started(params: StartupParams) -> Startup {
    Startup::new(params).expect("good parameters")
}

fn encrypted(encryption: Encryption) -> Startup {
    let terms = Terms { clear_text: true, ..Terms::default() };
    started(StartupParams { user: "app".to_owned(), encryption, terms, ..Default::default() })
}

fn feed(startup: &mut Startup, bytes: &[u8]) -> Result<Option<Step>, Fault> {
    let mut input = BytesMut::from(bytes);
    let step = startup.receive(&mut input);
    if matches!(step, Ok(Some(_))) {
        assert!(input.is_empty(), "bytes were left");
    }
    step
}

/// Up to our response, which is returned.
fn greeted(startup: &mut Startup, plugin: &str) -> Vec<u8> {
    let step = feed(startup, &framed(0, &greeting(ALL, plugin)));
    assert!(matches!(step, Ok(Some(Step::NeedPassword))), "{step:?}");
    startup.answer_password(Passwords::one("secret")).expect("an answer")
}

const OK: &[u8] = b"\x00\0\0\x02\0\0\0";

#[test]
fn a_user_in_the_cache_is_in_after_one_exchange() {
    let mut startup = startup(Some("db"), Terms::default());
    let response = greeted(&mut startup, "caching_sha2_password");
    // length, sequence 1; capabilities; largest packet; collation 45; 23 times 0; user; response of 32 bytes
    assert_eq!(response[3], 1);
    let capabilities = u32::from_le_bytes(*response[4..].first_chunk().unwrap());
    assert_eq!(capabilities, capability::WANTED | capability::CONNECT_WITH_DB);
    assert_eq!(capabilities & (1 << 7), 0, "no LOCAL_FILES");
    assert_eq!(capabilities & (1 << 16), 0, "no MULTI_STATEMENTS");
    assert_eq!(&response[8..13], &[0, 0, 0, 0x40, 45]);
    assert_eq!(&response[13..36], &[0; 23]);
    assert_eq!(&response[36..41], b"app\0\x20");
    assert_eq!(&response[73..], b"db\0caching_sha2_password\0");
    assert_eq!(usize::from(response[0]), response.len() - 4);
    // 0x01 0x03: known; then OK
    let both = [framed(2, &[1, 3]), framed(3, OK)].concat();
    let Ok(Some(Step::Done(greeting))) = feed(&mut startup, &both) else { panic!("not done") };
    assert_eq!(
        greeting,
        Greeting { server_version: "8.4.0".to_owned(), connection_id: 7, is_mariadb: false }
    );
}

#[test]
fn bytes_may_come_one_by_one() {
    let mut startup = startup(None, Terms::default());
    let mut input = BytesMut::new();
    let packet = framed(0, &greeting(ALL, "mysql_native_password"));
    for (index, byte) in packet.iter().enumerate() {
        input.put_u8(*byte);
        let step = startup.receive(&mut input).expect("no error");
        assert_eq!(step.is_some(), index + 1 == packet.len(), "{index}");
    }
    let response = startup.answer_password(Passwords::one("secret")).unwrap();
    assert_eq!(response[40], 20, "a response of 20 bytes");
}

#[test]
fn full_authentication_over_a_socket_and_by_key() {
    let mut secure = startup(None, Terms { channel: Channel::Private, ..Terms::default() });
    greeted(&mut secure, "caching_sha2_password");
    let Ok(Some(Step::Send(clear))) = feed(&mut secure, &framed(2, &[1, 4])) else { panic!("nothing sent") };
    assert_eq!(clear, framed(3, b"secret\0"));
    assert!(matches!(feed(&mut secure, &framed(4, OK)), Ok(Some(Step::Done(_)))));

    let mut by_key = startup(None, Terms { key: ServerKey::Ask, ..Terms::default() });
    greeted(&mut by_key, "caching_sha2_password");
    let Ok(Some(Step::Send(ask))) = feed(&mut by_key, &framed(2, &[1, 4])) else { panic!("nothing sent") };
    assert_eq!(ask, framed(3, &[2]));
    assert_eq!(feed(&mut by_key, &framed(4, b"\x01no key")).unwrap_err().kind(), ErrorKind::Protocol);
}

#[test]
fn the_server_may_switch_to_the_plugin_of_the_user() {
    let mut startup = startup(None, Terms::default());
    greeted(&mut startup, "caching_sha2_password");
    let switch = framed(2, b"\xFEmysql_native_password\0abcdefghijklmnopqrst\0");
    let Ok(Some(Step::Send(response))) = feed(&mut startup, &switch) else { panic!("nothing sent") };
    assert_eq!(&response[..4], &[20, 0, 0, 3]);
    assert!(matches!(feed(&mut startup, &framed(4, OK)), Ok(Some(Step::Done(_)))));
}

#[test]
fn a_refusal_is_the_servers_own_wherever_it_comes() {
    let mut too_many = startup(None, Terms::default());
    // 1040, without SQLSTATE, in place of the greeting
    let error = feed(&mut too_many, &framed(0, b"\xFF\x10\x04Too many connections")).unwrap_err();
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Connect, Outcome::NotSent));
    assert_eq!(error.server().map(DatabaseError::number), Some(1040));

    let mut denied = startup(None, Terms::default());
    greeted(&mut denied, "caching_sha2_password");
    let error = feed(&mut denied, &framed(2, b"\xFF\x15\x04#28000Access denied")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Auth);
    assert_eq!(error.server().map(DatabaseError::number), Some(1045));

    let mut unknown = startup(Some("nowhere"), Terms::default());
    greeted(&mut unknown, "caching_sha2_password");
    let error = feed(&mut unknown, &framed(2, b"\xFF\x19\x04#42000Unknown database")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Connect);
}

#[test]
fn every_truncated_greeting_is_refused_or_lacks_what_is_needed() {
    let whole = greeting(ALL, "caching_sha2_password");
    // The plugin's name may be cut off: then it is not known, and the server names the user's later.
    let named = whole.len() - "caching_sha2_password\0".len();
    for end in 0..named - 1 {
        let mut startup = startup(None, Terms::default());
        let error = feed(&mut startup, &framed(0, &whole[..end])).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Protocol, "{end}");
    }
    for end in named - 1..whole.len() {
        let mut startup = startup(None, Terms::default());
        assert!(matches!(feed(&mut startup, &framed(0, &whole[..end])), Ok(Some(Step::NeedPassword))));
    }
}

#[test]
fn no_changed_bit_of_a_greeting_does_more_than_fail() {
    let whole = greeting(ALL, "caching_sha2_password");
    for bit in 0..8 * whole.len() {
        let mut packet = whole.clone();
        packet[bit / 8] ^= 1 << (bit % 8);
        let mut startup = startup(None, Terms::default());
        match feed(&mut startup, &framed(0, &packet)) {
            Ok(step) => assert!(matches!(step, Some(Step::NeedPassword)), "bit {bit}"),
            Err(error) => assert_eq!(error.outcome(), Outcome::NotSent, "bit {bit}"),
        }
    }
}

#[test]
fn peers_of_other_kinds_are_told_from_servers() {
    let cases: [(&[u8], ErrorKind); 6] = [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", ErrorKind::Protocol),
        (b"SSH-2.0-OpenSSH_9.6\r\n", ErrorKind::Protocol),
        (b"\xFF\xFF\xFF\0", ErrorKind::Protocol),
        (b"\0\0\0\0", ErrorKind::Protocol),
        (b"\x01\0\0\0\x09", ErrorKind::Protocol),
        (b"\x01\0\0\x05\x0A", ErrorKind::Protocol),
    ];
    for (bytes, kind) in cases {
        let mut startup = startup(None, Terms::default());
        assert_eq!(feed(&mut startup, bytes).unwrap_err().kind(), kind, "{bytes:?}");
    }
}

#[test]
fn old_servers_are_refused_with_what_they_lack() {
    let mut startup = startup(None, Terms::default());
    let packet = greeting(ALL & !capability::DEPRECATE_EOF, "caching_sha2_password");
    let error = feed(&mut startup, &framed(0, &packet)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Connect);
    assert!(error.to_string().contains("DEPRECATE_EOF"), "{error}");
}

#[test]
fn packets_out_of_turn_end_the_attempt() {
    for packet in [&b"\x02webauthn\0"[..], b"\x05", b"\x01\x05", b"", b"\xFE"] {
        let mut startup = startup(None, Terms::default());
        greeted(&mut startup, "caching_sha2_password");
        let error = feed(&mut startup, &framed(2, packet)).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Protocol | ErrorKind::Auth), "{packet:?}");
        assert!(feed(&mut startup, &framed(3, OK)).is_err(), "nothing follows an error");
    }
    let mut startup = startup(None, Terms::default());
    greeted(&mut startup, "caching_sha2_password");
    assert!(feed(&mut startup, &framed(7, OK)).is_err(), "out of order");
    assert!(startup.answer_password(Passwords::default()).is_err(), "unasked");
}

#[test]
fn values_that_would_become_other_fields_are_refused() {
    for (user, database) in [("a\0b", None), ("a", Some("d\0x"))] {
        let params =
            StartupParams { user: user.to_owned(), database: database.map(Into::into), ..Default::default() };
        assert_eq!(Startup::new(params).err().expect("refused").kind(), ErrorKind::Config);
    }
}

/// `SSLRequest`: sequence 1, capabilities with SSL, largest packet, collation 45, 23 times 0.
fn ssl_request(capabilities: u32) -> Vec<u8> {
    framed(1, &[&capabilities.to_le_bytes()[..], &[0, 0, 0, 0x40, 45], &[0; 23]].concat())
}

#[test]
fn tls_comes_between_the_greeting_and_everything_else() {
    for encryption in [Encryption::IfOffered, Encryption::Required("REQUIRED")] {
        let mut startup = encrypted(encryption);
        let Ok(Some(Step::StartTls(request))) =
            feed(&mut startup, &framed(0, &greeting(ALL, "caching_sha2_password")))
        else {
            panic!("no TLS")
        };
        assert_eq!(request, ssl_request(capability::WANTED | capability::SSL));
        startup.secured(Secured::Accepted).expect("in turn");
        let response = startup.answer_password(Passwords::one("secret")).expect("an answer");
        // The same head again, now with who we are behind it, and the next number.
        assert_eq!((response[3], &response[4..36]), (2, &request[4..]));
        assert_eq!(&response[36..41], b"app\0\x20");
        // The channel is private now: a cold cache gets the password, and so does a server that wants it in clear.
        let Ok(Some(Step::Send(clear))) = feed(&mut startup, &framed(3, &[1, 4])) else {
            panic!("nothing sent")
        };
        assert_eq!(clear, framed(4, b"secret\0"));
        let switch = framed(5, b"\xFEmysql_clear_password\0");
        let Ok(Some(Step::Send(clear))) = feed(&mut startup, &switch) else { panic!("nothing sent") };
        assert_eq!(clear, framed(6, b"secret\0"));
        assert!(matches!(feed(&mut startup, &framed(7, OK)), Ok(Some(Step::Done(_)))));
    }
}

#[test]
fn without_tls_on_the_server_it_is_done_without_or_not_at_all() {
    let packet = framed(0, &greeting(ALL & !capability::SSL, "caching_sha2_password"));
    let mut preferred = encrypted(Encryption::IfOffered);
    assert!(matches!(feed(&mut preferred, &packet), Ok(Some(Step::NeedPassword))));
    preferred.answer_password(Passwords::one("secret")).expect("an answer");
    // But then nothing goes out in clear.
    let error = feed(&mut preferred, &framed(2, b"\xFEmysql_clear_password\0")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Auth);

    let mut required = encrypted(Encryption::Required("VERIFY_CA"));
    let error = feed(&mut required, &packet).unwrap_err();
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Tls, Outcome::NotSent));
    assert!(error.to_string().contains("sslMode=VERIFY_CA"), "{error}");
    assert!(required.answer_password(Passwords::one("secret")).is_err(), "it is over");

    let mut never = encrypted(Encryption::None);
    let packet = framed(0, &greeting(ALL, "caching_sha2_password"));
    assert!(matches!(feed(&mut never, &packet), Ok(Some(Step::NeedPassword))));
}

#[test]
fn nothing_may_come_ahead_of_tls() {
    let whole = framed(0, &greeting(ALL, "caching_sha2_password"));
    for stuffed in [&framed(2, OK)[..], &framed(2, b"\xFFno"), b"\x16", b"\0"] {
        let mut startup = encrypted(Encryption::Required("REQUIRED"));
        let mut input = BytesMut::from(&[&whole[..], stuffed].concat()[..]);
        let error = startup.receive(&mut input).unwrap_err();
        assert_eq!((error.kind(), error.outcome()), (ErrorKind::Protocol, Outcome::NotSent), "{stuffed:?}");
        assert!(startup.secured(Secured::Accepted).is_err(), "it is over");
    }
    // Nor may anything be taken for the next packet before TLS is there.
    let mut startup = encrypted(Encryption::Required("REQUIRED"));
    feed(&mut startup, &whole).expect("greeted");
    assert_eq!(feed(&mut startup, &framed(2, OK)).unwrap_err().kind(), ErrorKind::Protocol);
}

/// The last OK of MariaDB: with words of 65 bytes.
fn ok_with(words: &[u8]) -> Vec<u8> {
    [&b"\0\0\0\x02\0\0\0"[..], &[words.len() as u8], words].concat()
}

#[test]
fn a_certificate_that_nobody_signed_is_proven_by_the_last_ok() {
    let certificate = [7; 32];
    let mariadb = ALL & !capability::LONG_PASSWORD;
    let begin = || {
        let mut startup = encrypted(Encryption::Required("VERIFY_CA"));
        let step = feed(&mut startup, &framed(0, &greeting(mariadb, "mysql_native_password")));
        assert!(matches!(step, Ok(Some(Step::StartTls(_)))), "{step:?}");
        assert!(startup.greeting.is_mariadb);
        startup.secured(Secured::Unproven(certificate)).expect("in turn");
        startup
    };
    let (machine, _) =
        Authentication::begin(Terms::default(), Passwords::one("secret"), Plugin::Native, CHALLENGE)
            .expect("begun");
    let proof = machine.proof_of_server(CHALLENGE, &certificate).expect("a proof");

    let mut startup = begin();
    startup.answer_password(Passwords::one("secret")).expect("an answer");
    assert!(matches!(feed(&mut startup, &framed(3, &ok_with(&proof))), Ok(Some(Step::Done(_)))));

    let mut other = proof.clone();
    other[9] ^= 1;
    for said in [
        OK.to_vec(),
        ok_with(b""),
        ok_with(&other),
        ok_with(&proof[1..]),
        ok_with(&proof[..64]),
        vec![0],
        vec![0, 0, 0],
    ] {
        let mut startup = begin();
        startup.answer_password(Passwords::one("secret")).expect("an answer");
        let error = feed(&mut startup, &framed(3, &said)).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Tls | ErrorKind::Protocol), "{said:?}: {error}");
        assert_eq!(error.outcome(), Outcome::NotSent);
        assert!(feed(&mut startup, &framed(4, &ok_with(&proof))).is_err(), "nothing follows an error");
    }
    // Without a password there is nothing to prove by.
    let mut startup = begin();
    startup.answer_password(Passwords::default()).expect("an answer");
    assert_eq!(feed(&mut startup, &framed(3, &ok_with(&proof))).unwrap_err().kind(), ErrorKind::Tls);
    // Whoever asks for more than digests and signatures gets nothing.
    for asked in [&b"\xFEmysql_clear_password\0"[..], b"\xFEcaching_sha2_password\0abcdefghijklmnopqrst\0"] {
        let mut startup = begin();
        startup.answer_password(Passwords::one("secret")).expect("an answer");
        assert_eq!(feed(&mut startup, &framed(3, asked)).unwrap_err().kind(), ErrorKind::Auth);
    }
}
