//! A runner to talk to: in this process, or the program itself.
#![allow(unreachable_pub, reason = "a module of tests")]

use std::process::Command;
use std::time::Duration;

use http::Method;
use onetap_config::Variables;
use onetap_local::arguments::Options;
use onetap_local::client::{Client, Events, Response};
use onetap_local::{Local, OwnBot};
use serde_json::{Value, json};

pub const ALICE: &str = "U000000000000000000000000000a11ce";
pub const BOB: &str = "U00000000000000000000000000000b0b";
pub const HOME: &str = "action=weather&type=home";
/// What a forecast of the users' home begins with.
pub const FORECAST: &str = "新北市永和區";

pub struct Runner {
    pub local: Local,
    pub client: Client,
}

impl Runner {
    pub async fn start() -> Runner {
        Runner::with(&[]).await
    }

    pub async fn with(variables: &[(&str, &str)]) -> Runner {
        Runner::with_bot(variables, None).await
    }

    pub async fn with_bot(variables: &[(&str, &str)], own_bot: Option<OwnBot>) -> Runner {
        let lookup = |name: &str| variables.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned());
        // More time than LINE gives: what a test shows does not depend on how quick its machine is.
        let ten_seconds = Duration::from_secs(10);
        let times = webhook::Times { delivery: 2 * ten_seconds, forecast: ten_seconds, reply: ten_seconds };
        let options = Options { port: Some(0), times, ..Options::default() };
        let local = Local::start_with(&options, &Variables::from_lookup(lookup), own_bot).await.unwrap();
        let client = Client::new(&local.url());
        Runner { local, client }
    }

    pub fn secret(&self, name: &str) -> String {
        self.local.generated().iter().find(|one| one.name == name).unwrap().value.clone()
    }

    pub async fn call(&self, method: Method, path: &str, body: &str) -> Response {
        self.client
            .call(method, path, &[("content-type", "application/json")], body.to_owned())
            .await
            .unwrap()
    }

    pub async fn control(&self, method: Method, call: &str, body: Value) -> Value {
        self.client.json(method, &format!("/playground/{call}"), &body).await.unwrap()
    }

    /// Delivers: the path of each event.
    pub async fn deliver(&self, user: &str, event: Value, times: usize) -> Vec<String> {
        let body = json!({ "user": user, "events": [event], "times": times });
        paths(&self.control(Method::POST, "deliver", body).await)
    }

    pub async fn live(&self) -> Events {
        self.client.events("/playground/live", &[]).await.unwrap().unwrap()
    }

    pub async fn snapshot(&self) -> Value {
        let first = self.live().await.next().await.unwrap().unwrap();
        assert_eq!(first.name, "snapshot");
        serde_json::from_str(&first.data).unwrap()
    }

    /// The replies to `user` so far.
    pub async fn said(&self, user: &str) -> Vec<String> {
        let replies = self.snapshot().await["replies"].take();
        let own = replies.as_array().unwrap().iter().filter(|reply| reply["user"] == user);
        own.map(|reply| reply["text"].as_str().unwrap().to_owned()).collect()
    }
}

pub fn paths(answer: &Value) -> Vec<String> {
    let deliveries = answer["deliveries"].as_array().unwrap().iter();
    let events = deliveries.flat_map(|delivery| delivery["events"].as_array().unwrap());
    events.map(|event| event["path"].as_str().unwrap().to_owned()).collect()
}

pub fn tap(data: &str) -> Value {
    json!({ "type": "postback", "postback": { "data": data } })
}

pub fn text(text: &str) -> Value {
    json!({ "type": "message", "message": { "type": "text", "text": text } })
}

/// The program, with an environment of nothing but these variables.
pub fn program(variables: &[(&str, String)]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_onetap"));
    command.env_clear().envs(variables.iter().map(|(name, value)| (name, value)));
    command
}
