//! What the clients of a run do: every task throws its dice for what comes next.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::{Instant, sleep, timeout};

use crate::account::Account;
use crate::client::{Ask, Database, Failure, Told, VARIANTS};
use crate::dice::Dice;
use crate::log::Log;
use crate::server::Server;
use crate::text::{Args, BULKY, Owner};
use crate::watch::Holders;
use crate::weather::{Features, Settings};

/// How long behind a deadline its caller may be told: the coarse timers of the engine, and rounding.
const SLACK: Duration = Duration::from_millis(25);

/// KiB of the largest argument.
pub const LARGEST: usize = 5;

/// What the tasks of a run share.
pub struct World<D: Database> {
    /// The pool under test.
    pub pool: D::Pool,
    /// Its settings.
    pub settings: Settings,
    /// What the world has beside the plain one.
    pub features: Features,
    /// What callers were told.
    pub account: Arc<Account>,
    /// The server, to be told who waits for what.
    pub server: Arc<Server>,
    /// Who holds leases.
    pub holders: Arc<Holders>,
    /// Where everything is noted.
    pub log: Arc<Log>,
}

impl<D: Database> Clone for World<D> {
    fn clone(&self) -> Self {
        Self {
            pool: self.pool.clone(),
            settings: self.settings.clone(),
            features: self.features,
            account: Arc::clone(&self.account),
            server: Arc::clone(&self.server),
            holders: Arc::clone(&self.holders),
            log: Arc::clone(&self.log),
        }
    }
}

/// When a future is dropped.
#[derive(Debug, Clone, Copy)]
pub enum Patience {
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
                // More of what is tested here than of what the plain world has tested.
                0..25 if self.features.retries => self.retried(&mut dice).await,
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

    pub(crate) fn ask(&self, dice: &mut Dice, owner: i64) -> Ask {
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
        let ask = Ask {
            args: Args { id, owner, work, size: if writes { size.min(0) } else { size } },
            variant: dice.below(VARIANTS as u64) as i64,
            writes,
            timeout: (owner == 0 && dice.happens(200)).then(|| Duration::from_millis(1 + dice.below(100))),
            idempotent: !writes && dice.happens(300),
            bulk: 0,
        };
        self.widen(ask, dice)
    }

    /// What the wide world makes of a statement.
    fn widen(&self, mut ask: Ask, dice: &mut Dice) -> Ask {
        if self.features.classes {
            // The same texts are slow every time, and the others are quick, so that each is known for what it is.
            let slow = ask.variant >= VARIANTS - 2;
            ask.args.work = if slow { 6 + dice.below(60) as i64 } else { 0 };
        }
        // A batch is one request, however many statements it has: these stay small.
        if self.features.bulk && Owner::of(ask.args.owner) != Owner::Batch && dice.happens(600) {
            ask.bulk = 1 + dice.below(LARGEST as u64) as usize;
            ask.variant = BULKY + i64::from(ask.args.work > 0);
        }
        ask
    }

    pub(crate) fn patience(dice: &mut Dice) -> Patience {
        match dice.below(10) {
            0 => Patience::Polls(dice.below(8)),
            1 => Patience::Time(dice.below(60)),
            _ => Patience::Endless,
        }
    }

    /// Runs a call as long as the patience lasts, and takes down how it ended.
    pub(crate) async fn account_for(
        &self,
        ask: Ask,
        patience: Patience,
        call: impl Future<Output = Told>,
    ) -> bool {
        matches!(self.told_of(ask, patience, call).await, Some(Ok(true)))
    }

    /// The same, and gives back what was told; `None` when the future was dropped.
    pub(crate) async fn told_of(
        &self,
        ask: Ask,
        patience: Patience,
        call: impl Future<Output = Told>,
    ) -> Option<Told> {
        let limit = ask.timeout.unwrap_or(self.settings.query_timeout);
        self.log.note("asks", [ask.args.id, ask.args.owner, ask.args.work]);
        let polled = !matches!(patience, Patience::Polls(0));
        self.server.awaited_until(ask.args.id, Instant::now() + limit);
        let told = self.within(limit, patience, call).await;
        self.account.told(ask, polled, told.clone());
        self.check_limits();
        told
    }

    /// Drops the future when the patience is at its end, and checks that it ends in time.
    pub(crate) async fn within<T>(
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

    pub(crate) async fn call(&self, dice: &mut Dice) -> bool {
        let ask = self.ask(dice, 0);
        self.account_for(ask, Self::patience(dice), D::on_pool(&self.pool, ask)).await
    }

    /// A plain write on the pool.
    pub(crate) async fn write(&self) -> bool {
        let args = Args { id: self.account.number(), owner: 0, work: 0, size: 0 };
        let ask = Ask { args, variant: 0, writes: true, timeout: None, idempotent: false, bulk: 0 };
        self.account_for(ask, Patience::Endless, D::on_pool(&self.pool, ask)).await
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

    async fn session(&self, dice: &mut Dice) {
        let owner = Owner::Session.number(self.account.number());
        let limit = self.settings.acquire_timeout;
        let _holding = self.holders.holds();
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
        // On some databases it runs on a lease, up to three times again, each on its own.
        let holding = self.holders.holds_up_to(4);
        for ask in &asks {
            self.server.awaited_until(ask.args.id, Instant::now() + limit);
        }
        let result = self.within(limit, Self::patience(dice), D::batch(&self.pool, &asks)).await;
        drop(holding);
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
        let _holding = self.holders.holds();
        let polls = Patience::Polls(dice.below(6));
        let limit = self.settings.acquire_timeout;
        if dice.happens(500) {
            drop(self.within(limit, polls, D::begin(&self.pool)).await);
        } else {
            drop(self.within(limit, polls, D::session(&self.pool)).await);
        }
    }

    pub(crate) fn look_at(&self, what: &str, result: Option<Result<(), Failure>>) {
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
