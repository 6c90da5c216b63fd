//! The program: its arguments, its output and its exit code.

use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use onetap_doctor::{Options, Status};
use onetap_servers::environment::Variable;
use onetap_servers::{Backend, Environment};
use serde_json::Value;
use tokio::task::{JoinHandle, spawn_blocking};

use crate::dynamodb::table;
use crate::redis::{command, promises_are_checked};
use crate::support::tcp::slow_proxy;
use crate::support::{examined, faults, with_functions};

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

/// The program beside the test: what it printed, and its exit code.
fn start(arguments: &'static [&str], variables: Vec<Variable>) -> JoinHandle<(String, Option<i32>)> {
    spawn_blocking(move || {
        let set: Vec<(&str, &str)> = variables.iter().map(|(name, value)| (*name, value.as_str())).collect();
        // Ended from outside if it does not end by itself.
        let mut command = Command::new("timeout");
        command.args(["--signal=KILL", "90", env!("CARGO_BIN_EXE_onetap-doctor")]).args(arguments);
        let output = command.env_clear().env("PATH", env!("PATH")).envs(set).output().unwrap();
        let silent = String::from_utf8(output.stderr).unwrap();
        assert_eq!(silent, "", "on the standard error");
        (String::from_utf8(output.stdout).unwrap(), output.status.code())
    })
}

/// The line of a check, with its remedy.
fn line<'a>(shown: &'a str, check: &str) -> &'a str {
    let at = shown.find(&format!(" {check}: ")).unwrap_or_else(|| panic!("no {check} in\n{shown}"));
    let start = shown[..at].rfind('\n').map_or(0, |end| end + 1);
    shown[start..].split("\n").next().unwrap()
}

#[tokio::test]
#[ignore = "needs redis-server"]
async fn a_store_that_is_too_far_for_the_time_ends_with_a_warning() {
    let mut environment = with_functions(Environment::start(Backend::Redis).await);
    let slow = slow_proxy(environment.redis().unwrap().addr(), Duration::from_millis(100));
    let variables = environment.variables_with("REDIS_URL", format!("redis://{slow}"));
    let (shown, code) = start(&["--seconds", "2"], variables).await.unwrap();
    assert_eq!(code, Some(0), "{shown}");
    assert!(line(&shown, "store promises").starts_with("warning"), "{shown}");
    assert!(line(&shown, "line bot").starts_with("ok"), "{shown}");
    assert!(line(&shown, "weather provider").starts_with("ok"), "{shown}");
    assert_eq!(command(environment.redis().unwrap(), &["DBSIZE"]).await, redis::Value::Int(0));
}

#[tokio::test]
#[ignore = "needs redis-server"]
async fn a_good_store_that_is_far_away_is_well() {
    let mut environment = Environment::start(Backend::Redis).await;
    let slow = slow_proxy(environment.redis().unwrap().addr(), Duration::from_millis(100));
    let variables = environment.variables_with("REDIS_URL", format!("redis://{slow}"));
    let (shown, code) = start(&[], variables).await.unwrap();
    assert_eq!(code, Some(0), "{shown}");
    let promises = line(&shown, "store promises");
    assert!(promises.starts_with("ok") && promises.ends_with(" were left out"), "{shown}");
}

#[tokio::test]
#[ignore = "needs redis-server"]
async fn a_server_that_stops_in_the_middle_ends_with_a_warning() {
    let mut environment = with_functions(Environment::start(Backend::Redis).await);
    let program = start(&["--seconds", "10"], environment.variables().to_vec());
    let redis = environment.redis().unwrap();
    promises_are_checked(redis).await;
    redis.stop().await;
    let (shown, code) = program.await.unwrap();
    assert_eq!(code, Some(0), "{shown}");
    assert!(line(&shown, "store promises").starts_with("warning"), "{shown}");
    assert!(line(&shown, "weather provider").starts_with("ok"), "{shown}");
}

#[tokio::test]
#[ignore = "needs redis-server"]
async fn ctrl_c_removes_what_was_written() {
    let mut environment = Environment::start(Backend::Redis).await;
    let mut program = Command::new(env!("CARGO_BIN_EXE_onetap-doctor"))
        .env_clear()
        .envs(environment.variables().iter().map(|(name, value)| (*name, value)))
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let redis = environment.redis().unwrap();
    promises_are_checked(redis).await;
    let sent = Command::new("kill").args(["-INT", &program.id().to_string()]).status().unwrap();
    assert!(sent.success());
    let ended = spawn_blocking(move || program.wait().unwrap()).await.unwrap();
    assert_eq!(ended.code(), Some(130));
    assert_eq!(command(redis, &["DBSIZE"]).await, redis::Value::Int(0));
}

#[tokio::test]
#[ignore = "needs redis-server"]
async fn a_store_that_loses_what_it_took_is_wrong() {
    let mut environment = Environment::start(Backend::Redis).await;
    let mut program = start(&["--seconds", "10"], environment.variables().to_vec());
    let redis = environment.redis().unwrap();
    promises_are_checked(redis).await;
    let client = redis::Client::open(redis.url()).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let lose = async {
        loop {
            redis::cmd("FLUSHALL").exec_async(&mut connection).await.unwrap();
        }
    };
    let (shown, code) =
        tokio::select! { ended = &mut program => ended.unwrap(), () = lose => unreachable!() };
    assert_eq!(code, Some(1), "{shown}");
    let promises = line(&shown, "store promises");
    assert!(promises.starts_with("wrong"), "{shown}");
    assert!(promises.contains(" are broken: "), "{shown}");
}

async fn is_well_within_the_time_that_it_takes_by_itself(environment: &Environment) {
    let begun = Instant::now();
    let (shown, code) = start(&[], environment.variables().to_vec()).await.unwrap();
    assert_eq!(code, Some(0), "{shown}");
    let lines = shown.lines().take_while(|line| !line.is_empty());
    assert!(lines.into_iter().all(|line| line.starts_with("ok ") || line.starts_with("skipped ")), "{shown}");
    assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
}

#[tokio::test]
#[ignore = "needs redis-server"]
async fn a_good_store_is_well_within_a_minute_on_redis() {
    let environment = with_functions(Environment::start(Backend::Redis).await);
    is_well_within_the_time_that_it_takes_by_itself(&environment).await;
}

#[tokio::test]
async fn a_good_store_is_well_within_a_minute_on_dynamodb() {
    is_well_within_the_time_that_it_takes_by_itself(&table(Backend::DynamoDb).await).await;
}
