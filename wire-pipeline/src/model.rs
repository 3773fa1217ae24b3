//! Model checks: the real pipes, pumps, pool and desk under a scheduler that tries orders of their tasks.
//!
//! No timer ever fires here: the runtime that owns them is never driven. So a lost wake-up, which a coarse timer would
//! hide, is a deadlock, and the scheduler finds it. The server answers within the write, so that every order of caller,
//! pump and server comes down to an order of the points in [`crate::sync`].

use std::collections::VecDeque;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::BufMut as _;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

use crate::answer::{Budget, Chunks, Collector};
use crate::buffer::{Out, ReadBuffer};
use crate::error::{Error, ErrorKind, Outcome, ServerError};
use crate::options::Options;
use crate::pool::Pool;
use crate::sync::points::{in_model, point};
use crate::wire::{Condition, Connected, Driver, Framed, Occasion, Opening, Received, Request, Wire};

#[derive(Debug)]
struct Complaint;

impl std::fmt::Display for Complaint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("refused")
    }
}

impl std::error::Error for Complaint {}

impl ServerError for Complaint {
    fn is_retryable(&self) -> bool {
        false
    }
}

/// Asks for its number back.
struct Ask(u32);

/// At this number the server hangs up instead of answering.
const HANG_UP: u32 = 1_000_000;

impl Request for Ask {
    fn bytes(&self) -> usize {
        4
    }

    fn expected_micros(&self) -> u32 {
        1
    }

    fn observed_micros(&self, _: u32) {}

    fn open(&mut self, _: Opening<Self>) {}

    fn opens(&self) -> bool {
        false
    }

    fn take_opening(&mut self) -> Option<Opening<Self>> {
        None
    }
}

struct Echo(Arc<Budget>);

impl Wire for Echo {
    type Request = Ask;
    type Pending = u32;
    type Answer = Chunks;
    type Server = Complaint;

    fn frame(&mut self, Ask(number): &mut Ask, out: &mut Out) -> Framed<Self> {
        out.tail().put_u32(*number);
        Framed::Sent(*number)
    }

    fn receive(
        &mut self,
        head: Option<&mut u32>,
        input: &mut ReadBuffer,
    ) -> Result<Received<Self>, Error<Complaint>> {
        let Some(bytes) = input.data().first_chunk::<4>().copied() else { return Ok(Received::More) };
        if head.copied() != Some(u32::from_be_bytes(bytes)) {
            return Err(Error::new(ErrorKind::Protocol, Outcome::Unknown, "somebody else's answer"));
        }
        input.consume(4);
        let mut collector = Collector::new(&self.0);
        collector.push(&bytes);
        collector.end_message();
        Ok(Received::Answer(
            collector
                .finish()
                .map_err(|overflow| Error::new(ErrorKind::Busy, Outcome::Completed, overflow.to_string())),
        ))
    }

    fn condition(&self) -> Condition {
        Condition::Clean
    }

    fn settle(&mut self, _: Occasion) -> Vec<Ask> {
        Vec::new()
    }

    fn goodbye(&mut self, _: &mut Out) {}

    fn last_words(&self) -> Option<Arc<Complaint>> {
        None
    }
}

/// What was written comes back.
#[derive(Default)]
struct Mirror {
    bytes: VecDeque<u8>,
    over: bool,
    reader: Option<Waker>,
}

