//! Tests of a bot: a phone that talks to it, without servers and without LINE.
//!
//! ```
//! use onetap_bot::testing::Phone;
//! use onetap_bot::{Incoming, Message, reply_fn};
//!
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! let echo = reply_fn(|incoming: &Incoming<'_>| incoming.text().map(Message::text));
//! let phone = Phone::new(echo);
//! assert_eq!(phone.say("U1", "hello").await, ["hello"]);
//!
//! // LINE delivers the event again: the user hears the answer once.
//! assert!(phone.redeliver().await.is_empty());
//! # });
//! ```

#![allow(
    clippy::expect_used,
    reason = "test support: what cannot be started fails its test on the spot and says why"
)]

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::Request;
use lambda_http::Body;
use onetap_config::{Secret, Variables};
use onetap_line::signature::sign;
use onetap_line::testing::MessagingApi;
use onetap_store::lease::unique_token;
use onetap_store::{Memory, Store};
use serde_json::{Value, json};

use crate::{Bot, Config, Times, Webhook};

/// The channel's secret.
pub const SECRET: &str = "planted-channel-secret";
/// The channel's access token.
pub const ACCESS_TOKEN: &str = "planted-access-token";

/// More time than LINE gives, so that what a test shows does not depend on the speed of its machine.
const PATIENT: Times = Times { delivery: Duration::from_secs(180), reply: Duration::from_secs(60) };

/// A phone: it sends signed deliveries to a bot, and hears the replies, as LINE's Messaging API takes them.
///
/// It has more patience than LINE, so that a test does not depend on the speed of its machine: a delivery may take three minutes. With
/// [`in_real_time`](Phone::in_real_time) the limits are LINE's.
pub struct Phone<B> {
    line: MessagingApi,
    webhook: Webhook<B>,
    /// What was delivered last.
    last: Mutex<Vec<Value>>,
}

impl<B: Bot> Phone<B> {
    /// A phone for `bot`, whose store is memory.
    pub fn new(bot: B) -> Phone<B> {
        Phone::with_store(bot, Arc::new(Memory::new()))
    }

    /// The same with the time limits of a real delivery.
    pub fn in_real_time(bot: B) -> Phone<B> {
        Phone::with_times(bot, Arc::new(Memory::new()), Times::default())
    }

    /// The same on this store.
    pub fn with_store(bot: B, store: Arc<dyn Store>) -> Phone<B> {
        Phone::with_times(bot, store, PATIENT)
    }

    /// The same with these time limits.
    pub fn with_times(bot: B, store: Arc<dyn Store>, times: Times) -> Phone<B> {
        let line = MessagingApi::start(Secret::new(ACCESS_TOKEN)).expect("a server on a free port");
        let variables = |name: &str| match name {
            "LINE_CHANNEL_SECRET" => Some(SECRET.to_owned()),
            "LINE_CHANNEL_ACCESS_TOKEN" => Some(ACCESS_TOKEN.to_owned()),
            "LINE_API_BASE_URL" => Some(line.url()),
            // No lock ends while a test waits for something else.
            "PROCESSING_LOCK_TIMEOUT_SECONDS" => Some("60".to_owned()),
            _ => None,
        };
        let config = Config::from_variables(&Variables::from_lookup(variables)).expect("right variables");
        let webhook = Webhook::new(store, bot, &onetap_http::Client::new(), Config { times, ..config });
        Phone { webhook: webhook.expect("a right configuration"), line, last: Mutex::default() }
    }

    /// `user` says `words` in a chat with the bot alone: the texts of the reply's messages, none if the bot says nothing. A
    /// message without a text is shown as its type.
    pub async fn say(&self, user: &str, words: &str) -> Vec<String> {
        self.send(text(user, words)).await
    }

    /// `user` taps a button with this data: the reply, as [`say`](Phone::say) has it.
    pub async fn tap(&self, user: &str, data: &str) -> Vec<String> {
        self.send(tap(user, data)).await
    }

    /// Delivers one event, and expects the status 200: the reply, as [`say`](Phone::say) has it.
    pub async fn send(&self, event: Value) -> Vec<String> {
        assert_eq!(self.deliver(&[event]).await, 200, "the delivery is to be sent again");
        self.heard()
    }

