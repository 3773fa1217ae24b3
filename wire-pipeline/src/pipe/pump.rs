//! The one task of a pipe: it moves bytes both ways in every turn and walks the pipe's stages.
//!
//! It never waits for writing without reading: a server that blocks on sending answers while we only send requests is
//! a deadlock. Knows sockets as `AsyncRead + AsyncWrite`, and nothing of how they were made.

mod stages;
mod watch;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

use crate::buffer::ReadBuffer;
use crate::error::ErrorKind;
use crate::faults;
use crate::pipe::core::Core;
use crate::pipe::pump::stages::Step;
use crate::pipe::{Lane, LeaseId, Load, Pipe};
use crate::pool::health::Attempt;
use crate::pool::shared::Shared;
use crate::stats::Loss;
use crate::wire::{Cancelling, Connected, Driver, Fault, Occasion, Wire};

/// The coarse timer of a pipe; it runs only while something is out or waits.
const TICK: Duration = Duration::from_millis(5);
/// A head that has been out for longer than this and the way to the server keeps new work away.
const HOT: Duration = Duration::from_millis(2);
/// A connection is not asked more often than this whether its server still takes writes.
const TRUSTED: Duration = Duration::from_secs(5);
/// Who was not polled for longer than this asks the operating system before it believes that nothing has come.
const HELD_UP: Duration = Duration::from_millis(500);
/// Turns in a row before others on the thread have theirs.
const TURNS: usize = 16;
/// Reads in a row before the pump writes again.
const READS_IN_A_ROW: usize = 16;

/// How a pump's work ended.
pub(crate) enum End<D: Driver> {
    /// The connection is lost, or must not be used again.
    Lost(Loss, Fault<D>),
    /// It was asked to make room for a successor, and has nothing out.
    Retired,
    /// The pool is closed and everything is answered.
    Closed,
}

impl<D: Driver> End<D> {
    /// What was read, or that nothing can be read any more, is the end.
    fn of_reading(error: Fault<D>) -> Self {
        let why = if error.kind() == ErrorKind::Protocol { Loss::Protocol } else { Loss::Ended };
        Self::Lost(why, error)
    }
}

/// What a pipe is doing; the diagram is in [`crate::pipe`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// `after` names the lease that came back.
    Settling {
        until: Instant,
        after: Option<LeaseId>,
    },
    Shared,
    Draining,
    Leased(LeaseId),
}

#[expect(clippy::struct_excessive_bools, reason = "independent facts, of which any combination occurs")]
pub(crate) struct Pump<'a, D: Driver> {
    shared: &'a Arc<Shared<D>>,
    pipe: &'a Pipe<D::Wire>,
    io: D::Io,
    input: ReadBuffer,
    core: Core<D::Wire>,
    stage: Stage,
    /// A successor is ready: stop taking work, and end when nothing is out.
    retiring: bool,
    tick: Pin<Box<Sleep>>,
    ticking: bool,
    /// When it last did what goes by the clock.
    ticked_at: Instant,
    /// When it was polled last.
    polled_at: Instant,
    /// It was not polled for long: the runtime may not have looked yet at what has come meanwhile.
    held_up: bool,
    /// The stream must be flushed.
    unflushed: bool,
    /// Nothing has been read since the handshake.
    fresh: bool,
    /// What it is until it is up.
    attempt: Option<Attempt<'a, D>>,
    /// It has served, or could have.
    ready: bool,
    /// It has answered somebody.
    served: bool,
    /// It has let others go first since it read.
    rested: bool,
    /// Since when the head is out, as everybody was told.
    shown: Option<Instant>,
    /// When the lease is to be reported as held for long.
    report_at: Option<Instant>,
    /// The server said that it takes no writes: it is asked whether that is so.
    doubted: bool,
    /// It is not asked before.
    trusted_until: Instant,
    /// A request to stop is on its way.
    cancelling: Option<Cancelling>,
    /// Since when the request was out for which one was made last.
    cancelled: Option<Instant>,
}

impl<'a, D: Driver> Pump<'a, D> {
    pub(crate) fn new(
        shared: &'a Arc<Shared<D>>,
        pipe: &'a Pipe<D::Wire>,
        connected: Connected<D>,
        attempt: Attempt<'a, D>,
    ) -> Self {
        let now = Instant::now();
        let mut core = Core::new(connected.wire, shared.options.batches_out, connected.way, now);
        core.settle(Occasion::Connected, now);
        pipe.signal(|queue| queue.lane = Lane::Settling);
        Self {
            shared,
            pipe,
            io: connected.io,
            input: connected.input,
            core,
            stage: Stage::Settling { until: now + shared.options.connect_timeout, after: None },
            retiring: false,
            tick: Box::pin(sleep_until(now + TICK)),
            ticking: false,
            ticked_at: now,
            polled_at: now,
            held_up: false,
            unflushed: false,
            fresh: true,
            attempt: Some(attempt),
            ready: false,
            served: false,
            rested: false,
            shown: None,
            report_at: None,
            doubted: false,
            trusted_until: now + TRUSTED,
            cancelling: None,
            cancelled: None,
        }
    }

