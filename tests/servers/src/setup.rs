//! How servers are set up for tests, the same in containers and with private binaries: users, passwords, settings.
//! Only text and numbers; whoever starts a server applies them.

use crate::address::Address;
use crate::probe::postgres::Session;

/// The user who may do everything.
pub(crate) const POSTGRES_USER: &str = "pipeline";
/// The database that tests connect to.
pub(crate) const POSTGRES_DATABASE: &str = "pipeline";
/// Everybody's password.
pub(crate) const PASSWORD: &str = "secret";
/// MySQL's ordinary user, and its database.
pub(crate) const MYSQL_USER: &str = "app";
pub(crate) const MYSQL_DATABASE: &str = "app";

/// `pg_hba.conf`. Addresses are wide open because the server listens on loopback only, and a container sees its
/// clients under an address of the bridge.
pub(crate) const HBA: &str = "\
# TYPE DATABASE USER ADDRESS METHOD
local all trust_user trust
host all trust_user all trust
local all password_user password
host all password_user all password
local all md5_user md5
host all md5_user all md5
hostssl all cert_user all cert
hostssl all tls_user all scram-sha-256
hostnossl all tls_user all reject
hostssl all plain_user all reject
hostnossl all plain_user all scram-sha-256
local all all scram-sha-256
host all all all scram-sha-256
local replication all scram-sha-256
host replication all all scram-sha-256
";

/// PostgreSQL's settings: data is thrown away, so nothing waits for a disk.
pub(crate) const POSTGRES_SETTINGS: &[(&str, &str)] = &[
    ("fsync", "off"),
    ("synchronous_commit", "off"),
    ("full_page_writes", "off"),
    ("max_connections", "400"),
    ("shared_buffers", "128MB"),
    ("max_wal_size", "4GB"),
    ("checkpoint_timeout", "30min"),
    ("track_functions", "none"),
    ("max_prepared_transactions", "20"),
    ("wal_level", "logical"),
    ("password_encryption", "scram-sha-256"),
    ("timezone", "UTC"),
    ("log_timezone", "UTC"),
    ("ssl", "on"),
];

/// What makes PostgreSQL keep what it has acknowledged when its processes die; the machine itself does not.
pub(crate) const POSTGRES_KEEPS: &[&str] = &["-c", "synchronous_commit=on"];
/// The same for MySQL.
pub(crate) const MYSQL_KEEPS: &[&str] = &["--innodb-flush-log-at-trx-commit=2"];

/// MySQL's settings as options of `mysqld`. 64 MiB values need room in a packet.
pub(crate) const MYSQL_OPTIONS: &[&str] = &[
    "--max-allowed-packet=256M",
    "--max-connections=400",
    "--local-infile=ON",
    "--mysqlx=OFF",
    "--skip-log-bin",
    "--skip-name-resolve",
    "--innodb-flush-log-at-trx-commit=0",
    "--innodb-doublewrite=OFF",
    "--character-set-server=utf8mb4",
];

/// MariaDB's settings. It makes its certificate itself.
pub(crate) const MARIADB_OPTIONS: &[&str] = &[
    "--max-allowed-packet=256M",
    "--max-connections=400",
    "--skip-log-bin",
    "--skip-name-resolve",
    "--innodb-flush-log-at-trx-commit=0",
    "--innodb-doublewrite=OFF",
    "--character-set-server=utf8mb4",
    "--plugin-maturity=unknown",
    "--plugin-load-add=auth_ed25519",
    "--plugin-load-add=auth_parsec",
];

/// One user per way of logging in; see [`crate::TEST_ROLES`].
const ROLES: &str = "\
GRANT ALL ON SCHEMA public TO PUBLIC;
CREATE ROLE trust_user LOGIN;
CREATE ROLE password_user LOGIN PASSWORD 'secret';
CREATE ROLE scram_user LOGIN PASSWORD 'secret';
CREATE ROLE cert_user LOGIN;
CREATE ROLE tls_user LOGIN PASSWORD 'secret';
CREATE ROLE plain_user LOGIN PASSWORD 'secret';
SET password_encryption = 'md5';
CREATE ROLE md5_user LOGIN PASSWORD 'secret';
";

/// What MySQL runs whenever it starts.
pub(crate) const MYSQL_INIT: &str = "\
ALTER USER 'root'@'localhost' IDENTIFIED BY 'secret';
CREATE USER IF NOT EXISTS 'root'@'%' IDENTIFIED BY 'secret';
GRANT ALL PRIVILEGES ON *.* TO 'root'@'%' WITH GRANT OPTION;
CREATE DATABASE IF NOT EXISTS app;
CREATE USER IF NOT EXISTS 'app'@'%' IDENTIFIED BY 'secret';
GRANT ALL PRIVILEGES ON app.* TO 'app'@'%';
";

/// What comes first on MariaDB: accounts without a password, which win over the one for every host.
pub(crate) const MARIADB_INIT: &str = "DROP USER IF EXISTS 'root'@'127.0.0.1', 'root'@'::1';\n";

pub(crate) fn postgres_url(port: u16) -> String {
    format!("postgres://{POSTGRES_USER}:{PASSWORD}@127.0.0.1:{port}/{POSTGRES_DATABASE}")
}

pub(crate) fn mysql_url(port: u16) -> String {
    format!("mysql://root:{PASSWORD}@127.0.0.1:{port}/{MYSQL_DATABASE}")
}

/// Creates the users, and tells the server's version.
pub(crate) fn create_roles(url: &str) -> anyhow::Result<String> {
    let mut session = Session::open(&Address::parse(url)?)?;
    session.run(ROLES)?;
    Ok(session.version().to_owned())
}
