//! A pipe's state without IO: what is out, what waits, and what is known of each.
//!
//! The order on the wire and the order of the FIFO are one: both are written in [`Core::frame`] and nowhere else.
//! Knows the protocol only through [`Wire`]; time is passed in.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

use crate::buffer::{Out, ReadBuffer};
use crate::entry::{Entry, Reply};
use crate::error::{Error, ErrorKind, Outcome, ServerError};
use crate::faults;
use crate::options::BatchesOut;
use crate::pipe::hold::Hold;
use crate::stats::Counters;
use crate::wire::{Condition, Framed, Occasion, Opening, ParkKey, Received, Request, Wire};

/// Whoever is behind a request that keeps the server busy for longer than this is counted as kept waiting.
const SLOW_HEAD: Duration = Duration::from_millis(5);

pub(crate) struct Core<W: Wire> {
    pub(crate) wire: W,
    pub(crate) out: Out,
    /// What was framed and has no final answer, oldest first.
    fifo: VecDeque<Flight<W>>,
    /// Taken from the queue and not framed: still movable.
    unsent: VecDeque<Entry<W>>,
    /// Wait for a forerunner: still movable.
    parked: Vec<(ParkKey, Entry<W>)>,
    hold: Hold,
    /// The batch that was begun last still takes entries from `unsent`; how many it has.
    batch: Option<usize>,
    /// Bytes framed and bytes handed to the kernel since the connection began.
    framed: u64,
    written: u64,
    /// Nothing may flow past a parked entry.
    ordered: bool,
    /// Nothing new is framed: a request to stop is on its way, and must hit nothing else.
    barred: bool,
    /// Was to go out with an entry that is not sent: the next one takes it along.
    opening: Option<Opening<W::Request>>,
    /// An opening is out and not answered: what follows belongs to what it opens, and waits until it is open.
    opening_out: bool,
    settling: Settling<W>,
    session: Session<W>,
    /// Since when the oldest flight has been the server's to answer.
    head_since: Instant,
    /// Finished, and to be handed over by the pump.
    pub(crate) done: Vec<(Entry<W>, Reply<W>)>,
}

/// One place in the FIFO.
struct Flight<W: Wire> {
    origin: Origin<W>,
    pending: W::Pending,
    /// It took an opening along.
    opens: bool,
    /// Where its bytes begin in the stream: if the kernel has none of them, it was not sent.
    starts_at: u64,
    /// When it was framed.
    at: Instant,
    /// The server had nothing else to answer when it was framed: its time includes the way there and back.
    alone: bool,
}

enum Origin<W: Wire> {
    Entry(Entry<W>),
    /// With the deadline of the entry that needed it first; that entry may be gone when the answer comes.
    Forerunner {
        key: ParkKey,
        deadline: Instant,
    },
    /// The engine's own, to put the session right.
    Own,
}

/// The engine's own requests that are out.
struct Settling<W: Wire> {
    left: usize,
    error: Option<Error<W::Server>>,
}

/// What is known of the session that everybody shares.
enum Session<W: Wire> {
    Clean,
    /// Settings were changed: nothing new until it is put right.
    Touched,
    /// A transaction is open. Its statements' results are withheld: nobody is told OK for what may be undone.
    Open(Vec<Entry<W>>),
}

/// What one read amounted to.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Progress {
    /// Whatever the server has finished: answers, forerunners, and the engine's own requests.
    pub(crate) flights: usize,
    pub(crate) answers: usize,
    pub(crate) errors: usize,
    /// The server said that it takes no writes.
    pub(crate) read_only: bool,
}

impl<W: Wire> Core<W> {
    /// Stop framing while this many bytes wait for the kernel: what is not framed can still move.
    const AHEAD: usize = 64 * 1024;

    /// `way` is what is known of the round trip so far; see [`Hold::new`].
    pub(crate) fn new(wire: W, batches_out: BatchesOut, way: Duration, now: Instant) -> Self {
        Self {
            wire,
            out: Out::default(),
            fifo: VecDeque::new(),
            unsent: VecDeque::new(),
            parked: Vec::new(),
            hold: Hold::new(batches_out, way),
            batch: None,
            framed: 0,
            written: 0,
            ordered: false,
            barred: false,
            opening: None,
            opening_out: false,
            settling: Settling { left: 0, error: None },
            session: Session::Clean,
            head_since: now,
            done: Vec::new(),
        }
    }

