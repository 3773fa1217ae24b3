//! What goes wrong, and when: rules of a condition and a reaction.
//!
//! A rule looks at each message of one way, or at each connection when it is taken. Which of them it picks may depend on
//! the message's kind, its number, the bytes before it and on chance; chance follows from the seed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::{Direction, Kind};
use crate::Random;

/// What happens to a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reaction {
    /// This way waits so long and up to `jitter` longer; the other one goes on.
    Delay {
        /// At least so long.
        least: Duration,
        /// Chance adds up to so much.
        jitter: Duration,
    },
    /// The rest of the message passes at so many bytes a second.
    Bandwidth(u64),
    /// The rest of the message passes in pieces of 1 to so many bytes, each written alone.
    Split(u64),
    /// Nothing passes either way for so long; then everything goes on.
    Stall(Duration),
    /// Both sides are told of an orderly end.
    Fin,
    /// The receiver of this way is told of an orderly end, and what comes behind is thrown away; the other way goes on.
    HalfClose,
    /// Both sides get an RST.
    Reset,
    /// From here on everything is thrown away, both ways, and nobody is told.
    Blackhole,
    /// One bit of the byte at this place is turned.
    Flip,
    /// Only for connections: taken, and never a byte passes.
    Silence,
    /// Only for connections: reset as soon as it is taken. A port that refuses is [`Proxy::close`](super::Proxy::close).
    Refuse,
}

impl Reaction {
    /// Whether the connection is of no use afterwards.
    pub fn is_fatal(self) -> bool {
        use Reaction::{Blackhole, Fin, HalfClose, Refuse, Reset, Silence};
        matches!(self, Fin | HalfClose | Reset | Blackhole | Silence | Refuse)
    }
}

/// A condition and what happens where it holds.
#[derive(Debug, Clone)]
pub struct Rule {
    /// `None`: it looks at connections, not at messages.
    direction: Option<Direction>,
    kinds: Vec<Kind>,
    within: Option<(u64, u64)>,
    every: u64,
    from: u64,
    one_in: u64,
    times: u64,
    place: Place,
    reaction: Reaction,
    fired: Arc<AtomicU64>,
}

/// Where in a message.
#[derive(Debug, Clone, Copy)]
enum Place {
    Byte(u64),
    Anywhere,
    Behind,
}

impl Rule {
    /// Looks at each connection when it is taken.
    pub fn connection(reaction: Reaction) -> Self {
        Self::new(None, reaction)
    }

    /// Looks at each message to the server.
    pub fn up(reaction: Reaction) -> Self {
        Self::new(Some(Direction::Up), reaction)
    }

    /// Looks at each message to the client.
    pub fn down(reaction: Reaction) -> Self {
        Self::new(Some(Direction::Down), reaction)
    }

    fn new(direction: Option<Direction>, reaction: Reaction) -> Self {
        assert!(
            direction.is_none() || !matches!(reaction, Reaction::Silence | Reaction::Refuse),
            "{reaction:?} is for connections"
        );
        Self {
            direction,
            kinds: Vec::new(),
            within: None,
            every: 1,
            from: 1,
            one_in: 1,
            times: u64::MAX,
            place: Place::Byte(0),
            reaction,
            fired: Arc::default(),
        }
    }

    /// Only messages of these kinds.
    #[must_use]
    pub fn kinds(mut self, kinds: &[Kind]) -> Self {
        self.kinds = kinds.to_vec();
        self
    }

    /// Only the message with this byte of its way, counted from 0 when the connection was made, and at this byte.
    #[must_use]
    pub fn offset(self, byte: u64) -> Self {
        self.offset_between(byte, byte + 1)
    }

    /// The same, for a byte that chance picks once for each connection: the first or behind, before the second.
    #[must_use]
    pub fn offset_between(mut self, first: u64, end: u64) -> Self {
        assert!(first < end, "an empty range");
        self.within = Some((first, end));
        self
    }

    /// Only the n-th of them on its way of its connection, counted from 1.
    #[must_use]
    pub fn nth(mut self, n: u64) -> Self {
        (self.from, self.every) = (n, u64::MAX);
        self
    }

    /// The n-th of them, the 2n-th and so on.
    #[must_use]
    pub fn every(mut self, n: u64) -> Self {
        (self.from, self.every) = (n, n);
        self
    }

