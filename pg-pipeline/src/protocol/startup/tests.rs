//! Transcripts of the connection phase, whole, cut at every position, and hostile.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};

use super::*;

fn begin() -> (Startup, Vec<u8>) {
    Startup::new(params("md5_user")).unwrap()
}

fn params(user: &str) -> StartupParams {
    StartupParams { user: user.to_owned(), ..StartupParams::default() }
}

fn message(tag: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len() + 4).unwrap().to_be_bytes();
    [&[tag], &length[..], body].concat()
}

fn authentication(code: u32, data: &[u8]) -> Vec<u8> {
    message(b'R', &[&code.to_be_bytes()[..], data].concat())
}

/// What every server says once it is satisfied.
fn welcome() -> Vec<u8> {
    [
        authentication(0, b""),
        message(b'S', b"server_version\x0018.0\0"),
        message(b'S', b"TimeZone\0UTC\0"),
        message(b'K', &[0, 0, 0x30, 0x39, 1, 2, 3, 4]),
        message(b'Z', b"I"),
    ]
    .concat()
}

/// A server that answers what the client sends, and checks it.
trait Server {
    /// What the server says first.
    fn hello(&mut self) -> Vec<u8>;
    /// What it says to the client's next message, which is whole.
    fn reply(&mut self, message: &[u8]) -> Vec<u8>;
}

/// A server that says one thing.
struct Says(Vec<u8>);

impl Server for Says {
    fn hello(&mut self) -> Vec<u8> {
        self.0.clone()
    }

    fn reply(&mut self, _: &[u8]) -> Vec<u8> {
        panic!("the client sends something to a server that asked for nothing")
    }
}

/// Asks for one password message.
struct Asks {
    demand: Vec<u8>,
    expected: &'static [u8],
}

impl Server for Asks {
    fn hello(&mut self) -> Vec<u8> {
        self.demand.clone()
    }

    fn reply(&mut self, sent: &[u8]) -> Vec<u8> {
        assert_eq!(sent, self.expected);
        welcome()
    }
}

/// Runs an attempt and counts what the server says. Its bytes arrive as soon as it says them, but never across
/// the position `cut` of all that it says, and at most `piece` at a time.
fn attempt(
    server: &mut dyn Server,
    password: Option<&str>,
    cut: usize,
    piece: usize,
) -> Result<(Greeting, usize), Fault> {
    let (mut startup, _) = begin();
    let mut input = BytesMut::new();
    let mut coming = server.hello();
    let mut arrived = 0;
    loop {
        match startup.receive(&mut input)? {
            Some(Step::Send(bytes)) => coming.extend(server.reply(&bytes)),
            Some(Step::NeedPassword) => {
                let bytes = startup.answer_password(password)?;
                coming.extend(server.reply(&bytes));
            }
            Some(Step::NeedToken) => panic!("nobody has a token"),
            Some(Step::Notice(_)) => {}
            Some(Step::Done(greeting)) => {
                assert!(coming.is_empty() && input.is_empty());
                return Ok((greeting, arrived));
            }
            None => {
                assert!(!coming.is_empty(), "the client waits for more than the server has to say");
                let until_cut = if arrived < cut { cut - arrived } else { usize::MAX };
                let rest = coming.split_off(piece.min(until_cut).min(coming.len()));
                arrived += coming.len();
                input.extend_from_slice(&coming);
                coming = rest;
            }
        }
    }
}

fn run(server: &mut dyn Server, password: Option<&str>) -> Result<Greeting, Fault> {
    attempt(server, password, usize::MAX, usize::MAX).map(|(greeting, _)| greeting)
}

/// The same for every position at which all that the server says can be cut in two, and for single bytes.
fn run_in_pieces(new: impl Fn() -> Box<dyn Server>, password: Option<&str>) -> Greeting {
    let (whole, length) = attempt(&mut *new(), password, usize::MAX, usize::MAX).unwrap();
    for cut in 1..length {
        let (greeting, _) = attempt(&mut *new(), password, cut, usize::MAX).unwrap();
        assert_eq!(format!("{greeting:?}"), format!("{whole:?}"), "cut at {cut}");
    }
    let (greeting, _) = attempt(&mut *new(), password, usize::MAX, 1).unwrap();
    assert_eq!(format!("{greeting:?}"), format!("{whole:?}"), "byte by byte");
    whole
}

