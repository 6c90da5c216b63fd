//! The example `publish`, as a program: run again, killed, and with a store that fails.

use crate::support;

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use onetap_servers::Fault;
use onetap_store::Log;
use support::World;

const STAGES: &str = r#"[{"stage":"plan","first":0,"last":9},{"stage":"token","first":1000,"last":999999,"state":false},
    {"stage":"done","first":10,"last":19,"ends":10}]"#;
/// Its events: a plan, twelve words, the end.
const EVENTS: usize = 13;

/// `target/<profile>/examples/publish`, from `target/<profile>/deps/<this test>`.
fn program() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.parent().unwrap().parent().unwrap().join("examples/publish")
}

fn command(world: &World) -> Command {
    let mut command = Command::new(program());
    command.arg(world.job("a").id()).env_clear().env("EVENT_STAGES", STAGES);
    command.envs(world.environment.iter().cloned()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// What it says of each event, and what it says of failures.
fn run(world: &World) -> (Vec<String>, String) {
    let output = command(world).output().expect("the example is built: cargo build --examples");
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{errors}");
    (String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect(), errors)
}

/// The numbers in the job's log, in its order.
async fn published(world: &World) -> Vec<u64> {
    let log = Log::new(format!("chat:job:{}", world.job("a").id())).unwrap();
    let seq = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap()["seq"].as_u64().unwrap();
    world.read(&log).await.iter().map(|record| seq(&record.text)).collect()
}

fn seqs() -> Vec<u64> {
    [0].into_iter().chain(1000..1000 + EVENTS as u64 - 2).chain([10]).collect()
}

async fn it_publishes_each_event_once_however_often_it_is_run(world: World) {
    let (first, _) = run(&world);
    assert!(first.iter().all(|line| line.contains(" new at ")), "{first:?}");
    assert_eq!((first.len(), first[1].starts_with("token 1000 ")), (EVENTS, true), "{first:?}");
    let (second, _) = run(&world);
    assert_eq!(second.len(), EVENTS);
    assert!(second.iter().all(|line| line.ends_with(" duplicate")), "{second:?}");
    assert_eq!(published(&world).await, seqs());
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs redis-server"]
async fn the_example_publishes_each_event_once_on_redis() {
    it_publishes_each_event_once_however_often_it_is_run(World::redis().await).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs redis-server"]
async fn the_example_publishes_each_event_once_on_upstash() {
    it_publishes_each_event_once_however_often_it_is_run(World::upstash().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_example_publishes_each_event_once_on_dynamodb() {
    it_publishes_each_event_once_however_often_it_is_run(World::dynamodb().await).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs redis-server"]
async fn the_example_goes_on_where_it_was_killed() {
    let world = World::upstash().await;
    let mut process = command(&world).spawn().expect("the example is built: cargo build --examples");
    let said = BufReader::new(process.stdout.take().unwrap()).lines().take(5).map(Result::unwrap);
    assert_eq!(said.filter(|line| line.contains(" new at ")).count(), 5);
    process.kill().unwrap();
    process.wait().unwrap();
    let done = published(&world).await.len();
    let (lines, _) = run(&world);
    let duplicates = lines.iter().take_while(|line| line.ends_with(" duplicate")).count();
    assert!(duplicates >= done, "{done} were published: {lines:?}");
    assert!(lines[duplicates..].iter().all(|line| line.contains(" new at ")), "{lines:?}");
    assert_eq!(published(&world).await, seqs());
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs redis-server"]
async fn the_example_tries_again_while_the_store_fails() {
    let world = World::upstash().await;
    let busy = || Fault::Status(503, "busy".to_owned());
    // Each call sends at most two requests. The first event's are lost on their way, the next one's replies on their way back.
    world.servers().gateway().unwrap().inject_next(vec![
        busy(),
        busy(),
        busy(),
        Fault::DropReply,
        Fault::DropReply,
    ]);
    let (lines, errors) = run(&world);
    assert!(errors.contains("plan 0: ") && errors.contains(", trying again"), "{errors}");
    assert_eq!(lines.len(), EVENTS, "{lines:?}");
    assert_eq!(published(&world).await, seqs());
}

#[test]
fn the_example_says_what_is_missing() {
    let run = |variables: &[(&str, &str)]| {
        let output = Command::new(program())
            .arg("job-1")
            .env_clear()
            .envs(variables.iter().copied())
            .output()
            .unwrap();
        (output.status.success(), String::from_utf8(output.stderr).unwrap())
    };
    let (ended_well, errors) = run(&[]);
    assert!(!ended_well && errors.contains("STORE"), "{errors}");
    let (ended_well, errors) = run(&[("STORE", "memory")]);
    assert!(!ended_well && errors.contains("EVENT_STAGES has no stage plan"), "{errors}");
    assert_eq!(run(&[("STORE", "memory"), ("EVENT_STAGES", STAGES)]), (true, String::new()));
}
