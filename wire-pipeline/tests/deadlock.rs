//! A peer that does not read before it has written must not stop a pipe: reading never waits for writing.

mod support;

use futures_util::future::join_all;
use support::{Server, ask, options, pool, run, until_idle};
use wire_pipeline::Options;

#[tokio::test(start_paused = true)]
async fn large_requests_and_large_answers_cross_in_small_buffers() {
    let server = Server::with_buffer(256);
    let pool = pool(&server, Options { max_in_flight: 64, ..options(1) }).await;
    let all = (0..200).map(|id| run(&pool, ask(id).padding(2_000).size(3_000)));
    for answer in join_all(all).await {
        answer.expect("an answer");
    }
    until_idle(&pool).await;
}

#[tokio::test(start_paused = true)]
async fn one_request_and_one_answer_much_larger_than_every_buffer() {
    let server = Server::with_buffer(256);
    let pool = pool(&server, options(1)).await;
    let all = (0..4).map(|id| run(&pool, ask(id).padding(300_000).size(300_000)));
    for answer in join_all(all).await {
        answer.expect("an answer");
    }
}