impl AsyncRead for Mirror {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        point();
        if self.bytes.is_empty() && !self.over {
            self.reader = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let count = self.bytes.len().min(buffer.remaining());
        for byte in self.bytes.drain(..count) {
            buffer.put_slice(&[byte]);
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Mirror {
    fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        point();
        if self.over {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        for number in bytes.chunks(4) {
            if number == HANG_UP.to_be_bytes() {
                self.over = true;
                break;
            }
            self.bytes.extend(number);
        }
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

struct Mirrors;

impl Driver for Mirrors {
    type Wire = Echo;
    type Io = Mirror;

    async fn connect(&self, budget: &Arc<Budget>) -> Result<Connected<Self>, Error<Complaint>> {
        Ok(Connected {
            io: Mirror::default(),
            wire: Echo(Arc::clone(budget)),
            input: ReadBuffer::new(),
            way: Duration::ZERO,
        })
    }
}

/// A pool whose pipes run as tasks of the model; afterwards it is closed, and nothing may be left of what was asked.
fn with_pool(connections: usize, max_in_flight: usize, body: impl FnOnce(Pool<Mirrors>)) {
    let options = Options {
        connections,
        max_in_flight,
        max_lifetime: Duration::ZERO,
        seed: Some(1),
        ..Options::default()
    };
    let (pool, pipes) = Pool::with_own_tasks(Mirrors, options);
    let pipes: Vec<_> = pipes.into_iter().map(shuttle::future::spawn).collect();
    body(pool.clone());
    shuttle::future::block_on(pool.close_within(Duration::from_secs(60)));
    for pipe in pipes {
        shuttle::future::block_on(pipe).expect("a pipe ends");
    }
    let stats = pool.stats();
    assert_eq!((stats.in_flight(), stats.waiting), (0, 0), "{stats:?}");
    assert_eq!((stats.leased, stats.waiting_for_lease, stats.answer_bytes), (0, 0, 0), "{stats:?}");
}

/// Tries orders of a model, at random and with few changes of task.
fn check(model: impl Fn() + Send + Sync + 'static) {
    // It owns the timers, which never fire.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime");
    let _context = runtime.enter();
    let model = Arc::new(model);
    let again = Arc::clone(&model);
    in_model(|| {
        shuttle::check_random(move || model(), 300);
        shuttle::check_pct(move || again(), 300, 3);
    });
}

fn limit() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

async fn ask(pool: &Pool<Mirrors>, number: u32) {
    let answer = pool.submit(Ask(number), limit()).await.expect("an answer");
    assert_eq!(answer.iter().flat_map(|chunk| chunk.to_vec()).collect::<Vec<_>>(), number.to_be_bytes());
}

/// Polls so many times, and drops the future then.
async fn give_up_after<F: Future>(polls: usize, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    for _ in 0..polls {
        let output = std::future::poll_fn(|cx| {
            Poll::Ready(match future.as_mut().poll(cx) {
                Poll::Ready(output) => Some(output),
                Poll::Pending => None,
            })
        })
        .await;
        if output.is_some() {
            return output;
        }
        shuttle::future::yield_now().await;
    }
    None
}

fn all(tasks: Vec<shuttle::future::JoinHandle<()>>) {
    for task in tasks {
        shuttle::future::block_on(task).expect("a task ends");
    }
}

/// The queue between callers and a pump: whatever is pushed while the pump goes to sleep is sent.
#[test]
fn no_wake_up_is_lost_between_callers_and_pumps() {
    for (connections, most) in [(1, 8), (1, 1), (2, 1)] {
        check(move || {
            with_pool(connections, most, |pool| {
                let task = |task: u32| {
                    let pool = pool.clone();
                    shuttle::future::spawn(async move {
                        ask(&pool, 2 * task).await;
                        ask(&pool, 2 * task + 1).await;
                    })
                };
                all((0..3).map(task).collect());
            });
        });
    }
}

/// The slot between a pump and an asker who may leave at any poll: nothing is leaked, and others are served.
#[test]
fn askers_who_leave_meet_answers_that_come() {
    for polls in 0..4 {
        check(move || {
            with_pool(1, 2, |pool| {
                let task = |task: u32| {
                    let pool = pool.clone();
                    shuttle::future::spawn(async move {
                        let patience = if task == 0 { 1000 } else { polls };
                        give_up_after(patience, ask(&pool, task)).await;
                    })
                };
                all((0..3).map(task).collect());
                shuttle::future::block_on(ask(&pool, 7));
            });
        });
    }
}

/// The lease between a pipe that comes free and waiters of whom some leave: whoever stays gets one.
#[test]
fn a_lease_goes_on_to_whoever_still_waits() {
    for polls in 0..4 {
        check(move || {
            with_pool(2, 4, |pool| {
                let task = |task: u32| {
                    let pool = pool.clone();
                    shuttle::future::spawn(async move {
                        let patience = if task == 1 { polls } else { 1000 };
                        give_up_after(patience, async {
                            let lease = pool.lease().await.expect("a lease");
                            lease.submit(Ask(task), limit()).await.expect("an answer");
                        })
                        .await;
                    })
                };
                let mut tasks: Vec<_> = (0..3).map(task).collect();
                let other = pool.clone();
                tasks.push(shuttle::future::spawn(async move { ask(&other, 9).await }));
                all(tasks);
            });
        });
    }
}

/// A connection that is lost in the middle: everybody is told, and what was not sent runs elsewhere.
#[test]
fn everybody_is_told_when_a_connection_is_lost() {
    check(|| {
        with_pool(2, 4, |pool| {
            let task = |number: u32| {
                let pool = pool.clone();
                shuttle::future::spawn(async move {
                    // Answered, or told that it may have run; the pipe itself stays down, for its back-off is a timer.
                    if let Err(error) = pool.submit(Ask(number), limit()).await {
                        assert_eq!(error.outcome(), Outcome::Unknown, "{error}");
                    }
                })
            };
            all([HANG_UP, 1, 2].map(task).into());
        });
    });
}
