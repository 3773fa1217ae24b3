//! What the clients of a run do: every task throws its dice for what comes next.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::{Instant, sleep, timeout};

use crate::account::{Account, End};
use crate::client::{Ask, Database, Failure, Told, VARIANTS};
use crate::dice::Dice;
use crate::log::Log;
use crate::server::{Args, Owner};
use crate::weather::Settings;

/// How long behind a deadline its caller may be told: the coarse timers of the engine, and rounding.
const SLACK: Duration = Duration::from_millis(25);

/// What the tasks of a run share.
pub struct World<D: Database> {
    /// The pool under test.
    pub pool: D::Pool,
    /// Its settings.
    pub settings: Settings,
    /// What callers were told.
    pub account: Arc<Account>,
    /// Where everything is noted.
    pub log: Arc<Log>,
}

impl<D: Database> Clone for World<D> {
    fn clone(&self) -> Self {
        Self {
            pool: self.pool.clone(),
            settings: self.settings.clone(),
            account: Arc::clone(&self.account),
            log: Arc::clone(&self.log),
        }
    }
}

/// When a future is dropped.
#[derive(Debug, Clone, Copy)]
enum Patience {
    /// When it is over.
    Endless,
    /// After so many polls.
    Polls(u64),
    /// After so many milliseconds.
    Time(u64),
}

impl<D: Database> World<D> {
    /// One client: so many things one after the other.
    pub async fn client(self, mut dice: Dice, things: u64) {
        for _ in 0..things {
            self.check_limits();
            match dice.below(100) {
                0..30 => drop(self.call(&mut dice).await),
                30..55 => self.burst(&mut dice).await,
                55..75 => self.transaction(&mut dice).await,
                75..83 => self.session(&mut dice).await,
                83..92 => self.batch(&mut dice).await,
                92..94 => self.forbidden().await,
                94..96 => self.give_up_a_lease(&mut dice).await,
                _ => sleep(Duration::from_millis(dice.below(300))).await,
            }
        }
    }

    /// What the pool tells of itself lies within its limits.
    fn check_limits(&self) {
        let stats = D::stats(&self.pool);
        let Settings { connections, max_in_flight, answer_budget, .. } = self.settings;
        let most = connections * max_in_flight;
        let leases = if connections > 2 { connections - 2 } else { connections - 1 };
        // Statements on leases have limits of their own.
        if stats.pipes.iter().any(|pipe| pipe.in_flight > max_in_flight)
            || stats.waiting > most
            || stats.leased > leases
            || stats.answer_bytes > answer_budget
        {
            self.log.violation(format!("over its limits: {stats:?}"));
        }
    }

    fn ask(&self, dice: &mut Dice, owner: i64) -> Ask {
        let size = match dice.below(20) {
            0 => -1,
            1 => dice.below(3000) as i64,
            _ => dice.below(60) as i64,
        };
        let work = match dice.below(12) {
            0 => dice.below(60) as i64,
            1 if dice.happens(300) => dice.below(3000) as i64,
            _ => 0,
        };
        let id = self.account.number();
        let writes = dice.happens(500);
        Ask {
            args: Args { id, owner, work, size: if writes { size.min(0) } else { size } },
            variant: dice.below(VARIANTS as u64) as i64,
            writes,
            timeout: (owner == 0 && dice.happens(200)).then(|| Duration::from_millis(1 + dice.below(100))),
            idempotent: !writes && dice.happens(300),
        }
    }

    fn patience(dice: &mut Dice) -> Patience {
        match dice.below(10) {
            0 => Patience::Polls(dice.below(8)),
            1 => Patience::Time(dice.below(60)),
            _ => Patience::Endless,
        }
    }

    /// Runs a call as long as the patience lasts, and takes down how it ended.
    async fn account_for(&self, ask: Ask, patience: Patience, call: impl Future<Output = Told>) -> bool {
        let limit = ask.timeout.unwrap_or(self.settings.query_timeout);
        self.log.note("asks", [ask.args.id, ask.args.owner, ask.args.work]);
        let polled = !matches!(patience, Patience::Polls(0));
        let told = self.within(limit, patience, call).await;
        let fine = matches!(told, Some(Ok(true)));
        self.account.told(ask, polled, told);
        fine
    }

