//! Tables of good and bad configurations, in every form.

use std::ffi::OsString;
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
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Config, Outcome::NotSent), "{text}");
    error.to_string()
}

fn password(config: &Config) -> Option<String> {
    match pin!(config.get_passwords()).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(passwords) => passwords.unwrap().0[0].take(),
        Poll::Pending => panic!("a plain password needs no waiting"),
    }
}

fn tcp(name: &str, port: u16) -> Host {
    Host { kind: HostKind::Tcp(name.to_owned()), port, address: None }
}

fn unix(path: &str) -> Host {
    Host { kind: HostKind::Unix(path.into()), port: 3306, address: None }
}

#[test]
fn hosts_are_read_from_the_url() {
    let cases = [
        ("mysql://", vec![tcp("localhost", 3306)]),
        ("mysql://h", vec![tcp("h", 3306)]),
        ("mariadb://h:3307/db", vec![tcp("h", 3307)]),
        ("mysql://u:p@[::1]:3307/db", vec![tcp("::1", 3307)]),
        ("mysql://a:1,b/db", vec![tcp("a", 1), tcp("b", 3306)]),
        ("mysql://h/db?socket=/run/mysqld/mysqld.sock", vec![unix("/run/mysqld/mysqld.sock")]),
        ("mysql://%2Frun%2Fmysqld.sock/db", vec![unix("/run/mysqld.sock")]),
    ];
    for (text, expected) in cases {
        assert_eq!(config(text).get_hosts().unwrap(), expected, "{text}");
    }
}

#[test]
fn credentials_are_decoded_and_never_shown() {
    let config = config(&format!("mysql://us%40er:{PASSWORD_IN_URL}@h/app"));
    assert_eq!(config.get_user().unwrap(), "us@er");
    assert_eq!(password(&config).as_deref(), Some(PASSWORD));
    assert_eq!(config.get_database(), Some("app"));
    let config = config.setup(["SET @secret = 'p@'"]);
    let shown = format!("{config:?}");
    assert!(!shown.contains("p@") && shown.contains("<hidden>"), "{shown}");
}

#[test]
fn options_by_every_name_mean_the_same() {
    for text in [
        "mysql://h/?allowPublicKeyRetrieval=true&sslMode=disabled&connectTimeout=1500",
        "mysql://h/?get-server-public-key=1&ssl-mode=DISABLED&connect_timeout=1500ms",
    ] {
        let config = config(text);
        assert!(matches!(config.get_server_key(), Ok(ServerKey::Ask)));
        assert_eq!(config.ssl.mode, SslMode::Disabled);
        assert_eq!(config.pool_options().connect_timeout().as_millis(), 1500);
        assert!(config.validate().is_ok());
    }
}

#[test]
fn the_documented_options_are_those_of_the_table() {
    let documented: Vec<&str> = include_str!("options.md")
        .lines()
        .filter(|line| line.starts_with("| `"))
        .flat_map(|line| line.splitn(4, '|').skip(1).take(2))
        .flat_map(|cell| cell.split('`').skip(1).step_by(2))
        .collect();
    let (_, without_effect) = include_str!("options.md").split_once("without effect: ").expect("that list");
    let (without_effect, _) = without_effect.split_once(".\n").expect("its end");
    let without_effect: Vec<&str> = without_effect.split('`').skip(1).step_by(2).collect();
    for name in documented.iter().chain(&without_effect) {
        let known = table::find(name).unwrap_or_else(|| panic!("{name} is not known"));
        assert_eq!(
            without_effect.contains(name),
            matches!(known.meaning, table::Meaning::NoEffect),
            "{name}"
        );
    }
    let all: Vec<&str> = table::TABLE.iter().flat_map(|known| known.names).copied().collect();
    for name in &all {
        assert_eq!(all.iter().filter(|other| *other == name).count(), 1, "{name} once");
        let shown = |documented: &&&str| documented.replace('-', "_") == name.replace('-', "_");
        assert!(documented.iter().chain(&without_effect).any(|documented| shown(&documented)), "{name}");
    }
    // None of them hides an option of the pool.
    for info in OPTIONS {
        let own = matches!(info.name, "password");
        assert_eq!(table::find(info.name).is_some(), own, "{}", info.name);
    }
}

