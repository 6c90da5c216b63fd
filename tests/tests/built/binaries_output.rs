//! Everything that the release builds write: valid metrics, JSON lines, and nothing about anybody.

use std::time::SystemTime;

use onetap_bus::Job;
use onetap_config::Secret;
use onetap_line::testing::{Fault as LineFault, MessagingApi};
use onetap_servers::environment::Variable;
use onetap_servers::{Backend, Environment, Fault, HttpStub};
use onetap_tests::emf::Declared;
use onetap_tests::functions::{Function, Running, delivery};
use serde_json::{Value, json};

// Words that nothing else would say, and amounts longer than any time stamp, port or duration.
const USER: &str = "Uplanted0123456789abcdef0123456789ab";
const AMOUNT: &str = "98765432109876";
const EDITED: &str = "87654321098765";
const FORBIDDEN: [&str; 7] = ["planted", AMOUNT, EDITED, "午餐", "永和", "中正區", "32503680000"];

/// What spec'd metrics there are, and their dimensions.
const METRICS: [&str; 15] = [
    "events_total",
    "idem_total",
    "kv_error_total",
    "kv_get_latency",
    "kv_hit_total",
    "kv_miss_total",
    "kv_set_latency",
    "line_redelivery_total",
    "line_reply_total",
    "line_webhook_events_total",
    "processing_duration_seconds",
    "processing_lock_acquire_total",
    "processing_lock_miss_total",
    "processing_lock_release_total",
    "weather_total",
];
const DIMENSIONS: [&str; 7] =
    ["event_type", "kind", "operation", "outcome", "service", "source_type", "status"];
/// What the functions are a part of, as the template sets it.
const SERVICE: &str = "shop-bot";

/// The four functions with planted secrets, on a store.
struct Bot {
    line: MessagingApi,
    store: Vec<Variable>,
}

impl Bot {
    fn run(&self, function: Function) -> Running {
        let planted = |name: &str, value: String| match name {
            "LINE_CHANNEL_ACCESS_TOKEN" => "planted-channel-token".to_owned(),
            "EDIT_API_TOKEN" => "planted-edit-token".to_owned(),
            "JOB_EVENTS_SECRET" => "planted-job-secret".to_owned(),
            _ => value,
        };
        let own = function.variables(&self.line.url());
        let own = own.into_iter().map(|(name, value)| (name, planted(name, value)));
        let more = [("RUST_LOG", "trace".to_owned()), ("SERVICE_NAME", SERVICE.to_owned())];
        let all: Vec<Variable> = self.store.iter().cloned().chain(own).chain(more).collect();
        Running::start(function, all.iter().map(|(name, value)| (*name, value)))
    }

    /// Runs all four through good and bad requests: everything they wrote.
    async fn story(&self) -> String {
        [self.deliveries().await, self.edits().await, self.batches().await, self.streams().await].concat()
    }

