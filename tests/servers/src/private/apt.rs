//! Fetches packages with apt-get into a folder of our own: its lists, its cache and its idea of what is installed all
//! lie there, so the whole closure comes along, C library included, and nothing on the host changes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, bail, ensure};

use super::sources::{self, Source};

const NEEDS: &str = "private binaries need apt-get, dpkg-deb and a Debian mirror in apt's sources";

/// Downloads packages with everything that they need, and others alone, and unpacks all of it into `root`. Returns the
/// suite.
pub(super) fn unpack(
    packages: &[&str],
    alone: &[&str],
    suites: &[&str],
    work: &Path,
    root: &Path,
) -> anyhow::Result<String> {
    for tool in ["apt-get", "dpkg-deb"] {
        ensure!(on_path(tool), "{NEEDS}: there is no {tool}");
    }
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let codename = os_release(&release, "VERSION_CODENAME").unwrap_or_default();
    let configured = sources::configured(Path::new("/etc/apt"));
    let mirrors = sources::mirrors(&configured, &codename, &today());
    ensure!(!mirrors.is_empty(), "{NEEDS}: no source there carries a Debian suite");
    let mut reasons = Vec::new();
    for suite in suites {
        for mirror in &mirrors {
            match download(packages, alone, mirror, suite, work) {
                Ok(archives) => {
                    unpack_all(&archives, root)?;
                    return Ok((*suite).to_owned());
                }
                Err(error) => reasons.push(format!("{suite}: {error:#}")),
            }
        }
    }
    bail!("{NEEDS}: {} could not be fetched ({})", packages.join(", "), reasons.join("; "))
}

fn download(
    packages: &[&str],
    alone: &[&str],
    mirror: &Source,
    suite: &str,
    work: &Path,
) -> anyhow::Result<Vec<PathBuf>> {
    let apt = Apt::in_folder(work, &sources::stanza(mirror, suite))?;
    apt.run(&["update"])?;
    let mut arguments = vec!["install", "--download-only", "--no-install-recommends", "--yes"];
    arguments.extend(packages);
    apt.run(&arguments)?;
    let folder = work.join("cache/archives");
    for package in alone {
        apt.run_in(&folder, &["download", package])?;
    }
    let archives: Vec<_> = fs::read_dir(folder)?
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "deb"))
        .collect();
    ensure!(!archives.is_empty(), "apt-get fetched nothing");
    Ok(archives)
}

fn unpack_all(archives: &[PathBuf], root: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(root)?;
    for archive in archives {
        let output = Command::new("dpkg-deb").arg("-x").arg(archive).arg(root).output()?;
        ensure!(
            output.status.success(),
            "dpkg-deb could not unpack {}: {}",
            archive.display(),
            last_line(&output.stderr)
        );
    }
    Ok(())
}

struct Apt {
    configuration: PathBuf,
}

impl Apt {
    fn in_folder(work: &Path, stanza: &str) -> anyhow::Result<Self> {
        // Nothing of an earlier try with another suite may stay.
        for part in ["lists", "cache", "state"] {
            let folder = work.join(part);
            if folder.exists() {
                fs::remove_dir_all(&folder)?;
            }
        }
        fs::create_dir_all(work.join("lists/partial"))?;
        fs::create_dir_all(work.join("cache/archives/partial"))?;
        fs::create_dir_all(work.join("state"))?;
        fs::write(work.join("private.sources"), stanza)?;
        let configuration = work.join("apt.conf");
        fs::write(&configuration, configuration_text(work)).context("writing apt's configuration")?;
        Ok(Self { configuration })
    }

    fn run(&self, arguments: &[&str]) -> anyhow::Result<()> {
        self.run_in(Path::new("/"), arguments)
    }

    fn run_in(&self, folder: &Path, arguments: &[&str]) -> anyhow::Result<()> {
        let output = Command::new("apt-get")
            .current_dir(folder)
            .arg("--config-file")
            .arg(&self.configuration)
            .args(arguments)
            .env("LC_ALL", "C.UTF-8")
            .env("DEBIAN_FRONTEND", "noninteractive")
            .output()
            .context("running apt-get")?;
        let errors = String::from_utf8_lossy(&output.stderr);
        let first = errors.lines().find(|line| line.starts_with("E:"));
        match first {
            Some(line) => bail!("{line}"),
            None if output.status.success() => Ok(()),
            None => bail!("apt-get {} ended with {}", arguments[0], output.status),
        }
    }
}

// Read last, over the host's own configuration (which may hold a proxy): hooks there would act on the host.
fn configuration_text(work: &Path) -> String {
    let work = work.display();
    format!(
        r#"#clear APT::Update::Pre-Invoke;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
#clear DPkg::Pre-Invoke;
#clear DPkg::Post-Invoke;
#clear DPkg::Pre-Install-Pkgs;
Acquire::IndexTargets::deb::DEP-11::DefaultEnabled "false";
Dir::State "{work}/state";
Dir::State::Lists "{work}/lists";
Dir::State::status "/dev/null";
Dir::State::extended_states "{work}/state/extended_states";
Dir::Cache "{work}/cache";
Dir::Cache::archives "{work}/cache/archives/";
Dir::Etc::SourceList "{work}/private.sources";
Dir::Etc::SourceParts "/dev/null";
Dir::Etc::Preferences "/dev/null";
Dir::Etc::PreferencesParts "/dev/null";
Dir::Log "{work}/state";
APT::Get::List-Cleanup "false";
APT::Update::Error-Mode "any";
APT::Default-Release "";
APT::Keep-Downloaded-Packages "true";
Acquire::Languages "none";
Acquire::Check-Valid-Until "false";
Acquire::Retries "2";
Debug::NoLocking "true";
"#
    )
}

fn on_path(tool: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(tool).is_file())
}

fn os_release(text: &str, key: &str) -> Option<String> {
    let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='))?;
    Some(line.trim().trim_matches('"').to_owned())
}

fn last_line(output: &[u8]) -> String {
    String::from_utf8_lossy(output).lines().last().unwrap_or("no reason given").to_owned()
}

fn today() -> String {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |age| age.as_secs());
    let (year, month, day) = civil(seconds / 86_400);
    format!("{year:04}{month:02}{day:02}T000000Z")
}

// The Gregorian date of a day since 1970: the common algorithm that counts years from March.
fn civil(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let era = shifted / 146_097;
    let day_of_era = shifted % 146_097;
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (year_of_era + era * 400 + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_become_dates() {
        assert_eq!(civil(0), (1970, 1, 1));
        assert_eq!(civil(11_016), (2000, 2, 29));
        assert_eq!(civil(20_453), (2025, 12, 31));
        assert_eq!(civil(20_454), (2026, 1, 1));
    }

    #[test]
    fn the_codename_is_read_with_and_without_quotes() {
        assert_eq!(
            os_release("ID=debian\nVERSION_CODENAME=bookworm\n", "VERSION_CODENAME").unwrap(),
            "bookworm"
        );
        assert_eq!(os_release("VERSION_CODENAME=\"sid\"", "VERSION_CODENAME").unwrap(), "sid");
        assert_eq!(os_release("VERSION=\"1\"", "VERSION_CODENAME"), None);
    }
}
