//! Advisory file locks (`flock`). The kernel drops them with the process that holds them, however it ends, which is
//! why they say who is alive here. This module knows files and nothing of servers.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;

use anyhow::Context as _;
use rustix::fs::{FlockOperation, flock};

/// A lock that lasts until this value is dropped or the process ends.
#[derive(Debug)]
pub(crate) struct Lock {
    _file: File,
}

impl Lock {
    /// Waits until no other process holds the file exclusively.
    pub(crate) fn shared(path: &Path) -> anyhow::Result<Self> {
        Self::take(path, FlockOperation::LockShared)
    }

    /// Waits until no other process holds the file at all.
    pub(crate) fn exclusive(path: &Path) -> anyhow::Result<Self> {
        Self::take(path, FlockOperation::LockExclusive)
    }

    /// Takes the file exclusively, or answers `None` at once when somebody holds it.
    pub(crate) fn try_exclusive(path: &Path) -> anyhow::Result<Option<Self>> {
        let file = open(path)?;
        match retrying(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(Self { _file: file })),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(io::Error::from(error)).with_context(|| format!("locking {}", path.display())),
        }
    }

    fn take(path: &Path, operation: FlockOperation) -> anyhow::Result<Self> {
        let file = open(path)?;
        retrying(&file, operation)
            .map_err(io::Error::from)
            .with_context(|| format!("locking {}", path.display()))?;
        Ok(Self { _file: file })
    }
}

// `std` opens with close-on-exec, so a server that a holder starts never keeps the lock for it.
fn open(path: &Path) -> anyhow::Result<File> {
    OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(path)
        .with_context(|| format!("opening the lock file {}", path.display()))
}

fn retrying(file: &File, operation: FlockOperation) -> rustix::io::Result<()> {
    loop {
        match flock(file, operation) {
            Err(rustix::io::Errno::INTR) => {}
            other => return other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exclusive_lock_waits_for_shared_ones() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let first = Lock::shared(&path).unwrap();
        let second = Lock::shared(&path).unwrap();
        assert!(Lock::try_exclusive(&path).unwrap().is_none());
        drop(first);
        assert!(Lock::try_exclusive(&path).unwrap().is_none());
        drop(second);
        assert!(Lock::try_exclusive(&path).unwrap().is_some());
    }
}
