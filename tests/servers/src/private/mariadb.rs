//! MariaDB from packages, through the private root's own loader. It gets no certificate: it makes one by itself, which
//! nobody has signed.

use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use rustix::process::Signal;

use super::account::Account;
use super::process::{Running, free_port};
use super::root::{Recipe, Root};
use crate::address::Address;
use crate::probe;
use crate::server::{Facts, Kind, Origin};
use crate::setup;
use crate::supervisor::Record;

// The plugins lie in a package that needs much more than a server of this kind does.
const RECIPE: Recipe = Recipe {
    name: "mariadb",
    packages: &["mariadb-server-core"],
    alone: &["mariadb-server"],
    suites: &["unstable"],
    patched: None,
};

const SIGNALS: &[(Signal, Duration)] = &[(Signal::TERM, Duration::from_secs(10))];

/// The system tables, in the order of `mariadb-install-db`.
const TABLES: [&str; 3] =
    ["mariadb_system_tables.sql", "mariadb_performance_tables.sql", "mariadb_system_tables_data.sql"];

pub(super) fn install(note: &dyn Fn(&str)) -> anyhow::Result<Root> {
    Root::get(&RECIPE, note)
}

pub(super) fn start(
    temporary: &Path,
    record: &Record,
    note: &dyn Fn(&str),
) -> anyhow::Result<(Facts, Running)> {
    let root = install(note)?;
    let account = Account::for_servers();
    let folder = temporary.join("mariadb");
    account.create_folder(&folder)?;
    let data = folder.join("data");
    account.create_folder(&data)?;
    bootstrap(&root, account, &folder, &data)?;
    account.write_file(&folder.join("init.sql"), &[setup::MARIADB_INIT, setup::MYSQL_INIT].concat())?;

    let port = free_port()?;
    let socket = folder.join("mariadb.sock");
    let mut command = mariadbd(&root, &data);
    command
        .arg("--bind-address=127.0.0.1")
        .arg(format!("--port={port}"))
        .args(setup::MARIADB_OPTIONS)
        .arg(option("socket", &socket))
        .arg(option("pid-file", &folder.join("mariadbd.pid")))
        .arg(option("init-file", &folder.join("init.sql")));
    account.prepare(&mut command, &folder);
    let mut running = Running::start(command, &folder.join("log"), SIGNALS)?;
    record.add_process(running.pid(), &data)?;

    let url = setup::mysql_url(port);
    let address = Address::parse(&url)?;
    let version = probe::until_ready(
        Duration::from_secs(60),
        || probe::mysql::version(&address),
        || running.check_alive(),
    )?;
    let facts = Facts {
        kind: Kind::Mariadb,
        origin: Origin::Private,
        url,
        version,
        source: format!("private binaries (suite {})", root.suite()),
        socket: Some(socket),
        certificate_authority: None,
        pid: Some(running.pid()),
        folder: Some(folder),
    };
    Ok((facts, running))
}

/// Makes the system tables, as `mariadb-install-db` does.
fn bootstrap(root: &Root, account: Account, folder: &Path, data: &Path) -> anyhow::Result<()> {
    let mut script = "CREATE DATABASE mysql;\nUSE mysql;\nSET @auth_root_socket = NULL;\n".to_owned();
    for name in TABLES {
        let path = root.path("usr/share/mariadb").join(name);
        let text = std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
        // Accounts for this machine's name, which a server that looks no names up would warn of.
        let lines = text.lines().filter(|line| !line.contains("@current_hostname"));
        script.extend(lines.flat_map(|line| [line, "\n"]));
    }
    let path = folder.join("bootstrap.sql");
    account.write_file(&path, &script)?;
    let mut command = mariadbd(root, data);
    command.arg("--bootstrap");
    account.prepare(&mut command, folder);
    let input = File::open(&path)?;
    let output = command.stdin(Stdio::from(input)).output().context("running mariadbd --bootstrap")?;
    let text = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "mariadbd --bootstrap ended with {}: {text}", output.status);
    Ok(())
}

fn mariadbd(root: &Root, data: &Path) -> Command {
    let mut command = root.program("usr/sbin/mariadbd");
    command
        .arg("--no-defaults")
        .arg(option("basedir", &root.path("usr")))
        .arg(option("datadir", data))
        .arg(option("lc-messages-dir", &root.path("usr/share/mariadb")))
        .arg(option("character-sets-dir", &root.path("usr/share/mariadb/charsets")))
        .arg(option("plugin-dir", &root.path("usr/lib/mysql/plugin")));
    command
}

fn option(name: &str, path: &Path) -> String {
    format!("--{name}={}", path.display())
}
