//! Transactions: with savepoints, and run again when others were in their way.

use std::pin::Pin;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;

use pg_pipeline::Outcome;

use crate::account::End;
use crate::client::{Database, Failure};
use crate::dice::Dice;
use crate::text::Owner;
use crate::weather::Settings;
use crate::world::{Patience, World};

/// No savepoint is set deeper than this.
const DEEPEST: u32 = 3;

/// One run of work that may be run again.
#[derive(Debug, Clone, Copy)]
struct Attempt {
    owner: i64,
    /// It has asked to be committed.
    done: bool,
}

impl<D: Database> World<D> {
    /// A transaction, committed or not.
    pub async fn transaction(&self, dice: &mut Dice) {
        let owner = Owner::Transaction.number(self.account.number());
        let limit = self.settings.acquire_timeout;
        let _holding = self.holders.holds();
        let begun = self.within(limit, Self::patience(dice), D::begin(&self.pool)).await;
        let transaction = match begun {
            Some(Ok(transaction)) => transaction,
            Some(Err(failure)) => return self.account.look_at("begin", &failure),
            None => return,
        };
        self.log.note("begins", [owner, 0, 0]);
        for _ in 0..dice.below(3) {
            let calls: Vec<_> = (0..=dice.below(3))
                .map(|_| {
                    let ask = self.ask(dice, owner);
                    self.account_for(ask, Self::patience(dice), D::in_transaction(&transaction, ask))
                })
                .collect();
            join_all(calls).await;
            if self.features.savepoints && dice.happens(400) {
                self.part(dice, owner, &transaction).await;
            }
        }
        if dice.happens(200) {
            // Somebody who holds a transaction uses the pool.
            self.call(dice).await;
        }
        let limit = self.settings.query_timeout;
        match dice.below(10) {
            0 => {
                drop(transaction);
                self.account.ended(owner, End::Dropped(false));
            }
            1 => {
                let result = self.within(limit, Self::patience(dice), D::roll_back(transaction)).await;
                if let Some(Err(failure)) = &result {
                    self.account.look_at("rollback", failure);
                }
                self.account.ended(owner, End::Dropped(false));
            }
            _ => {
                let result = self.within(limit, Self::patience(dice), D::commit(transaction)).await;
                self.account.concluded(owner, result);
            }
        }
    }

    /// A savepoint, with statements and perhaps another one inside of it.
    async fn part(&self, dice: &mut Dice, owner: i64, on: &D::Transaction) {
        let mark = self.account.number();
        let limit = self.settings.query_timeout;
        match self.within(limit, Self::patience(dice), D::savepoint(on)).await {
            Some(Ok(savepoint)) => self.inside(dice, owner, savepoint, mark, 1).await,
            // Nobody has got a handle of it: it stays without effect.
            Some(Err(failure)) => self.account.look_at("savepoint", &failure),
            None => {}
        }
    }

