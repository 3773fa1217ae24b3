//! What the kernel says of processes and of the machine: CPU time, peak memory, names. Linux only; elsewhere
//! every figure is absent. This module knows nothing of what the processes are for.

use std::collections::HashMap;
use std::fs;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

/// CPU time spent so far, process by process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CpuTimes(HashMap<u32, Duration>);

impl CpuTimes {
    /// Of one process with all its threads.
    pub(crate) fn of_process(pid: u32) -> Option<Self> {
        Some(Self(HashMap::from([(pid, cpu_time(pid)?)])))
    }

    /// Of a process and everything that descends from it.
    pub(crate) fn of_tree(root: u32) -> Option<Self> {
        let mut times = HashMap::from([(root, cpu_time(root)?)]);
        // A process that ended in between took its figures with it.
        times.extend(tree(root).into_iter().map(|pid| (pid, cpu_time(pid).unwrap_or_default())));
        Some(Self(times))
    }

    /// What was spent since `earlier`, by the processes that are there now.
    pub(crate) fn since(&self, earlier: &Self) -> Duration {
        let spent = |(pid, now): (&u32, &Duration)| {
            now.saturating_sub(earlier.0.get(pid).copied().unwrap_or_default())
        };
        self.0.iter().map(spent).sum()
    }
}

/// A process and everything that descends from it.
pub(crate) fn tree(root: u32) -> Vec<u32> {
    let parents: Vec<(u32, u32)> =
        processes().filter_map(|pid| Some((pid, parent(&read(pid, "stat")?)?))).collect();
    let mut tree = vec![root];
    let mut at = 0;
    while let Some(&of) = tree.get(at) {
        tree.extend(parents.iter().filter(|(pid, parent)| *parent == of && *pid != of).map(|(pid, _)| pid));
        at += 1;
    }
    tree
}

/// The most memory that the process has held at any time, in bytes.
pub(crate) fn peak_memory(pid: u32) -> Option<u64> {
    kilobytes(&read(pid, "status")?, "VmHWM:")
}

/// Asks a process to stop, as Ctrl-C does.
pub(crate) fn interrupt(pid: u32) {
    signal(pid, Signal::INT);
}

/// Asks a process to stop, as service managers do.
pub(crate) fn terminate(pid: u32) {
    signal(pid, Signal::TERM);
}

fn signal(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        // The only failure that can occur is that it has ended already, which is what was wanted.
        let _ = kill_process(pid, signal);
    }
}

/// By what rule the kernel shares the CPU among all that takes part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Scheduling {
    /// Process by process: there are no autogroups, or a control group around everything keeps them away.
    Even,
    /// Session by session: no control group could be made.
    Autogroups,
}

/// The machine, as a report names it.
#[derive(Debug, serde::Serialize)]
pub(crate) struct Machine {
    cpu: Option<String>,
    cores: usize,
    memory_bytes: Option<u64>,
    os: &'static str,
    architecture: &'static str,
    kernel: Option<String>,
    scheduling: Scheduling,
}

impl Machine {
    pub(crate) fn this(scheduling: Scheduling) -> Self {
        let cpu = fs::read_to_string("/proc/cpuinfo").ok();
        let memory = fs::read_to_string("/proc/meminfo").ok();
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").ok();
        Self {
            cpu: cpu.and_then(|text| {
                let line = text.lines().find(|line| line.starts_with("model name"))?;
                Some(line.split_once(':')?.1.trim().to_owned())
            }),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            memory_bytes: memory.and_then(|text| kilobytes(&text, "MemTotal:")),
            os: std::env::consts::OS,
            architecture: std::env::consts::ARCH,
            kernel: kernel.map(|release| release.trim().to_owned()),
            scheduling,
        }
    }
}

fn read(pid: u32, file: &str) -> Option<String> {
    fs::read_to_string(format!("/proc/{pid}/{file}")).ok()
}

fn processes() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// The sum over the threads that exist. The scheduler's own figure has nanoseconds; where the kernel was built
/// without it, `stat` counts in ticks of 10 ms.
fn cpu_time(pid: u32) -> Option<Duration> {
    let exact = || -> Option<Duration> {
        let threads = fs::read_dir(format!("/proc/{pid}/task")).ok()?;
        threads
            .flatten()
            .map(|thread| on_cpu(&fs::read_to_string(thread.path().join("schedstat")).ok()?))
            .sum()
    };
    exact().or_else(|| ticks(&read(pid, "stat")?))
}

/// The first figure of `schedstat`: nanoseconds on a CPU (Linux, sched-stats.rst).
fn on_cpu(schedstat: &str) -> Option<Duration> {
    schedstat.split(' ').next()?.parse().ok().map(Duration::from_nanos)
}

/// User and system time of `stat`, fields 14 and 15 (`proc_pid_stat(5)`), in ticks of 10 ms.
fn ticks(stat: &str) -> Option<Duration> {
    let mut fields = after_name(stat)?.split(' ').skip(11);
    let (user, system): (u64, u64) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    Some(Duration::from_millis(10 * (user + system)))
}

/// Field 4 of `stat`.
fn parent(stat: &str) -> Option<u32> {
    after_name(stat)?.split(' ').nth(1)?.parse().ok()
}

/// The fields of `stat` from the third on: the name in the second may hold spaces and brackets itself.
fn after_name(stat: &str) -> Option<&str> {
    Some(stat.rsplit_once(')')?.1.trim_start())
}

fn kilobytes(text: &str, name: &str) -> Option<u64> {
    let figure = text.lines().find_map(|line| line.strip_prefix(name))?;
    figure.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::time::Duration;

    use super::{CpuTimes, cpu_time, kilobytes, on_cpu, parent, peak_memory, ticks};

    const STAT: &str = "4 (a (b) c) S 7 4 4 0 -1 4194560 1 0 0 0 12 30 0 0 20 0 1 0 5 0 0";

    #[test]
    fn figures_of_proc_are_read() {
        assert_eq!(parent(STAT), Some(7));
        assert_eq!(ticks(STAT), Some(Duration::from_millis(420)));
        assert_eq!(on_cpu("1500 20 3\n"), Some(Duration::from_nanos(1500)));
        assert_eq!(kilobytes("Name:\tx\nVmHWM:\t  12 kB\n", "VmHWM:"), Some(12 * 1024));
        assert_eq!(
            (parent("4 (x"), ticks(""), on_cpu("x"), kilobytes("", "VmHWM:")),
            (None, None, None, None)
        );
    }

    #[test]
    fn differences_count_new_processes_and_forget_those_that_ended() {
        let times = |list: &[(u32, u64)]| {
            CpuTimes(
                list.iter().map(|(pid, ms)| (*pid, Duration::from_millis(*ms))).collect::<HashMap<_, _>>(),
            )
        };
        let earlier = times(&[(1, 10), (2, 500)]);
        assert_eq!(times(&[(1, 15), (3, 7)]).since(&earlier), Duration::from_millis(12));
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn this_process_has_figures() {
        let pid = std::process::id();
        assert!(cpu_time(pid).is_some_and(|time| time > Duration::ZERO));
        assert!(peak_memory(pid).is_some_and(|bytes| bytes > 1 << 20));
        let mut child = std::process::Command::new("sleep").arg("10").spawn().expect("sleep is installed");
        let tree = CpuTimes::of_tree(pid).expect("this process exists");
        super::terminate(child.id());
        assert!(!child.wait().expect("it was started").success());
        assert!(tree.0.contains_key(&child.id()));
    }
}
