//! One way of a connection: bytes come in, are read as messages, meet rules, and go out.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::{Buf as _, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::time::Instant;

use super::dialogue::{Dialogue, Direction, Frame};
use super::rules::{Faults, Memory, Message, Reaction};
use super::{Event, State};
use crate::Random;

/// How long the sides of a connection that ends in an orderly way may take to hang up too.
const HANGING_UP: Duration = Duration::from_secs(1);
/// How often bytes are let through when there is little bandwidth.
const SLICES_PER_SECOND: u64 = 50;

/// How a way ended, and what is to be done with the connection.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum End {
    /// The sender hung up, and the receiver was told; the other way may go on.
    OfFile,
    /// Both ways end, in order.
    Fin,
    /// Both ways end, by RST.
    Reset,
}

/// What both ways of a connection share.
#[derive(Debug)]
pub(super) struct Link {
    number: u64,
    dialogue: Mutex<Dialogue>,
    stalled_until: Mutex<Option<Instant>>,
    swallows: AtomicBool,
}

impl Link {
    pub(super) fn new(number: u64, dialogue: Dialogue) -> Self {
        Self {
            number,
            dialogue: Mutex::new(dialogue),
            stalled_until: Mutex::new(None),
            swallows: AtomicBool::new(false),
        }
    }

    fn swallows(&self) -> bool {
        self.swallows.load(Ordering::Relaxed)
    }

    async fn until_not_stalled(&self) {
        // Copied first: the lock is not held while it sleeps.
        let until = *self.stalled_until.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(until) = until {
            tokio::time::sleep_until(until).await;
        }
    }
}

/// How bytes go out.
#[derive(Debug, Clone, Copy)]
enum Style {
    /// As they come.
    Plain,
    /// In pieces of at most so many; of the one at hand so many are left.
    Pieces { most: u64, left: u64 },
    /// So many a second.
    Slowly(u64),
}

/// One way.
pub(super) struct Way<'a> {
    state: &'a State,
    link: &'a Link,
    direction: Direction,
    random: Random,
    faults: Arc<Faults>,
    /// One for each rule.
    memory: Vec<Memory>,
    from: ReadHalf<'a>,
    to: WriteHalf<'a>,
    read: BytesMut,
    out: BytesMut,
    /// Bytes that have been passed on.
    offset: u64,
    style: Style,
    /// The bit that is turned in the next byte.
    flip: Option<u8>,
}

impl<'a> Way<'a> {
    pub(super) fn new(
        state: &'a State,
        link: &'a Link,
        direction: Direction,
        random: Random,
        from: ReadHalf<'a>,
        to: WriteHalf<'a>,
    ) -> Self {
        let faults = state.faults();
        Self {
            state,
            link,
            direction,
            random,
            memory: vec![Memory::default(); faults.rules.len()],
            faults,
            from,
            to,
            read: BytesMut::new(),
            out: BytesMut::new(),
            offset: 0,
            style: Style::Plain,
            flip: None,
        }
    }

    /// Passes messages on until it ends.
    pub(super) async fn pass(mut self) -> End {
        loop {
            if let Err(end) = self.message().await {
                return end;
            }
        }
    }

    async fn message(&mut self) -> Result<(), End> {
        let frame = self.next_frame().await?;
        let mut passed = 0;
        for (place, reaction) in self.picked(frame) {
            self.forward(place - passed).await?;
            passed = place;
            let at = Some((self.direction, frame.kind, self.offset));
            self.state.note(Event { connection: self.link.number, at, reaction });
            self.react(reaction).await?;
        }
        self.forward(frame.length - passed).await?;
        self.style = Style::Plain;
        Ok(())
    }

    async fn next_frame(&mut self) -> Result<Frame, End> {
        loop {
            let told = {
                let mut dialogue = self.link.dialogue.lock().unwrap_or_else(PoisonError::into_inner);
                dialogue.next(self.direction, &self.read)
            };
            match told {
                Some(frame) => return Ok(frame),
                None => self.fill().await?,
            }
        }
    }

    /// What rules do to a message, in the order of its bytes.
    fn picked(&mut self, frame: Frame) -> Vec<(u64, Reaction)> {
        let faults = self.state.faults();
        if !Arc::ptr_eq(&faults, &self.faults) {
            self.memory = vec![Memory::default(); faults.rules.len()];
            self.faults = faults;
        }
        let Frame { kind, length } = frame;
        let message = Message { direction: self.direction, kind, length, offset: self.offset };
        let mut picked = Vec::new();
        for (rule, memory) in self.faults.rules.iter().zip(&mut self.memory) {
            if let Some(place) = rule.picks(message, memory, &mut self.random) {
                picked.push((place, rule.reaction()));
            }
        }
        picked.sort_by_key(|(place, _)| *place);
        picked
    }

