//! libpq's service files: options under the name of a service.
//!
//! This module may know how such a file is written; what an option means is the configuration's. No error repeats a line.
//!
//! Source: PostgreSQL documentation, "The Connection Service File".

use std::fs;
use std::path::{Path, PathBuf};

use super::{Setting, invalid, show_name};
use crate::error::Fault;

/// The settings of a service, from the first of these files that has it.
pub(super) fn read(service: &str, files: &[PathBuf]) -> Result<Vec<Setting>, Fault> {
    for path in files {
        if let Some(settings) = of_file(service, path)? {
            return Ok(settings);
        }
    }
    let names: Vec<_> = files.iter().map(|path| path.display().to_string()).collect();
    let looked = if names.is_empty() {
        "there is no service file (~/.pg_service.conf, or PGSERVICEFILE)".to_owned()
    } else {
        format!("it is not in {}", names.join(", "))
    };
    Err(invalid(format!("the service {} is not defined: {looked}", show_name(service))))
}

fn of_file(service: &str, path: &Path) -> Result<Option<Vec<Setting>>, Fault> {
    let shown = path.display();
    let unreadable = |error| invalid(format!("the service file {shown} cannot be read")).with_source(error);
    if !fs::metadata(path).map_err(unreadable)?.is_file() {
        return Err(invalid(format!("the service file {shown} is not a plain file")));
    }
    let text = fs::read_to_string(path).map_err(unreadable)?;
    find(service, &text).map_err(|error| error.context(&shown))
}

/// The settings of a service, if the text has it.
pub(crate) fn find(service: &str, text: &str) -> Result<Option<Vec<Setting>>, Fault> {
    let mut found: Option<Vec<Setting>> = None;
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if let Some(name) = line.strip_prefix('[') {
            if found.is_some() {
                break;
            }
            if name.strip_suffix(']') == Some(service) {
                found = Some(Vec::new());
            }
            continue;
        }
        let Some(settings) = &mut found else { continue };
        let Some((name, value)) = line.split_once('=') else {
            return Err(invalid(format!("line {} has no `=`", number + 1)));
        };
        if matches!(name, "service" | "servicefile") {
            return Err(invalid(format!("line {}: a service cannot name another one", number + 1)));
        }
        settings.push(Setting::new(name.to_owned(), value.to_owned()));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_has_the_lines_below_its_name() {
        let text = "# ours\n[a]\nhost=x\n\n [b] \n host=y\nport=2\n#no=1\noptions=-c a=b\n[c]\nhost=z\n[b]\nhost=w\n";
        let of = |service| {
            let settings = find(service, text).expect("well formed")?;
            Some(settings.iter().map(|s| format!("{}={}", s.name, s.value)).collect::<Vec<_>>())
        };
        assert_eq!(of("b").as_deref(), Some(&["host=y", "port=2", "options=-c a=b"].map(str::to_owned)[..]));
        assert_eq!(of("a").as_deref(), Some(&["host=x".to_owned()][..]));
        assert_eq!(of("d"), None);
        let error = find("a", "[a]\nhunter2").map(|_| ()).expect_err("no sign").to_string();
        assert!(error.contains("line 2") && !error.contains("hunter"), "{error}");
        assert!(find("a", "[a]\nservice=b").is_err());
        assert!(read("a", &[]).map(|_| ()).expect_err("no file").to_string().contains("PGSERVICEFILE"));
    }
}
