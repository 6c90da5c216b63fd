//! Each function and the runner under load: 64 clients and no error, no growth, no leak; then more than it can take, and
//! it says so clearly and recovers at once. For a moment here, for a minute each by `scripts/load`.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::future::join_all;
use onetap_bus::Job;
use onetap_config::Secret;
use onetap_servers::runtime::Answer;
use onetap_tests::functions::{CHANNEL_SECRET, EDIT_TOKEN, Function, JOB_SECRET, delivery};
use onetap_tests::load::{CLIENTS, Cost, Fleet, Listeners, Plan, Runner, Tally, Usage, clients, row};
use serde_json::{Value, json};

/// What four instances together may grow by. A leak of a hundred bytes a request would be more, in a minute; a connection
/// that is being replaced counts twice.
const FUNCTIONS_MAY_GROW: Usage = Usage { memory_kib: 8 * 1024, descriptors: 4 };
/// The runner keeps its last ten thousand replies for its page, which is some 18 MiB, and then no more. It talks to its own
/// LINE, with both ends of every connection in one process: how many there are depends on how many replies happen to meet.
const RUNNER_MAY_GROW: Usage = Usage { memory_kib: 24 * 1024, descriptors: 2 * CLIENTS };

/// On a machine that stalls for two seconds the webhook runs out of time and answers 500, and LINE delivers again. The
/// clients here do the same. No other function answers 500.
const REDELIVERY_PAUSE: Duration = Duration::from_millis(200);
const MAX_REDELIVERIES: usize = 20;

/// Long after any test.
const FAR_FUTURE: u64 = 32_503_680_000;

/// Something that was never used before.
fn fresh() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// The status of an answer to an HTTP event; a streamed one has its head before its body.
fn status(answer: &Answer) -> u64 {
    let end = answer.body.windows(8).position(|bytes| bytes == [0; 8]).unwrap_or(answer.body.len());
    let head: Value = serde_json::from_slice(&answer.body[..end]).unwrap_or_default();
    head["statusCode"].as_u64().unwrap_or_default()
}

fn expect(answer: &Answer, statuses: &[u64]) -> Result<(), String> {
    match statuses.contains(&status(answer)) {
        true => Ok(()),
        false => Err(format!("not {statuses:?}: {}", String::from_utf8_lossy(&answer.body))),
    }
}

/// What is asked of a function, what is a good answer, and what it may answer while the store hangs.
struct Work {
    event: fn(usize, usize) -> Value,
    good: fn(&Answer) -> Result<(), String>,
    shed: fn(&Answer) -> Result<(), String>,
}

async fn under_load(function: Function, fleet: &Fleet, work: &Work) {
    let (name, plan) = (function.name(), Plan::from_env());
    let ask = async |client, number, check: fn(&Answer) -> Result<(), String>| {
        let event = (work.event)(client, number);
        let mut answer = fleet.invoke(&event).await?;
        for _ in 0..MAX_REDELIVERIES {
            if status(&answer) != 500 || check(&answer).is_ok() {
                break;
            }
            tokio::time::sleep(REDELIVERY_PAUSE).await;
            answer = fleet.invoke(&event).await?;
        }
        check(&answer)
    };

    clients(CLIENTS, plan.warm_up(), |client, n| ask(client, n, work.good)).await.assert_good("warming up");
    let processes = fleet.processes();
    let before = Usage::of_all(&processes);
    let tally = clients(CLIENTS, plan, |client, n| ask(client, n, work.good)).await;
    let cost = Cost::since(before, &processes, FUNCTIONS_MAY_GROW).await;
    eprintln!("{}", row(name, &tally, &cost));
    tally.assert_good(name);
    cost.assert_within(FUNCTIONS_MAY_GROW, name);

    // What an instance cannot take is a store that does not answer: Lambda itself gives it one event at a time.
    fleet.stall_store(true);
    let overload = Plan { time: Duration::from_secs(3), pause: Duration::ZERO };
    let shed = clients(2 * processes.len(), overload, |client, n| ask(client, n, work.shed)).await;
    shed.assert_good("while the store hangs");

    fleet.stall_store(false);
    let again = Plan { time: Duration::from_secs(1), pause: Duration::from_millis(50) };
    clients(CLIENTS, again, |client, n| ask(client, n, work.good)).await.assert_good("when it is back");
    let cost = Cost::since(before, &processes, FUNCTIONS_MAY_GROW).await;
    eprintln!("{}", row("  while the store hangs", &shed, &cost));
    cost.assert_within(FUNCTIONS_MAY_GROW, "after all that");
}