fn refusal(bytes: &[u8]) -> Fault {
    run(&mut Says(bytes.to_vec()), None).expect_err("accepted")
}

#[test]
fn the_first_message_says_only_what_is_set() {
    let (_, first) = begin();
    assert_eq!(first, *b"\0\0\0\x3e\0\x03\0\0user\0md5_user\0database\0md5_user\0client_encoding\0UTF8\0\0");
    let (_, first) = Startup::new(StartupParams {
        user: "u".to_owned(),
        database: Some("d".to_owned()),
        application_name: Some("a".to_owned()),
        options: Some("-c x=y".to_owned()),
        ..StartupParams::default()
    })
    .unwrap();
    assert_eq!(
        first[8..],
        *b"user\0u\0database\0d\0client_encoding\0UTF8\0application_name\0a\0options\0-c x=y\0\0"
    );
}

#[test]
fn a_nul_cannot_smuggle_a_parameter_in() {
    let evil = || Some("x\0options\0-c is_superuser=on".to_owned());
    let cases = [
        ("user", StartupParams { user: evil().unwrap(), database: Some("d".to_owned()), ..params("") }),
        ("database", StartupParams { database: evil(), ..params("u") }),
        ("application_name", StartupParams { application_name: evil(), ..params("u") }),
        ("options", StartupParams { options: evil(), ..params("u") }),
        ("user", params("")),
    ];
    for (name, params) in cases {
        let fault = Startup::new(params).err().expect(name);
        assert_eq!(fault.kind(), ErrorKind::Config);
        assert!(fault.to_string().contains(&format!("`{name}`")), "{fault}");
    }
}

#[test]
fn a_server_that_trusts_is_greeted() {
    let greeting = run_in_pieces(|| Box::new(Says(welcome())), None);
    assert_eq!(greeting.parameters["server_version"], "18.0");
    assert_eq!(greeting.parameters["TimeZone"], "UTC");
    let key = greeting.key.unwrap();
    assert_eq!(key.process_id, 12345);
    assert_eq!(key.secret, [1, 2, 3, 4][..]);
    assert_eq!(format!("{key:?}"), "BackendKey { process_id: 12345, .. }");
}

#[test]
fn what_follows_the_greeting_is_left_alone() {
    let (mut startup, _) = begin();
    let mut input = BytesMut::from(&[&welcome()[..], b"N\0\0"].concat()[..]);
    assert!(matches!(startup.receive(&mut input), Ok(Some(Step::Done(_)))));
    assert_eq!(input, b"N\0\0"[..]);
    input.extend_from_slice(b"\0\x05\0");
    assert_eq!(startup.receive(&mut input).unwrap_err().kind(), ErrorKind::Protocol);
}

#[test]
fn a_password_is_sent_as_it_is_to_a_server_that_wants_it_so() {
    run_in_pieces(
        || Box::new(Asks { demand: authentication(3, b""), expected: b"p\0\0\0\x0ds\xc3\xa9cret!\0" }),
        Some("sécret!"),
    );
}

/// The digest is the known one of `postgres-protocol`'s own test: this user, this password, this salt.
#[test]
fn md5_is_answered() {
    run_in_pieces(
        || {
            Box::new(Asks {
                demand: authentication(5, &[0x2a, 0x3d, 0x8f, 0xe0]),
                expected: b"p\0\0\0\x28md562af4dd09bbb41884907a838a3233294\0",
            })
        },
        Some("password"),
    );
}

#[test]
fn without_a_password_the_error_says_what_to_set() {
    for demand in
        [authentication(3, b""), authentication(5, b"salt"), authentication(10, b"SCRAM-SHA-256\0\0")]
    {
        for password in [None, Some("")] {
            let fault = run(&mut Says(demand.clone()), password).unwrap_err();
            assert_eq!(fault.kind(), ErrorKind::Auth);
            assert!(fault.to_string().contains("set `password`"), "{fault}");
        }
        let fault = run(&mut Says(demand), Some("a\0b")).unwrap_err();
        assert_eq!(fault.kind(), ErrorKind::Config);
    }
}

