//! Eight at once, each with a field of its own: all succeed, and none undoes another.

use crate::support;

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use futures_util::future::join_all;
use support::{Api, Backend, Environment, LUNCH, TOKEN, memory};

const FIELDS: [&str; 8] = ["品項", "付款方式", "分類", "專案", "必要性", "明細說明", "收款支付對象", "附註"];
const EDITS: u32 = 50;

/// Each field has the value that its editor wrote last, and the rest is as it was.
async fn every_field_has_its_last_value(api: &Api) {
    let entry = api.get().await.json();
    for field in FIELDS {
        assert_eq!(entry[field], format!("{field} {EDITS}"), "{field}");
    }
    assert_eq!((&entry["交易ID"], &entry["時間"]), (&"20251129-140000".into(), &"14:30".into()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn four_hundred_edits_by_eight_tasks_all_land_on_memory() {
    let api = Arc::new(Api::new(memory()));
    api.put(LUNCH).await;
    let editors = FIELDS.map(|field| {
        let api = Arc::clone(&api);
        tokio::spawn(async move {
            for time in 1..=EDITS {
                assert_eq!(api.patch(&format!(r#"{{"{field}":"{field} {time}"}}"#)).await.status, 200);
            }
        })
    });
    for editor in join_all(editors).await {
        editor.unwrap();
    }
    every_field_has_its_last_value(&api).await;
}

struct Editor(Child);

impl Drop for Editor {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Where cargo puts examples: beside the folder of the test binaries.
fn example(name: &str) -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    tests.parent().and_then(|deps| deps.parent()).unwrap().join("examples").join(name)
}

async fn by_eight_processes(environment: &Environment) {
    let api = Api::new(environment.store());
    api.put(LUNCH).await;
    let mut editors = FIELDS.map(|field| {
        let child = Command::new(example("editor"))
            .args([&api.user, field, &EDITS.to_string()])
            .envs(environment.variables().iter().map(|(name, value)| (name, value)))
            .env("EDIT_API_TOKEN", TOKEN)
            .env("RUST_LOG", "error")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        Editor(child.expect("the example `editor`: built with all tests, or by `cargo build --examples`"))
    });
    for Editor(child) in &mut editors {
        writeln!(child.stdin.take().unwrap(), "go").unwrap();
    }
    for Editor(child) in &mut editors {
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line.trim(), EDITS.to_string());
    }
    every_field_has_its_last_value(&api).await;
}

#[tokio::test]
#[ignore = "needs redis-server"]
async fn four_hundred_edits_by_eight_processes_all_land_on_redis() {
    by_eight_processes(&Environment::start(Backend::Redis).await).await;
}

#[tokio::test]
#[ignore = "needs redis-server"]
async fn four_hundred_edits_by_eight_processes_all_land_on_upstash() {
    by_eight_processes(&Environment::start(Backend::Upstash).await).await;
}

#[tokio::test]
async fn four_hundred_edits_by_eight_processes_all_land_on_dynamodb() {
    by_eight_processes(&Environment::start(Backend::DynamoDb).await).await;
}

#[tokio::test]
#[ignore = "needs DynamoDB Local"]
async fn four_hundred_edits_by_eight_processes_all_land_on_dynamodb_local() {
    by_eight_processes(&Environment::start(Backend::DynamoDbLocal).await).await;
}
