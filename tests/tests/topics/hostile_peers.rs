//! Servers that are not what they should be: the error is clear and comes at once, memory stays bounded, nobody gets
//! another one's answer, and the pool keeps trying.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use integration_tests::eventually;

use super::side::peer::{
    self, Asked, Peer, Talk, announced_row, answer, chatter, connection_phase, garbage, greeting, last_word,
    many_rows, other_protocols, refusals, strange_demands, unasked,
};
use super::side::{CallOptions, Connection, Error, ErrorKind, Outcome, Phase, Pool, sql};

/// A pool of one pipe on `peer`.
pub(super) fn pool_of_one(peer: &Peer) -> Pool {
    let builder = Pool::builder(peer.config()).connections(1);
    builder.query_timeout(Duration::from_secs(8)).connect_lazy().expect("options that can be used")
}

pub(super) async fn seven(pool: &Pool) -> Result<i32, Error> {
    pool.query_one::<(i32,)>("SELECT 7", ()).await.map(|(n,)| n)
}

/// Whatever happened before: the pool heals.
pub(super) async fn heals(pool: &Pool) {
    eventually("the pool heals", || async { matches!(seven(pool).await, Ok(7)) }).await;
    pool.close().await;
}

/// A server whose first connection goes like this, and which serves on all others.
pub(super) async fn odd_once<F, Fut>(odd: F) -> Peer
where
    F: Fn(Talk) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = io::Result<()>> + Send + 'static,
{
    Peer::start(move |mut talk, number| {
        let odd = odd.clone();
        async move {
            if number == 0 {
                return odd(talk).await;
            }
            talk.greet().await?;
            talk.serve().await
        }
    })
    .await
}

/// A server that serves until something is to be run, and says this instead; then whatever `after` does.
pub(super) async fn answers_with(said: Vec<u8>) -> Peer {
    odd_once(move |mut talk| {
        let said = said.clone();
        async move {
            talk.greet().await?;
            hear_run(&mut talk).await?;
            talk.say(&said).await?;
            talk.ignore().await
        }
    })
    .await
}

/// Serves until something is to be run.
pub(super) async fn hear_run(talk: &mut Talk) -> io::Result<Asked> {
    loop {
        let asked = talk.hear().await?;
        if asked.runs {
            return Ok(asked);
        }
        talk.say(&answer(&asked)).await?;
    }
}

#[tokio::test]
async fn a_server_that_closes_at_once_is_tried_again() {
    let peer = Peer::start(|mut talk, number| async move {
        if number < 3 {
            return Ok(());
        }
        talk.greet().await?;
        talk.serve().await
    })
    .await;
    let error = Connection::connect(peer.config()).await.expect_err("closed");
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Connect, Outcome::NotSent));
    assert!(error.to_string().contains("during the handshake"), "{error}");
    // Nothing was sent: the statement waits until a connection stands.
    let pool = pool_of_one(&peer);
    assert_eq!(seven(&pool).await.expect("the fourth connection"), 7);
    pool.close().await;
}

#[tokio::test]
async fn a_server_that_closes_behind_its_greeting_is_tried_again() {
    let peer = Peer::start(|mut talk, number| async move {
        talk.greet().await?;
        if number < 3 { Ok(()) } else { talk.serve().await }
    })
    .await;
    let pool = pool_of_one(&peer);
    heals(&pool).await;
    assert!(peer.accepted() >= 4);
}

#[tokio::test]
async fn an_answer_that_ends_at_any_byte_is_an_unknown_outcome_and_a_whole_one_is_not() {
    let whole = peer::seven();
    let attempts: Vec<_> = (0..=whole.len())
        .map(|end| {
            let whole = whole.clone();
            tokio::spawn(async move {
                let said = whole[..end].to_vec();
                let peer = odd_once(move |mut talk| {
                    let said = said.clone();
                    async move {
                        talk.greet().await?;
                        hear_run(&mut talk).await?;
                        talk.say(&said).await
                    }
                })
                .await;
                let pool = pool_of_one(&peer);
                match seven(&pool).await {
                    Ok(n) => assert_eq!((n, end), (7, whole.len())),
                    Err(error) => {
                        assert!(end < whole.len(), "{error}");
                        assert_eq!(
                            (error.kind(), error.outcome()),
                            (ErrorKind::Io, Outcome::Unknown),
                            "{end}"
                        );
                    }
                }
                heals(&pool).await;
            })
        })
        .collect();
    for attempt in attempts {
        attempt.await.expect("as expected");
    }
}

