//! What the user decides through the environment. Reading it happens here and nowhere else; nothing is started.

use std::path::PathBuf;

use anyhow::bail;
use serde::{Deserialize, Serialize};

use crate::server::{Kind, Origin};

/// Forces one way of getting a server: `url`, `docker` or `private`.
pub(crate) const WAY: &str = "PIPELINE_SERVERS";
/// The folder for server binaries, kept between runs.
pub(crate) const CACHE: &str = "PIPELINE_SERVERS_CACHE";
/// The folder where clients and the supervisor meet. A run with a folder of its own has servers of its own.
pub(crate) const RUN: &str = "PIPELINE_SERVERS_RUN";
/// The supervisor's executable, where neither a built one nor cargo can be found.
pub(crate) const SUPERVISOR: &str = "PIPELINE_SERVERS_SUPERVISOR";

impl Kind {
    /// The variable with the URL of a running server.
    pub fn url_variable(self) -> &'static str {
        match self {
            Self::Postgres => "PG_PIPELINE_URL",
            Self::Mysql => "MYSQL_PIPELINE_URL",
            Self::Mariadb => "MARIADB_PIPELINE_URL",
        }
    }

    /// The variable with the image to use in place of the default one.
    pub fn image_variable(self) -> &'static str {
        match self {
            Self::Postgres => "PG_PIPELINE_IMAGE",
            Self::Mysql => "MYSQL_PIPELINE_IMAGE",
            Self::Mariadb => "MARIADB_PIPELINE_IMAGE",
        }
    }

    /// The image that is used when the environment names none.
    pub fn default_image(self) -> &'static str {
        match self {
            Self::Postgres => "postgres:18",
            Self::Mysql => "mysql:8.4",
            Self::Mariadb => "mariadb:11.8",
        }
    }
}

/// The environment's say on one kind of server.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Settings {
    pub(crate) kind: Kind,
    pub(crate) only: Option<Origin>,
    pub(crate) url: Option<String>,
    pub(crate) image: String,
    /// Tells servers of their own from the one that everybody shares, whose name is empty.
    pub(crate) instance: String,
}

impl Settings {
    pub(crate) fn from_environment(kind: Kind) -> anyhow::Result<Self> {
        Self::from_lookup(kind, variable)
    }

    /// `look_up` answers with a variable's value; tests bring their own.
    pub(crate) fn from_lookup(kind: Kind, look_up: impl Fn(&str) -> Option<String>) -> anyhow::Result<Self> {
        let only = match look_up(WAY).as_deref() {
            None => None,
            Some("url") => Some(Origin::Url),
            Some("docker") => Some(Origin::Docker),
            Some("private") => Some(Origin::Private),
            Some(other) => bail!("{WAY} is `{other}`: set it to url, docker or private, or leave it out"),
        };
        Ok(Self {
            kind,
            only,
            url: look_up(kind.url_variable()),
            image: look_up(kind.image_variable()).unwrap_or_else(|| kind.default_image().to_owned()),
            instance: String::new(),
        })
    }

    /// The same for a server of one's own: never one that somebody else has named.
    pub(crate) fn own(self, instance: &str) -> Self {
        Self { url: None, instance: instance.to_owned(), ..self }
    }

    /// The ways to start a server, in their order. Only private binaries can be stopped and started again, so they come
    /// first where that may be wanted.
    pub(crate) fn ways(&self) -> [Origin; 2] {
        if self.instance.is_empty() {
            [Origin::Docker, Origin::Private]
        } else {
            [Origin::Private, Origin::Docker]
        }
    }

    /// Whether a way is open: it is, unless another one is forced.
    pub(crate) fn allows(&self, way: Origin) -> bool {
        self.only.is_none_or(|only| only == way)
    }
}

/// A variable's value, where it is set to something.
pub(crate) fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.trim().is_empty())
}

/// The same for a path.
pub(crate) fn path_variable(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(pairs: &'static [(&str, &str)]) -> impl Fn(&str) -> Option<String> {
        move |name| pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
    }

    #[test]
    fn an_empty_environment_leaves_every_way_open() {
        let settings = Settings::from_lookup(Kind::Mysql, with(&[])).unwrap();
        assert_eq!(settings.image, "mysql:8.4");
        assert_eq!(settings.url, None);
        assert!([Origin::Url, Origin::Docker, Origin::Private].into_iter().all(|way| settings.allows(way)));
    }

    #[test]
    fn each_server_reads_its_own_url_and_image() {
        let look_up =
            with(&[("PG_PIPELINE_URL", "postgres://a@b/c"), ("MYSQL_PIPELINE_IMAGE", "local/mysql:9.7")]);
        let postgres = Settings::from_lookup(Kind::Postgres, &look_up).unwrap();
        assert_eq!(postgres.url.as_deref(), Some("postgres://a@b/c"));
        assert_eq!(postgres.image, "postgres:18");
        let mysql = Settings::from_lookup(Kind::Mysql, &look_up).unwrap();
        assert_eq!(mysql.url, None);
        assert_eq!(mysql.image, "local/mysql:9.7");
    }

    #[test]
    fn one_way_can_be_forced_and_a_wrong_word_is_named() {
        let settings =
            Settings::from_lookup(Kind::Postgres, with(&[("PIPELINE_SERVERS", "docker")])).unwrap();
        assert!(settings.allows(Origin::Docker));
        assert!(!settings.allows(Origin::Private) && !settings.allows(Origin::Url));
        let error =
            Settings::from_lookup(Kind::Postgres, with(&[("PIPELINE_SERVERS", "podman")])).unwrap_err();
        assert!(error.to_string().contains("`podman`"));
    }
}
