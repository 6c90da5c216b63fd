//! The function under cargo-lambda, invoked with the files in `events/webhook`.

use crate::support;

use std::net::{TcpListener, TcpStream};
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

/// The variables of a function on this store and this LINE.
fn variables(redis: &Redis, line: &MessagingApi) -> [(&'static str, String); 7] {
    [
        ("STORE", "redis".to_owned()),
        ("REDIS_URL", redis.url()),
        ("STORE_TIMEOUT_MS", "1000".to_owned()),
        ("LINE_CHANNEL_SECRET", "local-channel-secret".to_owned()),
        ("LINE_CHANNEL_ACCESS_TOKEN", TOKEN.to_owned()),
        ("LINE_API_BASE_URL", line.url()),
        ("WEATHER_PROVIDER", "sample".to_owned()),
    ]
}

fn start(command: &mut Command) -> Group {
    let silent = command.process_group(0).stdout(Stdio::null()).stderr(Stdio::null());
    Group(silent.spawn().expect("a program that can be started"))
}

#[tokio::test]
#[ignore = "needs redis-server, and builds the function as cargo-lambda does"]
async fn invoked_under_cargo_lambda_watch_every_delivery_is_answered() {
    let redis = Redis::start().await;
    let line = MessagingApi::start(Secret::new(TOKEN)).unwrap();
    let port = free_port();
    let _watch = start(
        cargo_lambda()
            .args(["watch", "--package", "webhook", "--ignore-changes"])
            .args(address(&port))
            .envs(variables(&redis, &line)),
    );
    every_delivery_is_answered(&port, &line);
}

/// The same without a build: cargo-lambda gives only the runtime's API, and the function is the one beside this test.
#[tokio::test]
#[ignore = "needs redis-server and cargo-lambda"]
async fn invoked_through_cargo_lambda_every_delivery_is_answered() {
    let redis = Redis::start().await;
    let line = MessagingApi::start(Secret::new(TOKEN)).unwrap();
    let port = free_port();
    let _apis = start(cargo_lambda().args(["watch", "--only-lambda-apis"]).args(address(&port)));
    let listens = || TcpStream::connect(("127.0.0.1", port.parse().unwrap())).is_ok();
    while !listens() {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let _function = start(
        Command::new(env!("CARGO_BIN_EXE_webhook"))
            .env("AWS_LAMBDA_RUNTIME_API", format!("http://127.0.0.1:{port}/.rt/webhook"))
            .envs([("AWS_LAMBDA_FUNCTION_NAME", "webhook"), ("AWS_LAMBDA_FUNCTION_VERSION", "1")])
            .env("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "128")
            .envs(variables(&redis, &line)),
    );
    every_delivery_is_answered(&port, &line);
}

fn free_port() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string()
}

fn address(port: &str) -> [&str; 4] {
    ["--invoke-address", "127.0.0.1", "--invoke-port", port]
}

fn every_delivery_is_answered(port: &str, line: &MessagingApi) {
    // The first invocation waits for the build.
    let give_up = Instant::now() + Duration::from_secs(280);
    let invoke = |name: &str| -> Value {
        let file = format!("events/webhook/{name}.json");
        loop {
            let output = cargo_lambda()
                .args(["invoke", "webhook", "--data-file", &file])
                .args(address(port))
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
