//! On AWS's own Runtime Interface Emulator: deadlines, timeouts, and a fresh start after a crash.

use std::sync::Arc;
use std::time::Duration;

use onetap_config::Secret;
use onetap_line::testing::MessagingApi;
use onetap_servers::environment::Variable;
use onetap_servers::{Backend, Broken, Environment, Fault, Proxy};
use onetap_store::Log;
use onetap_tests::emulator::Emulator;
use onetap_tests::functions::{ACCESS_TOKEN, Function};
use serde_json::{Value, json};

/// What the emulator says of a function that it had to end.
const TIMED_OUT: &str = "Task timed out";

/// A store behind a proxy that can withhold its answers.
struct Store {
    proxy: Proxy,
    /// Past the proxy.
    direct: Arc<dyn onetap_store::Store>,
    variables: Vec<Variable>,
    backend: Backend,
    _environment: Environment,
}

impl Store {
    async fn start(backend: Backend) -> Store {
        let environment = Environment::start(backend).await;
        let direct = environment.store();
        let address = backend.address_variable();
        let proxy = Proxy::start(&environment.lookup(address).unwrap()).await;
        // No store call gives up by itself: what ends an invocation here is its deadline, or its death.
        let changed = [(address, proxy.url()), ("STORE_TIMEOUT_MS", "600000".to_owned())];
        let kept = environment.variables().iter().filter(|(name, _)| !changed.iter().any(|(n, _)| n == name));
        let variables = kept.cloned().chain(changed.clone()).collect();
        Store { proxy, direct, variables, backend, _environment: environment }
    }

    async fn run(&self, function: Function, timeout_seconds: u32) -> Emulator {
        let own = function.variables("http://127.0.0.1:1");
        run(function, timeout_seconds, self.variables.iter().chain(&own)).await
    }

    fn hang(&self, on: bool) {
        self.proxy.inject(on.then_some(Fault::Hang));
    }

    /// The next write of an event takes effect, and from then on nothing is answered.
    fn hang_after_the_write(&self) {
        let pass = Fault::Delay(Duration::ZERO);
        self.proxy.inject_next(match self.backend {
            Backend::Upstash => vec![Fault::DropReply],
            // It reads before it writes.
            _ => vec![pass, Fault::DropReply],
        });
        self.hang(true);
    }

    /// What readers of job-1 are told, in order.
    async fn told(&self) -> Vec<String> {
        let log = Log::new("scan:job:job-1").unwrap();
        let records = self.direct.read(&log, None, 100).await.unwrap();
        records.into_iter().map(|record| record.text).collect()
    }
}

async fn run<'a>(
    function: Function,
    timeout_seconds: u32,
    variables: impl IntoIterator<Item = &'a Variable>,
) -> Emulator {
    Emulator::start(function, timeout_seconds, variables.into_iter().map(|(name, value)| (*name, value)))
        .await
}

fn parsed(answer: &str) -> Value {
    serde_json::from_str(answer).unwrap_or_else(|_| panic!("not the function's answer: {answer}"))
}

async fn a_batch_is_failed_before_the_deadline(backend: Backend) {
    let store = Store::start(backend).await;
    let consumer = store.run(Function::Consumer, 3).await;
    let batch = Function::Consumer.event("duplicates");
    let all: Vec<Value> = batch["Records"].as_array().unwrap().iter().map(failure).collect();
    store.hang(true);
    // A machine may be too busy to wake the function within the quarter second that it keeps for its answer; a function
    // that does not look at its deadline never answers.
    let mut answer = consumer.invoke(&batch).await;
    for _ in 0..4 {
        if answer.contains(TIMED_OUT) {
            answer = consumer.invoke(&batch).await;
        }
    }
    assert_eq!(parsed(&answer), json!({ "batchItemFailures": all }));
    store.hang(false);
    assert_eq!(parsed(&consumer.invoke(&batch).await), json!({ "batchItemFailures": [] }));
    assert_eq!(store.told().await.len(), 2, "what came again took effect once");
}

fn failure(record: &Value) -> Value {
    json!({ "itemIdentifier": record["messageId"] })
}

#[tokio::test]
#[ignore = "needs aws-sam-cli, scripts/build and redis-server"]
async fn a_batch_is_failed_before_the_deadline_on_upstash() {
    a_batch_is_failed_before_the_deadline(Backend::Upstash).await;
}

#[tokio::test]
#[ignore = "needs aws-sam-cli and scripts/build"]
async fn a_batch_is_failed_before_the_deadline_on_dynamodb() {
    a_batch_is_failed_before_the_deadline(Backend::DynamoDb).await;
}

