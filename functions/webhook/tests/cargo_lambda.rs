//! The function as cargo-lambda runs it: `cargo lambda watch`, invoked with the files in `events/webhook`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "these are tests")]

mod support;

use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use onetap_config::Secret;
use onetap_line::testing::MessagingApi;
use onetap_servers::Redis;
use serde_json::Value;
use support::TOKEN;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// `cargo lambda`, from where scripts/tools installs it.
fn cargo_lambda() -> Command {
    let tools = PathBuf::from(std::env::var_os("ONETAP_TOOLS").expect("ONETAP_TOOLS")).join("venv/bin");
    let path = std::env::var("PATH").unwrap_or_default();
    let mut command = Command::new("cargo");
    command.arg("lambda").current_dir(root()).env("PATH", format!("{}:{path}", tools.display()));
    command
}

/// A process and all that it started, ended with the test.
struct Group(Child);

impl Drop for Group {
    fn drop(&mut self) {
        let _ = Command::new("kill").args(["-TERM", "--", &format!("-{}", self.0.id())]).status();
        let _ = self.0.wait();
    }
}

#[tokio::test]
#[ignore = "needs redis-server and cargo-lambda"]
async fn invoked_under_cargo_lambda_watch_every_delivery_is_answered() {
    let redis = Redis::start().await;
    let line = MessagingApi::start(Secret::new(TOKEN)).unwrap();
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string();
    let address = ["--invoke-address", "127.0.0.1", "--invoke-port", &port];
    let watch = cargo_lambda()
        .args(["watch", "--package", "webhook", "--ignore-changes"])
        .args(address)
        .envs([("STORE", "redis"), ("REDIS_URL", &redis.url()), ("STORE_TIMEOUT_MS", "1000")])
        .envs([("LINE_CHANNEL_SECRET", "local-channel-secret"), ("LINE_CHANNEL_ACCESS_TOKEN", TOKEN)])
        .envs([("LINE_API_BASE_URL", line.url().as_str()), ("WEATHER_PROVIDER", "sample")])
        .process_group(0)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let _watch = Group(watch.expect("cargo"));

    // The first invocation waits for the build.
    let give_up = Instant::now() + Duration::from_secs(280);
    let invoke = |name: &str| -> Value {
        let file = format!("events/webhook/{name}.json");
        loop {
            let output = cargo_lambda()
                .args(["invoke", "webhook", "--data-file", &file])
                .args(address)
                .output()
                .unwrap();
            if output.status.success() {
                return serde_json::from_slice(&output.stdout).expect("a response");
            }
            let error = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(Instant::now() < give_up, "cargo lambda invoke: {error}");
            std::thread::sleep(Duration::from_millis(500));
        }
    };
    let story = [
        ("verify", 200, None),
        ("wrong-signature", 401, None),
        ("not-json", 400, None),
        ("set-home", 200, Some("已將住家設定為新北市永和區")),
        ("tap-home", 200, Some("新北市永和區（範例資料）")),
        ("redelivery", 200, None),
        ("entry", 200, Some("已記帳")),
        ("base64", 200, Some("新北市板橋區（範例資料）")),
    ];
    for (name, status, reply) in story {
        assert_eq!(invoke(name)["statusCode"], status, "{name}");
        let said = line.take_replies();
        assert_eq!(said.len(), usize::from(reply.is_some()), "{name}");
        assert!(said.iter().all(|said| said.text().starts_with(reply.unwrap())), "{name}");
    }
}
