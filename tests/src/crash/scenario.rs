//! What happens, as data: a request with what comes before it, and where its effects can be seen.
//!
//! `{id}` stands in all texts for something that is new in every run, so that runs do not see each other; in what was
//! observed it is put back, so that runs can be compared. `{erasure}` is the data of the button that confirms an erasure of
//! `U{id}`, asked for at `{now}`.

use std::collections::BTreeMap;

use onetap_ledger::Moment;
use onetap_line::testing::AcceptedReply;
use onetap_store::{Key, Log, Position, Store};
use serde_json::Value;

use super::function::Request;
use super::ledger::Ledger;

/// One thing that a platform asks for, and dies in the middle of.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// As a sentence.
    pub name: &'static str,
    /// What has happened already.
    pub before: Vec<Request>,
    /// What the process dies of.
    pub request: Request,
    /// What somebody else does between the crash and the retry, to the value under the first of `keys`.
    pub between: Option<Request>,
    /// What happens when everything has been seen; after it everything is looked at once more, down to what only the
    /// server sees.
    pub afterwards: Vec<Request>,
    /// The statuses that the retry may end with, the first of them being that of an undisturbed run.
    pub ends_with: &'static [u16],
    /// Whether the request has a key under which its answer is kept.
    pub keyed: bool,
    /// The keys with its effects.
    pub keys: Vec<String>,
    /// The logs with its effects.
    pub logs: Vec<String>,
    /// The users with its effects in their ledgers.
    pub ledgers: Vec<String>,
    /// The number of records that an undisturbed run leaves in them, with those of what comes before and between.
    pub records: usize,
    /// The locks that it takes.
    pub locks: Vec<String>,
    /// The reply tokens that LINE has given it.
    pub replies: Vec<String>,
    /// Those of them whose event finds the lock taken by the event before it. After a crash in between it finds it
    /// free, and gets what it asked for.
    pub may_wait: Vec<String>,
}

impl Scenario {
    /// One without anything before or between it and without effects, to begin with.
    pub fn new(name: &'static str, request: Request) -> Scenario {
        Scenario {
            name,
            before: Vec::new(),
            request,
            between: None,
            afterwards: Vec::new(),
            ends_with: &[200],
            keyed: false,
            keys: Vec::new(),
            logs: Vec::new(),
            ledgers: Vec::new(),
            records: 0,
            locks: Vec::new(),
            replies: Vec::new(),
            may_wait: Vec::new(),
        }
    }

    /// The scenario of one run.
    pub(super) fn with_id(&self, id: &str) -> Scenario {
        let text = |text: &String| text.replace("{id}", id);
        let now = Moment::now();
        let erasure = webhook::bookkeeping::confirmation::button_data(&format!("U{id}"), now);
        let request = |request: &Request| {
            let json = serde_json::to_string(request).unwrap().replace("{id}", id);
            let json = json.replace("{erasure}", &erasure);
            let json = json.replace("\"{now}\"", &(now.unix() * 1000).to_string());
            serde_json::from_str(&json).unwrap()
        };
        let texts = |texts: &[String]| texts.iter().map(text).collect();
        Scenario {
            before: self.before.iter().map(request).collect(),
            request: request(&self.request),
            between: self.between.as_ref().map(request),
            afterwards: self.afterwards.iter().map(request).collect(),
            keys: texts(&self.keys),
            logs: texts(&self.logs),
            ledgers: texts(&self.ledgers),
            locks: texts(&self.locks),
            replies: texts(&self.replies),
            may_wait: texts(&self.may_wait),
            ..self.clone()
        }
    }

    /// Everything that is asked for in it, as one text.
    pub(super) fn words(&self) -> String {
        let asked = self.before.iter().chain([&self.request]).chain(&self.between).chain(&self.afterwards);
        asked.map(|request| serde_json::to_string(request).unwrap()).collect()
    }
}

/// What a run left behind, by where it was found.
pub(super) type Observation = BTreeMap<String, Vec<String>>;

/// What the run with this `id` left behind.
pub(super) async fn observe(
    run: &Scenario,
    id: &str,
    store: &dyn Store,
    taken: &[AcceptedReply],
) -> Observation {
    let mut seen = Observation::new();
    let mut records: Vec<(Position, String)> = Vec::new();
    let words = run.words();
    let mut ledgers = Vec::new();
    for user in &run.ledgers {
        let ledger = Ledger::read(user, &words, store).await;
        seen.extend(ledger.seen());
        ledgers.push(ledger);
    }
    for name in &run.logs {
        let log = store.read(&Log::new(name.as_str()).unwrap(), None, 10_000).await.unwrap();
        // A stream has other runs' events too, and which stream it is depends on the id.
        let own: Vec<_> = log.into_iter().filter(|record| record.text.contains(id)).collect();
        // What was cut short and came again stands in another order than it was sent in.
        let place = if name.contains(":events:") { "streams" } else { name.as_str() };
        let texts = seen.entry(place.to_owned()).or_default();
        texts.extend(own.iter().map(|record| record.text.clone()));
        texts.sort();
        records.extend(own.into_iter().map(|record| (record.position, record.text)));
    }
    for name in &run.keys {
        let value = store.get(&Key::new(name.as_str()).unwrap()).await.unwrap();
        let ledger = ledgers.iter().find(|ledger| ledger.has(name));
        let value = value.map(|text| match text.parse::<Position>() {
            Ok(position) => match records.iter().any(|(at, text)| *at == position && marker(text) == *name) {
                true => "the position of its event".to_owned(),
                false => "the position of something else".to_owned(),
            },
            Err(_) => serde_json::from_str(&text).map_or(text, |json| masked(json, ledger).to_string()),
        });
        seen.insert(name.clone(), value.into_iter().collect());
    }
    for token in &run.replies {
        let to_it = taken.iter().filter(|reply| reply.reply_token == *token);
        let text = |reply: &AcceptedReply| match run.may_wait.contains(token) {
            true => "told to wait, or answered".to_owned(),
            false => first_line(reply.text()),
        };
        seen.insert(token.clone(), to_it.map(text).collect());
    }
    let general = |text: String| text.replace(id, "{id}");
    seen.into_iter().map(|(name, texts)| (general(name), texts.into_iter().map(general).collect())).collect()
}

/// The key that says where this event stands.
fn marker(event: &str) -> String {
    let event: Value = serde_json::from_str(event).unwrap();
    let text = |name: &str| event[name].as_str().unwrap_or_default().to_owned();
    format!("published:{}:{}:{}", text("job_id"), text("stage"), event["seq"])
}

/// Without what is new in every run: owners, and the time of day. An entry is told by the number that it has in its
/// ledger. A marker that has the answer in it is as good as one that says that the answer was given.
pub(super) fn masked(json: Value, ledger: Option<&Ledger>) -> Value {
    match json {
        Value::Object(map) => {
            let mask = |(name, value): (String, Value)| match name.as_str() {
                "交易ID" | "last_id" | "日期" => {
                    let text = value.as_str().unwrap_or_default();
                    let known = ledger.and_then(|ledger| ledger.general(text));
                    (name, known.unwrap_or_else(|| "…".to_owned()).into())
                }
                "owner" | "since" | "時間" | "at" | "until" | "ids" => (name, Value::from("…")),
                "ok" if value == "answered" || value.get("answer").is_some() => (name, "done".into()),
                _ => (name, masked(value, ledger)),
            };
            map.into_iter().map(mask).collect()
        }
        Value::Array(values) => values.into_iter().map(|value| masked(value, ledger)).collect(),
        other => other,
    }
}

/// The first line of a reply: the others tell the time.
fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}
