//! How long things take, and how long they are kept: numbers that only make sense together.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use onetap_bus::Job;
use onetap_config::Variables;
use onetap_sqs::{Queue, poll};
use onetap_store::testing::{Fault, TestStore};
use onetap_store::{Batch, Memory, Store, Write};
use onetap_tests::functions::{Function, root};
use queue_consumer::QueueConsumer;
use tokio::time::{Instant, sleep};

use super::document::{Stack, Template, number, target};
use super::stories::{LAMBDAS_OWN, asked, environment};
use super::{ORIGIN, every_stack};

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
        let config = config.bot;
        let lock = config.lock.expect("there is a lock by default");
        assert!(timeout <= lock.ttl.as_secs(), "a timeout of {timeout} s, a lock of {seconds} s");
        assert!(
            timeout <= config.idem.get_lease_ttl().as_secs(),
            "a timeout of {timeout} s, a claim that ends before"
        );
        assert!(timeout >= 2, "LINE's two seconds fit into {timeout} s");
    }
    assert_eq!(number(&parameter["Default"]), 5, "as the contract says");
}

#[test]
fn a_forecast_is_kept_for_longer_than_it_is_fresh() {
    let template = Template::read();
    let limit = |parameter: &str, name: &str| number(template.at(&format!("/Parameters/{parameter}/{name}")));
    assert!(limit("WeatherFreshSeconds", "MaxValue") <= limit("WeatherStaleSeconds", "MinValue"));
    for name in ["MinValue", "Default", "MaxValue"] {
        let [fresh, stale] = ["WeatherFreshSeconds", "WeatherStaleSeconds"]
            .map(|parameter| limit(parameter, name).to_string());
        let stack =
            template.with(&[ORIGIN, ("WeatherFreshSeconds", &fresh), ("WeatherStaleSeconds", &stale)]);
        let (_, error) = asked(Function::Webhook, &environment(&stack, Function::Webhook));
        assert_eq!(error, None, "fresh for {fresh} s, kept for {stale} s");
    }
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

/// Longest outage of the store after which no message has to be put back by hand.
const OUTAGE: Duration = Duration::from_secs(3600);

/// When it is back, everything that waited has come through within this time.
const RECOVERY: Duration = Duration::from_secs(120);

/// A queue as the template makes it, with its dead letters, in the model of SQS.
fn modelled(stack: &Stack, name: &str) -> (Queue, Queue) {
    let properties = stack.properties("Queue");
    let visibility = Duration::from_secs(number(&properties["VisibilityTimeout"]));
    let receives = number(&properties["RedrivePolicy"]["maxReceiveCount"]);
    let dead = Queue::new(&format!("dead-{name}"));
    let queue = Queue::new(name).with_visibility(visibility);
    (queue.with_dead_letters(&dead, u32::try_from(receives).unwrap()), dead)
}

#[tokio::test(start_paused = true)]
async fn an_outage_of_an_hour_needs_no_hand() {
    for (kind, name) in [("standard", "jobs"), ("fifo", "jobs.fifo")] {
        let stack = Template::read().with(&[ORIGIN, ("QueueType", kind)]);
        let (queue, dead) = modelled(&stack, name);
        let down = Arc::new(AtomicBool::new(true));
        let store = TestStore::faulty(Arc::new(Memory::new()), {
            let down = Arc::clone(&down);
            move |_| if down.load(Ordering::SeqCst) { Fault::NotSent } else { Fault::Pass }
        });
        let job = |n: u64| Job::new("scan", format!("job-{n}")).unwrap();
        let event = |n: u64, seq| {
            let id = job(n).id().to_owned();
            format!(
                r#"{{"job_id":"{id}","domain":"scan","stage":"vision","seq":{seq},"data":{{}},"timestamp":"2025-11-03T08:15:30Z"}}"#
            )
        };
        for n in 0..20 {
            for seq in 10..13 {
                queue.send_to_group(job(n).id(), &format!("{n}-{seq}"), event(n, seq));
            }
        }
        queue.send_to_group("job-0", "bad", "not an event");
        let consumer = QueueConsumer::new(store.clone(), queue_consumer::Config::default());
        let consume = || poll(&queue, async |event| Some(consumer.handle(event, later()).await));
        let story = async {
            sleep(OUTAGE).await;
            assert!(dead.is_empty(), "{kind}: {} wait to be put back by hand", dead.len());
            down.store(false, Ordering::SeqCst);
            let back = Instant::now();
            while queue.len() > 1 {
                sleep(Duration::from_secs(1)).await;
            }
            assert!(back.elapsed() <= RECOVERY, "{kind}: {:?} after the store was back", back.elapsed());
            for n in 0..20 {
                let state = job(n).state(&*store).await.unwrap();
                let json = |text: String| serde_json::from_str::<serde_json::Value>(&text).unwrap();
                assert_eq!(state.map(json), Some(json(event(n, 12))), "{kind}: job {n} came through");
            }
            queue.emptied().await;
        };
        tokio::select! {
            _ = async { tokio::join!(consume(), consume()) } => panic!("pollers never end"),
            () = story => {}
        }
        assert_eq!(dead.bodies(), ["not an event"], "{kind}");
    }
}

/// Longest time that a record which panics at every delivery may hold up its group altogether.
const HELD_UP: Duration = Duration::from_secs(180);

/// Records of the group that come through in each visibility timeout after that: a batch but for the one that panics.
const BESIDE: u32 = 9;

/// A store in which one event finds a bug: the one whose number is 19.
fn buggy() -> Arc<dyn Store> {
    let is_fatal =
        |write: &Write| matches!(write, Write::Append { text, .. } if text.contains("\"seq\":19,"));
    TestStore::scripted(Arc::new(Memory::new()), move |call| async move {
        assert!(!call.batches().iter().flat_map(Batch::writes).any(is_fatal), "a bug, on purpose");
        call.send().await
    })
}

#[tokio::test(start_paused = true)]
async fn a_record_that_always_panics_holds_up_its_fifo_group_for_minutes() {
    const BEHIND: u32 = 40;
    let stack = Template::read().with(&[ORIGIN, ("QueueType", "fifo")]);
    let (queue, dead) = modelled(&stack, "jobs.fifo");
    let store = buggy();
    let event = |n: u32, seq| {
        format!(
            r#"{{"job_id":"job-{n}","domain":"scan","stage":"vision","seq":{seq},"data":{{}},"timestamp":"2025-11-03T08:15:30Z"}}"#
        )
    };
    // A group of many jobs.
    queue.send_to_group("group", "fatal", event(0, 19));
    for n in 1..=BEHIND {
        queue.send_to_group("group", &n.to_string(), event(n, 10));
    }
    let began = Instant::now();
    let consumer = QueueConsumer::new(store, queue_consumer::Config::default());
    let through = async || {
        while queue.len() > 1 {
            sleep(Duration::from_secs(1)).await;
        }
        began.elapsed()
    };
    tokio::select! {
        never = poll(&queue, async |event| Some(consumer.handle(event, later()).await)) => match never {},
        took = through() => {
            let visibility = Duration::from_secs(number(&stack.properties("Queue")["VisibilityTimeout"]));
            let limit = HELD_UP + visibility * BEHIND.div_ceil(BESIDE);
            assert!(took <= limit, "{took:?} for {BEHIND} records behind it");
            assert!(dead.is_empty(), "it may still pass");
        }
    }
}

fn later() -> Instant {
    Instant::now() + Duration::from_secs(10)
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

/// The number of megabytes that a measured row of the benchmark's results shows.
fn measured(name: &str) -> f64 {
    let results = std::fs::read(root().join("bench/results.json")).unwrap();
    let results: serde_json::Value = serde_json::from_slice(&results).unwrap();
    let row = results["rows"].as_array().unwrap().iter().find(|row| row["name"] == name);
    row.unwrap_or_else(|| panic!("no {name}"))["ours"].as_f64().unwrap()
}

/// A stream is paid for by its memory for as long as it is open.
#[test]
fn job_events_have_a_memory_of_their_own_the_smallest_that_lambda_has() {
    let stack = Template::read().with(&[ORIGIN, ("MemorySize", "512")]);
    let memory = number(&stack.function(Function::Gateway)["MemorySize"]);
    assert_eq!(memory, 128);
    for store in ["Upstash", "DynamoDB"] {
        let used = measured(&format!("job-events, {store}: resident, warm"));
        assert!(used * 4.0 <= memory as f64, "{used} of {memory} MB on {store}");
    }
    let stack = Template::read().with(&[ORIGIN, ("JobEventsMemorySize", "256")]);
    assert_eq!(number(&stack.function(Function::Gateway)["MemorySize"]), 256);
}

#[test]
fn an_answer_over_http_comes_before_the_api_gives_up() {
    let stack = Template::read().with(&[ORIGIN]);
    for function in [Function::Webhook, Function::Edit] {
        assert!(number(&stack.function(function)["Timeout"]) < 30, "{function:?}");
    }
}
