//! Reads which mirrors apt is set up with, in both formats, and derives where newer suites of the same mirror lie.
//! Text in, values out; no addresses are known here.

use std::fs;
use std::path::Path;

/// One mirror of one suite, as configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Source {
    pub(super) uri: String,
    pub(super) suite: String,
    pub(super) components: Vec<String>,
    /// The value of `Signed-By`, one line of it per entry: a path, a fingerprint, or a whole key.
    pub(super) signed_by: Vec<String>,
}

/// Every source in apt's configuration folder.
pub(super) fn configured(etc_apt: &Path) -> Vec<Source> {
    let mut files = vec![etc_apt.join("sources.list")];
    if let Ok(entries) = fs::read_dir(etc_apt.join("sources.list.d")) {
        let mut parts: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
        parts.sort();
        files.extend(parts);
    }
    let mut sources = Vec::new();
    for file in files {
        let Ok(text) = fs::read_to_string(&file) else { continue };
        match file.extension().and_then(|extension| extension.to_str()) {
            Some("sources") => sources.extend(deb822(&text)),
            Some("list") => sources.extend(one_line(&text)),
            _ => {}
        }
    }
    sources
}

/// The mirrors worth asking for newer suites: those that carry a suite of this very distribution's main archive.
pub(super) fn mirrors(sources: &[Source], codename: &str, today: &str) -> Vec<Source> {
    let own = ["stable", "oldstable", "testing", "unstable", "sid", codename];
    let mut found: Vec<Source> = Vec::new();
    for source in sources {
        let main = source.components.iter().any(|component| component == "main");
        if main && own.contains(&source.suite.as_str()) && !found.iter().any(|seen| seen.uri == source.uri) {
            found.push(source.clone());
        }
    }
    // A mirror of one moment in the past has no newer suites than that moment's; the same mirror of today may.
    let moved: Vec<_> = found
        .iter()
        .filter_map(|source| Some(Source { uri: at_moment(&source.uri, today)?, ..source.clone() }))
        .collect();
    moved.into_iter().chain(found).collect()
}

/// The source in the `deb822` format, for another suite.
pub(super) fn stanza(source: &Source, suite: &str) -> String {
    let mut text = format!("Types: deb\nURIs: {}\nSuites: {suite}\nComponents: main\n", source.uri);
    if let Some((first, rest)) = source.signed_by.split_first() {
        text.push_str("Signed-By: ");
        text.push_str(first);
        text.push('\n');
        for line in rest {
            text.push(' ');
            text.push_str(if line.is_empty() { "." } else { line });
            text.push('\n');
        }
    }
    text
}

// `deb [signed-by=… arch=…] uri suite component…`, see sources.list(5).
fn one_line(text: &str) -> Vec<Source> {
    let mut sources = Vec::new();
    for line in text.lines() {
        let line = line.split('#').next().unwrap_or_default().trim();
        let Some(rest) = line.strip_prefix("deb").filter(|rest| rest.starts_with([' ', '\t', '['])) else {
            continue;
        };
        let rest = rest.trim_start();
        let (options, rest) = match rest.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((options, rest)) => (options, rest),
            None => ("", rest),
        };
        let signed_by = options
            .split_whitespace()
            .find_map(|option| option.strip_prefix("signed-by="))
            .map(str::to_owned);
        let mut words = rest.split_whitespace().map(str::to_owned);
        if let (Some(uri), Some(suite)) = (words.next(), words.next()) {
            let signed_by = signed_by.into_iter().collect();
            sources.push(Source { uri, suite, components: words.collect(), signed_by });
        }
    }
    sources
}

// Stanzas of `Field: value` with continuation lines, see sources.list(5), "deb822-style format".
fn deb822(text: &str) -> Vec<Source> {
    let mut sources = Vec::new();
    let mut fields: Vec<(String, Vec<String>)> = Vec::new();
    for line in text.lines().chain([""]) {
        if line.trim().is_empty() {
            sources.extend(from_fields(&fields));
            fields.clear();
        } else if line.starts_with('#') {
            // A comment may stand in the middle of a stanza.
        } else if line.starts_with([' ', '\t']) {
            if let Some((_, values)) = fields.last_mut() {
                let line = line.trim();
                values.push(if line == "." { String::new() } else { line.to_owned() });
            }
        } else if let Some((name, value)) = line.split_once(':') {
            fields.push((name.trim().to_ascii_lowercase(), vec![value.trim().to_owned()]));
        }
    }
    sources
}

fn from_fields(fields: &[(String, Vec<String>)]) -> Vec<Source> {
    let lines = |name: &str| {
        fields.iter().find(|(field, _)| field == name).map(|(_, values)| values.clone()).unwrap_or_default()
    };
    let words = |name: &str| -> Vec<String> {
        lines(name).iter().flat_map(|line| line.split_whitespace()).map(str::to_owned).collect()
    };
    let enabled = !matches!(words("enabled").first().map(String::as_str), Some("no" | "false" | "off" | "0"));
    if !enabled || !words("types").iter().any(|kind| kind == "deb") {
        return Vec::new();
    }
    let signed_by = lines("signed-by");
    let mut sources = Vec::new();
    for uri in words("uris") {
        for suite in words("suites") {
            sources.push(Source {
                uri: uri.clone(),
                suite,
                components: words("components"),
                signed_by: signed_by.clone(),
            });
        }
    }
    sources
}

