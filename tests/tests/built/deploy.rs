//! The whole stack, deployed for real on this machine: `template.yaml` through CloudFormation and the SAM translator, the
//! release builds as Lambda functions, behind an HTTP API, a function URL and a queue, each with the rights of its role.
//!
//! The AWS is ministack's, which has no Docker and lacks some things of the other one. It cannot alarm on metric math, so
//! that alarms and the dashboard are left out (`Alarms=off`). It throttles nothing, writes no access log and no traces,
//! and looks at neither memory nor processor. A stream of the function URL is collected and answered in one piece, and a
//! batch is never larger than one receive. What it lacks is looked at elsewhere: `binaries.rs` streams through the
//! runtime API, `emulator.rs` runs out of time, and the template's test reads the rest.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use onetap_config::Secret;
use onetap_line::testing::MessagingApi;
use onetap_servers::{Backend, Environment};
use onetap_store::{Config, Key, Log, Store, open};
use onetap_tests::cloud::{Cloud, Stack};
use onetap_tests::emf::Declared;
use onetap_tests::functions::{
    ACCESS_TOKEN, CHANNEL_SECRET, EDIT_TOKEN, Function, JOB_SECRET, delivery, root,
};
use serde_json::{Value, json};

/// The user of `events/webhook`.
const USER: &str = "U0123456789abcdef0123456789abcdef";

/// A stack with the bot on it, and the Messaging API that it talks to.
struct Bot {
    cloud: Cloud,
    line: MessagingApi,
    stack: Stack,
}

impl Bot {
    async fn deploy(parameters: &[(&str, &str)], secrets: &[(&str, String)]) -> Bot {
        let line = MessagingApi::start(Secret::new(ACCESS_TOKEN)).unwrap();
        let cloud = Cloud::start().await;
        let stack = deployed(&cloud, "onetap", &line.url(), parameters, secrets);
        Bot { cloud, line, stack }
    }

    /// Sends what an event of API Gateway's says was sent, to where the stack says it is to be sent.
    async fn send(&self, event: &Value) -> Response<Bytes> {
        let base = match event["rawPath"].as_str().unwrap() {
            path if path.starts_with("/jobs") => self.stack.output("JobEventsUrl").trim_end_matches('/'),
            _ => self.stack.output("WebhookUrl").strip_suffix("/line/webhook").unwrap(),
        };
        let text = |pointer: &str| event.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let url = format!("{base}{}?{}", text("/rawPath"), text("/rawQueryString"));
        let mut request = Request::builder().method(text("/requestContext/http/method")).uri(url);
        for (name, value) in event["headers"].as_object().unwrap() {
            if !["host", "x-forwarded-proto", "x-forwarded-port"].contains(&name.as_str()) {
                request = request.header(name, value.as_str().unwrap());
            }
        }
        let body = match event["isBase64Encoded"] == true {
            true => base64::engine::general_purpose::STANDARD.decode(text("/body")).unwrap(),
            false => text("/body").as_bytes().to_vec(),
        };
        self.cloud.send(request.body(body.into()).unwrap()).await
    }

    /// Sends a scenario, and expects this status.
    async fn expect(&self, function: Function, scenario: &str, status: u16) -> Response<Bytes> {
        let answer = self.send(&function.event(scenario)).await;
        assert_eq!(answer.status().as_u16(), status, "{scenario}: {:?}", answer.body());
        answer
    }

    /// What was said to the user since the last time.
    fn said(&self) -> Vec<String> {
        self.line.take_replies().iter().map(|reply| reply.text().to_owned()).collect()
    }

    fn queue(&self, messages: &Value) {
        self.cloud.script(&["send", self.stack.output("QueueUrl")], messages);
    }

    fn dead_letters(&self, count: usize) -> Vec<String> {
        let queue = self.stack.output("DeadLettersUrl");
        let bodies = self.cloud.script(&["receive", queue, &count.to_string()], &Value::Null);
        serde_json::from_value(bodies).unwrap()
    }

