//! PostgreSQL from packages. `initdb` starts `postgres` by itself, so the programs are patched to find the private
//! C library without help.

use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use rustix::process::Signal;

use super::account::Account;
use super::process::{Running, free_port, run_to_end};
use super::root::{Recipe, Root};
use crate::address::Address;
use crate::probe::{self, postgres::Session};
use crate::server::{Facts, Kind, Origin};
use crate::setup;
use crate::supervisor::Record;
use crate::tls::Certificates;

const PROGRAMS: &str = "usr/lib/postgresql/18/bin";

const RECIPE: Recipe = Recipe {
    name: "postgresql-18",
    packages: &["postgresql-18", "patchelf"],
    alone: &[],
    suites: &["testing", "unstable"],
    patched: Some(PROGRAMS),
};

// Fast shutdown, then immediate shutdown: both take the backends along (PostgreSQL docs, "Shutting Down the Server").
const SIGNALS: &[(Signal, Duration)] =
    &[(Signal::INT, Duration::from_secs(3)), (Signal::QUIT, Duration::from_secs(5))];

pub(super) fn install(note: &dyn Fn(&str)) -> anyhow::Result<Root> {
    Root::get(&RECIPE, note)
}

pub(super) fn start(
    temporary: &Path,
    may_be_killed: bool,
    record: &Record,
    note: &dyn Fn(&str),
) -> anyhow::Result<(Facts, Running)> {
    let root = install(note)?;
    let account = Account::for_servers();
    let folder = temporary.join("postgres");
    account.create_folder(&folder)?;
    let data = folder.join("data");
    initialise(&root, account, &folder, &data)?;
    let certificates = Certificates::issue()?;
    account.write_file(&folder.join("pg_hba.conf"), setup::HBA)?;
    account.write_file(&folder.join("server.key"), &certificates.key)?;
    account.write_file(&folder.join("server.crt"), &certificates.certificate)?;
    account.write_file(&folder.join("ca.crt"), &certificates.authority)?;
    account.write_file(&folder.join("client.crt"), &certificates.client)?;
    account.write_file(&folder.join("client.key"), &certificates.client_key)?;

    let port = free_port()?;
    let mut command = std::process::Command::new(root.path(PROGRAMS).join("postgres"));
    command.arg("-D").arg(&data);
    let inside = |name: &str| folder.join(name).display().to_string();
    let places = [
        ("listen_addresses", "127.0.0.1".to_owned()),
        ("port", port.to_string()),
        ("unix_socket_directories", folder.display().to_string()),
        ("hba_file", inside("pg_hba.conf")),
        ("ssl_cert_file", inside("server.crt")),
        ("ssl_key_file", inside("server.key")),
        ("ssl_ca_file", inside("ca.crt")),
    ];
    let settings = setup::POSTGRES_SETTINGS.iter().map(|(name, value)| (*name, (*value).to_owned()));
    for (name, value) in places.into_iter().chain(settings) {
        command.arg("-c").arg(format!("{name}={value}"));
    }
    if may_be_killed {
        command.args(setup::POSTGRES_KEEPS);
    }
    account.prepare(&mut command, &folder);
    let mut running = Running::start(command, &folder.join("log"), SIGNALS)?;
    record.add_process(running.pid(), &data)?;

    let url = setup::postgres_url(port);
    let mut administration = Address::parse(&url)?;
    "postgres".clone_into(&mut administration.database);
    let mut session = probe::until_ready(
        Duration::from_secs(30),
        || Session::open(&administration),
        || running.check_alive(),
    )?;
    session.run(&format!("CREATE DATABASE {}", setup::POSTGRES_DATABASE))?;
    let version = setup::create_roles(&url).context("creating the test roles")?;
    let facts = Facts {
        kind: Kind::Postgres,
        origin: Origin::Private,
        url,
        version,
        source: format!("private binaries (suite {})", root.suite()),
        socket: Some(folder.join(format!(".s.PGSQL.{port}"))),
        certificate_authority: Some(folder.join("ca.crt")),
        pid: Some(running.pid()),
        folder: Some(folder),
    };
    Ok((facts, running))
}

fn initialise(root: &Root, account: Account, folder: &Path, data: &Path) -> anyhow::Result<()> {
    let password = folder.join("password");
    account.write_file(&password, setup::PASSWORD)?;
    let mut command = std::process::Command::new(root.path(PROGRAMS).join("initdb"));
    command.arg("-D").arg(data).arg("-U").arg(setup::POSTGRES_USER).arg("--pwfile").arg(&password).args([
        "--auth=scram-sha-256",
        "--encoding=UTF8",
        "--locale=C",
        "--locale-provider=builtin",
        "--builtin-locale=C.UTF-8",
        "--no-sync",
        "--no-instructions",
    ]);
    account.prepare(&mut command, folder);
    run_to_end(&mut command, "initdb")
}
