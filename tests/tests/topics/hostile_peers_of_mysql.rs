//! Servers of MySQL's protocol, which speak first: greetings that break off, a way of logging in that newer servers do
//! not have any more, and statements that the server has forgotten.

use super::hostile_peers::{heals, hear_run, odd_once, pool_of_one, seven};
use super::side::peer::{OK, Peer, answer, error, handshake, packet};
use super::side::{Connection, DatabaseError, ErrorKind, Outcome};

#[tokio::test]
async fn a_handshake_that_ends_at_any_byte_is_tried_again() {
    let whole = handshake();
    let attempts: Vec<_> = (0..whole.len())
        .map(|end| {
            let said = whole[..end].to_vec();
            tokio::spawn(async move {
                let peer = odd_once(move |mut talk| {
                    let said = said.clone();
                    async move { talk.say(&said).await }
                })
                .await;
                let error = Connection::connect(peer.config()).await.expect_err("closed");
                assert_eq!((error.kind(), error.outcome()), (ErrorKind::Connect, Outcome::NotSent), "{end}");
                heals(&pool_of_one(&peer)).await;
            })
        })
        .collect();
    for attempt in attempts {
        attempt.await.expect("as expected");
    }
}

#[tokio::test]
async fn a_server_that_asks_for_mysql_native_password_gets_what_it_checks() {
    // SHA1(password) XOR SHA1(challenge + SHA1(SHA1(password))), as Python's hashlib has it for `secret`.
    const RIGHT: [u8; 20] = [
        0x88, 0x17, 0xc5, 0x0f, 0xa7, 0x79, 0xda, 0xef, 0x01, 0x0e, 0xe7, 0x57, 0x78, 0x25, 0xb0, 0x84, 0x7d,
        0xf9, 0x84, 0x2e,
    ];
    let peer = Peer::start(|mut talk, _| async move {
        talk.hear_startup().await?;
        talk.say(&packet(2, b"\xFEmysql_native_password\0abcdefghijklmnopqrst\0")).await?;
        let response = talk.hear_packet().await?;
        if response != RIGHT {
            return talk.say(&error(4, 1045, "28000")).await;
        }
        talk.say(&packet(4, OK)).await?;
        talk.serve().await
    })
    .await;
    let connection = Connection::connect(peer.config().password("secret")).await.expect("let in");
    assert_eq!(connection.query_one::<(i32,)>("SELECT 7", ()).await.expect("an answer"), (7,));
    connection.close().await;
    for password in ["Secret", "secret ", ""] {
        let error = Connection::connect(peer.config().password(password)).await.expect_err("refused");
        assert_eq!((error.kind(), error.outcome()), (ErrorKind::Auth, Outcome::NotSent), "{error}");
        assert_eq!(error.as_database().map(DatabaseError::number), Some(1045), "{error}");
    }
}

#[tokio::test]
async fn a_statement_that_the_server_has_forgotten_or_finds_stale_is_prepared_again() {
    for number in [1243, 1615] {
        let peer = Peer::start(move |mut talk, _| async move {
            talk.greet().await?;
            hear_run(&mut talk).await?;
            talk.say(&error(1, number, "HY000")).await?;
            // Anew, on the same connection: what it runs now was prepared just before.
            let asked = talk.hear().await?;
            assert_eq!((asked.command, &*asked.text), (0x16, "SELECT 7"), "prepared again");
            talk.say(&answer(&asked)).await?;
            talk.serve().await
        })
        .await;
        let pool = pool_of_one(&peer);
        assert_eq!(seven(&pool).await.expect("prepared again"), 7, "{number}");
        assert_eq!(seven(&pool).await.expect("still prepared"), 7, "{number}");
        assert_eq!(peer.accepted(), 1, "{number}");
        pool.close().await;
    }
}
