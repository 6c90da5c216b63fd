//! A bot on a store, LINE's API and a weather of our own, and events to send it.
#![allow(dead_code, unreachable_pub, reason = "every test file uses its part")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail on the spot")]

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use onetap_bot::testing::{ACCESS_TOKEN, signed};
#[allow(unused_imports, reason = "every test file uses its part")]
pub use onetap_bot::testing::{SECRET, event, redelivered, tap, text, user};
use onetap_config::{Secret, Variables};
use onetap_line::testing::{Fault as LineFault, MessagingApi};
#[allow(unused_imports, reason = "every test file uses its part")]
pub use onetap_servers::{Backend, Environment};
use onetap_store::testing::Gate;
use onetap_store::{Memory, Store};
use onetap_weather::{Error, Forecast, Forecasts, Moment, Place, Provider, Sample};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use webhook::{Config, Times, Webhook};

pub const TOKEN: &str = ACCESS_TOKEN;
pub const PROCESSING: &str = "⏳ 正在為您查詢天氣，請稍候...";
pub const BUSY: &str = "系統暫時有點忙，請稍後再試一次。";

/// More time than LINE gives, so that what a test shows does not depend on how quick its machine is.
pub const PATIENT: Times = Times {
    delivery: Duration::from_secs(180),
    forecast: Duration::from_secs(60),
    reply: Duration::from_secs(60),
};

/// The sample's weather, counted and held.
#[derive(Debug, Default)]
pub struct Weather {
    calls: AtomicUsize,
    gate: Mutex<Option<Gate>>,
    fails: AtomicBool,
}

impl Weather {
    pub fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }

    /// Has every forecast from now on wait at this gate.
    pub fn hold(&self) -> Gate {
        self.gate.lock().unwrap().insert(Gate::new()).clone()
    }

    pub fn fail(&self, fails: bool) {
        self.fails.store(fails, Ordering::SeqCst);
    }
}

#[async_trait]
impl Provider for Weather {
    fn name(&self) -> &'static str {
        "sample"
    }

    async fn forecast(&self, place: &Place, _deadline: Instant) -> Result<Forecast, Error> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        let gate = self.gate.lock().unwrap().clone();
        if let Some(gate) = gate {
            gate.pass().await;
        }
        if self.fails.load(Ordering::SeqCst) {
            return Err(Error::Unavailable);
        }
        Ok(Sample::at(place, Moment::now()))
    }
}

pub struct Bot {
    pub store: Arc<dyn Store>,
    pub line: MessagingApi,
    pub weather: Arc<Weather>,
    pub webhook: Arc<Webhook>,
}

impl Bot {
    pub fn new(store: Arc<dyn Store>) -> Bot {
        Bot::with(store, &[])
    }

    /// With these variables beside those that every bot needs.
    pub fn with(store: Arc<dyn Store>, more: &[(&str, &str)]) -> Bot {
        Bot::timed(store, more, PATIENT)
    }

    /// With these times.
    pub fn timed(store: Arc<dyn Store>, more: &[(&str, &str)], times: Times) -> Bot {
        let line = MessagingApi::start(Secret::new(TOKEN)).unwrap();
        let weather = Arc::new(Weather::default());
        let webhook = Arc::new(build(Arc::clone(&store), &line.url(), weather.clone(), more, times));
        Bot { store, line, weather, webhook }
    }

    /// Another instance of the same bot, on a store that may misbehave.
    pub fn instance(&self, store: Arc<dyn Store>, more: &[(&str, &str)]) -> Arc<Webhook> {
        self.timed_instance(store, more, PATIENT)
    }

    pub fn timed_instance(&self, store: Arc<dyn Store>, more: &[(&str, &str)], times: Times) -> Arc<Webhook> {
        Arc::new(build(store, &self.line.url(), self.weather.clone(), more, times))
    }

    pub async fn deliver(&self, events: &[Value]) -> u16 {
        deliver(&self.webhook, events).await
    }

    /// The texts of the replies since the last look, sorted: events of several users are answered side by side.
    pub fn said(&self) -> Vec<String> {
        let mut texts: Vec<String> =
            self.line.take_replies().iter().map(|reply| reply.text().to_owned()).collect();
        texts.sort();
        texts
    }

    /// Asks for the erasure of everything of `user`, and returns the data of the button that confirms it.
    pub async fn erasure_button(&self, ask: Value) -> String {
        assert_eq!(self.deliver(&[ask]).await, 200);
        let replies = self.line.take_replies();
        let [reply] = &replies[..] else { panic!("{replies:?}") };
        assert!(reply.text().starts_with("確定要刪除您的所有資料嗎？"), "{}", reply.text());
        let buttons = reply.messages[0]["quickReply"]["items"].as_array().unwrap();
        assert_eq!((buttons.len(), &buttons[0]["action"]["label"]), (1, &json!("確定刪除")));
        buttons[0]["action"]["data"].as_str().unwrap().to_owned()
    }

    /// Has everything of `user` erased, and returns the answer.
    pub async fn erase(&self, user: &str) -> String {
        let data = self.erasure_button(text(user, "刪除我的資料")).await;
        assert_eq!(self.deliver(&[tap(user, &data)]).await, 200);
        let said = self.said();
        assert_eq!(said.len(), 1, "{said:?}");
        said[0].clone()
    }

