//! ministack, an AWS that runs here without Docker: one of its own for each test, in a temporary folder.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "test support: what cannot be started fails its test on the spot and says why"
)]

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use onetap_http::Client;
use onetap_servers::{HeavyTest, heavy_test};
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

use crate::emulator::free_address;
use crate::functions::{built, root, tools};

/// Time limit for one step, long enough for a busy machine.
const STEP_TIMEOUT: Duration = Duration::from_secs(60);

/// A running AWS; it ends, with every function that it started, when it is dropped.
#[derive(Debug)]
pub struct Cloud {
    child: Child,
    address: String,
    client: Client,
    _folder: TempDir,
    _heavy: HeavyTest,
}

/// A deployed stack.
#[derive(Debug)]
pub struct Stack(Value);

impl Stack {
    /// An output of the template's.
    pub fn output(&self, name: &str) -> &str {
        self.0["outputs"][name].as_str().unwrap_or_else(|| panic!("no output {name}"))
    }

    /// What its resources are called there.
    pub fn resources(&self) -> impl Iterator<Item = &str> {
        self.0["resources"].as_object().into_iter().flatten().filter_map(|(_, name)| name.as_str())
    }

    /// What a resource of the template's is called there; nothing if it was not created.
    pub fn resource(&self, name: &str) -> Option<&str> {
        self.0["resources"][name].as_str()
    }
}

impl Cloud {
    /// Starts one in which nothing is deployed. It checks signatures and rights, as AWS does.
    pub async fn start() -> Cloud {
        let heavy = heavy_test();
        let folder = tempfile::tempdir().expect("a temporary folder");
        let address = free_address();
        let (_, port) = address.rsplit_once(':').expect("host:port");
        let child = Command::new(tools("venv").join("bin/ministack"))
            .env_clear()
            .envs(std::env::var_os("PATH").map(|path| ("PATH", path)))
            .envs(credentials(&address))
            .envs([
                ("AUTH", "true"),
                ("GATEWAY_PORT", port),
                ("BIND_HOST", "127.0.0.1"),
                ("LOG_LEVEL", "ERROR"),
            ])
            .envs(["TMPDIR", "STATE_DIR", "S3_DATA_DIR"].map(|name| (name, folder.path())))
            .current_dir(folder.path())
            // A group of its own, that its functions end with it.
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let child = child.expect("ministack starts: scripts/tools installs it");
        let cloud = Cloud { child, address, client: Client::new(), _folder: folder, _heavy: heavy };
        let listening = async {
            while tokio::net::TcpStream::connect(&cloud.address).await.is_err() {
                sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::time::timeout(STEP_TIMEOUT, listening).await.expect("ministack listens");
        cloud
    }

    /// Where it is.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Creates a stack of this name from `template.yaml` and the functions that were built.
    pub fn deploy(&self, name: &str, parameters: &Value, secret: &Value) -> Stack {
        self.deploy_from(&root().join("template.yaml"), &built(), name, parameters, secret)
    }

    /// The same from another template, with the programs in `built`.
    pub fn deploy_from(
        &self,
        template: &Path,
        built: &Path,
        name: &str,
        parameters: &Value,
        secret: &Value,
    ) -> Stack {
        let arguments = ["deploy", template.to_str().expect("text"), built.to_str().expect("text")];
        Stack(self.script(&arguments, &json!({ "name": name, "parameters": parameters, "secret": secret })))
    }

    /// Runs `tests/deploy/stack.py`, which says what there is to be done with it.
    pub fn script(&self, arguments: &[&str], input: &Value) -> Value {
        let mut child = Command::new(tools("venv").join("bin/python"))
            .arg(root().join("tests/deploy/stack.py"))
            .args(arguments)
            .envs(credentials(&self.address))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("Python starts");
        let stdin = child.stdin.take();
        stdin.expect("piped").write_all(input.to_string().as_bytes()).expect("it reads its input");
        let output = child.wait_with_output().expect("our own child");
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).expect("JSON")
    }

    /// Sends a request to a URL of the stack. No DNS knows these host names: every request goes to ministack's address.
    pub async fn send(&self, mut request: Request<Bytes>) -> Response<Bytes> {
        let host =
            request.uri().authority().expect("a whole URL").as_str().parse().expect("a header's value");
        request.headers_mut().insert(http::header::HOST, host);
        let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
        *request.uri_mut() = format!("{}{path}", self.url()).parse().expect("a URL");
        let answer = self.client.send(request, Instant::now() + STEP_TIMEOUT, 1 << 20).await;
        answer.expect("ministack answers")
    }
}

impl Drop for Cloud {
    fn drop(&mut self) {
        let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
        let _ = self.child.wait();
    }
}

fn credentials(address: &str) -> [(&'static str, String); 4] {
    [
        ("AWS_ENDPOINT_URL", format!("http://{address}")),
        ("AWS_ACCESS_KEY_ID", "test".to_owned()),
        ("AWS_SECRET_ACCESS_KEY", "test".to_owned()),
        ("AWS_DEFAULT_REGION", "us-east-1".to_owned()),
    ]
}
