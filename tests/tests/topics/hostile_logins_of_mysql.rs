//! Servers, or whoever sits in between, that are after the password, or waste time while logging in.

use std::io;
use std::time::Duration;

use tokio::sync::mpsc;

use super::side::peer::{OK, Peer, Talk, packet};
use super::side::{Config, Connection, Error, ErrorKind, Outcome};

const PASSWORD: &str = "hush-hush-7531";

/// Logs in to a server that says this behind our first answer, and tells the error and all that the server heard.
async fn logs_in(said: Vec<Vec<u8>>, allow: impl Fn(Config) -> Config) -> (Error, Vec<u8>) {
    let (tells, mut heard) = mpsc::unbounded_channel();
    let peer = Peer::start(move |mut talk, _| {
        let (said, tells) = (said.clone(), tells.clone());
        async move {
            talk.hear_startup().await?;
            for said in said {
                talk.say(&said).await?;
            }
            tells.send(talk.hear_rest().await?).expect("the test listens");
            Ok(())
        }
    })
    .await;
    let connecting = Connection::connect(allow(peer.config().password(PASSWORD)));
    let error = tokio::time::timeout(Duration::from_secs(8), connecting).await;
    let error = error.expect("at once").expect_err("refused");
    assert_eq!(error.outcome(), Outcome::NotSent, "{error}");
    assert!(!format!("{error} {error:?}").contains(PASSWORD), "{error:?}");
    let heard = tokio::time::timeout(Duration::from_secs(8), heard.recv()).await;
    (error, heard.expect("we have left").expect("a peer"))
}

fn shows_password(heard: &[u8]) -> bool {
    heard.windows(PASSWORD.len()).any(|window| window == PASSWORD.as_bytes())
}

#[tokio::test]
async fn a_server_that_asks_for_the_password_in_clear_gets_nothing() {
    let asks: [(&[u8], &str, &str); 4] = [
        (b"\xFEmysql_clear_password\0", "enableCleartextPlugin", "Unix socket"),
        (b"\xFEsha256_password\0abcdefghijklmnopqrst\0", "without encryption", "without encryption"),
        (b"\x01\x04", "without encryption", "without encryption"),
        (b"\x02mysql_clear_password\0", "`password2`", "`password2`"),
    ];
    for (said, without, with) in asks {
        for allowed in [false, true] {
            let (error, heard) = logs_in(vec![packet(2, said)], |config| {
                // Leave for it makes no open channel private.
                config.cleartext_plugin(allowed)
            })
            .await;
            assert_eq!(error.kind(), ErrorKind::Auth, "{error}");
            assert!(error.to_string().contains(if allowed { with } else { without }), "{error}");
            assert!(heard.is_empty() && !shows_password(&heard), "{said:?}: {heard:?}");
        }
    }
}

#[tokio::test]
async fn methods_one_after_the_other_without_end_are_given_up() {
    let peer = Peer::start(|mut talk, _| async move {
        talk.hear_startup().await?;
        for round in 1_u8.. {
            talk.say(&packet(2 * round, b"\xFEmysql_native_password\0abcdefghijklmnopqrst\0")).await?;
            talk.hear_packet().await?;
        }
        Ok(())
    })
    .await;
    let connecting = Connection::connect(peer.config().password(PASSWORD));
    let error = tokio::time::timeout(Duration::from_secs(8), connecting).await.expect("at once");
    let error = error.expect_err("without end");
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Protocol, Outcome::NotSent), "{error}");
}

