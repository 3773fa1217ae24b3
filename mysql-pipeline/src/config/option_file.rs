//! Option files of MySQL's programs: `my.cnf`, `.my.cnf`, `.mylogin.cnf`'s readable kin.
//!
//! This module may know how such files are written and which groups count; what an option means is the configuration's.
//! Reading is apart from understanding. No error repeats a line: it may contain a password.
//!
//! Source: MySQL manual, "Using Option Files"; MariaDB documentation, "Configuring MariaDB with Option Files".

use std::fs;
use std::path::{Path, PathBuf};

use wire_pipeline::config::{Setting, invalid};

use crate::error::Fault;

/// Groups that every client reads.
const GROUPS: [&str; 3] = ["client", "client-server", "client-mariadb"];

/// How deep files may include each other. Source: MySQL sources, `my_default.cc`.
const MOST_INCLUDED: u32 = 10;

/// One meaningful line.
#[derive(Debug, PartialEq, Eq)]
enum Line {
    /// An option with its value, `1` if it has none.
    Option(String, String),
    /// Another file.
    Include(PathBuf),
    /// The `.cnf` files of a folder.
    IncludeFolder(PathBuf),
}

/// The settings of a file and of those that it includes, in order.
pub(super) fn read(path: &Path) -> Result<Vec<Setting>, Fault> {
    let mut settings = Vec::new();
    collect(path, 0, &mut settings)?;
    Ok(settings)
}

fn collect(path: &Path, depth: u32, settings: &mut Vec<Setting>) -> Result<(), Fault> {
    if depth > MOST_INCLUDED {
        return Err(invalid("option files include each other without end"));
    }
    let shown = path.display();
    let unreadable = |error| invalid(format!("the option file {shown} cannot be read")).with_source(error);
    check_mode(path).map_err(unreadable)??;
    let text = fs::read_to_string(path).map_err(unreadable)?;
    for line in parse(&text).map_err(|error| error.context(&shown))? {
        match line {
            Line::Option(name, value) => settings.push(Setting::new(name, value)),
            Line::Include(path) => collect(&path, depth + 1, settings)?,
            Line::IncludeFolder(folder) => {
                let entries = fs::read_dir(&folder).map_err(unreadable)?;
                let mut files: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
                files.retain(|file| file.extension().is_some_and(|extension| extension == "cnf"));
                files.sort();
                for file in files {
                    collect(&file, depth + 1, settings)?;
                }
            }
        }
    }
    Ok(())
}

/// What everybody may write, everybody may point at a server of their own: MySQL's programs leave such a file out.
fn check_mode(path: &Path) -> std::io::Result<Result<(), Fault>> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        if fs::metadata(path)?.permissions().mode() & 0o002 != 0 {
            let message =
                format!("everybody may write to the option file {}; take that right away", path.display());
            return Ok(Err(invalid(message)));
        }
    }
    let _ = path;
    Ok(Ok(()))
}

fn parse(text: &str) -> Result<Vec<Line>, Fault> {
    let mut lines = Vec::new();
    let mut counts = false;
    for (number, line) in text.lines().enumerate() {
        let malformed = |what: &str| invalid(format!("line {}: {what}", number + 1));
        let line = line.trim();
        if line.is_empty() || line.starts_with(['#', ';']) {
            continue;
        }
        if let Some(directive) = line.strip_prefix('!') {
            // In whatever group they stand.
            let (word, path) = directive.split_once(char::is_whitespace).unwrap_or((directive, ""));
            let path = PathBuf::from(path.trim());
            lines.push(match word {
                _ if path.as_os_str().is_empty() => return Err(malformed("a directive without a path")),
                "include" => Line::Include(path),
                "includedir" => Line::IncludeFolder(path),
                _ => return Err(malformed("an unknown directive")),
            });
            continue;
        }
        if let Some(group) = line.strip_prefix('[') {
            let (name, _) = group.split_once(']').ok_or_else(|| malformed("`[` without `]`"))?;
            counts = GROUPS.contains(&name.trim());
            continue;
        }
        if !counts {
            continue;
        }
        let (name, value) = match line.split_once('=') {
            Some((name, value)) => (name.trim(), value_of(value.trim()).map_err(malformed)?),
            // A `#` may stand behind the name too.
            None => (line.split('#').next().unwrap_or_default().trim(), "1".to_owned()),
        };
        lines.push(Line::Option(name.to_owned(), value));
    }
    Ok(lines)
}