#[tokio::test]
async fn a_greeting_that_ends_at_any_byte_is_tried_again() {
    let greeting = greeting();
    let attempts: Vec<_> = (0..greeting.len())
        .map(|end| {
            let said = greeting[..end].to_vec();
            tokio::spawn(async move {
                let peer = odd_once(move |mut talk| {
                    let said = said.clone();
                    async move {
                        talk.hear_startup().await?;
                        talk.say(&said).await
                    }
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
async fn garbage_for_an_answer_costs_the_connection_at_once() {
    for said in garbage() {
        let peer = answers_with(said.clone()).await;
        let pool = pool_of_one(&peer);
        let began = Instant::now();
        let error = seven(&pool).await.expect_err("garbage");
        let what = format!("{}: {error}", said.escape_ascii());
        assert_eq!((error.kind(), error.outcome()), (ErrorKind::Protocol, Outcome::Unknown), "{what}");
        assert!(began.elapsed() < Duration::from_secs(3), "at once, and not when time was up: {what}");
        heals(&pool).await;
        assert!(peer.accepted() > 1, "{what}");
    }
}

#[tokio::test]
async fn a_peer_of_another_protocol_is_named_at_once() {
    let mut all = vec![
        b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(),
        b"\x15\x03\x03\0\x02\x02\x46".to_vec(),
        b"SSH-2.0-OpenSSH_9.9\r\n".to_vec(),
        b"220 mail ESMTP\r\n".to_vec(),
        b"-ERR unknown command\r\n".to_vec(),
        vec![0; 64],
        vec![0xff; 64],
    ];
    all.extend(other_protocols());
    for said in all {
        let what = said.escape_ascii().to_string();
        let peer = Peer::start(move |mut talk, _| {
            let said = said.clone();
            async move {
                talk.say(&said).await?;
                talk.ignore().await
            }
        })
        .await;
        let began = Instant::now();
        let error = Pool::builder(peer.config())
            .connections(1)
            .connect_timeout(Duration::from_secs(5))
            .connect()
            .await
            .expect_err("another protocol");
        let kinds = [ErrorKind::Protocol, ErrorKind::Connect, ErrorKind::Auth];
        assert!(kinds.contains(&error.kind()), "{what}: {error:?}");
        assert_eq!(error.outcome(), Outcome::NotSent, "{what}");
        assert!(began.elapsed() < Duration::from_secs(3), "{what}: {error}");
    }
}

#[tokio::test]
async fn an_error_for_a_greeting_is_told_and_tried_again() {
    for (said, kind, state) in refusals() {
        let peer = Peer::start(move |mut talk, number| {
            let said = said.clone();
            async move {
                talk.hear_startup().await?;
                if number < 3 {
                    return talk.say(&said).await;
                }
                talk.say(&greeting()).await?;
                talk.serve().await
            }
        })
        .await;
        let error = Pool::builder(peer.config()).connections(1).connect().await.expect_err("refused");
        assert_eq!((error.kind(), error.outcome()), (kind, Outcome::NotSent));
        assert_eq!(error.sqlstate(), Some(state));
        let pool = pool_of_one(&peer);
        assert_eq!(seven(&pool).await.expect("it waits until the server is ready"), 7);
        pool.close().await;
    }
}

#[tokio::test]
async fn time_that_runs_out_before_there_is_a_connection_names_the_cause() {
    let (said, _, state) = refusals().remove(0);
    let peer = Peer::start(move |mut talk, _| {
        let said = said.clone();
        async move {
            talk.hear_startup().await?;
            talk.say(&said).await
        }
    })
    .await;
    let pool = pool_of_one(&peer);
    eventually("it was tried several times", || async { peer.accepted() >= 3 }).await;
    let view = pool.with(CallOptions::new().timeout(Duration::from_millis(100)));
    let error = view.execute("SELECT 7", ()).await.expect_err("no connection");
    assert_eq!((error.kind(), error.phase()), (ErrorKind::Timeout, Some(Phase::Queue)));
    assert_eq!(error.outcome(), Outcome::NotSent);
    assert!(error.to_string().contains(state), "{error}");
    pool.close().await;
}

#[tokio::test]
async fn authentication_that_is_not_offered_is_named() {
    for said in strange_demands() {
        let what = said.escape_ascii().to_string();
        let peer = Peer::start(move |mut talk, _| {
            let said = said.clone();
            async move {
                talk.hear_startup().await?;
                talk.say(&said).await?;
                talk.ignore().await
            }
        })
        .await;
        let error = Connection::connect(peer.config().password("x")).await.expect_err("not offered");
        assert_eq!((error.kind(), error.outcome()), (ErrorKind::Auth, Outcome::NotSent), "{what}: {error}");
    }
}

#[tokio::test]
async fn a_server_that_never_greets_runs_into_connect_timeout() {
    let peer = Peer::start(|mut talk, _| async move { talk.freeze().await }).await;
    let limit = Duration::from_millis(200);
    let builder = Pool::builder(peer.config()).connections(1).connect_timeout(limit);
    let error = builder.connect().await.expect_err("no greeting");
    assert_eq!((error.kind(), error.phase()), (ErrorKind::Timeout, Some(Phase::Connect)));
}

#[tokio::test]
async fn a_server_that_falls_silent_at_any_byte_of_the_connection_phase_runs_into_connect_timeout() {
    let limit = Duration::from_secs(1);
    let whole = connection_phase();
    let lengths = whole.iter().map(Vec::len);
    // The last part whole is a connection; then the first thing that is asked is not answered.
    let ends = lengths.enumerate().flat_map(|(part, length)| (0..length).map(move |end| (part, end)));
    let ends = ends.chain([(whole.len(), 0)]);
    let attempts: Vec<_> = ends
        .map(|(part, end)| {
            let mut said = whole.clone();
            said.truncate(part + 1);
            if let Some(last) = said.get_mut(part) {
                last.truncate(end);
            }
            tokio::spawn(async move {
                let peer = Peer::start(move |mut talk, number| {
                    let said = said.clone();
                    async move {
                        if number > 1 {
                            talk.greet().await?;
                            return talk.serve().await;
                        }
                        for part in said {
                            talk.say(&part).await?;
                        }
                        talk.freeze().await
                    }
                })
                .await;
                let config = peer.config().setup(["SET a = 1"]).connect_timeout(limit);
                let began = Instant::now();
                let error = Connection::connect(config.clone()).await.expect_err("silence");
                let what = format!("part {part}, byte {end}: {error}");
                assert_eq!(
                    (error.kind(), error.phase()),
                    (ErrorKind::Timeout, Some(Phase::Connect)),
                    "{what}"
                );
                assert_eq!(error.outcome(), Outcome::NotSent, "{what}");
                assert!(began.elapsed() < 5 * limit, "{what}");
                // A pool goes on to the next attempt.
                let pool =
                    Pool::builder(config).connections(1).connect_lazy().expect("options that can be used");
                heals(&pool).await;
            })
        })
        .collect();
    for attempt in attempts {
        attempt.await.expect("as expected");
    }
}

#[tokio::test]
async fn an_endless_answer_is_bounded_and_fails_alone() {
    let peer = odd_once(|mut talk| async move {
        talk.greet().await?;
        hear_run(&mut talk).await?;
        let [begin, rows, end] = many_rows();
        talk.say(&begin).await?;
        for _ in 0..200 {
            talk.say(&rows).await?;
        }
        talk.say(&end).await?;
        talk.serve().await
    })
    .await;
    let builder = Pool::builder(peer.config()).connections(1).max_answer_bytes(1 << 20);
    let pool = builder.connect().await.expect("a pool");
    let query = tokio::spawn({
        let pool = pool.clone();
        async move { seven(&pool).await }
    });
    while !query.is_finished() {
        assert!(pool.stats().answer_bytes <= 1 << 20);
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let error = query.await.expect("no panic").expect_err("too large");
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Busy, Outcome::Completed));
    assert_eq!(seven(&pool).await.expect("a row"), 7);
    assert_eq!(peer.accepted(), 1);
    pool.close().await;
}

/// However fast the bytes come: neither a deadline nor others that the thread serves wait for their end.
#[tokio::test]
async fn an_answer_without_end_is_over_at_its_deadline_and_the_connection_is_given_up() {
    for endless in chatter() {
        let peer = odd_once(move |mut talk| {
            let (begin, again) = endless.clone();
            async move {
                talk.greet().await?;
                hear_run(&mut talk).await?;
                talk.say(&begin).await?;
                loop {
                    talk.say(&again).await?;
                }
            }
        })
        .await;
        let builder = Pool::builder(peer.config()).connections(1).max_answer_bytes(1 << 20);
        let pool = builder.stall_timeout(Duration::from_millis(500)).connect().await.expect("a pool");
        let view = pool.with(CallOptions::new().timeout(Duration::from_secs(1)));
        let began = Instant::now();
        let ticks = tokio::spawn(async move {
            let mut ticks = 0;
            while began.elapsed() < Duration::from_secs(1) {
                tokio::time::sleep(Duration::from_millis(10)).await;
                ticks += 1;
            }
            ticks
        });
        let error = view.query_one::<(i32,)>("SELECT 7", ()).await.expect_err("it never ends");
        assert_eq!((error.kind(), error.phase()), (ErrorKind::Timeout, Some(Phase::Answer)), "{error}");
        assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
        assert!(ticks.await.expect("no panic") > 5, "others run meanwhile");
        assert!(pool.stats().answer_bytes <= 1 << 20);
        heals(&pool).await;
        assert!(peer.accepted() >= 2, "the connection that never ends was given up");
    }
}

#[tokio::test]
async fn what_is_never_answered_times_out_and_others_do_not_wait_for_it() {
    let peer = Peer::start(|mut talk, _| async move {
        talk.greet().await?;
        loop {
            let asked = talk.hear().await?;
            if asked.runs && asked.text.starts_with("HANG") {
                return talk.ignore().await;
            }
            talk.say(&answer(&asked)).await?;
        }
    })
    .await;
    let pool = Pool::builder(peer.config()).connections(2).connect().await.expect("a pool");
    eventually("both pipes are up", || async { peer.accepted() == 2 }).await;
    seven(&pool).await.expect("served");
    let hanging = tokio::spawn({
        let pool = pool.clone();
        async move { pool.with(CallOptions::new().timeout(Duration::from_secs(1))).execute("HANG 1", ()).await }
    });
    eventually("it hangs", || async { pool.stats().in_flight() == 1 }).await;
    for _ in 0..100 {
        assert_eq!(seven(&pool).await.expect("served by the other pipe"), 7);
    }
    assert!(!hanging.is_finished(), "a hundred answers came first");
    let error = hanging.await.expect("no panic").expect_err("never answered");
    assert_eq!((error.kind(), error.phase()), (ErrorKind::Timeout, Some(Phase::Answer)));
    assert_eq!(error.outcome(), Outcome::Unknown);
    pool.close_within(Duration::ZERO).await;
}

#[tokio::test]
async fn a_server_that_does_not_read_times_out_while_sending() {
    let peer = odd_once(|mut talk| async move {
        talk.greet().await?;
        loop {
            let asked = talk.hear().await?;
            talk.say(&answer(&asked)).await?;
            if asked.text.starts_with("INSERT") {
                return talk.freeze().await;
            }
        }
    })
    .await;
    let pool = pool_of_one(&peer);
    // More than the sockets' buffers hold.
    let large = vec![7_u8; 32 << 20];
    let view = pool.with(CallOptions::new().timeout(Duration::from_secs(1)));
    let error = view.execute(sql("INSERT $1"), (&large,)).await.expect_err("nobody reads it");
    assert_eq!((error.kind(), error.phase()), (ErrorKind::Timeout, Some(Phase::Send)));
    assert_eq!(error.outcome(), Outcome::Unknown);
    // What waits behind it was never sent.
    let error = view.execute(sql("INSERT $1"), (&[7_u8][..],)).await.expect_err("nobody reads it");
    assert_eq!((error.kind(), error.phase()), (ErrorKind::Timeout, Some(Phase::Queue)));
    assert_eq!(error.outcome(), Outcome::NotSent);
    pool.close_within(Duration::ZERO).await;
}

#[tokio::test]
async fn an_answer_that_nobody_asked_for_costs_the_connection() {
    for said in unasked() {
        let peer = odd_once(move |mut talk| {
            let said = said.clone();
            async move {
                // In the same write as the greeting: nothing can have been asked.
                talk.hear_startup().await?;
                talk.say(&[greeting(), said].concat()).await?;
                talk.ignore().await
            }
        })
        .await;
        let pool = pool_of_one(&peer);
        // What was sent before that is unknown; a wrong answer it is never.
        match seven(&pool).await {
            Ok(n) => assert_eq!(n, 7),
            Err(error) => {
                assert!(matches!(error.outcome(), Outcome::Unknown | Outcome::NotSent), "{error:?}");
            }
        }
        heals(&pool).await;
        assert!(peer.accepted() > 1);
    }
}

#[tokio::test]
async fn a_server_that_stops_speaking_but_goes_on_listening_is_left() {
    let peer = odd_once(|mut talk| async move {
        talk.greet().await?;
        hear_run(&mut talk).await?;
        talk.fall_silent().await?;
        talk.ignore().await
    })
    .await;
    let pool = pool_of_one(&peer);
    let error = seven(&pool).await.expect_err("no answer can come");
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Io, Outcome::Unknown));
    heals(&pool).await;
}

#[tokio::test]
async fn a_last_word_reaches_everybody_who_had_asked() {
    let (said, state) = last_word();
    let peer = odd_once(move |mut talk| {
        let said = said.clone();
        async move {
            talk.greet().await?;
            hear_run(&mut talk).await?;
            talk.say(&said).await
        }
    })
    .await;
    let pool = pool_of_one(&peer);
    let error = seven(&pool).await.expect_err("terminated");
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Io, Outcome::Unknown));
    assert_eq!(error.sqlstate(), Some(state));
    heals(&pool).await;
}

#[tokio::test]
async fn a_statement_whose_connection_is_lost_while_it_is_learnt_runs_on_another() {
    let peer = odd_when_asked_for_a_cold_statement(false).await;
    let pool = pool_of_one(&peer);
    let five: (i32,) =
        pool.query_one("SELECT cold 5", ()).await.expect("nothing had run, so it can be asked again");
    assert_eq!(five, (5,));
    assert_eq!(peer.accepted(), 2);
    pool.close().await;
}

/// A server of two connections; the first that is asked for the statement `cold` does as told, all others serve.
pub(super) async fn odd_when_asked_for_a_cold_statement(freezes: bool) -> Peer {
    let asked_before = Arc::new(std::sync::atomic::AtomicBool::new(false));
    Peer::start(move |mut talk, _| {
        let asked_before = Arc::clone(&asked_before);
        async move {
            talk.greet().await?;
            loop {
                let asked = talk.hear().await?;
                if asked.text.contains("cold") && !asked_before.swap(true, Ordering::SeqCst) {
                    return if freezes { talk.freeze().await } else { Ok(()) };
                }
                talk.say(&answer(&asked)).await?;
            }
        }
    })
    .await
}

#[tokio::test]
async fn a_gigantic_row_that_is_only_announced_takes_no_memory_and_ends_at_the_deadline() {
    let peer = answers_with(announced_row()).await;
    let pool = pool_of_one(&peer);
    let view = pool.with(CallOptions::new().timeout(Duration::from_secs(1)));
    let error = view.query_one::<(i32,)>("SELECT 7", ()).await.expect_err("it never comes");
    assert_eq!((error.kind(), error.phase()), (ErrorKind::Timeout, Some(Phase::Answer)));
    assert!(pool.stats().answer_bytes < 1_000);
    pool.close_within(Duration::ZERO).await;
}