/// The server's side of SCRAM-SHA-256, from RFC 5802 and the stored form of a password.
struct Scram {
    stored: String,
    salt: String,
    iterations: String,
    server_first: String,
    client_first_bare: String,
    lie: Lie,
    turn: usize,
}

#[derive(Clone, Copy, PartialEq)]
enum Lie {
    None,
    WrongSignature,
    NoSignature,
    OkAtOnce,
    OkInsteadOfFinal,
    ManyIterations,
    OtherNonce,
    ErrorMessage,
    TwoFinals,
}

impl Scram {
    /// The server knows `SCRAM-SHA-256$iterations:salt$StoredKey:ServerKey`, as in `pg_authid`.
    fn new(password: &str, lie: Lie) -> Self {
        Self::knowing(postgres_protocol::password::scram_sha_256(password.as_bytes()), lie)
    }

    fn knowing(stored: String, lie: Lie) -> Self {
        let (iterations, salt) =
            stored.split('$').nth(1).and_then(|part| part.split_once(':')).expect("the stored form");
        Self {
            iterations: iterations.to_owned(),
            salt: salt.to_owned(),
            server_first: String::new(),
            client_first_bare: String::new(),
            lie,
            turn: 0,
            stored,
        }
    }

    fn keys(&self) -> (Vec<u8>, Vec<u8>) {
        let (stored, server) = self.stored.rsplit('$').next().and_then(|keys| keys.split_once(':')).unwrap();
        (STANDARD.decode(stored).unwrap(), STANDARD.decode(server).unwrap())
    }
}

fn hmac(key: &[u8], text: &str) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).unwrap();
    mac.update(text.as_bytes());
    mac.finalize().into_bytes().to_vec()
}

impl Server for Scram {
    fn hello(&mut self) -> Vec<u8> {
        authentication(10, b"SCRAM-SHA-256\0\0")
    }

    fn reply(&mut self, sent: &[u8]) -> Vec<u8> {
        assert_eq!(sent[0], b'p');
        let body = &sent[5..];
        self.turn += 1;
        match self.turn {
            1 => {
                let first = body.strip_prefix(b"SCRAM-SHA-256\0").expect("the mechanism");
                let (length, first) = first.split_first_chunk::<4>().unwrap();
                assert_eq!(u32::from_be_bytes(*length) as usize, first.len());
                let first = std::str::from_utf8(first).unwrap();
                self.client_first_bare = first.strip_prefix("n,,").expect("no channel binding").to_owned();
                let nonce = self.client_first_bare.strip_prefix("n=,r=").unwrap();
                let nonce = if self.lie == Lie::OtherNonce { "other" } else { nonce };
                let iterations =
                    if self.lie == Lie::ManyIterations { "2000000000" } else { &self.iterations };
                self.server_first = format!("r={nonce}server,s={},i={iterations}", self.salt);
                if self.lie == Lie::OkAtOnce {
                    return welcome();
                }
                authentication(11, self.server_first.as_bytes())
            }
            2 => {
                let last = std::str::from_utf8(body).unwrap();
                let (without_proof, proof) = last.rsplit_once(",p=").unwrap();
                let transcript = format!("{},{},{without_proof}", self.client_first_bare, self.server_first);
                let (stored_key, server_key) = self.keys();
                let signature = hmac(&stored_key, &transcript);
                let client_key: Vec<u8> =
                    STANDARD.decode(proof).unwrap().iter().zip(&signature).map(|(a, b)| a ^ b).collect();
                if Sha256::digest(&client_key).to_vec() != stored_key {
                    return message(b'E', b"SFATAL\0VFATAL\0C28P01\0Mpassword authentication failed\0\0");
                }
                let mut signature = hmac(&server_key, &transcript);
                if self.lie == Lie::WrongSignature {
                    signature[0] ^= 1;
                }
                let last = match self.lie {
                    Lie::NoSignature => String::new(),
                    Lie::ErrorMessage => "e=other-error".to_owned(),
                    _ => format!("v={}", STANDARD.encode(&signature)),
                };
                let last = authentication(12, last.as_bytes());
                match self.lie {
                    Lie::OkInsteadOfFinal => welcome(),
                    Lie::TwoFinals => [&last[..], &last, &welcome()].concat(),
                    _ => [last, welcome()].concat(),
                }
            }
            _ => panic!("one message too many"),
        }
    }
}