    async fn react(&mut self, reaction: Reaction) -> Result<(), End> {
        match reaction {
            Reaction::Bandwidth(rate) => self.style = Style::Slowly(rate.max(1)),
            Reaction::Split(most) => self.style = Style::Pieces { most: most.max(1), left: 0 },
            Reaction::Flip => self.flip = Some(1 << self.random.below(8)),
            _ => {}
        }
        self.flush().await?;
        match reaction {
            // This is the network's time: it is what is tested, not what is waited for.
            Reaction::Delay { least, jitter } => {
                tokio::time::sleep(spread(least, jitter, &mut self.random)).await;
            }
            Reaction::Stall(time) => {
                let until = Some(Instant::now() + time);
                *self.link.stalled_until.lock().unwrap_or_else(PoisonError::into_inner) = until;
            }
            Reaction::Blackhole => self.link.swallows.store(true, Ordering::Relaxed),
            Reaction::HalfClose => {
                let _ = self.to.shutdown().await;
                swallow(&mut self.from).await;
                return Err(End::OfFile);
            }
            Reaction::Fin => return Err(End::Fin),
            Reaction::Reset => return Err(End::Reset),
            _ => {}
        }
        Ok(())
    }

    /// Passes on so many bytes, as they come.
    async fn forward(&mut self, mut left: u64) -> Result<(), End> {
        while left > 0 {
            if self.read.is_empty() {
                self.fill().await?;
            }
            let most = match self.style {
                Style::Plain => u64::MAX,
                Style::Pieces { most, left: 0 } => 1 + self.random.below(most),
                Style::Pieces { left, .. } => left,
                Style::Slowly(rate) => (rate / SLICES_PER_SECOND).max(1),
            };
            let count = left.min(most).min(self.read.len() as u64);
            let mut piece = self.read.split_to(count as usize);
            if let (Some(bit), Some(first)) = (self.flip.take_if(|_| count > 0), piece.first_mut()) {
                *first ^= bit;
            }
            self.out.extend_from_slice(&piece);
            (left, self.offset) = (left - count, self.offset + count);
            match &mut self.style {
                Style::Plain => {}
                // However the bytes came in, chance is asked once for each piece.
                Style::Pieces { left, .. } => {
                    *left = most - count;
                    self.flush().await?;
                    tokio::task::yield_now().await;
                }
                Style::Slowly(rate) => {
                    let time = Duration::from_secs_f64(count as f64 / *rate as f64);
                    self.flush().await?;
                    tokio::time::sleep(time).await;
                }
            }
        }
        Ok(())
    }

    /// Reads more; what has been read before goes out first.
    async fn fill(&mut self) -> Result<(), End> {
        self.flush().await?;
        self.read.reserve(16 * 1024);
        let count = self.from.read_buf(&mut self.read).await;
        if self.direction == Direction::Down && self.state.answer_lost.swap(false, Ordering::Relaxed) {
            let (at, reaction) = (None, Reaction::Fin);
            self.state.note(Event { connection: self.link.number, at, reaction });
            return Err(End::Fin);
        }
        if matches!(count, Ok(1..)) {
            return Ok(());
        }
        match (self.link.swallows(), self.direction) {
            (false, _) => {
                self.out.extend_from_slice(&self.read.split());
                self.flush().await?;
                let _ = self.to.shutdown().await;
                Err(End::OfFile)
            }
            // Nobody is left who could notice anything.
            (true, Direction::Up) => Err(End::Reset),
            // The client must not learn of it.
            (true, Direction::Down) => std::future::pending().await,
        }
    }

    async fn flush(&mut self) -> Result<(), End> {
        if !self.out.is_empty() {
            self.link.until_not_stalled().await;
            if !self.link.swallows() && self.to.write_all(&self.out).await.is_err() {
                return Err(End::OfFile);
            }
            self.out.advance(self.out.len());
        }
        Ok(())
    }
}

/// A time of at least so long, and up to so much more by chance.
pub(super) fn spread(least: Duration, jitter: Duration, random: &mut Random) -> Duration {
    least + Duration::from_micros(random.below(jitter.as_micros() as u64 + 1))
}

/// Reads and throws away until there is no more.
pub(super) async fn swallow(from: &mut (impl AsyncRead + Unpin)) {
    let mut waste = vec![0; 8 * 1024];
    while matches!(from.read(&mut waste).await, Ok(1..)) {}
}

/// Says goodbye and waits for the other side to do so. A socket closed with bytes unread would send RST.
pub(super) async fn end_orderly(mut stream: TcpStream) {
    let _ = stream.shutdown().await;
    let _ = tokio::time::timeout(HANGING_UP, swallow(&mut stream)).await;
}
