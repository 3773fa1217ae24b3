//! Logging in.

#[path = "topics"]
mod postgres {
    use integration_tests::postgres as side;

    mod authentication;
    mod authentication_of_postgres;
}

#[path = "topics"]
mod mysql {
    use integration_tests::mysql as side;

    mod authentication;
    mod authentication_of_mysql;
}
