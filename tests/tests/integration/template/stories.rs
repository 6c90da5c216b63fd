//! Each function, built from the environment that the template gives it, living through its scenarios on a DynamoDB
//! that has the template's table and writes down what is asked of it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use edit_last_transaction::EditLastTransaction;
use http_body_util::BodyExt;
use job_events::JobEvents;
use lambda_http::request::from_str;
use onetap_config::{ConfigError, Secret, Variables};
use onetap_ledger::{Book, Moment};
use onetap_line::testing::MessagingApi;
use onetap_servers::dynamo::call;
use onetap_servers::{Dynamo, Fault, Proxy};
use onetap_telemetry::Service;
use onetap_tests::functions::{
    ACCESS_TOKEN, CHANNEL_SECRET, EDIT_TOKEN, Function, JOB_SECRET, patient_config,
};
use queue_consumer::QueueConsumer;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout};
use webhook::Webhook;

use super::costs::confirms_erasure;
use super::document::{Stack, Template, target, text};

pub const TABLE: &str = "onetap-table";
/// The stack's name.
pub const STACK: &str = "shop-bot";
/// Time limit for one story, long enough for a busy machine.
const STORY_TIMEOUT: Duration = Duration::from_secs(120);

/// What is put into the secret.
const SECRETS: [(&str, &str); 7] = [
    ("LINE_CHANNEL_SECRET", CHANNEL_SECRET),
    ("LINE_CHANNEL_ACCESS_TOKEN", ACCESS_TOKEN),
    ("EDIT_API_TOKEN", EDIT_TOKEN),
    ("JOB_EVENTS_SECRET", JOB_SECRET),
    ("UPSTASH_REDIS_REST_URL", "http://127.0.0.1:9"),
    ("UPSTASH_REDIS_REST_TOKEN", "upstash-token"),
    ("CWA_API_KEY", "cwa-key"),
];

/// What Lambda itself puts into every function's environment.
pub const LAMBDAS_OWN: [(&str, &str); 5] = [
    ("AWS_LAMBDA_FUNCTION_NAME", "function"),
    ("AWS_REGION", "ap-northeast-1"),
    ("AWS_ACCESS_KEY_ID", "id"),
    ("AWS_SECRET_ACCESS_KEY", "key"),
    ("AWS_SESSION_TOKEN", "token"),
];

/// The variables of a function, as the stack gives them to it.
pub fn environment(stack: &Stack, function: Function) -> BTreeMap<String, String> {
    let variables = stack.function(function)["Environment"]["Variables"].as_object().unwrap();
    variables.iter().map(|(name, value)| (name.clone(), deployed(value))).collect()
}

/// A value once it is deployed: text, a secret, or the name of the table or the stack.
pub fn deployed(value: &Value) -> String {
    match value {
        Value::Object(_) => match target(value) {
            "Table" => TABLE.to_owned(),
            "AWS::StackName" => STACK.to_owned(),
            other => panic!("{other} is not known here"),
        },
        _ => secret(&text(value)).unwrap_or_else(|| text(value)),
    }
}

/// The service that CloudWatch keeps a function's metrics under.
pub fn service(stack: &Stack, function: Function) -> Service {
    let variables = environment(stack, function);
    Service::from_lookup(|name| look_up(&variables, name))
}

/// What CloudFormation puts in the place of a dynamic reference.
fn secret(text: &str) -> Option<String> {
    let reference =
        text.strip_prefix("{{resolve:secretsmanager:onetap:SecretString:")?.strip_suffix("::}}")?;
    let known = SECRETS.iter().find(|(name, _)| *name == reference);
    Some(known.unwrap_or_else(|| panic!("{reference} is not in the secret")).1.to_owned())
}

/// Builds a function, and says which variables it asked for.
pub fn asked(
    function: Function,
    variables: &BTreeMap<String, String>,
) -> (BTreeSet<String>, Option<ConfigError>) {
    let asked = Mutex::new(BTreeSet::new());
    let lookup = |name: &str| {
        asked.lock().unwrap().insert(name.to_owned());
        look_up(variables, name)
    };
    let variables = Variables::from_lookup(lookup);
    let error = match function {
        Function::Webhook => webhook::from_variables(&variables).err(),
        Function::Edit => EditLastTransaction::from_variables(&variables).err(),
        Function::Consumer => QueueConsumer::from_variables(&variables).err(),
        Function::Gateway => JobEvents::from_variables(&variables).err(),
    };
    drop(variables);
    Service::from_lookup(lookup);
    (asked.into_inner().unwrap(), error)
}

