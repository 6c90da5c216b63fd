//! The guide's table of costs, counted.

use std::collections::BTreeSet;

use onetap_servers::dynamo::call;
use onetap_servers::{Backend, Environment};
use onetap_tests::functions::{Function, delivery};
use serde_json::{Value, json};

use super::ORIGIN;
use super::document::Template;
use super::guide::guide;
use super::stories::{Stage, batch, environment, warmed};

/// A row of the guide: what it is called there, whose event it is, and what has happened before.
struct Row {
    name: &'static str,
    function: Function,
    /// What other processes have handled.
    before: Vec<Value>,
    /// What the same process has handled.
    warm: Vec<Value>,
    event: Value,
}

const USER: &str = "U0123456789abcdef0123456789abcdef";

/// LINE delivers the `n`th event, which is `user`'s and has the members of `what`.
fn event(n: usize, user: &str, what: &Value) -> Value {
    delivery(&[bare_event(n, user, what)])
}

fn bare_event(n: usize, user: &str, what: &Value) -> Value {
    let mut event = json!({
        "webhookEventId": format!("event-{n}"), "deliveryContext": {"isRedelivery": false},
        "timestamp": 1_700_000_000_000_i64, "mode": "active", "replyToken": format!("reply-{n}"),
        "source": {"type": "user", "userId": user},
    });
    event.as_object_mut().unwrap().extend(what.as_object().unwrap().clone());
    event
}

fn says(n: usize, text: &str) -> Value {
    event(n, USER, &message(text))
}

fn message(text: &str) -> Value {
    json!({"type": "message", "message": {"type": "text", "id": "1", "text": text}})
}

/// The `n`th event is a tap on "home".
fn taps(n: usize) -> Value {
    event(n, USER, &postback("weather&type=home"))
}

/// The `n`th event confirms an erasure, a moment after it was asked for.
pub(super) fn confirms_erasure(n: usize) -> Value {
    let now = onetap_ledger::Moment::now();
    let data = webhook::bookkeeping::confirmation::button_data(USER, now);
    let what = json!({"type": "postback", "timestamp": now.unix() * 1000, "postback": {"data": data}});
    event(n, USER, &what)
}

fn postback(action: &str) -> Value {
    json!({"type": "postback", "postback": {"data": format!("action={action}")}})
}

const TAPS: [&str; 3] = [
    "a tap on a saved place, its forecast kept in the process",
    "a tap, its forecast kept in the store",
    "a tap, its forecast fetched and kept",
];
const PLACE: &str = "a place name, its forecast kept in the process";
const EDIT: &str = "an edit over HTTP";

/// A call of the API.
fn api(method: &str, path: &str, query: &str, body: &str) -> Value {
    let mut event = Function::Edit.event("edit");
    let path = format!("/users/{USER}/{path}");
    event["rawPath"] = path.as_str().into();
    event["rawQueryString"] = query.into();
    event["requestContext"]["http"]["method"] = method.into();
    event["requestContext"]["http"]["path"] = path.into();
    event["body"] = body.into();
    event
}

fn put(hour: usize, minute: usize) -> Value {
    let entry = json!({
        "intent": "bookkeeping", "日期": "2025-11-29", "時間": "14:30", "品項": "午餐", "原幣別": "TWD", "原幣金額": 120,
        "匯率": 1, "付款方式": "信用卡", "交易ID": format!("20251129-{hour:02}{minute:02}00"), "明細說明": "", "分類": "飲食",
        "專案": "日常", "必要性": "必要", "代墊狀態": "無", "收款支付對象": "", "附註": "",
    });
    api("PUT", "last-transaction", "", &entry.to_string())
}

fn rows() -> Vec<Row> {
    forecasts().into_iter().chain(others()).collect()
}

