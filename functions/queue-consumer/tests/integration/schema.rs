//! `events/event.schema.json` and `Event::parse` judge events alike, but for what a schema cannot say.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use onetap_bus::{Event, Stages};
use serde_json::{Map, Value, json};

use crate::harness::Dice;

/// Stages with their first numbers, and one of those that are not in the table.
const STAGES: [(&str, u64); 6] =
    [("vision", 10), ("rule", 20), ("answer", 30), ("reward", 40), ("done", 50), ("queued", 0)];
const ID: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._:-";
const NAME: &str = "abcdefghijklmnopqrstuvwxyz0123456789_-";

type Members = Map<String, Value>;
/// Puts one thing wrong.
type Wrong = fn(&mut Members, &mut Dice);

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

pub(crate) fn schema() -> Value {
    serde_json::from_slice(&fs::read(root().join("events/event.schema.json")).unwrap()).unwrap()
}

/// Whether each of `texts` is valid by a schema, as Python's jsonschema reads it.
pub(crate) fn judge(schema: &Value, texts: &[&str]) -> Vec<bool> {
    let tools = PathBuf::from(std::env::var_os("ONETAP_TOOLS").expect("cargo sets ONETAP_TOOLS"));
    let mut child = Command::new(tools.join("venv/bin/python"))
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/harness/schema.py"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("Python in the tools' venv: run scripts/tools");
    let input = json!({"schema": schema, "texts": texts}).to_string();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let verdicts: Vec<bool> = serde_json::from_slice(&child.wait_with_output().unwrap().stdout).unwrap();
    assert_eq!(verdicts.len(), texts.len());
    verdicts
}

fn is_event(text: &str) -> bool {
    Event::parse(text, &Stages::default()).is_ok()
}

/// The schema's `allOf` for these stages.
pub(crate) fn stage_rules(stages: &Stages) -> Value {
    let range = |seqs: std::ops::RangeInclusive<u64>| json!({"properties": {"seq": {"minimum": seqs.start(), "maximum": seqs.end()}}});
    let named = || stages.iter().filter(|stage| stage.name() != "*");
    let rule = |stage: &onetap_bus::Stage| json!({"if": {"properties": {"stage": {"const": stage.name()}}}, "then": range(stage.seqs())});
    let names: Vec<&str> = named().map(onetap_bus::Stage::name).collect();
    let others = stages.iter().find(|stage| stage.name() == "*");
    let others = others.map_or(json!(false), |stage| range(stage.seqs()));
    let rest = json!({"if": {"properties": {"stage": {"enum": names}}}, "else": others});
    named().map(rule).chain([rest]).collect()
}

fn pick<T: Copy>(from: &[T], dice: &mut Dice) -> T {
    from[dice.below(from.len())]
}

/// A text of this alphabet, often as short or as long as it may be.
fn name(alphabet: &str, max: usize, dice: &mut Dice) -> String {
    let length = [1, 2, 1 + dice.below(max), max][dice.below(4)];
    (0..length).map(|_| char::from(pick(alphabet.as_bytes(), dice))).collect()
}

fn timestamp(dice: &mut Dice) -> String {
    let mut two = |from: usize, to: usize| format!("{:02}", from + dice.below(to + 1 - from));
    let minute = format!("2025-{}-{}T{}:{}", two(1, 12), two(1, 28), two(0, 23), two(0, 59));
    let (second, hours) = (two(0, 60), two(0, 23));
    let time = match dice.below(4) {
        0 => minute,
        1 => format!("{minute}:{second}"),
        2 => format!("{minute}:{second}.{}", dice.below(1_000_000)),
        _ => format!("{minute}:{second},5"),
    };
    match dice.below(5) {
        0 => time,
        1 => time + "Z",
        2 => format!("{time}+{hours}"),
        3 => format!("{time}-{hours}30"),
        _ => format!("{time}+{hours}:59"),
    }
}

fn anything(dice: &mut Dice) -> Value {
    let values = [
        json!(null),
        json!(true),
        json!(7),
        json!(-1.5),
        json!(""),
        json!("字 \u{1F600}\n"),
        json!([]),
        json!({}),
    ];
    match dice.below(values.len() + 1) {
        n if n < values.len() => values[n].clone(),
        _ => json!({"a": [{"b": null}, 1e300], "字": "x".repeat(dice.below(300))}),
    }
}

