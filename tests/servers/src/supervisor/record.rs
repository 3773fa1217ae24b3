//! The record of what a supervisor started, on disk, so that the next one can clean up after a supervisor that was
//! killed. Containers carry a label instead: see [`crate::docker`].

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};

/// What runs on behalf of one supervisor.
pub(crate) struct Record {
    file: PathBuf,
    entries: Mutex<Entries>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Entries {
    folder: PathBuf,
    processes: Vec<Process>,
}

/// A process is ours only while its command line still names our folder: ids are used again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Process {
    pid: u32,
    data: PathBuf,
}

impl Record {
    /// Begins with the temporary folder in which everything lies.
    pub(crate) fn begin(file: PathBuf, folder: &Path) -> anyhow::Result<Self> {
        let entries = Entries { folder: folder.to_owned(), processes: Vec::new() };
        write(&file, &entries)?;
        Ok(Self { file, entries: Mutex::new(entries) })
    }

    /// Notes a server process whose command line names `data`.
    pub(crate) fn add_process(&self, pid: u32, data: &Path) -> anyhow::Result<()> {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.processes.push(Process { pid, data: data.to_owned() });
        write(&self.file, &entries)
    }
}

/// Ends and removes what a dead supervisor left behind. The caller holds that supervisor's lock.
pub(crate) fn sweep(file: &Path) {
    let Ok(text) = fs::read(file) else { return };
    if let Ok(entries) = serde_json::from_slice::<Entries>(&text) {
        for process in &entries.processes {
            end(process);
        }
        // Only a folder of the kind that supervisors make is removed.
        if entries.folder.file_name().is_some_and(|name| name.to_string_lossy().starts_with(super::PREFIX)) {
            let _ = fs::remove_dir_all(&entries.folder);
        }
    }
    let _ = fs::remove_file(file);
}

fn end(process: &Process) {
    let Some(pid) = Pid::from_raw(process.pid as i32) else { return };
    // Every server here ends at once on SIGQUIT or, at the latest, on SIGKILL.
    for signal in [Signal::QUIT, Signal::KILL] {
        let deadline = Instant::now() + Duration::from_secs(5);
        if !is_ours(process) {
            return;
        }
        let _ = kill_process(pid, signal);
        while is_ours(process) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

fn is_ours(process: &Process) -> bool {
    let command_line = fs::read(format!("/proc/{}/cmdline", process.pid)).unwrap_or_default();
    let command_line = String::from_utf8_lossy(&command_line);
    let data = process.data.to_string_lossy();
    !data.is_empty() && command_line.contains(&*data)
}

fn write(file: &Path, entries: &Entries) -> anyhow::Result<()> {
    let whole = file.with_extension("new");
    fs::write(&whole, serde_json::to_vec(entries)?)
        .and_then(|()| fs::rename(&whole, file))
        .with_context(|| format!("writing {}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_sweep_ends_our_process_and_spares_one_that_only_has_its_id() {
        let outer = tempfile::tempdir().unwrap();
        let folder = outer.path().join(format!("{}test", crate::supervisor::PREFIX));
        fs::create_dir(&folder).unwrap();
        let data = folder.join("data");
        let file = outer.path().join("started.json");
        let mut ours = Command::new("sh")
            .args(["-c", "read line; : $0"])
            .arg(&data)
            .stdin(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut stranger =
            Command::new("sh").args(["-c", "read line"]).stdin(std::process::Stdio::piped()).spawn().unwrap();
        let record = Record::begin(file.clone(), &folder).unwrap();
        record.add_process(ours.id(), &data).unwrap();
        record.add_process(stranger.id(), &data).unwrap();

        sweep(&file);

        assert!(!ours.wait().unwrap().success(), "ended by a signal");
        assert!(stranger.try_wait().unwrap().is_none(), "still running");
        assert!(!folder.exists() && !file.exists());
        stranger.kill().unwrap();
        stranger.wait().unwrap();
    }
}