#[tokio::test]
#[ignore = "needs aws-sam-cli and scripts/build"]
async fn a_delivery_is_answered_while_the_store_hangs() {
    let store = Broken::accepts_and_never_answers().await;
    let line = MessagingApi::start(Secret::new(ACCESS_TOKEN)).unwrap();
    let mut variables = Function::Webhook.variables(&line.url());
    variables.extend([("STORE", "redis".to_owned()), ("REDIS_URL", format!("redis://{}", store.addr()))]);
    let webhook = run(Function::Webhook, 5, &variables).await;
    // A known place needs no store for its forecast; a saved one does.
    for (scenario, reply) in [("place", "花蓮縣花蓮市（範例資料）"), ("tap-home", "系統暫時有點忙")]
    {
        let answer = webhook.invoke(&Function::Webhook.event(scenario)).await;
        assert_eq!(parsed(&answer)["statusCode"], 200, "{scenario}");
        let said = line.take_replies();
        assert_eq!(said.len(), 1, "{scenario}");
        assert!(said[0].text().starts_with(reply), "{scenario}: {}", said[0].text());
    }
    assert!(store.connections() > 0, "the store was tried");
}

#[tokio::test]
#[ignore = "needs aws-sam-cli and scripts/build"]
async fn an_invocation_out_of_time_is_ended_and_the_next_has_a_fresh_process() {
    let store = Store::start(Backend::DynamoDb).await;
    let edit = store.run(Function::Edit, 3).await;
    assert_eq!(parsed(&edit.invoke(&Function::Edit.event("record")).await)["statusCode"], 201);
    let first = edit.process();
    // A store that hangs is no reason: the function answers before its time is over.
    store.hang(true);
    assert_eq!(parsed(&edit.invoke(&Function::Edit.event("read")).await)["statusCode"], 503);
    store.hang(false);
    assert_eq!(edit.process(), first);
    edit.stop();
    let answer = edit.invoke(&Function::Edit.event("read")).await;
    assert!(answer.contains(TIMED_OUT), "{answer}");
    assert_eq!(parsed(&edit.invoke(&Function::Edit.event("read")).await)["statusCode"], 200);
    assert!(edit.process().is_some() && edit.process() != first, "a fresh process");
}

async fn a_batch_whose_function_dies_takes_effect_once(backend: Backend) {
    let store = Store::start(backend).await;
    let consumer = store.run(Function::Consumer, 60).await;
    let warm = consumer.invoke(&Function::Consumer.event("one-event")).await;
    assert_eq!(parsed(&warm), json!({ "batchItemFailures": [] }));
    let first = consumer.process();

    let mut batch = Function::Consumer.event("one-event");
    let body = batch["Records"][0]["body"].as_str().unwrap().replace(r#""seq": 10"#, r#""seq": 11"#);
    batch["Records"][0]["body"] = body.clone().into();
    store.hang_after_the_write();
    let killing = async {
        let written = async {
            while store.told().await.len() < 2 {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(50), written).await.expect("the write arrives");
        consumer.kill();
    };
    let (answer, ()) = tokio::join!(consumer.invoke(&batch), killing);
    assert!(!answer.contains("batchItemFailures"), "nobody was left to answer: {answer}");
    store.hang(false);

    assert_eq!(parsed(&consumer.invoke(&batch).await), json!({ "batchItemFailures": [] }));
    assert!(consumer.process().is_some() && consumer.process() != first, "a fresh process");
    let told = store.told().await;
    assert_eq!(told.len(), 2, "it is told once: {told:?}");
    assert!(told[1].contains(r#""seq":11"#) || told[1] == body, "{told:?}");
}

#[tokio::test]
#[ignore = "needs aws-sam-cli, scripts/build and redis-server"]
async fn a_batch_whose_function_dies_takes_effect_once_on_upstash() {
    a_batch_whose_function_dies_takes_effect_once(Backend::Upstash).await;
}

#[tokio::test]
#[ignore = "needs aws-sam-cli and scripts/build"]
async fn a_batch_whose_function_dies_takes_effect_once_on_dynamodb() {
    a_batch_whose_function_dies_takes_effect_once(Backend::DynamoDb).await;
}

/// The gateway sends its responses over a connection of its own, beside the one that the runtime polls on.
#[tokio::test]
#[ignore = "needs aws-sam-cli and scripts/build"]
async fn the_gateway_answers_one_invocation_after_the_other() {
    let store = Store::start(Backend::DynamoDb).await;
    let gateway = store.run(Function::Gateway, 30).await;
    let mut processes = Vec::new();
    for (scenario, status) in [("without-a-token", 401), ("state", 404), ("without-a-token", 401)] {
        let answer = gateway.invoke(&Function::Gateway.event(scenario)).await;
        assert!(answer.contains(&format!(r#""statusCode":{status}"#)), "{scenario}: {answer}");
        assert!(answer.contains(r#"{"message":""#), "{scenario}: {answer}");
        processes.push(gateway.process().unwrap());
    }
    assert_eq!(processes, [processes[0]; 3], "one process answered them all");
}
