//! What an operation costs when there is more of everything: users at once, events in a batch, keys, events in a stream, entries
//! in a month of the ledger, months in a ledger.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;

use onetap_servers::{Backend, Environment, Redis, dynamo};
use serde_json::json;

use super::{Bench, number};
use crate::Result;
use crate::contestant::Contestant;
use crate::orders::{Call, Measure, Measured, Side};
use crate::report::{Row, Target, Unit};

const SECTION: &str = "scale";
const FLAT: Target = Target::RatioAtMost(1.2);
/// How often a round measures each point of a curve. The time of a call depends on the cores on which the scheduler puts client
/// and server, so the lowest cost of the round counts.
const TURNS: usize = 4;

/// A point of a curve: what is measured there, and the lowest cost of every round.
struct Point {
    store: String,
    call: Call,
    callers: usize,
    /// In one turn.
    calls: usize,
    rounds: Vec<f64>,
}

/// A curve: what grows, its points from the smallest on, and what one call counts for.
struct Curve {
    name: String,
    points: Vec<(String, Point)>,
    cost: fn(&Measured, Call) -> f64,
    target: Option<Target>,
}

fn one_call(measured: &Measured, _: Call) -> f64 {
    measured.p50
}

fn all_together(measured: &Measured, _: Call) -> f64 {
    measured.elapsed * 1e6 / measured.calls as f64
}

fn one_event(measured: &Measured, call: Call) -> f64 {
    measured.p50 / if call == Call::PublishTen { 10.0 } else { 1.0 }
}

fn one_entry(measured: &Measured, call: Call) -> f64 {
    let entries = match call {
        Call::SmallStatement => 100.0,
        Call::Statement => 1_000.0,
        _ => 5_000.0,
    };
    measured.p50 / entries
}

/// Measures all curves, their points in turns.
pub fn run(bench: &mut Bench) -> Result<()> {
    let mut curves: Vec<Curve> =
        users(bench).into_iter().chain(batches(bench)).chain(ledgers(bench)).collect();
    let wants = |name: &str| bench.wants(SECTION, name);
    let full =
        wants("redis: keys") || wants("redis: events") || wants("upstash: keys") || wants("upstash: events");
    let mut servers = Vec::new();
    let mut stores = HashMap::new();
    if full {
        let sizes: &[usize] = bench.options.either(&[1_000, 1_000_000], &[1_000, 10_000, 100_000, 1_000_000]);
        for size in sizes {
            bench.say(&format!("a Redis with {} keys and as many events in its stream", number(*size)));
            let environment = filled(bench, *size)?;
            let own = |store: &str| format!("{store}-{size}");
            let more = |environment: &Environment| {
                environment.variables().iter().map(|(n, v)| ((*n).to_owned(), v.clone())).collect()
            };
            stores.insert(own("upstash"), more(&environment.0));
            stores.insert(own("redis"), environment.1.clone());
            servers.push(environment.0);
        }
        curves.extend(sized(
            bench,
            "keys",
            &["redis", "upstash"],
            &[Call::Get, Call::Lock, Call::Execute],
            sizes,
        ));
        curves.extend(sized(bench, "events in the stream", &["redis", "upstash"], &[Call::Publish], sizes));
    }
    if !bench.options.quick && wants("dynamodb: items") {
        let sizes = [1_000, 100_000];
        for size in sizes {
            bench.say(&format!("a DynamoDB with {} items", number(size)));
            let environment = bench.block_on(items(size))?;
            let variables =
                environment.variables().iter().map(|(n, v)| ((*n).to_owned(), v.clone())).collect();
            stores.insert(format!("dynamodb-{size}"), variables);
            servers.push(environment);
        }
        curves.extend(sized(bench, "items", &["dynamodb"], &[Call::Get, Call::Lock, Call::Execute], &sizes));
    }
    curves.retain(|curve| !curve.points.is_empty());
    if curves.is_empty() {
        return Ok(());
    }
    let mut worker = bench.worker(stores)?;
    for round in 0..bench.options.either(3, 7) {
        bench.say(&format!("cost by size, all sizes in turns: round {}", round + 1));
        for curve in &mut curves {
            let mut lowest = vec![f64::INFINITY; curve.points.len()];
            for _ in 0..TURNS {
                for ((_, point), lowest) in curve.points.iter().zip(&mut lowest) {
                    let measured = measure(&mut worker, point)?;
                    *lowest = lowest.min((curve.cost)(&measured, point.call));
                }
            }
            for ((_, point), lowest) in curve.points.iter_mut().zip(lowest) {
                point.rounds.push(lowest);
            }
        }
    }
    for curve in curves {
        let Some(((smallest, base), larger)) = curve.points.split_first() else { continue };
        for (size, point) in larger {
            let rounds: Vec<(f64, f64)> =
                point.rounds.iter().copied().zip(base.rounds.iter().copied()).collect();
            let name = format!("{}: {size}", curve.name);
            let row = Row::compared(SECTION, name, Unit::Micros, smallest, &rounds);
            bench.rows.push(row.maybe_target(curve.target));
        }
    }
    drop(servers);
    Ok(())
}

