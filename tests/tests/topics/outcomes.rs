//! What errors say: every row of the table in the driver's documentation is provoked, and says what the table says.

use std::path::Path;
use std::time::Duration;

use integration_tests::{eventually, own_name};
use tokio::net::TcpListener;

use super::hostile_peers::{answers_with, odd_once, pool_of_one, seven};
use super::side::dialect::{
    DOCUMENTATION, ECHO, ECHO_TEXT, NO_SUCH_TABLE, REPEAT, drop_user, sleep, user_with,
};
use super::side::peer::{answer, garbage};
use super::side::{
    CallOptions, Connection, Error, Pool, Row, active, config, drop_table, loopback, named_pool, number,
    pool, pool_of, sql, table, terminate, terminate_all,
};

/// Rows that need more than an error to be shown, and the tests that show them.
const ELSEWHERE: [(&str, &str, &str); 3] = [
    (
        "COMMIT whose answer did not come",
        "tests/tests/topics/fault_proxy.rs",
        "transactions_are_whole_whatever_byte_the_network_breaks_at",
    ),
    (
        "connection lost before that, on a pool",
        "wire-pipeline/tests/lost_connections.rs",
        "what_was_sent_is_unknown_at_once_and_the_rest_runs_elsewhere",
    ),
    (
        "a transaction slipped onto a shared connection",
        "wire-pipeline/tests/shared_state.rs",
        "nobody_is_told_ok_for_what_runs_behind_an_open_transaction",
    ),
];

/// The rows of the table: situation, kind, outcome.
fn documented() -> Vec<(String, String, String)> {
    let table = DOCUMENTATION.split("| situation | kind | outcome |").nth(1).expect("the table");
    let rows = table.lines().skip(2).map_while(|line| line.strip_prefix("//! | ")?.strip_suffix(" |"));
    rows.map(|row| {
        // Cells may hold commas and slashes, and never a bar.
        let mut cells = row.split(" | ").map(|cell| cell.replace('`', "").trim_end_matches(" |").to_owned());
        let mut cell = || cells.next().unwrap_or_default();
        (cell(), cell(), cell())
    })
    .collect()
}

#[tokio::test]
async fn every_situation_in_the_documentation_gives_what_it_says() {
    let rows = documented();
    assert!(rows.len() >= 22, "{rows:?}");
    for (situation, kind, outcome) in rows {
        if let Some((_, file, test)) = ELSEWHERE.iter().find(|(row, _, _)| situation.starts_with(row)) {
            let file = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace").join(file);
            let source = std::fs::read_to_string(file).expect("a source");
            assert!(source.contains(&format!("async fn {test}()")), "{test}");
            continue;
        }
        let provoked = provoke(&situation);
        let error = tokio::time::timeout(Duration::from_secs(30), provoked).await.expect("in time");
        let seen = (format!("{:?}", error.kind()), format!("{:?}", error.outcome()));
        assert!(kind.split(", later ").any(|kind| kind == seen.0), "{situation}: {error:?}");
        assert_eq!(outcome, seen.1, "{situation}: {error:?}");
        assert!(!error.to_string().is_empty());
    }
}

fn failed<T>(result: Result<T, Error>) -> Error {
    result.err().expect("it fails")
}

