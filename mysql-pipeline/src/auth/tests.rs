//! Transcripts of every method, byte by byte, and of servers that want more than they may have.
//!
//! Expected digests and signatures were computed independently, with Python's hashlib and the arithmetic of RFC 8032.

use rsa::pkcs8::EncodePublicKey as _;
use rsa::{Oaep, PrivateKey};
use sha1::Sha1;

use super::*;

const CHALLENGE: &[u8; NONCE] = b"abcdefghijklmnopqrst";
/// The challenge of MariaDB's own methods: the bytes 1 to 32.
const LONG: [u8; 32] = {
    let mut bytes = [0; 32];
    let mut index = 0;
    while index < 32 {
        bytes[index] = index as u8 + 1;
        index += 1;
    }
    bytes
};

const NATIVE: &str = "8817c50fa779daef010ee7577825b0847df9842e";
const CACHING_SHA2: &str = "c76e2898612a4cf042c77fa8c4702c4c64c0c2c557c53c4d75595aaa6abae809";
const ED25519: &str = "60a0f4f8bcb6396043e44b2a25521af16f0815ff6369cc541c281e2c4455c823\
                       2b79b21ee5bb933507725db2f2919ea09e676f6abee19c5c7b98b40a627a9707";
const ED25519_EMPTY: &str = "6d063d5d3fa5175ed8544e6cc97a5498a007c19f4cefdd6d5a094650d02f3dda\
                             74bdc995a87e2a7b3aea5bf70f318142e84ffe8b2f5d8d24124ebd21107c9c0a";

const PROOF_NATIVE: &str = "B65F5B2FA2164A2D807712951E0D80A41FB54574159975220DEF4E87DC42B6C9";
const PROOF_ED25519: &str = "D5B71287741E7D090543A51E72ABF9639A22A3A4295EE24A7BBF5346D809C8CE";
const PROOF_PARSEC: &str = "1CC6C20ED01164A20B2A4D15B16F73A29ABF4AC156A7ED7D4A9237FA7F7219EA";

fn open() -> Terms {
    Terms::default()
}

fn private() -> Terms {
    Terms { channel: Channel::Private, ..Terms::default() }
}

fn asking() -> Terms {
    Terms { key: ServerKey::Ask, seed: [9; 32], ..Terms::default() }
}

fn begin(terms: Terms, password: &str, plugin: Plugin) -> Authentication {
    begin_with(terms, password, plugin).expect("a good beginning").0
}

fn begin_with(terms: Terms, password: &str, plugin: Plugin) -> Result<(Authentication, Vec<u8>), Fault> {
    let long = matches!(plugin, Plugin::Ed25519 | Plugin::Parsec);
    let challenge: &[u8] = if long { &LONG } else { CHALLENGE };
    Authentication::begin(terms, Passwords::one(password), plugin, challenge)
}

/// What a server says to have another method.
fn wants(plugin: &str) -> Vec<u8> {
    let long = matches!(plugin, "client_ed25519" | "parsec");
    let challenge: &[u8] = if long { &LONG } else { CHALLENGE };
    [plugin.as_bytes(), &[0], challenge, &[0]].concat()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |text, byte| format!("{text}{byte:02x}"))
}

/// A key pair as a server would have, and its public half in PEM.
fn key_pair(bits: usize) -> (PrivateKey, String) {
    let private = PrivateKey::new(&mut StdRng::from_seed([7; 32]), bits).expect("a key");
    let pem = private.to_public_key().to_public_key_pem(rsa::pkcs8::LineEnding::LF).expect("a key");
    (private, pem)
}

fn revealed(private: &PrivateKey, encrypted: &[u8]) -> Vec<u8> {
    let mut hidden = private.decrypt(Oaep::<Sha1>::new(), encrypted).expect("our key");
    hidden.iter_mut().zip(CHALLENGE.iter().cycle()).for_each(|(byte, mask)| *byte ^= mask);
    hidden
}

#[test]
fn first_responses_are_what_the_definitions_say() {
    for (plugin, expected) in
        [(Plugin::Native, NATIVE), (Plugin::CachingSha2, CACHING_SHA2), (Plugin::Ed25519, ED25519)]
    {
        let (_, response) = begin_with(open(), "secret", plugin).expect("a response");
        assert_eq!(hex(&response), expected, "{plugin:?}");
    }
}

