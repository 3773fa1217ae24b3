//! Everything that can go wrong, at once. A program of its own, because it counts descriptors and tasks, and needs the
//! machine for itself.

#![allow(clippy::duplicate_mod, reason = "compiled once for each database")]

/// One database after the other.
static ALONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// Panics that say this are part of the test, and are not printed.
fn keep_quiet_on_purpose(words: &'static str) {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if panic.payload().downcast_ref::<String>().is_none_or(|said| said != words) {
                usual(panic);
            }
        }));
    });
}

#[path = "topics"]
mod postgres {
    use integration_tests::postgres as side;

    const KIND: test_servers::Kind = test_servers::Kind::Postgres;

    mod chaos;
}

#[path = "topics"]
mod mysql {
    use integration_tests::mysql as side;

    const KIND: test_servers::Kind = test_servers::Kind::Mysql;

    mod chaos;
}