    /// On a lease the order on the wire is the order of submission.
    pub(crate) fn set_ordered(&mut self, ordered: bool) {
        self.ordered = ordered;
    }

    /// Nothing new is framed until this is taken back.
    pub(crate) fn set_barred(&mut self, barred: bool) {
        self.barred = barred;
    }

    /// Since when the only request in flight is out, if its time is up.
    pub(crate) fn overdue_alone(&self, now: Instant) -> Option<Instant> {
        match self.fifo.front().map(|flight| &flight.origin) {
            Some(Origin::Entry(entry))
                if self.fifo.len() == 1 && self.out.is_empty() && entry.deadline <= now =>
            {
                Some(self.head_since)
            }
            _ => None,
        }
    }

    /// Nothing is out and nothing waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.fifo.is_empty() && self.unsent.is_empty() && self.parked.is_empty() && self.out.is_empty()
    }

    /// The session must be put right before anything new is sent.
    pub(crate) fn is_tainted(&self) -> bool {
        !matches!(self.session, Session::Clean)
    }

    /// Would frame an entry at once if it had one.
    pub(crate) fn is_hungry(&self) -> bool {
        self.unsent.is_empty() && self.may_frame() && self.hold.may_write()
    }

    fn may_frame(&self) -> bool {
        self.settling.left == 0
            && !self.barred
            && !self.is_tainted()
            && !self.opening_out
            && (self.parked.is_empty() || !self.ordered)
    }

    /// Takes what was queued.
    pub(crate) fn take(&mut self, entries: &mut VecDeque<Entry<W>>) {
        if self.unsent.is_empty() {
            std::mem::swap(&mut self.unsent, entries);
        } else {
            self.unsent.append(entries);
        }
    }

    /// Frames as much of a batch as the hold rule and the room allow. Returns the size of a batch that is complete.
    /// An opening whose entry is not sent goes to the next one.
    pub(crate) fn frame(&mut self, now: Instant, counters: &Counters) -> Option<usize> {
        if self.batch.is_none() && (self.unsent.is_empty() || !self.hold.may_write()) {
            return None;
        }
        while self.out.len() < Self::AHEAD && self.may_frame() {
            let Some(mut entry) = self.unsent.pop_front() else {
                return self.batch.take();
            };
            if entry.is_abandoned() || entry.deadline <= now {
                let fault = self.not_sent(&entry, now);
                self.withdraw(entry, fault);
                continue;
            }
            if let Some(opening) = self.opening.take() {
                entry.request.open(opening);
            }
            self.frame_entry(entry, now, counters);
        }
        None
    }

    fn frame_entry(&mut self, mut entry: Entry<W>, now: Instant, counters: &Counters) {
        let starts_at = self.framed;
        let before = self.out.len();
        let opens = entry.request.opens();
        let framed = self.wire.frame(&mut entry.request, &mut self.out);
        self.framed += (self.out.len() - before) as u64;
        let (origin, pending) = match framed {
            Framed::Sent(pending) => {
                counters.waited(now.saturating_duration_since(entry.since));
                (Origin::Entry(entry), pending)
            }
            Framed::Ahead { pending, key } => {
                let deadline = entry.deadline;
                self.parked.push((key, entry));
                (Origin::Forerunner { key, deadline }, pending)
            }
            Framed::Waits { key } => {
                self.parked.push((key, entry));
                return;
            }
            Framed::Refused(error) => {
                self.withdraw(entry, error);
                return;
            }
        };
        if self.batch.is_none() {
            self.hold.begin(now);
        }
        *self.batch.get_or_insert(0) += 1;
        self.hold.add(now);
        // An opening that went ahead as a forerunner is waited for by its entry.
        let opens = opens && matches!(origin, Origin::Entry(_));
        self.opening_out |= opens;
        self.fly(origin, pending, opens, starts_at, now);
    }

    fn fly(&mut self, origin: Origin<W>, pending: W::Pending, opens: bool, starts_at: u64, now: Instant) {
        let alone = self.fifo.is_empty();
        if alone {
            self.head_since = now;
        }
        self.fifo.push_back(Flight { origin, pending, opens, starts_at, at: now, alone });
    }

    /// The kernel took `count` bytes.
    pub(crate) fn written(&mut self, count: usize) {
        self.out.advance(count);
        self.written += count as u64;
    }

    /// Reads what has arrived. An error means that the connection is to be given up; what was complete before it
    /// counts, and is in `done` all the same. For `absent` nobody looked, which is not the server's time.
    pub(crate) fn receive(
        &mut self,
        input: &mut ReadBuffer,
        now: Instant,
        absent: Duration,
        counters: &Counters,
    ) -> (Progress, Result<(), Error<W::Server>>) {
        let first_done = self.done.len();
        let way = match self.fifo.front() {
            Some(Flight { alone: true, .. }) => self.hold.way(),
            _ => Duration::ZERO,
        };
        let mut progress = Progress::default();
        let result = loop {
            let head = self.fifo.front_mut().map(|flight| &mut flight.pending);
            match self.wire.receive(head, input) {
                Ok(Received::More) => break Ok(()),
                Ok(Received::Answer(reply)) => {
                    progress.flights += 1;
                    let flight = self.fifo.pop_front();
                    self.opening_out &= !flight.as_ref().is_some_and(|flight| flight.opens);
                    match flight.map(|flight| (flight.origin, flight.at)) {
                        Some((Origin::Entry(entry), at)) => {
                            progress.answers += 1;
                            counters.served(now.saturating_duration_since(at));
                            if let Err(error) = &reply {
                                progress.errors += 1;
                                progress.read_only |= error.server().is_some_and(ServerError::is_read_only);
                            }
                            self.finish(entry, reply);
                        }
                        Some((Origin::Own, _)) => {
                            self.settling.left = self.settling.left.saturating_sub(1);
                            if let Err(error) = reply {
                                self.settling.error.get_or_insert(error);
                            }
                        }
                        Some((Origin::Forerunner { .. }, _)) | None => {
                            break Err(Error::new(
                                ErrorKind::Protocol,
                                Outcome::Unknown,
                                "an answer came that nobody asked for",
                            ));
                        }
                    }
                }
                Ok(Received::Forerunner { key, result }) => {
                    progress.flights += 1;
                    self.fifo.pop_front();
                    self.unpark(key, &result);
                }
                Err(error) => break Err(error),
            }
        };
        if progress.flights > 0 {
            counters.answered(progress.flights, progress.answers, progress.errors);
            self.hold.answered(progress.flights, now);
            // The server worked one after the other on what this read brought: each gets an equal share.
            let elapsed = now.saturating_duration_since(self.head_since).saturating_sub(absent + way);
            let share = u32::try_from(elapsed.as_micros() / progress.flights as u128).unwrap_or(u32::MAX);
            if elapsed > SLOW_HEAD {
                // The first of them, as nobody else can have kept the others waiting.
                counters.waited_behind(progress.flights - 1 + self.fifo.len());
            }
            for (entry, _) in &self.done[first_done..] {
                entry.request.observed_micros(share);
            }
            self.head_since = now;
        }
        (progress, result)
    }

    fn finish(&mut self, entry: Entry<W>, reply: Reply<W>) {
        if self.ordered {
            self.done.push((entry, reply));
            return;
        }
        match self.wire.condition() {
            Condition::InTransaction => {
                let mut withheld = match std::mem::replace(&mut self.session, Session::Touched) {
                    Session::Open(withheld) => withheld,
                    Session::Clean | Session::Touched => Vec::new(),
                };
                match reply {
                    Err(error) if error.outcome() != Outcome::Completed => {
                        self.done.push((entry, Err(error)));
                    }
                    // It ran, and may yet be undone.
                    Ok(_) | Err(_) => withheld.push(entry),
                }
                self.session = Session::Open(withheld);
            }
            condition => {
                if let Session::Open(withheld) = &mut self.session {
                    // It ended, and only the server knows how.
                    let withheld = std::mem::take(withheld);
                    self.session = Session::Touched;
                    self.done.extend(
                        withheld.into_iter().map(|entry| (entry, Err(faults::transaction_unknown()))),
                    );
                    let reply = match reply {
                        Err(error) if error.outcome() != Outcome::Completed => error,
                        Ok(_) | Err(_) => faults::transaction_unknown(),
                    };
                    self.done.push((entry, Err(reply)));
                    return;
                }
                if condition == Condition::Touched {
                    self.session = Session::Touched;
                }
                self.done.push((entry, reply));
            }
        }
    }

    /// Entries that waited under `key` go on, before everything else that waits, or fail.
    fn unpark(&mut self, key: ParkKey, result: &Result<(), Error<W::Server>>) {
        let (waited, others) =
            std::mem::take(&mut self.parked).into_iter().partition(|(parked, _)| *parked == key);
        self.parked = others;
        let waited: Vec<(ParkKey, Entry<W>)> = waited;
        match result {
            Ok(()) => {
                for (_, entry) in waited.into_iter().rev() {
                    self.unsent.push_front(entry);
                }
            }
            Err(error) => {
                for (_, entry) in waited {
                    self.withdraw(entry, error.clone());
                }
            }
        }
    }

    /// Sends what puts the session right.
    pub(crate) fn settle(&mut self, occasion: Occasion, now: Instant) {
        for mut request in self.wire.settle(occasion) {
            let starts_at = self.framed;
            let before = self.out.len();
            let framed = self.wire.frame(&mut request, &mut self.out);
            self.framed += (self.out.len() - before) as u64;
            match framed {
                Framed::Sent(pending) => {
                    self.hold.begin(now);
                    self.hold.add(now);
                    self.settling.left += 1;
                    self.fly(Origin::Own, pending, false, starts_at, now);
                }
                Framed::Refused(error) => {
                    self.settling.error.get_or_insert(error);
                }
                Framed::Ahead { .. } | Framed::Waits { .. } => {
                    self.settling.error.get_or_insert_with(faults::not_settled);
                }
            }
        }
    }

    /// Whether the session is right again: `None` while answers are out.
    pub(crate) fn settled(&mut self) -> Option<Result<(), Error<W::Server>>> {
        if self.settling.left > 0 {
            return None;
        }
        if let Some(error) = self.settling.error.take() {
            return Some(Err(error));
        }
        if self.wire.condition() != Condition::Clean {
            return Some(Err(faults::not_settled()));
        }
        if let Session::Open(withheld) = std::mem::replace(&mut self.session, Session::Clean) {
            self.done.extend(withheld.into_iter().map(|entry| (entry, Err(faults::rolled_back()))));
        }
        Some(Ok(()))
    }

    /// Takes back what has not been framed, in order.
    pub(crate) fn give_back(&mut self) -> VecDeque<Entry<W>> {
        self.batch = None;
        std::mem::take(&mut self.unsent)
    }

    /// Takes out what waits for a forerunner that the server has not begun with.
    pub(crate) fn take_stuck(&mut self) -> Vec<(ParkKey, Entry<W>)> {
        let begun = match self.fifo.front() {
            Some(Flight { origin: Origin::Forerunner { key, .. }, .. }) => Some(*key),
            _ => None,
        };
        let (stuck, kept) =
            std::mem::take(&mut self.parked).into_iter().partition(|(key, _)| Some(*key) != begun);
        self.parked = kept;
        stuck
    }

    /// Puts back what was taken out and found no better place.
    pub(crate) fn put_back(&mut self, key: ParkKey, entry: Entry<W>) {
        self.parked.push((key, entry));
    }

    /// Since when the server has been at the oldest flight; `None` when nothing is out.
    pub(crate) fn head_since(&self) -> Option<Instant> {
        (!self.fifo.is_empty()).then_some(self.head_since)
    }

    /// What an answer of an idle server takes at least.
    pub(crate) fn way(&self) -> Duration {
        self.hold.way()
    }

    /// When the oldest flight's asker stops waiting.
    pub(crate) fn head_deadline(&self) -> Option<Instant> {
        match &self.fifo.front()?.origin {
            Origin::Entry(Entry { deadline, .. }) | Origin::Forerunner { deadline, .. } => Some(*deadline),
            Origin::Own => None,
        }
    }

    /// Answers everybody whose deadline has passed. What is out keeps its place; what is not is taken out.
    pub(crate) fn expire(&mut self, now: Instant) {
        let mut ends_at = self.framed;
        let left = self.out.len();
        for (ahead, flight) in self.fifo.iter_mut().enumerate().rev() {
            if let Origin::Entry(entry) = &mut flight.origin
                && entry.deadline <= now
                && !entry.is_abandoned()
            {
                let waited = now.saturating_duration_since(entry.since);
                entry.slot.answer_early(Err(if ends_at <= self.written {
                    faults::answer_timeout(waited, ahead)
                } else {
                    faults::send_timeout(waited, left)
                }));
            }
            ends_at = flight.starts_at;
        }
        if let Session::Open(withheld) = &mut self.session {
            for entry in withheld.iter_mut().filter(|entry| entry.deadline <= now && !entry.is_abandoned()) {
                let waited = now.saturating_duration_since(entry.since);
                entry.slot.answer_early(Err(faults::answer_timeout(waited, 0)));
            }
        }
        for entry in self.unsent.extract_where(|entry| entry.deadline <= now || entry.is_abandoned()) {
            let fault = self.not_sent(&entry, now);
            self.withdraw(entry, fault);
        }
        let mut index = 0;
        while let Some((_, entry)) = self.parked.get(index) {
            if entry.deadline <= now || entry.is_abandoned() {
                let (_, entry) = self.parked.remove(index);
                let fault = self.not_sent(&entry, now);
                self.withdraw(entry, fault);
            } else {
                index += 1;
            }
        }
    }

    /// Why an entry was not sent in time.
    pub(crate) fn not_sent(&self, entry: &Entry<W>, now: Instant) -> Error<W::Server> {
        let waited = now.saturating_duration_since(entry.since);
        let oldest = self.head_since().map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
        faults::not_sent(waited, self.fifo.len(), oldest)
    }

    /// Answers an entry that is not sent. What it was to open is left for the next one.
    pub(crate) fn withdraw(&mut self, mut entry: Entry<W>, error: Error<W::Server>) {
        if let Some(opening) = entry.request.take_opening() {
            self.opening = Some(opening);
        }
        self.done.push((entry, Err(error)));
    }

    /// An opening that nothing at hand takes along. An entry that waits here gets it instead.
    pub(crate) fn take_opening(&mut self) -> Option<Opening<W::Request>> {
        let opening = self.opening.take()?;
        match self.parked.first_mut().map(|(_, entry)| entry).or_else(|| self.unsent.front_mut()) {
            Some(next) => {
                next.request.open(opening);
                None
            }
            None => Some(opening),
        }
    }

    /// The connection is lost: everybody whose bytes went out learns that the outcome is unknown, and those of whom
    /// no byte went out are handed back, in order.
    pub(crate) fn lose(&mut self, error: &Error<W::Server>) -> VecDeque<Entry<W>> {
        let error = match self.wire.last_words() {
            Some(words) => error.clone().with_server(words),
            None => error.clone(),
        };
        let mut movable = VecDeque::new();
        if let Session::Open(withheld) = std::mem::replace(&mut self.session, Session::Clean) {
            let unknown = error.clone().with_outcome(Outcome::Unknown);
            self.done.extend(withheld.into_iter().map(|entry| (entry, Err(unknown.clone()))));
        }
        for flight in self.fifo.drain(..) {
            match flight.origin {
                Origin::Entry(entry) if flight.starts_at >= self.written => movable.push_back(entry),
                Origin::Entry(entry) => {
                    self.done.push((entry, Err(error.clone().with_outcome(Outcome::Unknown))));
                }
                Origin::Forerunner { .. } | Origin::Own => {}
            }
        }
        movable.extend(std::mem::take(&mut self.parked).into_iter().map(|(_, entry)| entry));
        movable.append(&mut self.give_back());
        movable
    }
}

/// Takes out what matches, keeping the order of the rest.
pub(crate) trait ExtractWhere<T> {
    fn extract_where(&mut self, matches: impl FnMut(&T) -> bool) -> Vec<T>;
}

impl<T> ExtractWhere<T> for VecDeque<T> {
    fn extract_where(&mut self, mut matches: impl FnMut(&T) -> bool) -> Vec<T> {
        if !self.iter().any(&mut matches) {
            return Vec::new();
        }
        let (taken, kept): (Vec<T>, Self) = std::mem::take(self).into_iter().fold(
            (Vec::new(), Self::new()),
            |(mut taken, mut kept), item| {
                if matches(&item) {
                    taken.push(item);
                } else {
                    kept.push_back(item);
                }
                (taken, kept)
            },
        );
        *self = kept;
        taken
    }
}
