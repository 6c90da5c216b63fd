//! The program itself: how it starts, and how it streams through Lambda's runtime API.

use crate::support;

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use onetap_bus::{Bus, Job};
use onetap_servers::runtime::Answering;
use onetap_servers::{Fault, Program, Proxy, RuntimeApi, warm_up};
use support::World;
use tokio::task::spawn_blocking;

const PROGRAM: &str = env!("CARGO_BIN_EXE_job-events");
const STATE: &str = include_str!("../../../../events/job-events/state.json");
const FOLLOW: &str = include_str!("../../../../events/job-events/follow-a-job.json");
/// Time limit of an invocation.
const LIMIT: Duration = Duration::from_secs(60);
/// The shortest time for which the kernel delays an acknowledgement, and with it the next small segment of a sender
/// that uses Nagle's algorithm.
const DELAYED_ACKNOWLEDGEMENT: Duration = Duration::from_millis(40);

fn start(api: &RuntimeApi, world: &World) -> Program {
    let mut variables = world.environment.clone();
    variables.extend([
        ("JOB_EVENTS_SECRET", "secret".to_owned()),
        ("JOB_EVENTS_ALLOW_ORIGIN", "*".to_owned()),
        ("SSE_POLL_MS", "1".to_owned()),
    ]);
    api.run(Path::new(PROGRAM), variables)
}

/// Reads on until `text` has come.
async fn read_until(answer: &mut Answering, text: &str) {
    let mut seen = String::new();
    while !seen.contains(text) {
        let chunk = answer.chunk().await.unwrap().expect("it goes on");
        seen.push_str(str::from_utf8(&chunk).unwrap());
    }
}

/// At least one of `times` is shorter than a delayed acknowledgement: a busy machine delays most of them, Nagle's
/// algorithm all.
fn assert_without_delay(times: &[Duration]) {
    assert!(times.iter().min() < Some(&(DELAYED_ACKNOWLEDGEMENT * 3 / 4)), "{times:?}");
}

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
    let api = RuntimeApi::start();
    let _program = start(&api, &world);
    let answer = api.invoke(FOLLOW, LIMIT).await.unwrap();
    assert_eq!(answer.headers["lambda-runtime-function-response-mode"], "streaming");
    assert_eq!(answer.headers["lambda-runtime-invocation-id"], "invocation-of-request-1");
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
async fn neither_the_first_event_of_a_stream_nor_the_next_one_waits_for_an_acknowledgement() {
    let world = World::dynamodb().await;
    let bus = Bus::new(world.store.clone(), world.config.clone());
    let event = |seq| support::event(&Job::new("scan", "job-1").unwrap(), "vision", seq, "{}");
    let _ = bus.publish(&event(10)).await.unwrap();
    let api = RuntimeApi::start();
    let (mut first, mut next) = (Vec::new(), Vec::new());
    for seq in 11..19 {
        let _program = start(&api, &world);
        // On a new connection the kernel acknowledges at once.
        api.invoke(STATE, LIMIT).await.unwrap();
        let mut answer = api.open(FOLLOW, LIMIT).await.unwrap();
        let head = Instant::now();
        read_until(&mut answer, event(seq - 1).text()).await;
        first.push(head.elapsed());
        let sent = Instant::now();
        let _ = bus.publish(&event(seq)).await.unwrap();
        read_until(&mut answer, event(seq).text()).await;
        next.push(sent.elapsed());
    }
    assert_without_delay(&first);
    assert_without_delay(&next);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unreadable_event_and_a_panic_are_reported_and_the_instance_goes_on() {
    let world = World::dynamodb().await;
    let api = RuntimeApi::start();
    let _program = start(&api, &world);
    // The conversion of such a request panics in lambda_http.
    let panicking = STATE.replace("example.lambda-url.ap-northeast-1.on.aws", "no host");
    for (event, reported) in [("{}", "deserialize"), (&panicking, "Lambda panicked")] {
        let answer = api.invoke(event.to_owned(), LIMIT).await.unwrap();
        let body = str::from_utf8(&answer.body).unwrap();
        assert!(answer.failed && body.contains(reported), "{body}");
    }
    assert!(!api.invoke(STATE, LIMIT).await.unwrap().failed);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_program_ends_when_the_runtime_api_goes_away_in_the_middle_of_a_stream() {
    let world = World::dynamodb().await;
    let api = RuntimeApi::start();
    let program = start(&api, &world);
    let mut answer = api.open(FOLLOW, LIMIT).await.unwrap();
    read_until(&mut answer, "retry: 1000").await;
    drop(api);
    let (status, said) = spawn_blocking(|| program.wait()).await.unwrap();
    assert_eq!(status.code(), Some(1), "{said}");
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
    let stream = api.invoke(FOLLOW, LIMIT);
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
