//! moto and ministack, each one of its own for a test, on a free port and with its files in a temporary folder.

use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime};

use http::Request;
use onetap_aws::sqs::{Client, QueueUrl, Receive};
use onetap_aws::{Credentials, Signer};
use onetap_http::Bytes;
use onetap_servers::{HeavyTest, heavy_test};
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

use crate::support::{REGION, client, later};

/// Time limit for a start, long enough for a busy machine.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// The visibility timeout of its queues, in seconds: longer than any test takes.
pub(crate) const VISIBILITY: &str = "3600";

/// A running AWS; it ends when this is dropped.
pub(crate) struct Emulator {
    child: Child,
    pub(crate) url: String,
    http: onetap_http::Client,
    _folder: TempDir,
    _heavy: HeavyTest,
}

impl Emulator {
    /// moto, which knows no rights.
    pub(crate) async fn moto() -> Emulator {
        let arguments = |port: &str| ["-H", "127.0.0.1", "-p", port].map(str::to_owned).to_vec();
        Emulator::start("moto_server", arguments, |_| vec![]).await
    }

    /// ministack, which checks signatures and rights, but not those of the key `test`.
    pub(crate) async fn ministack() -> Emulator {
        let variables = |port: &str| {
            let endpoint = format!("http://127.0.0.1:{port}");
            let variables = [
                ("AUTH", "true"),
                ("GATEWAY_PORT", port),
                ("BIND_HOST", "127.0.0.1"),
                ("LOG_LEVEL", "ERROR"),
                ("AWS_ENDPOINT_URL", &*endpoint),
                ("AWS_ACCESS_KEY_ID", "test"),
                ("AWS_SECRET_ACCESS_KEY", "test"),
                ("AWS_DEFAULT_REGION", REGION),
            ];
            variables.map(|(name, value)| (name, value.to_owned())).to_vec()
        };
        Emulator::start("ministack", |_| vec![], variables).await
    }

    async fn start(
        program: &str,
        arguments: impl Fn(&str) -> Vec<String>,
        variables: impl Fn(&str) -> Vec<(&'static str, String)>,
    ) -> Emulator {
        let heavy = heavy_test();
        let folder = tempfile::tempdir().unwrap();
        let tools = PathBuf::from(std::env::var_os("ONETAP_TOOLS").expect("cargo sets ONETAP_TOOLS"));
        let port = free_port().to_string();
        let mut command = bound_to_this_thread(&tools.join("venv/bin").join(program));
        command
            .args(arguments(&port))
            .env_clear()
            .envs(std::env::var_os("PATH").map(|path| ("PATH", path)))
            .envs(variables(&port))
            .envs(["TMPDIR", "STATE_DIR", "S3_DATA_DIR"].map(|name| (name, folder.path())))
            .current_dir(folder.path())
            // A group of its own, that what it starts ends with it.
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let child = command.spawn().expect("scripts/tools installs it");
        let (url, http) = (format!("http://127.0.0.1:{port}"), onetap_http::Client::new());
        let mut emulator = Emulator { child, url, http, _folder: folder, _heavy: heavy };
        let start = Instant::now();
        while emulator.try_call("ListQueues", json!({})).await.is_none() {
            let ended = emulator.child.try_wait().unwrap();
            assert!(ended.is_none(), "{program} ends: {ended:?}");
            assert!(start.elapsed() < START_TIMEOUT, "{program} does not answer");
            sleep(Duration::from_millis(50)).await;
        }
        emulator
    }

    /// A client of its SQS.
    pub(crate) fn client(&self) -> Client {
        client(&self.url)
    }

    /// A new FIFO queue.
    pub(crate) async fn create_fifo(&self) -> QueueUrl {
        self.create("answers.fifo", json!({ "FifoQueue": "true", "VisibilityTimeout": VISIBILITY })).await
    }

    /// A new standard queue.
    pub(crate) async fn create_standard(&self) -> QueueUrl {
        self.create("jobs", json!({ "VisibilityTimeout": VISIBILITY })).await
    }

    async fn create(&self, name: &str, attributes: Value) -> QueueUrl {
        let input = json!({ "QueueName": name, "Attributes": attributes });
        let queue = self.try_call("CreateQueue", input).await.expect("a new queue");
        QueueUrl::new(queue["QueueUrl"].as_str().unwrap()).unwrap()
    }

    /// A call that the client does not have.
    async fn try_call(&self, operation: &str, input: Value) -> Option<Value> {
        let request = Request::post(&self.url)
            .header("content-type", "application/x-amz-json-1.0")
            .header("x-amz-target", format!("AmazonSQS.{operation}"))
            .body(Bytes::from(input.to_string()));
        let (status, body) = self.send("sqs", request.unwrap()).await?;
        (status == 200).then(|| serde_json::from_str(&body).unwrap())
    }

    /// A call of IAM's, whose protocol is another one.
    pub(crate) async fn iam(&self, form: &str) -> String {
        let request = Request::post(&self.url)
            .header("content-type", "application/x-www-form-urlencoded")
            .body(Bytes::from(format!("{form}&Version=2010-05-08")));
        let (status, body) = self.send("iam", request.unwrap()).await.expect("an answer");
        assert_eq!(status, 200, "{body}");
        body
    }

    async fn send(&self, service: &str, mut request: Request<Bytes>) -> Option<(u16, String)> {
        Signer::new(service, REGION, Credentials::new("test", "test")).sign(&mut request, SystemTime::now());
        let answer = self.http.send(request, later(), 1 << 20).await.ok()?;
        Some((answer.status().as_u16(), String::from_utf8(answer.body().to_vec()).unwrap()))
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
        let _ = self.child.wait();
    }
}

/// A command for a program that ends with the thread of the test, even when the test's process is killed.
fn bound_to_this_thread(program: &Path) -> Command {
    assert!(program.is_file(), "{} is not there: run scripts/tools", program.display());
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL"]).arg(program);
    command
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Receives and deletes until there is no message left: what came, each with its group.
pub(crate) async fn drain(client: &Client, queue: &QueueUrl) -> Vec<(String, String)> {
    let mut drained = Vec::new();
    loop {
        let received = client.receive(queue, Receive::up_to(10), later()).await.unwrap();
        if received.is_empty() {
            return drained;
        }
        for message in received {
            client.delete(queue, &message.receipt_handle, later()).await.unwrap();
            drained.push((message.group_id().unwrap_or_default().to_owned(), message.body));
        }
    }
}
