//! Whose connection it is: leases, sessions, transactions, batches.

#![allow(clippy::duplicate_mod, reason = "compiled once for each database")]

#[path = "topics"]
mod postgres {
    use integration_tests::postgres as side;

    mod batches;
    mod batches_of_postgres;
    mod isolation;
    mod leases;
    mod retries;
    mod savepoints;
    mod session_state;
    mod session_state_of_postgres;
    mod transactions;
    mod transactions_of_postgres;
}

#[path = "topics"]
mod mysql {
    use integration_tests::mysql as side;

    mod batches;
    mod batches_of_mysql;
    mod isolation;
    mod leases;
    mod retries;
    mod savepoints;
    mod session_state;
    mod session_state_of_mysql;
    mod transactions;
    mod transactions_of_mysql;
}
