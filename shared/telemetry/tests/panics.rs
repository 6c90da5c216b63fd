//! A program of its own: the panic hook is the process's.

use std::process::Command;

#[test]
fn a_panic_is_logged_by_its_place_and_without_its_message() {
    let child = std::env::current_exe().and_then(|program| {
        Command::new(program).args(["--exact", "panics", "--nocapture"]).env("RUST_LOG", "info").output()
    });
    let output = child.expect("this program, as a child");
    let said =
        [output.stdout, output.stderr].map(|said| String::from_utf8_lossy(&said).into_owned()).concat();
    let line = said.lines().find(|line| line.contains(r#""message":"panic""#)).expect(&said);
    assert!(line.contains(r#""level":"ERROR""#) && line.contains("panics.rs:"), "{line}");
    assert!(!said.contains("planted"), "{said}");
}

/// What the child does.
#[test]
fn panics() {
    onetap_telemetry::init();
    assert!(std::panic::catch_unwind(|| panic!("planted")).is_err());
}
