//! How long servers live: as long as a client does, shared by all clients of a run, and never longer, however clients
//! and supervisors end. The clients here are processes of their own, because that is what ends.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// Long enough for a first run that fetches server binaries or an image.
const START: Duration = Duration::from_secs(300);
const STOP: Duration = Duration::from_secs(30);

/// A run of its own, so that these tests never meet the servers of others.
struct Run {
    folder: tempfile::TempDir,
}

impl Run {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    fn client(&self) -> Client {
        let executable = env!("CARGO_BIN_EXE_test-servers");
        let mut child = Command::new(executable)
            .args(["start", "--json", "postgres"])
            .env("PIPELINE_SERVERS_RUN", self.folder.path())
            .env("PIPELINE_SERVERS_SUPERVISOR", executable)
            .env_remove("PG_PIPELINE_URL")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        if line.is_empty() {
            let mut reason = String::new();
            child.stderr.take().unwrap().read_to_string(&mut reason).unwrap();
            panic!("no server: {reason}");
        }
        Client { child, facts: serde_json::from_str(&line).unwrap() }
    }

    fn supervisor_pid(&self) -> Pid {
        // The supervisor's command line names the run's folder; so does no other process's.
        let folder = self.folder.path().to_str().unwrap();
        let pid = fs::read_dir("/proc").unwrap().flatten().find_map(|entry| {
            let command_line = fs::read(entry.path().join("cmdline")).ok()?;
            let command_line = String::from_utf8_lossy(&command_line).replace('\0', " ");
            if command_line.contains("supervise") && command_line.contains(folder) {
                entry.file_name().to_str()?.parse().ok()
            } else {
                None
            }
        });
        Pid::from_raw(pid.expect("a supervisor runs")).unwrap()
    }

    fn is_over(&self) -> bool {
        !self.folder.path().join("started.json").exists()
            && !self.folder.path().join("control-socket").exists()
    }
}

struct Client {
    child: Child,
    facts: Value,
}

impl Client {
    fn kill(mut self) -> Value {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.facts
    }
}

fn port(facts: &Value) -> u16 {
    let url = facts["url"].as_str().unwrap();
    let place = url.rsplit_once('@').unwrap().1.split_once('/').unwrap().0;
    assert!(place.starts_with("127.0.0.1:"), "servers listen on loopback: {place}");
    place.rsplit_once(':').unwrap().1.parse().unwrap()
}

fn answers(facts: &Value) -> bool {
    // An SSLRequest: any PostgreSQL server answers it with one byte.
    let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port(facts))) else { return false };
    stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let mut answer = [0];
    stream.write_all(&[0, 0, 0, 8, 4, 210, 22, 47]).is_ok()
        && stream.read_exact(&mut answer).is_ok()
        && answer == *b"S"
}

fn process_runs(facts: &Value) -> bool {
    // An ended process may wait for its parent to notice; it is a zombie then, and as good as gone.
    let Some(pid) = facts["pid"].as_u64() else { return false };
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
}

fn folder(facts: &Value) -> Option<PathBuf> {
    facts["folder"].as_str().map(PathBuf::from)
}

fn await_that(what: &str, limit: Duration, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + limit;
    while !condition() {
        assert!(Instant::now() < deadline, "it took too long until {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn assert_gone(facts: &Value) {
    await_that("the server's process is gone", STOP, || !process_runs(facts));
    await_that("the server no longer answers", STOP, || !answers(facts));
    await_that("the server's folder is removed", STOP, || {
        folder(facts).is_none_or(|folder| !folder.exists())
    });
}

#[test]
fn a_killed_client_leaves_no_server_behind() {
    let run = Run::new();
    let facts = run.client().kill();
    assert!(answers(&facts), "the server outlives its client for a moment");
    assert_gone(&facts);
    await_that("the supervisor has cleaned up", STOP, || run.is_over());
}

#[test]
fn clients_share_a_server_and_the_last_one_ends_it() {
    let run = Run::new();
    let began = Instant::now();
    let first = run.client();
    let second = run.client();
    assert!(began.elapsed() < START);
    assert_eq!(first.facts["url"], second.facts["url"]);
    let facts = first.kill();
    // A client that comes within the grace, as the next test binary does, finds the same server.
    let third = run.client();
    assert_eq!(third.facts["url"], facts["url"]);
    second.kill();
    assert!(answers(&facts));
    third.kill();
    assert_gone(&facts);
}

#[test]
fn the_next_run_removes_what_a_killed_supervisor_left() {
    let run = Run::new();
    let orphaned = run.client();
    kill_process(run.supervisor_pid(), Signal::KILL).unwrap();
    let left = orphaned.kill();
    let next = run.client();
    assert_ne!(next.facts["url"], left["url"]);
    assert_gone(&left);
    let facts = next.kill();
    assert_gone(&facts);
}

#[test]
fn a_client_that_comes_while_a_supervisor_stops_gets_a_new_server() {
    let run = Run::new();
    let first = run.client();
    kill_process(run.supervisor_pid(), Signal::TERM).unwrap();
    await_that("the supervisor hides its socket", STOP, || {
        !run.folder.path().join("control-socket").exists()
    });
    let second = run.client();
    assert_gone(&first.kill());
    assert!(answers(&second.facts));
    assert_gone(&second.kill());
}