#[test]
fn an_empty_password_has_a_response_of_its_own_in_each_method() {
    let allowed = Terms { clear_text: true, ..private() };
    for (plugin, expected) in [
        (Plugin::Native, ""),
        (Plugin::CachingSha2, ""),
        (Plugin::Sha256, "00"),
        (Plugin::Clear, "00"),
        (Plugin::Ed25519, ED25519_EMPTY),
        (Plugin::Parsec, ""),
    ] {
        let (_, response) = begin_with(allowed.clone(), "", plugin).expect("a response");
        assert_eq!(hex(&response), expected, "{plugin:?}");
    }
}

#[test]
fn caching_sha2_with_a_warm_cache_waits_for_ok() {
    let mut machine = begin(open(), "secret", Plugin::CachingSha2);
    assert_eq!(machine.more(&[0x03]).unwrap(), Verdict::Wait);
    assert_eq!(machine.more(&[0x04]).unwrap_err().kind(), ErrorKind::Protocol);
}

#[test]
fn caching_sha2_with_a_cold_cache_tells_the_password_where_nobody_else_can_read_it() {
    let mut machine = begin(private(), "secret", Plugin::CachingSha2);
    assert_eq!(machine.more(&[0x04]).unwrap(), Verdict::Send(b"secret\0".to_vec()));
    assert!(machine.more(&[0x04]).is_err(), "once");
    let mut machine = begin(open(), "secret", Plugin::CachingSha2);
    let error = machine.more(&[0x04]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Auth);
    assert!(error.to_string().contains("allowPublicKeyRetrieval=true"), "{error}");
}

#[test]
fn caching_sha2_with_a_cold_cache_asks_for_the_key_with_leave() {
    let (private, pem) = key_pair(1024);
    let mut machine = begin(asking(), "secret", Plugin::CachingSha2);
    assert_eq!(machine.more(&[0x04]).unwrap(), Verdict::Send(vec![0x02]));
    let Verdict::Send(encrypted) = machine.more(pem.as_bytes()).unwrap() else { panic!("not sent") };
    assert_eq!(revealed(&private, &encrypted), b"secret\0");
    assert!(machine.more(pem.as_bytes()).is_err(), "once");
}

#[test]
fn a_pinned_key_is_used_and_none_is_asked_for() {
    let (private, pem) = key_pair(1024);
    let pinned = PinnedKey::parse(pem.as_bytes()).expect("a key");
    let terms = Terms { key: ServerKey::Pinned(pinned), ..Terms::default() };
    let mut machine = begin(terms.clone(), "secret", Plugin::CachingSha2);
    let Verdict::Send(encrypted) = machine.more(&[0x04]).unwrap() else { panic!("not sent") };
    assert_eq!(revealed(&private, &encrypted), b"secret\0");
    assert!(machine.more(pem.as_bytes()).is_err(), "no key was asked for");

    let (mut machine, encrypted) = begin_with(terms, "secret", Plugin::Sha256).expect("a response");
    assert_eq!(revealed(&private, &encrypted), b"secret\0");
    assert!(machine.more(pem.as_bytes()).is_err(), "no key was asked for");
}

#[test]
fn sha256_tells_the_password_in_each_way_that_is_safe() {
    let (_, clear) = begin_with(private(), "secret", Plugin::Sha256).expect("a response");
    assert_eq!(clear, b"secret\0");
    let (private, pem) = key_pair(1024);
    let (mut machine, ask) = begin_with(asking(), "secret", Plugin::Sha256).expect("a response");
    assert_eq!(ask, [0x01]);
    let Verdict::Send(encrypted) = machine.more(pem.as_bytes()).unwrap() else { panic!("not sent") };
    assert_eq!(revealed(&private, &encrypted), b"secret\0");
    let error = begin_with(open(), "secret", Plugin::Sha256).err().expect("refused");
    assert_eq!(error.kind(), ErrorKind::Auth);
    assert!(error.to_string().contains("serverRSAPublicKeyFile"), "{error}");
}

#[test]
fn a_long_password_is_hidden_by_the_whole_challenge_and_too_long_a_one_is_an_error() {
    let (private, pem) = key_pair(2048);
    let pinned = PinnedKey::parse(pem.as_bytes()).expect("a key");
    let terms = Terms { key: ServerKey::Pinned(pinned), ..Terms::default() };
    // OAEP with SHA-1 takes 42 bytes of 256, and the NUL one.
    let password = "x".repeat(213);
    let (_, encrypted) = begin_with(terms.clone(), &password, Plugin::Sha256).expect("a response");
    assert_eq!(revealed(&private, &encrypted), format!("{password}\0").into_bytes());
    let error = begin_with(terms, &"x".repeat(214), Plugin::Sha256).err().expect("too long");
    assert_eq!(error.kind(), ErrorKind::Auth);
}

