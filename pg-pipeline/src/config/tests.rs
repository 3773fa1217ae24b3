//! Tables of good and bad configurations, in every form.

use std::ffi::OsString;
use std::future::Future;
use std::path::Path;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use super::*;
use crate::error::{ErrorKind, Outcome};

/// Every character that has ended up in a bug report about passwords.
const PASSWORD: &str = "p@:/?#[]%$ {+é'\\&=;,\"";
const PASSWORD_IN_URL: &str = "p%40%3a%2F%3F%23%5B%5D%25%24%20%7B%2B%C3%A9%27%5C%26%3D%3B%2C%22";

fn config(text: &str) -> Config {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn error(text: &str) -> String {
    let error = text.parse::<Config>().err().unwrap_or_else(|| panic!("{text} was accepted"));
    assert_eq!(error.kind(), ErrorKind::Config, "{text}");
    assert_eq!(error.outcome(), Outcome::NotSent, "{text}");
    error.to_string()
}

fn ready<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("a plain password needs no waiting"),
    }
}

fn password(config: &Config) -> Option<String> {
    // Without one, files would be looked for.
    config.password.is_set().then(|| ready(config.get_password(&tcp("h", 5432))).unwrap().unwrap())
}

fn tcp(name: &str, port: u16) -> Host {
    Host { kind: HostKind::Tcp(name.to_owned(), None), port }
}

fn tcp_at(name: &str, address: &str, port: u16) -> Host {
    Host { kind: HostKind::Tcp(name.to_owned(), Some(address.parse().unwrap())), port }
}

fn unix(directory: &str, port: u16) -> Host {
    Host { kind: HostKind::Unix(directory.into()), port }
}

#[test]
fn hosts_are_read_from_every_form() {
    let cases = [
        ("postgres://", vec![tcp("localhost", 5432)]),
        ("", vec![tcp("localhost", 5432)]),
        ("postgresql://h", vec![tcp("h", 5432)]),
        ("postgresql://h:5433", vec![tcp("h", 5433)]),
        ("postgresql://:5433", vec![tcp("localhost", 5433)]),
        ("postgresql://h:/db", vec![tcp("h", 5432)]),
        ("postgresql://u:p@h:5433/db?application_name=x", vec![tcp("h", 5433)]),
        ("postgresql://[::1]:5433/db", vec![tcp("::1", 5433)]),
        ("postgresql://[2001:db8::1]", vec![tcp("2001:db8::1", 5432)]),
        ("postgresql://a:1,b,c:3/db", vec![tcp("a", 1), tcp("b", 5432), tcp("c", 3)]),
        ("postgresql://a,[::1]:2?port=7", vec![tcp("a", 7), tcp("::1", 7)]),
        ("postgresql://a,b/db?port=7,8", vec![tcp("a", 7), tcp("b", 8)]),
        ("postgresql://%2Fvar%2Frun%2Fpostgresql/db", vec![unix("/var/run/postgresql", 5432)]),
        ("postgresql://%2Ftmp:5433/db", vec![unix("/tmp", 5433)]),
        ("postgresql:///db?host=/tmp&port=5433", vec![unix("/tmp", 5433)]),
        ("postgresql://h/db?hostaddr=10.0.0.1", vec![tcp_at("h", "10.0.0.1", 5432)]),
        ("host=h hostaddr=::1 port=1", vec![tcp_at("h", "::1", 1)]),
        (
            "hostaddr=10.0.0.1,10.0.0.2 port=1",
            vec![tcp_at("10.0.0.1", "10.0.0.1", 1), tcp_at("10.0.0.2", "10.0.0.2", 1)],
        ),
        ("host=a,b hostaddr=,10.0.0.2", vec![tcp("a", 5432), tcp_at("b", "10.0.0.2", 5432)]),
        ("host=/tmp hostaddr=10.0.0.1", vec![tcp_at("/tmp", "10.0.0.1", 5432)]),
        ("host=a,/tmp, port=1,,3", vec![tcp("a", 1), unix("/tmp", 5432), tcp("localhost", 3)]),
    ];
    for (text, expected) in cases {
        assert_eq!(config(text).get_hosts().unwrap(), expected, "{text}");
    }
    let socket = unix("/tmp", 5433).socket_path(Path::new("/tmp"));
    assert_eq!(socket, Path::new("/tmp/.s.PGSQL.5433"));
}

