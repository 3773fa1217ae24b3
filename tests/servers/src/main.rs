//! The supervisor's executable, also for use by hand: `test-servers start postgres mysql` prints what it started and
//! keeps it up until standard input ends or Ctrl-C.

use std::io::{self, Read as _, Write as _};
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use test_servers::Kind;

const USAGE: &str = "\
Usage: test-servers start [--json] [postgres] [mysql] [mariadb]    start servers, print their URLs, keep them until stdin ends
       test-servers install [postgres] [mysql] [mariadb]           fetch server binaries into the cache
       test-servers supervise FOLDER                     what the library runs in the background
       test-servers fingerprint                          tell which sources this was built from";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match arguments.as_slice() {
        ["supervise", folder] => test_servers::supervise(Path::new(folder)),
        ["fingerprint"] => {
            println!("{}", test_servers::FINGERPRINT);
            Ok(())
        }
        ["start", "--json", kinds @ ..] => start(kinds, true),
        ["start", kinds @ ..] => start(kinds, false),
        ["install", kinds @ ..] => install(kinds),
        ["help" | "--help" | "-h"] => {
            println!("{USAGE}");
            Ok(())
        }
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("test-servers: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn start(kinds: &[&str], json: bool) -> anyhow::Result<()> {
    for kind in parse(kinds)? {
        let server = test_servers::server_blocking(kind)?;
        let mut output = io::stdout().lock();
        if json {
            let facts = serde_json::json!({
                "url": server.url(),
                "version": server.version(),
                "how": server.how(),
                "pid": server.pid(),
                "folder": server.folder(),
                "socket": server.socket(),
                "certificate_authority": server.certificate_authority(),
            });
            writeln!(output, "{facts}")?;
        } else {
            writeln!(output, "{}", server.url())?;
        }
        output.flush()?;
    }
    io::stdin().read_to_end(&mut Vec::new()).context("waiting for the end of standard input")?;
    Ok(())
}

fn install(kinds: &[&str]) -> anyhow::Result<()> {
    parse(kinds)?.into_iter().try_for_each(test_servers::install)
}

fn parse(kinds: &[&str]) -> anyhow::Result<Vec<Kind>> {
    if kinds.is_empty() {
        return Ok(vec![Kind::Postgres, Kind::Mysql]);
    }
    kinds
        .iter()
        .map(|kind| match *kind {
            "postgres" => Ok(Kind::Postgres),
            "mysql" => Ok(Kind::Mysql),
            "mariadb" => Ok(Kind::Mariadb),
            other => bail!("`{other}` is no server: name postgres, mysql or mariadb"),
        })
        .collect()
}
