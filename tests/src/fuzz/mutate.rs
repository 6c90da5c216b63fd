//! Inputs: seeds of the repository, changed at random in ways that parsers are known to stumble over.

use onetap_store::testing::random::Random;
use serde_json::Value;

/// Longest input.
const MAX_INPUT_BYTES: usize = 64 << 10;

/// Texts that parsers are known to mishandle: separators of our keys, ends of strings, numbers at limits, scripts.
const WORDS: [&str; 56] = [
    "",
    " ",
    ":",
    "*",
    "{}",
    "[]",
    "null",
    "true",
    "-0",
    "0",
    "1e400",
    "-1",
    "0.1",
    "1E5",
    "..",
    "../",
    "%2e%2e%2f",
    "%00",
    "%",
    "%zz",
    "\u{0}",
    "\n",
    "\r\n",
    "\t",
    "\"",
    "\\",
    "\\u0000",
    "\\ud800",
    "\u{feff}",
    "\u{202e}",
    "é",
    "👩‍👩‍👧‍👦",
    "台",
    "臺",
    "午餐 120 信用卡",
    "修改金額 150",
    "刪除上一筆",
    "刪除我的資料",
    "設定住家 永和",
    "昨天",
    "18446744073709551616",
    "9223372036854775808",
    "999999999999999999.99999999",
    "2025-02-30",
    "20251129-143000",
    "action=weather&type=home",
    "user:U1:profile",
    "processing:user:U1",
    "idem:line:1",
    "Uffffffff",
    "scan",
    "done",
    "1700000000000-0",
    "W/\"x\"",
    "data: subscribe,",
    "WRONGTYPE",
];

/// One more input: mostly one of the seeds, of which there is at least one, with a few changes.
pub fn mutated(random: &mut Random, seeds: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = random.of(seeds).clone();
    if random.below(20) == 0 {
        let length = random.below(200);
        bytes = (0..length).map(|_| random.number() as u8).collect();
    }
    // Inside the JSON first: a change of bytes alone rarely gets past the parser.
    if random.below(4) != 0
        && let Some((start, mut json)) = json_in(&bytes)
    {
        for _ in 0..=random.below(4) {
            change_value(random, &mut json);
        }
        bytes.truncate(start);
        bytes.extend_from_slice(json.to_string().as_bytes());
    }
    if random.below(2) == 0 {
        for _ in 0..=random.below(5) {
            change_bytes(random, &mut bytes, seeds);
        }
    }
    bytes.truncate(MAX_INPUT_BYTES);
    bytes
}

/// The JSON that the bytes are, or that stands behind a first byte with a meaning of its own.
fn json_in(bytes: &[u8]) -> Option<(usize, Value)> {
    (0..2).find_map(|start| Some((start, serde_json::from_slice(bytes.get(start..)?).ok()?)))
}

fn change_bytes(random: &mut Random, bytes: &mut Vec<u8>, seeds: &[Vec<u8>]) {
    let at = random.below(bytes.len() + 1);
    let end = (at + random.below(16)).min(bytes.len());
    match random.below(8) {
        0 if at < bytes.len() => bytes[at] ^= 1 << random.below(8),
        1 if at < bytes.len() => bytes[at] = random.number() as u8,
        2 => drop(bytes.drain(at..end)),
        3 => bytes.truncate(at),
        4 => {
            let piece: Vec<u8> = bytes[at..end].repeat(1 + random.below(40));
            bytes.splice(at..at, piece);
        }
        5 => {
            let other = random.of(seeds).clone();
            let from = random.below(other.len());
            bytes.truncate(at);
            bytes.extend_from_slice(&other[from..]);
        }
        _ => {
            let word = *random.of(&WORDS);
            bytes.splice(at..at, word.bytes());
        }
    }
}

/// Goes down into the value by chance, and changes what is there.
fn change_value(random: &mut Random, value: &mut Value) {
    let deeper = random.below(3) != 0;
    match value {
        Value::Array(items) if deeper && !items.is_empty() => {
            let at = random.below(items.len());
            match random.below(6) {
                0 => items.insert(at, items[at].clone()),
                1 => drop(items.remove(at)),
                _ => change_value(random, &mut items[at]),
            }
        }
        Value::Object(fields) if deeper && !fields.is_empty() => {
            let names: Vec<String> = fields.keys().cloned().collect();
            let name = random.of(&names).clone();
            match random.below(8) {
                0 => drop(fields.remove(&name)),
                1 => drop(fields.insert((*random.of(&WORDS)).to_owned(), any(random))),
                2 => {
                    let moved = fields.remove(&name).unwrap_or_default();
                    fields.insert(random.of(&names).clone(), moved);
                }
                _ => change_value(random, fields.entry(name).or_insert(Value::Null)),
            }
        }
        Value::String(text) if deeper => {
            let mut at = random.below(text.len() + 1);
            while !text.is_char_boundary(at) {
                at -= 1;
            }
            let word = *random.of(&WORDS);
            text.insert_str(at, word);
        }
        other => *other = any(random),
    }
}

fn any(random: &mut Random) -> Value {
    let word = *random.of(&WORDS);
    match random.below(9) {
        0 => Value::Null,
        1 => Value::Bool(random.below(2) == 0),
        2 => Value::from(random.number()),
        3 => Value::from(random.number() as i64),
        4 => Value::from(f64::from_bits(random.number())),
        5 => Value::from(word.repeat(random.below(300))),
        6 => (0..random.below(140)).fold(Value::from(word), |inner, n| {
            if n % 2 == 0 { Value::from(vec![inner]) } else { serde_json::json!({ "a": inner }) }
        }),
        _ => Value::from(word),
    }
}