fn valid(dice: &mut Dice) -> Members {
    let (stage, first) = pick(&STAGES, dice);
    let domain = match pick(&["scan", "users", "idem-2", ""], dice) {
        "" => name(NAME, 32, dice),
        domain => domain.to_owned(),
    };
    let mut event = json!({
        "job_id": name(ID, 128, dice), "domain": domain, "stage": stage,
        "seq": first + dice.below(10) as u64, "data": anything(dice), "timestamp": timestamp(dice),
    });
    if dice.below(3) == 0 {
        event[name(NAME, 32, dice) + "_new"] = anything(dice);
    }
    event.as_object().unwrap().clone()
}

/// A character that is in no name, put somewhere into the member: at its end, too.
fn with_a_wrong_character(member: &str, event: &mut Members, dice: &mut Dice) {
    let wrong =
        pick(&['\n', '\r', ' ', '/', '{', '}', '\0', '"', 'é', '字', '０', '\u{2028}', '\u{1F600}'], dice);
    let text = event[member].as_str().unwrap();
    let at = dice.below(text.len() + 1);
    event.insert(member.to_owned(), json!(format!("{}{wrong}{}", &text[..at], &text[at..])));
}

fn of_another_type(member: &str, event: &mut Members, dice: &mut Dice) {
    let types = [json!(null), json!(false), json!(0), json!(10.5), json!([]), json!(["x"]), json!({"x": 1})];
    event.insert(member.to_owned(), types[dice.below(types.len())].clone());
}

fn set(event: &mut Members, member: &str, value: Value) {
    event.insert(member.to_owned(), value);
}

const WRONGS: [(&str, Wrong); 33] = [
    ("no job_id", |e, _| _ = e.remove("job_id")),
    ("no domain", |e, _| _ = e.remove("domain")),
    ("no stage", |e, _| _ = e.remove("stage")),
    ("no seq", |e, _| _ = e.remove("seq")),
    ("no data", |e, _| _ = e.remove("data")),
    ("no timestamp", |e, _| _ = e.remove("timestamp")),
    ("job_id of another type", |e, d| of_another_type("job_id", e, d)),
    ("domain of another type", |e, d| of_another_type("domain", e, d)),
    ("stage of another type", |e, d| of_another_type("stage", e, d)),
    ("timestamp of another type", |e, d| of_another_type("timestamp", e, d)),
    ("seq as text", |e, _| set(e, "seq", json!(e["seq"].to_string()))),
    ("seq null", |e, _| set(e, "seq", json!(null))),
    ("seq true", |e, _| set(e, "seq", json!(true))),
    ("seq in a list", |e, _| set(e, "seq", json!([e["seq"]]))),
    ("an empty job_id", |e, _| set(e, "job_id", json!(""))),
    ("an empty domain", |e, _| set(e, "domain", json!(""))),
    ("an empty stage", |e, _| set(e, "stage", json!(""))),
    ("a long job_id", |e, d| set(e, "job_id", json!("x".repeat(129 + d.below(300))))),
    ("a long domain", |e, d| set(e, "domain", json!("x".repeat(33 + d.below(100))))),
    ("a long stage", |e, d| {
        set(e, "stage", json!("x".repeat(33 + d.below(100))));
        set(e, "seq", json!(d.below(10)));
    }),
    ("a wrong character in job_id", |e, d| with_a_wrong_character("job_id", e, d)),
    ("a wrong character in domain", |e, d| with_a_wrong_character("domain", e, d)),
    ("a wrong character in stage", |e, d| with_a_wrong_character("stage", e, d)),
    ("a wrong character in timestamp", |e, d| with_a_wrong_character("timestamp", e, d)),
    ("an upper-case domain", |e, _| set(e, "domain", json!("Scan"))),
    ("an upper-case stage", |e, d| {
        set(e, "stage", json!("Vision"));
        set(e, "seq", json!(d.below(10)));
    }),
    ("a reserved domain", |e, d| {
        set(e, "domain", json!(pick(&["user", "processing", "idem", "published", "router"], d)));
    }),
    ("a seq before its stage's", |e, _| {
        let first = e["seq"].as_i64().unwrap() / 10 * 10;
        set(e, "seq", json!(first - 1));
    }),
    ("a seq after its stage's", |e, _| {
        let first = e["seq"].as_i64().unwrap() / 10 * 10;
        set(e, "seq", json!(first + 10));
    }),
    ("a seq and a half", |e, _| set(e, "seq", json!(e["seq"].as_f64().unwrap() + 0.5))),
    ("a huge seq", |e, d| set(e, "seq", pick(&[u64::MAX, 1 << 53, 1 << 32], d).into())),
    ("the stage of another number", |e, _| {
        let first = e["seq"].as_u64().unwrap() / 10 * 10;
        let other = STAGES.iter().find(|(_, of)| *of != first).unwrap().0;
        set(e, "stage", json!(other));
    }),
    ("no time of day", |e, d| {
        let times = [
            "",
            "now",
            "1762157730",
            "2025-11-03",
            "08:15:30",
            "2025-11-03 08:15:30",
            "2025-13-03T08:15:30",
            "2025-00-03T08:15:30",
            "2025-11-00T08:15:30",
            "2025-11-32T08:15:30",
            "2025-11-03T24:00:00",
            "2025-11-03T08:60:00",
            "2025-11-03T08:15:61",
            "2025-11-03T08",
            "2025-11-03T08:15.5",
            "2025-11-03T08:15:30.",
            "2025-11-03T08:15:30.Z",
            "2025-11-03T08:15:30z",
            "2025-11-03t08:15:30Z",
            "2025-11-03T08:15:30+24:00",
            "2025-11-03T08:15:30+09:60",
            "2025-11-03T08:15:30+9",
            "2025-11-03T08:15:30+",
            "2025-11-03T08:15:30ZZ",
            "2025-11-03T08:15:30Z ",
            "2025-11-03T08:15:30Z\n",
            "２０２５-11-03T08:15:30",
            "25-11-03T08:15:30",
            "+2025-11-03T08:15:30",
            "20251103T081530Z",
            "2025-W45-1T08:15:30",
        ];
        set(e, "timestamp", json!(pick(&times, d)));
    }),
];

