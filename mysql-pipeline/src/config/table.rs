//! Every option with its names and its meaning.
//!
//! This module may know names, values and reasons; how a value is read is [`set`](super::set)'s. The documentation of
//! [`Config`](super::Config) has the same table for people (`options.md`), and a test compares them.
//!
//! Sources of names and values: MySQL Connector/J, "Configuration Properties"; MariaDB Connector/J, "Parameters";
//! `mysql_async`, `OptsBuilder` and "Connection URL parameters"; sqlx, `MySqlConnectOptions`; MySQL manual, "Command
//! Options for Connecting to the Server".

use wire_pipeline::config::{invalid, units};

use crate::error::Fault;

/// One option by all of its names. `-` in a name is the same as `_`, as MySQL's programs have it.
pub(super) struct Known {
    pub(super) names: &'static [&'static str],
    pub(super) meaning: Meaning,
}

/// What an option does.
#[derive(Clone, Copy)]
pub(super) enum Meaning {
    Host,
    Port,
    Socket,
    User,
    /// Of the first, second or third factor.
    Password(usize),
    Database,
    SslMode,
    SslCa,
    SslCert,
    SslKey,
    SslCrl,
    TlsVersions,
    /// `true` asks for TLS where the server has it, `false` for none.
    UseSsl,
    /// `true` asks for TLS.
    RequireSsl,
    /// `true` asks for a certificate that is signed by a trusted authority.
    VerifyCa,
    /// `true` asks for one that names the host besides.
    VerifyIdentity,
    PublicKeyRetrieval,
    PublicKeyPath,
    ClearText,
    TimeZone,
    Encoding,
    Collation,
    Keepalive,
    /// A plain number is milliseconds.
    KeepaliveIdle,
    KeepaliveInterval,
    KeepaliveCount,
    UserTimeout,
    /// The pool's option of this name, of which a plain number is milliseconds.
    PoolMilliseconds(&'static str),
    /// The pool's option of this name.
    Pool(&'static str),
    SessionVariables,
    /// Tunes what does not exist here: any value, without effect.
    NoEffect,
    /// Understood, and with one value only.
    Always(Rule),
}

/// An option of which only what asks for nothing is accepted.
#[derive(Clone, Copy)]
pub(super) struct Rule {
    /// The value that asks for nothing; `None` for a text of which every value asks for something.
    neutral: Option<bool>,
    /// What the user would get from it, and what to do instead, for the message.
    what: &'static str,
}

const fn known(names: &'static [&'static str], meaning: Meaning) -> Known {
    Known { names, meaning }
}

/// An option of which one value is what holds anyway.
const fn always(names: &'static [&'static str], neutral: bool, what: &'static str) -> Known {
    known(names, Meaning::Always(Rule { neutral: Some(neutral), what }))
}

/// An option of which every value asks for something.
const fn never(names: &'static [&'static str], what: &'static str) -> Known {
    known(names, Meaning::Always(Rule { neutral: None, what }))
}

const COMPRESSION: &str = "compression";
const INFILE: &str = "LOAD DATA LOCAL";
const FETCH: &str = "rows in portions, which streams have by themselves";
const METHOD: &str = "another choice of authentication methods than the server's";
const TIMEOUT: &str = "time limits of reads (set `query_timeout`)";

