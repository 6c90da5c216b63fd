//! What `deny.toml` asks of the dependencies, as far as it can be checked without an advisory database: `scripts/audit`
//! checks the rest.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "these are tests")]

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

/// The strings of a list in `deny.toml`, or of the `crate` fields of one.
fn listed(name: &str) -> Vec<String> {
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../deny.toml")).unwrap();
    let start = text.find(&format!("\n{name} = [")).unwrap_or_else(|| panic!("no {name}"));
    let list = &text[start..];
    let list = &list[..list.find("\n]").or_else(|| list[1..].find('\n').map(|end| end + 1)).unwrap()];
    let quoted = |line: &str| Some(line.split('"').nth(1)?.to_owned());
    let lines = list.lines().filter(|line| !line.trim_start().starts_with('#'));
    let found: Vec<String> = lines.filter_map(quoted).collect();
    assert!(!found.is_empty(), "{name} lists nothing");
    found
}

struct Package {
    name: String,
    version: String,
    license: String,
}

/// Every package that a build on Linux, with all features, compiles: the tests' own too.
fn packages() -> Vec<Package> {
    let output = Command::new(env!("CARGO"))
        .args(["tree", "--workspace", "--all-features", "--locked", "--offline", "--color", "never"])
        .args(["--target", "x86_64-unknown-linux-gnu", "--prefix", "none", "--format", "{p}|{l}|"])
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let lines: BTreeSet<&str> = std::str::from_utf8(&output.stdout).unwrap().lines().collect();
    let package = |line: &&str| {
        let mut parts = line.split('|');
        let (mut words, license) = (parts.next()?.split(' '), parts.next()?);
        let (name, version) = (words.next()?, words.next()?.strip_prefix('v')?);
        Some((name.to_owned(), version.to_owned(), license.to_owned()))
    };
    // What is there a second time is marked, and only once meant.
    let packages: BTreeSet<_> = lines.iter().filter_map(package).collect();
    assert!(packages.len() > 100, "{} packages cannot be all", packages.len());
    packages.into_iter().map(|(name, version, license)| Package { name, version, license }).collect()
}

/// Whether a licence expression can be satisfied with what is allowed: `AND` binds closer than `OR`, a slash is an old
/// way to write `OR`.
fn is_allowed(expression: &str, allowed: &[String]) -> bool {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let (result, rest) = either(&words, allowed);
    result && rest.is_empty()
}

fn either<'a>(words: &'a [&'a str], allowed: &[String]) -> (bool, &'a [&'a str]) {
    let (mut result, mut rest) = both(words, allowed);
    while let ["OR", more @ ..] = rest {
        let (other, after) = both(more, allowed);
        (result, rest) = (result | other, after);
    }
    (result, rest)
}

fn both<'a>(words: &'a [&'a str], allowed: &[String]) -> (bool, &'a [&'a str]) {
    let (mut result, mut rest) = one(words, allowed);
    while let ["AND", more @ ..] = rest {
        let (other, after) = one(more, allowed);
        (result, rest) = (result & other, after);
    }
    (result, rest)
}

fn one<'a>(words: &'a [&'a str], allowed: &[String]) -> (bool, &'a [&'a str]) {
    let is_listed = |name: String| allowed.contains(&name);
    match words {
        ["(", inner @ ..] => match either(inner, allowed) {
            (result, [")", rest @ ..]) => (result, rest),
            (_, rest) => (false, rest),
        },
        [name, "WITH", exception, rest @ ..] => (is_listed(format!("{name} WITH {exception}")), rest),
        [name, rest @ ..] => (is_listed((*name).to_owned()), rest),
        [] => (false, words),
    }
}

#[test]
fn every_licence_is_one_of_those_that_are_allowed() {
    let allowed = listed("allow");
    for Package { name, version, license } in packages() {
        assert!(is_allowed(&license, &allowed), "{name} {version}: {license}");
    }
}

#[test]
fn everything_comes_from_the_one_registry_or_from_here() {
    let registries: Vec<String> =
        listed("allow-registry").into_iter().map(|address| format!("registry+{address}")).collect();
    // The lock file: it holds what no feature or platform of ours uses, too.
    let lock = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../Cargo.lock")).unwrap();
    assert!(lock.contains("source = "));
    for line in lock.lines().filter(|line| line.starts_with("source = ")) {
        assert!(registries.iter().any(|registry| line == format!("source = {registry:?}")), "{line}");
    }
}

#[test]
fn nothing_is_there_in_two_versions_but_what_is_excused() {
    let excused = listed("skip");
    let mut versions: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for package in packages() {
        let is_excused = |excuse: &String| {
            let (name, version) = excuse.split_once('@').expect("name@version");
            name == package.name && format!("{}.", package.version).starts_with(&format!("{version}."))
        };
        if !excused.iter().any(is_excused) {
            versions.entry(package.name).or_default().push(package.version);
        }
    }
    let doubled: Vec<_> = versions.iter().filter(|(_, versions)| versions.len() > 1).collect();
    assert!(doubled.is_empty(), "{doubled:?}");
}

#[test]
fn nothing_is_there_that_is_banned() {
    let banned = listed("deny");
    for Package { name, version, .. } in packages() {
        assert!(!banned.contains(&name), "{name} {version}");
    }
}

#[test]
fn a_licence_is_read_as_spdx_has_it() {
    let allowed = ["MIT", "ISC", "Apache-2.0", "Apache-2.0 WITH LLVM-exception"].map(str::to_owned);
    for good in [
        "MIT",
        "MIT OR GPL-3.0-only",
        "GPL-3.0-only OR MIT",
        "MIT/Apache-2.0",
        "Apache-2.0 / MIT",
        "Apache-2.0 AND ISC",
        "(GPL-2.0-only OR MIT) AND ISC",
        "GPL-2.0-only AND ISC OR MIT",
        "Apache-2.0 WITH LLVM-exception",
    ] {
        assert!(is_allowed(good, &allowed), "{good}");
    }
    for bad in [
        "",
        "GPL-3.0-only",
        "MIT AND GPL-3.0-only",
        "(MIT OR ISC) AND GPL-3.0-only",
        "MIT WITH something",
        "(MIT",
        "MIT)",
        "MIT ISC",
    ] {
        assert!(!is_allowed(bad, &allowed), "{bad}");
    }
}