#[test]
fn each_option_that_does_something_does_it_by_all_of_its_names() {
    let value = |name: &str| match table::find(name).expect("known").meaning {
        table::Meaning::Host => "h",
        table::Meaning::Port | table::Meaning::KeepaliveCount => "7",
        table::Meaning::SslMode => "DISABLED",
        table::Meaning::PublicKeyRetrieval
        | table::Meaning::ClearText
        | table::Meaning::RequireSsl
        | table::Meaning::VerifyCa
        | table::Meaning::VerifyIdentity => "true",
        table::Meaning::UseSsl => "false",
        table::Meaning::TlsVersions => "TLSv1.3",
        table::Meaning::TimeZone => "+01:00",
        table::Meaning::Collation => "utf8mb4_bin",
        table::Meaning::Keepalive => "off",
        table::Meaning::KeepaliveIdle
        | table::Meaning::KeepaliveInterval
        | table::Meaning::UserTimeout
        | table::Meaning::PoolMilliseconds(_)
        | table::Meaning::Pool(_) => "77",
        table::Meaning::Encoding => "utf8mb4",
        table::Meaning::NoEffect => "whatever",
        table::Meaning::Always(rule) => {
            if rule.asks(name, "true").expect("a value") {
                "true"
            } else {
                "false"
            }
        }
        _ => "text",
    };
    let plain = format!("{:?}", Config::new());
    for known in table::TABLE {
        let idle = matches!(known.meaning, table::Meaning::Encoding | table::Meaning::NoEffect);
        let shown: Vec<String> = known
            .names
            .iter()
            .map(|name| {
                let config =
                    Config::new().option(name, value(name)).unwrap_or_else(|error| panic!("{error}"));
                if let table::Meaning::Always(_) = known.meaning {
                    let error = config.validate().expect_err(name).to_string();
                    assert!(error.contains(&format!("`{name}`")), "{error}");
                    return String::new();
                }
                format!("{config:?}")
            })
            .collect();
        assert!(shown.iter().all(|shown| (shown == &plain) == idle), "{:?}", known.names);
        assert!(shown.windows(2).all(|pair| pair[0] == pair[1]), "{shown:?}");
        let dashed = known.names[0].replace('_', "-");
        assert!(Config::new().option(&dashed, value(known.names[0])).is_ok(), "{dashed}");
    }
}

#[test]
fn an_option_file_is_read_with_its_group_of_clients() {
    let path = std::env::temp_dir().join(format!("my-{}.cnf", std::process::id()));
    std::fs::write(
        &path,
        "[mysqld]\nport=1\n[client]\nuser=app\npassword='s#cret'\nport=3307\nssl-mode=DISABLED\n",
    )
    .unwrap();
    let read = Config::new().user("other").option_file(&path).unwrap().database("app");
    assert_eq!(read.get_user().unwrap(), "app");
    assert_eq!(password(&read).as_deref(), Some("s#cret"));
    assert_eq!((read.get_hosts().unwrap(), read.ssl.mode), (vec![tcp("localhost", 3307)], SslMode::Disabled));
    std::fs::write(&path, "[client]\nhush-hush=secret\n").unwrap();
    let error = Config::new().option_file(&path).unwrap_err().to_string();
    assert!(error.contains("unknown option `hush-hush`") && !error.contains("secret"), "{error}");
    std::fs::remove_file(path).unwrap();
}

#[test]
fn a_session_is_set_up_with_the_drivers_defaults_and_then_the_users() {
    let setup = |text: &str| config(text).get_setup().skip(4).collect::<Vec<_>>();
    assert!(config("mysql://h").get_setup().any(|statement| statement == "SET NAMES utf8mb4"));
    assert_eq!(setup("mysql://h"), ["SET time_zone = '+00:00'"]);
    assert_eq!(setup("mysql://h?timeZone=SERVER&setup=DO%201"), ["DO 1"]);
    assert_eq!(setup("mysql://h?timeZone=Europe/Paris"), ["SET time_zone = 'Europe/Paris'"]);
    assert_eq!(
        setup("mysql://h?sessionVariables=sql_mode='ANSI',%40a=1&timeZone=SERVER&setup=DO%201"),
        ["SET sql_mode='ANSI',@a=1", "DO 1"]
    );
    let names = "SET NAMES utf8mb4 COLLATE utf8mb4_bin";
    assert!(config("mysql://h?collation=utf8mb4_bin").get_setup().any(|statement| statement == names));
    for text in ["timeZone=%27;DROP", "timeZone=LOCAL", "collation=latin1_bin", "collation=utf8mb4_%27"] {
        let name = text.split('=').next().expect("a name");
        assert!(error(&format!("mysql://h?{text}")).contains(name), "{text}");
    }
}