// An archive of past moments has a moment such as 20250520T000000Z as one part of its path.
fn at_moment(uri: &str, moment: &str) -> Option<String> {
    let mut moved = false;
    let parts: Vec<_> = uri
        .split('/')
        .map(|part| {
            if is_moment(part) && part != moment {
                moved = true;
                moment
            } else {
                part
            }
        })
        .collect();
    moved.then(|| parts.join("/"))
}

fn is_moment(part: &str) -> bool {
    let bytes = part.as_bytes();
    bytes.len() == 16
        && bytes[8] == b'T'
        && bytes[15] == b'Z'
        && bytes.iter().enumerate().all(|(at, byte)| at == 8 || at == 15 || byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEB822: &str = "\
# the main archive
Types: deb deb-src
# a comment in the middle
URIs: http://mirror.example/debian
Suites: bookworm bookworm-updates
Components: main contrib
Signed-By: /usr/share/keyrings/archive.gpg

Types: deb
URIs: http://mirror.example/debian-security
Suites: bookworm-security
Components: main

Enabled: no
Types: deb
URIs: http://off.example/debian
Suites: bookworm
Components: main

Types: deb-src
URIs: http://mirror.example/debian
Suites: sid
Components: main
";

    const LIST: &str = "\
# deb http://commented.example/debian bookworm main
deb [arch=amd64 signed-by=/etc/apt/keyrings/a.gpg] http://list.example/debian bookworm main non-free # tail
deb-src http://list.example/debian bookworm main
deb\thttp://plain.example/debian stable main
debris
";

    #[test]
    fn deb822_stanzas_give_one_source_per_address_and_suite() {
        let sources = deb822(DEB822);
        let seen: Vec<_> = sources.iter().map(|s| (s.uri.as_str(), s.suite.as_str())).collect();
        assert_eq!(
            seen,
            [
                ("http://mirror.example/debian", "bookworm"),
                ("http://mirror.example/debian", "bookworm-updates"),
                ("http://mirror.example/debian-security", "bookworm-security"),
            ]
        );
        assert_eq!(sources[0].components, ["main", "contrib"]);
        assert_eq!(sources[0].signed_by, ["/usr/share/keyrings/archive.gpg"]);
    }

    #[test]
    fn a_key_within_a_stanza_is_carried_over_line_by_line() {
        let text = "Types: deb\nURIs: http://m.example/debian\nSuites: sid\nComponents: main\n\
                    Signed-By:\n -----BEGIN-----\n .\n abc=\n -----END-----\n";
        let sources = deb822(text);
        assert_eq!(sources[0].signed_by, ["", "-----BEGIN-----", "", "abc=", "-----END-----"]);
        let again = deb822(&stanza(&sources[0], "testing"));
        assert_eq!(again[0].signed_by, sources[0].signed_by);
        assert_eq!(again[0].suite, "testing");
    }

    #[test]
    fn one_line_sources_are_read_with_options_and_comments() {
        let sources = one_line(LIST);
        assert_eq!(sources.len(), 2);
        assert_eq!(sources[0].uri, "http://list.example/debian");
        assert_eq!(sources[0].components, ["main", "non-free"]);
        assert_eq!(sources[0].signed_by, ["/etc/apt/keyrings/a.gpg"]);
        assert_eq!(sources[1].uri, "http://plain.example/debian");
        assert!(sources[1].signed_by.is_empty());
    }

    #[test]
    fn only_the_distributions_own_suites_name_a_mirror() {
        let mut sources = deb822(DEB822);
        sources.extend(one_line("deb https://tool.example/apt tool-bookworm main\n"));
        sources.extend(one_line(LIST));
        let uris: Vec<_> =
            mirrors(&sources, "bookworm", "20300101T000000Z").into_iter().map(|s| s.uri).collect();
        assert_eq!(
            uris,
            ["http://mirror.example/debian", "http://list.example/debian", "http://plain.example/debian"]
        );
    }

    #[test]
    fn a_mirror_of_one_moment_is_asked_for_today_first() {
        let sources = one_line("deb http://m.example/archive/debian/20250520T000000Z bookworm main\n");
        let uris: Vec<_> =
            mirrors(&sources, "bookworm", "20300101T000000Z").into_iter().map(|s| s.uri).collect();
        assert_eq!(
            uris,
            [
                "http://m.example/archive/debian/20300101T000000Z",
                "http://m.example/archive/debian/20250520T000000Z"
            ]
        );
    }

    #[test]
    fn both_formats_are_found_in_apts_folder() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("sources.list.d")).unwrap();
        fs::write(folder.path().join("sources.list"), LIST).unwrap();
        fs::write(folder.path().join("sources.list.d/main.sources"), DEB822).unwrap();
        fs::write(folder.path().join("sources.list.d/old.save"), LIST).unwrap();
        assert_eq!(configured(folder.path()).len(), 5);
    }
}
