//! A network that breaks at any byte: what was acknowledged is there once, what was not sent is not there, and nobody
//! waits for ever. The server's own books decide.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use integration_tests::proxy::{Faults, Proxy};
use integration_tests::{Random, eventually, own_name, scale};

use super::side::dialect::upsert;
use super::side::{
    Error, ErrorKind, Outcome, Pool, connections, drop_table, idle, pool, sql, table, through_proxy,
};

/// Connections cut per test; ten times as many in the full run.
const CUTS: u64 = 100;
/// Longer than anything here takes that does not hang.
const LIMIT: Duration = Duration::from_secs(120);

/// A pool whose connections all go through a proxy, and what tells them from others.
async fn broken_pool(topic: &str, faults: Faults) -> (Pool, Proxy, String) {
    let name = own_name(topic);
    let (proxy, config) = through_proxy(&name, faults).await;
    let pool = Pool::builder(config).query_timeout(Duration::from_secs(20)).connect_lazy().expect("a pool");
    (pool, proxy, name)
}

/// What is known of a unit of work from its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Known {
    Done,
    NotDone,
    Nothing,
}

fn known(error: &Error) -> Known {
    assert!(
        matches!(error.kind(), ErrorKind::Io | ErrorKind::Connect | ErrorKind::Timeout | ErrorKind::Closed),
        "the network broke, and nothing else: {error:?}"
    );
    match error.outcome() {
        Outcome::NotSent => Known::NotDone,
        Outcome::Unknown => Known::Nothing,
        other => panic!("a lost connection is no {other:?}"),
    }
}