#[test]
fn keys_that_are_none_or_absurd_are_refused() {
    // A modulus of 32,768 bits: quickly written, and slow to reckon with.
    let huge = {
        let (_, pem) = key_pair(1024);
        let body: String = pem.lines().filter(|line| !line.starts_with('-')).collect();
        format!("-----BEGIN PUBLIC KEY-----\n{}\n-----END PUBLIC KEY-----\n", body.repeat(20))
    };
    for key in [
        &b""[..],
        b"\xff",
        b"-----BEGIN PUBLIC KEY-----\n-----END PUBLIC KEY-----",
        &[b'x'; 9_000],
        huge.as_bytes(),
        &modulus_of(32_768),
    ] {
        for plugin in [Plugin::CachingSha2, Plugin::Sha256] {
            let mut machine = begin(asking(), "secret", plugin);
            if plugin == Plugin::CachingSha2 {
                machine.more(&[0x04]).unwrap();
            }
            assert_eq!(machine.more(key).unwrap_err().kind(), ErrorKind::Protocol);
        }
    }
}

/// A well-formed public key with a modulus of so many bits, all of them set.
fn modulus_of(bits: usize) -> Vec<u8> {
    fn tlv(tag: u8, body: &[u8]) -> Vec<u8> {
        let length = u16::try_from(body.len()).expect("short").to_be_bytes();
        [&[tag, 0x82], &length[..], body].concat()
    }
    let modulus = [vec![0], vec![0xFF; bits / 8]].concat();
    let numbers = [tlv(0x02, &modulus), vec![0x02, 0x03, 0x01, 0x00, 0x01]].concat();
    let algorithm = b"\x30\x0D\x06\x09\x2A\x86\x48\x86\xF7\x0D\x01\x01\x01\x05\x00";
    let key = tlv(0x03, &[vec![0], tlv(0x30, &numbers)].concat());
    let der = tlv(0x30, &[&algorithm[..], &key].concat());
    let text = rsa::pkcs8::der::pem::encode_string("PUBLIC KEY", rsa::pkcs8::LineEnding::LF, &der);
    text.expect("PEM").into_bytes()
}

#[test]
fn a_password_in_clear_needs_leave_and_a_private_channel() {
    let allowed = |channel| Terms { channel, clear_text: true, ..Terms::default() };
    let (_, clear) = begin_with(allowed(Channel::Private), "secret", Plugin::Clear).expect("allowed");
    assert_eq!(clear, b"secret\0");
    for (terms, word) in [
        (open(), "enableCleartextPlugin"),
        (private(), "enableCleartextPlugin"),
        (allowed(Channel::Open), "Unix socket"),
        (allowed(Channel::Unproven), "ssl-ca"),
    ] {
        let mut machine = begin(terms, "secret", Plugin::Native);
        let error = machine.switch(&wants("mysql_clear_password")).unwrap_err();
        assert_eq!((error.kind(), error.outcome()), (ErrorKind::Auth, Outcome::NotSent));
        assert!(error.to_string().contains(word), "{error}");
    }
}

#[test]
fn parsec_signs_both_challenges_with_the_derived_key() {
    let ours = std::array::from_fn(|index| index as u8 + 101);
    let salt: [u8; 18] = std::array::from_fn(|index| index as u8 + 65);
    let signed = parsec::sign(&parsec::derive(b"secret", 0, &salt), &LONG, &ours);
    assert_eq!(hex(&signed[..32]), hex(&ours));
    assert_eq!(
        hex(&signed[32..]),
        "fcf4f3bf686bcdf1503272f5cb51dcbf3d80f324ab47bd893f0ff0ce6be2ce84\
         ae41f4d95cbaef1b6d8c4cee8a5148b551dd80e0b6eeeebd3a6ea7880827260f"
    );
    // The whole exchange: an empty packet, the salt (bare, as MariaDB sends it, or behind 0x01), 96 bytes.
    for bare in [true, false] {
        let (mut machine, response) = begin_with(open(), "secret", Plugin::Parsec).expect("a response");
        assert!(response.is_empty());
        let data = [&b"P\0"[..], &salt].concat();
        let verdict = if bare { machine.bare(&data) } else { machine.more(&data) };
        let Verdict::Send(signed) = verdict.unwrap() else { panic!("not sent") };
        let ours = *signed.first_chunk::<32>().expect("96 bytes");
        assert_eq!(signed, parsec::sign(&parsec::derive(b"secret", 0, &salt), &LONG, &ours));
        assert!(machine.more(&data).is_err(), "once");
    }
    // A challenge of our own for each connection.
    let seeded = |seed| {
        let mut machine = begin(Terms { seed: [seed; 32], ..open() }, "secret", Plugin::Parsec);
        machine.bare(&[&b"P\0"[..], &salt].concat()).unwrap()
    };
    assert_ne!(seeded(1), seeded(2));
}