/// A tap and a place name, by where their forecast comes from.
fn forecasts() -> Vec<Row> {
    let home = || vec![Function::Webhook.event("follow"), says(1, "設定住家 永和區")];
    let follow = || vec![Function::Webhook.event("follow")];
    // Another user has asked for the place, so that it is new to this one.
    let other = || event(2, "Uffffffffffffffffffffffffffffffff", &message("永和"));
    let and = |mut before: Vec<Value>, event: Value| {
        before.push(event);
        before
    };
    let rows = [
        (TAPS[0], home(), vec![taps(2)], taps(3)),
        (TAPS[1], and(home(), taps(2)), vec![], taps(3)),
        (TAPS[2], home(), vec![], taps(2)),
        ("two taps at once, of which one meets the lock", home(), vec![taps(2)], {
            delivery(&[3, 4].map(|n| bare_event(n, USER, &postback("weather&type=home"))))
        }),
        ("the recent places", and(home(), taps(2)), vec![], event(3, USER, &postback("recent_queries"))),
        (PLACE, follow(), vec![other()], says(3, "永和")),
        ("a place name, its forecast kept in the store", and(follow(), other()), vec![], says(3, "永和")),
        ("a place name, its forecast fetched and kept", follow(), vec![], says(1, "永和")),
    ];
    let row = |(name, before, warm, event)| Row { name, function: Function::Webhook, before, warm, event };
    rows.map(row).into()
}

