//! An event as a producer sends it: parsing, and the complete list of what is wrong with it.

use std::fmt;

use onetap_calendar::{is_iso8601, utc_now};
use serde::de::{IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Value, json};

use crate::job::{domain_problem, id_problem, is_name};
use crate::{Job, Stages};

/// Largest JSON of an event, in bytes.
pub const MAX_EVENT_BYTES: usize = 128 * 1024;

/// What is wrong with an event. It quotes nothing of the event, because it is logged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Malformed(Vec<&'static str>);

impl Malformed {
    pub(crate) fn new(problems: Vec<&'static str>) -> Malformed {
        Malformed(problems)
    }

    /// The problems, one sentence each.
    pub fn problems(&self) -> &[&'static str] {
        &self.0
    }
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("; "))
    }
}

impl std::error::Error for Malformed {}

/// A valid event. Its text is kept byte for byte: fields that a newer producer added stay, and other readers see what
/// was sent.
#[derive(Clone, PartialEq, Eq)]
pub struct Event {
    job: Job,
    stage: String,
    seq: u64,
    sets_state: bool,
    text: String,
}

/// The fields as they stand in the JSON. `null` is a value; a duplicate field is an error.
#[derive(Deserialize)]
struct Fields {
    #[serde(default, deserialize_with = "present")]
    job_id: Option<Value>,
    #[serde(default, deserialize_with = "present")]
    domain: Option<Value>,
    #[serde(default, deserialize_with = "present")]
    stage: Option<Value>,
    #[serde(default, deserialize_with = "present")]
    seq: Option<Value>,
    #[serde(default, deserialize_with = "present")]
    data: Option<IgnoredAny>,
    #[serde(default, deserialize_with = "present")]
    timestamp: Option<Value>,
}

fn present<'de, T: Deserialize<'de>, D: Deserializer<'de>>(field: D) -> Result<Option<T>, D::Error> {
    T::deserialize(field).map(Some)
}

/// The whole JSON, validated without building a tree of values.
struct Walked {
    is_object: bool,
}

impl<'de> Deserialize<'de> for Walked {
    fn deserialize<D: Deserializer<'de>>(json: D) -> Result<Walked, D::Error> {
        struct Walk;
        const LEAF: Walked = Walked { is_object: false };

        impl<'de> Visitor<'de> for Walk {
            type Value = Walked;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("JSON")
            }

            fn visit_unit<E>(self) -> Result<Walked, E> {
                Ok(LEAF)
            }

            fn visit_bool<E>(self, _: bool) -> Result<Walked, E> {
                Ok(LEAF)
            }

            fn visit_i64<E>(self, _: i64) -> Result<Walked, E> {
                Ok(LEAF)
            }

            fn visit_u64<E>(self, _: u64) -> Result<Walked, E> {
                Ok(LEAF)
            }

            fn visit_f64<E>(self, _: f64) -> Result<Walked, E> {
                Ok(LEAF)
            }

            fn visit_str<E>(self, _: &str) -> Result<Walked, E> {
                Ok(LEAF)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Walked, A::Error> {
                while items.next_element::<Walked>()?.is_some() {}
                Ok(LEAF)
            }

            fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Walked, A::Error> {
                while fields.next_entry::<Walked, Walked>()?.is_some() {}
                Ok(Walked { is_object: true })
            }
        }

        json.deserialize_any(Walk)
    }
}

impl Event {
    /// An event that happens now, with anything that becomes JSON for its data.
    ///
    /// Stage and sequence number identify the event within its job. An event that is made and published again, with
    /// the same ones, is a duplicate, also if its data differs.
    ///
    /// ```
    /// use onetap_bus::{Event, Job, Stages};
    ///
    /// # fn main() -> Result<(), onetap_bus::Malformed> {
    /// let job = Job::new("scan", "job-1")?;
    /// let event = Event::new(&Stages::default(), &job, "vision", 10, &["a page", "another"])?;
    /// assert_eq!((event.stage(), event.seq()), ("vision", 10));
    /// # Ok(()) }
    /// ```
    pub fn new(
        stages: &Stages,
        job: &Job,
        stage: &str,
        seq: u64,
        data: &impl Serialize,
    ) -> Result<Event, Malformed> {
        let data =
            serde_json::to_value(data).map_err(|_| Malformed(vec!["data cannot be written as JSON"]))?;
        let event = json!({
            "job_id": job.id(),
            "domain": job.domain(),
            "stage": stage,
            "seq": seq,
            "data": data,
            "timestamp": utc_now(),
        });
        Event::parse(event.to_string(), stages)
    }