    /// Delivers these events at once, and returns the status that LINE gets: 200, or 500 if it is to send them again.
    pub async fn deliver(&self, events: &[Value]) -> u16 {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = events.to_vec();
        deliver(&self.webhook, SECRET, &json!({ "destination": "U0", "events": events })).await
    }

    /// LINE delivers again what it delivered last, and the delivery must be answered 200: the replies that it takes, none if it had
    /// taken them before.
    pub async fn redeliver(&self) -> Vec<String> {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let again: Vec<Value> = last.iter().map(redelivered).collect();
        assert_eq!(self.deliver(&again).await, 200, "the delivery is to be sent again");
        self.heard()
    }

    /// The messages of all replies since the last look, as [`say`](Phone::say) has them. The order of replies to events that were
    /// delivered at the same time is open.
    pub fn heard(&self) -> Vec<String> {
        let replies = self.line.take_replies();
        replies.iter().flat_map(|reply| &reply.messages).map(shown).collect()
    }

    /// LINE: its replies as they were sent, profiles, contents, and faults to inject.
    pub fn line(&self) -> &MessagingApi {
        &self.line
    }

    /// The bot's webhook.
    pub fn webhook(&self) -> &Webhook<B> {
        &self.webhook
    }
}

impl<B> fmt::Debug for Phone<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Phone").finish_non_exhaustive()
    }
}

fn shown(message: &Value) -> String {
    let shown = message["text"].as_str().or_else(|| message["type"].as_str());
    shown.unwrap_or_default().to_owned()
}

/// Delivers a body that is signed with `secret`, and returns the status.
pub async fn deliver<B: Bot>(webhook: &Webhook<B>, secret: &str, body: &Value) -> u16 {
    webhook.handle(signed(secret, body.to_string().into_bytes())).await.status().as_u16()
}

/// A delivery with this body, signed with `secret`.
pub fn signed(secret: &str, body: Vec<u8>) -> lambda_http::Request {
    let signature = sign(&Secret::new(secret), &body);
    let request = Request::post("/line/webhook").header("x-line-signature", signature);
    request.body(Body::Binary(body)).expect("a request")
}

/// A user whom no other test knows.
pub fn user() -> String {
    format!("U{}", unique_token())
}

/// An event of `user` in a chat with the bot alone, with an id and a reply token of its own and the members of `more`, such as
/// `{"type": "follow"}`. It happens now.
pub fn event(user: &str, more: Value) -> Value {
    let mut event = json!({
        "webhookEventId": format!("01H{}", unique_token()),
        "deliveryContext": { "isRedelivery": false },
        // Long ago: for such an event the function's clock counts.
        "timestamp": 1_700_000_000_000_i64,
        "mode": "active",
        "replyToken": format!("planted-reply-{}", unique_token()),
        "source": { "type": "user", "userId": user },
    });
    if let (Value::Object(event), Value::Object(more)) = (&mut event, more) {
        event.extend(more);
    }
    event
}

/// The event of a text.
pub fn text(user: &str, words: &str) -> Value {
    event(user, json!({ "type": "message", "message": { "type": "text", "id": "1", "text": words } }))
}

/// The event of a tap on a button with this data.
pub fn tap(user: &str, data: &str) -> Value {
    event(user, json!({ "type": "postback", "postback": { "data": data } }))
}

/// The event of a sticker.
pub fn sticker(user: &str, package_id: &str, sticker_id: &str) -> Value {
    let message = json!({ "type": "sticker", "id": "1", "packageId": package_id, "stickerId": sticker_id });
    event(user, json!({ "type": "message", "message": message }))
}

/// The same event in a group.
pub fn in_group(mut event: Value, group: &str) -> Value {
    event["source"]["type"] = "group".into();
    event["source"]["groupId"] = group.into();
    event
}

/// The same event, as LINE delivers it again.
pub fn redelivered(event: &Value) -> Value {
    let mut again = event.clone();
    again["deliveryContext"]["isRedelivery"] = true.into();
    again
}
