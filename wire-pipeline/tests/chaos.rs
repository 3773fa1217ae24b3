//! Everything at once, from seeds: requests of every kind, futures dropped at any time, leases, and connections that
//! die. Whatever happens, what an asker is told is true, and in the end nothing is left.

mod support;

use std::collections::HashSet;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::join_all;
use support::{Ask, Fault, Server, ToyPool, ask, begin, options, pool, run, run_on, until, until_idle};
use tokio::runtime::Handle;
use wire_pipeline::Options;
use wire_pipeline::error::Outcome;
use wire_pipeline::stats::PipeState;

const TASKS: u32 = 40;
const REQUESTS: u32 = 25;

/// An xorshift generator: a seed repeats its numbers.
struct Dice(u64);

impl Dice {
    fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    fn below(&mut self, sides: u32) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((self.0 >> 33) % u64::from(sides)) as u32
    }

    fn request(&mut self, id: u32) -> Ask {
        let request = ask(id).size(self.below(600)).padding(self.below(600) as usize);
        let request = match self.below(10) {
            0..3 => request.takes(Duration::from_millis(u64::from(self.below(15)))),
            3..5 => request.needs(self.below(12)),
            _ => request,
        };
        match self.below(80) {
            0 => request.kills(),
            1 => request.opens(),
            2 => request.touches(),
            3..8 => request.fails(),
            8..10 => request.unwritable(),
            _ => request,
        }
    }
}

/// What askers were told.
#[derive(Default)]
struct Told {
    ok: HashSet<u32>,
    not_sent: HashSet<u32>,
}

impl Told {
    fn note(&mut self, id: u32, answer: Option<Result<(), Fault>>) {
        match answer {
            Some(Ok(())) => drop(self.ok.insert(id)),
            Some(Err(error)) if error.outcome() == Outcome::NotSent => drop(self.not_sent.insert(id)),
            Some(Err(_)) | None => {}
        }
    }
}

async fn task(pool: ToyPool, mut dice: Dice, ids: Arc<AtomicU32>, told: Arc<Mutex<Told>>) {
    let next = || ids.fetch_add(1, Ordering::Relaxed);
    let note = |id, answer| told.lock().expect("unpoisoned").note(id, answer);
    for _ in 0..REQUESTS {
        if dice.below(12) == 0 {
            let patience = Duration::from_millis(u64::from(dice.below(40)));
            let Ok(Ok(lease)) = tokio::time::timeout(patience, pool.lease()).await else { continue };
            if dice.below(2) == 0 {
                lease.set_opening(begin(next()));
            }
            let some: Vec<_> = (0..dice.below(4)).map(|_| dice.request(next())).collect();
            let patience = Duration::from_millis(u64::from(dice.below(30)));
            let all = some.into_iter().map(|request| async {
                let id = request.id;
                note(id, tokio::time::timeout(patience, run_on(&lease, request)).await.ok());
            });
            join_all(all).await;
            continue;
        }
        let id = next();
        let request = dice.request(id);
        if dice.below(4) == 0 {
            let patience = Duration::from_millis(u64::from(dice.below(12)));
            note(id, tokio::time::timeout(patience, run(&pool, request)).await.ok());
        } else {
            note(id, Some(run(&pool, request).await));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_askers_are_told_is_true_and_nothing_is_left() {
    let before = Handle::current().metrics().num_alive_tasks();
    for seed in 0..60 {
        let mut dice = Dice::new(seed);
        let server = Server::with_buffer([256, 4096, 65_536][dice.below(3) as usize]);
        let limits = Options {
            max_in_flight: 1 + dice.below(16) as usize,
            max_lifetime: Duration::from_millis(u64::from(dice.below(2) * 300)),
            ..options(2 + dice.below(3) as usize)
        };
        let pool = pool(&server, limits).await;
        let (ids, told) = (Arc::new(AtomicU32::new(1)), Arc::new(Mutex::new(Told::default())));
        let tasks = (0..TASKS).map(|number| {
            let dice = Dice::new(seed << 32 | u64::from(number) << 8);
            tokio::spawn(task(pool.clone(), dice, Arc::clone(&ids), Arc::clone(&told)))
        });
        for task in join_all(tasks).await {
            task.expect("no panic");
        }
        until("nothing is out and every pipe is shared", || {
            let stats = pool.stats();
            stats.in_flight() == 0
                && stats.leased == 0
                && stats.pipes.iter().all(|pipe| pipe.state == PipeState::Shared)
        })
        .await;
        let asked = server.asked();
        let ran: HashSet<u32> = asked.iter().copied().collect();
        assert_eq!(ran.len(), asked.len(), "seed {seed}: a request ran twice");
        let told = std::mem::take(&mut *told.lock().expect("unpoisoned"));
        assert!(told.ok.is_subset(&ran), "seed {seed}: told OK and never ran");
        assert!(told.not_sent.is_disjoint(&ran), "seed {seed}: told not sent, and it ran");
        assert!(told.ok.len() > 200, "seed {seed}: {}", told.ok.len());
        until_idle(&pool).await;
        drop(pool);
        until("no task is left", || Handle::current().metrics().num_alive_tasks() == before).await;
    }
}
