//! One scheduling group for everything that takes part in a measurement.
//!
//! Where Linux has autogroups (`sched(7)`), every session of processes is a group of its own that gets its share of the
//! CPU as a whole, and PostgreSQL makes a session of each of its connections. The share of such a group follows slowly
//! when its only process moves to another core, and a connection that has work is then left waiting for 30 to 100 ms
//! while others run. That is the kernel's doing, falls on all drivers, and goes away in a control group, as services and
//! containers have. So the program puts itself, what it starts, and its database into one.
//!
//! Knows control groups and processes, nothing of what is measured. Linux only; elsewhere there is nothing to do.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::process::{self, Scheduling};

/// A control group of this program's own; what is in it goes back to where it was when this is dropped.
#[derive(Debug)]
pub(crate) struct CpuGroup {
    folder: PathBuf,
    home: PathBuf,
}

/// Where control groups are, as far as the CPU is concerned.
#[derive(Debug, PartialEq, Eq)]
struct Hierarchy {
    root: PathBuf,
    /// This process's own group is the root, where autogroups apply.
    at_root: bool,
    /// Groups below the root get shares of the CPU.
    divides: bool,
}

impl CpuGroup {
    /// Makes the group and puts this process into it, if that changes anything and is permitted.
    pub(crate) fn enter() -> (Option<Self>, Scheduling) {
        let autogroups = fs::read_to_string("/proc/sys/kernel/sched_autogroup_enabled");
        if autogroups.is_ok_and(|on| on.trim() == "1") {
            let hierarchy = Hierarchy::of_this_process();
            if hierarchy.as_ref().is_some_and(|hierarchy| !hierarchy.at_root) {
                return (None, Scheduling::Even);
            }
            let Some(group) = hierarchy.and_then(|hierarchy| Self::make(&hierarchy)) else {
                eprintln!(
                    "the kernel schedules every connection of PostgreSQL as a group of its own \
                     (kernel.sched_autogroup_enabled = 1), which makes the slowest requests slower than they are in \
                     services and containers: run this as root, or in a control group with a share of the CPU"
                );
                return (None, Scheduling::Autogroups);
            };
            return (Some(group), Scheduling::Even);
        }
        (None, Scheduling::Even)
    }

    fn make(hierarchy: &Hierarchy) -> Option<Self> {
        if !hierarchy.divides {
            return None;
        }
        let pid = std::process::id();
        let folder = hierarchy.root.join(format!("bench-app-{pid}"));
        fs::create_dir(&folder).ok()?;
        let group = Self { folder, home: hierarchy.root.clone() };
        // If this is refused, the group is removed again on the way out.
        put(&group.folder, pid).ok()?;
        Some(group)
    }
}

/// Takes a server that is known, with all that it has started and will start, into the group, if there is one.
pub(crate) fn take_in(group: Option<&CpuGroup>, server: Option<u32>) {
    if let (Some(group), Some(server)) = (group, server) {
        for pid in process::tree(server) {
            // Those that have ended need no group.
            let _ = put(&group.folder, pid);
        }
    }
}

impl Drop for CpuGroup {
    fn drop(&mut self) {
        // Once more when somebody was started meanwhile. What cannot be undone is an empty group until the next boot.
        for _ in 0..3 {
            let members = fs::read_to_string(self.folder.join("cgroup.procs")).unwrap_or_default();
            for pid in members.lines().filter_map(|pid| pid.parse().ok()) {
                let _ = put(&self.home, pid);
            }
            if fs::remove_dir(&self.folder).is_ok() {
                return;
            }
        }
    }
}

fn put(group: &Path, pid: u32) -> io::Result<()> {
    fs::write(group.join("cgroup.procs"), pid.to_string())
}

impl Hierarchy {
    fn of_this_process() -> Option<Self> {
        let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
        let memberships = fs::read_to_string("/proc/self/cgroup").ok()?;
        Self::find(&mounts, &memberships, |path| fs::read_to_string(path).unwrap_or_default())
    }

