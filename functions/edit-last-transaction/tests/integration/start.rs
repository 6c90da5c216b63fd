//! The binary: what is wrong with the environment is said in one line that names the variable.

use std::path::Path;
use std::process::Command;

use onetap_servers::{Broken, Fault, RuntimeApi};

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
    let (store, api) = (Broken::start(Fault::Empty).await, RuntimeApi::start());
    let _program = api.run(Path::new(PROGRAM), variables_of(store.url()));
    api.polled(1).await;
    store.accepted(1).await;
    assert_eq!((store.connections(), store.requests()), (1, 0), "nothing is sent");
}

#[tokio::test]
async fn the_program_starts_although_its_store_never_answers() {
    let (store, api) = (Broken::accepts_and_never_answers().await, RuntimeApi::start());
    let _program = api.run(Path::new(PROGRAM), variables_of(store.url().replace("http:", "https:")));
    api.polled(1).await;
}

fn variables_of(store: String) -> Vec<(&'static str, String)> {
    let variables = [("STORE", "upstash"), ("UPSTASH_REDIS_REST_TOKEN", "t"), ("EDIT_API_TOKEN", "t")];
    let variables = variables.map(|(name, value)| (name, value.to_owned()));
    variables.into_iter().chain([("UPSTASH_REDIS_REST_URL", store)]).collect()
}