#[test]
fn scram_proves_both_sides() {
    let stored = postgres_protocol::password::scram_sha_256(b"pencil");
    let greeting = run_in_pieces(|| Box::new(Scram::knowing(stored.clone(), Lie::None)), Some("pencil"));
    assert_eq!(greeting.parameters.len(), 2);
    // SASLprep: a soft hyphen is mapped to nothing.
    run(&mut Scram::new("I\u{ad}X", Lie::None), Some("IX")).unwrap();
    // Not preparable (a control character), so taken as it is.
    run(&mut Scram::new("a\u{7}b", Lie::None), Some("a\u{7}b")).unwrap();
}

#[test]
fn a_wrong_password_is_the_servers_to_refuse() {
    let fault = run(&mut Scram::new("pencil", Lie::None), Some("pen")).unwrap_err();
    assert_eq!(fault.kind(), ErrorKind::Auth);
    assert_eq!(fault.server().unwrap().code(), "28P01");
}

#[test]
fn an_impostor_is_found_out() {
    let lies = [
        (Lie::WrongSignature, "did not prove"),
        (Lie::NoSignature, "did not prove"),
        (Lie::ErrorMessage, "did not prove"),
        (Lie::OkAtOnce, "before it proved"),
        (Lie::OkInsteadOfFinal, "before it proved"),
        (Lie::ManyIterations, "iteration count"),
        (Lie::OtherNonce, "nonce"),
        (Lie::TwoFinals, "out of turn"),
    ];
    for (lie, words) in lies {
        let fault = run(&mut Scram::new("pencil", lie), Some("pencil")).expect_err(words);
        assert!(fault.to_string().contains(words), "{fault}");
        let kind = if lie == Lie::TwoFinals { ErrorKind::Protocol } else { ErrorKind::Auth };
        assert_eq!((fault.kind(), fault.outcome()), (kind, Outcome::NotSent), "{words}");
    }
}

#[test]
fn a_password_is_never_given_away_in_an_error() {
    for lie in [Lie::WrongSignature, Lie::OtherNonce, Lie::OkAtOnce] {
        let fault = run(&mut Scram::new("hunter2", lie), Some("hunter2")).unwrap_err();
        assert!(!format!("{fault} {fault:?}").contains("hunter2"));
    }
}

#[test]
fn the_servers_refusal_keeps_its_code_at_every_stage() {
    let cases = [
        ("28P01", ErrorKind::Auth),
        ("28000", ErrorKind::Auth),
        ("3D000", ErrorKind::Connect),
        ("53300", ErrorKind::Connect),
        ("57P03", ErrorKind::Connect),
        ("08P01", ErrorKind::Connect),
    ];
    for (code, kind) in cases {
        let error = message(b'E', format!("SFATAL\0VFATAL\0C{code}\0Mno\0\0").as_bytes());
        let ok = authentication(0, b"");
        let settled = [&ok[..], &message(b'S', b"a\0b\0"), &message(b'K', &[0; 8])].concat();
        for before in [Vec::new(), ok, settled] {
            let fault = refusal(&[before, error.clone()].concat());
            assert_eq!((fault.kind(), fault.outcome()), (kind, Outcome::NotSent), "{code}");
            assert_eq!(fault.server().unwrap().code(), code);
            assert!(fault.to_string().contains(code), "{fault}");
        }
        // Behind a demand for a password, and behind the answer to it.
        let (mut startup, _) = begin();
        let mut input = BytesMut::from(&[authentication(3, b""), error.clone()].concat()[..]);
        assert!(matches!(startup.receive(&mut input), Ok(Some(Step::NeedPassword))));
        startup.answer_password(Some("p")).unwrap();
        assert_eq!(startup.receive(&mut input).unwrap_err().kind(), kind);
    }
}

#[test]
fn a_server_out_of_processes_is_understood() {
    let text = b"Ecould not fork new process for connection: Resource temporarily unavailable\n\0";
    let fault = refusal(text);
    assert_eq!(fault.kind(), ErrorKind::Connect);
    assert!(fault.to_string().ends_with("Resource temporarily unavailable"), "{fault}");
    let (mut startup, _) = begin();
    for end in 0..text.len() {
        assert!(startup.receive(&mut BytesMut::from(&text[..end])).unwrap().is_none(), "{end}");
    }
    let endless = [&b"E"[..], &vec![b'x'; MAX_REPORT]].concat();
    assert_eq!(refusal(&endless).kind(), ErrorKind::Protocol);
}

