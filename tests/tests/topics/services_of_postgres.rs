//! Cases from services in production that only PostgreSQL has: COPY and LISTEN, which are not offered yet, and a server
//! of processes, one of which dies.

use integration_tests::eventually;
use rustix::process::{Pid, Signal, kill_process};
use test_servers::{Kind, own_server};

use super::side::{ErrorKind, Outcome, Pool, Row, all_shared, at, number, pool_of, reconnects};

/// Both come with a later milestone; until then they are refused before they are sent, or end their connection alone.
#[tokio::test]
async fn copy_and_listen_are_refused_in_words_that_say_what_to_do() {
    let pool = pool_of(2).await;
    all_shared(&pool).await;
    for (text, words) in [
        ("LISTEN somebody", "pool.session()"),
        ("UNLISTEN *", "pool.session()"),
        ("COPY pg_class TO STDOUT", "COPY"),
        ("copy pg_class from stdin", "COPY"),
    ] {
        let error = pool.execute(text, ()).await.expect_err(text);
        assert_eq!((error.kind(), error.outcome()), (ErrorKind::SessionState, Outcome::NotSent), "{text}");
        assert!(error.to_string().contains(words), "{text}: {error}");
    }
    let session = pool.session().await.expect("a session");
    for text in ["COPY pg_class TO STDOUT", "COPY pg_class FROM STDIN"] {
        let error = session.execute(text, ()).await.expect_err(text);
        assert_eq!((error.kind(), error.outcome()), (ErrorKind::SessionState, Outcome::NotSent), "{text}");
        assert!(error.to_string().contains("COPY"), "{text}: {error}");
    }
    assert_eq!(session.query_one::<(i32,)>("SELECT 1", ()).await.expect("nothing was sent"), (1,));
    // One that the script hides is stopped where it begins, in time, and its session is lost with it.
    let hidden = session.batch_execute("SELECT 1; COPY pg_class FROM STDIN; SELECT 2").await;
    let error = hidden.expect_err("not offered");
    assert!(error.to_string().contains("COPY"), "{error}");
    drop(session);
    all_shared(&pool).await;
    assert_eq!(pool.query_one::<(i32,)>("SELECT 1", ()).await.expect("served"), (1,));
    pool.close().await;
}

/// What the system does to a process that takes too much memory: PostgreSQL ends all the others and recovers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_a_process_of_the_server_is_killed_everybody_is_told_why_and_is_served_again() {
    let server = own_server(Kind::Postgres, "killed").await.expect("a server of its own");
    if server.pid().is_none() {
        // In a container its processes are out of reach; the chaos run leaves this event out too.
        return;
    }
    let pool = Pool::builder(at(server.url())).connections(4).connect().await.expect("a pool");
    let control = Pool::builder(at(server.url())).connections(1).connect().await.expect("a pool");
    all_shared(&pool).await;
    let victim = number(&control).await;
    let sleepers: Vec<_> = (0..2)
        .map(|_| {
            let pool = pool.clone();
            tokio::spawn(async move { pool.query::<Row>("SELECT pg_sleep(60)", ()).await })
        })
        .collect();
    eventually("both sleep", || async {
        let sql = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'";
        control.query_one::<(i64,)>(sql, ()).await.expect("a count") == (2,)
    })
    .await;
    let process = Pid::from_raw(i32::try_from(victim).expect("a process")).expect("a process");
    kill_process(process, Signal::KILL).expect("killed");
    for sleeper in sleepers {
        let error = sleeper.await.expect("no panic").expect_err("the server has crashed");
        assert_eq!((error.kind(), error.outcome()), (ErrorKind::Io, Outcome::Unknown), "{error:?}");
        // crash_shutdown, as the server's warning had it
        assert_eq!(error.sqlstate(), Some("57P02"), "{error:?}");
    }
    // While it recovers it takes no connections (57P03): nobody who asks now is told of that.
    let (one,): (i32,) = pool.query_one("SELECT 1", ()).await.expect("served when it has recovered");
    assert_eq!(one, 1);
    all_shared(&pool).await;
    assert!(reconnects(&pool) >= 4, "all connections were ended");
    pool.close().await;
    control.close().await;
}