    /// What the functions wrote into their logs.
    fn logs(&self) -> Vec<String> {
        let groups = ["WebhookLogs", "EditLogs", "ConsumerLogs", "JobEventsLogs", "HttpLogs"];
        let groups: Vec<&str> = groups.iter().map(|name| self.stack.resource(name).unwrap()).collect();
        let lines = self.cloud.script(&[&["logs"][..], &groups].concat(), &Value::Null);
        serde_json::from_value(lines).unwrap()
    }
}

/// Deploys a stack of this name.
fn deployed(
    cloud: &Cloud,
    name: &str,
    line_api: &str,
    parameters: &[(&str, &str)],
    secrets: &[(&str, String)],
) -> Stack {
    let mut asked = json!({
        "SecretName": format!("bots/{name}"), "WeatherProvider": "sample", "JobEventsAllowOrigin": "*",
        "LineApiBaseUrl": line_api, "Architecture": "x86_64", "Alarms": "off",
    });
    for (name, value) in parameters {
        asked[*name] = (*value).into();
    }
    let mut secret = json!({
        "LINE_CHANNEL_SECRET": CHANNEL_SECRET, "LINE_CHANNEL_ACCESS_TOKEN": ACCESS_TOKEN,
        "EDIT_API_TOKEN": EDIT_TOKEN, "JOB_EVENTS_SECRET": JOB_SECRET,
    });
    for (name, value) in secrets {
        secret[*name] = value.as_str().into();
    }
    cloud.deploy(name, &asked, &secret)
}

/// The table of a stack.
fn table(cloud: &Cloud, stack: &Stack) -> Arc<dyn Store> {
    let lookup = |name: &str| match name {
        "STORE" => Some("dynamodb".to_owned()),
        "DYNAMODB_TABLE" => Some(stack.output("TableName").to_owned()),
        "AWS_ENDPOINT_URL" => Some(cloud.url()),
        "AWS_REGION" => Some("us-east-1".to_owned()),
        "AWS_ACCESS_KEY_ID" | "AWS_SECRET_ACCESS_KEY" => Some("test".to_owned()),
        "STORE_TIMEOUT_MS" => Some("10000".to_owned()),
        _ => None,
    };
    open(&Config::from_lookup(lookup).unwrap()).unwrap()
}