#[test]
fn every_form_takes_every_password() {
    let quoted = PASSWORD.replace('\\', "\\\\").replace('\'', "\\'");
    let bare: String = PASSWORD.chars().flat_map(|c| ['\\', c]).collect();
    for config in [
        config(&format!("postgres://app:{PASSWORD_IN_URL}@h/db")),
        config(&format!("postgres://h/db?user=app&password={PASSWORD_IN_URL}")),
        config(&format!("user=app password='{quoted}' host=h")),
        config(&format!("user=app password={bare} host=h")),
        Config::new().user("app").password(PASSWORD),
        Config::new().user("app").option("password", PASSWORD).unwrap(),
    ] {
        assert_eq!(password(&config).as_deref(), Some(PASSWORD));
        assert_eq!(config.get_user().unwrap(), "app");
        let shown = format!("{config:?} {config:#?}");
        assert!(!shown.contains("p@") && !shown.contains("{+"), "{shown}");
    }
    // As they come, as far as the URL's structure allows.
    assert_eq!(password(&config("postgres://u:p:?#[]$ü+'@h/db")).as_deref(), Some("p:?#[]$ü+'"));
    for text in ["postgres://u@h", "postgres://u:@h", "password=''", "password="] {
        assert_eq!(password(&config(text)), None, "{text}");
    }
}

#[test]
fn names_are_decoded() {
    let config = config("postgres://my%20user:x@h/my%2Fdb?application_name=a+b%26c&options=-c%20geqo%3Doff");
    assert_eq!(config.get_user().unwrap(), "my user");
    assert_eq!(config.get_database(), Some("my/db"));
    assert_eq!(config.get_application_name(), Some("a+b&c"));
    assert_eq!(config.get_server_options(), Some("-c geqo=off"));
}

#[test]
fn key_value_pairs_are_cut_as_libpq_cuts_them() {
    let config = config(
        " host = h\n user='my \\'user\\\\'\tdbname=my\\ db application_name='' port='5433'fallback_application_name=f ",
    );
    assert_eq!(config.get_hosts().unwrap(), [tcp("h", 5433)]);
    assert_eq!(config.get_user().unwrap(), "my 'user\\");
    assert_eq!(config.get_database(), Some("my db"));
    assert_eq!(config.get_application_name(), Some("f"));
}

#[test]
fn the_last_word_counts() {
    let config = config("host=a host=b user=x user=y port=1,2 port=3");
    assert_eq!(config.get_hosts().unwrap(), [tcp("b", 3)]);
    assert_eq!(config.get_user().unwrap(), "y");
    let config = config_from_url_then_builder();
    assert_eq!(config.get_hosts().unwrap(), [tcp("c", 7), tcp("d", 8)]);
}

fn config_from_url_then_builder() -> Config {
    config("postgres://a,b/db").host("x").hosts([("c", 7), ("d", 8)])
}

