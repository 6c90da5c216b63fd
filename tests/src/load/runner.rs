//! The local runner as a process, on a real store: what an in-process store keeps would look like a leak.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use onetap_http::Incoming;
use onetap_servers::{HeavyTest, Redis, heavy_test};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::time::Instant;

use crate::functions::{ACCESS_TOKEN, CHANNEL_SECRET, EDIT_TOKEN, JOB_SECRET};

/// Time limit for one answer, long enough for a busy machine.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// A running runner, and a way to ask it.
#[derive(Debug)]
pub struct Runner {
    child: Child,
    url: String,
    client: onetap_http::Client,
    _redis: Redis,
    _heavy: HeavyTest,
}

impl Runner {
    /// Starts it, and returns when it says where it listens.
    pub async fn start() -> Runner {
        let heavy = heavy_test();
        let redis = Redis::start().await;
        let mut child = Command::new(program())
            .args(["--port", "0", "--store", "redis"])
            .env_clear()
            .envs([("REDIS_URL", redis.url().as_str()), ("STORE_TIMEOUT_MS", "10000"), ("RUST_LOG", "error")])
            .envs([("LINE_CHANNEL_SECRET", CHANNEL_SECRET), ("LINE_CHANNEL_ACCESS_TOKEN", ACCESS_TOKEN)])
            .envs([("EDIT_API_TOKEN", EDIT_TOKEN), ("JOB_EVENTS_SECRET", JOB_SECRET)])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .expect("the program `onetap`: built with all tests, or by `cargo build --package onetap-local`");
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let first = lines.next_line().await.unwrap().expect("it says where it listens");
        let url = first.split("open ").nth(1).expect("an address").trim_end_matches('/').to_owned();
        // Nobody is to wait for a reader.
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        Runner { child, url, client: onetap_http::Client::new(), _redis: redis, _heavy: heavy }
    }

    /// Its process id.
    pub fn process(&self) -> u32 {
        self.child.id().expect("it runs")
    }

    /// A request to `path`.
    pub fn request(&self, method: &str, path: &str) -> http::request::Builder {
        Request::builder().method(method).uri(format!("{}{path}", self.url))
    }

    /// The answer, whole.
    pub async fn send(&self, request: Request<Bytes>) -> Result<http::Response<Bytes>, String> {
        let deadline = Instant::now() + ANSWER_TIMEOUT;
        self.client.send(request, deadline, 1 << 20).await.map_err(|error| error.to_string())
    }
}

/// People who have come only to listen; dropped, they hang up.
#[derive(Debug, Default)]
pub struct Listeners(onetap_http::Client);

impl Listeners {
    /// The answer's head; its body goes on until it is dropped.
    pub async fn open(&self, request: Request<Bytes>) -> Result<http::Response<Incoming>, String> {
        self.0.open(request, Instant::now() + ANSWER_TIMEOUT).await.map_err(|error| error.to_string())
    }
}

/// Where cargo puts the program of another package: above the folder of the test binaries.
fn program() -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    tests.parent().and_then(|deps| deps.parent()).unwrap().join("onetap")
}
