//! AWS's own checks. They miss most of what the other tests find, and know the schema of every resource.

use std::path::PathBuf;
use std::process::Command;

use onetap_tests::functions::root;

/// Runs a program of the SAM CLI's folder; it must succeed and complain of nothing.
fn run(program: &str, arguments: &[&str]) -> String {
    let tools = PathBuf::from(std::env::var_os("ONETAP_TOOLS").expect("cargo sets ONETAP_TOOLS"));
    let program = tools.join("sam/bin").join(program);
    assert!(program.is_file(), "{} is not there: run scripts/tools", program.display());
    // A region is asked for and none is called: neither credentials nor a network are needed.
    let output = Command::new(program)
        .args(arguments)
        .current_dir(root())
        .env("AWS_DEFAULT_REGION", "ap-northeast-1")
        .env("SAM_CLI_TELEMETRY", "0")
        .output()
        .unwrap();
    let said =
        [output.stdout, output.stderr].map(|said| String::from_utf8_lossy(&said).into_owned()).concat();
    assert!(output.status.success(), "{said}");
    said
}

#[test]
#[ignore = "needs aws-sam-cli"]
fn sam_finds_nothing_to_complain_of() {
    let said = run("sam", &["validate", "--lint", "--template", "template.yaml"]);
    assert!(said.contains("is a valid SAM Template"), "{said}");
    let said = run("sam", &["validate", "--template", "template.yaml"]);
    assert!(said.contains("is a valid SAM Template"), "{said}");
}

#[test]
#[ignore = "needs cfn-lint"]
fn cfn_lint_finds_nothing_to_complain_of() {
    assert_eq!(run("cfn-lint", &["--include-checks", "I", "--", "template.yaml"]), "");
}

/// The template of `docs/own-bot.md`.
#[test]
#[ignore = "needs cfn-lint"]
fn cfn_lint_finds_nothing_to_complain_of_in_the_template_of_your_own_bot() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("template.yaml");
    std::fs::write(&path, crate::own_bot::file("template.yaml")).unwrap();
    assert_eq!(run("cfn-lint", &["--include-checks", "I", "--", path.to_str().unwrap()]), "");
}
