//! Files that libpq looks for unasked, in the user's home.

use std::ffi::OsString;
use std::path::PathBuf;

/// A file of libpq's folder, if it is there. Source: PostgreSQL documentation, "Client Certificates": `~/.postgresql` or
/// `%APPDATA%\\postgresql`.
pub(crate) fn file(name: &str) -> Option<PathBuf> {
    let folder = if cfg!(windows) {
        variable("APPDATA")?.join("postgresql")
    } else {
        variable("HOME")?.join(".postgresql")
    };
    Some(folder.join(name)).filter(|path| path.is_file())
}

/// The file of passwords. Source: PostgreSQL documentation, "The Password File".
pub(crate) fn passwords() -> Option<PathBuf> {
    let path = if cfg!(windows) {
        variable("APPDATA")?.join("postgresql").join("pgpass.conf")
    } else {
        variable("HOME")?.join(".pgpass")
    };
    Some(path).filter(|path| path.is_file())
}

/// The user's file of services, then the system's, those that are there. Source: PostgreSQL documentation, "The
/// Connection Service File".
pub(super) fn services(lookup: impl Fn(&str) -> Option<OsString>) -> Vec<PathBuf> {
    let user = match (cfg!(windows), lookup("PGSERVICEFILE").filter(|path| !path.is_empty())) {
        (_, Some(path)) => Some(PathBuf::from(path)),
        (true, None) => {
            lookup("APPDATA").map(|folder| PathBuf::from(folder).join("postgresql").join(".pg_service.conf"))
        }
        (false, None) => lookup("HOME").map(|folder| PathBuf::from(folder).join(".pg_service.conf")),
    };
    let system = lookup("PGSYSCONFDIR").map(|folder| PathBuf::from(folder).join("pg_service.conf"));
    user.into_iter().chain(system).filter(|path| path.is_file()).collect()
}

fn variable(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}
