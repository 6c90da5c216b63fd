//! AWS's own Runtime Interface Emulator, which the SAM CLI brings along: one function on it, as Lambda would run it.
//!
//! It tells a function its deadline, ends one that is over it, and starts a fresh process when the last one died.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "test support: what cannot be started fails its test on the spot and says why"
)]

use std::fs;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use onetap_http::Client;
use onetap_servers::{HeavyTest, heavy_test};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tokio::time::{Instant, sleep};

use crate::functions::{Function, tools};

/// Time limit for one invocation, long enough for a busy machine; the emulator itself enforces the function's timeout.
const INVOCATION_TIMEOUT: Duration = Duration::from_secs(60);

/// A running emulator with its function; both end when it is dropped.
#[derive(Debug)]
pub struct Emulator {
    child: Child,
    url: String,
    client: Client,
    _heavy: HeavyTest,
}

impl Emulator {
    /// Starts the emulator for `function`, whose invocations may take `timeout_seconds`.
    pub async fn start<'a>(
        function: Function,
        timeout_seconds: u32,
        variables: impl IntoIterator<Item = (&'a str, impl AsRef<str>)>,
    ) -> Emulator {
        let heavy = heavy_test();
        let [own, runtime_api] = [free_address(), free_address()];
        let mut command = Command::new(program());
        command
            .args(["--runtime-interface-emulator-address", &own, "--runtime-api-address", &runtime_api])
            .arg(function.program())
            .env_clear()
            .env("AWS_LAMBDA_FUNCTION_NAME", function.name())
            .env("AWS_LAMBDA_FUNCTION_TIMEOUT", timeout_seconds.to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        for (name, value) in variables {
            command.env(name, value.as_ref());
        }
        let child = command.spawn().expect("the emulator starts");
        let url = format!("http://{own}/2015-03-31/functions/function/invocations");
        let emulator = Emulator { child, url, client: Client::new(), _heavy: heavy };
        let listening = async {
            while tokio::net::TcpStream::connect(&own).await.is_err() {
                sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(INVOCATION_TIMEOUT, listening).await.expect("the emulator listens");
        emulator
    }

    /// What becomes of an event: the function's answer, or what the emulator says about its end.
    pub async fn invoke(&self, event: &Value) -> String {
        let request = Request::post(&self.url).body(Bytes::from(event.to_string())).expect("a request");
        let answer = self.client.send(request, Instant::now() + INVOCATION_TIMEOUT, 1 << 20).await;
        String::from_utf8(answer.expect("the emulator answers").into_body().to_vec()).expect("text")
    }

    /// The function's process, if it runs right now.
    pub fn process(&self) -> Option<Pid> {
        let mine = |process: &PathBuf| {
            let stat = fs::read_to_string(process.join("stat")).ok()?;
            // The parent is the second word after the name, which stands in brackets and may hold anything.
            let parent = stat.rsplit_once(')')?.1.split_whitespace().nth(1)?;
            (parent.parse() == Ok(self.child.id())).then_some(())?;
            Pid::from_raw(process.file_name()?.to_str()?.parse().ok()?)
        };
        fs::read_dir("/proc").ok()?.flatten().find_map(|entry| mine(&entry.path()))
    }

    /// Stops the function's process where it is: it goes on existing, and does nothing more.
    pub fn stop(&self) {
        self.signal(Signal::STOP);
    }

    /// Ends the function's process on the spot, as a crash would.
    pub fn kill(&self) {
        self.signal(Signal::KILL);
    }

    fn signal(&self, signal: Signal) {
        let process = self.process().expect("the function runs");
        kill_process(process, signal).expect("our own process");
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        if let Some(process) = self.process() {
            let _ = kill_process(process, Signal::KILL);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn program() -> PathBuf {
    let lib = tools("sam").join("lib");
    let rapid = "site-packages/samcli/local/rapid/aws-lambda-rie-x86_64";
    let found = fs::read_dir(&lib).into_iter().flatten().flatten().map(|python| python.path().join(rapid));
    let found = found.into_iter().find(|path| path.is_file());
    found
        .unwrap_or_else(|| panic!("no Runtime Interface Emulator under {}: run scripts/tools", lib.display()))
}

/// A loopback address that nobody listens on.
pub fn free_address() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("bound").to_string()
}
