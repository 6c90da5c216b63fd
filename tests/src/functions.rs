//! The functions as `scripts/build` made them, what each needs in its environment, and the scenarios in `events/`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "test support: what cannot be started fails its test on the spot and says why"
)]

use std::path::PathBuf;
use std::time::Duration;

use onetap_config::{Secret, Variables};
use onetap_line::signature;
use onetap_servers::runtime::Answer;
use onetap_servers::{Program, RuntimeApi};
use serde_json::{Value, json};

/// Signs the deliveries in `events/webhook`.
pub const CHANNEL_SECRET: &str = "local-channel-secret";
/// The webhook's access token for the Messaging API.
pub const ACCESS_TOKEN: &str = "local-channel-token";
/// The bearer token of the requests in `events/edit-last-transaction`.
pub const EDIT_TOKEN: &str = "local-edit-token";
/// Signs the job tokens in `events/job-events`.
pub const JOB_SECRET: &str = "secret";

/// Time limit for one invocation, long enough for a busy machine.
const INVOCATION_TIMEOUT: Duration = Duration::from_secs(60);

/// One of the four.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Function {
    /// LINE's deliveries.
    Webhook,
    /// The last transaction over HTTP.
    Edit,
    /// The queue's batches.
    Consumer,
    /// A job's events, streamed.
    Gateway,
}

impl Function {
    /// All of them, in the order in which the documents name them.
    pub const ALL: [Function; 4] = [Function::Webhook, Function::Edit, Function::Consumer, Function::Gateway];

    /// The name of its package, program and folder of scenarios.
    pub const fn name(self) -> &'static str {
        match self {
            Function::Webhook => "webhook",
            Function::Edit => "edit-last-transaction",
            Function::Consumer => "queue-consumer",
            Function::Gateway => "job-events",
        }
    }

    /// Its release build.
    pub fn program(self) -> PathBuf {
        let path = built().join(self.name()).join("bootstrap");
        assert!(path.is_file(), "{} is not there: run scripts/build", path.display());
        path
    }

    /// What it needs in its environment besides the store's part.
    pub fn variables(self, messaging_api: &str) -> Vec<(&'static str, String)> {
        let own: &[(&str, &str)] = match self {
            Function::Webhook => &[
                ("LINE_CHANNEL_SECRET", CHANNEL_SECRET),
                ("LINE_CHANNEL_ACCESS_TOKEN", ACCESS_TOKEN),
                ("LINE_API_BASE_URL", messaging_api),
                ("WEATHER_PROVIDER", "sample"),
            ],
            Function::Edit => &[("EDIT_API_TOKEN", EDIT_TOKEN)],
            Function::Consumer => &[],
            Function::Gateway => &[("JOB_EVENTS_SECRET", JOB_SECRET), ("JOB_EVENTS_ALLOW_ORIGIN", "*")],
        };
        own.iter().map(|(name, value)| (*name, (*value).to_owned())).collect()
    }

    /// One of its scenarios.
    pub fn event(self, scenario: &str) -> Value {
        let path = root().join("events").join(self.name()).join(scenario).with_extension("json");
        let text = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        serde_json::from_slice(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }
}

/// The workspace.
pub fn root() -> PathBuf {
    let mut root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    root.pop();
    root
}

/// Where `scripts/build` puts the functions.
pub fn built() -> PathBuf {
    root().join("target/lambda")
}

/// A virtual environment of Python's that `scripts/tools` made: `venv`, or `sam` for the SAM CLI.
pub fn tools(name: &str) -> PathBuf {
    let tools = std::env::var_os("ONETAP_TOOLS").expect("cargo sets ONETAP_TOOLS");
    PathBuf::from(tools).join(name)
}

/// An API Gateway event with this delivery, signed as LINE would.
pub fn delivery(events: &[Value]) -> Value {
    let body = json!({ "destination": "Uffffffffffffffffffffffffffffffff", "events": events }).to_string();
    let mut event = Function::Webhook.event("verify");
    event["headers"]["x-line-signature"] = signature(&body).into();
    event["body"] = body.into();
    event
}

/// What LINE sends with this body.
pub fn signature(body: &str) -> String {
    signature::sign(&Secret::new(CHANNEL_SECRET), body.as_bytes())
}

/// A function's program, running on a runtime API of its own.
#[derive(Debug)]
pub struct Running {
    api: RuntimeApi,
    program: Program,
}

impl Running {
    /// Starts the function with these variables and no others.
    pub fn start<'a>(
        function: Function,
        variables: impl IntoIterator<Item = (&'a str, impl AsRef<str>)>,
    ) -> Running {
        let api = RuntimeApi::start();
        let program = api.run(&function.program(), variables);
        Running { api, program }
    }

    /// Its answer to an event.
    pub async fn answer(&self, event: &Value) -> Answer {
        let answer = self.api.invoke(event.to_string(), INVOCATION_TIMEOUT).await;
        answer.unwrap_or_else(|_| panic!("the function did not answer"))
    }

    /// Its answer to an event, which is JSON.
    pub async fn invoke(&self, event: &Value) -> Value {
        let answer = self.answer(event).await;
        assert!(!answer.failed, "{:?}", answer.body);
        serde_json::from_slice(&answer.body).unwrap_or_else(|error| panic!("{error}: {:?}", answer.body))
    }

    /// Kills the program and returns everything that it wrote. It writes its log lines about an event before it answers.
    pub fn said(self) -> String {
        self.program.kill()
    }

    /// How it ended and what it wrote, when it ends by itself.
    pub fn ended(self) -> (Option<i32>, String) {
        let (status, said) = self.program.wait();
        (status.code(), said)
    }
}

/// The webhook's settings with more time than LINE gives, so that what a test shows does not depend on how quick its machine
/// is.
pub fn patient_config(variables: &Variables<'_>) -> webhook::Config {
    let minute = Duration::from_secs(60);
    let times = webhook::Times { delivery: 3 * minute, forecast: minute, reply: minute };
    webhook::Config::from_variables(variables).unwrap().with_times(times)
}
