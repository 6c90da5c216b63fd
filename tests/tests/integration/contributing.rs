//! What a newcomer reads first, held to the tree.

use std::collections::HashSet;

use onetap_tests::functions::root;

/// The most files that a newcomer touches for a change of each kind.
const LIMITS: [(&str, usize); 4] = [
    ("A fifth backend", 8),
    ("A chat command", 3),
    ("A button with a lock", 2),
    ("An idempotency option", 4),
];

/// The most files in a trace of `docs/architecture.md`.
const TRACES: [(&str, usize); 3] =
    [("A double tap", 20), ("A batch of ten from SQS", 10), ("A keyed edit over HTTP", 12)];

fn page(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap()
}

/// What follows the line that begins with `heading`, up to the next heading.
fn section<'p>(page: &'p str, heading: &str) -> &'p str {
    let start = page.find(&format!("\n### {heading}\n")).unwrap_or_else(|| panic!("no section {heading:?}"));
    let rest = &page[start + 1..];
    rest.split("\n#").next().unwrap_or(rest)
}

#[test]
fn every_file_that_contributing_names_exists() {
    let page = page("CONTRIBUTING.md");
    let quoted = page.split('`').skip(1).step_by(2);
    let is_path = |name: &&str| {
        name.contains('/') && [".rs", ".md", ".toml"].iter().any(|ending| name.ends_with(ending))
    };
    // A newcomer's own file is called NAME.
    let paths: Vec<&str> = quoted.filter(is_path).filter(|path| !path.contains("NAME")).collect();
    assert!(paths.len() > 10, "{paths:?}");
    for path in paths {
        assert!(root().join(path).is_file(), "CONTRIBUTING.md names {path}, which does not exist");
    }
}

#[test]
fn a_change_touches_no_more_files_than_contributing_allows() {
    let page = page("CONTRIBUTING.md");
    for (kind, limit) in LIMITS {
        let list = section(&page, &format!("{kind}: {limit} files"));
        let items = list.lines().filter(|line| line.starts_with(|c: char| c.is_ascii_digit())).count();
        assert_eq!(items, limit, "{kind}");
    }
}

#[test]
fn a_trace_is_short_and_meets_each_file_once() {
    let page = page("docs/architecture.md");
    for (name, limit) in TRACES {
        let rows = section(&page, name).lines().filter_map(|line| line.strip_prefix("| [`"));
        let files: Vec<&str> = rows.filter_map(|row| row.split(['(', ')']).nth(1)).collect();
        let distinct: HashSet<&str> = files.iter().copied().collect();
        assert!(files.len() >= 8 && files.len() <= limit, "{name}: {} files", files.len());
        assert_eq!(files.len(), distinct.len(), "{name} names a file twice: {files:?}");
    }
}