// ---- the functions ----

/// An entry of one of a thousand users.
fn entry(client: usize) -> Value {
    let n = fresh();
    json!({
        "type": "message",
        "message": {"type": "text", "id": "1", "text": "午餐 120 信用卡"},
        "webhookEventId": format!("load-{n}"),
        "deliveryContext": {"isRedelivery": false},
        "timestamp": 1_700_000_000_000_i64,
        "mode": "active",
        "replyToken": format!("reply-{n}"),
        "source": {"type": "user", "userId": format!("U{client}")},
    })
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs scripts/build and redis-server"]
async fn the_webhook_bears_64_clients_and_a_store_that_hangs() {
    let fleet = Fleet::start(Function::Webhook).await;
    let work = Work {
        event: |client, _| delivery(&[entry(client)]),
        good: |answer| expect(answer, &[200]),
        // It says so in the chat, or has LINE send it again.
        shed: |answer| expect(answer, &[200, 500]),
    };
    under_load(Function::Webhook, &fleet, &work).await;
    let told = fleet.line().take_replies();
    let said = |text: &str| told.iter().filter(|reply| reply.text().starts_with(text)).count();
    assert!(said("系統暫時有點忙") > 0, "while the store hung, people were told");
    assert_eq!(said("系統暫時有點忙") + said("已記帳"), told.len(), "and nothing else was said");
}

fn last_transaction(scenario: &str, client: usize) -> Value {
    let mut event = Function::Edit.event(scenario);
    let path = format!("/users/U{client}/last-transaction");
    event["requestContext"]["http"]["path"] = path.clone().into();
    event["rawPath"] = path.into();
    event
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs scripts/build and redis-server"]
async fn the_api_bears_64_clients_and_a_store_that_hangs() {
    let fleet = Fleet::start(Function::Edit).await;
    for client in 0..CLIENTS {
        expect(&fleet.invoke(&last_transaction("record", client)).await.unwrap(), &[201]).unwrap();
    }
    let work = Work {
        event: |client, n| last_transaction(["record", "edit", "read"][n % 3], client),
        good: |answer| expect(answer, &[200]),
        shed: |answer| expect(answer, &[503]),
    };
    under_load(Function::Edit, &fleet, &work).await;
}

/// A batch of a job's ten events; jobs come again, so that Redis does not fill up with them.
fn batch(n: usize) -> Value {
    let mut event = Function::Consumer.event("one-event");
    let record = event["Records"][0].clone();
    let records = (0..10).map(|seq| {
        let mut record = record.clone();
        let job = json!({
            "job_id": format!("job-{}", n % 300),
            "domain": "scan",
            "stage": "vision",
            "seq": 10 + seq,
            "data": {"status": "done"},
            "timestamp": "2025-11-03T10:00:00Z",
        });
        record["messageId"] = format!("message-{seq}").into();
        record["body"] = job.to_string().into();
        record
    });
    event["Records"] = records.collect();
    event
}

fn failures(answer: &Answer) -> usize {
    let answer: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
    answer["batchItemFailures"].as_array().map_or(usize::MAX, Vec::len)
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs scripts/build and redis-server"]
async fn the_consumer_bears_64_clients_and_a_store_that_hangs() {
    let fleet = Fleet::start(Function::Consumer).await;
    let work = Work {
        event: |_, n| batch(n),
        good: |answer| if failures(answer) == 0 { Ok(()) } else { Err(format!("{:?}", answer.body)) },
        // All of it must come again: nothing is known to be done.
        shed: |answer| if failures(answer) == 10 { Ok(()) } else { Err(format!("{:?}", answer.body)) },
    };
    under_load(Function::Consumer, &fleet, &work).await;
}

fn token(job: &str) -> String {
    job_events::token(&Secret::new(JOB_SECRET), &Job::new("scan", job).unwrap(), FAR_FUTURE)
}

fn look(n: usize) -> Value {
    let mut event = Function::Gateway.event("state");
    let path = if n.is_multiple_of(2) { "/jobs/finished" } else { "/jobs/finished/events" };
    event["requestContext"]["http"]["path"] = path.into();
    event["rawPath"] = path.into();
    event["rawQueryString"] = format!("domain=scan&token={}", token("finished")).into();
    event
}

/// A job from its first event to its last, written by the consumer itself.
async fn finish_a_job(redis: &str) {
    let lookup = |name: &str| match name {
        "STORE" => Some("redis".to_owned()),
        "REDIS_URL" => Some(redis.to_owned()),
        _ => None,
    };
    let store = onetap_store::open(&onetap_store::Config::from_lookup(lookup).unwrap()).unwrap();
    let bus = onetap_bus::Bus::new(store, onetap_bus::Config::default());
    let events = [("vision", 10), ("rule", 20), ("answer", 30), ("done", 51)].map(|(stage, seq)| {
        let text = json!({
            "job_id": "finished",
            "domain": "scan",
            "stage": stage,
            "seq": seq,
            "data": {"status": "done"},
            "timestamp": "2025-11-03T10:00:00Z",
        });
        onetap_bus::Event::parse(text.to_string(), &onetap_bus::Stages::default()).unwrap()
    });
    for published in bus.publish_each(&events).await {
        let _ = published.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs scripts/build and redis-server"]
async fn the_gateway_bears_64_clients_and_a_store_that_hangs() {
    let fleet = Fleet::start(Function::Gateway).await;
    finish_a_job(&fleet.redis().url()).await;
    let work = Work {
        event: |_, n| look(n),
        good: |answer| {
            let whole = String::from_utf8_lossy(&answer.body).contains(r#""seq":51"#);
            expect(answer, &[200]).and(if whole {
                Ok(())
            } else {
                Err("the job's end is missing".to_owned())
            })
        },
        // Who follows is asked to come back by a stream of nothing else: no other status has an `EventSource` return.
        shed: |answer| {
            let told = String::from_utf8_lossy(&answer.body).contains("data: ");
            expect(answer, &[200, 503]).and(if told {
                Err("told without a store".to_owned())
            } else {
                Ok(())
            })
        },
    };
    under_load(Function::Gateway, &fleet, &work).await;
}

// ---- the runner ----

/// One of the things that people and programs ask of it.
async fn ask(runner: &Runner, client: usize, n: usize) -> Result<(), String> {
    let (user, job) = (format!("/users/U{client}/last-transaction"), format!("load-{}", n % 200));
    let body = |text: &str| Bytes::from(text.to_owned());
    let as_owner =
        |method| runner.request(method, &user).header("authorization", format!("Bearer {EDIT_TOKEN}"));
    let (request, good): (_, &[u16]) = match n % 5 {
        0 => {
            let body = json!({"destination": "U0", "events": [entry(client)]}).to_string();
            let signature = onetap_line::signature::sign(&Secret::new(CHANNEL_SECRET), body.as_bytes());
            let request = runner.request("POST", "/line/webhook").header("x-line-signature", signature);
            (request.body(body.into()), &[200])
        }
        1 => (
            as_owner("PUT").body(body(last_transaction("record", client)["body"].as_str().unwrap())),
            &[200, 201],
        ),
        2 => (as_owner("PATCH").body(body(r#"{"原幣金額":150}"#)), &[200]),
        // A few send jobs through the queue and its consumer, the others look for them.
        3 if n % 50 == 3 => {
            let job = json!({ "job_id": job }).to_string();
            (runner.request("POST", "/playground/jobs").body(job.into()), &[200])
        }
        3 => {
            let state = format!("/jobs/{job}?domain=scan&token={}", token(&job));
            (runner.request("GET", &state).body(body("")), &[200, 404])
        }
        _ => (runner.request("GET", "/health").body(body("")), &[200]),
    };
    let request = request.unwrap();
    let mut answer = runner.send(request.clone()).await?;
    for _ in 0..MAX_REDELIVERIES {
        if answer.status() != 500 {
            break;
        }
        tokio::time::sleep(REDELIVERY_PAUSE).await;
        answer = runner.send(request.clone()).await?;
    }
    match good.contains(&answer.status().as_u16()) {
        true => Ok(()),
        false => Err(format!("{} {:?}", answer.status(), answer.body())),
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs redis-server"]
async fn the_runner_bears_64_clients_and_sheds_what_is_too_many() {
    let (runner, plan) = (Runner::start().await, Plan::from_env());
    let (runner, processes) = (&runner, [runner.process()]);
    for client in 0..CLIENTS {
        ask(runner, client, 1).await.unwrap();
    }
    let work = |client, n| ask(runner, client, n);
    clients(CLIENTS, plan.warm_up(), work).await.assert_good("warming up");
    let before = Usage::of_all(&processes);
    let tally = clients(CLIENTS, plan, work).await;
    let cost = Cost::since(before, &processes, RUNNER_MAY_GROW).await;
    eprintln!("{}", row("runner", &tally, &cost));
    tally.assert_good("the runner");
    cost.assert_within(RUNNER_MAY_GROW, "the runner");

    // Streams stay: twice as many as it has places for.
    let (places, listeners, start) = (onetap_local::MAX_REQUESTS, Listeners::default(), Instant::now());
    let listen = async |n: usize| {
        let job = format!("nobody-{n}");
        let path = format!("/jobs/{job}/events?domain=scan&token={}", token(&job));
        listeners.open(runner.request("GET", &path).body(Default::default()).unwrap()).await.unwrap()
    };
    let answers = join_all((0..2 * places).map(listen)).await;
    let tally = Tally { requests: answers.len(), errors: Vec::new(), time: start.elapsed() };
    assert!(
        answers.iter().all(|answer| answer.status() == 200),
        "no other status has an `EventSource` return"
    );
    // A stream that asks to come back says nothing else, so that its length is known.
    let goes_on = |answer: &http::Response<_>| !answer.headers().contains_key("content-length");
    let (open, shed): (Vec<_>, Vec<_>) = answers.into_iter().partition(goes_on);
    assert_eq!((open.len(), shed.len()), (places, places), "it takes what it can");
    let refused = ask(runner, 0, 1).await.unwrap_err();
    assert!(refused.starts_with("503"), "nobody else gets in: {refused}");

    drop((open, shed, listeners));
    // A place is free once the runner has seen its client go, as Retry-After lets one expect.
    for attempt in 1.. {
        match ask(runner, 0, 1).await {
            Ok(()) => break,
            Err(error) => assert!(attempt < 100 && error.starts_with("503"), "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let again = Plan { time: Duration::from_secs(1), pause: Duration::from_millis(50) };
    clients(CLIENTS, again, work).await.assert_good("when there is room again");
    let cost = Cost::since(before, &processes, RUNNER_MAY_GROW).await;
    eprintln!("{}", row("  twice as many as it has places for", &tally, &cost));
    cost.assert_within(RUNNER_MAY_GROW, "after all that");
}
