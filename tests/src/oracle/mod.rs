//! What was answered, and whether it was true: every answer must be its own asker's, every acknowledged write must be
//! there once, and what is told of a failure must hold.
//!
//! Compiled twice, inside of `postgres` and of `mysql`: `super` is whose driver and server are meant. Knows nothing of
//! what goes wrong; whoever asks says which errors may come of it.

mod transfers;

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use sha2::{Digest as _, Sha256};
pub use transfers::Transfers;

use super::dialect::{ECHO_WITH_SUM, NO_SUCH_TABLE, upsert};
use super::{Client, Error, Outcome, Pool, drop_table, sql, table};
use crate::Random;

/// How many violations are told in words.
const TOLD: usize = 20;
/// Rows of the ledger that are read at a time.
const PAGE: usize = 50_000;

/// What is known of a piece of work from its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Known {
    /// It was done, once.
    Done,
    /// It was not done.
    NotDone,
    /// It was done once or not at all.
    Nothing,
}

/// What an error says of the work behind it.
pub fn known(error: &Error) -> Known {
    match error.outcome() {
        Outcome::NotSent | Outcome::Failed => Known::NotDone,
        Outcome::Completed => Known::Done,
        Outcome::Unknown => Known::Nothing,
    }
}

/// Asks, writes, and keeps books of both.
#[derive(Debug)]
pub struct Oracle {
    ledger: String,
    insert: String,
    next: AtomicI64,
    stopped: AtomicBool,
    tolerates: fn(&Error) -> bool,
    books: Mutex<Books>,
}

#[derive(Debug)]
struct Books {
    counts: Counts,
    writes: Vec<(i64, Known)>,
    /// None while nobody can answer.
    last_answer: Option<Instant>,
    /// Writes that are there together or not at all.
    together: Vec<Vec<i64>>,
}

/// What it came to.
#[derive(Debug, Clone, Default)]
pub struct Counts {
    /// Calls with a result, or with the error that they asked for.
    pub answered: u64,
    /// Others, by kind and outcome.
    pub failed: BTreeMap<String, u64>,
    /// Calls that were given up by their asker.
    pub dropped: u64,
    /// Answers of somebody else.
    pub mixed_up: u64,
    /// Acknowledged work that is not there.
    pub lost: u64,
    /// Work that is there twice.
    pub doubled: u64,
    /// Work that is there although it was told not to be.
    pub undead: u64,
    /// Errors that nothing explains.
    pub unexplained: u64,
    /// The first violations in words.
    pub violations: Vec<String>,
    /// The longest that one call took.
    pub longest_call: Duration,
    /// The longest time in which nobody got an answer.
    pub longest_silence: Duration,
}

impl Counts {
    fn violation(&mut self, which: impl FnOnce(&mut Self) -> &mut u64, what: impl FnOnce() -> String) {
        *which(self) += 1;
        if self.violations.len() < TOLD {
            self.violations.push(what());
        }
    }

    /// Fails if anything was not true.
    pub fn assert_true(&self, seed: u64) {
        let Self { mixed_up, lost, doubled, undead, unexplained, .. } = *self;
        assert_eq!(
            (mixed_up, lost, doubled, undead, unexplained),
            (0, 0, 0, 0, 0),
            "mixed up, lost, doubled, undead, unexplained with seed {seed}: {:#?}",
            self.violations
        );
    }
}

impl Oracle {
    /// With a ledger of its own; `tolerates` says which errors what goes wrong may cause.
    pub async fn new(other: &Pool, tolerates: fn(&Error) -> bool) -> Self {
        let ledger = table(other, "ledger", "nonce int8 PRIMARY KEY, n int4 NOT NULL").await;
        let counts = Counts::default();
        Self {
            insert: upsert(&ledger),
            ledger,
            next: AtomicI64::new(0),
            stopped: AtomicBool::new(false),
            tolerates,
            books: Mutex::new(Books {
                counts,
                writes: Vec::new(),
                last_answer: Some(Instant::now()),
                together: Vec::new(),
            }),
        }
    }

    /// Whoever works for it shall stop.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }

    /// Whether they shall.
    pub fn stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    /// A number that nobody else has.
    pub fn nonce(&self) -> i64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// The statement that writes a number into the ledger: once, or it shows.
    pub fn insert(&self) -> &str {
        &self.insert
    }

    /// A copy of the books so far.
    pub fn counts(&self) -> Counts {
        self.books().counts.clone()
    }