/// Texts, and for each whether it is an event.
fn generated() -> Vec<(String, &'static str, bool)> {
    let mut dice = Dice::new(20_251_103);
    let mut texts = Vec::new();
    for _ in 0..60 {
        for (what, wrong) in WRONGS {
            let mut event = valid(&mut dice);
            texts.push((Value::from(event.clone()).to_string(), "nothing wrong", true));
            wrong(&mut event, &mut dice);
            texts.push((Value::from(event).to_string(), what, false));
        }
    }
    texts
}

/// Every number near the table for every stage.
fn every_number() -> Vec<(String, &'static str, bool)> {
    let mut event = valid(&mut Dice::new(1));
    let mut texts = Vec::new();
    for (stage, first) in STAGES.into_iter().chain([("visions", 0), ("do", 0), ("0", 0)]) {
        for seq in 0..120 {
            (event["stage"], event["seq"]) = (json!(stage), json!(seq));
            let text = Value::from(event.clone()).to_string();
            texts.push((text, stage, (first..first + 10).contains(&seq)));
        }
    }
    texts
}

#[test]
#[ignore = "needs Python's jsonschema"]
fn the_schema_and_the_parser_judge_every_event_alike() {
    let mut texts = generated();
    texts.extend(every_number());
    for text in ["", "not json", "{", "{} {}", "null", "1", "\"text\"", "[]", "[{}]", "{}"] {
        texts.push((text.to_owned(), "no event", false));
    }
    assert!(texts.len() > 4_000);
    let verdicts = judge(&schema(), &texts.iter().map(|(text, ..)| text.as_str()).collect::<Vec<_>>());
    for ((text, what, expected), verdict) in texts.iter().zip(verdicts) {
        assert_eq!(is_event(text), *expected, "the parser: {what}: {text}");
        assert_eq!(verdict, *expected, "the schema: {what}: {text}");
    }
}

/// A time with one character more, fewer or another: by chance still a time, or not.
#[test]
#[ignore = "needs Python's jsonschema"]
fn the_schema_and_the_parser_judge_every_time_alike() {
    let mut dice = Dice::new(8_1530);
    let mut texts = Vec::new();
    while texts.len() < 4_000 {
        let mut event = valid(&mut dice);
        let mut time = timestamp(&mut dice).into_bytes();
        let (at, other) = (dice.below(time.len()), pick(b"0123456789TZ:+-., \n", &mut dice));
        match dice.below(3) {
            0 => _ = time.remove(at),
            1 => time.insert(at, other),
            _ => time[at] = other,
        }
        let time = String::from_utf8(time).unwrap();
        // Days that a month may lack are among the known differences.
        if time.get(8..10) <= Some("28") {
            set(&mut event, "timestamp", json!(time));
            texts.push(Value::from(event).to_string());
        }
    }
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let parsed: Vec<bool> = texts.iter().map(|text| is_event(text)).collect();
    assert!(parsed.iter().filter(|ok| **ok).count() > 400 && parsed.iter().filter(|ok| !**ok).count() > 400);
    for ((text, verdict), parsed) in texts.iter().zip(judge(&schema(), &texts)).zip(parsed) {
        assert_eq!(verdict, parsed, "{text}");
    }
}