#[test]
fn parsec_derives_no_longer_than_servers_ask_for() {
    let salt = [7; 18];
    for (data, fine) in [
        ([&b"P\x03"[..], &salt].concat(), true),
        ([&b"P\x07"[..], &salt].concat(), false),
        ([&b"P\xFF"[..], &salt].concat(), false),
        ([&b"Q\0"[..], &salt].concat(), false),
        ([&b"P\0"[..], &salt[1..]].concat(), false),
        ([&b"P\0\0"[..], &salt].concat(), false),
        (b"P".to_vec(), false),
        (Vec::new(), false),
    ] {
        let mut machine = begin(open(), "secret", Plugin::Parsec);
        let outcome = machine.more(&data);
        assert_eq!(outcome.is_ok(), fine, "{data:?}");
        if let Err(error) = outcome {
            assert_eq!(error.kind(), ErrorKind::Protocol);
        }
    }
}

#[test]
fn any_method_can_follow_any_other() {
    let terms = Terms { clear_text: true, seed: [3; 32], ..private() };
    for first in [Plugin::Native, Plugin::CachingSha2] {
        for second in Plugin::ALL {
            for third in Plugin::ALL {
                let mut machine = begin(terms.clone(), "secret", first);
                machine.switch(&wants(second.name())).expect("the second");
                let response = machine.switch(&wants(third.name())).expect("the third");
                let alone = begin_with(terms.clone(), "secret", third).expect("alone").1;
                assert_eq!(response, alone, "{first:?} {second:?} {third:?}");
            }
        }
    }
}

#[test]
fn methods_without_end_are_an_error() {
    let mut machine = begin(open(), "secret", Plugin::CachingSha2);
    for _ in 0..8 {
        assert_eq!(hex(&machine.switch(&wants("mysql_native_password")).unwrap()), NATIVE);
    }
    let error = machine.switch(&wants("mysql_native_password")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Protocol);
}

#[test]
fn methods_that_are_not_offered_are_named_and_others_names_are_not_repeated() {
    for (request, word) in [
        (&b"dialog\0x"[..], "dialog"),
        (b"authentication_ldap_sasl_client\0x", "authentication_ldap_sasl_client"),
        (b"", "mysql_old_password"),
        (b"\xff\xfe\0", "unknown method"),
        (b"caching_sha2_password2\0", "unknown method"),
    ] {
        let mut machine = begin(open(), "secret", Plugin::CachingSha2);
        let error = machine.switch(request).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Auth);
        assert!(error.to_string().contains(word), "{error}");
    }
}

#[test]
fn challenges_of_any_other_length_are_refused() {
    for plugin in Plugin::ALL {
        // Nothing depends on a challenge there.
        if plugin == Plugin::Clear {
            continue;
        }
        let right = if matches!(plugin, Plugin::Ed25519 | Plugin::Parsec) { 32 } else { 20 };
        for length in [0, 1, 8, 19, 20, 21, 22, 31, 32, 33, 34, 64, 255, 70_000] {
            let mut request = [plugin.name().as_bytes(), &[0], &vec![b'c'; length][..]].concat();
            let mut machine = begin(private(), "secret", Plugin::Native);
            assert_eq!(machine.switch(&request).is_ok(), length == right, "{plugin:?} {length}");
            // One NUL more is how most servers end it; with a byte less before it, it would be part of the challenge.
            if length + 1 == right {
                continue;
            }
            request.push(0);
            let mut machine = begin(private(), "secret", Plugin::Native);
            assert_eq!(machine.switch(&request).is_ok(), length == right, "{plugin:?} {length}");
        }
    }
}

