//! Which account runs a server. Servers refuse to run as root, so for root they run as `nobody`.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use anyhow::Context as _;

use crate::meeting::is_root;

/// The account for servers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Account {
    unprivileged: Option<(u32, u32)>,
}

impl Account {
    pub(super) fn for_servers() -> Self {
        let unprivileged = is_root().then(|| {
            let passwd = fs::read_to_string("/etc/passwd").unwrap_or_default();
            nobody(&passwd).unwrap_or((65_534, 65_534))
        });
        Self { unprivileged }
    }

    /// Makes a folder that the account owns.
    pub(super) fn create_folder(self, path: &Path) -> anyhow::Result<()> {
        fs::create_dir_all(path).with_context(|| format!("creating {}", path.display()))?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o700))?;
        self.own(path)
    }

    /// Writes a file that the account owns and nobody else reads.
    pub(super) fn write_file(self, path: &Path, text: &str) -> anyhow::Result<()> {
        fs::write(path, text).with_context(|| format!("writing {}", path.display()))?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
        self.own(path)
    }

    /// Lets a command run as the account, away from the folder and the language of whoever started us.
    pub(super) fn prepare(self, command: &mut Command, folder: &Path) {
        command
            .current_dir(folder)
            .env("HOME", folder)
            .env("TMPDIR", folder)
            .env("LC_ALL", "C")
            .env("TZ", "UTC");
        command.env_remove("LANG").env_remove("LD_LIBRARY_PATH").env_remove("LD_PRELOAD");
        if let Some((user, group)) = self.unprivileged {
            command.uid(user).gid(group);
        }
    }

    fn own(self, path: &Path) -> anyhow::Result<()> {
        match self.unprivileged {
            Some((user, group)) => chown(path, Some(user), Some(group))
                .with_context(|| format!("giving {} to an unprivileged user", path.display())),
            None => Ok(()),
        }
    }
}

fn nobody(passwd: &str) -> Option<(u32, u32)> {
    let line = passwd.lines().find_map(|line| line.strip_prefix("nobody:"))?;
    let mut fields = line.split(':').skip(1);
    Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_found_among_the_accounts() {
        let passwd = "root:x:0:0:root:/root:/bin/sh\nnobody:x:99:98:nobody:/:/bin/false\n";
        assert_eq!(nobody(passwd), Some((99, 98)));
        assert_eq!(nobody("root:x:0:0::/:/bin/sh\n"), None);
    }
}