    /// Reads an event, or names everything that is wrong with it.
    ///
    /// ```
    /// let event = onetap_bus::Event::parse(
    ///     r#"{"job_id":"job-1","domain":"scan","stage":"rule","seq":31,"data":{},"timestamp":"yesterday"}"#,
    ///     &onetap_bus::Stages::default(),
    /// );
    /// assert_eq!(
    ///     event.unwrap_err().problems(),
    ///     ["seq is outside its stage's range", "timestamp is not ISO 8601 with a date and a time"],
    /// );
    /// ```
    pub fn parse(text: impl Into<String>, stages: &Stages) -> Result<Event, Malformed> {
        let text = text.into();
        if text.len() > MAX_EVENT_BYTES {
            return Err(Malformed(vec!["the event is over 128 KiB"]));
        }
        // Parsed twice. The first pass reads everything: values that are nested too deeply, or hold half a surrogate
        // pair, would fail in a later reader such as Redis' own. The second pass finds duplicate fields.
        match serde_json::from_str(&text) {
            Ok(Walked { is_object: true }) => {}
            Ok(_) => return Err(Malformed(vec!["the event is not a JSON object"])),
            Err(_) => return Err(Malformed(vec!["the event is not JSON"])),
        }
        let Ok(fields) = serde_json::from_str::<Fields>(&text) else {
            return Err(Malformed(vec!["a field of the event is there twice"]));
        };

        let mut problems = Vec::new();
        let id = fields.job_id.and_then(string).unwrap_or_default();
        problems.extend(id_problem(&id));
        let domain = fields.domain.and_then(string).unwrap_or_default();
        problems.extend(domain_problem(&domain));
        let stage = fields.stage.and_then(string).unwrap_or_default();
        let entry = stages.get(&stage);
        if !is_name(&stage) {
            problems.push("stage is not 1 to 32 of a-z 0-9 _ -");
        } else if entry.is_none() {
            problems.push("stage is not in the table of stages (EVENT_STAGES)");
        }
        let seq = fields.seq.as_ref().and_then(Value::as_u64);
        match seq {
            None => problems.push("seq is not a whole number"),
            Some(seq) if entry.is_some_and(|entry| !entry.seqs().contains(&seq)) => {
                problems.push("seq is outside its stage's range");
            }
            Some(_) => {}
        }
        if fields.data.is_none() {
            problems.push("data is missing");
        }
        if !fields.timestamp.and_then(string).is_some_and(|time| is_iso8601(&time)) {
            problems.push("timestamp is not ISO 8601 with a date and a time");
        }
        match (seq, entry) {
            (Some(seq), Some(entry)) if problems.is_empty() => {
                let sets_state = entry.sets_state();
                Ok(Event { job: Job::new(domain, id)?, stage, seq, sets_state, text })
            }
            _ => Err(Malformed(problems)),
        }
    }

    /// The job of the event.
    pub fn job(&self) -> &Job {
        &self.job
    }

    /// The stage of the job.
    pub fn stage(&self) -> &str {
        &self.stage
    }

    /// The sequence number, unique within the job.
    pub fn seq(&self) -> u64 {
        self.seq
    }

    /// Whether it becomes the latest state of its job, if its sequence number is the highest.
    pub(crate) fn sets_state(&self) -> bool {
        self.sets_state
    }

    /// The JSON as it was sent, byte for byte.
    pub fn text(&self) -> &str {
        &self.text
    }
}

/// Shows no id and no data, which may be personal.
impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Event({} {}, {} bytes)", self.stage, self.seq, self.text.len())
    }
}

