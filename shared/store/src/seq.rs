//! The sequence number of a JSON object, for [`Batch::put_if_newer`](crate::Batch::put_if_newer).

use std::collections::BTreeMap;

use serde_json::value::RawValue;

/// The `seq` of a JSON object: a whole number of at most 2^53, up to which JSON parsers are exact. `None` for any other
/// text; every sequence number is newer than that.
///
/// If the text begins with `{"seq":N,` or `{"seq":N}`, only that beginning is read. That needs no JSON parser, so the
/// backends need no parsers that agree. Every other text is parsed here, and nowhere else.
pub fn seq_of(json: &str) -> Option<u64> {
    leading_seq(json).or_else(|| parsed_seq(json))
}

/// Sequence numbers are at most 2^53.
const MAX_SEQ: u64 = 1 << 53;

fn leading_seq(json: &str) -> Option<u64> {
    let rest = json.strip_prefix(r#"{"seq":"#)?;
    let (digits, _) = rest.split_once([',', '}'])?;
    let plain = digits.bytes().all(|b| b.is_ascii_digit()) && (digits == "0" || !digits.starts_with('0'));
    digits.parse().ok().filter(|seq| plain && *seq <= MAX_SEQ)
}

/// The same object with `seq` as its first member. An invalid text is returned unchanged; `validate` rejects it.
pub(crate) fn beginning_with_seq(seq: u64, json: String) -> String {
    if leading_seq(&json).is_some() || parsed_seq(&json) != Some(seq) {
        return json;
    }
    let Ok(members) = serde_json::from_str::<BTreeMap<String, &RawValue>>(&json) else {
        return json;
    };
    let mut object = format!(r#"{{"seq":{seq}"#);
    for (name, value) in members.iter().filter(|(name, _)| *name != "seq") {
        let Ok(name) = serde_json::to_string(name) else {
            return json;
        };
        object.extend([",", &name, ":", value.get()]);
    }
    object.push('}');
    object
}

pub(crate) fn parsed_seq(json: &str) -> Option<u64> {
    #[derive(serde::Deserialize)]
    struct Sequenced {
        seq: serde_json::Number,
    }
    // serde would also accept an array of the struct's fields.
    let object =
        json.trim_start().starts_with('{').then(|| serde_json::from_str::<Sequenced>(json).ok()).flatten()?;
    let whole = |number: f64| number.fract() == 0.0 && (0.0..=MAX_SEQ as f64).contains(&number);
    let seq = object.seq.as_u64().or_else(|| object.seq.as_f64().filter(|n| whole(*n)).map(|n| n as u64));
    seq.filter(|seq| *seq <= MAX_SEQ)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sequence_is_read_from_the_beginning_without_parsing() {
        for (text, seq) in [
            (r#"{"seq":7}"#, Some(7)),
            (r#"{"seq":0,"a":1}"#, Some(0)),
            (r#"{"seq":7,"seq":9}"#, Some(7)),
            (r#"{"seq":7,"#, Some(7)),
            (r#"{"seq":9007199254740992}"#, Some(MAX_SEQ)),
            (r#"{"seq":9007199254740993}"#, None),
            (r#"{"seq":07}"#, None),
            (r#"{"seq":}"#, None),
            (r#"{"seq":+7}"#, None),
            (r#"{"seq":-1}"#, None),
            (r#" {"seq": 7.0}"#, Some(7)),
            (r#"{"a":1,"seq":7}"#, Some(7)),
            (r#"{"a":1,"seq":7,"seq":7}"#, None),
            (r#"[{"seq":7}]"#, None),
            ("[7]", None),
            ("", None),
        ] {
            assert_eq!(seq_of(text), seq, "{text}");
        }
    }

    #[test]
    fn what_is_kept_begins_with_its_sequence_and_loses_nothing() {
        for (given, kept) in [
            (r#"{"seq":7,"b":1,"a":2}"#, r#"{"seq":7,"b":1,"a":2}"#),
            (r#"{"b" : 1.10, "seq":7, "a":{"seq":9} }"#, r#"{"seq":7,"a":{"seq":9},"b":1.10}"#),
            (r#" {"seq": 7.0}"#, r#"{"seq":7}"#),
            (r#"{"\u0073eq":7}"#, r#"{"seq":7}"#),
            (r#"{"天":"\ud83d","q\"":"","seq":7}"#, r#"{"seq":7,"q\"":"","天":"\ud83d"}"#),
            // Invalid: unchanged, and rejected with the batch.
            (r#"{"a":1,"seq":8}"#, r#"{"a":1,"seq":8}"#),
            (r#"{"a":1,"seq":7,"seq":7}"#, r#"{"a":1,"seq":7,"seq":7}"#),
            ("no json", "no json"),
        ] {
            assert_eq!(beginning_with_seq(7, given.to_owned()), kept);
        }
    }
}
