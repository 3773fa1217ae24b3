//! What errors say: every row of the table in the driver's documentation is provoked, and says what the table says.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use integration_tests::proxy::Faults;
use integration_tests::{eventually, own_name};
use tokio::net::{TcpListener, TcpSocket};

use super::hostile_peers::{answers_with, odd_once, pool_of_one, seven};
use super::side::dialect::{
    ASKS_AGAIN, CANCELLED, CHECKED_LATE, DOCUMENTATION, ECHO, ECHO_A_LITTLE_LATER, ECHO_TEXT, NO_SUCH_TABLE,
    REFUSED_ON_SHARED, REPEAT, SCHEME, TOO_MANY, drop_user, endings, limited_user, sleep, user_with,
};
use super::side::peer::{answer, garbage};
use super::side::{
    CallOptions, Config, Connection, Error, Pool, Row, all_shared, asleep, cancel_all, config, drop_table,
    loopback, named_config, named_pool, number, pool, pool_of, sql, table, terminate, terminate_all,
    through_proxy,
};

/// What the rows begin with, in their order; and the only database that has it, where it is not for both.
const SITUATIONS: [(&str, Option<&str>); 32] = [
    ("an option or URL that cannot be used", None),
    ("server down, name unknown, server refuses", None),
    ("wrong password, unknown user", None),
    ("no connection in time", None),
    ("parameters that do not fit: their number", None),
    ("a statement that a shared connection may not run", None),
    ("the server refuses the statement", None),
    ("somebody cancels the statement", None),
    ("a constraint that is checked only at the end", Some("postgres")),
    ("COMMIT of a transaction that the server has undone", None),
    ("COMMIT whose answer did not come", None),
    ("a handle of a transaction that is over", None),
    ("a handle of a savepoint that was rolled back with an earlier one", None),
    ("a script or procedure that ends the transaction it is part of", None),
    ("COMMIT or ROLLBACK of a transaction that was ended so, and `run`", None),
    ("a procedure that is undone with the transaction it is part of", Some("mysql")),
    ("a script, or a procedure, of which an earlier statement had run", Some("mysql")),
    ("no or several rows", None),
    ("a value that is not of the type", None),
    ("an answer over `max_answer_bytes`, or over what `answer_budget` leaves", None),
    ("deadline passed before it was sent (phase queue)", None),
    ("deadline passed before a lease was free (phase lease)", None),
    ("deadline passed while it was sent (phase send)", None),
    ("deadline passed before it was answered (phase answer)", None),
    ("connection lost after its bytes went out", None),
    ("connection lost before that, on a pool", None),
    ("connection lost before that, on a lease", None),
    ("the server breaks the protocol", None),
    ("the pool is closed, or its runtime has ended", None),
    ("a script on the pool that leaves a transaction open", None),
    ("the same, where other statements had run before", Some("mysql")),
    ("a transaction slipped onto a shared connection", None),
];

/// Rows that need more than an error to be shown, and the tests that show them.
const ELSEWHERE: [(&str, &str, &str); 2] = [
    (
        "connection lost before that, on a pool",
        "tests/tests/topics/lost_answers.rs",
        "what_was_not_sent_when_its_connection_was_lost_moves_by_itself_and_runs_once",
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
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let [situation, kind, outcome] = cells[..] else { panic!("three cells: {row}") };
        (situation.to_owned(), kind.replace('`', ""), outcome.replace('`', ""))
    })
    .collect()
}

#[test]
fn the_documentation_has_the_situations_that_are_provoked_here_in_this_order() {
    let here = SITUATIONS.iter().filter(|(_, only)| only.is_none_or(|side| side == SCHEME));
    let (here, rows) = (here.map(|(situation, _)| *situation).collect::<Vec<_>>(), documented());
    for (row, here) in rows.iter().zip(&here) {
        assert!(row.0.starts_with(here), "`{}` is documented where `{here}` is expected", row.0);
    }
    assert_eq!(rows.len(), here.len());
}