#[test]
fn each_factor_is_answered_with_its_own_password() {
    let passwords = || Passwords([Some("one".to_owned()), Some("two".to_owned()), Some("three".to_owned())]);
    let terms = Terms { clear_text: true, ..private() };
    let (mut machine, _) =
        Authentication::begin(terms, passwords(), Plugin::CachingSha2, CHALLENGE).expect("begun");
    assert_eq!(machine.more(&[0x04]).unwrap(), Verdict::Send(b"one\0".to_vec()));
    assert_eq!(machine.next_factor(&wants("mysql_clear_password")).unwrap(), b"two\0");
    // The server may switch within a factor too.
    assert_eq!(machine.switch(&wants("sha256_password")).unwrap(), b"two\0");
    assert_eq!(machine.next_factor(&wants("mysql_clear_password")).unwrap(), b"three\0");
    let error = machine.next_factor(&wants("mysql_clear_password")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Protocol, "there are three");
}

#[test]
fn a_factor_without_a_password_says_which_one_to_set() {
    let mut machine = begin(private(), "secret", Plugin::CachingSha2);
    let error = machine.next_factor(&wants("caching_sha2_password")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Auth);
    assert!(error.to_string().contains("`password2`"), "{error}");
}

#[test]
fn over_a_channel_that_is_not_proven_only_methods_that_bind_both_sides_are_taken() {
    let unproven = Terms { channel: Channel::Unproven, clear_text: true, key: ServerKey::Ask, ..open() };
    for plugin in Plugin::ALL {
        let taken = begin_with(unproven.clone(), "secret", plugin);
        let binds = matches!(plugin, Plugin::Native | Plugin::Ed25519 | Plugin::Parsec);
        assert_eq!(taken.is_ok(), binds, "{plugin:?}");
        let mut machine = begin(unproven.clone(), "secret", Plugin::Native);
        assert_eq!(machine.switch(&wants(plugin.name())).is_ok(), binds, "{plugin:?}");
    }
}

#[test]
fn a_server_proves_itself_by_what_it_keeps_of_the_password() {
    let (greeted, certificate) = (b"ABCDEFGHIJKLMNOPQRST", [0xC5; 32]);
    let salt: [u8; 18] = std::array::from_fn(|index| index as u8 + 65);
    for (plugin, expected) in
        [(Plugin::Native, PROOF_NATIVE), (Plugin::Ed25519, PROOF_ED25519), (Plugin::Parsec, PROOF_PARSEC)]
    {
        let mut machine = begin(open(), "secret", plugin);
        if plugin == Plugin::Parsec {
            assert_eq!(machine.proof_of_server(greeted, &certificate), None, "nothing is signed yet");
            machine.bare(&[&b"P\0"[..], &salt].concat()).expect("signed");
        }
        let proof = machine.proof_of_server(greeted, &certificate).expect("there is one");
        assert_eq!(proof, [&[1], expected.as_bytes()].concat(), "{plugin:?}");
        assert_ne!(machine.proof_of_server(greeted, &[0xC6; 32]), Some(proof), "of this certificate only");
        assert_eq!(
            begin(open(), "", plugin).proof_of_server(greeted, &certificate),
            None,
            "without a password"
        );
    }
    for plugin in [Plugin::CachingSha2, Plugin::Sha256] {
        assert_eq!(begin(private(), "secret", plugin).proof_of_server(greeted, &certificate), None);
    }
}

#[test]
fn data_for_methods_that_expect_none_is_out_of_turn() {
    for plugin in [Plugin::Native, Plugin::Ed25519] {
        for data in [&[0x03][..], &[0x04], b"", b"x"] {
            assert_eq!(
                begin(private(), "secret", plugin).more(data).unwrap_err().kind(),
                ErrorKind::Protocol
            );
            assert_eq!(
                begin(private(), "secret", plugin).bare(data).unwrap_err().kind(),
                ErrorKind::Protocol
            );
        }
    }
    assert!(begin(private(), "secret", Plugin::CachingSha2).bare(&[0x04]).is_err(), "only behind 0x01");
}

#[test]
fn a_password_that_would_be_cut_off_is_refused() {
    for passwords in [Passwords::one("a\0b"), Passwords([Some("a".to_owned()), Some("b\0".to_owned()), None])]
    {
        let error = Authentication::begin(open(), passwords, Plugin::Native, CHALLENGE);
        assert_eq!(error.err().expect("refused").kind(), ErrorKind::Config);
    }
}
