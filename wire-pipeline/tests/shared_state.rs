//! Shared pipes are stateless: what one statement does to the session must not reach the others.

mod support;

use std::time::Duration;

use futures_util::future::join_all;
use support::{Seen, Server, ask, options, poll_once, pool, run, until, until_idle};
use tokio::time::Instant;
use wire_pipeline::Options;
use wire_pipeline::error::{ErrorKind, Outcome, Phase};

const MS: Duration = Duration::from_millis(1);

#[tokio::test(start_paused = true)]
async fn nobody_is_told_ok_for_what_runs_behind_an_open_transaction() {
    let server = Server::new();
    let pool = pool(&server, options(1)).await;
    let all = [ask(1), ask(2).opens(), ask(3), ask(4).fails(), ask(5)].map(|request| run(&pool, request));
    let answers = join_all(all).await;
    assert!(answers[0].is_ok(), "it ran before");
    for index in [1, 2, 4] {
        let error = answers[index].as_ref().expect_err("it was rolled back");
        assert_eq!((error.kind(), error.outcome()), (ErrorKind::SessionState, Outcome::Failed), "{index}");
    }
    let error = answers[3].as_ref().expect_err("refused");
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Database, Outcome::Failed));
    let seen = server.take_seen();
    assert_eq!(seen[5], Seen::Rollback, "{seen:?}");
    run(&pool, ask(6)).await.expect("the pipe is clean again");
    until_idle(&pool).await;
}

#[tokio::test(start_paused = true)]
async fn what_was_not_sent_behind_an_open_transaction_runs_elsewhere() {
    let server = Server::new();
    let pool = pool(&server, options(2)).await;
    let mut opens = Box::pin(run(&pool, ask(1).opens().takes(4 * MS)));
    let mut slow = Box::pin(run(&pool, ask(2).takes(4 * MS)));
    assert!(poll_once(opens.as_mut()).await.is_none());
    assert!(poll_once(slow.as_mut()).await.is_none());
    until("both are out", || server.asked().len() == 2).await;
    let held = join_all((3..9).map(|id| run(&pool, ask(id))));
    let (opens, slow, held) = tokio::join!(opens, slow, held);
    assert_eq!(opens.expect_err("rolled back").outcome(), Outcome::Failed);
    slow.expect("an answer");
    assert!(held.iter().all(Result::is_ok), "{held:?}");
}

#[tokio::test(start_paused = true)]
async fn it_is_unknown_when_the_pipe_dies_before_the_rollback_is_confirmed() {
    let server = Server::new();
    let pool = pool(&server, options(1)).await;
    let answers = join_all([ask(1).opens(), ask(2), ask(3).kills()].map(|request| run(&pool, request))).await;
    for answer in answers {
        assert_eq!(answer.expect_err("lost").outcome(), Outcome::Unknown);
    }
    until_idle(&pool).await;
}

#[tokio::test(start_paused = true)]
async fn it_is_unknown_when_somebody_else_ended_the_transaction() {
    let server = Server::new();
    let pool = pool(&server, options(1)).await;
    let all = [ask(1).opens(), ask(2), ask(3).ends(), ask(4)].map(|request| run(&pool, request));
    let answers = join_all(all).await;
    for answer in &answers[..3] {
        let error = answer.as_ref().expect_err("nobody knows");
        assert_eq!((error.kind(), error.outcome()), (ErrorKind::SessionState, Outcome::Unknown));
    }
    assert!(answers[3].is_ok(), "it ran behind it");
    until_idle(&pool).await;
}

#[tokio::test(start_paused = true)]
async fn whoever_is_withheld_is_still_answered_by_its_deadline() {
    let server = Server::new();
    let pool = pool(&server, options(1)).await;
    let began = Instant::now();
    let (opens, slow) = tokio::join!(
        async {
            let answer = support::run_within(&pool, ask(1).opens(), 50 * MS).await;
            (answer, began.elapsed())
        },
        run(&pool, ask(2).takes(Duration::from_secs(5)))
    );
    let (answer, after) = opens;
    let error = answer.expect_err("withheld");
    assert_eq!((error.phase(), error.outcome()), (Some(Phase::Answer), Outcome::Unknown));
    assert!(after < 100 * MS, "{after:?}");
    assert_eq!(slow.expect_err("rolled back").outcome(), Outcome::Failed);
    until_idle(&pool).await;
}

#[tokio::test(start_paused = true)]
async fn a_changed_session_is_reset_before_anything_new_is_sent() {
    let server = Server::new();
    let pool = pool(&server, options(1)).await;
    let mut first = Box::pin(run(&pool, ask(1).touches().takes(4 * MS)));
    assert!(poll_once(first.as_mut()).await.is_none());
    until("it is out", || server.asked() == [1]).await;
    let (first, second) = tokio::join!(first, run(&pool, ask(2)));
    first.expect("it is its own affair");
    second.expect("an answer");
    assert_eq!(server.take_seen(), [Seen::Ask(1), Seen::Reset, Seen::Ask(2)]);
    until_idle(&pool).await;
}

#[tokio::test(start_paused = true)]
async fn nobody_is_told_that_it_ran_for_what_is_rolled_back() {
    let server = Server::new();
    let pool = pool(&server, Options { max_answer_bytes: 100, ..options(1) }).await;
    let all = [ask(1).opens(), ask(2).size(1_000), ask(3).ends().size(1_000)];
    for answer in join_all(all.map(|request| run(&pool, request))).await {
        let error = answer.expect_err("nobody knows");
        assert_eq!((error.kind(), error.outcome()), (ErrorKind::SessionState, Outcome::Unknown));
    }
    let answers = join_all([ask(4).opens(), ask(5).size(1_000)].map(|request| run(&pool, request))).await;
    for answer in answers {
        let error = answer.expect_err("rolled back");
        assert_eq!((error.kind(), error.outcome()), (ErrorKind::SessionState, Outcome::Failed));
    }
    until_idle(&pool).await;
}
