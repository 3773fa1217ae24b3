//! Everything that users do to a pool at once: questions, writes, transactions, leases, batches, deadlines, futures that
//! are dropped, tasks that are aborted, and decoding that panics. The books say whether all of it held.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::super::dialect::{ECHO_LONG, REMEMBERED, lock, remember};
use super::super::oracle::{Known, Oracle, Transfers, known};
use super::super::{CallOptions, Error, FromRow, Pool, Row};
use crate::{Random, poll_then_drop};

/// What a panic on purpose says.
pub const ON_PURPOSE: &str = "decoding panics on purpose";
/// The first of the locks that are taken; one for each worker that takes one.
const FIRST_LOCK: u32 = 77_000;

/// What a worker does all the time.
#[derive(Debug, Clone, Copy)]
enum Job {
    Ask,
    Write,
    WriteBoth,
    Move,
    MoveAgain,
    Hold(u32),
    Drop,
    Abort,
    Hurry,
    Panic,
}

/// Who does what, and how many of them.
const CREW: [(Job, u64); 13] = [
    (Job::Ask, 24),
    (Job::Write, 24),
    (Job::WriteBoth, 4),
    (Job::Move, 8),
    (Job::MoveAgain, 4),
    (Job::Hold(FIRST_LOCK), 1),
    (Job::Hold(FIRST_LOCK + 1), 1),
    (Job::Hold(FIRST_LOCK + 2), 1),
    (Job::Hold(FIRST_LOCK + 3), 1),
    (Job::Drop, 6),
    (Job::Abort, 4),
    (Job::Hurry, 4),
    (Job::Panic, 1),
];

/// The locks that workers take.
pub(super) fn locks() -> impl Iterator<Item = u32> {
    CREW.into_iter().filter_map(|(job, _)| match job {
        Job::Hold(key) => Some(key),
        _ => None,
    })
}

/// A pool, who works on it, and the books.
#[derive(Debug)]
pub(super) struct Load {
    pub(super) pool: Pool,
    pub(super) oracle: Oracle,
    pub(super) transfers: Transfers,
    paused: watch::Sender<bool>,
    /// Futures are dropped as fast as can be.
    pub(super) storm: AtomicBool,
    pub(super) panics: AtomicU64,
    leaks: Mutex<Vec<String>>,
}

impl Load {
    pub(super) fn new(pool: Pool, oracle: Oracle, transfers: Transfers) -> Self {
        Self {
            pool,
            oracle,
            transfers,
            paused: watch::Sender::new(false),
            storm: AtomicBool::new(false),
            panics: AtomicU64::new(0),
            leaks: Mutex::default(),
        }
    }

    /// Puts everybody to work.
    pub(super) fn start(self: &Arc<Self>, seed: u64) -> Vec<JoinHandle<()>> {
        let jobs = CREW.into_iter().flat_map(|(job, count)| (0..count).map(move |_| job));
        let worker = |(number, job)| {
            let (load, random) = (Arc::clone(self), Random::new(seed * 1_000 + number as u64 + 1));
            tokio::spawn(async move { load.work(job, random).await })
        };
        jobs.enumerate().map(worker).collect()
    }

    /// Nothing new is begun, or it is again.
    pub(super) fn pause(&self, paused: bool) {
        self.paused.send_replace(paused);
    }

