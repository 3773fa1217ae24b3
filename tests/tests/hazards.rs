//! The record in `HAZARDS.md` names tests that exist, and every topic runs on the databases that it is for.

use std::path::Path;

#[test]
fn every_named_test_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace");
    let record = std::fs::read_to_string(root.join("tests/HAZARDS.md")).expect("the record");
    let mut rows = 0;
    for line in record.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| source")) {
        let test = line.trim_end_matches(" |").rsplit(" | ").next().expect("a last column");
        let mut names = test.split('`').skip(1).step_by(2);
        let (Some(file), Some(name), None) = (names.next(), names.next(), names.next()) else {
            panic!("a row names a file and a test, each in backticks: {line}");
        };
        is_a_test(root, file, name);
        rows += 1;
    }
    assert!(rows >= 25, "{rows} rows were found");
}

/// A file has a test of this name, and it runs.
fn is_a_test(root: &Path, file: &str, name: &str) {
    let source = std::fs::read_to_string(root.join(file)).unwrap_or_else(|error| panic!("{file}: {error}"));
    let declared = [format!("fn {name}("), format!("fn {name}<")];
    let at = declared
        .iter()
        .find_map(|declared| source.find(declared))
        .unwrap_or_else(|| panic!("{file} has no test {name}"));
    let before = source[..at].lines().rev().take(4).collect::<Vec<_>>().join("\n");
    assert!(before.contains("test"), "{name} in {file} is not a test");
    assert!(!before.contains("ignore"), "{name} in {file} is ignored");
}

#[test]
fn every_lie_names_tests_that_exist_for_both_databases() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace");
    let record = std::fs::read_to_string(root.join("tests/LIES.md")).expect("the record");
    let mut rows = 0;
    for line in record.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| lie")) {
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        let [_, postgres, mysql] = cells[..] else { panic!("three columns: {line}") };
        for cell in [postgres, mysql] {
            // A file, then its tests, all in backticks.
            let mut file = None;
            for name in cell.split('`').skip(1).step_by(2) {
                if name.contains('/') {
                    file = Some(name);
                } else {
                    is_a_test(root, file.expect("a file comes first"), name);
                }
            }
            assert!(file.is_some() || cell == "the same" || cell.starts_with("there is none"), "{line}");
        }
        rows += 1;
    }
    assert!(rows >= 15, "{rows} rows were found");
}

#[test]
fn every_topic_runs_on_both_sides_unless_its_name_says_otherwise() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let names = |folder: &Path| -> Vec<String> {
        let files = std::fs::read_dir(folder).expect("a folder").filter_map(Result::ok);
        let names =
            files.filter_map(|file| file.file_name().to_str()?.strip_suffix(".rs").map(str::to_owned));
        names.collect()
    };
    let programs: Vec<String> = names(&folder)
        .iter()
        .map(|name| std::fs::read_to_string(folder.join(name).with_extension("rs")).expect("a program"))
        .collect();
    let topics = names(&folder.join("topics"));
    for topic in &topics {
        for side in ["postgres", "mysql"] {
            let is_for_it = match topic.split_once("_of_") {
                Some((_, only)) => only == side,
                None => true,
            };
            let runs = programs.iter().filter(|program| {
                let begin = program.split_once(&format!("\nmod {side} {{")).map_or("", |(_, rest)| rest);
                let side = begin.split_once("\n}").map_or("", |(inside, _)| inside);
                side.contains(&format!("mod {topic};"))
            });
            assert_eq!(runs.count(), usize::from(is_for_it), "{topic} on {side}");
        }
    }
    assert!(topics.len() > 20, "{topics:?}");
}
