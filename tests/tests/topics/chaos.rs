//! Everything at once: see `tests/src/chaos`. `CHAOS_SECONDS` says for how long (30), `CHAOS_SEED` in which order (1).

use std::time::Duration;

use super::side::chaos;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn under_full_load_with_everything_going_wrong_nothing_is_mixed_up_lost_doubled_or_left_behind() {
    let _alone = super::super::ALONE.lock().await;
    super::super::keep_quiet_on_purpose(chaos::ON_PURPOSE);
    let number =
        |name: &str, usual| std::env::var(name).map_or(usual, |value| value.parse().expect("a number"));
    let report =
        chaos::run(super::KIND, number("CHAOS_SEED", 1), Duration::from_secs(number("CHAOS_SECONDS", 30)))
            .await;
    println!("{report}");
    report.assert_right();
}