fn string(value: Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text),
        _ => None,
    }
}

/// Stage and sequence number of a record in a job's log.
#[derive(Deserialize)]
pub(crate) struct EventNumber {
    pub(crate) stage: String,
    pub(crate) seq: u64,
}

impl EventNumber {
    /// `None` for a record that is not an event; nothing here writes one.
    pub(crate) fn of(text: &str) -> Option<EventNumber> {
        serde_json::from_str(text).ok()
    }

    pub(crate) fn is_final(&self, stages: &Stages) -> bool {
        stages.is_final(&self.stage, self.seq)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: impl Into<String>) -> Result<Event, Malformed> {
        Event::parse(text, &Stages::default())
    }

    fn good() -> Value {
        json!({"job_id": "job-1", "domain": "scan", "stage": "vision", "seq": 10,
            "data": {"status": "done"}, "timestamp": "2025-11-03T08:15:30.123456"})
    }

    fn with(field: &str, value: Value) -> Result<Event, Malformed> {
        let mut event = good();
        event[field] = value;
        parse(event.to_string())
    }

    fn problem(event: Result<Event, Malformed>) -> String {
        event.unwrap_err().to_string()
    }

    #[test]
    fn an_event_keeps_its_bytes() {
        let text = " {\n  \"seq\": 10, \"new_field\": [1.10, null],\r\n \"stage\":\"vision\",\"domain\":\"scan\",\
            \"job_id\":\"job-1\",\"data\":null,\"timestamp\":\"2025-11-03T08:15:30Z\"}\n";
        let event = parse(text).unwrap();
        assert_eq!((event.job().domain(), event.job().id()), ("scan", "job-1"));
        assert_eq!((event.stage(), event.seq(), event.text()), ("vision", 10, text));
    }

    #[test]
    fn any_data_will_do_if_there_is_some() {
        for data in [json!(null), json!(0), json!(""), json!([]), json!({"a": {"b": []}})] {
            assert!(with("data", data.clone()).is_ok(), "{data}");
        }
        let mut event = good();
        event.as_object_mut().unwrap().remove("data");
        assert_eq!(problem(parse(event.to_string())), "data is missing");
    }

    #[test]
    fn what_is_no_object_is_refused() {
        for text in ["", "not json", "{", "{} {}", "nul"] {
            assert_eq!(problem(parse(text)), "the event is not JSON", "{text}");
        }
        // An array must not pass for the fields in their order.
        for text in
            ["null", "1", r#""text""#, "[]", r#"["job-1","scan","vision",10,{},"2025-11-03T08:15:30Z"]"#]
        {
            assert_eq!(problem(parse(text)), "the event is not a JSON object", "{text}");
        }
    }

    #[test]
    fn every_missing_field_is_named() {
        let problems = parse("{}").unwrap_err();
        let named = ["job_id", "domain", "stage", "seq", "data", "timestamp"];
        assert_eq!(problems.problems().len(), named.len());
        for (problem, field) in problems.problems().iter().zip(named) {
            assert!(problem.starts_with(field), "{problem}");
        }
    }

    #[test]
    fn a_field_of_another_type_is_refused() {
        for field in ["job_id", "domain", "stage", "seq", "timestamp"] {
            for value in [json!(null), json!(true), json!([]), json!({}), json!(-1), json!(10.5)] {
                assert!(problem(with(field, value)).starts_with(field));
            }
        }
        assert!(problem(with("seq", json!("10"))).starts_with("seq"));
        assert!(problem(with("job_id", json!(7))).starts_with("job_id"));
    }

    #[test]
    fn a_seq_stays_within_its_stage() {
        for (stage, first) in
            [("vision", 10), ("rule", 20), ("answer", 30), ("reward", 40), ("done", 50), ("queued", 0)]
        {
            let event = |seq: u64| {
                let mut event = good();
                (event["stage"], event["seq"]) = (json!(stage), json!(seq));
                parse(event.to_string())
            };
            assert!(event(first).is_ok() && event(first + 9).is_ok(), "{stage}");
            assert_eq!(problem(event(first + 10)), "seq is outside its stage's range", "{stage}");
            if first > 0 {
                assert_eq!(problem(event(first - 1)), "seq is outside its stage's range", "{stage}");
            }
        }
    }

    #[test]
    fn another_table_has_other_stages() {
        let tokens = r#"[{"stage":"token","first":1000,"last":1999,"state":false},
            {"stage":"done","first":50,"last":59,"ends":50}]"#;
        let tokens = Stages::from_json(tokens).unwrap();
        let event = |stage: &str, seq: u64| {
            let mut event = good();
            (event["stage"], event["seq"]) = (json!(stage), json!(seq));
            Event::parse(event.to_string(), &tokens)
        };
        assert!(!event("token", 1999).unwrap().sets_state());
        assert!(event("done", 50).unwrap().sets_state());
        assert_eq!(problem(event("token", 10)), "seq is outside its stage's range");
        assert_eq!(problem(event("vision", 10)), "stage is not in the table of stages (EVENT_STAGES)");
    }