#[test]
fn notices_are_handed_out_and_change_nothing() {
    let notice = message(b'N', b"SWARNING\0VWARNING\0C01000\0Mcollation\0\0");
    let (mut startup, _) = begin();
    let mut input =
        BytesMut::from(&[&notice[..], &authentication(0, b""), &notice, &message(b'Z', b"I")].concat()[..]);
    for _ in 0..2 {
        let Ok(Some(Step::Notice(notice))) = startup.receive(&mut input) else { panic!("no notice") };
        assert_eq!(notice.message(), "collation");
    }
    let Ok(Some(Step::Done(greeting))) = startup.receive(&mut input) else { panic!("not done") };
    assert!(greeting.key.is_none());
}

#[test]
fn a_version_that_we_speak_is_agreed_on_once_and_at_the_beginning() {
    let negotiation = |version: u32, options: u32, names: &[u8]| {
        message(b'v', &[&version.to_be_bytes()[..], &options.to_be_bytes(), names].concat())
    };
    for version in [0, Version::V3_0.0] {
        let bytes = [negotiation(version, 0, b""), welcome()].concat();
        run_in_pieces(|| Box::new(Says(bytes.clone())), None);
    }
    let good = negotiation(Version::V3_0.0, 0, b"");
    let hostile = [
        negotiation(0x0003_0002, 0, b""),
        negotiation(0x0002_0000, 0, b""),
        negotiation(Version::V3_0.0, 1, b"_pq_.x\0"),
        negotiation(Version::V3_0.0, u32::MAX, b""),
        negotiation(Version::V3_0.0, 0, b"x\0"),
        message(b'v', b"\0\0\0"),
        [&good[..], &good].concat(),
        [authentication(0, b""), good].concat(),
    ];
    for bytes in hostile {
        assert_eq!(refusal(&bytes).kind(), ErrorKind::Protocol, "{bytes:?}");
    }
}

#[test]
fn a_newer_version_is_asked_for_and_an_older_one_taken_where_that_will_do() {
    let ask = |oldest, newest, answer: &[u8]| {
        let params = StartupParams { versions: Versions { oldest, newest }, ..params("u") };
        let (mut startup, first) = Startup::new(params).unwrap();
        let mut input = BytesMut::from(&[answer, &welcome()].concat()[..]);
        let result = startup.receive(&mut input).map(|step| matches!(step, Some(Step::Done(_))));
        (first[4..8].to_vec(), result)
    };
    let says = |version: u32| message(b'v', &[&version.to_be_bytes()[..], &[0; 4]].concat());
    let (old, new) = (Version::V3_0, Version::V3_2);
    assert_eq!((old.to_string(), new.to_string()), ("3.0".to_owned(), "3.2".to_owned()));
    for (oldest, answer) in
        [(old, vec![]), (old, says(0x0003_0000)), (old, says(0)), (new, vec![]), (old, says(0x0003_0002))]
    {
        let (asked, result) = ask(oldest, new, &answer);
        assert_eq!(asked, [0, 3, 0, 2]);
        assert!(result.unwrap(), "{oldest} {answer:?}");
    }
    for answer in [says(0x0003_0000), says(0)] {
        let fault = ask(new, new, &answer).1.unwrap_err();
        assert_eq!(fault.kind(), ErrorKind::Connect);
        assert!(fault.to_string().contains("speaks protocol 3.0 at most"), "{fault}");
    }
    // As PostgreSQL 19 is to ask servers, to find out who cannot be asked; no server may answer so.
    assert_eq!(ask(old, new, &says(0x0003_270F)).1.unwrap_err().kind(), ErrorKind::Protocol);
}

#[test]
fn cancel_keys_may_have_4_to_256_bytes() {
    for (length, good) in [(0, false), (3, false), (4, true), (32, true), (256, true), (257, false)] {
        let key = message(b'K', &[&[0, 0, 0, 7][..], &vec![9; length]].concat());
        let bytes = [&authentication(0, b"")[..], &key, &message(b'Z', b"I")].concat();
        match run(&mut Says(bytes), None) {
            Ok(greeting) => assert!(good && greeting.key.unwrap().secret.len() == length, "{length}"),
            Err(fault) => assert!(!good && fault.kind() == ErrorKind::Protocol, "{length}"),
        }
    }
}