/// Brings a situation about, and gives its error.
async fn provoke(situation: &str) -> Error {
    let begins = |words: &str| situation.starts_with(words);
    let short = CallOptions::new().timeout(Duration::from_millis(100));
    if begins("an option or URL") {
        return failed(Pool::builder(config().await.connections(0)).connect().await);
    }
    if begins("server down") {
        let port =
            TcpListener::bind("127.0.0.1:0").await.expect("a port").local_addr().expect("its address").port();
        return failed(Pool::builder(loopback(port)).connect().await);
    }
    if begins("wrong password") {
        let (admin, user) = (pool().await, own_name("refused"));
        for statement in user_with(&user, "secret") {
            admin.execute(statement, ()).await.expect("a user");
        }
        let error = failed(Connection::connect(config().await.user(&user).password("guess")).await);
        admin.execute(drop_user(&user), ()).await.expect("dropped");
        return error;
    }
    if begins("connection lost after") {
        let name = own_name("lost");
        let (pool, other) = (named_pool(&name).await, pool().await);
        let (error, ()) = tokio::join!(pool.execute(sleep(20.0), ()), async {
            eventually("it sleeps", || async { active(&other, &name).await == 1 }).await;
            terminate_all(&other, &name).await;
        });
        return failed(error);
    }
    if begins("connection lost before that, on a lease") {
        let (pool, other) = (pool().await, pool().await);
        let session = pool.session().await.expect("a session");
        terminate(&other, number(&session).await).await;
        eventually("the session has lost it", || async { !session.is_alive() }).await;
        return failed(session.query::<Row>("SELECT 1", ()).await);
    }
    if begins("the server breaks the protocol") {
        let peer = answers_with(garbage().swap_remove(0)).await;
        return failed(seven(&pool_of_one(&peer)).await);
    }
    if begins("deadline passed while it was sent") {
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
        let view = pool.with(CallOptions::new().timeout(Duration::from_millis(500)));
        return failed(view.execute(sql("INSERT $1"), (&large,)).await);
    }
    if begins("deadline passed before a lease") {
        let config = config().await.connections(2).acquire_timeout(Duration::from_millis(100));
        let pool = Pool::builder(config).connect().await.expect("a pool");
        let _held = pool.session().await.expect("the only lease");
        return failed(pool.begin().await);
    }
    if begins("an answer over") {
        let config = config().await.max_answer_bytes(1_000);
        let pool = Pool::builder(config).connect().await.expect("a pool");
        return failed(pool.query::<Row>(REPEAT, (10_000,)).await);
    }
    if begins("COMMIT of a transaction") {
        return commit_of_a_victim().await;
    }
    let pool = pool_of(2).await;
    match situation {
        _ if begins("parameters that do not fit") => failed(pool.query::<Row>(ECHO, ()).await),
        _ if begins("a statement that a shared connection") => failed(pool.execute("BEGIN", ()).await),
        _ if begins("the server refuses the statement") => {
            let error = failed(pool.query::<Row>("SELECT * FROM nothing_of_that_name", ()).await);
            assert_eq!(error.sqlstate(), Some(NO_SUCH_TABLE));
            error
        }
        _ if begins("no or several rows") => {
            failed(pool.query_one::<Row>("SELECT 1 FROM (SELECT 1) AS one WHERE 1 = 0", ()).await)
        }
        _ if begins("a value that is not") => failed(pool.query_one::<(i32,)>(ECHO_TEXT, ("x",)).await),
        _ if begins("a handle of a transaction that is over") => {
            let work = pool.transaction().run(async |tx| {
                tx.query::<Row>("SELECT 1", ()).await?;
                Ok::<_, Error>(tx)
            });
            failed(work.await.expect("done").query::<Row>("SELECT 1", ()).await)
        }
        _ if begins("deadline passed before it was sent") => {
            let config = config().await.connections(1).max_in_flight(1);
            let pool = Pool::builder(config).connect().await.expect("a pool");
            let view = pool.with(short);
            let (slept, error) =
                tokio::join!(pool.query::<Row>(sleep(0.5), ()), view.query::<Row>("SELECT 1", ()));
            slept.expect("an answer");
            failed(error)
        }
        _ if begins("deadline passed before it was answered") => {
            failed(pool.with(short).query::<Row>(sleep(0.5), ()).await)
        }
        _ if begins("the pool is closed") => {
            pool.close().await;
            failed(pool.query::<Row>("SELECT 1", ()).await)
        }
        _ if begins("a script on the pool that leaves") => {
            failed(pool.batch_execute("BEGIN; SELECT 1").await)
        }
        _ if begins("the same, where other statements had run") => {
            failed(pool.batch_execute("DO 0; BEGIN; SELECT 1").await)
        }
        _ if begins("a script, or a procedure") => {
            failed(pool.batch_execute("DO 0; SELECT * FROM nothing_of_that_name").await)
        }
        other => panic!("no test provokes what the documentation says of: {other}"),
    }
}

/// Two transactions wait for each other, and the one that the server undoes is committed.
async fn commit_of_a_victim() -> Error {
    let pool = pool().await;
    let table = table(&pool, "victim", "id int PRIMARY KEY, n int").await;
    for id in [1, 2] {
        pool.execute(sql(format!("INSERT INTO {table} VALUES ($1, 0)")), (id,)).await.expect("a row");
    }
    let update = sql(format!("UPDATE {table} SET n = n + 1 WHERE id = $1"));
    let (one, other) = (pool.begin().await.expect("a lease"), pool.begin().await.expect("a lease"));
    one.execute(&update, (1,)).await.expect("locked");
    other.execute(&update, (2,)).await.expect("locked");
    let (first, second) = tokio::join!(one.execute(&update, (2,)), other.execute(&update, (1,)));
    assert!(first.is_err() != second.is_err(), "one of them is the victim");
    let (victim, survivor) = if first.is_err() { (one, other) } else { (other, one) };
    let error = failed(victim.commit().await);
    survivor.rollback().await.expect("rolled back");
    drop_table(&pool, &table).await;
    pool.close().await;
    error
}
