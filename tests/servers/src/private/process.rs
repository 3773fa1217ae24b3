//! A server process of ours: started in a process group of its own, watched, and stopped by its id.

use std::fs::{self, File};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};

/// How long a server may take to stop.
const PATIENCE: Duration = Duration::from_secs(30);

/// A running server.
pub(crate) struct Running {
    child: Child,
    command: Command,
    log: PathBuf,
    signals: &'static [(Signal, Duration)],
}

impl Running {
    /// Starts a command with its output in a log file. `signals` are what stops it, each with the time it may take.
    pub(super) fn start(
        mut command: Command,
        log: &Path,
        signals: &'static [(Signal, Duration)],
    ) -> anyhow::Result<Self> {
        let output = File::create(log).with_context(|| format!("creating {}", log.display()))?;
        let child = command
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            // Ctrl-C at a terminal goes to the tests; the supervisor decides when servers stop.
            .process_group(0)
            .spawn()
            .with_context(|| format!("starting {}", command.get_program().display()))?;
        Ok(Self { child, command, log: log.to_owned(), signals })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// An error with the end of the log, if the process has ended.
    pub(super) fn check_alive(&mut self) -> anyhow::Result<()> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => bail!("the server ended with {status}: {}", log_tail(&self.log)),
        }
    }

    /// Stops the process with one signal and waits until it is gone.
    pub(crate) fn stop_by(&mut self, signal: Signal) -> anyhow::Result<()> {
        self.check_alive()?;
        send(self.child.id(), signal);
        let deadline = Instant::now() + PATIENCE;
        while self.child.try_wait()?.is_none() {
            ensure!(Instant::now() < deadline, "it does not stop: {}", log_tail(&self.log));
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    }

    /// Starts the same command again, once the process is gone.
    pub(crate) fn resume(&mut self) -> anyhow::Result<()> {
        ensure!(self.child.try_wait()?.is_some(), "it is still running");
        self.child = self.command.spawn().context("starting it again")?;
        Ok(())
    }

    /// Stops the process and waits until it is gone.
    pub(crate) fn stop(&mut self) {
        for &(signal, patience) in self.signals {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            send(self.child.id(), signal);
            let deadline = Instant::now() + patience;
            while Instant::now() < deadline {
                if !matches!(self.child.try_wait(), Ok(None)) {
                    return;
                }
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

// A server that nobody has put on the record must not outlive us.
impl Drop for Running {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Runs a program of the set-up to its end.
pub(super) fn run_to_end(command: &mut Command, what: &str) -> anyhow::Result<()> {
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("running {what}"))?;
    if output.status.success() {
        return Ok(());
    }
    let text = [output.stdout, output.stderr].concat();
    bail!("{what} ended with {}: {}", output.status, tail(&String::from_utf8_lossy(&text)))
}

pub(crate) fn send(pid: u32, signal: Signal) {
    if let Some(pid) = Pid::from_raw(pid as i32) {
        let _ = kill_process(pid, signal);
    }
}

/// A port that was free a moment ago.
pub(super) fn free_port() -> anyhow::Result<u16> {
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).context("finding a free loopback port")?;
    Ok(listener.local_addr()?.port())
}

fn log_tail(log: &Path) -> String {
    tail(&fs::read_to_string(log).unwrap_or_default())
}

fn tail(text: &str) -> String {
    let lines: Vec<_> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(4)..].join(" | ")
}
