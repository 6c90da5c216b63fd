//! The functions as they are deployed, and what they are compared with: programs, their variables and their events.

use std::path::{Path, PathBuf};

use onetap_config::Secret;
use onetap_line::signature::sign;
use serde_json::{Value, json};

use crate::runtime_api::Function;
use crate::{Error, Result};

/// A program that can be started as a Lambda function.
#[derive(Clone, Debug)]
pub struct Program {
    /// The file.
    pub path: PathBuf,
    /// What follows it on the command line.
    pub arguments: Vec<String>,
    /// Its environment, beside Lambda's own.
    pub variables: Vec<(String, String)>,
    /// What every good answer contains.
    pub good: &'static str,
    /// The event that it is started with.
    pub event: Vec<u8>,
}

impl Program {
    /// Starts it; its first event waits already.
    pub fn start(&self) -> Result<Function> {
        Function::start(&self.path, &self.arguments, &self.variables, self.good, Some(&self.event))
    }
}

/// One of our functions, from this folder, with a store's variables.
pub fn function(name: &str, folder: &Path, store: &[(String, String)], line_api: &str) -> Result<Program> {
    let (file, good, more): (_, _, &[(&str, &str)]) = match name {
        "webhook" => (
            "webhook/verify.json",
            r#""statusCode":200"#,
            &[
                ("LINE_CHANNEL_SECRET", SECRET),
                ("LINE_CHANNEL_ACCESS_TOKEN", ACCESS_TOKEN),
                ("WEATHER_PROVIDER", "sample"),
                ("LINE_API_BASE_URL", line_api),
            ],
        ),
        "edit-last-transaction" => (
            "edit-last-transaction/record.json",
            r#""statusCode":20"#,
            &[("EDIT_API_TOKEN", "local-edit-token")],
        ),
        "queue-consumer" => ("queue-consumer/one-event.json", r#""batchItemFailures":[]"#, &[]),
        "job-events" => (
            "job-events/state.json",
            r#""statusCode":"#,
            &[("JOB_EVENTS_SECRET", "secret"), ("JOB_EVENTS_ALLOW_ORIGIN", "*")],
        ),
        _ => return Err(Error::from(format!("no function {name}"))),
    };
    let mut variables = store.to_vec();
    variables.extend(more.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
    let event = event(file)?;
    Ok(Program { path: folder.join(name), arguments: Vec::new(), variables, good, event })
}

/// The floor, with the event of the function that it is compared with.
pub fn hello(path: PathBuf, good: &'static str, event: Vec<u8>) -> Program {
    Program { path, arguments: Vec::new(), variables: Vec::new(), good, event }
}

/// What the events under `events` are signed with.
const SECRET: &str = "local-channel-secret";
/// The channel access token of LINE's stand-in.
pub const ACCESS_TOKEN: &str = "local-access-token";

/// One of the scenarios.
pub fn event(file: &str) -> Result<Vec<u8>> {
    let text = std::fs::read_to_string(Path::new("events").join(file))
        .map_err(|error| format!("{file}: {error}"))?;
    // As it travels: without the file's line breaks.
    Ok(serde_json::from_str::<Value>(&text)?.to_string().into_bytes())
}

/// Whose events are numbered. Each section has numbers of its own: an event with a number that another has used is a duplicate,
/// and a function does less for it.
#[derive(Clone, Copy, Debug)]
pub enum Numbers {
    /// The starts.
    Start,
    /// The first taps.
    FirstTap,
    /// The warm invocations.
    Warm,
}

impl Numbers {
    /// The first of many. New in every run, also on a store that saw one before.
    pub fn first(self) -> u64 {
        (u64::from(std::process::id()) << 32) + ((self as u64) << 28)
    }
}

/// A user's tap on `home`, new every time, and signed.
pub fn tap(number: u64) -> Result<Vec<u8>> {
    let mut event: Value = serde_json::from_slice(&event("webhook/tap-home.json")?)?;
    let body = event["body"].as_str().ok_or("a delivery without a body")?;
    let mut delivery: Value = serde_json::from_str(body)?;
    delivery["events"][0]["webhookEventId"] = json!(format!("01BENCH{number:019}"));
    delivery["events"][0]["replyToken"] = json!(format!("token-{number}"));
    delivery["events"][0]["source"]["userId"] = json!(format!("U{number:032x}"));
    let body = delivery.to_string();
    event["headers"]["x-line-signature"] = json!(sign(&Secret::new(SECRET), body.as_bytes()));
    event["body"] = json!(body);
    Ok(event.to_string().into_bytes())
}

/// A batch of messages, each an event of a new job.
pub fn messages(number: u64, size: u64) -> Result<Vec<u8>> {
    let mut event: Value = serde_json::from_slice(&event("queue-consumer/one-event.json")?)?;
    let record = event["Records"][0].clone();
    let body = record["body"].as_str().ok_or("a message without a body")?;
    let records = (0..size).map(|n| {
        let mut record = record.clone();
        record["messageId"] = json!(format!("message-{number}-{n}"));
        record["body"] = json!(body.replace("job-1", &format!("bench-{number}-{n}")));
        record
    });
    event["Records"] = records.collect();
    Ok(event.to_string().into_bytes())
}

/// An edit of the amount, another every time.
pub fn edit(number: u64) -> Result<Vec<u8>> {
    let mut event: Value = serde_json::from_slice(&event("edit-last-transaction/edit.json")?)?;
    event["body"] = json!(json!({ "原幣金額": 100 + number % 900 }).to_string());
    event["isBase64Encoded"] = json!(false);
    Ok(event.to_string().into_bytes())
}
