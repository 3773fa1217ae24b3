//! A folder with a server's unpacked packages: made once, kept in the cache, and able to run its programs either
//! through its own loader or, patched, by themselves.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};

use super::apt;
use crate::lock::Lock;
use crate::meeting::{cache_folder, is_root, open_to_others};

/// Unpacked packages, ready to run.
#[derive(Clone, Debug)]
pub(super) struct Root {
    path: PathBuf,
    loader: PathBuf,
    libraries: PathBuf,
    suite: String,
}

/// What a root is made of.
pub(super) struct Recipe {
    /// The folder's name in the cache. Change it when the recipe changes.
    pub(super) name: &'static str,
    pub(super) packages: &'static [&'static str],
    /// Packages of which only their own files are wanted, and nothing that they need.
    pub(super) alone: &'static [&'static str],
    pub(super) suites: &'static [&'static str],
    /// A folder of programs, relative to the root, that must run without the loader's help: they start one another.
    pub(super) patched: Option<&'static str>,
}

impl Root {
    /// The root for a recipe; fetched and unpacked if it is not in the cache. Safe to call from many processes at once.
    pub(super) fn get(recipe: &Recipe, note: &dyn Fn(&str)) -> anyhow::Result<Self> {
        let cache = cache_folder()?;
        fs::create_dir_all(&cache).with_context(|| format!("creating {}", cache.display()))?;
        if is_root() {
            ensure!(
                open_to_others(&cache),
                "{} is closed to the unprivileged user that runs servers for root: set {} elsewhere",
                cache.display(),
                crate::settings::CACHE
            );
        }
        let path = cache.join(recipe.name);
        if let Ok(root) = Self::open(&path) {
            return Ok(root);
        }
        let _lock = Lock::exclusive(&cache.join(format!("{}.lock", recipe.name)))?;
        if let Ok(root) = Self::open(&path) {
            return Ok(root);
        }
        note(&format!("fetching {} into {} (once)", recipe.packages.join(" and "), cache.display()));
        make(recipe, &cache, &path)?;
        Self::open(&path)
    }

    fn open(path: &Path) -> anyhow::Result<Self> {
        let suite = fs::read_to_string(path.join(SUITE))?;
        let (loader, libraries) = find_loader(path)?;
        Ok(Self { path: path.to_owned(), loader, libraries, suite })
    }

    pub(super) fn suite(&self) -> &str {
        &self.suite
    }

    pub(super) fn path(&self, inside: &str) -> PathBuf {
        self.path.join(inside)
    }

    /// A command that runs one of the root's programs with the root's own C library.
    pub(super) fn program(&self, inside: &str) -> Command {
        through_loader(&self.loader, &self.libraries, &self.path.join(inside))
    }
}

// Written last: a root without it is not whole.
const SUITE: &str = "suite";

fn make(recipe: &Recipe, cache: &Path, destination: &Path) -> anyhow::Result<()> {
    if destination.exists() {
        fs::remove_dir_all(destination)?;
    }
    let work = tempfile::Builder::new().prefix("making-").tempdir_in(cache)?;
    fs::set_permissions(work.path(), fs::Permissions::from_mode(0o755))?;
    let root = work.path().join("root");
    let suite = apt::unpack(recipe.packages, recipe.alone, recipe.suites, work.path(), &root)?;
    // Unpacking sets the root folder's mode to that of the packages' top folder; make sure that servers reach in.
    fs::set_permissions(&root, fs::Permissions::from_mode(0o755))?;
    if let Some(programs) = recipe.patched {
        patch(&root, destination, programs)?;
    }
    fs::write(root.join(SUITE), suite)?;
    fs::rename(&root, destination).with_context(|| format!("moving {} into place", destination.display()))
}

// The programs name the loader and the libraries where they will lie, so this comes before the move.
fn patch(root: &Path, destination: &Path, programs: &str) -> anyhow::Result<()> {
    let (loader, libraries) = find_loader(root)?;
    let moved = |path: &Path| path.strip_prefix(root).map(|inside| destination.join(inside));
    for entry in fs::read_dir(root.join(programs))? {
        let program = entry?.path();
        if program.is_symlink() || !fs::read(&program)?.starts_with(b"\x7fELF") {
            continue;
        }
        let output = through_loader(&loader, &libraries, &root.join("usr/bin/patchelf"))
            .arg("--set-interpreter")
            .arg(moved(&loader)?)
            // The older kind of run path also serves the libraries of libraries.
            .arg("--force-rpath")
            .arg("--set-rpath")
            .arg(moved(&libraries)?)
            .arg(&program)
            .output()?;
        ensure!(
            output.status.success(),
            "patchelf failed on {}: {}",
            program.display(),
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    Ok(())
}

fn through_loader(loader: &Path, libraries: &Path, program: &Path) -> Command {
    let mut command = Command::new(loader);
    command.arg("--library-path").arg(libraries).arg(program);
    command
}

fn find_loader(root: &Path) -> anyhow::Result<(PathBuf, PathBuf)> {
    for folder in fs::read_dir(root.join("usr/lib"))?.flatten() {
        let Ok(files) = fs::read_dir(folder.path()) else { continue };
        for file in files.flatten() {
            if file.file_name().to_string_lossy().starts_with("ld-linux") {
                return Ok((file.path(), folder.path()));
            }
        }
    }
    anyhow::bail!("no loader in {}", root.display())
}