#[tokio::test]
async fn every_situation_in_the_documentation_gives_what_it_says() {
    for (situation, kind, outcome) in documented() {
        if let Some((_, file, test)) = ELSEWHERE.iter().find(|(row, _, _)| situation.starts_with(row)) {
            let file = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace").join(file);
            let source = std::fs::read_to_string(file).expect("a source");
            assert!(source.contains(&format!("async fn {test}()")), "{test}");
            continue;
        }
        let provoked = provoke(&situation);
        let errors = tokio::time::timeout(Duration::from_secs(30), provoked).await;
        let errors = errors.unwrap_or_else(|_| panic!("not within 30 s: {situation}"));
        assert!(!errors.is_empty(), "{situation}");
        for error in errors {
            let seen = (format!("{:?}", error.kind()), format!("{:?}", error.outcome()));
            assert!(kind.split(", later ").any(|kind| kind == seen.0), "{situation}: {error:?}");
            assert_eq!(outcome, seen.1, "{situation}: {error:?}");
            // A timeout's row names its phase, and so does its message.
            let phase = situation.split_once("(phase ").and_then(|(_, phase)| phase.strip_suffix(')'));
            assert_eq!(error.phase().map(|phase| format!("{phase:?}").to_lowercase()).as_deref(), phase);
            assert!(
                phase.is_none_or(|phase| error.to_string().contains(&format!("in phase {phase}"))),
                "{error}"
            );
        }
    }
}

#[track_caller]
fn failed<T>(result: Result<T, Error>) -> Error {
    result.err().expect("it fails")
}

/// Brings about what a row is about, in each of the ways that it names, and gives the errors.
async fn provoke(situation: &str) -> Vec<Error> {
    let begins = |words: &str| situation.starts_with(words);
    match situation {
        _ if begins("an option or URL") => vec![
            failed(Pool::builder(config().await.connections(0)).connect().await),
            failed(format!("{SCHEME}://u@host/db?flavour=sweet").parse::<Config>()),
        ],
        _ if begins("server down") => no_connection().await,
        _ if begins("wrong password") => no_login().await,
        _ if begins("no connection in time") => {
            // The kernel takes the connection, and nobody ever says a word on it.
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
            let mute = loopback(listener.local_addr().expect("its address").port());
            let pool = Pool::builder(mute.connect_timeout(Duration::from_millis(100)));
            vec![failed(pool.connect().await)]
        }
        _ if begins("connection lost") || begins("COMMIT whose answer") => lost(situation).await,
        _ if begins("deadline passed") => too_late(situation).await,
        _ if begins("the server breaks the protocol") => {
            let peer = answers_with(garbage().swap_remove(0)).await;
            vec![failed(seven(&pool_of_one(&peer)).await)]
        }
        _ if begins("an answer over") => over_a_limit().await,
        _ if begins("COMMIT of a transaction") => vec![commit_of_a_victim().await],
        _ if begins("a constraint that is checked only") => checked_late().await,
        _ if begins("somebody cancels") => vec![cancelled().await],
        _ if begins("the pool is closed") => closed().await,
        _ if begins("a handle of a savepoint") => savepoint_is_over().await,
        _ if begins("a script or procedure that ends") || begins("COMMIT or ROLLBACK of") => {
            ended(begins("a script")).await
        }
        _ if begins("a procedure that is undone") => vec![undone_in_a_procedure().await],
        _ => on_a_pool(situation).await,
    }
}

/// What needs no more than a pool.
async fn on_a_pool(situation: &str) -> Vec<Error> {
    let begins = |words: &str| situation.starts_with(words);
    let pool = pool_of(2).await;
    let errors = match situation {
        _ if begins("parameters that do not fit") => {
            let many = vec![1_i32; 65_536];
            let many: Vec<&(dyn super::side::types::ToSql + Sync)> = many.iter().map(|n| n as _).collect();
            vec![failed(pool.query::<Row>(ECHO, ()).await), failed(pool.query::<Row>(ECHO, many).await)]
        }
        _ if begins("a statement that a shared connection") => {
            let mut errors = Vec::new();
            for text in REFUSED_ON_SHARED {
                errors.push(failed(pool.execute(text, ()).await));
            }
            errors
        }
        _ if begins("the server refuses the statement") => {
            let error = failed(pool.query::<Row>("SELECT * FROM nothing_of_that_name", ()).await);
            assert_eq!(error.sqlstate(), Some(NO_SUCH_TABLE));
            vec![error]
        }
        _ if begins("no or several rows") => vec![
            failed(pool.query_one::<Row>("SELECT 1 FROM (SELECT 1) AS one WHERE 1 = 0", ()).await),
            failed(pool.query_one::<Row>("SELECT 1 UNION SELECT 2", ()).await),
            failed(pool.query_opt::<Row>("SELECT 1 UNION SELECT 2", ()).await),
        ],
        _ if begins("a value that is not") => vec![
            failed(pool.query_one::<(i32,)>(ECHO_TEXT, ("x",)).await),
            failed(pool.query_one::<(String,)>(ECHO_TEXT, (None::<&str>,)).await),
        ],
        _ if begins("a handle of a transaction that is over") => {
            let work = pool.transaction().run(async |tx| {
                tx.query::<Row>("SELECT 1", ()).await?;
                Ok::<_, Error>(tx)
            });
            vec![failed(work.await.expect("done").query::<Row>("SELECT 1", ()).await)]
        }
        _ if begins("a script on the pool that leaves") => {
            vec![failed(pool.batch_execute("BEGIN; SELECT 1").await)]
        }
        _ if begins("the same, where other statements had run") => {
            vec![failed(pool.batch_execute("DO 0; BEGIN; SELECT 1").await)]
        }
        _ if begins("a script, or a procedure") => {
            vec![failed(pool.batch_execute("DO 0; SELECT * FROM nothing_of_that_name").await)]
        }
        other => panic!("no test provokes what the documentation says of: {other}"),
    };
    pool.close().await;
    errors
}