fn look_up(variables: &BTreeMap<String, String>, name: &str) -> Option<String> {
    let own = LAMBDAS_OWN.iter().find(|(known, _)| *known == name).map(|(_, value)| *value);
    variables.get(name).map(String::as_str).or(own).map(str::to_owned)
}

/// How the store behaves during a story.
#[derive(Clone, Copy, Debug)]
pub enum Weather {
    Fair,
    /// Every other reply is lost, beginning with the first or the second.
    Lossy(usize),
    /// No reply arrives.
    Dark,
}

/// A DynamoDB with the template's table, a proxy in front of it, and LINE.
pub struct Stage {
    stack: Stack,
    dynamo: Dynamo,
    pub proxy: Proxy,
    line: MessagingApi,
}

impl Stage {
    pub async fn set(template: &Template) -> Stage {
        let stack = template.with(&[
            ("Store", "dynamodb"),
            ("WeatherProvider", "sample"),
            ("JobEventsAllowOrigin", "*"),
        ]);
        let dynamo = Dynamo::start().await;
        let table = stack.properties("Table");
        let mut definition = json!({ "TableName": TABLE });
        for name in ["AttributeDefinitions", "KeySchema", "BillingMode"] {
            definition[name] = table[name].clone();
        }
        let (status, answer) = call(&dynamo.url(), "CreateTable", &definition).await;
        assert_eq!(status, 200, "{answer}");
        let proxy = Proxy::start(&dynamo.url()).await;
        Stage { stack, dynamo, proxy, line: MessagingApi::start(Secret::new(ACCESS_TOKEN)).unwrap() }
    }

    /// The template's environment, with this DynamoDB and this LINE in the place of the real ones.
    fn variables(&self, function: Function, dynamodb: &str) -> BTreeMap<String, String> {
        let mut all = environment(&self.stack, function);
        all.insert("AWS_ENDPOINT_URL_DYNAMODB".to_owned(), dynamodb.to_owned());
        all.insert("STORE_TIMEOUT_MS".to_owned(), "10000".to_owned());
        all.insert("LINE_API_BASE_URL".to_owned(), self.line.url());
        all
    }

    /// What an event of a function's asks of DynamoDB, once other processes have handled the events `before`, and its own
    /// process those of `warm`.
    pub async fn calls_of(
        &self,
        function: Function,
        before: &[Value],
        warm: &[Value],
        event: &Value,
    ) -> Vec<(String, Value)> {
        let variables = self.variables(function, &self.proxy.url());
        let instance = warmed(function, &variables, before, warm).await;
        let known = self.proxy.calls().len();
        instance.handle(event).await;
        self.proxy.calls().split_off(known)
    }

    /// DynamoDB's own address.
    pub fn dynamodb(&self) -> String {
        self.dynamo.url()
    }

    /// LINE's address.
    pub fn line(&self) -> String {
        self.line.url()
    }

    /// Lets `function` live through all its scenarios; how it answered each.
    pub async fn play(&self, function: Function, weather: Weather) -> Vec<(String, u16)> {
        let variables = self.variables(function, &self.proxy.url());
        let lookup = |name: &str| look_up(&variables, name);
        let variables = Variables::from_lookup(lookup);
        if let Function::Gateway = function {
            self.publish("whole-job").await;
        }
        for job in ["job-1", "job-odd"] {
            self.leave_an_earlier_life(job).await;
        }
        match weather {
            Weather::Fair => {}
            Weather::Lossy(first) => {
                let pair = [Fault::Delay(Duration::ZERO), Fault::DropReply];
                self.proxy.inject_next(pair.iter().cycle().skip(first).take(1000).cloned().collect());
            }
            Weather::Dark => self.proxy.inject(Some(Fault::DropReply)),
        }
        let story = async {
            match function {
                Function::Webhook => webhook(&webhook::from_variables(&variables).unwrap()).await,
                Function::Edit => edit(&EditLastTransaction::from_variables(&variables).unwrap()).await,
                Function::Consumer => self.consume(&QueueConsumer::from_variables(&variables).unwrap()).await,
                Function::Gateway => gateway(&JobEvents::from_variables(&variables).unwrap()).await,
            }
        };
        timeout(STORY_TIMEOUT, story)
            .await
            .unwrap_or_else(|_| panic!("the story of {function:?} does not end"))
    }

