//! The documents, held to the code: what they name exists.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// Every file of the project with this ending, but for what is built or installed.
fn files(folder: &Path, ending: &str, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap()) {
        let (path, name) = (entry.path(), entry.file_name().into_string().unwrap());
        if entry.file_type().unwrap().is_dir() {
            if !["target", "node_modules", ".git", ".aws-sam"].contains(&name.as_str()) {
                files(&path, ending, found);
            }
        } else if name.ends_with(ending) {
            found.push(path);
        }
    }
}

fn all(ending: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    files(&root(), ending, &mut found);
    found
}

#[test]
fn every_test_that_guards_a_promise_exists() {
    let mut tests = HashSet::new();
    for path in all(".rs") {
        names_of_tests(&fs::read_to_string(path).unwrap(), &mut tests);
    }
    for page in ["docs/guarantees.md", "shared/onetap/docs/coming-from-powertools.md"] {
        let text = fs::read_to_string(root().join(page)).unwrap();
        // A page names no test before its first column of them.
        let (_, text) = text.split_once("| shown by |").unwrap();
        let named: Vec<&str> =
            text.split('`').skip(1).step_by(2).filter(|name| is_a_sentence(name)).collect();
        assert!(named.len() > 20, "{page} names its tests: {named:?}");
        for name in named {
            assert!(tests.contains(name), "{page} names `{name}`, which is no test");
        }
    }
}

/// Adds the functions under a test attribute, and what stands in the lists of macros that make a test for each backend: a line
/// that begins with a name and is no call.
fn names_of_tests(source: &str, tests: &mut HashSet<String>) {
    let mut under_test = false;
    for line in source.lines().map(str::trim_start) {
        let name_at = |at: usize| {
            let rest = &line[at..];
            let end = rest.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(rest.len());
            (rest[..end].to_owned(), &rest[end..])
        };
        match line.find("fn ") {
            Some(at) if under_test => _ = tests.insert(name_at(at + 3).0),
            Some(_) => {}
            None => {
                let (name, rest) = name_at(0);
                if !rest.starts_with(['(', '.', '!', '<']) {
                    tests.insert(name);
                }
            }
        }
        let attribute = line.starts_with("#[") || line.starts_with("$(#[");
        under_test = if attribute {
            under_test || line.contains("test")
        } else {
            under_test && line.starts_with("//")
        };
    }
}

/// Whether this is a test's name rather than a variable, a file or a metric.
fn is_a_sentence(name: &str) -> bool {
    let plain = name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    plain && name.matches('_').count() >= 3
}

/// The cells of the table are tests of the webhook; their names are too short for the check above.
#[test]
fn the_table_of_replies_has_a_row_for_each_fault_of_line() {
    let tests = "functions/webhook/tests/integration/always_answers/replies.rs";
    let tests = fs::read_to_string(root().join(tests)).unwrap();
    let page = fs::read_to_string(root().join("docs/guarantees.md")).unwrap();
    let (_, section) = page.split_once("### What LINE may do to a reply").unwrap();
    let section = section.split("\n## ").next().unwrap();
    let rows: Vec<_> = section.lines().filter(|line| line.contains("| `line_")).collect();
    let (_, cells) = tests.split_once("\ncells! {").unwrap();
    let faults: Vec<_> = cells.lines().filter_map(|line| line.trim().split_once(": Meets::")).collect();
    assert_eq!(rows.len(), faults.len());
    for (fault, rest) in faults {
        let row = rows.iter().find(|row| row.ends_with(&format!("| `{fault}` |")));
        let row = row.unwrap_or_else(|| panic!("the table has no row {fault}"));
        let expected = match rest.trim_end_matches(';').rsplit(' ').next().unwrap() {
            "AT_ONCE" => "| 200 | 1 | 1 |",
            "BEFORE_IT_IS_KNOWN" => "| 500 | 1 | 1 |",
            "BY_THE_REDELIVERY" => "| 500 | 0 | 1 |",
            "NEVER" => "| 200 | 0 | 0 |",
            other => panic!("{fault} ends in {other}"),
        };
        assert!(row.contains(expected), "{row}");
    }
}

#[test]
fn every_link_between_documents_leads_somewhere() {
    let mut links = 0;
    for document in all(".md") {
        let text = fs::read_to_string(&document).unwrap();
        for target in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let path = target.split('#').next().unwrap();
            // Within the page, elsewhere, or an item of the code, which rustdoc checks.
            if path.is_empty() || path.contains("://") || path.contains("::") || !path.contains(['.', '/']) {
                continue;
            }
            let there = document.parent().unwrap().join(path);
            assert!(there.exists(), "{} links to {path}, which is not there", document.display());
            links += 1;
        }
    }
    assert!(links > 10, "the documents link to each other");
}