/// A value, in quotes or not, with escapes; a comment may follow.
fn value_of(text: &str) -> Result<String, &'static str> {
    let mut characters = text.chars();
    let quote = text.chars().next().filter(|first| matches!(first, '\'' | '"'));
    if quote.is_some() {
        characters.next();
    }
    let mut value = String::new();
    let mut closed = false;
    while let Some(character) = characters.next() {
        match character {
            _ if Some(character) == quote => {
                closed = true;
                break;
            }
            '#' if quote.is_none() => break,
            '\\' => match characters.next() {
                Some('b') => value.push('\u{8}'),
                Some('n') => value.push('\n'),
                Some('r') => value.push('\r'),
                Some('s') => value.push(' '),
                Some('t') => value.push('\t'),
                Some(quoted @ ('\\' | '\'' | '"')) => value.push(quoted),
                // What is no escape stands for itself.
                Some(other) => value.extend(['\\', other]),
                None => value.push('\\'),
            },
            _ => value.push(character),
        }
    }
    let rest = characters.as_str().trim_start();
    match quote {
        Some(_) if !closed => Err("a quote that is not closed"),
        Some(_) if !rest.is_empty() && !rest.starts_with('#') => Err("something behind a closing quote"),
        Some(_) => Ok(value),
        None => Ok(value.trim_end().to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn option(name: &str, value: &str) -> Line {
        Line::Option(name.to_owned(), value.to_owned())
    }

    #[test]
    fn the_groups_of_clients_count_and_no_others() {
        let text = "user=none\n[mysqld]\nport=1\n[client]\nhost = db.internal\n# a comment\n; another\n\n\
                    compress\n[mysql]\nuser=other\n[client-mariadb]\nuser=app\n[ client ]\nport=3307 # here\n";
        assert_eq!(
            parse(text).unwrap(),
            [
                option("host", "db.internal"),
                option("compress", "1"),
                option("user", "app"),
                option("port", "3307")
            ]
        );
    }

    #[test]
    fn values_are_read_as_mysqls_programs_do() {
        for (text, expected) in [
            ("plain", "plain"),
            ("  with blanks  ", "with blanks"),
            ("'sec#ret'", "sec#ret"),
            ("\"it's\"  # said", "it's"),
            ("a\\sb\\tc\\\\d", "a b\tc\\d"),
            ("C:\\Program\\x", "C:\\Program\\x"),
            ("secret#comment", "secret"),
            ("'a\\'b'", "a'b"),
            ("p=q", "p=q"),
            ("", ""),
        ] {
            assert_eq!(
                parse(&format!("[client]\npassword={text}\n")).unwrap(),
                [option("password", expected)],
                "{text}"
            );
        }
    }

    #[test]
    fn what_is_wrong_is_told_with_its_line_and_not_repeated() {
        for text in
            ["[client", "[client]\npassword='hush", "[client]\npassword='a'hush", "!import hush", "!include"]
        {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains("line ") && !error.contains("hush"), "{text}: {error}");
        }
    }

    #[test]
    fn files_include_others_and_not_without_end() {
        let folder = std::env::temp_dir().join(format!("option-files-{}", std::process::id()));
        fs::create_dir_all(folder.join("more")).unwrap();
        let write = |name: &str, text: &str| fs::write(folder.join(name), text).unwrap();
        let shown = folder.display();
        write(
            "my.cnf",
            &format!("[client]\nuser=app\n!includedir {shown}/more\n!include {shown}/last\nport=7\n"),
        );
        write("more/b.cnf", "[client]\npassword=b\n");
        write("more/a.cnf", "[client]\npassword=a\n");
        write("more/c.txt", "[client]\npassword=c\n");
        write("last", "host=outside\n[client]\nhost=h\n");
        let settings = read(&folder.join("my.cnf")).unwrap();
        let seen: Vec<_> =
            settings.iter().map(|setting| format!("{}={}", setting.name, setting.value)).collect();
        assert_eq!(seen, ["user=app", "password=a", "password=b", "host=h", "port=7"]);
        write("circle", &format!("!include {shown}/circle\n"));
        assert!(read(&folder.join("circle")).err().expect("without end").to_string().contains("without end"));
        assert!(read(&folder.join("nothing")).err().expect("not there").to_string().contains("nothing"));
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt as _;
            fs::set_permissions(folder.join("last"), fs::Permissions::from_mode(0o666)).unwrap();
            let error = read(&folder.join("last")).err().expect("open to all").to_string();
            assert!(error.contains("everybody may write"), "{error}");
        }
        fs::remove_dir_all(folder).unwrap();
    }
}
