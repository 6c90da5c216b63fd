//! The program: its arguments, its output and its exit code.

use std::process::{Command, Output};

use onetap_doctor::{Options, Status};
use serde_json::Value;

use crate::support::{examined, faults};

fn run(arguments: &[&str], set: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_onetap-doctor"));
    command.args(arguments).env_clear().envs(set.iter().copied());
    command.output().unwrap()
}

#[test]
fn the_exit_code_tells_wrong_from_well_and_both_from_bad_arguments() {
    let well = run(&[], &[("STORE", "memory")]);
    let shown = String::from_utf8(well.stdout).unwrap();
    assert_eq!(well.status.code(), Some(0), "{shown}");
    assert!(shown.contains("ok       store variables: complete\n"), "{shown}");
    assert!(shown.lines().last().unwrap().contains(" 0 wrong, "), "{shown}");
    assert_eq!(run(&[], &[]).status.code(), Some(1));
    let bad = run(&["--jsno"], &[]);
    assert_eq!((bad.status.code(), bad.stdout.len()), (Some(2), 0));
    let help = run(&["--help"], &[]);
    assert!(help.status.success() && help.stdout.starts_with(b"usage: cargo doctor"));
}

#[test]
fn json_is_the_whole_output() {
    let output = run(&["--json"], &[("STORE", "none")]);
    assert_eq!(output.status.code(), Some(1));
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&document["version"], &document["wrong"]), (&1.into(), &1.into()));
}

#[tokio::test]
async fn a_variable_that_is_wrong_is_the_only_finding() {
    let set = [("STORE", "memory"), ("EDIT_API_TOKEN", "two words")];
    let findings = examined(&set, Options::default()).await;
    assert_eq!(faults(&findings), [("edit-last-transaction", "variables", Status::Wrong)]);
}