#[test]
fn errors_name_what_is_wrong_and_show_no_value() {
    let cases = [
        // Broken encoding, in each part.
        ("postgres://u:hunter%zz@h", "password"),
        ("postgres://u:hunter%4@h", "password"),
        ("postgres://u:hunter%@h", "password"),
        ("postgres://u:hunter%é@h", "password"),
        ("postgres://hunter%@h", "user"),
        ("postgres://u@hunter%", "host"),
        ("postgres://u@h:hunter%", "port"),
        ("postgres://u@h/hunter%2", "database name"),
        ("postgres://u@h/db?password=hunter%", "`password`"),
        ("postgres://u@h/db?hunter%=2", "options' names"),
        ("postgres://u:hunter%ff@h", "not UTF-8"),
        ("postgres://u:hunter%00@h", "NUL"),
        ("postgres://u:hunter 2@h", "%20"),
        ("postgres://u:hunter\n2@h", "%20"),
        // A password that is not encoded and tears the URL apart.
        ("postgres://u:hunter/2@h/db", "%2F"),
        ("postgres://u:hunter@2@h/db", "%40"),
        ("postgres://u:hun/ter:2@h/db", "%2F"),
        ("postgres://u:123/hunter@h/db", "%2F"),
        ("postgres://u:a@b/hunter@h/db", "%40"),
        ("postgres://u:@[hunter@h/db", "%5B"),
        ("postgres://u:@[::1]hunter/db", "after `]`"),
        ("postgres://[]/db", "`[`"),
        ("postgres://::1/db", "brackets"),
        ("postgres://u@h/db?password=hunter&2", "no `=`"),
        ("user=u password=hunter 2 host=h", "`password`"),
        ("user=u password='hunter", "`password`"),
        ("user=u password='hunter\\", "`password`"),
        ("user=u password='hunter'2 host=h", "`password`"),
        ("hunter2", "neither a URL"),
        ("=hunter2", "not a word"),
        ("mysql://u:hunter@h/db", "postgres://"),
        ("postgres:/u:hunter@h/db", "neither a URL"),
        // Wrong values.
        ("port=0", "1 and 65535"),
        ("port=65536", "1 and 65535"),
        ("port=-1", "1 and 65535"),
        ("host=a,b port=1,2,3", "3 entries for 2 hosts"),
        ("port=1,2", "2 entries for 1 hosts"),
        ("host=a,b hostaddr=10.0.0.1", "`hostaddr` has 1 entries"),
        ("hostaddr=hunter", "`hostaddr`"),
        ("host='a b'", "`host`"),
        ("host=@abstract", "abstract"),
        ("client_encoding=latin1", "`client_encoding`"),
        ("sslmode=hunter", "`sslmode`"),
        ("sslmode=", "`sslmode`"),
        ("target_session_attrs=hunter", "`target_session_attrs`"),
        ("require_auth=hunter", "`require_auth`"),
        ("keepalives=hunter", "`keepalives`"),
        ("keepalives_idle=-5", "`keepalives_idle`"),
        ("keepalives_count=hunter", "`keepalives_count`"),
        ("tcp_user_timeout=hunter", "`tcp_user_timeout`"),
        ("connect_timeout=0", "`connect_timeout`"),
        ("connect_timeout=-1", "`connect_timeout`"),
        ("connections=0", "between 1 and 1024"),
        ("connections=99999999999999999999", "`connections`"),
        ("queue_bytes=hunter", "`queue_bytes`"),
        // Unknown options are named, unless the name cannot be one.
        ("postgres://h/db?bogus=hunter", "`bogus`"),
        ("bogus=hunter", "`bogus`"),
        ("Host=hunter", "`Host`"),
        ("postgres://h/db?hunter%40=1", "not a word"),
    ];
    for (text, word) in cases {
        let error = error(text);
        assert!(error.contains(word), "{text}: {error}");
        assert!(!error.contains("hunter"), "{text}: {error}");
    }
    let error = Config::new().option("bogus", "hunter").unwrap_err();
    assert!(error.to_string().contains("`bogus`") && !error.to_string().contains("hunter"), "{error}");
    assert_eq!(error.kind(), ErrorKind::Config);
}