    /// Sends one text of `user`, and returns the answer.
    pub async fn ask(&self, user: &str, words: &str) -> String {
        assert_eq!(self.deliver(&[text(user, words)]).await, 200);
        let said = self.said();
        assert_eq!(said.len(), 1, "{said:?}");
        said[0].clone()
    }
}

fn build(
    store: Arc<dyn Store>,
    line: &str,
    weather: Arc<Weather>,
    more: &[(&str, &str)],
    times: Times,
) -> Webhook {
    let mut known: HashMap<&str, &str> = HashMap::from([
        ("LINE_CHANNEL_SECRET", SECRET),
        ("LINE_CHANNEL_ACCESS_TOKEN", TOKEN),
        ("LINE_API_BASE_URL", line),
        // Nobody's lock ends while a test waits for something else.
        ("PROCESSING_LOCK_TIMEOUT_SECONDS", "60"),
        ("WEATHER_PROVIDER", "sample"),
        // Each forecast is fetched, so that a test can hold it.
        ("WEATHER_FRESH_SECONDS", "0"),
    ]);
    known.extend(more.iter().copied());
    let variables = Variables::from_lookup(|name| known.get(name).map(|v| (*v).to_owned()));
    let config = Config::from_variables(&variables).unwrap().with_times(times);
    let keep = onetap_weather::Config::from_variables(&variables).unwrap().keep;
    let weather = Forecasts::new(weather, None, keep);
    webhook::on(store, Arc::new(weather), &onetap_http::Client::new(), config).unwrap()
}

pub async fn deliver(webhook: &Webhook, events: &[Value]) -> u16 {
    deliver_body(webhook, json!({"destination": "U0", "events": events}).to_string().into_bytes()).await
}

pub async fn deliver_body(webhook: &Webhook, body: Vec<u8>) -> u16 {
    webhook.handle(signed(SECRET, body)).await.status().as_u16()
}

/// A bot, and a user of it who lives in 永和區.
pub async fn bot_with_home(store: Arc<dyn Store>, more: &[(&str, &str)]) -> (Bot, String) {
    let (bot, user) = (Bot::with(store, more), user());
    assert_eq!(bot.ask(&user, "設定住家 永和區").await, "已將住家設定為新北市永和區");
    (bot, user)
}

/// Delivers in a task of its own.
pub fn spawn(webhook: &Arc<Webhook>, events: &[Value]) -> JoinHandle<u16> {
    let (webhook, events) = (Arc::clone(webhook), events.to_vec());
    tokio::spawn(async move { deliver(&webhook, &events).await })
}

/// Lets time pass for the store, and for nobody else: what is on its way is not to run out of time.
pub async fn seconds_pass(seconds: u64) {
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(seconds)).await;
    tokio::time::resume();
}

/// The event, as it happened at this time.
pub fn at(at: Moment, mut event: Value) -> Value {
    event["timestamp"] = (at.unix() * 1000).into();
    event
}

/// LINE gives no reply token to answer somebody who has left.
pub fn unfollow(user: &str) -> Value {
    event(user, json!({"type": "unfollow", "replyToken": null}))
}

pub fn location(user: &str, address: &str, latitude: f64, longitude: f64) -> Value {
    let message =
        json!({"type": "location", "address": address, "latitude": latitude, "longitude": longitude});
    event(user, json!({"type": "message", "message": message}))
}

pub const HOME: &str = "action=weather&type=home";

pub fn in_group(event: Value) -> Value {
    onetap_bot::testing::in_group(event, "planted-group")
}

/// The event of a text in a group, with a mention of the bot in front.
pub fn mentioning(user: &str, words: &str) -> Value {
    let mut event = in_group(text(user, &format!("@小幫手 {words}")));
    let bot = json!({"type": "user", "isSelf": true, "index": 0, "length": 4});
    event["message"]["mention"] = json!({ "mentionees": [bot] });
    event
}

/// The event of a tap that confirms an erasure, a moment after it was asked for.
pub fn confirmed_erasure(user: &str) -> Value {
    tap(user, &webhook::bookkeeping::confirmation::button_data(user, Moment::now()))
}

pub fn memory() -> Arc<dyn Store> {
    Arc::new(Memory::new())
}

/// What LINE may answer to every reply, the status of the delivery then, the outcome that is counted, and how often.
pub fn line_answers() -> [(LineFault, u16, &'static str, usize); 7] {
    let status = |status, message: &str| LineFault::Status(status, json!({ "message": message }).to_string());
    [
        (status(400, "Invalid reply token"), 200, "invalid_token", 1),
        (status(400, "The request body has 1 error(s)"), 200, "bad_request", 1),
        (status(401, "no"), 500, "unauthorized", 1),
        (status(403, "no"), 500, "unauthorized", 1),
        (status(429, "no"), 500, "rate_limited", 1),
        (status(500, "no"), 500, "server_error", 2),
        (LineFault::DropAnswer, 500, "unknown", 2),
    ]
}

/// A store on a backend's real servers, which end with their environment. It waits as patiently as the bot does.
pub async fn start(backend: Backend) -> (Arc<dyn Store>, Environment) {
    let environment = Environment::start(backend).await.with("STORE_TIMEOUT_MS", "30000");
    let store = environment.store();
    (store, environment)
}