fn others() -> Vec<Row> {
    let edit = |body: &str| api("PATCH", "last-transaction", "", body);
    let chat = Function::Webhook;
    let mut keyed = edit(r#"{"原幣金額":150}"#);
    keyed["headers"]["idempotency-key"] = "key-1".into();
    let mut redelivered = message("你好");
    redelivered["deliveryContext"] = json!({"isRedelivery": true});
    let rows = [
        ("a new follower", chat, (vec![], chat.event("follow"))),
        ("saving a place", chat, (vec![chat.event("follow")], says(1, "設定住家 永和區"))),
        ("an event that LINE delivers again", chat, (vec![says(1, "你好")], says(1, "你好"))),
        ("the same, marked as redelivered", chat, (vec![says(1, "你好")], event(1, USER, &redelivered))),
        ("the first entry of a user, in the chat", chat, (vec![], says(1, "午餐 120 信用卡"))),
        ("a later entry", chat, (vec![says(1, "早餐 50 現金")], says(2, "午餐 120 信用卡"))),
        (
            "a text with three entries",
            chat,
            (vec![says(1, "早餐 50 現金")], says(2, "午餐 120、飲料 45、晚餐 300 現金")),
        ),
        ("an edit in the chat", chat, (vec![says(1, "午餐 120 信用卡")], says(2, "修改金額 150"))),
        ("a deletion in the chat", chat, (vec![says(1, "午餐 120 信用卡")], says(2, "刪除上一筆"))),
        ("an entry that lacks its way to pay", chat, (vec![], says(1, "午餐 120"))),
        ("what completes it", chat, (vec![says(1, "午餐 120")], says(2, "信用卡"))),
        ("a month in the chat", chat, (vec![says(1, "午餐 120 信用卡")], says(2, "本月"))),
        (EDIT, Function::Edit, (vec![put(14, 30)], edit(r#"{"原幣金額":150}"#))),
        ("an edit over HTTP with an `Idempotency-Key`", Function::Edit, (vec![put(14, 30)], keyed.clone())),
        ("the same, sent again", Function::Edit, (vec![put(14, 30), keyed.clone()], keyed)),
        (
            "an edit over HTTP that moves the entry to another month",
            Function::Edit,
            (vec![put(14, 30)], edit(r#"{"日期":"2025-12-01"}"#)),
        ),
        (
            "a deletion over HTTP",
            Function::Edit,
            (vec![put(14, 30)], api("DELETE", "last-transaction", "", "")),
        ),
        (
            "reading the last transaction over HTTP",
            Function::Edit,
            (vec![put(14, 30)], api("GET", "last-transaction", "", "")),
        ),
        ("the first entry of a user, over HTTP", Function::Edit, (vec![], put(14, 30))),
        ("an entry over HTTP, not the user's first", Function::Edit, (vec![put(14, 30)], put(14, 31))),
        (
            "a month of 100 entries over HTTP",
            Function::Edit,
            (
                (0..100).map(|n| put(n / 10, n % 10)).collect(),
                api("GET", "transactions", "month=2025-11", ""),
            ),
        ),
        (
            "an erasure: a profile and 10 entries in two months",
            chat,
            (
                vec![
                    chat.event("follow"),
                    says(1, "早餐 50、午餐 120、飲料 45、晚餐 300、宵夜 80 現金"),
                    says(2, "2025-11-29 早餐 50、午餐 120、飲料 45、晚餐 300、宵夜 80 現金"),
                ],
                confirms_erasure(3),
            ),
        ),
        ("an event from the queue", Function::Consumer, (vec![], Function::Consumer.event("one-event"))),
    ];
    let row = |(name, function, (before, event))| Row { name, function, before, warm: vec![], event };
    rows.map(row).into()
}

/// US dollars for a million, as the guide quotes them: write units, read units, commands.
pub const PRICES: (f64, f64, f64) = (0.625, 0.125, 2.0);

/// The row of the guide's table that begins with this, by its cells.
fn row(name: &str) -> Vec<String> {
    let guide = guide();
    assert!(
        guide.contains(
            "$0.625 a million write units and $0.125 a million read units; $0.20 a hundred thousand"
        )
    );
    let line = guide.lines().find(|line| line.starts_with(&format!("| {name} |")));
    let line = line.unwrap_or_else(|| panic!("the guide has no row for {name}"));
    line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect()
}

#[test]
fn every_row_of_the_guides_table_is_counted() {
    let guide = guide();
    let table = guide.lines().skip_while(|line| !line.starts_with("| what happens |")).skip(2);
    let named: Vec<&str> = table.map_while(|line| line.strip_prefix("| ")?.split(" | ").next()).collect();
    let counted: Vec<&str> = rows().into_iter().map(|row| row.name).chain(super::following::ROWS).collect();
    assert_eq!(named.iter().collect::<BTreeSet<_>>(), counted.iter().collect());
    assert_eq!(named.len(), counted.len());
}

/// What the guide says of a row on Upstash: requests, commands, dollars.
pub fn stated_for_upstash(name: &str) -> [String; 3] {
    let row = row(name);
    [4, 5, 7].map(|cell| row[cell].clone())
}

/// What was counted on Upstash, as the guide has it.
pub fn counted_on_upstash(requests: usize, commands: u64) -> [String; 3] {
    [requests.to_string(), commands.to_string(), format!("{:.2}", commands as f64 * PRICES.2)]
}

/// What the guide says of a row on DynamoDB: requests, write units, read units, dollars.
pub fn stated_for_dynamodb(name: &str) -> [String; 4] {
    let row = row(name);
    [1, 2, 3, 6].map(|cell| row[cell].clone())
}

/// What these calls cost on the DynamoDB at `url`, as the guide has it.
pub async fn counted_on_dynamodb(calls: &[(String, Value)], url: &str) -> [String; 4] {
    let (mut writes, mut reads) = (0, 0);
    for call in calls {
        let (more_writes, more_reads) = units(call, url).await;
        (writes, reads) = (writes + more_writes, reads + more_reads);
    }
    let price = writes as f64 * PRICES.0 + reads as f64 * PRICES.1;
    // Half a cent goes up on paper, and to the even neighbour in Rust.
    [calls.len().to_string(), writes.to_string(), reads.to_string(), format!("{:.2}", price + 1e-9)]
}

/// DynamoDB's units for a call: writes of up to 1 KB, and reads of up to 4 KB, all of them consistent. A transaction's
/// writes count twice.
async fn units((operation, input): &(String, Value), dynamodb: &str) -> (u64, u64) {
    let length = |value: &Value| value.as_array().unwrap().len() as u64;
    match operation.as_str() {
        "PutItem" | "DeleteItem" => (written(input), 0),
        "TransactWriteItems" => {
            let writes = input["TransactItems"].as_array().unwrap().iter();
            (
                writes
                    .flat_map(|write| write.as_object().unwrap().values())
                    .map(|write| 2 * written(write))
                    .sum(),
                0,
            )
        }
        "BatchWriteItem" => {
            let tables = input["RequestItems"].as_object().unwrap().values();
            (tables.map(length).sum(), 0)
        }
        "GetItem" | "BatchGetItem" | "Query" => (0, read(operation, input, dynamodb).await),
        other => panic!("{other} has no price here"),
    }
}

/// The units of a write, of which no item here is over 1 KB before it.
fn written(write: &Value) -> u64 {
    let size = |(name, value): (&String, &Value)| {
        let value = value.as_object().unwrap().values().next().unwrap();
        name.len() + value.as_str().map_or_else(|| value.to_string().len(), str::len)
    };
    let item = write.get("Item").and_then(Value::as_object);
    (item.map_or(1, |item| item.iter().map(size).sum::<usize>()) as u64).div_ceil(1024)
}

/// The units of a read: it is asked once more, and DynamoDB says what that costs. What has been deleted since is less than
/// a unit.
async fn read(operation: &str, input: &Value, dynamodb: &str) -> u64 {
    let mut input = input.clone();
    input["ReturnConsumedCapacity"] = "TOTAL".into();
    let (status, answer) = call(dynamodb, operation, &input).await;
    assert_eq!(status, 200, "{answer}");
    let tables = match &answer["ConsumedCapacity"] {
        Value::Array(tables) => tables.clone(),
        table => vec![table.clone()],
    };
    let units: f64 = tables.iter().map(|table| table["CapacityUnits"].as_f64().unwrap()).sum();
    (units.ceil() as u64).max(1)
}

#[tokio::test]
async fn the_guide_counts_dynamodbs_requests_and_units_as_they_are() {
    let template = Template::read();
    let mut wrong = Vec::new();
    for Row { name, function, before, warm, event } in rows() {
        let stage = Stage::set(&template).await;
        let calls = stage.calls_of(function, &before, &warm, &event).await;
        let (stated, counted) =
            (stated_for_dynamodb(name), counted_on_dynamodb(&calls, &stage.dynamodb()).await);
        if stated != counted {
            wrong.push(format!(
                "{name}: requests, write units, read units, dollars: {counted:?}, not {stated:?}"
            ));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// The requests and commands of a row on Upstash, as Upstash counts them: those inside scripts too.
async fn on_upstash(template: &Template, Row { function, before, warm, event, .. }: &Row) -> (usize, u64) {
    let stack = template.with(&[ORIGIN, ("WeatherProvider", "sample")]);
    let stage = Stage::set(template).await;
    let mut servers = Environment::start(Backend::Upstash).await;
    let mut variables = environment(&stack, *function);
    variables.extend(servers.variables().iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
    variables.insert("LINE_API_BASE_URL".to_owned(), stage.line());
    let instance = warmed(*function, &variables, before, warm).await;
    let (known, asked) = (servers.redis().unwrap().commands().await, servers.gateway().unwrap().requests());
    instance.handle(event).await;
    let commands = servers.redis().unwrap().commands().await - known;
    (servers.gateway().unwrap().requests() - asked, commands)
}

#[tokio::test]
#[ignore = "needs redis-server"]
async fn the_guide_counts_upstashs_requests_and_commands_as_they_are() {
    let template = Template::read();
    let mut wrong = Vec::new();
    for each in rows() {
        let (requests, commands) = on_upstash(&template, &each).await;
        let (stated, counted) = (stated_for_upstash(each.name), counted_on_upstash(requests, commands));
        if stated != counted {
            wrong.push(format!("{}: requests, commands, dollars: {counted:?}, not {stated:?}", each.name));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[tokio::test]
#[ignore = "needs redis-server"]
async fn on_upstash_an_event_of_ten_from_the_queue_costs_at_most_13_commands() {
    let event = |seq: u64| {
        json!({
            "job_id": "job-1", "domain": "scan", "stage": "vision", "seq": seq, "data": {},
            "timestamp": "2025-11-03T08:15:30Z",
        })
    };
    let ten = batch(&(10..20).map(event).collect::<Vec<_>>());
    let row = Row { name: "", function: Function::Consumer, before: vec![], warm: vec![], event: ten };
    let (requests, commands) = on_upstash(&Template::read(), &row).await;
    assert!(requests == 1 && commands <= 130, "{requests} requests, {commands} commands");
}

#[tokio::test]
#[ignore = "needs redis-server"]
async fn on_upstash_an_edit_over_http_costs_at_most_5_commands() {
    let row = others().into_iter().find(|row| row.name == EDIT).unwrap();
    let (requests, commands) = on_upstash(&Template::read(), &row).await;
    assert!(requests == 2 && commands <= 5, "{requests} requests, {commands} commands");
}

#[tokio::test]
#[ignore = "needs redis-server"]
async fn on_upstash_a_tap_costs_at_most_9_commands_and_a_place_name_8() {
    let template = Template::read();
    for (name, limit) in TAPS.map(|name| (name, 9)).into_iter().chain([(PLACE, 8)]) {
        let row = forecasts().into_iter().find(|row| row.name == name).unwrap();
        let (_, commands) = on_upstash(&template, &row).await;
        assert!(commands <= limit, "{name}: {commands} commands");
    }
}
