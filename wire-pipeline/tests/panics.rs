//! A panic in the code that speaks to the server costs its connection: everybody is answered, and nothing is leaked.

mod support;

use std::time::Duration;

use futures_util::future::join_all;
use support::{Server, ask, options, pool, run, run_on, until, until_idle};
use wire_pipeline::error::{ErrorKind, Outcome};
use wire_pipeline::stats::PipeState;

const MS: Duration = Duration::from_millis(1);

#[tokio::test(start_paused = true)]
async fn whoever_is_on_the_connection_is_told_and_the_pool_heals() {
    for written in [true, false] {
        let server = Server::new();
        let pool = pool(&server, options(2)).await;
        for round in 0..5 {
            let all = (0..40).map(|id| {
                let request = ask(100 * round + id).takes(MS);
                run(
                    &pool,
                    match (id, written) {
                        (17, true) => request.panics_when_written(),
                        (17, false) => request.panics_when_answered(),
                        _ => request,
                    },
                )
            });
            for (id, answer) in join_all(all).await.into_iter().enumerate() {
                match answer {
                    Ok(()) => assert_ne!(id, 17),
                    Err(error) => assert_eq!(error.outcome(), Outcome::Unknown, "{error}"),
                }
            }
            until("every pipe is up again", || {
                pool.stats().pipes.iter().all(|pipe| pipe.state == PipeState::Shared)
            })
            .await;
        }
        until_idle(&pool).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_whose_connection_panics_gives_its_place_back() {
    let server = Server::new();
    let pool = pool(&server, options(2)).await;
    for id in 0..5 {
        let lease = pool.lease().await.expect("the last one gave its place back");
        let (before, panics, behind) = tokio::join!(
            run_on(&lease, ask(10 * id)),
            run_on(&lease, ask(10 * id + 1).panics_when_answered()),
            run_on(&lease, ask(10 * id + 2))
        );
        before.expect("an answer");
        assert_eq!(panics.expect_err("a panic").kind(), ErrorKind::Protocol);
        assert_eq!(behind.expect_err("behind it").outcome(), Outcome::Unknown);
        assert!(!lease.is_alive());
    }
    until_idle(&pool).await;
}

#[tokio::test(start_paused = true)]
async fn a_pipe_that_panics_while_it_drains_does_not_keep_others_from_being_leased() {
    let server = Server::new();
    let pool = pool(&server, options(3)).await;
    let busy = (0..3).map(|id| run(&pool, ask(id).takes(4 * MS).panics_when_answered()));
    let (_, lease) = tokio::join!(join_all(busy), pool.lease());
    run_on(&lease.expect("a lease"), ask(9)).await.expect("an answer");
    until_idle(&pool).await;
}