    #[test]
    fn an_event_can_be_made_of_its_parts() {
        let (stages, job) = (Stages::default(), Job::new("scan", "job-1").unwrap());
        let event = Event::new(&stages, &job, "rule", 21, &json!({"麵": [1, "二"]})).unwrap();
        assert_eq!((event.job(), event.stage(), event.seq()), (&job, "rule", 21));
        let text: Value = serde_json::from_str(event.text()).unwrap();
        assert_eq!(text["data"], json!({"麵": [1, "二"]}));
        assert_eq!(problem(Event::new(&stages, &job, "rule", 9, &())), "seq is outside its stage's range");
        let unwritable = std::collections::HashMap::from([(vec![1], 1)]);
        assert_eq!(
            problem(Event::new(&stages, &job, "rule", 20, &unwritable)),
            "data cannot be written as JSON"
        );
    }

    #[test]
    fn names_are_held_to_their_alphabets() {
        for (field, value) in [
            ("job_id", "{x}".to_owned()),
            ("job_id", "a\nb".to_owned()),
            ("job_id", "x".repeat(10_000)),
            ("domain", "Scan".to_owned()),
            ("stage", "vision!".to_owned()),
            ("stage", "x".repeat(33)),
        ] {
            assert!(problem(with(field, json!(value))).starts_with(field), "{field}");
        }
        for domain in ["user", "processing", "idem", "published", "router"] {
            assert_eq!(
                problem(with("domain", json!(domain))),
                "domain is reserved: user, processing, idem, published or router"
            );
        }
    }

    #[test]
    fn an_event_has_at_most_128_kib() {
        let room = MAX_EVENT_BYTES - good().to_string().len() - r#","pad":"""#.len();
        let padded = |n: usize| {
            let mut event = good();
            event["pad"] = json!("x".repeat(n));
            event.to_string()
        };
        assert_eq!(padded(room).len(), MAX_EVENT_BYTES);
        assert!(parse(padded(room)).is_ok());
        assert_eq!(problem(parse(padded(room + 1))), "the event is over 128 KiB");
    }

    #[test]
    fn a_field_that_is_there_twice_is_refused() {
        let text = good().to_string().replacen('{', r#"{"seq":59,"#, 1);
        assert_eq!(problem(parse(text)), "a field of the event is there twice");
    }

    #[test]
    fn what_other_readers_cannot_read_is_refused() {
        let deep = good()
            .to_string()
            .replace(r#"{"status":"done"}"#, &format!("{}{}", "[".repeat(200), "]".repeat(200)));
        assert_eq!(problem(parse(deep)), "the event is not JSON");
        let half = good().to_string().replace(r#""done""#, r#""\ud800""#);
        assert_eq!(problem(parse(half)), "the event is not JSON");
    }

    #[test]
    fn debug_shows_neither_id_nor_data() {
        let shown = format!("{:?}", parse(good().to_string()).unwrap());
        assert!(!shown.contains("job-1") && !shown.contains("status"), "{shown}");
    }
}
