//! The story, told by the program itself, on every store.

use crate::support;

use onetap_servers::{Backend, Environment, heavy_test};
use support::program;

/// Runs the demo, and returns what it printed.
fn demo(store: &str, variables: &[(&str, String)]) -> String {
    let _heavy = heavy_test();
    let output = program(variables).args(["--demo", "--store", store]).output().unwrap();
    let (told, wrong) =
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert!(output.status.success(), "{told}\n{wrong}");
    assert_eq!(wrong, "", "{told}");
    told
}

fn is_whole(told: &str, store: &str) {
    assert!(told.contains(&format!("on the store `{store}`")), "{told}");
    let table: Vec<&str> =
        told.lines().skip_while(|line| !line.starts_with("what happened")).skip(2).collect();
    let rows: Vec<&str> = table.into_iter().take_while(|line| !line.is_empty()).collect();
    assert!(rows.iter().all(|row| row.ends_with("yes")), "{told}");
    for row in [
        "forecast, 1 please wait",
        "forecast, 19 please wait",
        "1 entry, 1 reply, 3 passed over",
        "3 rows in the ledger, 215 TWD, 1 reply, 3 passed over",
        "1 from the fallback, 2 kept, 1 call of the provider, 1 call of the fallback",
        "2 accepted, 2 kept",
        "1 conflict told, 0 changes",
        "1 write, 1 same answer again, 0 edits lost",
        "30 sent, 1 kill, 10 effects, 0 lost to dead letters",
        "10 events seen, 0 seen twice",
        "0 keys left, 0 rows left",
    ] {
        assert_eq!(rows.iter().filter(|line| line.contains(row)).count(), 1, "{row}\n{told}");
    }
    assert!(told.contains("Nothing was doubled and nothing was lost."), "{told}");
}

#[test]
fn the_story_is_told_right_on_memory() {
    is_whole(&demo("memory", &[]), "memory");
}

#[test]
fn the_story_follows_the_configured_stages() {
    let stages = r#"[{"stage":"plan","first":0,"last":9},{"stage":"token","first":1000,"last":999999,"state":false},
        {"stage":"done","first":10,"last":19,"ends":10}]"#;
    let told = demo("memory", &[("EVENT_STAGES", stages.to_owned())]);
    for row in [
        "69 sent, 1 kill, 23 effects, 0 lost to dead letters",
        "23 events seen, 0 seen twice",
        "1 final state",
    ] {
        assert_eq!(
            told.lines().filter(|line| line.contains(row) && line.ends_with("yes")).count(),
            1,
            "{row}\n{told}"
        );
    }
}

#[test]
fn the_story_needs_neither_real_weather_nor_a_real_line() {
    let real = [
        ("WEATHER_PROVIDER", "open-meteo".to_owned()),
        ("WEATHER_FALLBACK_PROVIDER", "sample".to_owned()),
        ("WEATHER_FRESH_SECONDS", "0".to_owned()),
        ("OPEN_METEO_BASE_URL", "http://127.0.0.1:1".to_owned()),
        ("LINE_API_BASE_URL", "http://127.0.0.1:1".to_owned()),
    ];
    is_whole(&demo("memory", &real), "memory");
}

#[test]
fn without_the_lock_the_story_is_wrong_and_says_where() {
    let output = program(&[("PROCESSING_LOCK_ENABLED", "false".to_owned())]).arg("--demo").output().unwrap();
    let told = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.contains("forecast, 1 please wait)"), "{told}");
    assert!(told.contains("Something was doubled or lost"), "{told}");
}

async fn on_servers(backend: Backend, store: &str) {
    let environment = Environment::start(backend).await;
    let variables = environment.variables().to_vec();
    let name = store.to_owned();
    // The servers may live in this process: the story is waited for on another thread.
    let told = tokio::task::spawn_blocking(move || demo(&name, &variables)).await.unwrap();
    is_whole(&told, store);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs redis-server"]
async fn the_story_is_told_right_on_redis() {
    on_servers(Backend::Redis, "redis").await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs redis-server"]
async fn the_story_is_told_right_on_upstash() {
    on_servers(Backend::Upstash, "upstash").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_story_is_told_right_on_dynamodb() {
    on_servers(Backend::DynamoDb, "dynamodb").await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs DynamoDB Local"]
async fn the_story_is_told_right_on_dynamodb_local() {
    on_servers(Backend::DynamoDbLocal, "dynamodb").await;
}
