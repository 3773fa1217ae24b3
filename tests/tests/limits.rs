//! More than a pool can take at once. A program of its own, because it looks at its memory.

#![allow(clippy::duplicate_mod, reason = "compiled once for each database")]

/// Held by whoever measures what all tests of this program share.
static MEASURING: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

#[path = "topics"]
mod postgres {
    use integration_tests::postgres as side;

    mod limits;
}

#[path = "topics"]
mod mysql {
    use integration_tests::mysql as side;

    mod limits;
}
