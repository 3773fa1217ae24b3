//! A network in memory that does what networks do.
//!
//! A [`Link`] is one connection: two directions of bytes, each with its own delay and room. Reads and writes are short,
//! bytes arrive late, and at a byte chosen beforehand the link may break: reset, end on one side, stall, or swallow
//! everything from then on without a word. Knows bytes, and nothing of what they mean.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

use crate::dice::Dice;
use crate::log::Log;

/// The two directions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From client to server.
    Up,
    /// From server to client.
    Down,
}

/// How a link breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Break {
    /// Both ends get an error; what is under way is lost.
    Reset,
    /// Both ends get an error behind what is under way.
    LateReset,
    /// The direction ends in order, and its sender does not know.
    End,
    /// Nothing moves in the direction for this many milliseconds.
    Stall(u64),
    /// Everything is accepted and nothing arrives, for ever.
    Swallow,
}

/// How bytes are cut into pieces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grain {
    /// As they come.
    Whole,
    /// In pieces of any size.
    Any,
    /// One by one.
    Single,
}

/// What will happen to a link.
#[derive(Debug, Clone, Copy)]
pub struct Fate {
    /// Each piece takes up to so many milliseconds.
    pub latency: u64,
    /// How bytes are cut.
    pub grain: Grain,
    /// Bytes that are under way at most, each way.
    pub room: usize,
    /// Where and how it breaks.
    pub breaks: Option<(Direction, usize, Break)>,
}

impl Fate {
    /// Nothing happens.
    pub const CALM: Self = Self { latency: 0, grain: Grain::Whole, room: 64 * 1024, breaks: None };
}

/// One connection.
#[derive(Debug)]
pub struct Link {
    number: usize,
    log: Arc<Log>,
    wire: Mutex<Wire>,
}

#[derive(Debug)]
struct Wire {
    fate: Fate,
    dice: Dice,
    /// Up and down.
    halves: [Half; 2],
    /// An error for both ends, behind what is under way.
    reset: bool,
}

#[derive(Debug)]
struct Half {
    /// What is under way, and when it arrives.
    pieces: VecDeque<(Instant, VecDeque<u8>)>,
    held: usize,
    /// Bytes that were sent since the beginning.
    sent: usize,
    /// Nothing arrives before this.
    not_before: Instant,
    reader: Option<Waker>,
    writer: Option<Waker>,
    /// The sender has ended it.
    ended: bool,
    /// The receiver has gone.
    unread: bool,
    /// What is sent gets lost.
    swallows: bool,
}

/// One end of a link; dropping it ends what it sends.
#[derive(Debug)]
pub struct End {
    link: Arc<Link>,
    client: bool,
    sleep: Option<Pin<Box<Sleep>>>,
}

enum Taken {
    Bytes,
    End,
    Broken,
    Nothing,
    Later(Instant),
}

impl Link {
    /// A new link: itself, the client's end and the server's.
    pub fn new(number: usize, fate: Fate, dice: Dice, log: &Arc<Log>) -> (Arc<Self>, End, End) {
        let now = Instant::now();
        let half = || Half {
            pieces: VecDeque::new(),
            held: 0,
            sent: 0,
            not_before: now,
            reader: None,
            writer: None,
            ended: false,
            unread: false,
            swallows: false,
        };
        let wire = Wire { fate, dice, halves: [half(), half()], reset: false };
        let link = Arc::new(Self { number, log: Arc::clone(log), wire: Mutex::new(wire) });
        let end = |client| End { link: Arc::clone(&link), client, sleep: None };
        let ends = (end(true), end(false));
        (link, ends.0, ends.1)
    }

    /// Bytes that were sent up and down.
    pub fn sent(&self) -> (usize, usize) {
        let wire = self.wire();
        (wire.halves[0].sent, wire.halves[1].sent)
    }