    async fn consume(&self, consumer: &QueueConsumer) -> Vec<(String, u16)> {
        // One event that another program appended and marked, and two stages that claim one number.
        let marker = json!({ "TableName": TABLE, "Item": {
            "pk": { "S": "published:job-foreign:vision:10" }, "sk": { "S": "value" }, "v": { "S": "1" },
        } });
        assert_eq!(call(&self.dynamo.url(), "PutItem", &marker).await.0, 200);
        let ours = [("job-foreign", "vision", 10), ("job-odd", "early", 5), ("job-odd", "late", 5)];
        let ours = ours.map(|(job, stage, seq)| {
            batch(&[json!({
                "job_id": job, "domain": "scan", "stage": stage, "seq": seq, "data": {},
                "timestamp": "2025-11-03T08:15:30Z",
            })])
        });
        let mut batches = events(Function::Consumer);
        batches.extend(ours.into_iter().enumerate().map(|(n, event)| (format!("of ours {n}"), event)));
        let mut answers = Vec::new();
        for (name, event) in batches {
            let deadline = Instant::now() + STORY_TIMEOUT;
            let answer = consumer.handle(serde_json::from_value(event).unwrap(), deadline).await;
            answers.push((name, answer.batch_item_failures.len() as u16));
        }
        answers
    }

    /// Records that an earlier life of a job's log left behind, more than any page holds.
    async fn leave_an_earlier_life(&self, job: &str) {
        for batch in 0..5 {
            let record = |n: usize| {
                let sk = format!("{:020}-{n:020}", 1_762_000_000_000_u64);
                json!({ "PutRequest": { "Item": {
                    "pk": { "S": format!("scan:job:{job}") }, "sk": { "S": sk }, "v": { "S": "{}" },
                } } })
            };
            let records: Vec<Value> = (batch * 25 + 1..=batch * 25 + 25).map(record).collect();
            let records = json!({ "RequestItems": { TABLE: records } });
            assert_eq!(call(&self.dynamo.url(), "BatchWriteItem", &records).await.0, 200);
        }
    }

    /// Publishes a scenario of the consumer's, past the proxy.
    async fn publish(&self, scenario: &str) {
        let variables = self.variables(Function::Consumer, &self.dynamo.url());
        Instance::new(Function::Consumer, &variables).handle(&Function::Consumer.event(scenario)).await;
    }
}

/// Now, or in an hour if the edits of this one renew the TTL of their month, which costs more.
fn usual_hour() -> Moment {
    let (now, book) = (Moment::now(), Book::new("U1", onetap_ledger::Config::default()).unwrap());
    if book.renews_at(now) { now.plus_hours(1) } else { now }
}

/// A process of a function.
pub enum Instance {
    Webhook(Box<Webhook>),
    Edit(EditLastTransaction),
    Consumer(QueueConsumer),
}

impl Instance {
    fn new(function: Function, variables: &BTreeMap<String, String>) -> Instance {
        let lookup = |name: &str| look_up(variables, name);
        let variables = Variables::from_lookup(lookup);
        match function {
            Function::Webhook => {
                let http = onetap_http::Client::new();
                let store = onetap_store::Config::from_variables(&variables).unwrap();
                let weather =
                    Arc::new(onetap_weather::Config::from_variables(&variables).unwrap().open(&http));
                let (store, config) = (onetap_store::open(&store).unwrap(), patient_config(&variables));
                let webhook = webhook::on(store, weather, &http, config).unwrap();
                Instance::Webhook(Box::new(webhook.with_clock(|| usual_hour().unix() * 1000)))
            }
            Function::Consumer => Instance::Consumer(QueueConsumer::from_variables(&variables).unwrap()),
            Function::Edit => {
                let edit = EditLastTransaction::from_variables(&variables).unwrap();
                Instance::Edit(edit.with_clock(usual_hour))
            }
            Function::Gateway => panic!("a stream is read to its end, in a story"),
        }
    }

