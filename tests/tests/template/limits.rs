//! How long things take, and how long they are kept: numbers that only make sense together.

use onetap_store::config::Variables;
use onetap_tests::functions::Function;

use crate::document::{Template, number, target};
use crate::stories::{LAMBDAS_OWN, environment};
use crate::{ORIGIN, every_stack};

/// Lambda may run a batch again within the visibility timeout: AWS asks for six times the function's timeout.
const ROUNDS: u64 = 6;

#[test]
fn no_delivery_outlives_its_lock_or_its_claim() {
    let template = Template::read();
    let parameter = template.at("/Parameters/LockTimeoutSeconds");
    for seconds in ["MinValue", "Default", "MaxValue"].map(|name| number(&parameter[name]).to_string()) {
        let stack = template.with(&[ORIGIN, ("LockTimeoutSeconds", &seconds)]);
        let timeout = number(&stack.function(Function::Webhook)["Timeout"]);
        let variables = environment(&stack, Function::Webhook);
        let lookup = |name: &str| {
            let own =
                LAMBDAS_OWN.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
            variables.get(name).cloned().or(own)
        };
        let config = webhook::Config::from_variables(&Variables::from_lookup(lookup)).unwrap();
        let lock = config.lock.expect("there is a lock by default");
        assert!(timeout <= lock.ttl.as_secs(), "a timeout of {timeout} s, a lock of {seconds} s");
        assert!(
            timeout <= config.idem.lease_ttl.as_secs(),
            "a timeout of {timeout} s, a claim that ends before"
        );
        assert!(timeout >= 2, "LINE's two seconds fit into {timeout} s");
    }
    assert_eq!(number(&parameter["Default"]), 5, "as the contract says");
}

#[test]
fn a_batch_that_is_being_handled_stays_out_of_sight() {
    for (name, stack) in every_stack(&Template::read()) {
        let timeout = number(&stack.function(Function::Consumer)["Timeout"]);
        let visibility = number(&stack.properties("Queue")["VisibilityTimeout"]);
        assert!(
            visibility >= ROUNDS * timeout,
            "{visibility} s for batches of up to {timeout} s with {name}"
        );
    }
}

#[test]
fn an_event_is_remembered_for_as_long_as_its_message_may_come_again() {
    for (name, stack) in every_stack(&Template::read()) {
        let kept = |queue: &str| number(&stack.properties(queue)["MessageRetentionPeriod"]);
        let (queue, dead) = (kept("Queue"), kept("DeadLetters"));
        let remembered: u64 =
            stack.variable(Function::Consumer, "EVENT_PUBLISHED_TTL_SECONDS").parse().unwrap();
        assert!(dead >= queue, "SQS counts a standard message's age from when it was first sent");
        assert!(
            remembered >= queue + dead + queue,
            "in the queue, among the dead letters and put back, with {name}"
        );
    }
}

#[test]
fn the_consumer_answers_for_each_message_and_gives_up_on_none_silently() {
    for (name, stack) in every_stack(&Template::read()) {
        let events = stack.function(Function::Consumer)["Events"].as_object().unwrap();
        assert_eq!(events.len(), 1);
        let source = &events.values().next().unwrap()["Properties"];
        assert_eq!(target(&source["Queue"]), "Queue");
        assert_eq!(source["FunctionResponseTypes"], serde_json::json!(["ReportBatchItemFailures"]), "{name}");
        assert!(number(&source["BatchSize"]) <= 10, "what a FIFO queue gives at once");
        assert!(number(&source["ScalingConfig"]["MaximumConcurrency"]) >= 2, "{name}");
        let redrive = &stack.properties("Queue")["RedrivePolicy"];
        assert_eq!(target(&redrive["deadLetterTargetArn"]), "DeadLetters");
        assert!(number(&redrive["maxReceiveCount"]) >= 3, "a store that is away for a moment loses nothing");
        let fifo = |queue: &str| stack.properties(queue).get("FifoQueue").cloned();
        let wanted = name.contains("fifo").then_some(serde_json::Value::Bool(true));
        assert_eq!(
            (fifo("Queue"), fifo("DeadLetters")),
            (wanted.clone(), wanted),
            "both or neither, with {name}"
        );
    }
}

#[test]
fn a_stream_ends_before_lambda_ends_it() {
    let stack = Template::read().with(&[ORIGIN]);
    let timeout = number(&stack.function(Function::Gateway)["Timeout"]);
    let longest: u64 = stack.variable(Function::Gateway, "SSE_MAX_SECONDS").parse().unwrap();
    assert!(longest < timeout, "streams of {longest} s in {timeout} s");
}

#[test]
fn an_answer_over_http_comes_before_the_api_gives_up() {
    let stack = Template::read().with(&[ORIGIN]);
    for function in [Function::Webhook, Function::Edit] {
        assert!(number(&stack.function(function)["Timeout"]) < 30, "{function:?}");
    }
}