/// "Parameter Key Words" of PostgreSQL 18 (and `servicefile`, `oauth_ca_file` of 19), each with a value that asks
/// for nothing special.
const LIBPQ: &[(&str, &str)] = &[
    ("host", "h"),
    ("hostaddr", "10.0.0.1"),
    ("port", "5432"),
    ("dbname", "db"),
    ("user", "u"),
    ("password", "p"),
    ("passfile", ""),
    ("require_auth", "scram-sha-256"),
    ("channel_binding", "prefer"),
    ("connect_timeout", "5"),
    ("client_encoding", "UTF-8"),
    ("options", "-c geqo=off"),
    ("application_name", "a"),
    ("fallback_application_name", "f"),
    ("keepalives", "1"),
    ("keepalives_idle", "60"),
    ("keepalives_interval", "10"),
    ("keepalives_count", "3"),
    ("tcp_user_timeout", "9000"),
    ("replication", "false"),
    ("gssencmode", "prefer"),
    ("sslmode", "prefer"),
    ("requiressl", "0"),
    ("sslnegotiation", "postgres"),
    ("sslcompression", "0"),
    ("sslcert", ""),
    ("sslkey", ""),
    ("sslkeylogfile", ""),
    ("sslpassword", ""),
    ("sslcertmode", "allow"),
    ("sslrootcert", ""),
    ("sslcrl", ""),
    ("sslcrldir", ""),
    ("sslsni", "1"),
    ("requirepeer", ""),
    ("ssl_min_protocol_version", "TLSv1.2"),
    ("ssl_max_protocol_version", "TLSv1.3"),
    ("min_protocol_version", "3.0"),
    ("max_protocol_version", "latest"),
    ("krbsrvname", "postgres"),
    ("gsslib", "gssapi"),
    ("gssdelegation", "0"),
    ("scram_client_key", ""),
    ("scram_server_key", ""),
    ("service", ""),
    ("servicefile", ""),
    ("target_session_attrs", "any"),
    ("load_balance_hosts", "disable"),
    ("oauth_issuer", ""),
    ("oauth_client_id", ""),
    ("oauth_client_secret", ""),
    ("oauth_scope", ""),
    ("oauth_ca_file", ""),
];