    /// From here on silence does not count, because nobody can answer; or it counts anew.
    pub fn excuse_silence(&self, excused: bool) {
        self.books().last_answer = if excused { None } else { Some(Instant::now()) };
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps the books of a call that began at a moment. Its result, for whoever wants to look further.
    pub fn note<T>(&self, began: Instant, result: Result<T, Error>) -> Result<T, Error> {
        let mut books = self.books();
        let now = Instant::now();
        books.counts.longest_call = books.counts.longest_call.max(now - began);
        match &result {
            Ok(_) => {
                if let Some(last) = &mut books.last_answer {
                    let silence = now - *last;
                    *last = now;
                    books.counts.longest_silence = books.counts.longest_silence.max(silence);
                }
                books.counts.answered += 1;
            }
            Err(error) => {
                let name = format!("{:?} {:?}", error.kind(), error.outcome());
                *books.counts.failed.entry(name).or_default() += 1;
                if !(self.tolerates)(error) {
                    let what = || format!("nothing explains {error:?}");
                    books.counts.violation(|counts| &mut counts.unexplained, what);
                }
            }
        }
        result
    }

    fn mixed_up(&self, what: impl FnOnce() -> String) {
        self.books().counts.violation(|counts| &mut counts.mixed_up, what);
    }

    /// Asks for a text of its own with a checksum and a tail of so many bytes; looks whether that is what comes.
    pub async fn echo(&self, client: &impl Client, tail: u64, random: &mut Random) -> Result<(), Error> {
        let own = format!("{:x}-{:x}", self.nonce(), random.below(u64::MAX));
        let (times, tail) = (1 + random.below(20), random.below(tail + 1));
        let began = Instant::now();
        let params = (&own, &own, times as i32, tail as i32);
        let asked = client.query_one::<(String, String, String)>(ECHO_WITH_SUM, params).await;
        let (back, sum, rest) = self.note(began, asked)?;
        let wanted = hexadecimal(&Sha256::digest(own.repeat(times as usize)));
        if (&back, &sum, rest.len() as u64) != (&own, &wanted, tail) {
            self.mixed_up(|| {
                format!("{own}, {wanted} and {tail} bytes became {back}, {sum} and {}", rest.len())
            });
        }
        Ok(())
    }

    /// Asks for a table that is not there, and looks whether the error is about this one.
    pub async fn fail(&self, client: &impl Client) -> Result<(), Error> {
        let name = format!("nowhere_{}", self.nonce());
        let began = Instant::now();
        let asked = client.query_opt::<(i64,)>(format!("SELECT 1 FROM {name}"), ()).await;
        match asked {
            Err(error) if error.sqlstate() == Some(NO_SUCH_TABLE) => {
                if !error.to_string().split(['"', '\'', '.']).any(|word| word == name) {
                    self.mixed_up(|| format!("the error of {name} is {error}"));
                }
                self.note(began, Ok(()))
            }
            Err(error) => self.note(began, Err(error)),
            Ok(row) => {
                self.mixed_up(|| format!("{name} is not there and gave {row:?}"));
                self.note(began, Ok(()))
            }
        }
    }

    /// Writes a number of its own into the ledger.
    pub async fn write(&self, client: &impl Client) -> Result<(), Error> {
        let nonce = self.nonce();
        // A future that is dropped leaves this behind.
        let known = KnownLater { oracle: self, nonce, known: Known::Nothing, dropped: true };
        let began = Instant::now();
        let asked = client.execute(&self.insert, (nonce,)).await;
        let result = self.note(began, asked);
        known.is(&result);
        let done = result?;
        // Two of them: MySQL counts an update of a row that is there twice.
        if done.rows_affected() != 1 {
            let what = || format!("{} rows for {nonce}", done.rows_affected());
            self.books().counts.violation(|counts| &mut counts.doubled, what);
        }
        Ok(())
    }

    /// Keeps the books of a write of somebody else's, who has the number from [`nonce`](Self::nonce).
    pub fn wrote(&self, nonce: i64, known: Known) {
        self.books().writes.push((nonce, known));
    }

    /// The same for writes that must be there together or not at all.
    pub fn wrote_all(&self, nonces: &[i64], known: Known) {
        let mut books = self.books();
        books.writes.extend(nonces.iter().map(|nonce| (*nonce, known)));
        books.together.push(nonces.to_vec());
    }

    /// Compares the books with the ledger, and drops it.
    pub async fn settle(&self, other: &Pool) -> Counts {
        let mut rows = HashMap::new();
        let mut from = -1_i64;
        let page =
            sql(format!("SELECT nonce, n FROM {} WHERE nonce > $1 ORDER BY nonce LIMIT {PAGE}", self.ledger));
        loop {
            let read: Vec<(i64, i32)> = other.query(&page, (from,)).await.expect("the ledger");
            let Some(last) = read.last() else { break };
            from = last.0;
            rows.extend(read);
        }
        drop_table(other, &self.ledger).await;
        self.compare(rows)
    }

    fn compare(&self, mut rows: HashMap<i64, i32>) -> Counts {
        let mut books = self.books();
        for nonces in std::mem::take(&mut books.together) {
            let there = nonces.iter().filter(|nonce| rows.contains_key(nonce)).count();
            if there != 0 && there != nonces.len() {
                let what = || format!("{there} of {nonces:?} are there");
                books.counts.violation(|counts| &mut counts.lost, what);
            }
        }
        for (nonce, known) in std::mem::take(&mut books.writes) {
            let times = rows.remove(&nonce).unwrap_or(0);
            let what = || format!("{nonce} is there {times} times, and {known:?} was told");
            match (known, times) {
                (Known::Done, 1) | (Known::NotDone, 0) | (Known::Nothing, 0 | 1) => {}
                (Known::Done, 0) => books.counts.violation(|counts| &mut counts.lost, what),
                (_, 2..) => books.counts.violation(|counts| &mut counts.doubled, what),
                _ => books.counts.violation(|counts| &mut counts.undead, what),
            }
        }
        for (nonce, times) in rows {
            let what = || format!("{nonce} is there {times} times, and nobody asked for it");
            books.counts.violation(|counts| &mut counts.undead, what);
        }
        books.counts.clone()
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// What is known of a write when it is answered, or when nobody waits for it any more.
struct KnownLater<'a> {
    oracle: &'a Oracle,
    nonce: i64,
    known: Known,
    dropped: bool,
}

impl KnownLater<'_> {
    fn is<T>(mut self, result: &Result<T, Error>) {
        self.dropped = false;
        self.known = result.as_ref().map_or_else(known, |_| Known::Done);
    }
}

impl Drop for KnownLater<'_> {
    fn drop(&mut self) {
        self.oracle.wrote(self.nonce, self.known);
        self.oracle.books().counts.dropped += u64::from(self.dropped);
    }
}
