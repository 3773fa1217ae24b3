//! MySQL from packages, through the private root's own loader. The long-term release after 8.4: 8.4 itself comes as
//! an image only.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::Context as _;
use rustix::process::Signal;

use super::account::Account;
use super::process::{Running, free_port, run_to_end};
use super::root::{Recipe, Root};
use crate::address::Address;
use crate::probe;
use crate::server::{Facts, Kind, Origin};
use crate::setup;
use crate::supervisor::Record;
use crate::tls::Certificates;

const RECIPE: Recipe = Recipe {
    name: "mysql",
    packages: &["mysql-server-core", "mysql-client-core"],
    alone: &[],
    suites: &["unstable"],
    patched: None,
};

// The data is thrown away, but a clean end leaves nothing half written while we remove it.
const SIGNALS: &[(Signal, Duration)] = &[(Signal::TERM, Duration::from_secs(10))];

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
    let folder = temporary.join("mysql");
    account.create_folder(&folder)?;
    let data = folder.join("data");

    let mut initialise = mysqld(&root, &data);
    initialise.arg("--initialize-insecure");
    account.prepare(&mut initialise, &folder);
    run_to_end(&mut initialise, "mysqld --initialize-insecure")?;

    let certificates = Certificates::issue()?;
    account.write_file(&folder.join("init.sql"), setup::MYSQL_INIT)?;
    account.write_file(&folder.join("server.key"), &certificates.key)?;
    account.write_file(&folder.join("server.crt"), &certificates.certificate)?;
    account.write_file(&folder.join("ca.crt"), &certificates.authority)?;
    account.write_file(&folder.join("client.crt"), &certificates.client)?;
    account.write_file(&folder.join("client.key"), &certificates.client_key)?;

    let port = free_port()?;
    let socket = folder.join("mysql.sock");
    let mut command = mysqld(&root, &data);
    command
        .arg("--bind-address=127.0.0.1")
        .arg(format!("--port={port}"))
        .args(setup::MYSQL_OPTIONS)
        .args(if may_be_killed { setup::MYSQL_KEEPS } else { &[] })
        .arg(option("socket", &socket))
        .arg(option("pid-file", &folder.join("mysqld.pid")))
        .arg(option("init-file", &folder.join("init.sql")))
        .arg(option("ssl-key", &folder.join("server.key")))
        .arg(option("ssl-cert", &folder.join("server.crt")))
        .arg(option("ssl-ca", &folder.join("ca.crt")));
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
    log_in(&root, account, &folder, port).context("logging in with MySQL's own client")?;
    let facts = Facts {
        kind: Kind::Mysql,
        origin: Origin::Private,
        url,
        version,
        source: format!("private binaries (suite {}; 8.4 needs Docker)", root.suite()),
        socket: Some(socket),
        certificate_authority: Some(folder.join("ca.crt")),
        pid: Some(running.pid()),
        folder: Some(folder),
    };
    Ok((facts, running))
}

// Compiled-in folders point into the system, where this server is not installed; each is named anew.
fn mysqld(root: &Root, data: &Path) -> Command {
    let mut command = root.program("usr/sbin/mysqld");
    command
        .arg("--no-defaults")
        .arg(option("basedir", &root.path("usr")))
        .arg(option("datadir", data))
        .arg(option("lc-messages-dir", &root.path("usr/share/mysql")))
        .arg(option("character-sets-dir", &root.path("usr/share/mysql/charsets")))
        .arg(option("plugin-dir", &root.path("usr/lib/mysql/plugin")))
        .arg("--secure-file-priv=");
    command
}

fn log_in(root: &Root, account: Account, folder: &Path, port: u16) -> anyhow::Result<()> {
    let mut command = root.program("usr/bin/mysql");
    command
        .args(["--no-defaults", "--protocol=TCP", "--host=127.0.0.1", "--batch", "--execute=SELECT 1"])
        .arg(format!("--port={port}"))
        .arg(option("character-sets-dir", &root.path("usr/share/mysql/charsets")))
        .arg(option("plugin-dir", &root.path("usr/lib/mysql/plugin")))
        .arg(format!("--user={}", setup::MYSQL_USER))
        .arg(format!("--database={}", setup::MYSQL_DATABASE))
        .env("MYSQL_PWD", setup::PASSWORD);
    account.prepare(&mut command, folder);
    run_to_end(&mut command, "mysql")
}

fn option(name: &str, path: &Path) -> String {
    format!("--{name}={}", path.display())
}