#[test]
fn every_option_of_libpq_is_understood() {
    let mut whole = Config::new();
    for (name, value) in LIBPQ {
        whole = whole.option(name, value).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
    whole.validate().unwrap();
    assert_eq!(whole.get_tuning().keepalive.unwrap().idle, Some(Duration::from_secs(60)));
    assert_eq!(whole.get_tuning().keepalive.unwrap().interval, Some(Duration::from_secs(10)));
    assert_eq!(whole.get_tuning().keepalive.unwrap().count, Some(3));
    assert_eq!(whole.get_tuning().user_timeout, Some(Duration::from_secs(9)));
    assert_eq!(whole.pool_options().connect_timeout(), Duration::from_secs(5));
    assert_eq!(whole.get_application_name(), Some("a"));
}

#[test]
fn what_is_not_offered_parses_and_is_refused_when_connecting() {
    let cases = [
        "replication=database",
        "gssencmode=require",
        "gssdelegation=1",
        "requirepeer=postgres",
        "scram_client_key=x",
        "scram_server_key=x",
        "oauth_issuer=x",
        "oauth_client_id=x",
        "oauth_client_secret=x",
        "oauth_scope=x",
        "sslpassword=x",
        "sslkeylogfile=/x",
    ];
    for text in cases {
        let fault = config(text).validate().unwrap_err();
        assert_eq!(fault.kind(), ErrorKind::Config, "{text}");
        let (name, value) = text.split_once('=').unwrap();
        let message = fault.to_string();
        assert!(message.contains(name) && message.contains("does not offer yet"), "{text}: {message}");
        // Taken back, it asks for nothing.
        let neutral = LIBPQ.iter().find(|(known, _)| *known == name).unwrap().1;
        config(text)
            .option(name, neutral)
            .unwrap()
            .validate()
            .unwrap_or_else(|fault| panic!("{text}: {fault}"));
        assert!(name == "sslmode" || !message.contains(&format!("={value}")), "{message}");
    }
    for text in ["requiressl=1", "postgres://h/db?ssl=true"] {
        assert_eq!(config(text).ssl.mode, SslMode::Require, "{text}");
    }
}

#[test]
fn what_contradicts_itself_is_refused_when_connecting() {
    for (text, words) in [
        ("sslrootcert=system sslmode=require", "sslmode=verify-full"),
        ("sslrootcert=system", "sslmode=verify-full"),
        ("sslnegotiation=direct", "sslmode=require"),
        ("sslmode=require sslkey=/x", "`sslcert`"),
        ("ssl_min_protocol_version=TLSv1.3 ssl_max_protocol_version=TLSv1.2", "newer"),
        ("min_protocol_version=3.2 max_protocol_version=3.0", "newer"),
    ] {
        let fault = config(text).validate().unwrap_err();
        assert!(fault.kind() == ErrorKind::Config && fault.to_string().contains(words), "{text}: {fault}");
    }
    for text in [
        "sslmode=verify-full sslrootcert=system sslnegotiation=direct channel_binding=require",
        "sslmode=verify-ca sslrootcert=/x sslcert=/x sslkey=/x sslcrl=/x sslcrldir=/x sslsni=0 sslcertmode=disable",
        "min_protocol_version=3.2 max_protocol_version=latest",
        "target_session_attrs=prefer-standby load_balance_hosts=random passfile=/x",
        "ssl_min_protocol_version=TLSv1 ssl_max_protocol_version=TLSv1.2",
    ] {
        config(text).validate().unwrap_or_else(|fault| panic!("{text}: {fault}"));
    }
    for (text, words) in [
        ("sslcertmode=require", "not offered"),
        ("ssl_max_protocol_version=TLSv1.1", "broken"),
        ("ssl_min_protocol_version=SSLv3", "TLSv1.2"),
        ("channel_binding=maybe", "disable, prefer, require"),
        ("load_balance_hosts=yes", "disable or random"),
        ("max_protocol_version=3.1", "3.0, 3.2, latest"),
    ] {
        assert!(error(text).contains(words), "{text}: {}", error(text));
    }
}

#[test]
fn a_service_lends_its_options_to_what_is_left_open() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("services");
    std::fs::write(&file, "[ours]\nhost=a\nport=7\nuser=b\nsslmode=disable\n").unwrap();
    let shown = file.display().to_string();
    let config = config(&format!("servicefile='{shown}' service=ours user=me"));
    assert_eq!(config.get_hosts().unwrap(), [tcp("a", 7)]);
    assert_eq!(config.get_user().unwrap(), "me");
    assert_eq!(config.ssl.mode, SslMode::Disable);
    let fault = error(&format!("servicefile='{shown}' service=theirs"));
    assert!(fault.contains("`theirs`") && fault.contains("is not in"), "{fault}");
    let lookup = |name: &str| (name == "PGSERVICEFILE").then(|| file.clone().into_os_string());
    let weak = vec![Setting::new("service", "ours".to_owned()), Setting::new("host", "weak".to_owned())];
    let strong = vec![Setting::new("port", "8".to_owned())];
    let config = Config::new().apply_with(weak, strong, lookup).unwrap();
    assert_eq!(config.get_hosts().unwrap(), [tcp("a", 8)], "a service wins over the environment");
}

#[test]
fn what_has_no_effect_is_not_refused() {
    for text in [
        "sslmode=disable sslrootcert=/x sslcert=/y sslkey=/z",
        "sslmode=allow",
        "sslmode=prefer",
        "sslmode=verify-full host=/tmp",
    ] {
        config(text).validate().unwrap_or_else(|fault| panic!("{text}: {fault}"));
    }
}

