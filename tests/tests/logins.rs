//! Where to, and logging in.

#![allow(clippy::duplicate_mod, reason = "compiled once for each database")]

#[path = "topics"]
mod postgres {
    use integration_tests::postgres as side;

    mod authentication;
    mod authentication_of_postgres;
    mod tls_of_postgres;
}

#[path = "topics"]
mod mysql {
    use integration_tests::mysql as side;

    mod authentication;
    mod authentication_of_mysql;
    mod change_user_of_mysql;
    mod connection_strings_of_mysql;
    mod hostile_logins_of_mysql;
    mod mariadb_of_mysql;
    mod tls_of_mysql;
}
