//! Work is run again as often and for as long as it may be, and only when it is certain that nothing of it stays.

mod support;

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use support::{Complaint, Fault, IN_THE_WAY, Server, Toy, ask, begin, options, pool, run_on, until_idle};
use tokio::time::Instant;
use wire_pipeline::Options;
use wire_pipeline::call::{Leased, Takes};
use wire_pipeline::error::{ErrorKind, Outcome};
use wire_pipeline::retry::{self, Attempt};

/// A unit of work whose end is told beforehand.
#[derive(Clone)]
struct Work {
    leased: Arc<Leased<Toy>>,
    end: fn() -> Result<(), Fault>,
}

impl Attempt<Toy> for Work {
    fn leased(&self) -> &Leased<Toy> {
        &self.leased
    }

    async fn commit(&self) -> Result<(), Fault> {
        run_on(&self.leased.lease, ask(1).ends()).await?;
        (self.end)()
    }

    async fn roll_back(&self) -> Result<(), Fault> {
        run_on(&self.leased.lease, ask(2).ends()).await
    }
}

fn refused() -> Fault {
    Fault::refused(Complaint(IN_THE_WAY))
}

/// How often work runs that ends so, how long that takes, and how it ends.
async fn runs(
    options: Options,
    count: u32,
    end: fn() -> Result<(), Fault>,
    result: fn() -> Result<u32, Fault>,
) -> (u32, Duration, Result<u32, Fault>) {
    let server = Server::new();
    let pool = pool(&server, options).await;
    let (runs, since) = (AtomicU32::new(0), Instant::now());
    let told = retry::run(
        &pool,
        count,
        || async {
            let lease = pool.lease().await?;
            lease.set_opening(begin(0));
            Ok(Work { leased: Arc::new(Leased::new(lease, Takes::InTransaction)), end })
        },
        |work: Work| {
            runs.fetch_add(1, Ordering::Relaxed);
            async move {
                run_on(&work.leased.lease, ask(3)).await?;
                result()
            }
        },
        |fault| fault,
    );
    let told = told_when_sent(told).await;
    let elapsed = since.elapsed();
    until_idle(&pool).await;
    assert!(pool.stats().leases.is_empty());
    (runs.into_inner(), elapsed, told)
}

/// The whole can be spawned.
async fn told_when_sent<T>(future: impl Future<Output = T> + Send) -> T {
    future.await
}

#[tokio::test(start_paused = true)]
async fn what_was_undone_for_others_sake_runs_again_as_often_as_it_may() {
    for count in [0, 1, 7] {
        let (runs, elapsed, told) = runs(options(3), count, || Err(refused()), || Ok(7)).await;
        assert_eq!(runs, count + 1);
        assert_eq!(told.expect_err("refused").server(), Some(&Complaint(IN_THE_WAY)));
        // The waits double: at least 2, 4, 8 ms and so on.
        assert!(elapsed >= Duration::from_millis((1 << (count + 1)) - 2), "{count}: {elapsed:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn no_longer_than_a_query_may_take() {
    let limit = Duration::from_secs(2);
    let short = Options { query_timeout: limit, ..options(3) };
    let (runs, elapsed, told) = runs(short, u32::MAX, || Err(refused()), || Ok(7)).await;
    told.expect_err("refused");
    assert!(runs > 5 && elapsed < limit, "{runs} runs in {elapsed:?}");
}

#[tokio::test(start_paused = true)]
async fn nothing_runs_again_whose_end_is_not_known_or_that_failed_by_itself() {
    let (count, _, told) =
        runs(options(3), 5, || Err(refused().with_outcome(Outcome::Unknown)), || Ok(7)).await;
    assert_eq!((count, told.expect_err("unknown").outcome()), (1, Outcome::Unknown));
    let (count, _, told) = runs(options(3), 5, || Err(Fault::refused(Complaint("no"))), || Ok(7)).await;
    assert_eq!((count, told.expect_err("refused").kind()), (1, ErrorKind::Database));
    // What the work itself returns is of no account, even where it looks like a reason: no statement was refused.
    let (count, _, told) = runs(options(3), 5, || Ok(()), || Err(refused())).await;
    assert_eq!((count, told.expect_err("refused").kind()), (1, ErrorKind::Database));
    let (count, _, told) = runs(options(3), 5, || Ok(()), || Ok(7)).await;
    assert_eq!((count, told.expect("done")), (1, 7));
}