#[test]
fn the_pools_options_are_read_from_every_form() {
    let text = "connections=3 max_in_flight=1 max_answer_bytes=1MiB answer_budget=1GiB queue_bytes=64kB \
                connect_timeout=2 query_timeout=500ms acquire_timeout=1min statement_cache=0 max_lifetime=0 \
                setup='SET a = 1' setup='SET b = 2'";
    let from_words = config(text);
    let from_url = config(
        "postgres://h?connections=3&max_in_flight=1&max_answer_bytes=1048576&answer_budget=1GB&queue_bytes=65536&\
         connect_timeout=2s&query_timeout=500ms&acquire_timeout=60&statement_cache=0&max_lifetime=0&\
         setup=SET%20a%20%3D%201&setup=SET%20b%20=%202",
    );
    let built = Config::new()
        .connections(3)
        .max_in_flight(1)
        .max_answer_bytes(1 << 20)
        .answer_budget(1 << 30)
        .queue_bytes(65_536)
        .connect_timeout(Duration::from_secs(2))
        .query_timeout(Duration::from_millis(500))
        .acquire_timeout(Duration::from_secs(60))
        .statement_cache(0)
        .max_lifetime(Duration::ZERO)
        .setup(["SET a = 1", "SET b = 2"]);
    for config in [from_words, from_url, built] {
        let options = config.pool_options();
        assert_eq!(options.connections(), 3);
        assert_eq!(options.max_in_flight(), 1);
        assert_eq!(options.max_answer_bytes(), 1 << 20);
        assert_eq!(options.answer_budget(), 1 << 30);
        assert_eq!(options.queue_bytes(), 65_536);
        assert_eq!(options.connect_timeout(), Duration::from_secs(2));
        assert_eq!(options.query_timeout(), Duration::from_millis(500));
        assert_eq!(options.acquire_timeout(), Duration::from_secs(60));
        assert_eq!(options.statement_cache(), 0);
        assert_eq!(options.max_lifetime(), None);
        assert_eq!(options.setup(), ["SET a = 1", "SET b = 2"]);
        config.validate().unwrap();
    }
    for OptionInfo { name, default, .. } in OPTIONS {
        Config::new().option(name, default).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
}

#[test]
fn what_a_builder_cannot_say_at_once_is_said_when_connecting() {
    let cases = [
        (Config::new().connections(0), "`connections`"),
        (Config::new().connections(1025), "`connections`"),
        (Config::new().max_in_flight(0), "`max_in_flight`"),
        (Config::new().query_timeout(Duration::ZERO), "`query_timeout`"),
        (Config::new().port(0), "`port`"),
        (Config::new().host("a b"), "`host`"),
        (Config::new().setup(["SELECT '\0'"]), "`setup`"),
        (Config::new().sslrootcert("system"), "sslrootcert=system"),
    ];
    for (config, word) in cases {
        let fault = config.validate().unwrap_err();
        assert_eq!(fault.kind(), ErrorKind::Config);
        assert!(fault.to_string().contains(word), "{fault}");
    }
}

#[test]
fn the_environment_is_read_with_the_url_first() {
    let read = |variables: &[(&str, &str)]| {
        let lookup =
            |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, v)| OsString::from(v));
        let [variables, url] = VARIABLES.settings(lookup, parse_text)?;
        Config::new().apply_with(variables, url, |_| None)
    };
    let single = read(&[
        ("PGHOST", "a"),
        ("PGHOSTADDR", "10.0.0.1"),
        ("PGPORT", "5433"),
        ("PGUSER", "u"),
        ("PGDATABASE", "d"),
        ("PGPASSWORD", "p"),
        ("PGSSLMODE", "disable"),
        ("PGAPPNAME", "n"),
        ("PGOPTIONS", "-c x=y"),
        ("PGCONNECT_TIMEOUT", "3"),
        ("PGTARGETSESSIONATTRS", "any"),
    ])
    .unwrap();
    assert_eq!(single.get_hosts().unwrap(), [tcp_at("a", "10.0.0.1", 5433)]);
    assert_eq!(single.get_user().unwrap(), "u");
    assert_eq!(single.get_database(), Some("d"));
    assert_eq!(password(&single).as_deref(), Some("p"));
    assert_eq!(single.get_application_name(), Some("n"));
    assert_eq!(single.get_server_options(), Some("-c x=y"));
    assert_eq!(single.pool_options().connect_timeout(), Duration::from_secs(3));

    let both = read(&[
        ("DATABASE_URL", "postgres://x@b/e\n"),
        ("PGHOST", "a"),
        ("PGHOSTADDR", "10.0.0.1"),
        ("PGPORT", "5433"),
        ("PGUSER", "u"),
        ("PGPASSWORD", "p"),
        ("PGAPPNAME", ""),
    ])
    .unwrap();
    assert_eq!(both.get_hosts().unwrap(), [tcp("b", 5433)]);
    assert_eq!(both.get_user().unwrap(), "x");
    assert_eq!(both.get_database(), Some("e"));
    assert_eq!(password(&both).as_deref(), Some("p"));
    assert_eq!(both.get_application_name(), None);

    assert_eq!(read(&[]).unwrap().get_hosts().unwrap(), [tcp("localhost", 5432)]);
    let fault = read(&[("PGSERVICE", "s")]).unwrap_err();
    assert!(
        fault.kind() == ErrorKind::Config && fault.to_string().contains("there is no service file"),
        "{fault}"
    );
    let fault = read(&[("DATABASE_URL", "postgres://u:hunter%@h")]).unwrap_err().to_string();
    assert!(
        fault.starts_with("DATABASE_URL: ") && fault.contains("password") && !fault.contains("hunter"),
        "{fault}"
    );
}