/// Works until so many connections are cut, then lets the network heal, checks that nothing is left in the pool, and
/// waits until the server has done whatever had reached it.
async fn break_until_enough(pool: &Pool, proxy: &Proxy, name: &str, stop: &AtomicBool, other: &Pool) {
    let enough = CUTS * scale() as u64;
    while proxy.cuts() < enough {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    proxy.heal();
    stop.store(true, Ordering::Relaxed);
    idle(pool).await;
    pool.execute("SELECT 1", ()).await.expect("the pool has healed");
    pool.close().await;
    eventually("the server has none of its connections", || async { connections(other, name).await == 0 })
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_acknowledged_is_there_once_whatever_byte_the_network_breaks_at() {
    let (other, seed) = (pool().await, 1);
    let faults = Faults::cuts(seed, 20_000, 20);
    let (pool, proxy, name) = broken_pool("ledger", faults).await;
    let ledger = table(&other, "ledger", "nonce int8 PRIMARY KEY, n int4 NOT NULL").await;
    let insert = upsert(&ledger);
    let stop = Arc::new(AtomicBool::new(false));
    let tasks: Vec<_> = (0..64_i64)
        .map(|task| {
            let (pool, stop, insert) = (pool.clone(), Arc::clone(&stop), insert.clone());
            tokio::spawn(async move {
                let mut answers = Vec::new();
                for nonce in task * 10_000_000.. {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    answers.push((
                        nonce,
                        match pool.execute(&insert, (nonce,)).await {
                            Ok(_) => Known::Done,
                            Err(error) => known(&error),
                        },
                    ));
                }
                answers
            })
        })
        .collect();
    let work = break_until_enough(&pool, &proxy, &name, &stop, &other);
    tokio::time::timeout(LIMIT * scale() as u32, work).await.expect("nobody waits for ever");
    let mut rows: HashMap<i64, i32> = other
        .query::<(i64, i32)>(format!("SELECT nonce, n FROM {ledger}"), ())
        .await
        .expect("the ledger")
        .into_iter()
        .collect();
    let mut counts: HashMap<Known, usize> = HashMap::new();
    for task in tasks {
        for (nonce, known) in task.await.expect("no task fails") {
            *counts.entry(known).or_default() += 1;
            let times = rows.remove(&nonce).unwrap_or(0);
            match known {
                Known::Done => assert_eq!(times, 1, "seed {seed}: acknowledged, so it ran once"),
                Known::NotDone => assert_eq!(times, 0, "seed {seed}: not sent, so it did not run"),
                Known::Nothing => assert!(times <= 1, "seed {seed}: ran {times} times"),
            }
        }
    }
    assert!(rows.is_empty(), "seed {seed}: nobody asked for {rows:?}");
    println!("{} cuts: {counts:?}", proxy.cuts());
    assert!(counts.contains_key(&Known::Done) && counts.contains_key(&Known::Nothing), "{counts:?}");
    drop_table(&other, &ledger).await;
    other.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transactions_are_whole_whatever_byte_the_network_breaks_at() {
    const ACCOUNTS: i64 = 20;
    let (other, seed) = (pool().await, 2);
    let faults = Faults::cuts(seed, 6_000, 20);
    let (pool, proxy, name) = broken_pool("accounts", faults).await;
    let accounts = table(&other, "accounts", "id int8 PRIMARY KEY, balance int8 NOT NULL").await;
    let moves = table(&other, "moves", "nonce int8 PRIMARY KEY, source int8, target int8, amount int8").await;
    for id in 0..ACCOUNTS {
        other
            .execute(sql(format!("INSERT INTO {accounts} VALUES ($1, 1000)")), (id,))
            .await
            .expect("an account");
    }
    let stop = Arc::new(AtomicBool::new(false));
    let tasks: Vec<_> = (0..24_i64)
        .map(|task| {
            let (pool, stop) = (pool.clone(), Arc::clone(&stop));
            let add = sql(format!("UPDATE {accounts} SET balance = balance + $1 WHERE id = $2"));
            let record = sql(format!("INSERT INTO {moves} VALUES ($1, $2, $3, $4)"));
            tokio::spawn(async move {
                let mut random = Random::new(seed * 1_000 + task as u64 + 1);
                let mut answers = Vec::new();
                for nonce in task * 10_000_000.. {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    // Always from the lower to the higher number: no deadlocks.
                    let source = random.below(ACCOUNTS as u64 - 1) as i64;
                    let target = source + 1 + random.below((ACCOUNTS - source - 1) as u64) as i64;
                    let amount = random.below(100) as i64;
                    let committed = AtomicBool::new(false);
                    let unit = async {
                        let tx = pool.begin().await?;
                        tokio::try_join!(
                            tx.execute(&add, (-amount, source)),
                            tx.execute(&add, (amount, target)),
                            tx.execute(&record, (nonce, source, target, amount)),
                        )?;
                        committed.store(true, Ordering::Relaxed);
                        tx.commit().await
                    };
                    answers.push((
                        nonce,
                        match unit.await {
                            Ok(()) => Known::Done,
                            Err(error) if committed.into_inner() => known(&error),
                            // COMMIT was never asked for.
                            Err(error) => {
                                known(&error);
                                Known::NotDone
                            }
                        },
                    ));
                }
                answers
            })
        })
        .collect();
    let work = break_until_enough(&pool, &proxy, &name, &stop, &other);
    tokio::time::timeout(LIMIT * scale() as u32, work).await.expect("nobody waits for ever");
    let done: Vec<(i64, i64, i64, i64)> = other
        .query(format!("SELECT nonce, source, target, amount FROM {moves}"), ())
        .await
        .expect("the moves");
    let mut expected: HashMap<i64, i64> = (0..ACCOUNTS).map(|id| (id, 1_000)).collect();
    let mut nonces = std::collections::HashSet::new();
    for (nonce, source, target, amount) in done {
        nonces.insert(nonce);
        *expected.entry(source).or_default() -= amount;
        *expected.entry(target).or_default() += amount;
    }
    let balances: HashMap<i64, i64> = other
        .query::<(i64, i64)>(format!("SELECT id, balance FROM {accounts}"), ())
        .await
        .expect("the balances")
        .into_iter()
        .collect();
    assert_eq!(balances, expected, "seed {seed}: every transaction is whole");
    let mut counts: HashMap<Known, usize> = HashMap::new();
    for task in tasks {
        for (nonce, known) in task.await.expect("no task fails") {
            *counts.entry(known).or_default() += 1;
            match known {
                Known::Done => assert!(nonces.contains(&nonce), "seed {seed}: committed"),
                Known::NotDone => assert!(!nonces.contains(&nonce), "seed {seed}: never committed"),
                Known::Nothing => {}
            }
        }
    }
    println!("{} cuts: {counts:?}", proxy.cuts());
    assert!(counts.contains_key(&Known::Done) && counts.contains_key(&Known::NotDone), "{counts:?}");
    drop_table(&other, &moves).await;
    drop_table(&other, &accounts).await;
    other.close().await;
}
