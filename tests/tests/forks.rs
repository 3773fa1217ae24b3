//! A process that forks while it has pools: the child's copies fail at once, the parent's go on. Alone in its program,
//! because a fork copies whatever else runs.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

/// What a future comes to when it does not wait; nothing of a runtime is there to wait with.
fn at_once<F: Future>(future: F) -> Option<F::Output> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}

/// Runs `check` in a forked child, which does nothing else, and says what it came to.
#[expect(unsafe_code, reason = "only C forks")]
fn in_child(check: impl FnOnce() -> bool) -> bool {
    // SAFETY: the child polls futures that fail at once, and ends without unwinding or running anything of the parent's.
    unsafe {
        match libc::fork() {
            0 => libc::_exit(i32::from(!check())),
            child => {
                assert!(child > 0, "no fork");
                let mut status = 0;
                assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
                libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0
            }
        }
    }
}

macro_rules! side {
    ($side:ident) => {
        mod $side {
            use integration_tests::$side::dialect::ECHO;
            use integration_tests::$side::{Error, ErrorKind, Outcome, all_shared, pool};

            use super::{at_once, in_child};

            fn is_told<T>(result: Option<Result<T, Error>>) -> bool {
                result.and_then(Result::err).is_some_and(|error| {
                    (error.kind(), error.outcome()) == (ErrorKind::Closed, Outcome::NotSent)
                        && error.to_string().contains("fork")
                })
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn the_childs_pool_fails_at_once_and_the_parents_goes_on() {
                let pool = pool().await;
                all_shared(&pool).await;
                pool.query_one::<(i32,)>(ECHO, (1,)).await.expect("known from here on");
                let session = pool.session().await.expect("a session");
                session.query_one::<(i32,)>(ECHO, (2,)).await.expect("known from here on");
                let right = in_child(|| {
                    is_told(at_once(pool.query_one::<(i32,)>(ECHO, (3,))))
                        && is_told(at_once(pool.query_one::<(i32,)>("SELECT 4", ())))
                        && is_told(at_once(pool.batch_execute("SELECT 5")))
                        && is_told(at_once(pool.begin()))
                        && is_told(at_once(pool.session()))
                        && is_told(at_once(pool.ping()))
                        && is_told(at_once(session.query_one::<(i32,)>(ECHO, (6,))))
                        && at_once(pool.close()).is_some()
                });
                assert!(right, "the child is told");
                for n in 0..100 {
                    assert_eq!(pool.query_one::<(i32,)>(ECHO, (n,)).await.expect("the parent's"), (n,));
                }
                assert_eq!(session.query_one::<(i32,)>(ECHO, (7,)).await.expect("the parent's"), (7,));
                drop(session);
                pool.close().await;
            }
        }
    };
}

side!(postgres);
side!(mysql);