    fn inside<'w>(
        &'w self,
        dice: &'w mut Dice,
        owner: i64,
        savepoint: D::Savepoint<'w>,
        mark: i64,
        depth: u32,
    ) -> Pin<Box<dyn Future<Output = ()> + Send + 'w>> {
        Box::pin(async move {
            self.log.note("inside of a savepoint", [owner, mark, i64::from(depth)]);
            let limit = self.settings.query_timeout;
            for _ in 0..dice.below(3) {
                let calls: Vec<_> = (0..=dice.below(2))
                    .map(|_| {
                        let ask = self.ask(dice, owner);
                        self.account_for(ask, Self::patience(dice), D::in_savepoint(&savepoint, ask))
                    })
                    .collect();
                join_all(calls).await;
                if depth < DEEPEST && dice.happens(250) {
                    let mark = self.account.number();
                    let set = D::savepoint_in(&savepoint);
                    match self.within(limit, Self::patience(dice), set).await {
                        Some(Ok(inner)) => self.inside(dice, owner, inner, mark, depth + 1).await,
                        Some(Err(failure)) => self.account.look_at("savepoint", &failure),
                        None => {}
                    }
                }
            }
            let kept = match dice.below(5) {
                0 => {
                    drop(savepoint);
                    false
                }
                1 => {
                    let undone = self.within(limit, Self::patience(dice), D::undo(savepoint)).await;
                    self.look_at("rollback of a savepoint", undone);
                    false
                }
                _ => {
                    let kept = self.within(limit, Self::patience(dice), D::keep(savepoint)).await;
                    // What the server refuses to keep is undone; whatever else happens, it is kept.
                    let refused = matches!(&kept, Some(Err(Failure { outcome: Outcome::Failed, .. })));
                    self.look_at("commit of a savepoint", kept);
                    !refused
                }
            };
            self.log.note(if kept { "part kept" } else { "part undone" }, [owner, mark, i64::from(depth)]);
            if !kept {
                self.account.undone_since(owner, mark);
            }
        })
    }

    /// Work in a transaction that is run again when others were in its way.
    pub async fn retried(&self, dice: &mut Dice) {
        let retries = dice.below(4) as u32;
        let attempts: Mutex<Vec<Attempt>> = Mutex::default();
        let at = || attempts.lock().unwrap_or_else(PoisonError::into_inner);
        let seed = dice.below(u64::MAX);
        let holding = self.holders.holds();
        let work = |tx: D::Tx| {
            let owner = Owner::Transaction.number(self.account.number());
            let number = {
                let mut attempts = at();
                attempts.push(Attempt { owner, done: false });
                attempts.len()
            };
            if number > 1 {
                self.log.note("runs again", [owner, number as i64, 0]);
                holding.gave_back(1);
            }
            self.log.note("attempt", [owner, number as i64, i64::from(retries)]);
            let at = &at;
            async move {
                let result = self.work(Dice::new(seed, number as u64), owner, &tx).await;
                if let Some(attempt) = at().last_mut() {
                    attempt.done = result.is_ok();
                }
                result
            }
        };
        let Settings { acquire_timeout, query_timeout, .. } = self.settings;
        // Every run may have a savepoint and several statements one after the other; the waits are 500 ms at most.
        let limit = (acquire_timeout + query_timeout * 30 + Duration::from_millis(500)) * (retries + 1);
        let patience = match dice.below(10) {
            0 => Patience::Polls(dice.below(30)),
            1 => Patience::Time(dice.below(200)),
            _ => Patience::Endless,
        };
        let told = self.within(limit, patience, D::run(&self.pool, retries, work)).await;
        drop(holding);
        let attempts = attempts.into_inner().unwrap_or_else(PoisonError::into_inner);
        if attempts.len() > retries as usize + 1 {
            self.log.violation(format!("{} attempts with {retries} retries", attempts.len()));
        }
        let Some((last, earlier)) = attempts.split_last() else {
            return self.look_at("run", told);
        };
        for attempt in earlier {
            self.account.ended(attempt.owner, End::Dropped(false));
        }
        if matches!(told, Some(Ok(()))) && !earlier.is_empty() {
            self.log.note("committed when run again", [last.owner, 0, 0]);
        }
        match told {
            Some(Ok(())) if !last.done => self.log.violation("committed what had not asked for it"),
            told if last.done => self.account.concluded(last.owner, told),
            told => {
                // It was never asked to be committed.
                self.look_at("run", told);
                self.account.ended(last.owner, End::Dropped(false));
            }
        }
    }

    /// What is run again.
    async fn work(&self, mut dice: Dice, owner: i64, tx: &D::Tx) -> Result<(), Failure> {
        for _ in 0..=dice.below(3) {
            let calls: Vec<_> = (0..=dice.below(2))
                .map(|_| {
                    let ask = self.ask(&mut dice, owner);
                    self.told_of(ask, Self::patience(&mut dice), D::in_transaction(tx, ask))
                })
                .collect();
            for told in join_all(calls).await.into_iter().flatten() {
                // Some look at errors, and some go on as if nothing were.
                if told.is_err() && dice.happens(700) {
                    return told.map(drop);
                }
            }
            if self.features.savepoints && dice.happens(300) {
                self.part(&mut dice, owner, tx).await;
            }
        }
        if dice.happens(100) {
            return Err(Failure::own());
        }
        Ok(())
    }
}
