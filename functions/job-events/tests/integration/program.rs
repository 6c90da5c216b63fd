//! The program itself: how it starts, and how it streams through Lambda's runtime API.

use crate::support;

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use onetap_bus::{Bus, Job};
use onetap_servers::{Fault, Proxy, RuntimeApi, warm_up};
use support::World;

const PROGRAM: &str = env!("CARGO_BIN_EXE_job-events");

#[test]
fn a_missing_or_wrong_variable_stops_the_start_and_is_named_in_one_line() {
    let (memory, secret) = (("STORE", "memory"), ("JOB_EVENTS_SECRET", "s3cret"));
    let origin = ("JOB_EVENTS_ALLOW_ORIGIN", "*");
    for (variables, named) in [
        (&[secret, origin][..], "STORE"),
        (&[memory, origin][..], "JOB_EVENTS_SECRET"),
        (&[memory, secret][..], "JOB_EVENTS_ALLOW_ORIGIN"),
        (&[memory, secret, ("JOB_EVENTS_ALLOW_ORIGIN", "example.com")][..], "JOB_EVENTS_ALLOW_ORIGIN"),
        (&[memory, secret, origin, ("SSE_MAX_SECONDS", "0")][..], "SSE_MAX_SECONDS"),
        (&[memory, secret, origin, ("SSE_POLL_MS", "often")][..], "SSE_POLL_MS"),
    ] {
        let output = Command::new(PROGRAM).env_clear().envs(variables.iter().copied()).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
        assert!(said.starts_with(&format!("{named}: ")) && !said.contains("s3cret"), "{said}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_is_streamed_through_the_runtime_api_on_dynamodb() {
    let world = World::dynamodb().await;
    let job = Job::new("scan", "job-1").unwrap();
    let events = [support::event(&job, "vision", 10, "{}"), support::event(&job, "done", 51, "{}")];
    for answer in Bus::new(world.store.clone(), world.config.clone()).publish_each(&events).await {
        let _ = answer.unwrap();
    }
    let mut variables = world.environment.clone();
    variables
        .extend([("JOB_EVENTS_SECRET", "secret".to_owned()), ("JOB_EVENTS_ALLOW_ORIGIN", "*".to_owned())]);
    let request = include_str!("../../../../events/job-events/follow-a-job.json");
    let api = RuntimeApi::start();
    let _program = api.run(Path::new(PROGRAM), variables);
    let answer = api.invoke(request, Duration::from_secs(30)).await.unwrap();
    assert_eq!(answer.headers["lambda-runtime-function-response-mode"], "streaming");
    let body = str::from_utf8(&answer.body).unwrap();
    let (prelude, stream) = body.split_once("\0\0\0\0\0\0\0\0").unwrap();
    let prelude: serde_json::Value = serde_json::from_str(prelude).unwrap();
    assert_eq!(
        (&prelude["statusCode"], &prelude["headers"]["content-type"]),
        (&200.into(), &"text/event-stream".into())
    );
    for event in &events {
        assert!(stream.contains(&format!("data: {}\n\n", event.text())), "{stream}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_stream_counts_is_among_the_metrics_of_its_own_invocation() {
    let world = World::dynamodb().await;
    let proxy = Proxy::start(&world.variable("AWS_ENDPOINT_URL_DYNAMODB")).await;
    let mut variables = world.servers().variables_with("AWS_ENDPOINT_URL_DYNAMODB", proxy.url());
    variables
        .extend([("JOB_EVENTS_SECRET", "secret".to_owned()), ("JOB_EVENTS_ALLOW_ORIGIN", "*".to_owned())]);
    let api = RuntimeApi::start();
    let program = api.run(Path::new(PROGRAM), variables);
    let stream =
        api.invoke(include_str!("../../../../events/job-events/follow-a-job.json"), Duration::from_secs(60));
    // The stream has begun, and reads its job's log again: there the store fails, which the function counts.
    let outage = async {
        while proxy.requests() < 4 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        proxy.inject(Some(Fault::Close));
    };
    let (answer, ()) = tokio::join!(stream, outage);
    let body = String::from_utf8(answer.unwrap().body.to_vec()).unwrap();
    assert!(body.contains("retry: 1000"), "it had begun: {body}");
    // Lambda freezes the process here, and may never wake it again.
    let said = program.kill();
    let counted = |line: &str| {
        let line: serde_json::Value = serde_json::from_str(line).unwrap_or_default();
        line["operation"] == "read" && line["kv_error_total"].as_u64() > Some(0)
    };
    assert!(said.lines().any(counted), "{said}");
}

#[tokio::test]
async fn the_program_connects_to_its_store_before_its_first_event() {
    warm_up::connects_to_its_store(PROGRAM, &[("JOB_EVENTS_SECRET", "s"), ("JOB_EVENTS_ALLOW_ORIGIN", "*")])
        .await;
}

#[tokio::test]
async fn the_program_starts_although_its_store_never_answers() {
    warm_up::starts_without_its_store(
        PROGRAM,
        &[("JOB_EVENTS_SECRET", "s"), ("JOB_EVENTS_ALLOW_ORIGIN", "*")],
    )
    .await;
}
