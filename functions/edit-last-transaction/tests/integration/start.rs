//! The binary: what is wrong with the environment is said in one line that names the variable.

use std::process::Command;

use onetap_servers::warm_up;

const PROGRAM: &str = env!("CARGO_BIN_EXE_edit-last-transaction");

#[test]
fn a_missing_or_malformed_variable_stops_the_start_and_is_named() {
    let good = [("STORE", "redis"), ("REDIS_URL", "redis://127.0.0.1:1"), ("EDIT_API_TOKEN", "t")];
    let table = [
        ("STORE", ""),
        ("STORE", "memory"),
        ("REDIS_URL", "http://x"),
        ("EDIT_API_TOKEN", ""),
        ("LAST_TRANSACTION_TTL", "soon"),
        ("STORE_TIMEOUT_MS", "0"),
        ("IDEM_LOCK_TTL_SECONDS", "x"),
    ];
    for (name, value) in table {
        let output = Command::new(PROGRAM)
            .env_clear()
            .envs(good)
            .env("AWS_LAMBDA_FUNCTION_NAME", "edit-last-transaction")
            .env(name, value)
            .output()
            .unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{name}={value}: {said}");
        assert!(said.starts_with(&format!("{name}: ")) && said.lines().count() == 1, "{said}");
    }
}

#[tokio::test]
async fn the_program_connects_to_its_store_before_its_first_event() {
    warm_up::connects_to_its_store(PROGRAM, &[("EDIT_API_TOKEN", "t")]).await;
}

#[tokio::test]
async fn the_program_starts_although_its_store_never_answers() {
    warm_up::starts_without_its_store(PROGRAM, &[("EDIT_API_TOKEN", "t")]).await;
}
