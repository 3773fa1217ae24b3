//! Odd servers of PostgreSQL's protocol, whose messages say what they are: one too many is seen for what it is. (MySQL's
//! do not: a server that answers twice cannot be told from one that answers.) And what is asked before a statement runs:
//! its parameters, and types of the database's own.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use super::hostile_peers::{
    heals, hear_run, odd_once, odd_when_asked_for_a_cold_statement, pool_of_one, seven,
};
use super::side::peer::{Asked, Peer, READY, answer, gives, message, refusal, row, takes};
use super::side::{ErrorKind, Outcome, Pool, Row, all_shared};

#[tokio::test]
async fn columns_that_are_only_announced_are_an_error_of_the_one_who_asked() {
    let peer = odd_once(|mut talk| async move {
        talk.greet().await?;
        hear_run(&mut talk).await?;
        let columns = message(b'D', &[0xff, 0xff]);
        talk.say(&[message(b'2', b""), columns, message(b'C', b"SELECT 1\0"), READY.to_vec()].concat())
            .await?;
        talk.serve().await
    })
    .await;
    let pool = pool_of_one(&peer);
    let error = seven(&pool).await.expect_err("no such columns");
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Protocol, Outcome::Completed));
    // The frame was whole: the connection goes on.
    assert_eq!(seven(&pool).await.expect("a row"), 7);
    assert_eq!(peer.accepted(), 1);
    pool.close().await;
}

#[tokio::test]
async fn a_description_of_columns_that_do_not_come_is_refused() {
    let peer = odd_once(|mut talk| async move {
        talk.greet().await?;
        talk.hear().await?;
        let columns = message(b'T', &[0xff, 0xff]);
        talk.say(&[message(b'1', b""), takes(&[]), columns, READY.to_vec()].concat()).await?;
        talk.ignore().await
    })
    .await;
    let pool = pool_of_one(&peer);
    let error = seven(&pool).await.expect_err("no such columns");
    // Only preparing went wrong: the statement itself was not sent.
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Protocol, Outcome::NotSent));
    heals(&pool).await;
}

