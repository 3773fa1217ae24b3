//! The environment: which of the mysql client's variables stands for which option.
//!
//! This module may know names; how variables are read, together with `DATABASE_URL`, is the engine's.

use wire_pipeline::config::environment::Variables;

/// Source: MySQL manual, "Environment Variables"; for the first three, the documentation of the official images.
pub(super) const VARIABLES: Variables = Variables {
    options: &[
        ("MYSQL_USER", "user"),
        ("MYSQL_PASSWORD", "password"),
        ("MYSQL_DATABASE", "database"),
        ("MYSQL_HOST", "host"),
        ("MYSQL_TCP_PORT", "port"),
        ("MYSQL_UNIX_PORT", "socket"),
        ("MYSQL_PWD", "password"),
    ],
    names_server: &["host", "socket"],
    address: &["host", "port", "socket"],
};
