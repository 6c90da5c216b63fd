//! The program itself: how it starts, and how it answers through Lambda's runtime API.

use crate::support;

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use onetap_servers::{RuntimeApi, warm_up};
use onetap_store::Log;
use support::World;

const PROGRAM: &str = env!("CARGO_BIN_EXE_queue-consumer");

#[test]
fn a_missing_or_wrong_variable_stops_the_start_and_is_named_in_one_line() {
    let memory = ("STORE", "memory");
    for (variables, named) in [
        (&[][..], "STORE"),
        (&[("STORE", "paper")][..], "STORE"),
        (&[("STORE", "redis")][..], "REDIS_URL"),
        (&[("STORE", "dynamodb")][..], "DYNAMODB_TABLE"),
        (&[memory, ("AWS_LAMBDA_FUNCTION_NAME", "x")][..], "STORE"),
        (&[memory, ("STORE_TIMEOUT_MS", "soon")][..], "STORE_TIMEOUT_MS"),
        (&[memory, ("EVENT_SHARD_COUNT", "0")][..], "EVENT_SHARD_COUNT"),
        (&[memory, ("EVENT_STREAM_MAXLEN", "-1")][..], "EVENT_STREAM_MAXLEN"),
    ] {
        let output = Command::new(PROGRAM).env_clear().envs(variables.iter().copied()).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
        assert!(said.starts_with(&format!("{named}: ")), "{said}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_is_answered_through_the_runtime_api_on_dynamodb() {
    let world = World::dynamodb().await;
    let api = RuntimeApi::start();
    let _program = api.run(Path::new(PROGRAM), world.environment.clone());
    let batch = include_str!("../../../../events/queue-consumer/malformed.json");
    let answer = api.invoke(batch, Duration::from_secs(30)).await.unwrap();
    let answer: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
    let failed =
        [2, 3, 4].map(|n| serde_json::json!({"itemIdentifier": format!("3b5a7d0e-0000-4000-8000-{n:012}")}));
    assert_eq!(answer, serde_json::json!({ "batchItemFailures": failed }));
    assert_eq!(world.read(&Log::new("scan:job:job-1").unwrap()).await.len(), 2);
}

#[tokio::test]
async fn the_program_connects_to_its_store_before_its_first_event() {
    warm_up::connects_to_its_store(PROGRAM, &[]).await;
}

#[tokio::test]
async fn the_program_starts_although_its_store_never_answers() {
    warm_up::starts_without_its_store(PROGRAM, &[]).await;
}