/// Waits until the log of job-1 has this number of records, and returns their sequence numbers.
async fn told(store: &dyn Store, count: usize) -> Vec<u64> {
    let log = Log::new("scan:job:job-1").unwrap();
    // On a busy machine a message may fail, and come again when its visibility timeout of a minute is over.
    let give_up = tokio::time::Instant::now() + Duration::from_secs(240);
    loop {
        let records = store.read(&log, None, 100).await.unwrap();
        if records.len() >= count || tokio::time::Instant::now() > give_up {
            let seq = |text: &str| serde_json::from_str::<Value>(text).unwrap()["seq"].as_u64().unwrap();
            let mut told: Vec<u64> = records.iter().map(|record| seq(&record.text)).collect();
            told.sort_unstable();
            return told;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

fn bodies(scenario: &str) -> Vec<Value> {
    let event = Function::Consumer.event(scenario);
    event["Records"].as_array().unwrap().iter().map(|record| record["body"].clone()).collect()
}

/// The bot as the template makes it on DynamoDB, from the first delivery to the end of the stack.
#[tokio::test]
#[ignore = "needs ministack and scripts/build"]
async fn the_stack_is_deployed_used_and_deleted_on_dynamodb() {
    let bot = Bot::deploy(&[("Store", "dynamodb")], &[]).await;
    let store = table(&bot.cloud, &bot.stack);

    deliveries(&bot).await;
    let entry = store.get(&Key::new(format!("user:{USER}:last_transaction")).unwrap()).await.unwrap();
    assert!(entry.unwrap().contains(r#""原幣金額":120"#), "the entry is in the table");
    edits(&bot).await;
    messages(&bot, &*store).await;
    only_the_granted_rights(&bot).await;
    logs_are_clean(&bot);

    let left = bot.cloud.script(&["delete"], &Value::Null);
    let table = bot.stack.output("TableName");
    let expected = json!({
        "status": "DELETE_COMPLETE", "functions": [], "queues": [], "apis": [], "roles": [], "tables": [table],
    });
    assert_eq!(left, expected, "only the table, with its profiles, outlives the stack");
}

async fn deliveries(bot: &Bot) {
    for (scenario, status, reply) in [
        ("verify", 200, None),
        ("wrong-signature", 401, None),
        ("set-home", 200, Some("已將住家設定為新北市永和區")),
        ("tap-home", 200, Some("新北市永和區（範例資料）")),
        ("redelivery", 200, None),
        ("base64", 200, Some("新北市板橋區（範例資料）")),
        ("entry", 200, Some("已記帳")),
    ] {
        bot.expect(Function::Webhook, scenario, status).await;
        let said = bot.said();
        assert_eq!(said.len(), usize::from(reply.is_some()), "{scenario}: {said:?}");
        assert!(said.iter().all(|said| said.starts_with(reply.unwrap())), "{scenario}: {said:?}");
    }
    // The same delivery four times at once, on as many instances: who comes second is told to come again.
    let event = json!({
        "type": "message", "webhookEventId": "01DEPLOYED000000000000000001", "mode": "active",
        "deliveryContext": { "isRedelivery": false }, "timestamp": 1_794_801_600_000_u64,
        "replyToken": "deployed-reply-token", "source": { "type": "user", "userId": USER },
        "message": { "type": "text", "id": "1", "text": "花蓮市" },
    });
    let delivery = delivery(&[event]);
    let answers =
        tokio::join!(bot.send(&delivery), bot.send(&delivery), bot.send(&delivery), bot.send(&delivery));
    for answer in [answers.0, answers.1, answers.2, answers.3] {
        assert!([200, 500].contains(&answer.status().as_u16()), "{answer:?}");
    }
    assert_eq!(bot.send(&delivery).await.status(), StatusCode::OK);
    assert_eq!(bot.said().len(), 1);
}

async fn edits(bot: &Bot) {
    let edit = Function::Edit;
    bot.expect(edit, "unauthorized", 401).await;
    bot.expect(edit, "record", 201).await;
    bot.expect(edit, "edit", 200).await;
    bot.expect(edit, "edit-invalid", 422).await;
    bot.expect(edit, "edit-of-another", 412).await;
    let first = bot.expect(edit, "edit-once", 200).await;
    let again = bot.expect(edit, "edit-once", 200).await;
    assert_eq!(
        (first.body(), &again.headers()["idempotency-replayed"]),
        (again.body(), &"true".parse().unwrap())
    );
    let read = bot.expect(edit, "read", 200).await;
    let read = std::str::from_utf8(read.body()).unwrap();
    assert!(read.contains(r#""原幣金額":150"#) && read.contains(r#""分類":"教育""#), "{read}");
    bot.expect(edit, "delete", 204).await;
    bot.expect(edit, "read", 404).await;
    bot.expect(edit, "openapi", 200).await;
}

/// What failed comes again for longer than an hour before it is a dead letter. That nothing good becomes one meanwhile is
/// shown in the model of the queue: an hour is too long for this test.
fn the_queue_outlasts_an_outage_of_an_hour(bot: &Bot) {
    let set = bot.cloud.script(&["redrive", bot.stack.output("QueueUrl")], &Value::Null);
    // A number in AWS' answers; ministack keeps it as the template's text.
    let receives = match &set["policy"]["maxReceiveCount"] {
        Value::String(text) => text.parse().unwrap(),
        number => number.as_u64().unwrap(),
    };
    let seconds = set["visibility"].as_u64().unwrap() * (receives - 1);
    assert!(seconds > 3600, "{set}");
}

async fn messages(bot: &Bot, store: &dyn Store) {
    the_queue_outlasts_an_outage_of_an_hour(bot);
    let mut malformed = bodies("malformed");
    let bad: Vec<Value> = malformed.drain(1..4).collect();
    for good in [bodies("duplicates"), malformed, bodies("whole-job")] {
        bot.queue(&good.into());
    }
    assert_eq!(told(store, 8).await, [0, 10, 11, 12, 20, 30, 40, 51], "each event once");
    // Only now: on a busy machine a good message, too, may come more often than a hurried queue allows.
    bot.cloud.script(&["hurry", bot.stack.output("QueueUrl")], &Value::Null);
    let mut bad: Vec<_> = bad.iter().map(|body| body.as_str().unwrap().to_owned()).collect();
    bot.queue(&json!(bad));
    let mut dead = bot.dead_letters(3);
    dead.sort_unstable();
    bad.sort_unstable();
    assert_eq!(dead, bad, "what cannot be published is kept among the dead letters");

    bot.expect(Function::Gateway, "without-a-token", 401).await;
    let stream = bot.expect(Function::Gateway, "follow-a-job", 200).await;
    assert_eq!(stream.headers()["content-type"], "text/event-stream");
    let stream = std::str::from_utf8(stream.body()).unwrap();
    assert_eq!(stream.matches("\ndata: ").count() + usize::from(stream.starts_with("data: ")), 8, "{stream}");
    let state = bot.expect(Function::Gateway, "state", 200).await;
    assert_eq!(serde_json::from_slice::<Value>(state.body()).unwrap()["stage"], "done");
}

/// That the functions came this far with the rights of their roles means something: without them they fail.
async fn only_the_granted_rights(bot: &Bot) {
    let role = bot.stack.resource("EditRole").unwrap();
    bot.cloud.script(&["revoke", role, "store"], &Value::Null);
    bot.expect(Function::Edit, "read", 503).await;
}

fn logs_are_clean(bot: &Bot) {
    let lines = bot.logs();
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_millis();
    let mut declared = Declared::default();
    // Beside the functions' own lines, which are JSON, are those of Lambda's, which are not.
    for line in lines.iter().filter(|line| line.starts_with('{')) {
        declared.add(line, u64::try_from(now).unwrap()).unwrap_or_else(|problem| panic!("{problem}: {line}"));
    }
    for metric in
        ["line_webhook_events_total", "line_reply_total", "kv_get_latency", "idem_total", "events_total"]
    {
        assert!(declared.metrics.contains(metric), "{metric} is not in {declared:?}");
    }
    let services: Vec<&String> = declared.services.iter().collect();
    assert_eq!(services, ["onetap"], "the name of the stack");
    let secret = [CHANNEL_SECRET, ACCESS_TOKEN, EDIT_TOKEN];
    let personal =
        [USER, "U123456789abcdef", "reply-token", "永和", "花蓮", "午餐", "20251129-143000", "紙容器"];
    for planted in secret.iter().chain(&personal) {
        let found = lines.iter().find(|line| line.contains(planted));
        assert_eq!(found, None, "{planted} is in the logs");
    }
}

/// The same template's other half: a store outside the stack, and queues that keep the order.
#[tokio::test]
#[ignore = "needs ministack, scripts/build and redis-server"]
async fn the_stack_is_deployed_and_used_with_fifo_queues_on_upstash() {
    let environment = Environment::start(Backend::Upstash).await;
    let store = environment.store();
    let secrets = ["UPSTASH_REDIS_REST_URL", "UPSTASH_REDIS_REST_TOKEN"];
    let secrets = secrets.map(|name| (name, environment.lookup(name).unwrap()));
    let bot = Bot::deploy(&[("Store", "upstash"), ("QueueType", "fifo")], &secrets).await;
    assert_eq!(bot.stack.resource("Table"), None);

    deliveries(&bot).await;
    edits(&bot).await;
    the_queue_outlasts_an_outage_of_an_hour(&bot);
    let in_a_group = |body: Value| json!(["job-1", body]);
    bot.queue(&bodies("whole-job").into_iter().map(in_a_group).collect());
    assert_eq!(told(&*store, 7).await, [0, 10, 11, 20, 30, 40, 51]);
    bot.expect(Function::Gateway, "state", 200).await;
    logs_are_clean(&bot);
}

/// The same job in two stacks of one account: what is sent to one stack is told there and nowhere else.
#[tokio::test]
#[ignore = "needs ministack and scripts/build"]
async fn two_stacks_of_one_account_do_not_mix() {
    let cloud = Cloud::start().await;
    let [one, other] = ["one", "other"]
        .map(|name| deployed(&cloud, name, "http://127.0.0.1:1", &[("Store", "dynamodb")], &[]));
    // A stage is `$default` in every API.
    let names =
        |stack: &Stack| stack.resources().map(str::to_owned).filter(|name| name != "$default").collect();
    let (names_of_one, names_of_other): (BTreeSet<String>, BTreeSet<String>) = (names(&one), names(&other));
    let common: Vec<_> = names_of_one.intersection(&names_of_other).collect();
    assert!(common.is_empty() && names_of_one.len() > 20, "{common:?} of {names_of_one:?}");

    let send = |stack: &Stack, chosen: &[usize]| {
        let bodies = bodies("whole-job");
        let chosen: Vec<&Value> = chosen.iter().map(|n| &bodies[*n]).collect();
        cloud.script(&["send", stack.output("QueueUrl")], &json!(chosen));
    };
    send(&one, &[0, 1, 2]);
    send(&other, &[3, 4]);
    assert_eq!(told(&*table(&cloud, &one), 3).await, [0, 10, 11]);
    assert_eq!(told(&*table(&cloud, &other), 2).await, [20, 30]);
    for stack in [&one, &other] {
        let mapped = cloud.script(&["mapped", stack.resource("ConsumerFunction").unwrap()], &Value::Null);
        assert_eq!(mapped, json!([stack.output("QueueArn")]));
    }
    assert_eq!(told(&*table(&cloud, &one), 0).await, [0, 10, 11], "also once the other's were told");
}

/// The bot of `docs/own-bot.md`, with the template of that page.
#[tokio::test]
#[ignore = "needs ministack and scripts/package"]
async fn the_bot_of_the_guide_is_deployed_and_answers_each_event_once() {
    let line = MessagingApi::start(Secret::new(ACCESS_TOKEN)).unwrap();
    let cloud = Cloud::start().await;
    let built = root().join("target/outside/bin");
    let template = std::fs::read_to_string(built.join("my-bot/template.yaml")).expect("run scripts/package");
    // This machine's processor, and a LINE that is not LINE's.
    let url = format!("          STORE: dynamodb\n          LINE_API_BASE_URL: {}", line.url());
    let here = template.replace("arm64", "x86_64").replace("          STORE: dynamodb", &url);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("template.yaml");
    std::fs::write(&path, here).unwrap();
    let parameters = json!({ "SecretName": "my-bot" });
    let secret = json!({ "LINE_CHANNEL_SECRET": CHANNEL_SECRET, "LINE_CHANNEL_ACCESS_TOKEN": ACCESS_TOKEN });
    let stack = cloud.deploy_from(&path, &built, "my-bot", &parameters, &secret);

    let send = async |events: &[Value]| {
        let event = delivery(events);
        let url = stack.output("WebhookUrl");
        let signature = event["headers"]["x-line-signature"].as_str().unwrap();
        let request = Request::post(url).header("x-line-signature", signature);
        let body = event["body"].as_str().unwrap().to_owned();
        cloud.send(request.body(body.into()).unwrap()).await.status().as_u16()
    };
    let event = onetap_bot::testing::text(USER, "hello");
    let again = onetap_bot::testing::redelivered(&event);
    let twice = tokio::join!(send(std::slice::from_ref(&event)), send(std::slice::from_ref(&event)));
    assert!([twice.0, twice.1].iter().all(|status| [200, 500].contains(status)), "{twice:?}");
    assert_eq!(send(&[again]).await, 200);
    assert_eq!(send(&[onetap_bot::testing::text(USER, "hello again")]).await, 200);
    let said: Vec<String> = line.take_replies().iter().map(|reply| reply.text().to_owned()).collect();
    assert_eq!(said, ["That was number 1.", "That was number 2."]);
}