    /// What outlived those that it belonged to.
    pub(super) fn leaks(&self) -> Vec<String> {
        self.leaks.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn leak(&self, what: String) {
        self.leaks.lock().unwrap_or_else(PoisonError::into_inner).push(what);
    }

    async fn work(self: Arc<Self>, job: Job, mut random: Random) {
        let mut paused = self.paused.subscribe();
        while !self.oracle.stopped() {
            let _ = paused.wait_for(|paused| !*paused).await;
            // Errors are in the books.
            let _ = self.once(job, &mut random).await;
        }
    }

    async fn once(self: &Arc<Self>, job: Job, random: &mut Random) -> Result<(), Error> {
        let Self { pool, oracle, transfers, .. } = &**self;
        match job {
            Job::Ask if random.below(20) == 0 => oracle.fail(pool).await,
            Job::Ask => oracle.echo(pool, 5_000, random).await,
            Job::Write => oracle.write(pool).await,
            Job::WriteBoth => self.write_both().await,
            Job::Move if random.below(4) == 0 => {
                let polls = random.below(12);
                poll_then_drop(transfers.transfer(oracle, pool, random), polls).await.unwrap_or(Ok(()))
            }
            Job::Move => transfers.transfer(oracle, pool, random).await,
            Job::MoveAgain => transfers.transfer_again(oracle, pool, random).await,
            Job::Hold(key) => self.hold(key, random).await,
            Job::Drop => {
                let polls = random.below(5);
                if random.below(2) == 0 {
                    poll_then_drop(oracle.write(pool), polls).await;
                } else {
                    poll_then_drop(oracle.echo(pool, 5_000, random), polls).await;
                }
                self.breathe().await;
                Ok(())
            }
            Job::Abort => {
                let load = Arc::clone(self);
                let task = tokio::spawn(async move { load.oracle.write(&load.pool).await });
                tokio::time::sleep(Duration::from_micros(random.below(3_000))).await;
                task.abort();
                self.breathe().await;
                Ok(())
            }
            Job::Hurry => {
                let view = pool.with(CallOptions::new().timeout(Duration::from_millis(1 + random.below(30))));
                match random.below(2) {
                    0 => oracle.write(&view).await,
                    _ => oracle.echo(&view, 5_000, random).await,
                }
            }
            Job::Panic => self.panic().await,
        }
    }

    /// A moment between calls that nobody waits for, unless there is a storm.
    async fn breathe(&self) {
        if self.storm.load(Ordering::Relaxed) {
            tokio::task::yield_now().await;
        } else {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    async fn write_both(&self) -> Result<(), Error> {
        let both = [self.oracle.nonce(), self.oracle.nonce()];
        let mut batch = self.pool.batch();
        for nonce in both {
            batch.push(self.oracle.insert(), (nonce,));
        }
        let began = Instant::now();
        let result = self.oracle.note(began, batch.execute().await);
        self.oracle.wrote_all(&both, result.as_ref().map_or_else(known, |_| Known::Done));
        result.map(drop)
    }

    /// Takes a lease, leaves something on it and a lock behind, and looks whether there was anything already.
    async fn hold(&self, key: u32, random: &mut Random) -> Result<(), Error> {
        let oracle = &self.oracle;
        let session = oracle.note(Instant::now(), self.pool.session().await)?;
        let began = Instant::now();
        let (before,): (Option<String>,) = oracle.note(began, session.query_one(REMEMBERED, ()).await)?;
        if before.is_some_and(|word| !word.is_empty()) {
            self.leak("a setting of another session".to_owned());
        }
        let word = format!("word_{}", oracle.nonce());
        let began = Instant::now();
        oracle.note(began, session.execute(remember(&word), ()).await)?;
        let began = Instant::now();
        oracle.note(began, session.execute(lock(key), ()).await)?;
        if random.below(3) == 0 {
            // Dropped while something is under way.
            poll_then_drop(oracle.write(&session), random.below(3)).await;
            return Ok(());
        }
        let began = Instant::now();
        let (own,): (Option<String>,) = oracle.note(began, session.query_one(REMEMBERED, ()).await)?;
        if own.as_ref() != Some(&word) {
            self.leak(format!("{word} of a session became {own:?}"));
        }
        Ok(())
    }

    async fn panic(&self) -> Result<(), Error> {
        let pool = self.pool.clone();
        let began = Instant::now();
        let asked = tokio::spawn(async move { pool.query_one::<Panics>(ECHO_LONG, (1_i64,)).await });
        match asked.await {
            Ok(answer) => {
                let failed = self.oracle.note(began, answer);
                assert!(failed.is_err(), "it cannot be decoded");
            }
            Err(panic) => {
                self.panics.fetch_add(u64::from(panic.is_panic()), Ordering::Relaxed);
            }
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
        Ok(())
    }
}

/// What panics while it is decoded, as users' code may.
#[derive(Debug)]
struct Panics;

impl FromRow for Panics {
    fn from_row(_: &Row) -> Result<Self, Error> {
        panic!("{ON_PURPOSE}");
    }
}
