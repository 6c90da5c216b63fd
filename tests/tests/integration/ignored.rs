//! Plain `cargo test` needs no program of `scripts/build` and `scripts/package`: what does is ignored, with a reason.

use std::fs;

use onetap_tests::functions::root;

/// The tests of a source: their names, each with the attributes above it.
fn tests(source: &str) -> Vec<(String, String)> {
    let (mut tests, mut attributes) = (Vec::new(), String::new());
    for line in source.lines().map(str::trim_start) {
        if line.starts_with("#[") {
            attributes += line;
        } else if !line.starts_with("//") {
            let name = line.split_once("fn ").and_then(|(_, rest)| rest.split_once('('));
            if let Some((name, _)) = name.filter(|_| attributes.contains("test")) {
                tests.push((name.to_owned(), attributes.clone()));
            }
            attributes.clear();
        }
    }
    tests
}

#[test]
fn every_test_of_what_is_built_apart_is_ignored_and_says_what_it_needs() {
    let mut seen = 0;
    for file in root().join("tests/tests/built").read_dir().unwrap().map(|file| file.unwrap().path()) {
        for (name, attributes) in tests(&fs::read_to_string(&file).unwrap()) {
            assert!(
                attributes.contains("#[ignore = \"needs "),
                "{name} in {} fails in a fresh clone",
                file.display()
            );
            seen += 1;
        }
    }
    assert!(seen > 20, "{seen} tests");
}