    /// Drops the future when the patience is at its end, and checks that it ends in time.
    async fn within<T>(
        &self,
        limit: Duration,
        patience: Patience,
        future: impl Future<Output = T>,
    ) -> Option<T> {
        let began = Instant::now();
        let future = pin!(future);
        let output = match patience {
            Patience::Endless => Some(future.await),
            Patience::Polls(polls) => poll_then_drop(future, polls).await,
            Patience::Time(time) => timeout(Duration::from_millis(time), future).await.ok(),
        };
        if began.elapsed() > limit + SLACK {
            self.log.violation(format!(
                "told after {} ms with a limit of {} ms",
                began.elapsed().as_millis(),
                limit.as_millis()
            ));
        }
        output
    }

    async fn call(&self, dice: &mut Dice) -> bool {
        let ask = self.ask(dice, 0);
        self.account_for(ask, Self::patience(dice), D::on_pool(&self.pool, ask)).await
    }

    async fn burst(&self, dice: &mut Dice) {
        let most = dice.pick(&[3, 8, 20]);
        let calls: Vec<_> = (0..=dice.below(most))
            .map(|_| {
                let ask = self.ask(dice, 0);
                self.account_for(ask, Self::patience(dice), D::on_pool(&self.pool, ask))
            })
            .collect();
        join_all(calls).await;
    }

    async fn transaction(&self, dice: &mut Dice) {
        let owner = Owner::Transaction.number(self.account.number());
        let limit = self.settings.acquire_timeout;
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

    async fn session(&self, dice: &mut Dice) {
        let owner = Owner::Session.number(self.account.number());
        let limit = self.settings.acquire_timeout;
        let taken = self.within(limit, Self::patience(dice), D::session(&self.pool)).await;
        let session = match taken {
            Some(Ok(session)) => session,
            Some(Err(failure)) => return self.account.look_at("session", &failure),
            None => return,
        };
        let limit = self.settings.query_timeout;
        if dice.happens(600) {
            let text = format!("SET marker = {owner}");
            let done = self.within(limit, Self::patience(dice), D::script(&session, &text)).await;
            self.look_at("script", done);
        }
        for _ in 0..dice.below(4) {
            let ask = self.ask(dice, owner);
            self.account_for(ask, Self::patience(dice), D::on_session(&session, ask)).await;
        }
        if dice.happens(300) {
            // Left open: nobody else may see it, and nothing of it stays.
            let owner = Owner::Session.number(self.account.number());
            let done = self.within(limit, Self::patience(dice), D::script(&session, "BEGIN")).await;
            self.look_at("script", done);
            self.log.note("leaves open", [owner, 0, 0]);
        }
    }

    async fn batch(&self, dice: &mut Dice) {
        let owner = Owner::Batch.number(self.account.number());
        let asks: Vec<Ask> = (0..=dice.below(4)).map(|_| self.ask(dice, owner)).collect();
        let limit = self.settings.query_timeout;
        let result = self.within(limit, Self::patience(dice), D::batch(&self.pool, &asks)).await;
        for ask in &asks {
            // All of them or none.
            let told = result.as_ref().map(|result| result.clone().map(|()| true));
            self.account.told(*ask, true, told);
        }
        self.account.concluded(owner, result);
    }

    async fn forbidden(&self) {
        match D::forbidden(&self.pool).await {
            Ok(()) => self.log.violation("a shared connection took a BEGIN"),
            Err(failure) => self.account.look_at("forbidden", &failure),
        }
    }

    async fn give_up_a_lease(&self, dice: &mut Dice) {
        let polls = Patience::Polls(dice.below(6));
        let limit = self.settings.acquire_timeout;
        if dice.happens(500) {
            drop(self.within(limit, polls, D::begin(&self.pool)).await);
        } else {
            drop(self.within(limit, polls, D::session(&self.pool)).await);
        }
    }

    fn look_at(&self, what: &str, result: Option<Result<(), Failure>>) {
        if let Some(Err(failure)) = result {
            self.account.look_at(what, &failure);
        }
    }
}

/// Polls a future so many times, whenever it is woken or others had their turn, and leaves it then.
async fn poll_then_drop<F: Future>(mut future: Pin<&mut F>, polls: u64) -> Option<F::Output> {
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
        tokio::task::yield_now().await;
    }
    None
}
