//! What is asked and what comes back: queries, values, batches of input, large and small, and changes meanwhile.

#[path = "topics"]
mod postgres {
    use integration_tests::postgres as side;

    mod bad_input;
    mod bad_input_of_postgres;
    mod connection;
    mod large;
    mod notices_of_postgres;
    mod prepared_statements;
    mod prepared_statements_of_postgres;
    mod queries;
    mod schema_changes;
    mod schema_changes_of_postgres;
    mod spawn;
    mod types_of_postgres;
}

#[path = "topics"]
mod mysql {
    use integration_tests::mysql as side;

    mod bad_input;
    mod connection;
    mod large;
    mod large_of_mysql;
    mod prepared_statements;
    mod queries;
    mod queries_of_mysql;
    mod schema_changes;
    mod spawn;
    mod types_of_mysql;
}
