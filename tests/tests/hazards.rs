//! The record in `HAZARDS.md` names tests that exist.

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
        let source =
            std::fs::read_to_string(root.join(file)).unwrap_or_else(|error| panic!("{file}: {error}"));
        let declared = [format!("fn {name}("), format!("fn {name}<")];
        let at = declared
            .iter()
            .find_map(|declared| source.find(declared))
            .unwrap_or_else(|| panic!("{file} has no test {name}"));
        let before = source[..at].lines().rev().take(4).collect::<Vec<_>>().join("\n");
        assert!(before.contains("test"), "{name} in {file} is not a test");
        assert!(!before.contains("ignore"), "{name} in {file} is ignored");
        rows += 1;
    }
    assert!(rows >= 25, "{rows} rows were found");
}