#[test]
fn what_is_wrong_is_named_and_no_value_is_repeated() {
    let cases = [
        ("postgres://h", "mysql://"),
        ("jdbc:mysql://h", "`jdbc:`"),
        ("host=h", "mysql://"),
        ("mysql://h?colour=secret", "`colour`"),
        ("mysql://h:secret", "`port`"),
        ("mysql://h?sslMode=secret", "`sslMode`"),
        ("mysql://h?characterEncoding=secret", "`characterEncoding`"),
        ("mysql://h?allowPublicKeyRetrieval=secret", "`allowPublicKeyRetrieval`"),
        ("mysql://h?connections=0", "`connections`"),
        ("mysql://u:secret/x@h/db", "%40"),
    ];
    for (text, word) in cases {
        let error = error(text);
        assert!(error.contains(word) && !error.contains("secret"), "{text}: {error}");
    }
}

#[test]
fn encryption_has_many_names() {
    for (text, mode) in [
        ("", SslMode::Preferred),
        ("sslMode=REQUIRED", SslMode::Required),
        ("sslmode=require", SslMode::Required),
        ("ssl-mode=verify-full", SslMode::VerifyIdentity),
        ("useSSL=true", SslMode::Preferred),
        ("useSSL=false", SslMode::Disabled),
        ("useSSL=true&requireSSL=true", SslMode::Required),
        ("useSSL=true&requireSSL=true&verifyServerCertificate=true", SslMode::VerifyCa),
        ("require_ssl=true&verify_ca=false", SslMode::Required),
        ("verify_identity=true&require_ssl=true", SslMode::VerifyIdentity),
        ("ssl-verify-server-cert=1", SslMode::VerifyIdentity),
    ] {
        assert_eq!(config(&format!("mysql://h?{text}")).ssl.mode, mode, "{text}");
    }
    let config = config("mysql://h?ssl-ca=/a&sslcert=/b&ssl_key=/c&ssl-crl=/d&tls-version=TLSv1.1,TLSv1.3");
    let Ssl { authority, certificate, key, revoked, versions, .. } = config.ssl;
    let paths = [authority, certificate, key, revoked].map(|path| path.unwrap().display().to_string());
    assert_eq!((paths.join(" ").as_str(), versions), ("/a /b /c /d", vec![ssl::TlsVersion::Tls13]));
    for (text, word) in
        [("tls-version=TLSv1", "still safe"), ("tls-version=SSL", "TLSv1.2"), ("sslMode=", "`sslMode`")]
    {
        let error = error(&format!("mysql://h?{text}"));
        assert!(error.contains(word), "{error}");
    }
}

#[test]
fn what_is_not_offered_is_refused_when_connecting() {
    for (text, word) in [
        ("mysql://h?ssl-cert=/x", "`ssl-key`"),
        ("mysql://h?useAffectedRows=true", "`useAffectedRows`"),
        ("mysql://h?allowLoadLocalInfile=true", "`allowLoadLocalInfile`"),
        ("mysql://h?useCompression=true", "`useCompression`"),
    ] {
        let error = config(text).validate().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config);
        assert!(error.to_string().contains(word), "{text}: {error}");
    }
    for text in [
        "mysql://h?useSSL=false&allowLoadLocalInfile=false&useServerPrepStmts=true",
        "mysql://h?sslMode=REQUIRED&socket=/run/s.sock",
    ] {
        assert!(config(text).validate().is_ok(), "{text}");
    }
}

#[test]
fn the_environment_fills_what_the_url_leaves_open() {
    let read = |pairs: &'static [(&str, &str)]| {
        let lookup = |name: &str| {
            pairs.iter().find(|(known, _)| *known == name).map(|(_, value)| OsString::from(value))
        };
        let settings = VARIABLES.settings(lookup, parse_text);
        settings.and_then(|settings| Config::new().apply(settings.concat()))
    };
    let config = read(&[("MYSQL_HOST", "a"), ("MYSQL_TCP_PORT", "7"), ("MYSQL_PWD", "secret")]).unwrap();
    assert_eq!(config.get_hosts().unwrap(), [tcp("a", 7)]);
    assert_eq!(password(&config).as_deref(), Some("secret"));
    let config = read(&[("DATABASE_URL", "mysql://b"), ("MYSQL_UNIX_PORT", "/s"), ("MYSQL_TCP_PORT", "7")]);
    assert_eq!(config.unwrap().get_hosts().unwrap(), [tcp("b", 3306)]);
    let config =
        read(&[("MYSQL_USER", "u"), ("MYSQL_PASSWORD", "weak"), ("MYSQL_DATABASE", "d"), ("MYSQL_PWD", "p")]);
    let config = config.unwrap();
    assert_eq!((config.get_user().unwrap(), config.get_database()), ("u".to_owned(), Some("d")));
    assert_eq!(password(&config).as_deref(), Some("p"));
    let error = read(&[("DATABASE_URL", "b")]).expect_err("no URL");
    assert!(error.to_string().contains("DATABASE_URL"), "{error}");
}