    /// Works until the end. Cancel safe: all state is in the pump, and the next call goes on. A panic below costs the
    /// connection and nothing else.
    pub(crate) async fn run(&mut self) -> End<D> {
        unpanicked(self.work()).await.unwrap_or_else(|| End::Lost(Loss::Protocol, faults::panicked()))
    }

    async fn work(&mut self) -> End<D> {
        let end = std::future::poll_fn(|cx| self.poll(cx)).await;
        if !matches!(end, End::Lost(..)) {
            self.core.wire.goodbye(&mut self.core.out);
            // A farewell is a courtesy: a server that does not read it changes nothing.
            let _ =
                tokio::time::timeout(Duration::from_secs(1), std::future::poll_fn(|cx| self.farewell(cx)))
                    .await;
        }
        end
    }

    /// Whether everybody may use the connection now.
    pub(crate) fn is_shared(&self) -> bool {
        self.stage == Stage::Shared
    }

    /// Whether its session was put right at least once, so that it could serve.
    pub(crate) fn was_ready(&self) -> bool {
        self.ready
    }

    /// Whether it has answered anybody.
    pub(crate) fn has_served(&self) -> bool {
        self.served
    }

    /// Stop taking work; [`Self::run`] ends with [`End::Retired`] when nothing is out.
    pub(crate) fn retire(&mut self) {
        self.retiring = true;
    }

    /// A request to the server to stop what is out, if anything is and it can be asked.
    pub(crate) fn ask_to_stop(&self) -> Option<Cancelling> {
        self.core.head_since()?;
        self.shared.driver.cancel(&self.core.wire, &self.io)
    }