    /// One in so many, by chance.
    #[must_use]
    pub fn one_in(mut self, n: u64) -> Self {
        self.one_in = n;
        self
    }

    /// At most so often, on all connections together.
    #[must_use]
    pub fn times(mut self, n: u64) -> Self {
        self.times = n;
        self
    }

    /// At this byte of the message, counted from 0; shorter messages are left alone. Else it is the first.
    #[must_use]
    pub fn at_byte(mut self, byte: u64) -> Self {
        self.place = Place::Byte(byte);
        self
    }

    /// At a byte of the message that chance picks.
    #[must_use]
    pub fn anywhere(mut self) -> Self {
        self.place = Place::Anywhere;
        self
    }

    /// Behind the message's last byte.
    #[must_use]
    pub fn behind(mut self) -> Self {
        self.place = Place::Behind;
        self
    }

    /// How often it has happened, on all connections together.
    pub fn fired(&self) -> u64 {
        self.fired.load(Ordering::Relaxed)
    }

    pub(super) fn reaction(&self) -> Reaction {
        self.reaction
    }

    /// Whether it happens to a connection that was just taken.
    pub(super) fn picks_connection(&self, number: u64, random: &mut Random) -> bool {
        self.direction.is_none() && self.is_its_turn(number + 1, random) && self.count()
    }

    fn is_its_turn(&self, number: u64, random: &mut Random) -> bool {
        let turn = number >= self.from && (number - self.from).is_multiple_of(self.every);
        turn && (self.one_in <= 1 || random.below(self.one_in) == 0)
    }

    fn count(&self) -> bool {
        let more = |fired| (fired < self.times).then_some(fired + 1);
        self.fired.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }
}

/// A message as rules see it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Message {
    pub(super) direction: Direction,
    pub(super) kind: Kind,
    pub(super) length: u64,
    /// Bytes of this way before it.
    pub(super) offset: u64,
}

/// What a rule remembers of one way of one connection.
#[derive(Debug, Default, Clone)]
pub(super) struct Memory {
    matching: u64,
    offset: Option<u64>,
}

impl Rule {
    /// At which byte of the message it happens, if it does.
    pub(super) fn picks(&self, message: Message, memory: &mut Memory, random: &mut Random) -> Option<u64> {
        let fits = self.direction == Some(message.direction)
            && (self.kinds.is_empty() || self.kinds.contains(&message.kind));
        if !fits || message.length == 0 {
            return None;
        }
        let place = match (self.within, self.place) {
            (Some((first, end)), _) => {
                let offset = *memory.offset.get_or_insert_with(|| first + random.below(end - first));
                offset.checked_sub(message.offset).filter(|place| *place < message.length)?
            }
            (None, Place::Byte(byte)) => Some(byte).filter(|byte| *byte < message.length)?,
            (None, Place::Anywhere) => random.below(message.length),
            (None, Place::Behind) => message.length,
        };
        memory.matching += 1;
        (self.is_its_turn(memory.matching, random) && self.count()).then_some(place)
    }
}

/// How bad the network is: rules, and the seed of everything that chance decides in them.
#[derive(Debug, Clone)]
pub struct Faults {
    /// What happens follows from this, for each connection by its number.
    pub seed: u64,
    /// All that pick a message happen to it, in the order of their places in it.
    pub rules: Vec<Rule>,
}

impl Faults {
    /// Nothing breaks that was not asked for.
    pub const NONE: Self = Self { seed: 0, rules: Vec::new() };

    /// Connections break behind any byte before this one, either way, told by FIN or by RST; one message in `delayed`
    /// is held up for up to 3 ms.
    pub fn cuts(seed: u64, within: u64, delayed: u64) -> Self {
        let delay = Reaction::Delay { least: Duration::ZERO, jitter: Duration::from_millis(3) };
        let cut = |rule: Rule| rule.offset_between(1, within);
        let rules = vec![
            Rule::up(delay).one_in(delayed),
            Rule::down(delay).one_in(delayed),
            cut(Rule::up(Reaction::Fin)),
            cut(Rule::up(Reaction::Reset)),
            cut(Rule::down(Reaction::Fin)),
            cut(Rule::down(Reaction::Reset)),
        ];
        Self { seed, rules }
    }
}
