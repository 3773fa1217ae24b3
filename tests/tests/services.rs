//! What went wrong in services in production, where no other topic has it.

#![allow(clippy::duplicate_mod, reason = "compiled once for each database")]

#[path = "topics"]
mod postgres {
    use integration_tests::postgres as side;

    mod networks;
    mod services;
    mod services_of_postgres;
}

#[path = "topics"]
mod mysql {
    use integration_tests::mysql as side;

    mod networks;
    mod services;
    mod services_of_mysql;
}