    /// Handles one event, which must succeed.
    pub async fn handle(&self, event: &Value) {
        match self {
            Instance::Webhook(webhook) => {
                let answer = webhook.handle(from_str(&event.to_string()).unwrap()).await;
                assert_eq!(answer.status(), 200, "{event}");
            }
            Instance::Consumer(consumer) => {
                let batch = serde_json::from_value(event.clone()).unwrap();
                let answer = consumer.handle(batch, Instant::now() + STORY_TIMEOUT).await;
                assert!(answer.batch_item_failures.is_empty(), "{event}");
            }
            Instance::Edit(edit) => {
                let answer = edit.handle(from_str(&event.to_string()).unwrap()).await;
                assert!(answer.status().is_success(), "{event}");
            }
        }
    }
}

/// A process that has handled the events of `warm`, after other processes have handled those `before`.
pub async fn warmed(
    function: Function,
    variables: &BTreeMap<String, String>,
    before: &[Value],
    warm: &[Value],
) -> Instance {
    for event in before {
        Instance::new(function, variables).handle(event).await;
    }
    let instance = Instance::new(function, variables);
    for event in warm {
        instance.handle(event).await;
    }
    instance
}

/// SQS delivers these events.
pub fn batch(events: &[Value]) -> Value {
    let mut batch = Function::Consumer.event("one-event");
    let record = batch["Records"][0].clone();
    let records = events.iter().map(|event| {
        let mut record = record.clone();
        record["body"] = event.to_string().into();
        record
    });
    batch["Records"] = records.collect();
    batch
}

/// All scenarios of a function, in the order of their names or, where one builds on another, in that of a story.
fn events(function: Function) -> Vec<(String, Value)> {
    let story: &[&str] = match function {
        Function::Webhook => &["follow", "set-home", "tap-home", "entry", "edit-entry"],
        Function::Edit => &["read", "record", "edit", "edit-once", "edit-once"],
        Function::Consumer | Function::Gateway => &[],
    };
    let last: &[&str] = &["delete", "erase"];
    let folder = onetap_tests::functions::root().join("events").join(function.name());
    let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    let mut names: Vec<String> =
        files.map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned()).collect();
    names.sort_by_key(|name| (last.contains(&name.as_str()), name.clone()));
    let story = story.iter().map(|name| (*name).to_owned()).chain(names);
    story
        .map(|name| {
            let event = function.event(&name);
            (name, event)
        })
        .collect()
}

async fn webhook(function: &Webhook) -> Vec<(String, u16)> {
    let mut answers = Vec::new();
    // The file asks for an erasure. What confirms it carries the time, so it is in no file.
    let confirmation = ("erase, confirmed".to_owned(), confirms_erasure(1));
    for (name, event) in events(Function::Webhook).into_iter().chain([confirmation]) {
        let mut status = 500;
        // What was answered 500 comes again, as LINE has it.
        for _ in 0..3 {
            if status == 500 {
                let answer = function.handle(from_str(&event.to_string()).unwrap()).await;
                status = answer.status().as_u16();
            }
        }
        answers.push((name, status));
    }
    answers
}

async fn edit(function: &EditLastTransaction) -> Vec<(String, u16)> {
    let mut answers = Vec::new();
    for (name, event) in events(Function::Edit) {
        let answer = function.handle(from_str(&event.to_string()).unwrap()).await;
        answers.push((name, answer.status().as_u16()));
    }
    answers
}

async fn gateway(function: &JobEvents) -> Vec<(String, u16)> {
    let mut answers = Vec::new();
    for (name, event) in events(Function::Gateway) {
        let answer = function.invoke(from_str(&event.to_string()).unwrap()).await.unwrap();
        answers.push((name, answer.status().as_u16()));
        let _ = answer.into_body().collect().await.unwrap();
    }
    answers
}