#[test]
fn hostile_bytes_are_protocol_errors() {
    let ok = authentication(0, b"");
    let after_ok = |bytes: &[u8]| [&ok[..], bytes].concat();
    let cases = [
        b"HTTP/1.1 400 Bad Request".to_vec(),
        b"\x15\x03\x01".to_vec(),
        vec![b'R', 0, 0, 0, 3],
        vec![b'R', 0, 0, 0, 0],
        vec![b'R', 0xff, 0xff, 0xff, 0xff],
        vec![b'R', 0x7f, 0xff, 0xff, 0xff],
        vec![b'R', 0, 1, 0, 1],
        vec![b'E', 0, 0, 0x75, 0x31],
        vec![b'E', 0, 0, 0, 3],
        vec![b'N', 0, 0, 0x75, 0x31],
        message(b'E', b""),
        message(b'E', b"Mno end"),
        message(b'N', b"Mno end\0"),
        message(b'R', b""),
        message(b'Z', b"I"),
        message(b'S', b"a\0b\0"),
        message(b'K', &[0; 8]),
        message(b'T', b"\0\0"),
        after_ok(&ok),
        after_ok(&authentication(3, b"")),
        after_ok(&message(b'Z', b"T")),
        after_ok(&message(b'Z', b"E")),
        after_ok(&message(b'Z', b"")),
        after_ok(&message(b'Z', b"II")),
        after_ok(&message(b'S', b"")),
        after_ok(&message(b'S', b"a\0b")),
        after_ok(&message(b'S', b"a\0b\0c")),
        after_ok(&message(b'S', b"a\0b\0\0")),
        after_ok(&message(b'D', b"\0\0")),
        after_ok(&message(b'C', b"SELECT 1\0")),
    ];
    for bytes in cases {
        let fault = refusal(&bytes);
        assert_eq!(
            (fault.kind(), fault.outcome()),
            (ErrorKind::Protocol, Outcome::NotSent),
            "{bytes:?}: {fault}"
        );
    }
}

#[test]
fn what_a_server_can_make_us_keep_is_bounded() {
    let mut bytes = authentication(0, b"");
    for number in 0..10 {
        bytes.extend(message(b'S', format!("p{number}\0{}\0", "x".repeat(60_000)).as_bytes()));
    }
    let fault = refusal(&bytes);
    assert!(fault.to_string().contains("more parameters"), "{fault}");
}

#[test]
fn every_truncation_waits_for_more() {
    let bytes = [message(b'v', &[0, 3, 0, 0, 0, 0, 0, 0]), welcome()].concat();
    for end in 0..bytes.len() {
        let (mut startup, _) = begin();
        assert!(startup.receive(&mut BytesMut::from(&bytes[..end])).unwrap().is_none(), "{end}");
    }
}

/// Not a fuzzer, but one that always runs: random bytes, and good transcripts with random damage.
#[test]
fn nothing_makes_it_panic() {
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = move || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed
    };
    let starts = [
        welcome(),
        authentication(10, b"SCRAM-SHA-256\0\0"),
        [authentication(10, b"SCRAM-SHA-256\0\0"), authentication(11, b"r=x,s=AAAA,i=1")].concat(),
        [authentication(5, b"salt"), welcome()].concat(),
        message(b'E', b"SFATAL\0C28P01\0Mno\0\0"),
    ];
    for round in 0..20_000_usize {
        let mut bytes = starts[round % starts.len()].clone();
        for _ in 0..=random() % 4 {
            let at = random() as usize % bytes.len();
            match random() % 3 {
                0 => bytes[at] = random() as u8,
                1 => drop(bytes.remove(at)),
                _ => bytes.insert(at, b"RSKZENv\0\x01\xff"[random() as usize % 10]),
            }
        }
        let (mut startup, _) = begin();
        let mut input = BytesMut::from(&bytes[..]);
        while let Ok(Some(step)) = startup.receive(&mut input) {
            if matches!(step, Step::NeedPassword) && startup.answer_password(Some("p")).is_err() {
                break;
            }
        }
    }
}