#[tokio::test]
async fn a_server_that_answers_twice_never_makes_answers_change_hands() {
    // Every connection says ReadyForQuery once too often, behind its twentieth request.
    let peer = Peer::start(|mut talk, _| async move {
        talk.greet().await?;
        for _ in 0..20 {
            let asked = talk.hear().await?;
            talk.say(&answer(&asked)).await?;
        }
        let asked = talk.hear().await?;
        talk.say(&[&answer(&asked)[..], READY].concat()).await?;
        talk.serve().await
    })
    .await;
    let pool = Pool::builder(peer.config()).connections(2).connect().await.expect("a pool");
    let right = Arc::new(AtomicU32::new(0));
    let tasks: Vec<_> = (0..50)
        .map(|n| {
            let (pool, right) = (pool.clone(), Arc::clone(&right));
            tokio::spawn(async move {
                for query in 0..10 {
                    let n = n * 100 + query;
                    match pool.query_one::<(i32,)>(format!("SELECT {n}"), ()).await {
                        Ok((echo,)) => {
                            assert_eq!(echo, n);
                            right.fetch_add(1, Ordering::Relaxed);
                        }
                        Err(error) => {
                            assert_eq!(error.kind(), ErrorKind::Protocol, "{error}");
                            assert!(
                                matches!(error.outcome(), Outcome::Unknown | Outcome::NotSent),
                                "{error:?}"
                            );
                        }
                    }
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("no answer changed hands");
    }
    assert!(right.load(Ordering::Relaxed) > 100);
    assert!(peer.accepted() > 2, "connections were given up");
    pool.close().await;
}

#[tokio::test]
async fn types_that_contain_themselves_are_looked_up_to_an_end() {
    /// A type of the database's own, whose elements are of the same type.
    const CIRCLE: u32 = 100_000;
    let peer = Peer::start(|mut talk, _| async move {
        talk.greet().await?;
        loop {
            let asked = talk.hear().await?;
            let is_lookup = asked.text.contains("pg_catalog.pg_type");
            let (parameters, columns): (&[u32], &[u32]) =
                if is_lookup { (&[26], &[25, 18, 26, 26, 26, 25, 26]) } else { (&[], &[CIRCLE]) };
            let circle = CIRCLE.to_be_bytes();
            let found = [
                Some(&b"circle"[..]),
                Some(b"b"),
                Some(&circle),
                None,
                Some(&[0; 4]),
                Some(b"public"),
                Some(&[0; 4]),
            ];
            let found = row(if is_lookup { &found } else { &[None] });
            for heard in &asked.messages {
                let said = match heard.tag {
                    b'D' => [takes(parameters), gives(columns)].concat(),
                    b'E' => [&found[..], &message(b'C', b"SELECT 1\0")].concat(),
                    _ => answer(&Asked { messages: vec![heard.clone()], ..asked.clone() }),
                };
                talk.say(&said).await?;
            }
        }
    })
    .await;
    let pool = pool_of_one(&peer);
    let row: Row = pool.query_one("SELECT circle", ()).await.expect("a row all the same");
    assert_eq!(row.columns()[0].type_().oid(), CIRCLE);
    pool.close().await;
}

#[tokio::test]
async fn a_statement_that_is_being_learnt_on_a_stuck_connection_is_learnt_on_another() {
    let peer = odd_when_asked_for_a_cold_statement(true).await;
    let builder = Pool::builder(peer.config()).connections(2).query_timeout(Duration::from_secs(3));
    let pool = builder.connect_lazy().expect("options that can be used");
    all_shared(&pool).await;
    let began = Instant::now();
    let tasks: Vec<_> = (0..10)
        .map(|_| {
            let pool = pool.clone();
            tokio::spawn(async move {
                let answer = pool.query_one::<(i32,)>("SELECT cold 5", ()).await;
                (answer, Instant::now())
            })
        })
        .collect();
    let mut stuck = 0;
    for task in tasks {
        match task.await.expect("no panic") {
            (Ok(five), at) => {
                assert_eq!(five, (5,));
                assert!(at - began < Duration::from_secs(2), "{:?}", at - began);
            }
            (Err(error), _) => {
                assert_eq!((error.kind(), error.outcome()), (ErrorKind::Timeout, Outcome::NotSent));
                stuck += 1;
            }
        }
    }
    assert_eq!(stuck, 1, "the one whose bytes are on the stuck connection");
    pool.close_within(Duration::ZERO).await;
}

#[tokio::test]
async fn a_server_that_crashes_says_so_in_a_warning_and_its_words_reach_the_one_who_asked() {
    let mut crash = refusal("WARNING", "57P02");
    crash[0] = b'N';
    let peer = odd_once({
        let crash = crash.clone();
        move |mut talk| {
            let crash = crash.clone();
            async move {
                talk.greet().await?;
                hear_run(&mut talk).await?;
                talk.say(&crash).await
            }
        }
    })
    .await;
    let pool = pool_of_one(&peer);
    let error = seven(&pool).await.expect_err("it crashed");
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Io, Outcome::Unknown));
    assert_eq!(error.sqlstate(), Some("57P02"), "{error}");
    heals(&pool).await;
    // The same words of a statement that goes on are its own affair.
    let peer = odd_once(move |mut talk| {
        let crash = crash.clone();
        async move {
            talk.greet().await?;
            let asked = hear_run(&mut talk).await?;
            talk.say(&[crash, answer(&asked)].concat()).await?;
            hear_run(&mut talk).await.map(|_| ())
        }
    })
    .await;
    let pool = pool_of_one(&peer);
    assert_eq!(seven(&pool).await.expect("it went on"), 7);
    let error = seven(&pool).await.expect_err("it hung up");
    assert_eq!(error.sqlstate(), None, "{error}");
    pool.close().await;
}
