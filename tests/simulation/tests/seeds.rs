//! Every seed keeps the rules, and gives the same run each time.

use simulation::client::{MySql, Postgres};
use simulation::run::{Report, run, run_all};
use simulation::weather::Scope;

fn scope() -> Scope {
    Scope::named(std::env::var("WORLD").ok().as_deref())
}

fn both(seed: u64) -> Vec<(&'static str, Report)> {
    vec![("postgres", run::<Postgres>(scope(), seed, false)), ("mysql", run::<MySql>(scope(), seed, false))]
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|value| value.parse().expect("a number"))
}

/// `SEEDS=1000000` runs more, `FROM=…` others, `SEED=n` one with a trace.
#[test]
fn every_seed_keeps_the_rules() {
    if let Some(seed) = number("SEED") {
        for report in [run::<Postgres>(scope(), seed, true), run::<MySql>(scope(), seed, true)] {
            println!("{report:#?}");
            assert!(report.violations.is_empty(), "seed {seed} breaks rules");
        }
        return;
    }
    let from = number("FROM").unwrap_or(0);
    let seeds = from..from + number("SEEDS").unwrap_or(10_000);
    let began = std::time::Instant::now();
    let (sum, broken) = run_all(seeds, both);
    println!("{sum:?} in {} s", began.elapsed().as_secs());
    for (name, seed, violations) in &broken {
        println!("{name} seed {seed}: {violations:#?}");
    }
    assert!(broken.is_empty(), "seeds that break rules; SEED=n replays one with a trace");
}