    async fn deliveries(&self) -> String {
        let webhook = self.run(Function::Webhook);
        let mut number = 0;
        let mut event = |kind: &str, more: Value| {
            number += 1;
            let mut event = json!({
                "type": kind, "mode": "active", "webhookEventId": format!("planted-event-{number}"),
                "replyToken": format!("planted-reply-token-{number}"),
                "source": { "type": "user", "userId": USER },
            });
            event.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            event
        };
        let text = |words: &str| json!({ "message": { "type": "text", "id": "1", "text": words } });
        let mut events: Vec<Value> = [
            "設定住家 永和區".to_owned(),
            "永和".to_owned(),
            format!("午餐 {AMOUNT} 信用卡"),
            format!("修改金額 {EDITED}"),
            "修改金額 -1".to_owned(),
            "planted words".to_owned(),
            "設定公司 planted".to_owned(),
        ]
        .iter()
        .map(|words| event("message", text(words)))
        .collect();
        for data in ["action=weather&type=home", "action=weather&type=home", "action=planted"] {
            events.push(event("postback", json!({ "postback": { "data": data } })));
        }
        let place = json!({ "type": "location", "id": "1", "address": "planted 臺北市中正區", "latitude": 25.03, "longitude": 121.51 });
        events.push(event("message", json!({ "message": place })));
        let group = json!({ "type": "group", "groupId": "Cplanted", "userId": USER });
        events.push(event(
            "message",
            json!({ "source": group, "message": { "type": "text", "id": "1", "text": "永和" } }),
        ));
        events.push(event("planted", json!({})));
        webhook.invoke(&delivery(&events[7..9])).await;
        for event in &mut events {
            webhook.invoke(&delivery(std::slice::from_ref(event))).await;
            event["deliveryContext"] = json!({ "isRedelivery": true });
            webhook.invoke(&delivery(std::slice::from_ref(event))).await;
        }
        for status in [400, 401, 429, 500] {
            self.line.fail_next(LineFault::Status(status, r#"{"message":"planted message"}"#.into()));
            webhook.invoke(&delivery(&[event("message", text("永和"))])).await;
        }
        for scenario in ["wrong-signature", "not-json", "unknown-kinds"] {
            webhook.invoke(&Function::Webhook.event(scenario)).await;
        }
        webhook.said()
    }

    async fn edits(&self) -> String {
        let edit = self.run(Function::Edit);
        for scenario in [
            "read",
            "unauthorized",
            "record",
            "edit",
            "edit-once",
            "edit-once",
            "edit-invalid",
            "edit-of-another",
            "edit-base64",
            "read",
            "month",
            "month-csv",
            "month-wrong",
            "delete",
        ] {
            let mut event = Function::Edit.event(scenario);
            let place = event["rawPath"].as_str().unwrap().rsplit('/').next().unwrap();
            let path = format!("/users/{USER}/{place}");
            event["rawPath"] = path.as_str().into();
            event["requestContext"]["http"]["path"] = path.into();
            if scenario != "unauthorized" {
                event["headers"]["authorization"] = "Bearer planted-edit-token".into();
            }
            if scenario == "edit-once" {
                event["headers"]["idempotency-key"] = "planted-key".into();
            }
            if let Some(body) = event["body"].as_str() {
                event["body"] = body.replace("100.10", AMOUNT).replace("150", EDITED).into();
            }
            let answer = edit.invoke(&event).await;
            assert!(answer["statusCode"].is_number(), "{scenario}");
        }
        edit.said()
    }

    async fn batches(&self) -> String {
        let consumer = self.run(Function::Consumer);
        for scenario in ["whole-job", "duplicates", "malformed", "fifo-malformed-alone"] {
            let mut event = Function::Consumer.event(scenario);
            for record in event["Records"].as_array_mut().unwrap() {
                let body = record["body"].as_str().unwrap();
                let words = body.replace(r#""status": "done""#, r#""status": "planted words""#);
                record["body"] = words.replace("job-1", "planted-job").into();
            }
            consumer.invoke(&event).await;
        }
        consumer.said()
    }

    async fn streams(&self) -> String {
        let gateway = self.run(Function::Gateway);
        let job = Job::new("scan", "planted-job").unwrap();
        let token = job_events::token(&Secret::new("planted-job-secret"), &job, 32_503_680_000);
        for scenario in ["state", "follow-a-job", "without-a-token", "reserved-domain"] {
            let mut event = Function::Gateway.event(scenario);
            let path = event["rawPath"].as_str().unwrap().replace("job-1", "planted-job");
            event["rawPath"] = path.as_str().into();
            event["requestContext"]["http"]["path"] = path.into();
            if let Some((rest, _)) = event["rawQueryString"].as_str().unwrap().split_once("token=") {
                event["rawQueryString"] = format!("{rest}token={token}").into();
            }
            gateway.answer(&event).await;
        }
        gateway.said()
    }
}

/// Fails at a line that CloudWatch would not take or that holds something of somebody's; adds what it declares.
fn check(said: &str, forbidden: &[&str], declared: &mut Declared) {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_millis();
    for line in said.lines() {
        for planted in forbidden {
            assert!(!line.contains(planted), "{planted} is in {line}");
        }
        declared.add(line, u64::try_from(now).unwrap()).unwrap_or_else(|problem| panic!("{problem}: {line}"));
    }
}

async fn every_line_is_json_and_says_nothing_about_anybody(backend: Backend) {
    let environment = Environment::start(backend).await.with("AWS_SECRET_ACCESS_KEY", "planted-secret-key");
    let line = MessagingApi::start(Secret::new("planted-channel-token")).unwrap();
    let mut bot = Bot { line, store: environment.variables().to_vec() };
    let well = bot.story().await;
    assert!(bot.line.requests() > 10, "the Messaging API was asked");

    // The same with a store that answers nonsense at once, naming what it was asked.
    let page = HttpStub::always(Fault::Status(500, format!("planted error about {USER}")));
    for (name, value) in &mut bot.store {
        if ["UPSTASH_REDIS_REST_URL", "AWS_ENDPOINT_URL_DYNAMODB"].contains(name) {
            *value = page.url();
        }
    }
    let down = bot.story().await;

    let token = environment.lookup("UPSTASH_REDIS_REST_TOKEN").unwrap_or_else(|| "planted".to_owned());
    let forbidden: Vec<&str> = FORBIDDEN.into_iter().chain([token.as_str()]).collect();
    let mut declared = Declared::default();
    check(&well, &forbidden, &mut declared);
    check(&down, &forbidden, &mut declared);
    for said in ["acquired", "missed", "released", "kv_get", "kv_set", "correlation_id", "duplicate"] {
        assert!(well.contains(said), "there is something to look at: {said}");
    }
    assert!(down.contains("kv_error"));
    assert_eq!(declared.metrics.iter().collect::<Vec<_>>(), METRICS);
    assert_eq!(declared.dimensions.iter().collect::<Vec<_>>(), DIMENSIONS);
    assert_eq!(declared.services.iter().collect::<Vec<_>>(), [SERVICE]);
}

#[tokio::test]
#[ignore = "needs scripts/build and redis-server"]
async fn every_line_is_json_and_says_nothing_about_anybody_on_upstash() {
    every_line_is_json_and_says_nothing_about_anybody(Backend::Upstash).await;
}

#[tokio::test]
#[ignore = "needs scripts/build"]
async fn every_line_is_json_and_says_nothing_about_anybody_on_dynamodb() {
    every_line_is_json_and_says_nothing_about_anybody(Backend::DynamoDb).await;
}
