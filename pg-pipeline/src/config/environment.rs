//! The environment: which of libpq's `PG…` variables stands for which option.
//!
//! This module may know names; how variables are read, together with `DATABASE_URL`, is the engine's.

use wire_pipeline::config::environment::Variables;

/// Source: PostgreSQL documentation, "Environment Variables". `PGDATESTYLE`, `PGTZ` and `PGGEQO` are not
/// among them: they would go into the startup message, where poolers refuse them, and have `setup` instead.
pub(super) const VARIABLES: Variables = Variables {
    options: &[
        ("PGHOST", "host"),
        ("PGHOSTADDR", "hostaddr"),
        ("PGPORT", "port"),
        ("PGDATABASE", "dbname"),
        ("PGUSER", "user"),
        ("PGPASSWORD", "password"),
        ("PGPASSFILE", "passfile"),
        ("PGREQUIREAUTH", "require_auth"),
        ("PGCHANNELBINDING", "channel_binding"),
        ("PGSERVICE", "service"),
        ("PGSERVICEFILE", "servicefile"),
        ("PGOPTIONS", "options"),
        ("PGAPPNAME", "application_name"),
        ("PGSSLMODE", "sslmode"),
        ("PGREQUIRESSL", "requiressl"),
        ("PGSSLNEGOTIATION", "sslnegotiation"),
        ("PGSSLCOMPRESSION", "sslcompression"),
        ("PGSSLCERT", "sslcert"),
        ("PGSSLKEY", "sslkey"),
        ("PGSSLCERTMODE", "sslcertmode"),
        ("PGSSLROOTCERT", "sslrootcert"),
        ("PGSSLCRL", "sslcrl"),
        ("PGSSLCRLDIR", "sslcrldir"),
        ("PGSSLSNI", "sslsni"),
        ("PGREQUIREPEER", "requirepeer"),
        ("PGSSLMINPROTOCOLVERSION", "ssl_min_protocol_version"),
        ("PGSSLMAXPROTOCOLVERSION", "ssl_max_protocol_version"),
        ("PGGSSENCMODE", "gssencmode"),
        ("PGKRBSRVNAME", "krbsrvname"),
        ("PGGSSLIB", "gsslib"),
        ("PGGSSDELEGATION", "gssdelegation"),
        ("PGCONNECT_TIMEOUT", "connect_timeout"),
        ("PGCLIENTENCODING", "client_encoding"),
        ("PGTARGETSESSIONATTRS", "target_session_attrs"),
        ("PGLOADBALANCEHOSTS", "load_balance_hosts"),
        ("PGMINPROTOCOLVERSION", "min_protocol_version"),
        ("PGMAXPROTOCOLVERSION", "max_protocol_version"),
    ],
    names_server: &["host", "hostaddr"],
    address: &["host", "hostaddr"],
};
