//! The crates depend on each other as `docs/architecture.md` says.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use onetap_tests::functions::{Function, root};
use serde_json::{Value, json};

/// A crate, and the crates of the workspace that it depends on.
type Graph = BTreeMap<String, BTreeSet<String>>;

/// The workspace, as cargo describes it.
fn metadata() -> Value {
    let mut command = Command::new(env!("CARGO"));
    command.args(["metadata", "--no-deps", "--offline", "--format-version=1"]).current_dir(root());
    serde_json::from_slice(&command.output().unwrap().stdout).unwrap()
}

fn packages() -> Vec<Value> {
    metadata()["packages"].as_array().unwrap().clone()
}

fn name(of: &Value) -> String {
    of["name"].as_str().unwrap().to_owned()
}

/// As the manifests have it, without what only a crate's tests use.
fn actual() -> Graph {
    let packages = packages();
    let ours: BTreeSet<String> = packages.iter().map(name).collect();
    let dependencies = |package: &Value| {
        let all = package["dependencies"].as_array().unwrap().iter();
        all.filter(|it| it["kind"].is_null()).map(name).filter(|name| ours.contains(name)).collect()
    };
    packages.iter().map(|package| (name(package), dependencies(package))).collect()
}

/// The names in backticks.
fn quoted(text: &str) -> impl Iterator<Item = String> {
    text.split('`').skip(1).step_by(2).map(str::to_owned)
}

/// The page's section about the crates.
fn section() -> String {
    let page = std::fs::read_to_string(root().join("docs/architecture.md")).unwrap();
    let section = page.split("\n## ").find(|section| section.starts_with("The crates\n"));
    section.expect("a section \"The crates\"").to_owned()
}

/// As the table has it.
fn documented() -> Graph {
    let section = section();
    let rows = section.lines().filter(|line| line.starts_with("| `"));
    let row = |line: &str| {
        let mut cells = line.split('|').skip(1);
        let name = quoted(cells.next().unwrap()).next().unwrap();
        (name, quoted(cells.next().unwrap()).collect())
    };
    rows.map(row).collect()
}

#[test]
fn the_crates_depend_on_each_other_as_documented() {
    assert_eq!(documented(), actual(), "the table, and the manifests");
}

/// Cargo builds them into one folder: of two with one name, a test would run the one that was built last.
#[test]
fn no_two_examples_have_one_name() {
    let mut seen = BTreeSet::new();
    for target in packages().iter().flat_map(|package| package["targets"].as_array().unwrap()) {
        if target["kind"][0] == "example" {
            assert!(seen.insert(name(target)), "two examples are called {}", name(target));
        }
    }
    assert!(seen.contains("consumer_worker"), "{seen:?}");
}

#[test]
fn a_crate_depends_only_on_crates_below_it() {
    let section = section();
    let picture = section.split("```").nth(1).expect("a picture");
    let lines: Vec<Vec<&str>> = picture.lines().map(|line| line.split_whitespace().collect()).collect();
    let line_of = |name: &str| {
        lines
            .iter()
            .position(|line| line.contains(&name))
            .unwrap_or_else(|| panic!("{name} is not in the picture"))
    };
    for (name, dependencies) in actual() {
        for below in dependencies {
            assert!(line_of(&name) < line_of(&below), "{name} depends on {below}");
        }
    }
}

/// `cargo lambda build` and `sam build` build the default members when they name no package: were there more of them,
/// their features would come along. The runner and the doctor are the other programs, and no default members.
#[test]
fn cargo_lambda_builds_the_four_functions_of_the_workspace_and_nothing_else() {
    let metadata = metadata();
    let (mut defaults, mut functions, mut others) = (Vec::new(), Vec::new(), Vec::new());
    for package in metadata["packages"].as_array().unwrap() {
        let targets = package["targets"].as_array().unwrap().iter();
        let binaries = targets.filter(|target| target["kind"] == json!(["bin"]));
        let binaries = binaries.map(|target| target["name"].as_str().unwrap());
        if metadata["workspace_default_members"].as_array().unwrap().contains(&package["id"]) {
            defaults.push(package["name"].as_str().unwrap());
            functions.extend(binaries);
        } else {
            others.extend(binaries);
        }
    }
    defaults.sort_unstable();
    functions.sort_unstable();
    let mut expected = Function::ALL.map(Function::name);
    expected.sort_unstable();
    assert_eq!(defaults, expected);
    assert_eq!(functions, expected);
    others.sort_unstable();
    assert_eq!(others, ["onetap", "onetap-doctor"]);
}
