//! A bot on a store and on LINE's API, and events to send it.
#![allow(dead_code, reason = "every file uses its part")]

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use http::Request;
use lambda_http::Body;
use onetap_bot::{Bot, Config, Times, Variables, Webhook};
use onetap_config::Secret;
use onetap_line::signature::sign;
use onetap_line::testing::MessagingApi;
use onetap_servers::{Backend, Environment};
use onetap_store::Store;
use onetap_store::lease::unique_token;
use serde_json::{Value, json};

pub(crate) const SECRET: &str = "planted-channel-secret";
pub(crate) const TOKEN: &str = "planted-access-token";

/// More time than LINE gives, so that what a test shows does not depend on how quick its machine is.
const PATIENT: Times = Times { delivery: Duration::from_secs(180), reply: Duration::from_secs(60) };

/// A webhook and LINE.
pub(crate) struct Stage<B> {
    pub(crate) line: MessagingApi,
    pub(crate) webhook: Webhook<B>,
}

impl<B: Bot> Stage<B> {
    pub(crate) fn new(store: Arc<dyn Store>, bot: B) -> Stage<B> {
        Stage::timed(store, bot, PATIENT)
    }

    pub(crate) fn timed(store: Arc<dyn Store>, bot: B, times: Times) -> Stage<B> {
        let line = MessagingApi::start(Secret::new(TOKEN)).unwrap();
        let variables = [
            ("LINE_CHANNEL_SECRET", SECRET.to_owned()),
            ("LINE_CHANNEL_ACCESS_TOKEN", TOKEN.to_owned()),
            ("LINE_API_BASE_URL", line.url()),
            ("PROCESSING_LOCK_TIMEOUT_SECONDS", "60".to_owned()),
        ];
        let config = Config { times, ..config(&variables).unwrap() };
        let webhook = Webhook::new(store, bot, &onetap_http::Client::new(), config).unwrap();
        Stage { line, webhook }
    }

    pub(crate) async fn deliver(&self, events: &[Value]) -> u16 {
        deliver(&self.webhook, SECRET, &json!({"destination": "U0", "events": events})).await
    }

    /// The texts of the replies since the last look, sorted.
    pub(crate) fn said(&self) -> Vec<String> {
        let mut texts: Vec<_> =
            self.line.take_replies().iter().map(|reply| reply.text().to_owned()).collect();
        texts.sort();
        texts
    }

    /// Sends one text of `user`, and returns the answer.
    pub(crate) async fn ask(&self, user: &str, words: &str) -> String {
        assert_eq!(self.deliver(&[text(user, words)]).await, 200);
        let said = self.said();
        assert_eq!(said.len(), 1, "{said:?}");
        said[0].clone()
    }
}

pub(crate) fn config(variables: &[(&str, String)]) -> Result<Config, onetap_bot::ConfigError> {
    let known: HashMap<&str, &String> = variables.iter().map(|(name, value)| (*name, value)).collect();
    Config::from_variables(&Variables::from_lookup(|name| known.get(name).map(|value| (*value).clone())))
}

/// Delivers a body that is signed with this secret.
pub(crate) async fn deliver<B: Bot>(webhook: &Webhook<B>, secret: &str, body: &Value) -> u16 {
    let body = body.to_string().into_bytes();
    let signature = sign(&Secret::new(secret), &body);
    let request = Request::post("/line/webhook").header("x-line-signature", signature);
    webhook.handle(request.body(Body::Binary(body)).unwrap()).await.status().as_u16()
}

/// A user nobody else is.
pub(crate) fn user() -> String {
    format!("U{}", unique_token())
}

/// An event of a user, with an id and a reply token of its own.
pub(crate) fn event(user: &str, more: Value) -> Value {
    let mut event = json!({
        "webhookEventId": format!("01H{}", unique_token()),
        "deliveryContext": {"isRedelivery": false},
        "timestamp": 1_700_000_000_000_i64,
        "mode": "active",
        "replyToken": format!("planted-reply-{}", unique_token()),
        "source": {"type": "user", "userId": user},
    });
    event.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    event
}

pub(crate) fn text(user: &str, words: &str) -> Value {
    event(user, json!({"type": "message", "message": {"type": "text", "id": "1", "text": words}}))
}

pub(crate) fn tap(user: &str, data: &str) -> Value {
    event(user, json!({"type": "postback", "postback": {"data": data}}))
}

pub(crate) fn in_group(mut event: Value, group: &str) -> Value {
    event["source"]["type"] = "group".into();
    event["source"]["groupId"] = group.into();
    event
}

/// The same event, as LINE sends it again.
pub(crate) fn redelivered(event: &Value) -> Value {
    let mut again = event.clone();
    again["deliveryContext"]["isRedelivery"] = true.into();
    again
}

/// A store on a backend's real servers, which end with their environment.
pub(crate) async fn start(backend: Backend) -> (Arc<dyn Store>, Environment) {
    let environment = Environment::start(backend).await.with("STORE_TIMEOUT_MS", "30000");
    let store = environment.store();
    (store, environment)
}
