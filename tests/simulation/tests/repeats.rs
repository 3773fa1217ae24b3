//! A seed gives the same run, event by event: in one process, beside other threads, and in another process.

use std::process::Command;

use simulation::client::{MySql, Postgres};
use simulation::run::{Report, run, run_all};
use simulation::weather::Scope;

/// Every run begins with other seeds of hash maps, so what depends on their order shows here.
const SEEDS: std::ops::Range<u64> = 0..400;

fn scope() -> Scope {
    Scope::named(std::env::var("WORLD").ok().as_deref())
}

fn both(seed: u64) -> Vec<(&'static str, Report)> {
    vec![("postgres", run::<Postgres>(scope(), seed, false)), ("mysql", run::<MySql>(scope(), seed, false))]
}

#[test]
fn a_seed_gives_the_same_run_each_time() {
    for seed in SEEDS {
        for ((name, first), (_, second)) in both(seed).iter().zip(&both(seed)) {
            assert_eq!((first.hash, first.events), (second.hash, second.events), "{name} seed {seed}");
            assert!(first.events > 0, "{name} seed {seed}");
        }
    }
}

#[test]
fn seeds_differ() {
    let mut hashes: Vec<u64> = SEEDS.map(|seed| run::<Postgres>(scope(), seed, false).hash).collect();
    hashes.sort_unstable();
    hashes.dedup();
    // Some do next to nothing, and that alike.
    let seeds = (SEEDS.end - SEEDS.start) as usize;
    assert!(hashes.len() * 100 > seeds * 95, "{} of {seeds}", hashes.len());
}

/// The child of the test below: prints the sum of all hashes.
#[test]
fn the_sum_of_all_hashes() {
    println!("sum {:?}", run_all(SEEDS, both).0);
}

#[test]
fn another_process_gives_the_same_runs() {
    let sum = || {
        let this = std::env::current_exe().expect("a path");
        let child = Command::new(this)
            .args(["--exact", "the_sum_of_all_hashes", "--nocapture"])
            .output()
            .expect("a child");
        let text = String::from_utf8_lossy(&child.stdout).into_owned();
        text.split_once("sum ").and_then(|(_, rest)| rest.lines().next()).expect("a sum").to_owned()
    };
    assert_eq!(sum(), format!("{:?}", run_all(SEEDS, both).0));
}