    /// Nothing new happens to it; if it swallows, both ends learn that it is broken.
    pub fn heal(&self) {
        let mut wire = self.wire();
        wire.fate = Fate::CALM;
        let now = Instant::now();
        let mut wakers = Wakers::default();
        if wire.halves.iter().any(|half| half.swallows) {
            wire.reset = true;
        }
        for half in &mut wire.halves {
            half.not_before = half.not_before.min(now);
            for (due, _) in &mut half.pieces {
                *due = (*due).min(now);
            }
            wakers.take(half);
        }
        drop(wire);
        wakers.wake();
    }

    /// Both ends get an error, and what is under way is lost.
    pub fn reset(&self) {
        let mut wire = self.wire();
        let mut wakers = Wakers::default();
        wire.reset = true;
        for half in &mut wire.halves {
            half.pieces.clear();
            half.held = 0;
            wakers.take(half);
        }
        drop(wire);
        wakers.wake();
    }

    fn wire(&self) -> MutexGuard<'_, Wire> {
        self.wire.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Wire {
    /// How much of `count` bytes moves at a time.
    fn cut(&mut self, count: usize) -> usize {
        match self.fate.grain {
            Grain::Whole => count,
            Grain::Any => 1 + self.dice.below(count as u64) as usize,
            Grain::Single => count.min(1),
        }
    }

    fn take(&mut self, direction: usize, buffer: &mut ReadBuf<'_>, waker: &Waker) -> Taken {
        let now = Instant::now();
        let reset = self.reset;
        let half = &mut self.halves[direction];
        half.reader = Some(waker.clone());
        match half.pieces.front() {
            Some((due, _)) if *due > now => return Taken::Later(*due),
            Some(_) => {}
            None if reset => return Taken::Broken,
            None if half.ended => return Taken::End,
            None => return Taken::Nothing,
        }
        let most = half.pieces[0].1.len().min(buffer.remaining());
        let count = self.cut(most);
        let half = &mut self.halves[direction];
        half.reader = None;
        let piece = &mut half.pieces[0].1;
        let (first, second) = piece.as_slices();
        let here = first.len().min(count);
        buffer.put_slice(&first[..here]);
        buffer.put_slice(&second[..count - here]);
        piece.drain(..count);
        if piece.is_empty() {
            half.pieces.pop_front();
        }
        half.held -= count;
        Taken::Bytes
    }

    /// How many bytes were accepted; `None` when there is no room.
    fn put(&mut self, direction: usize, bytes: &[u8], waker: &Waker) -> io::Result<Option<usize>> {
        let half = &self.halves[direction];
        if self.reset {
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        if half.swallows {
            return Ok(Some(bytes.len()));
        }
        if half.ended || half.unread {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let room = self.fate.room.saturating_sub(half.held);
        let mut count = bytes.len().min(room);
        if count == 0 {
            self.halves[direction].writer = Some(waker.clone());
            return Ok(None);
        }
        count = self.cut(count);
        if let Some((breaking, at, _)) = self.fate.breaks
            && breaking as usize == direction
        {
            count = count.min(at.saturating_sub(self.halves[direction].sent)).max(1);
        }
        let delay = self.dice.below(self.fate.latency + 1);
        let half = &mut self.halves[direction];
        let due = (Instant::now() + Duration::from_millis(delay)).max(half.not_before);
        half.not_before = due;
        half.sent += count;
        half.held += count;
        match half.pieces.back_mut() {
            Some((last, piece)) if *last == due => piece.extend(&bytes[..count]),
            _ => half.pieces.push_back((due, bytes[..count].iter().copied().collect())),
        }
        Ok(Some(count))
    }

    /// Whether the link breaks now.
    fn breaks(&mut self, direction: usize) -> Option<(Direction, usize, Break)> {
        let (breaking, at, how) = self.fate.breaks?;
        if breaking as usize != direction || self.halves[direction].sent < at {
            return None;
        }
        self.fate.breaks = None;
        match how {
            Break::Reset => {
                self.reset = true;
                for half in &mut self.halves {
                    half.pieces.clear();
                    half.held = 0;
                }
            }
            Break::LateReset => self.reset = true,
            Break::End => {
                self.halves[direction].ended = true;
                // Whoever has ended its side of a connection may read on, or not.
                if self.dice.happens(500) {
                    self.halves[1 - direction].swallows = true;
                }
            }
            Break::Stall(time) => {
                let half = &mut self.halves[direction];
                half.not_before = half.not_before.max(Instant::now() + Duration::from_millis(time));
            }
            Break::Swallow => {
                for half in &mut self.halves {
                    half.swallows = true;
                    half.pieces.clear();
                    half.held = 0;
                }
            }
        }
        Some((breaking, at, how))
    }
}

impl End {
    fn sends(&self) -> usize {
        usize::from(!self.client)
    }

    fn ends(&self, gone: bool) {
        let mut wakers = Wakers::default();
        let mut wire = self.link.wire();
        let sends = self.sends();
        // What swallows everything swallows farewells too.
        wire.halves[sends].ended |= !wire.halves[sends].swallows;
        if gone {
            let receives = &mut wire.halves[1 - sends];
            receives.unread = true;
            receives.pieces.clear();
            receives.held = 0;
        }
        wire.halves.iter_mut().for_each(|half| wakers.take(half));
        drop(wire);
        wakers.wake();
    }
}

impl AsyncRead for End {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let direction = 1 - this.sends();
        loop {
            if !this.link.log.step() {
                return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
            }
            let mut wire = this.link.wire();
            let taken = wire.take(direction, buffer, cx.waker());
            let writer = wire.halves[direction].writer.take();
            drop(wire);
            match taken {
                Taken::Bytes => {
                    if let Some(writer) = writer {
                        writer.wake();
                    }
                    return Poll::Ready(Ok(()));
                }
                Taken::End => return Poll::Ready(Ok(())),
                Taken::Broken => return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())),
                Taken::Nothing | Taken::Later(_) => {
                    // Nothing was taken: whoever waits for room waits on.
                    if writer.is_some() {
                        this.link.wire().halves[direction].writer = writer;
                    }
                }
            }
            let Taken::Later(due) = taken else { return Poll::Pending };
            let sleep = this.sleep.get_or_insert_with(|| Box::pin(sleep_until(due)));
            if sleep.deadline() != due {
                sleep.as_mut().reset(due);
            }
            ready!(sleep.as_mut().poll(cx));
        }
    }
}