#[cfg(unix)]
#[test]
fn a_variable_that_is_not_text_is_named() {
    use std::os::unix::ffi::OsStringExt;

    let lookup = |name: &str| (name == "PGUSER").then(|| OsString::from_vec(vec![0xff]));
    let fault = VARIABLES.settings(lookup, parse_text).err().unwrap();
    assert!(fault.to_string().contains("PGUSER"), "{fault}");
}

#[test]
fn a_provider_is_asked_every_time_and_its_failure_is_told() {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    let asked = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&asked);
    let config = config("postgres://u:old@h").password_provider(move || {
        let number = counter.fetch_add(1, Ordering::Relaxed);
        async move { if number < 2 { Ok(format!("token-{number}")) } else { Err("vault is sealed".into()) } }
    });
    assert!(format!("{config:?}").contains("<provider>"));
    let copy = config.clone();
    assert_eq!(password(&config).as_deref(), Some("token-0"));
    assert_eq!(password(&copy).as_deref(), Some("token-1"));
    let fault = ready(config.get_password(&tcp("h", 1))).unwrap_err();
    assert_eq!(fault.kind(), ErrorKind::Connect);
    assert!(fault.to_string().ends_with("vault is sealed"), "{fault}");
}

#[test]
fn a_configuration_can_be_shared_and_its_password_awaited_on_any_thread() {
    fn check<T: Send + Sync>(_: &T) {}
    fn check_send<T: Send>(_: &T) {}
    let config = Config::new();
    check(&config);
    check_send(&config.get_password(&tcp("h", 1)));
}

#[test]
fn debug_shows_what_helps_and_nothing_secret() {
    let shown = format!(
        "{:?}",
        config(
            "postgres://u:hunter2@h/db?options=-c%20x.key=hunter2&setup=SET%20x%20=%20'hunter2'&sslpassword=hunter2"
        )
    );
    assert!(!shown.contains("hunter2"), "{shown}");
    for word in ["\"h\"", "\"u\"", "\"db\"", "<hidden>", "1 statements", "sslpassword", "connections: 8"] {
        assert!(shown.contains(word), "{word} in {shown}");
    }
}

#[test]
fn no_text_makes_the_parsers_panic() {
    let seeds = [
        "postgres://u:p%40@[::1]:1,h:2/db?host=/tmp&connections=3&x%3D=é",
        "host='a\\'b' password=é\\ b port=1,2 connections=3",
    ];
    for seed in seeds {
        let letters: Vec<char> = seed.chars().collect();
        for end in 0..=letters.len() {
            let cut: String = letters[..end].iter().collect();
            let _ = cut.parse::<Config>();
            for odd in ["%", "é", "'", "\\", "[", "]", ",", "@", "=", "\0", " ", "/", "?", "&", "://"] {
                let tail: String = letters[end..].iter().collect();
                let _ = format!("{cut}{odd}{tail}").parse::<Config>();
            }
        }
    }
}