    /// Ends the pump: whatever is out or waits is answered or moved.
    pub(crate) fn dismantle(mut self, error: &Fault<D>) {
        let movable = self.core.lose(error);
        self.deliver();
        let lease = match self.stage {
            Stage::Leased(id) => Some(id),
            Stage::Settling { after, .. } => after,
            Stage::Shared | Stage::Draining => None,
        };
        self.shared.desk.lost(self.pipe, lease);
        self.shared.vacate(self.pipe, movable, lease.map(|_| error));
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<End<D>> {
        self.pipe.waker.register(cx.waker());
        for _ in 0..TURNS {
            let now = Instant::now();
            let received = self.read(cx, now);
            self.deliver();
            let mut progress = match received {
                Ok(progress) => progress,
                Err(error) => return Poll::Ready(End::of_reading(error)),
            };
            if !progress && self.has_news(now) {
                // The runtime is about to find it, and wakes the reader.
                return Poll::Pending;
            }
            match self.poll_cancelling(cx) {
                Ok(heard) => progress |= heard,
                Err(error) => return Poll::Ready(End::Lost(Loss::Stalled, error)),
            }
            if self.lets_others_go_first(progress) {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            match self.advance(now) {
                Ok(Step::Moved) => progress = true,
                Ok(Step::Still) => {}
                Err(end) => return Poll::Ready(end),
            }
            match self.write(cx) {
                Ok(wrote) => progress |= wrote,
                Err(error) => {
                    return Poll::Ready(End::of_reading(self.hear_out(cx, now).unwrap_or(error)));
                }
            }
            // The clock goes on also where bytes come without end.
            if !progress {
                ready!(self.poll_tick(cx));
            } else if now.saturating_duration_since(self.ticked_at) < TICK {
                continue;
            }
            if let Err(end) = self.on_tick() {
                return Poll::Ready(end);
            }
        }
        // There is more to do, and others have waited long enough.
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Whether something has come that the runtime has not noticed, because the program was stopped or its threads were
    /// held up: a connection may be idle for so long meanwhile that the server has closed it.
    fn has_news(&mut self, now: Instant) -> bool {
        self.held_up |= now.saturating_duration_since(self.polled_at) > HELD_UP;
        self.polled_at = now;
        self.held_up = self.held_up && self.shared.driver.has_unread(&self.io);
        self.held_up
    }

    /// Whoever was just answered, and whatever else is ready to run, goes first once: what they ask leaves with the
    /// batch that is about to go. When nothing else is ready the pump goes on at once.
    fn lets_others_go_first(&mut self, was_answered: bool) -> bool {
        let rests = was_answered && !self.rested && self.stage == Stage::Shared && self.core.is_hungry();
        self.rested = rests;
        rests
    }

    /// Reads what there is, as long as it comes.
    fn read(&mut self, cx: &mut Context<'_>, now: Instant) -> Result<bool, Fault<D>> {
        let mut progress = false;
        if std::mem::take(&mut self.fresh) && !self.input.data().is_empty() {
            // The server spoke on behind the handshake.
            self.understand(now)?;
        }
        for _ in 0..READS_IN_A_ROW {
            let room = self.input.room();
            let mut buffer = ReadBuf::new(room);
            let count = match Pin::new(&mut self.io).poll_read(cx, &mut buffer) {
                Poll::Pending => break,
                Poll::Ready(Err(error)) => return Err(faults::io("reading", error)),
                Poll::Ready(Ok(())) => buffer.filled().len(),
            };
            if count == 0 {
                return Err(faults::server_closed());
            }
            self.input.filled(count);
            progress = true;
            self.understand(now)?;
        }
        Ok(progress)
    }

    /// Nothing can be written any more: what the server had said by then still counts, finished answers as well as why
    /// it left.
    fn hear_out(&mut self, cx: &mut Context<'_>, now: Instant) -> Option<Fault<D>> {
        loop {
            let received = self.read(cx, now);
            self.deliver();
            match received {
                Ok(true) => {}
                Ok(false) => return None,
                Err(error) => return Some(error),
            }
        }
    }

    fn understand(&mut self, now: Instant) -> Result<(), Fault<D>> {
        let absent = self.absent(now);
        let (progress, received) = self.core.receive(&mut self.input, now, absent, &self.pipe.counters);
        if progress.flights > 0 {
            self.pipe.load.overdue.store(self.is_cancelling(), Ordering::SeqCst);
            self.served = true;
            if progress.read_only && self.trusted_until <= now && !self.shared.exclusive {
                self.doubted = true;
            }
        }
        received
    }

    /// Tells whoever chooses a pipe how long the head may still take.
    fn show_head(&mut self) {
        let head = self.core.head_since();
        if head == self.shown {
            return;
        }
        self.shown = head;
        let way = self.core.way();
        let cool_until = head.map_or(Load::NOTHING_OUT, |since| self.shared.micros(since + way + HOT));
        self.pipe.load.set_head(cool_until, u64::try_from(way.as_micros()).unwrap_or(u64::MAX));
    }

    /// Hands finished entries their answers, outside of every lock.
    fn deliver(&mut self) {
        self.show_head();
        if self.core.done.is_empty() {
            return;
        }
        for (entry, reply) in self.core.done.drain(..) {
            self.pipe.load.sub(&entry);
            if entry.is_abandoned() {
                self.pipe.counters.discarded();
            }
            entry.slot.answer(reply);
        }
        self.shared.serve_overflow();
    }

    fn write(&mut self, cx: &mut Context<'_>) -> Result<bool, Fault<D>> {
        let mut wrote = false;
        while !self.core.out.is_empty() {
            match Pin::new(&mut self.io).poll_write(cx, self.core.out.front()) {
                Poll::Pending => break,
                Poll::Ready(Ok(0)) => {
                    return Err(faults::io("writing", std::io::ErrorKind::WriteZero.into()));
                }
                Poll::Ready(Ok(count)) => {
                    self.core.written(count);
                    self.pipe.counters.wrote();
                    wrote = true;
                    self.unflushed = true;
                }
                Poll::Ready(Err(error)) => return Err(faults::io("writing", error)),
            }
        }
        if self.unflushed {
            match Pin::new(&mut self.io).poll_flush(cx) {
                Poll::Pending => {}
                Poll::Ready(Ok(())) => self.unflushed = false,
                Poll::Ready(Err(error)) => return Err(faults::io("writing", error)),
            }
        }
        Ok(wrote)
    }

    fn farewell(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.write(cx).is_err() {
            return Poll::Ready(());
        }
        if !self.core.out.is_empty() || self.unflushed {
            return Poll::Pending;
        }
        Pin::new(&mut self.io).poll_shutdown(cx).map(|_| ())
    }
}

/// The future's output, or `None` if it panics; then it is not polled again.
pub(crate) async fn unpanicked<F: Future>(future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    std::future::poll_fn(|cx| match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx))) {
        Ok(poll) => poll.map(Some),
        Err(_) => Poll::Ready(None),
    })
    .await
}