impl AsyncWrite for End {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if !self.link.log.step() {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        let direction = self.sends();
        let mut wakers = Wakers::default();
        let mut wire = self.link.wire();
        if wire.fate.grain == Grain::Any && wire.dice.happens(60) {
            // Not now, for no reason.
            drop(wire);
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        // It may break before its first byte.
        let broken = wire.breaks(direction);
        let result = wire.put(direction, bytes, cx.waker());
        let broken = broken.or_else(|| wire.breaks(direction));
        if broken.is_some() {
            wire.halves.iter_mut().for_each(|half| wakers.take(half));
        } else {
            wakers.take_reader(&mut wire.halves[direction]);
        }
        drop(wire);
        if let Some((direction, at, how)) = broken {
            self.link.log.note("link breaks", [self.link.number as i64, direction as i64, at as i64]);
            self.link.log.remark(|| format!("{direction:?} {how:?}"));
        }
        wakers.wake();
        match result? {
            Some(count) => Poll::Ready(Ok(count)),
            None => Poll::Pending,
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.ends(false);
        Poll::Ready(Ok(()))
    }
}

impl Drop for End {
    fn drop(&mut self) {
        self.ends(true);
    }
}

/// Woken and dropped when nothing is locked.
#[derive(Default)]
struct Wakers(Vec<Waker>);

impl Wakers {
    fn take(&mut self, half: &mut Half) {
        self.0.extend(half.reader.take());
        self.0.extend(half.writer.take());
    }

    fn take_reader(&mut self, half: &mut Half) {
        self.0.extend(half.reader.take());
    }

    fn wake(self) {
        self.0.into_iter().for_each(Waker::wake);
    }
}