/// Every option but those of the pool under its own names.
pub(super) const TABLE: &[Known] = &[
    known(&["host"], Meaning::Host),
    known(&["port"], Meaning::Port),
    known(&["socket", "localSocket"], Meaning::Socket),
    known(&["user"], Meaning::User),
    known(&["password", "password1"], Meaning::Password(0)),
    known(&["password2"], Meaning::Password(1)),
    known(&["password3"], Meaning::Password(2)),
    known(&["database", "dbname"], Meaning::Database),
    known(&["sslMode", "ssl_mode", "sslmode"], Meaning::SslMode),
    known(&["ssl_ca", "sslca", "serverSslCert"], Meaning::SslCa),
    known(&["ssl_cert", "sslcert"], Meaning::SslCert),
    known(&["ssl_key", "sslkey"], Meaning::SslKey),
    known(&["ssl_crl"], Meaning::SslCrl),
    known(
        &["tls_version", "tlsVersions", "enabledTLSProtocols", "enabledSslProtocolSuites"],
        Meaning::TlsVersions,
    ),
    known(&["useSSL"], Meaning::UseSsl),
    known(&["requireSSL", "require_ssl"], Meaning::RequireSsl),
    known(&["verifyServerCertificate", "verify_ca"], Meaning::VerifyCa),
    known(&["verify_identity", "ssl_verify_server_cert"], Meaning::VerifyIdentity),
    known(&["allowPublicKeyRetrieval", "get_server_public_key"], Meaning::PublicKeyRetrieval),
    known(
        &["serverRSAPublicKeyFile", "serverRsaPublicKeyFile", "server_public_key_path"],
        Meaning::PublicKeyPath,
    ),
    known(&["enableCleartextPlugin", "enable_cleartext_plugin"], Meaning::ClearText),
    known(&["timeZone", "connectionTimeZone", "serverTimezone", "timezone", "time_zone"], Meaning::TimeZone),
    known(&["characterEncoding", "charset", "default_character_set"], Meaning::Encoding),
    known(&["connectionCollation", "collation"], Meaning::Collation),
    known(&["tcpKeepAlive"], Meaning::Keepalive),
    known(&["tcp_keepalive", "tcp_keepalive_time_ms"], Meaning::KeepaliveIdle),
    known(&["tcp_keepalive_probe_interval_secs"], Meaning::KeepaliveInterval),
    known(&["tcp_keepalive_probe_count"], Meaning::KeepaliveCount),
    known(&["tcp_user_timeout", "tcp_user_timeout_ms"], Meaning::UserTimeout),
    known(&["connectTimeout", "tcp_connect_timeout_ms"], Meaning::PoolMilliseconds("connect_timeout")),
    known(
        &["prepStmtCacheSize", "stmt_cache_size", "statement_cache_capacity"],
        Meaning::Pool("statement_cache"),
    ),
    known(&["abs_conn_ttl"], Meaning::Pool("max_lifetime")),
    known(&["sessionVariables"], Meaning::SessionVariables),
    always(&["tcpNoDelay", "tcp_nodelay"], true, "waiting for more before sending"),
    always(&["useAffectedRows"], false, "counting changed rows instead of matched ones"),
    always(&["client_found_rows"], true, "counting changed rows instead of matched ones"),
    always(&["allowLoadLocalInfile", "local_infile"], false, INFILE),
    never(&["allowLoadLocalInfileInPath"], INFILE),
    always(&["allowUrlInLocalInfile"], false, INFILE),
    always(
        &["allowMultiQueries"],
        false,
        "several statements in one text (use `query_multi` or `batch_execute`)",
    ),
    always(&["useCompression", "compress"], false, COMPRESSION),
    never(&["compression"], COMPRESSION),
    always(&["cachePrepStmts"], true, "statements that are not cached (set `statement_cache`)"),
    always(&["useServerPrepStmts"], true, "statements that are not prepared"),
    always(&["rewriteBatchedStatements"], false, "rewriting batches (use `batch`, which needs no rewriting)"),
    always(&["useCursorFetch"], false, FETCH),
    always(&["useUnicode"], true, "text that is not Unicode"),
    always(&["forceConnectionTimeZoneToSession"], true, "a time zone that the session does not have"),
    always(&["disconnectOnExpiredPasswords"], true, "sessions that can only change the password"),
    always(&["createDatabaseIfNotExist"], false, "creating the database"),
    always(&["dnsSrv"], false, "servers by SRV records"),
    always(&["interactiveClient"], false, "interactive sessions"),
    always(&["secure_auth"], true, "passwords as before MySQL 4.1"),
    always(&["prefer_socket"], false, "asking the server for its socket (set `socket`)"),
    always(&["reset_connection"], true, "sessions that are not reset"),
    never(&["socketTimeout"], TIMEOUT),
    never(&["read_timeout", "write_timeout"], TIMEOUT),
    never(
        &["maxAllowedPacket", "max_allowed_packet"],
        "another limit than the server's own, which it is asked for",
    ),
    never(
        &["wait_timeout", "conn_ttl", "inactive_connection_ttl", "ttl_check_interval"],
        "closing idle connections (set `max_lifetime`)",
    ),
    never(&["abs_conn_ttl_jitter"], "another spread of lifetimes than 10 %"),
    never(&["pool_min", "pool_max"], "a pool that grows and shrinks (set `connections`)"),
    never(&["zeroDateTimeBehavior"], "another reading of dates than their type's"),
    never(&["connectionAttributes"], "attributes of connections"),
    never(&["defaultAuthenticationPlugin", "default_auth"], METHOD),
    never(&["authenticationPlugins", "disabledAuthenticationPlugins", "restrictedAuth"], METHOD),
    never(&["protocol"], "another way to the server than `host` or `socket` names"),
    never(&["plugin_dir"], "loading plugins"),
    never(&["init_command"], "statements of new connections by this name (set `setup`)"),
    known(
        &[
            "autoReconnect",
            "cacheResultSetMetadata",
            "cacheServerConfiguration",
            "defaultFetchSize",
            "elideSetAutoCommits",
            "maintainTimeStats",
            "noAccessToProcedureBodies",
            "paranoid",
            "prepStmtCacheSqlLimit",
            "tinyInt1isBit",
            "useInformationSchema",
            "useLocalSessionState",
            "useLocalTransactionState",
        ],
        Meaning::NoEffect,
    ),
];

/// The option of a name, and its first name.
pub(super) fn find(name: &str) -> Option<&'static Known> {
    let name = name.replace('-', "_");
    TABLE.iter().find(|known| known.names.contains(&&*name))
}

impl Rule {
    /// Whether `value` asks for what is not offered; an error if it is no value of the option `name`.
    pub(super) fn asks(self, name: &str, value: &str) -> Result<bool, Fault> {
        match self.neutral {
            _ if value.is_empty() => Ok(false),
            None => Ok(true),
            Some(neutral) => Ok(units::flag(name, value)? != neutral),
        }
    }

    /// What connecting answers to a value that asks for something.
    pub(super) fn refusal(self, name: &str) -> Fault {
        let next = match self.neutral {
            Some(neutral) => format!("leave it out or set it to {neutral}"),
            None => "leave it out".to_owned(),
        };
        invalid(format!("`{name}` asks for {}, which this version does not offer; {next}", self.what))
    }
}
