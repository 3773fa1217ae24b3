//! libpq's file of passwords: `host:port:database:user:password`, one to a line, `*` for all.
//!
//! This module may know how the file is written; it must not show a line of it.
//!
//! Source: PostgreSQL documentation, "The Password File".

use std::fs;
use std::io;
use std::path::Path;

/// Whose password is wanted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entry<'a> {
    /// `localhost` for the directory of a Unix socket.
    pub(crate) host: &'a str,
    pub(crate) port: u16,
    pub(crate) database: &'a str,
    pub(crate) user: &'a str,
}

/// The password for an entry, by the first line that matches. A file that others may read is not used, as in libpq.
///
/// # Errors
///
/// When the file cannot be read.
pub(crate) fn find(path: &Path, entry: Entry<'_>) -> io::Result<Option<String>> {
    let metadata = fs::metadata(path)?;
    if !metadata.is_file() {
        tracing::warn!(file = %path.display(), "the password file is not a plain file, and is not used");
        return Ok(None);
    }
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        if metadata.permissions().mode() & 0o077 != 0 {
            tracing::warn!(
                file = %path.display(),
                "the password file may be read by others, and is not used; its permissions should be 0600 or less"
            );
            return Ok(None);
        }
    }
    Ok(first_match(&fs::read(path)?, entry))
}

/// The password of the first line that matches.
pub(crate) fn first_match(text: &[u8], entry: Entry<'_>) -> Option<String> {
    text.split(|byte| *byte == b'\n').find_map(|line| matching(line, entry))
}

/// The password of a line that matches.
fn matching(line: &[u8], entry: Entry<'_>) -> Option<String> {
    let line = std::str::from_utf8(line).ok()?;
    let line = line.strip_suffix('\r').unwrap_or(line);
    if line.is_empty() || line.starts_with('#') {
        return None;
    }
    let port = entry.port.to_string();
    let mut rest = line;
    for wanted in [entry.host, &port, entry.database, entry.user] {
        let (field, behind) = field(rest);
        let behind = behind?;
        if field != wanted && rest.split(':').next() != Some("*") {
            return None;
        }
        rest = behind;
    }
    let (password, _) = field(rest);
    Some(password)
}

/// One field, without its backslashes, and what is behind its colon.
fn field(text: &str) -> (String, Option<&str>) {
    let mut field = String::new();
    let mut letters = text.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            ':' => return (field, text.get(at + 1..)),
            '\\' => field.extend(letters.next().map(|(_, letter)| letter)),
            letter => field.push(letter),
        }
    }
    (field, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENTRY: Entry<'_> = Entry { host: "db", port: 5432, database: "app", user: "me" };

    #[test]
    fn the_first_line_that_matches_counts() {
        for (line, password) in [
            ("db:5432:app:me:secret", Some("secret")),
            ("*:*:*:*:secret", Some("secret")),
            ("db:*:app:*:se\\:cr\\\\et", Some("se:cr\\et")),
            ("db:5432:app:me:", Some("")),
            ("db:5432:app:me:a:b", Some("a")),
            ("db:5432:app:me:secret\r", Some("secret")),
            ("other:5432:app:me:secret", None),
            ("db:5433:app:me:secret", None),
            ("db:5432:app:you:secret", None),
            ("db:5432:app:me", None),
            ("#db:5432:app:me:secret", None),
            ("\\*:5432:app:me:secret", None),
            ("", None),
        ] {
            assert_eq!(matching(line.as_bytes(), ENTRY).as_deref(), password, "{line}");
        }
        let escaped = Entry { host: "::1", ..ENTRY };
        assert_eq!(matching(b"\\:\\:1:5432:app:me:x", escaped).as_deref(), Some("x"));
        assert_eq!(matching(b"\xff:5432:app:me:x", ENTRY), None);
    }

    #[cfg(unix)]
    #[test]
    fn a_file_that_others_may_read_is_not_used() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("pgpass");
        fs::write(&path, "x:1:2:3:4\ndb:5432:app:me:secret\n*:*:*:*:other\n").expect("written");
        for (mode, password) in
            [(0o600, Some("secret")), (0o400, Some("secret")), (0o640, None), (0o604, None)]
        {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("set");
            assert_eq!(find(&path, ENTRY).expect("readable").as_deref(), password, "{mode:o}");
        }
        assert!(find(&folder.path().join("missing"), ENTRY).is_err());
        assert_eq!(find(folder.path(), ENTRY).expect("a folder"), None);
    }
}
