//! Connections that break.

#[path = "topics"]
mod postgres {
    use integration_tests::postgres as side;

    mod fault_proxy;
    mod hostile_peers;
    mod hostile_peers_of_postgres;
    mod lost_connections;
}

#[path = "topics"]
mod mysql {
    use integration_tests::mysql as side;

    mod fault_proxy;
    mod hostile_peers;
    mod lost_connections;
    mod lost_connections_of_mysql;
}