fn measure(worker: &mut Contestant, point: &Point) -> Result<Measured> {
    let Point { store, call, callers, calls, .. } = point;
    let order = Measure {
        call: *call,
        store: store.clone(),
        callers: *callers,
        calls: *calls,
        blocks: 1,
        sides: vec![Side::Ours],
    };
    worker.measure(order)?.pop().ok_or_else(|| "no measure".into())
}

/// Ten to ten thousand users at once, each with a lock of their own.
fn users(bench: &Bench) -> Vec<Curve> {
    let curve = |store: &str| {
        let point = |users: usize| {
            let calls = users.max(500) * 2;
            let point = Point {
                store: store.to_owned(),
                call: Call::Lock,
                callers: users,
                calls,
                rounds: Vec::new(),
            };
            (format!("{} users", number(users)), point)
        };
        let sizes = if store == "redis" { &[10, 100, 1_000, 10_000][..] } else { &[10, 100, 1_000][..] };
        Curve {
            name: format!("{store}: lock, users at once"),
            points: sizes.iter().copied().map(point).collect(),
            cost: all_together,
            target: Some(FLAT),
        }
    };
    ["redis", "upstash"].map(curve).into_iter().filter(|curve| bench.wants(SECTION, &curve.name)).collect()
}

/// One event at a time, and ten.
fn batches(bench: &Bench) -> Vec<Curve> {
    let curve = |store: &str| {
        let point = |call: Call, name: &str| {
            let point = Point { store: store.to_owned(), call, callers: 1, calls: 50, rounds: Vec::new() };
            (name.to_owned(), point)
        };
        Curve {
            name: format!("{store}: publish, each event of a batch"),
            points: vec![point(Call::Publish, "1 event"), point(Call::PublishTen, "10 events")],
            cost: one_event,
            target: Some(FLAT),
        }
    };
    let curves = ["redis", "upstash", "dynamodb"].map(curve).into_iter();
    curves.filter(|curve| bench.wants(SECTION, &curve.name)).collect()
}

/// A month of the ledger by its entries, and one entry more by the months of the ledger.
fn ledgers(bench: &Bench) -> Vec<Curve> {
    let curves = ["redis", "upstash", "dynamodb"].into_iter().flat_map(|store| {
        let point = |name: &str, call: Call, calls: usize| {
            let point = Point { store: store.to_owned(), call, callers: 1, calls, rounds: Vec::new() };
            (name.to_owned(), point)
        };
        let month = Curve {
            name: format!("{store}: a month read and folded, each entry"),
            points: [
                point("100 entries", Call::SmallStatement, 5),
                point("1 000 entries", Call::Statement, 2),
                point("5 000 entries", Call::LargeStatement, 1),
            ]
            .into_iter()
            .take(bench.options.either(2, 3))
            .collect(),
            cost: one_entry,
            target: None,
        };
        let put = Curve {
            name: format!("{store}: put of an entry, months in the ledger"),
            points: vec![point("1 month", Call::Put, 25), point("36 months", Call::PutAmongMonths, 25)],
            cost: one_call,
            target: None,
        };
        [month, put]
    });
    curves.filter(|curve| bench.wants(SECTION, &curve.name)).collect()
}

