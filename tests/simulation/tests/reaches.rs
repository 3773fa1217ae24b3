//! The seeds of the suite reach what they are there for: each of these happens, with both drivers.

use simulation::client::{Database, MySql, Postgres};
use simulation::log::Seen;
use simulation::run::run;
use simulation::weather::Scope;

const SEEDS: u64 = 600;

/// What must have happened, and how often at least.
const EVENTS: &[(&str, u64)] = &[
    ("told", 10_000),
    ("commits", 3_000),
    ("link breaks", 300),
    ("savepoint", 120),
    ("inside of a savepoint", 120),
    ("rolls back to", 50),
    ("releases", 50),
    ("part kept", 60),
    ("part undone", 50),
    ("conflict", 70),
    ("attempt", 300),
    ("runs again", 20),
    ("committed when run again", 2),
    ("is to stop", 50),
    ("stops", 30),
    ("stopped too late", 20),
    ("turns read-only", 50),
    ("name leads to", 50),
    ("takes no writes", 100),
    ("is asked whether it is read-only", 25),
    ("machine goes", 25),
    ("machine is back", 8),
    ("writes again", 100),
    ("lease reported", 100),
    ("bytes wait", 200),
    ("waits for a pipe", 1_000),
    ("stalled", 20),
    ("all in time", 20),
];

fn reaches<D: Database>() {
    let mut sum = Seen::new();
    for seed in 0..SEEDS {
        for (what, count) in run::<D>(Scope::Wide, seed, false).seen {
            *sum.entry(what).or_default() += count;
        }
    }
    println!("{}: {sum:#?}", D::NAME);
    let rare = |(what, least): &&(&str, u64)| sum.get(what).is_none_or(|count| count < least);
    let rare: Vec<_> = EVENTS.iter().filter(rare).collect();
    // A run takes panics down, and prints none.
    println!("{} rare: {rare:?}", D::NAME);
    assert!(rare.is_empty(), "{}: rare: {rare:?}", D::NAME);
}

#[test]
fn seeds_with_postgres_reach_everything() {
    reaches::<Postgres>();
}

#[test]
fn seeds_with_mysql_reach_everything() {
    reaches::<MySql>();
}
