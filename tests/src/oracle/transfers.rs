//! Money that moves between accounts in transactions: none is made, none is lost, and what was told of each move holds.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use super::super::{Client, Error, Pool, drop_table, sql, table};
use super::{Known, Oracle, known};
use crate::Random;

const ACCOUNTS: i64 = 20;
const BALANCE: i64 = 1_000;

/// Accounts, and the books of what was moved.
#[derive(Debug)]
pub struct Transfers {
    accounts: String,
    moves: String,
    told: Mutex<Vec<(i64, Known)>>,
}

impl Transfers {
    /// With tables of its own.
    pub async fn new(other: &Pool) -> Self {
        let accounts = table(other, "accounts", "id int8 PRIMARY KEY, balance int8 NOT NULL").await;
        let columns = "nonce int8 PRIMARY KEY, source int8, target int8, amount int8";
        let moves = table(other, "moves", columns).await;
        for id in 0..ACCOUNTS {
            let open = sql(format!("INSERT INTO {accounts} VALUES ($1, {BALANCE})"));
            other.execute(open, (id,)).await.expect("an account");
        }
        Self { accounts, moves, told: Mutex::default() }
    }

    /// Moves an amount from one account to another, and notes it, in one transaction.
    pub async fn transfer(&self, oracle: &Oracle, pool: &Pool, random: &mut Random) -> Result<(), Error> {
        let mut told = ToldLater { transfers: self, nonce: oracle.nonce(), known: Known::NotDone };
        let plan = Plan::new(told.nonce, random);
        let began = Instant::now();
        let committing = AtomicBool::new(false);
        let unit = async {
            let tx = pool.begin().await?;
            self.work(&tx, plan).await?;
            committing.store(true, Ordering::Relaxed);
            tx.commit().await
        };
        told.known = Known::Nothing;
        let result = oracle.note(began, unit.await);
        told.known = match &result {
            Ok(()) => Known::Done,
            Err(error) if committing.into_inner() => known(error),
            // COMMIT was never asked for.
            Err(_) => Known::NotDone,
        };
        result
    }

    /// The same with the runner, which runs it again where that is safe.
    pub async fn transfer_again(
        &self,
        oracle: &Oracle,
        pool: &Pool,
        random: &mut Random,
    ) -> Result<(), Error> {
        let mut told = ToldLater { transfers: self, nonce: oracle.nonce(), known: Known::Nothing };
        let plan = Plan::new(told.nonce, random);
        let began = Instant::now();
        let work = pool.transaction().retries(3).run(async |tx| self.work(&*tx, plan).await);
        let result = oracle.note(began, work.await);
        told.known = result.as_ref().map_or_else(known, |()| Known::Done);
        result
    }

    async fn work(&self, tx: &impl Client, plan: Plan) -> Result<(), Error> {
        let add = sql(format!("UPDATE {} SET balance = balance + $1 WHERE id = $2", self.accounts));
        let record = sql(format!("INSERT INTO {} VALUES ($1, $2, $3, $4)", self.moves));
        let Plan { nonce, source, target, amount } = plan;
        tokio::try_join!(
            tx.execute(&add, (-amount, source)),
            tx.execute(&add, (amount, target)),
            tx.execute(&record, (nonce, source, target, amount)),
        )?;
        Ok(())
    }

    /// How much money there is and how much there should be, and what was told and does not hold. Drops the tables.
    pub async fn settle(&self, other: &Pool) -> (i64, i64, Vec<String>) {
        let mut wrong = Vec::new();
        let mut expected: HashMap<i64, i64> = (0..ACCOUNTS).map(|id| (id, BALANCE)).collect();
        let mut moved = HashSet::new();
        let all = format!("SELECT nonce, source, target, amount FROM {}", self.moves);
        for (nonce, source, target, amount) in
            other.query::<(i64, i64, i64, i64)>(all, ()).await.expect("the moves")
        {
            moved.insert(nonce);
            *expected.entry(source).or_default() -= amount;
            *expected.entry(target).or_default() += amount;
        }
        let all = format!("SELECT id, balance FROM {}", self.accounts);
        let balances: HashMap<i64, i64> =
            other.query::<(i64, i64)>(all, ()).await.expect("the balances").into_iter().collect();
        if balances != expected {
            wrong.push(format!("half of a transaction: {balances:?} in place of {expected:?}"));
        }
        for (nonce, known) in self.told.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            let is_there = moved.remove(&nonce);
            if known != Known::Nothing && is_there != (known == Known::Done) {
                wrong.push(format!("{known:?} was told of move {nonce}; it is there: {is_there}"));
            }
        }
        if !moved.is_empty() {
            wrong.push(format!("nobody asked for the moves {moved:?}"));
        }
        drop_table(other, &self.moves).await;
        drop_table(other, &self.accounts).await;
        (balances.values().sum(), ACCOUNTS * BALANCE, wrong)
    }

    /// How many moves were told to be done.
    pub fn told_done(&self) -> usize {
        self.counts().get(&Known::Done).copied().unwrap_or_default()
    }

    /// How many moves were told to be done, not to be done, or nothing.
    pub fn counts(&self) -> HashMap<Known, usize> {
        let mut counts = HashMap::new();
        for (_, known) in self.told.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            *counts.entry(*known).or_default() += 1;
        }
        counts
    }
}

#[derive(Debug, Clone, Copy)]
struct Plan {
    nonce: i64,
    source: i64,
    target: i64,
    amount: i64,
}

impl Plan {
    fn new(nonce: i64, random: &mut Random) -> Self {
        // Always from the lower to the higher number: no deadlocks.
        let source = random.below(ACCOUNTS as u64 - 1) as i64;
        let target = source + 1 + random.below((ACCOUNTS - source - 1) as u64) as i64;
        Self { nonce, source, target, amount: random.below(100) as i64 }
    }
}

/// What is told of a move when its call is over, however it ends.
struct ToldLater<'a> {
    transfers: &'a Transfers,
    nonce: i64,
    known: Known,
}

impl Drop for ToldLater<'_> {
    fn drop(&mut self) {
        self.transfers.told.lock().unwrap_or_else(PoisonError::into_inner).push((self.nonce, self.known));
    }
}
