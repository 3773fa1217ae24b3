//! Seeds that found something, with what it was. They run in every suite, however many others do.

use simulation::client::{MySql, Postgres};
use simulation::run::run;
use simulation::weather::Scope;

#[derive(Debug, Clone, Copy)]
enum Driver {
    Postgres,
    MySql,
}

use Driver::{MySql as My, Postgres as Pg};

/// In the plain world.
const PINNED: &[(Driver, u64, &str)] = &[
    (Pg, 60, "BEGIN failed, and what was sent behind the transaction's first statement ran outside of it"),
    (Pg, 69, "the same, where the first statement had to be learnt"),
    (Pg, 160, "the same, with several statements behind it"),
    (Pg, 172, "the same, and one of its writes was there although COMMIT had failed"),
    (
        My,
        69,
        "a transaction that came back was committed, because its ROLLBACK was refused and autocommit went on",
    ),
    (My, 140, "the same, of a transaction whose rollback() was dropped half-way"),
    (Pg, 281, "an idempotent read ran, its connection was lost, and the second run's NotSent was reported"),
    (Pg, 828, "the same"),
    (My, 191, "the same in the other driver"),
    (My, 1457, "the same in the other driver"),
    (
        My,
        100_791,
        "a statement's time ran out, then it was a deadlock's victim, and COMMIT behind it was told to be well",
    ),
];

/// In the wide world.
const PINNED_WIDE: &[(Driver, u64, &str)] = &[
    (Pg, 533, "what was queued while a request to stop was on its way, alone, missed its deadline"),
    (Pg, 588, "the same, by half a second"),
    (My, 273, "a session was put right while a request to stop was on its way, which could have hit that"),
    (
        Pg,
        41_336,
        "of a savepoint that could not be kept, because one inside of it could not be undone, the work stayed",
    ),
    (Pg, 303_303, "the same"),
    (My, 486_067, "the same in the other driver"),
    (
        My,
        482_545,
        "a row came in two pieces, and the answer to another question was taken for the largest packet",
    ),
];

#[test]
fn what_was_found_stays_mended() {
    let plain = PINNED.iter().map(|pinned| (Scope::Plain, pinned));
    let wide = PINNED_WIDE.iter().map(|pinned| (Scope::Wide, pinned));
    for (scope, (driver, seed, found)) in plain.chain(wide) {
        let report = match driver {
            Driver::Postgres => run::<Postgres>(scope, *seed, false),
            Driver::MySql => run::<MySql>(scope, *seed, false),
        };
        assert!(report.violations.is_empty(), "{driver:?} {seed} ({found}): {:#?}", report.violations);
    }
}