/// Nobody listens; and a server that has no more connections for this user.
async fn no_connection() -> Vec<Error> {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.bind(([127, 0, 0, 1], 0).into()).expect("a port that nobody listens on");
    let nobody = loopback(socket.local_addr().expect("its address").port());
    let (admin, user) = (pool().await, own_name("refused"));
    for statement in limited_user(&user, 1) {
        admin.execute(statement, ()).await.expect("a user");
    }
    let limited = config().await.user(&user).password("secret");
    let only = Connection::connect(limited.clone()).await.expect("the only one");
    let refused = failed(Connection::connect(limited).await);
    assert!(refused.to_string().contains(TOO_MANY), "{refused}");
    only.close().await;
    admin.execute(drop_user(&user), ()).await.expect("dropped");
    vec![failed(Pool::builder(nobody).connect().await), refused]
}

async fn no_login() -> Vec<Error> {
    let (admin, user) = (pool().await, own_name("refused"));
    for statement in user_with(&user, "secret") {
        admin.execute(statement, ()).await.expect("a user");
    }
    let wrong = failed(Connection::connect(config().await.user(&user).password("guess")).await);
    admin.execute(drop_user(&user), ()).await.expect("dropped");
    vec![wrong, failed(Connection::connect(config().await.user(&user).password("secret")).await)]
}

async fn lost(situation: &str) -> Vec<Error> {
    if situation.starts_with("COMMIT") {
        let (proxy, config) = through_proxy(&own_name("commit"), Faults::NONE).await;
        let pool = Pool::builder(config).connections(2).connect().await.expect("a pool");
        all_shared(&pool).await;
        let tx = pool.begin().await.expect("a lease");
        tx.query::<Row>("SELECT 1", ()).await.expect("inside");
        proxy.lose_next_answer();
        return vec![failed(tx.commit().await)];
    }
    let (name, other) = (own_name("lost"), pool().await);
    let pool = named_pool(&name).await;
    if situation.starts_with("connection lost after") {
        let (error, ()) = tokio::join!(pool.execute(sleep(20.0), ()), async {
            eventually("it sleeps", || async { asleep(&other, &name).await == 1 }).await;
            terminate_all(&other, &name).await;
        });
        return vec![failed(error)];
    }
    let session = pool.session().await.expect("a session");
    terminate(&other, number(&session).await).await;
    eventually("the session has lost it", || async { !session.is_alive() }).await;
    vec![failed(session.query::<Row>("SELECT 1", ()).await)]
}

async fn too_late(situation: &str) -> Vec<Error> {
    let has = |phase: &str| situation.contains(&format!("(phase {phase})"));
    if has("send") {
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
        return vec![failed(view.execute(sql("INSERT $1"), (&large,)).await)];
    }
    let config = config().await.connections(2).max_in_flight(1).acquire_timeout(Duration::from_millis(100));
    let pool = Pool::builder(config).connect().await.expect("a pool");
    all_shared(&pool).await;
    if has("lease") {
        let _held = pool.session().await.expect("the only lease");
        return vec![failed(pool.begin().await), failed(pool.session().await)];
    }
    if has("answer") {
        let view = pool.with(CallOptions::new().timeout(Duration::from_secs(1)));
        return vec![failed(view.query::<Row>(sleep(60.0), ()).await)];
    }
    assert!(has("queue"), "no test provokes what the documentation says of: {situation}");
    let view = pool.with(CallOptions::new().timeout(Duration::from_millis(200)));
    // Known from here on: what must be learnt first does not take its place at once.
    pool.query::<Row>(sleep(2.0), ()).await.expect("an answer");
    pool.query::<Row>("SELECT 1", ()).await.expect("an answer");
    let (one, two, error) = tokio::join!(
        pool.query::<Row>(sleep(2.0), ()),
        pool.query::<Row>(sleep(2.0), ()),
        view.query::<Row>("SELECT 1", ())
    );
    one.and(two).expect("answers");
    vec![failed(error)]
}