    /// From `/proc/self/mounts` and `/proc/self/cgroup` (`cgroups(7)`): version 1 where it has the CPU, else version 2.
    fn find(mounts: &str, memberships: &str, read: impl Fn(&Path) -> String) -> Option<Self> {
        let mounted = |wanted: &dyn Fn(&str, &str) -> bool| {
            mounts.lines().find_map(|line| {
                let mut fields = line.split(' ').skip(1);
                let (path, kind, options) = (fields.next()?, fields.next()?, fields.next()?);
                wanted(kind, options).then(|| PathBuf::from(path))
            })
        };
        let has_cpu = |list: &str, separator| list.split(separator).any(|one| one == "cpu");
        let membership = |wanted: &dyn Fn(&str) -> bool| {
            memberships.lines().find_map(|line| {
                let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
                wanted(controllers).then_some(path)
            })
        };
        if let Some(root) = mounted(&|kind, options| kind == "cgroup" && has_cpu(options, ',')) {
            let path = membership(&|controllers| has_cpu(controllers, ','))?;
            return Some(Self { root, at_root: path == "/", divides: true });
        }
        let root = mounted(&|kind, _| kind == "cgroup2")?;
        let path = membership(&str::is_empty)?;
        // Below a group that does not divide the CPU, everybody is at the root as far as the CPU is concerned.
        let own = root.join(path.trim_start_matches('/')).join("cpu.weight");
        let divides = has_cpu(read(&root.join("cgroup.subtree_control")).trim_end(), ' ');
        Some(Self { root, at_root: read(&own).is_empty(), divides })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(mounts: &str, memberships: &str, files: &[(&str, &str)]) -> Option<Hierarchy> {
        Hierarchy::find(mounts, memberships, |path| {
            let named = files.iter().find(|(name, _)| Path::new(name) == path);
            named.map_or_else(String::new, |(_, text)| (*text).to_owned())
        })
    }

    fn hierarchy(root: &str, at_root: bool, divides: bool) -> Hierarchy {
        Hierarchy { root: root.into(), at_root, divides }
    }

    #[test]
    fn version_1_is_found_by_its_controller() {
        let mounts = "cgroup /cg/set cgroup rw,cpuset 0 0\ncgroup /cg/cpu cgroup rw,cpu,cpuacct 0 0\n\
                      cgroup2 /cg/unified cgroup2 rw 0 0\n";
        assert_eq!(
            found(mounts, "2:cpuset:/\n1:cpu,cpuacct:/\n0::/\n", &[]),
            Some(hierarchy("/cg/cpu", true, true))
        );
        assert_eq!(found(mounts, "1:cpu,cpuacct:/a\n0::/\n", &[]), Some(hierarchy("/cg/cpu", false, true)));
    }

    #[test]
    fn version_2_counts_where_it_divides_the_cpu() {
        let mounts = "proc /proc proc rw 0 0\ncgroup2 /cg cgroup2 rw 0 0\n";
        let divides = ("/cg/cgroup.subtree_control", "cpuset cpu memory\n");
        assert_eq!(found(mounts, "0::/\n", &[divides]), Some(hierarchy("/cg", true, true)));
        assert_eq!(found(mounts, "0::/user/1\n", &[divides]), Some(hierarchy("/cg", true, true)));
        let weight = ("/cg/user/1/cpu.weight", "100\n");
        assert_eq!(found(mounts, "0::/user/1\n", &[divides, weight]), Some(hierarchy("/cg", false, true)));
        assert_eq!(
            found(mounts, "0::/\n", &[("/cg/cgroup.subtree_control", "cpuset\n")]),
            Some(hierarchy("/cg", true, false))
        );
        assert_eq!(found("proc /proc proc rw 0 0\n", "0::/\n", &[]), None);
    }

    #[test]
    fn everybody_goes_home_in_the_end() {
        let (group, scheduling) = CpuGroup::enter();
        let Some(group) = group else { return };
        assert_eq!(scheduling, Scheduling::Even);
        let folder = group.folder.clone();
        let members = fs::read_to_string(folder.join("cgroup.procs")).expect("the group is there");
        assert!(members.lines().any(|pid| pid.parse() == Ok(std::process::id())));
        drop(group);
        assert!(!folder.exists());
    }
}