#[tokio::test]
async fn challenges_names_and_keys_that_are_none_are_refused_at_once() {
    let long = vec![b'c'; 60_000];
    let named = |name: &[u8], challenge: &[u8]| [b"\xFE", name, b"\0", challenge, b"\0"].concat();
    let fine = b"abcdefghijklmnopqrst";
    for (said, kind) in [
        (named(b"mysql_native_password", &long), ErrorKind::Protocol),
        (named(b"caching_sha2_password", &fine[1..10]), ErrorKind::Protocol),
        (named(b"client_ed25519", fine), ErrorKind::Protocol),
        (named(b"parsec", &long), ErrorKind::Protocol),
        (named(&long, fine), ErrorKind::Auth),
        (named(b"../../plugin", fine), ErrorKind::Auth),
        (b"\xFEmysql_native_password".to_vec(), ErrorKind::Protocol),
        (b"\xFE".to_vec(), ErrorKind::Auth),
    ] {
        let (error, heard) = logs_in(vec![packet(2, &said)], |config| config).await;
        assert_eq!(error.kind(), kind, "{}: {error}", said.escape_ascii());
        assert!(heard.is_empty(), "{heard:?}");
    }
    let header = b"-----BEGIN PUBLIC KEY-----\n";
    for key in [vec![b'A'; 60_000], [&header[..], &vec![b'A'; 60_000]].concat(), b"no key".to_vec()] {
        let asked = vec![packet(2, b"\x01\x04"), packet(4, &[b"\x01", &key[..]].concat())];
        let (error, heard) = logs_in(asked, |config| config.public_key_retrieval(true)).await;
        assert_eq!(error.kind(), ErrorKind::Protocol, "{error}");
        assert_eq!(heard, packet(3, &[2]), "only the key was asked for");
    }
}

#[tokio::test]
async fn each_further_factor_is_answered_with_its_own_password() {
    async fn factors(talk: &mut Talk) -> io::Result<bool> {
        talk.hear_startup().await?;
        // The second: mysql_native_password. The third: client_ed25519. As Python has them for `two` and `three`.
        talk.say(&packet(2, b"\x02mysql_native_password\0abcdefghijklmnopqrst\0")).await?;
        let second = talk.hear_packet().await?;
        talk.say(&packet(4, b"\x02client_ed25519\0abcdefghijklmnopqrstabcdefghijkl")).await?;
        let third = talk.hear_packet().await?;
        Ok(second == SECOND && third == THIRD)
    }
    let peer = Peer::start(|mut talk, _| async move {
        if factors(&mut talk).await? {
            talk.say(&packet(6, OK)).await?;
        }
        talk.serve().await
    })
    .await;
    let config = peer.config().password("one");
    let whole = config.clone().password2("two").password3("three");
    let connection = Connection::connect(whole).await.expect("let in");
    assert_eq!(connection.query_one::<(i32,)>("SELECT 7", ()).await.expect("an answer"), (7,));
    connection.close().await;
    for (config, missing) in [(config.clone(), "`password2`"), (config.password2("two"), "`password3`")] {
        let error = Connection::connect(config).await.expect_err("one is missing");
        assert_eq!((error.kind(), error.outcome()), (ErrorKind::Auth, Outcome::NotSent), "{error}");
        assert!(error.to_string().contains(missing), "{error}");
    }
}

const SECOND: [u8; 20] = [
    0xeb, 0x05, 0xff, 0x4c, 0x41, 0x72, 0x61, 0x8c, 0xab, 0x7a, 0x88, 0x17, 0x45, 0xc7, 0x18, 0x98, 0x40,
    0x05, 0xb6, 0x32,
];
const THIRD: [u8; 64] = [
    0xa8, 0x10, 0xaa, 0xd1, 0xff, 0x7b, 0x46, 0x1d, 0x39, 0xb8, 0xdc, 0x70, 0xd5, 0x63, 0x2b, 0x69, 0xf8,
    0x12, 0xf7, 0xa7, 0xf5, 0xf5, 0xac, 0x9a, 0x29, 0x4c, 0xcb, 0x3d, 0x42, 0x28, 0x7a, 0x29, 0x59, 0x81,
    0xaf, 0xfb, 0x87, 0xaf, 0x4b, 0x38, 0x55, 0x6f, 0x1a, 0x7b, 0xcd, 0xd4, 0xc7, 0x29, 0xd3, 0xd5, 0x61,
    0x20, 0x57, 0x3c, 0xd6, 0xb0, 0xc4, 0x90, 0x44, 0xc3, 0x08, 0x84, 0x6f, 0x05,
];