#[test]
#[ignore = "needs Python's jsonschema"]
fn what_the_schema_lets_pass_and_the_parser_refuses_is_all_in_this_list() {
    const GOOD: &str = r#"{"job_id":"job-1","domain":"scan","stage":"vision","seq":10,"data":{},"timestamp":"2025-11-03T08:15:30Z"}"#;
    let with = |from: &str, to: &str| GOOD.replace(from, to);
    let nested = |depth: usize| with("{}", &("[".repeat(depth) + &"]".repeat(depth)));
    let padded = |bytes: usize| with("{}", &format!("\"{}\"", "x".repeat(bytes - GOOD.len())));
    let alike = [
        GOOD.to_owned(),
        nested(126),
        padded(128 * 1024),
        with("{}", "1e308"),
        with("{}", r#""\ud83d\ude00""#),
    ];
    let differences = [
        ("over 128 KiB", padded(128 * 1024 + 1)),
        ("a member that is there twice", with("{\"job_id\"", "{\"seq\":10,\"job_id\"")),
        ("nested deeper than 127", nested(127)),
        ("a number that is no 64-bit float", with("{}", "1e400")),
        ("half a surrogate pair", with("{}", r#""\ud800""#)),
        ("a whole number with a fraction", with(":10,", ":10.0,")),
        ("a whole number with an exponent", with(":10,", ":1e1,")),
        ("zero below zero", with("vision", "queued").replace(":10,", ":-0,")),
        ("a day that no February has", with("11-03", "02-30")),
        ("a day that only leap years have", with("11-03", "02-29")),
        ("a day that April lacks", with("11-03", "04-31")),
    ];
    let texts: Vec<&str> =
        alike.iter().chain(differences.iter().map(|(_, text)| text)).map(String::as_str).collect();
    assert!(judge(&schema(), &texts).iter().all(|valid| *valid), "the schema lets all of them pass");
    assert!(alike.iter().all(|text| is_event(text)), "up to the limits there is no difference");
    for (difference, text) in differences {
        assert!(!is_event(&text), "{difference}");
    }
}

#[test]
#[ignore = "needs Python's jsonschema"]
fn the_schema_judges_the_scenarios_as_the_parser_does() {
    let mut bodies = Vec::new();
    for file in fs::read_dir(root().join("events/queue-consumer")).unwrap() {
        let batch: Value = serde_json::from_slice(&fs::read(file.unwrap().path()).unwrap()).unwrap();
        let records = batch["Records"].as_array().unwrap();
        bodies.extend(records.iter().map(|record| record["body"].as_str().unwrap().to_owned()));
    }
    let bodies: Vec<&str> = bodies.iter().map(String::as_str).collect();
    let parsed: Vec<bool> = bodies.iter().map(|body| is_event(body)).collect();
    assert!(parsed.contains(&true) && parsed.contains(&false));
    assert_eq!(judge(&schema(), &bodies), parsed);
}

#[test]
fn the_stages_of_the_schema_are_the_default_ones() {
    assert_eq!(schema()["allOf"], stage_rules(&Stages::default()));
}

/// What the README tells those who have stages of their own.
#[test]
#[ignore = "needs Python's jsonschema"]
fn with_its_stages_replaced_the_schema_judges_by_those() {
    let own = r#"{"stage":"plan","first":5,"last":9},{"stage":"token","first":1000,"last":999999,"state":false},
        {"stage":"end","first":100,"last":100,"ends":100}"#;
    for table in [format!("[{own}]"), format!(r#"[{own},{{"stage":"*","first":200,"last":299}}]"#)] {
        let stages = Stages::from_json(&table).unwrap();
        let mut replaced = schema();
        replaced["allOf"] = stage_rules(&stages);
        let mut event = valid(&mut Dice::new(1));
        let mut texts = Vec::new();
        for stage in ["plan", "token", "end", "vision", "done"] {
            for seq in [0, 4, 5, 9, 10, 99, 100, 101, 199, 200, 299, 300, 999, 1000, 1001, 999_999, 1_000_000]
            {
                (event["stage"], event["seq"]) = (json!(stage), json!(seq));
                texts.push(Value::from(event.clone()).to_string());
            }
        }
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let parsed: Vec<bool> = texts.iter().map(|text| Event::parse(*text, &stages).is_ok()).collect();
        assert!(parsed.iter().filter(|ok| **ok).count() >= 6);
        assert_eq!(judge(&replaced, &texts), parsed);
    }
}
