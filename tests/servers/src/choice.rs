//! The order of choice, and the words for it: a URL, then Docker, then private binaries. This module decides what to
//! try and how to tell the outcome; it starts nothing itself.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use crate::server::{Facts, Kind, Origin};
use crate::settings::{Settings, WAY};

/// Why a way was not taken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Refusal {
    pub(crate) way: Origin,
    pub(crate) reason: String,
}

impl Refusal {
    pub(crate) fn new(way: Origin, reason: &anyhow::Error) -> Self {
        Self { way, reason: one_line(&format!("{reason:#}")) }
    }
}

/// Tries the ways that are open, in their order. Returns what worked, if anything did, and why the ones before did not.
pub(crate) fn first_that_works<T>(
    settings: &Settings,
    ways: &[Origin],
    mut attempt: impl FnMut(Origin) -> anyhow::Result<T>,
) -> (Option<T>, Vec<Refusal>) {
    let mut refusals = Vec::new();
    for &way in ways {
        if !settings.allows(way) {
            let reason = format!("{WAY} forces another way");
            refusals.push(Refusal { way, reason });
            continue;
        }
        match attempt(way) {
            Ok(found) => return (Some(found), refusals),
            Err(error) => refusals.push(Refusal::new(way, &error)),
        }
    }
    (None, refusals)
}

/// The one line that tells what was chosen and why the others were not.
pub(crate) fn report(facts: &Facts, refusals: &[Refusal]) -> String {
    let mut line = format!("test-servers: {}", facts.description());
    if !refusals.is_empty() {
        let reasons: Vec<_> =
            refusals.iter().map(|refusal| format!("{}: {}", refusal.way, refusal.reason)).collect();
        let _ = write!(line, " (not taken: {})", reasons.join("; "));
    }
    line
}

/// The error when nothing works: a line for each way, and what the user can do.
pub(crate) fn nothing_works(kind: Kind, refusals: &[Refusal]) -> anyhow::Error {
    let mut text = format!("no {kind} server can be had:");
    for refusal in refusals {
        let _ = write!(text, "\n  {}: {}", refusal.way, refusal.reason);
    }
    let _ = write!(
        text,
        "\n  Set {} to the URL of a running server, start Docker, or run on a Debian-like system with apt-get.",
        kind.url_variable()
    );
    anyhow::Error::msg(text)
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(only: Option<Origin>) -> Settings {
        Settings {
            kind: Kind::Postgres,
            only,
            url: None,
            image: "postgres:18".into(),
            instance: String::new(),
        }
    }

    const ALL: [Origin; 3] = [Origin::Url, Origin::Docker, Origin::Private];

    #[test]
    fn the_first_way_that_works_is_taken_and_later_ones_are_not_tried() {
        let mut tried = Vec::new();
        let (found, refusals) = first_that_works(&settings(None), &ALL, |way| {
            tried.push(way);
            anyhow::ensure!(way != Origin::Url, "not set");
            Ok(way)
        });
        assert_eq!(found, Some(Origin::Docker));
        assert_eq!(tried, [Origin::Url, Origin::Docker]);
        assert_eq!(refusals, [Refusal { way: Origin::Url, reason: "not set".into() }]);
    }

    #[test]
    fn a_forced_way_is_the_only_one_tried() {
        let mut tried = Vec::new();
        let (found, refusals) = first_that_works(&settings(Some(Origin::Private)), &ALL, |way| {
            tried.push(way);
            anyhow::bail!("broken") as anyhow::Result<()>
        });
        assert_eq!(found, None);
        assert_eq!(tried, [Origin::Private]);
        assert_eq!(refusals.len(), 3);
        assert!(refusals[0].reason.contains("PIPELINE_SERVERS"));
    }

    #[test]
    fn the_report_is_one_line_even_where_a_reason_is_not() {
        let facts = Facts {
            kind: Kind::Postgres,
            origin: Origin::Private,
            url: "postgres://u:secret@127.0.0.1:1/d".into(),
            version: "18.6".into(),
            source: "private binaries".into(),
            socket: None,
            certificate_authority: None,
            pid: None,
            folder: None,
        };
        let refusal = Refusal::new(Origin::Docker, &anyhow::anyhow!("no daemon\n  answers"));
        let line = report(&facts, &[refusal]);
        assert_eq!(
            line,
            "test-servers: PostgreSQL 18.6 at 127.0.0.1:1 from private binaries (not taken: Docker: no daemon answers)"
        );
    }

    #[test]
    fn the_error_has_a_line_for_each_way_and_says_what_to_do() {
        let refusals = [
            Refusal { way: Origin::Docker, reason: "no daemon".into() },
            Refusal { way: Origin::Private, reason: "no apt-get".into() },
        ];
        let text = nothing_works(Kind::Mysql, &refusals).to_string();
        assert_eq!(text.lines().count(), 4);
        assert!(text.contains("\n  Docker: no daemon\n  private binaries: no apt-get\n"));
        assert!(text.contains("MYSQL_PIPELINE_URL"));
    }
}