/// The same calls on stores of several sizes.
fn sized(bench: &Bench, what: &str, stores: &[&str], calls: &[Call], sizes: &[usize]) -> Vec<Curve> {
    let mut curves = Vec::new();
    for store in stores {
        for call in calls {
            let name = format!("{store}: {}, {what}", call.name());
            if !bench.wants(SECTION, &name) && !bench.wants(SECTION, &format!("{store}: {what}")) {
                continue;
            }
            let point = |size: &usize| {
                let store = format!("{store}-{size}");
                (number(*size), Point { store, call: *call, callers: 1, calls: 100, rounds: Vec::new() })
            };
            let points = sizes.iter().map(point).collect();
            curves.push(Curve { name, points, cost: one_call, target: Some(FLAT) });
        }
    }
    curves
}

/// A Redis with so many keys and events, behind a gateway; and its own variables.
fn filled(bench: &Bench, size: usize) -> Result<(Environment, HashMap<String, String>)> {
    const FILL: &str = "for n = ARGV[1], ARGV[2] do \
        redis.call('SET', 'idem:filled-' .. n, ARGV[3], 'PX', 86400000) \
        redis.call('XADD', 'scan:events:0', '*', 'data', ARGV[4]) end return 1";
    let result =
        r#"{"owner":"0123456789abcdef0123456789abcdef","ok":{"order":"b-000000000000","charged":120}}"#;
    let event = r#"{"job_id":"job-1","domain":"scan","stage":"vision","seq":10,"data":{"status":"done"},"timestamp":"2025-11-03T08:15:30.123456"}"#;
    let redis = bench.block_on(Redis::start());
    let mut stream = TcpStream::connect(redis.addr())?;
    let mut replies = BufReader::new(stream.try_clone()?);
    for first in (1..=size).step_by(20_000) {
        let last = (first + 19_999).min(size);
        let arguments = ["EVAL", FILL, "0", &first.to_string(), &last.to_string(), result, event];
        let mut request = format!("*{}\r\n", arguments.len());
        for argument in arguments {
            request.push_str(&format!("${}\r\n{argument}\r\n", argument.len()));
        }
        stream.write_all(request.as_bytes())?;
        let mut reply = String::new();
        replies.read_line(&mut reply)?;
        if reply.trim_end() != ":1" {
            return Err(format!("filling Redis: {reply}").into());
        }
    }
    // A stream that is trimmed would not keep what was put in.
    let own = [("EVENT_SHARD_COUNT", "1"), ("EVENT_STREAM_MAXLEN", "10000000")];
    let redis_url = redis.url();
    let mut environment = bench.block_on(Environment::on_upstash(redis));
    for (name, value) in own {
        environment = environment.with(name, value);
    }
    let plain = [("STORE", "redis"), ("REDIS_URL", &redis_url), ("STORE_TIMEOUT_MS", "10000")];
    let plain = plain.into_iter().chain(own).map(|(name, value)| (name.to_owned(), value.to_owned()));
    Ok((environment, plain.collect()))
}

/// A DynamoDB with so many items.
async fn items(size: usize) -> Result<Environment> {
    let environment = Environment::start(Backend::DynamoDb).await.with("EVENT_SHARD_COUNT", "1");
    let variable = |name: &str| environment.lookup(name).ok_or_else(|| crate::Error::from("no address"));
    let (endpoint, table) = (variable("AWS_ENDPOINT_URL_DYNAMODB")?, variable("DYNAMODB_TABLE")?);
    let numbers: Vec<usize> = (0..size).collect();
    for some in numbers.chunks(25) {
        let puts: Vec<_> = some
            .iter()
            .map(|n| {
                let item = json!({ "pk": { "S": format!("filled-{n}") }, "sk": { "S": "value" }, "v": { "S": "0123456789abcdef" } });
                json!({ "PutRequest": { "Item": item } })
            })
            .collect();
        let (status, answer) =
            dynamo::call(&endpoint, "BatchWriteItem", &json!({ "RequestItems": { &table: puts } })).await;
        if status != 200 {
            return Err(format!("filling DynamoDB: {answer}").into());
        }
    }
    Ok(environment)
}
