//! Where clients and the supervisor meet: the folders, the lock files, and the messages on the control socket.
//! Both sides use this module; it knows neither how servers start nor who asks.

use std::ffi::OsString;
use std::fs;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use serde::{Deserialize, Serialize};

use crate::choice::Refusal;
use crate::server::Facts;
use crate::settings::{self, Settings};

/// Changes with every change of this crate's sources, so that only like meets like.
pub(crate) const FINGERPRINT: &str = env!("TEST_SERVERS_FINGERPRINT");

const NAME: &str = "pg-pipeline-servers";

/// What a client asks of the supervisor, as one line of JSON.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Request {
    pub(crate) settings: Settings,
    pub(crate) order: Order,
}

/// What shall become of a server.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Order {
    /// It shall run; started if nobody has asked for it yet.
    Have,
    /// It shall stop, and keep its data.
    Stop(Stop),
    /// One that was stopped, or has ended, shall run again, at the same place.
    Resume,
}

/// How a server is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stop {
    /// In order: connections are ended, what was committed is kept without recovery. SIGINT for PostgreSQL ("fast
    /// shutdown"), SIGTERM for MySQL.
    Fast,
    /// At once, as in a crash: SIGQUIT for PostgreSQL ("immediate shutdown"), SIGKILL for MySQL.
    Immediate,
}

/// What the supervisor answers: any number of notes, then one of the others; each is one line of JSON.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Reply {
    /// Something takes a while; worth printing.
    Note(String),
    /// A server answers.
    Ready { facts: Facts, refusals: Vec<Refusal> },
    /// An order could not be carried out.
    Failed(String),
    /// No way worked.
    Refused(Vec<Refusal>),
}

/// The folder of one test run. It outlives the run and holds lock files, a log, and the record of what runs.
#[derive(Clone, Debug)]
pub(crate) struct RunFolder {
    path: PathBuf,
}

impl RunFolder {
    /// The folder that the environment names, or this workspace's own.
    pub(crate) fn of_environment() -> anyhow::Result<Self> {
        let path = match settings::path_variable(settings::RUN) {
            Some(path) => path,
            None => cache_folder()?.join("run").join(own_key()),
        };
        Self::at(path)
    }

    pub(crate) fn at(path: PathBuf) -> anyhow::Result<Self> {
        create_private(&path)?;
        Ok(Self { path })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Every client process holds this one shared, for its lifetime.
    pub(crate) fn clients_lock(&self) -> PathBuf {
        self.path.join("clients.lock")
    }

    /// Held while a client starts a supervisor.
    pub(crate) fn start_lock(&self) -> PathBuf {
        self.path.join("start.lock")
    }

    /// Held by the supervisor, for its lifetime.
    pub(crate) fn supervisor_lock(&self) -> PathBuf {
        self.path.join("supervisor.lock")
    }

    /// The supervisor's output, of the latest one only.
    pub(crate) fn log(&self) -> PathBuf {
        self.path.join("supervisor.log")
    }

    /// Names the control socket of the supervisor that runs.
    pub(crate) fn socket_pointer(&self) -> PathBuf {
        self.path.join("control-socket")
    }

    /// What the supervisor started and has not yet removed.
    pub(crate) fn record(&self) -> PathBuf {
        self.path.join("started.json")
    }
}

fn own_key() -> String {
    let mut hasher = DefaultHasher::new();
    env!("CARGO_MANIFEST_DIR").hash(&mut hasher);
    format!("{FINGERPRINT}-{:08x}", hasher.finish() as u32)
}

/// Where server binaries are kept between runs. Servers run as an unprivileged user when we are root, so a root whose
/// home is closed to others keeps them in the system's cache folder.
pub(crate) fn cache_folder() -> anyhow::Result<PathBuf> {
    if let Some(path) = settings::path_variable(settings::CACHE) {
        return std::path::absolute(path).context("reading the working directory");
    }
    let home = settings::path_variable("XDG_CACHE_HOME")
        .or_else(|| settings::path_variable("HOME").map(|home| home.join(".cache")))
        .filter(|path| path.is_absolute())
        .map(|path| path.join(NAME));
    match home {
        Some(path) if !is_root() || open_to_others(&path) => Ok(path),
        _ if is_root() => Ok(Path::new("/var/cache").join(NAME)),
        Some(path) => Ok(path),
        None => anyhow::bail!("neither HOME nor XDG_CACHE_HOME is set: set {} to a folder", settings::CACHE),
    }
}

/// Whether another user can reach into a folder (or could, once the missing part of the path is made).
pub(crate) fn open_to_others(path: &Path) -> bool {
    path.ancestors()
        .filter_map(|ancestor| fs::metadata(ancestor).ok())
        .all(|metadata| metadata.permissions().mode() & 0o001 != 0)
}

/// Whether this process has root's rights.
pub(crate) fn is_root() -> bool {
    // The owner of our own /proc entry is our effective user.
    fs::metadata("/proc/self").is_ok_and(|metadata| metadata.uid() == 0)
}

// The control socket and the record decide what gets killed: nobody else may write here.
fn create_private(path: &Path) -> anyhow::Result<()> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).with_context(|| format!("creating {}", parent.display()))?;
    }
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path).with_context(|| {
        format!("creating {}: set {} to a folder of yours", path.display(), settings::RUN)
    })?;
    let owner = fs::metadata(path)?.uid();
    let own = fs::metadata("/proc/self").map_or(owner, |metadata| metadata.uid());
    ensure!(owner == own, "{} belongs to another user: set {}", path.display(), settings::RUN);
    Ok(())
}

/// The socket that a pointer file names, if there is one.
pub(crate) fn read_pointer(path: &Path) -> Option<PathBuf> {
    use std::os::unix::ffi::OsStringExt as _;
    fs::read(path).ok().filter(|bytes| !bytes.is_empty()).map(|bytes| OsString::from_vec(bytes).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_folder_anywhere_above_closes_the_path() {
        let outer = tempfile::Builder::new().tempdir_in("/tmp").unwrap();
        fs::set_permissions(outer.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let inner = outer.path().join("inner");
        assert!(open_to_others(&inner.join("not-there-yet")));
        fs::create_dir(&inner).unwrap();
        fs::set_permissions(outer.path(), fs::Permissions::from_mode(0o700)).unwrap();
        assert!(!open_to_others(&inner));
    }

    #[test]
    fn replies_survive_the_wire() {
        let reply =
            Reply::Refused(vec![Refusal { way: crate::server::Origin::Docker, reason: "no\nway".into() }]);
        let line = serde_json::to_string(&reply).unwrap();
        assert!(!line.contains('\n'));
        assert_eq!(serde_json::to_string(&serde_json::from_str::<Reply>(&line).unwrap()).unwrap(), line);
    }
}
