//! Finds the supervisor's executable. Cargo builds it beside the tests when this package is among what is tested, and
//! not otherwise; then we ask cargo for it. An executable of other sources than ours is never used.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail, ensure};

use crate::meeting::FINGERPRINT;
use crate::settings::{self, SUPERVISOR};

const NAME: &str = "test-servers";

/// The path of a supervisor made from these very sources.
pub(crate) fn find(note: &dyn Fn(&str)) -> anyhow::Result<PathBuf> {
    if let Some(path) = settings::path_variable(SUPERVISOR) {
        ensure!(
            is_current(&path),
            "{SUPERVISOR} names {}, which is not this version's supervisor",
            path.display()
        );
        return Ok(path);
    }
    let own = std::env::current_exe().context("finding our own executable")?;
    if let Some(found) = nearby(&own).into_iter().find(|path| is_current(path)) {
        return Ok(found);
    }
    build(note)
}

// `target/debug/deps/test-1234` or `target/release/bench-app`: look there and among the other profiles.
fn nearby(own: &Path) -> Vec<PathBuf> {
    let mut folder = own.parent();
    if folder.is_some_and(|folder| folder.ends_with("deps") || folder.ends_with("examples")) {
        folder = folder.and_then(Path::parent);
    }
    let Some(profile) = folder else { return Vec::new() };
    let mut found = vec![profile.join(NAME)];
    if let Some(target) = profile.parent() {
        found.extend(["debug", "release"].map(|other| target.join(other).join(NAME)));
    }
    found
}

fn is_current(path: &Path) -> bool {
    path.is_file()
        && Command::new(path)
            .arg("fingerprint")
            .stdin(Stdio::null())
            .output()
            .is_ok_and(|output| String::from_utf8_lossy(&output.stdout).trim() == FINGERPRINT)
}

fn build(note: &dyn Fn(&str)) -> anyhow::Result<PathBuf> {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
    ensure!(
        manifest.is_file(),
        "the supervisor is not built and its sources are gone: set {SUPERVISOR} to its executable"
    );
    note("building the supervisor of the test servers (once, one to three minutes)");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["build", "--quiet", "--package", NAME, "--bin", NAME, "--message-format=json"]);
    command.arg("--manifest-path").arg(&manifest);
    // Built together with whoever asks, dependencies get the same features and are not compiled a second time.
    if let Some(package) = settings::variable("CARGO_PKG_NAME").filter(|package| package != NAME) {
        command.args(["--package", &package]);
    }
    let output = command
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .context("running cargo to build the supervisor of the test servers")?;
    ensure!(output.status.success(), "cargo could not build the supervisor ({})", output.status);
    let built = built(&String::from_utf8_lossy(&output.stdout)).context("cargo named no executable")?;
    if !is_current(&built) {
        bail!("the sources of {NAME} changed while it was being built: run again");
    }
    Ok(built)
}

// Cargo's external tools docs, "JSON messages": one object a line; only binaries name an executable.
fn built(messages: &str) -> Option<PathBuf> {
    messages.lines().find_map(|line| {
        let message: serde_json::Value = serde_json::from_str(line).ok()?;
        let is_ours = message["target"]["name"] == NAME && message["target"]["kind"][0] == "bin";
        message["executable"].as_str().filter(|_| is_ours).map(PathBuf::from)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_executable_is_looked_for_beside_the_tests_and_the_binaries() {
        assert_eq!(nearby(Path::new("/t/debug/deps/it-1"))[0], Path::new("/t/debug/test-servers"));
        let beside = nearby(Path::new("/t/release/bench-app"));
        assert_eq!(beside[0], Path::new("/t/release/test-servers"));
        assert!(beside.contains(&PathBuf::from("/t/debug/test-servers")));
    }

    #[test]
    fn cargo_tells_where_it_put_the_binary() {
        let messages = r#"{"reason":"compiler-artifact","target":{"kind":["lib"],"name":"test_servers"},"executable":null}
{"reason":"compiler-artifact","target":{"kind":["bin"],"name":"other"},"executable":"/t/other"}
{"reason":"compiler-artifact","target":{"kind":["bin"],"name":"test-servers"},"executable":"/t/debug/test-servers"}
{"reason":"build-finished","success":true}"#;
        assert_eq!(built(messages).unwrap(), Path::new("/t/debug/test-servers"));
        assert_eq!(built(""), None);
    }
}