async fn over_a_limit() -> Vec<Error> {
    let mut errors = Vec::new();
    for (answer, budget) in [(1_000, 1 << 20), (1 << 20, 1_000)] {
        let config = config().await.max_answer_bytes(answer).answer_budget(budget);
        let pool = Pool::builder(config).connect().await.expect("a pool");
        errors.push(failed(pool.query::<Row>(REPEAT, (10_000,)).await));
        pool.close().await;
    }
    errors
}

async fn checked_late() -> Vec<Error> {
    let pool = pool_of(2).await;
    let table = table(&pool, "checked_late", CHECKED_LATE).await;
    let insert = format!("INSERT INTO {table} VALUES (1)");
    pool.execute(&insert, ()).await.expect("the first");
    let by_itself = failed(pool.execute(&insert, ()).await);
    let tx = pool.begin().await.expect("a lease");
    tx.execute(&insert, ()).await.expect("not checked yet");
    let at_commit = failed(tx.commit().await);
    drop_table(&pool, &table).await;
    vec![by_itself, at_commit]
}

async fn cancelled() -> Error {
    let (name, other, hit) = (own_name("cancelled"), pool().await, AtomicBool::new(false));
    let pool = Pool::builder(named_config(&name).await.connections(1)).connect().await.expect("a pool");
    let (error, ()) = tokio::join!(
        async {
            loop {
                if let Err(error) = pool.query::<Row>(ECHO_A_LITTLE_LATER, (1,)).await {
                    hit.store(true, Ordering::Relaxed);
                    return error;
                }
            }
        },
        async {
            while !hit.load(Ordering::Relaxed) {
                cancel_all(&other, &name).await;
            }
        }
    );
    assert_eq!(error.sqlstate(), Some(CANCELLED), "{error}");
    error
}

/// A pool that was closed, and one whose runtime has ended.
async fn closed() -> Vec<Error> {
    let (pool, config) = (pool_of(2).await, config().await);
    pool.close().await;
    let orphan = std::thread::spawn(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async { Pool::builder(config).connect().await.expect("a pool") })
    });
    let orphan = orphan.join().expect("no panic");
    vec![
        failed(pool.query::<Row>("SELECT 1", ()).await),
        failed(pool.begin().await),
        failed(orphan.query::<Row>("SELECT 1", ()).await),
        failed(orphan.begin().await),
    ]
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

async fn savepoint_is_over() -> Vec<Error> {
    let pool = pool_of(2).await;
    let tx = pool.begin().await.expect("a lease");
    let (outer, inner) = (tx.savepoint().await.expect("set"), tx.savepoint().await.expect("set"));
    outer.rollback().await.expect("rolled back");
    vec![
        failed(inner.query::<Row>("SELECT 1", ()).await),
        failed(inner.savepoint().await.map(drop)),
        failed(inner.commit().await),
    ]
}

/// What ends a transaction by other means than its handle: what that is told, or what those are told that end it later.
async fn ended(told_at_once: bool) -> Vec<Error> {
    let pool = pool_of(2).await;
    let table = table(&pool, "ended", "id serial PRIMARY KEY, n int").await;
    let (makes, endings, drops) = endings(&table);
    for statement in makes {
        pool.execute(statement, ()).await.expect("made");
    }
    let ending = endings.first().expect("one at least");
    let mut errors = Vec::new();
    for commits in [true, false] {
        let tx = pool.begin().await.expect("a lease");
        tx.execute(sql(format!("INSERT INTO {table} (n) VALUES ($1)")), (1,)).await.expect("a write");
        let at_once = failed(tx.batch_execute(ending).await);
        let later = failed(if commits { tx.commit().await } else { tx.rollback().await });
        errors.push(if told_at_once { at_once } else { later });
    }
    if !told_at_once {
        let work = pool.transaction().run(async |tx| {
            tx.execute(sql(format!("INSERT INTO {table} (n) VALUES ($1)")), (1,)).await?;
            tx.batch_execute(ending).await
        });
        errors.push(failed(work.await));
    }
    for statement in drops {
        pool.execute(statement, ()).await.expect("dropped");
    }
    drop_table(&pool, &table).await;
    pool.close().await;
    errors
}

async fn undone_in_a_procedure() -> Error {
    let (pool, procedure) = (pool_of(2).await, own_name("undone"));
    let body = format!("COMMIT; {ASKS_AGAIN}");
    pool.execute(format!("CREATE PROCEDURE {procedure}() BEGIN {body}; END"), ()).await.expect("a procedure");
    let tx = pool.begin().await.expect("a lease");
    let error = failed(tx.execute(format!("CALL {procedure}()"), ()).await);
    drop(tx);
    pool.execute(format!("DROP PROCEDURE {procedure}"), ()).await.expect("dropped");
    error
}
