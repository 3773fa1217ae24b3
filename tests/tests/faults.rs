//! Connections that break.

#![allow(clippy::duplicate_mod, reason = "compiled once for each database")]

#[path = "topics"]
mod postgres {
    use integration_tests::postgres as side;

    mod fault_proxy;
    mod hostile_peers;
    mod hostile_peers_of_postgres;
    mod lost_answers;
    mod lost_connections;
    mod outcomes;
    mod recovery;
    mod statistics;
}

#[path = "topics"]
mod mysql {
    use integration_tests::mysql as side;

    mod fault_proxy;
    mod hostile_peers;
    mod hostile_peers_of_mysql;
    mod lost_answers;
    mod lost_connections;
    mod lost_connections_of_mysql;
    mod outcomes;
    mod recovery;
    mod statistics;
}
