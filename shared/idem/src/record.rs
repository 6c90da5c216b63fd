//! What stands under a record's key: first a claim, then a result, each one line of JSON that other programs and
//! `redis-cli` can read.
//!
//! ```text
//! {"owner":"…","fp":"…"}                 claimed; alive as long as its lease
//! {"owner":"…","fp":"…","until":1700…}   claimed, at most once: by when its owner renews it, in milliseconds
//! {"owner":"…","fp":"…","ok":…}          done, with this value
//! {"owner":"…","fp":"…","err":…}         failed for good, with this error
//! {"owner":"…","fp":"…","kept":false}    done; the value was not kept
//! ```

use std::fmt;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};

use super::MAX_RESULT;
use onetap_store::Error;

/// A record as it was found.
pub(super) struct Record {
    pub(super) owner: String,
    pub(super) fingerprint: Option<String>,
    pub(super) state: State,
}

/// How far its owner got.
pub(super) enum State {
    Claimed { until: Option<u64> },
    Done(Outcome),
}

/// What a finished run left behind. The JSON is kept as it was written, so that a replay is byte-equal.
#[derive(Clone)]
pub(crate) enum Outcome {
    Ok(Box<RawValue>),
    Err(Box<RawValue>),
    NotKept,
}

impl Outcome {
    /// What cannot be written as JSON cannot be kept, as what is too large cannot: that it is done still can.
    pub(super) fn ok(value: &impl Serialize) -> Outcome {
        written(value).map_or(Outcome::NotKept, Outcome::Ok)
    }

    pub(super) fn err(error: &impl Serialize) -> Outcome {
        written(error).map_or(Outcome::NotKept, Outcome::Err)
    }

    /// A value that has checked its size itself.
    #[cfg(feature = "tower")]
    pub(super) fn of_any_size(value: &impl Serialize) -> Outcome {
        to_raw_value(value).map_or(Outcome::NotKept, Outcome::Ok)
    }
}

fn written(value: &impl Serialize) -> Option<Box<RawValue>> {
    to_raw_value(value).ok().filter(|json| size(json.get()) <= MAX_RESULT)
}

/// The size of a JSON text in bytes, where an escape sequence counts as one byte: what the value is, and not how JSON
/// has to write it.
fn size(json: &str) -> usize {
    if json.len() <= MAX_RESULT {
        return json.len();
    }
    let (mut size, mut bytes) = (0, json.bytes());
    while let Some(byte) = bytes.next() {
        size += 1;
        if byte == b'\\' && bytes.next() == Some(b'u') {
            // Its four digits.
            bytes.nth(3);
        }
    }
    size
}

/// A value as its record has it, and the record. JSON does not carry everything (`Some(None)`, a skipped field): the
/// first caller is given what every repeat will be. What could not be read back is not kept, and is returned as it is.
pub(crate) fn carried<T: Serialize + DeserializeOwned>(
    value: T,
    write: fn(Box<RawValue>) -> Outcome,
) -> (T, Outcome) {
    let Some(json) = written(&value) else { return (value, Outcome::NotKept) };
    match serde_json::from_str(json.get()) {
        Ok(carried) => (carried, write(json)),
        Err(_) => {
            tracing::warn!("a result cannot be read back from its JSON, and is not kept");
            (value, Outcome::NotKept)
        }
    }
}

/// The text of a claim.
pub(super) fn claim(owner: &str, fingerprint: Option<&str>, until: Option<u64>) -> String {
    let until = until.map(|until| format!(r#","until":{until}"#)).unwrap_or_default();
    format!("{{{}{until}}}", signature(owner, fingerprint))
}

/// The text of a result.
pub(super) fn result(owner: &str, fingerprint: Option<&str>, outcome: &Outcome) -> String {
    let signature = signature(owner, fingerprint);
    match outcome {
        Outcome::Ok(json) => format!(r#"{{{signature},"ok":{json}}}"#),
        Outcome::Err(json) => format!(r#"{{{signature},"err":{json}}}"#),
        Outcome::NotKept => format!(r#"{{{signature},"kept":false}}"#),
    }
}

fn signature(owner: &str, fingerprint: Option<&str>) -> String {
    match fingerprint {
        None => [r#""owner":"#, &quoted(owner)].concat(),
        Some(fingerprint) => [r#""owner":"#, &quoted(owner), r#","fp":"#, &quoted(fingerprint)].concat(),
    }
}

/// The text as JSON. What we make up ourselves is hexadecimal and needs no escapes; a record found may hold anything.
fn quoted(text: &str) -> String {
    match text.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        true => [r#"""#, text, r#"""#].concat(),
        false => Value::from(text).to_string(),
    }
}

/// The record that `text` is. What it does not know it ignores: a newer version may have written it.
pub(super) fn parse(text: &str) -> Result<Record, Error> {
    #[derive(Deserialize)]
    struct Form<'a> {
        owner: String,
        fp: Option<String>,
        until: Option<u64>,
        #[serde(borrow, default, deserialize_with = "present")]
        ok: Option<&'a RawValue>,
        #[serde(borrow, default, deserialize_with = "present")]
        err: Option<&'a RawValue>,
        kept: Option<bool>,
    }
    // `null` is a value like any other here: serde's own `Option` would take it for a missing field, and a
    // finished run for a claim.
    fn present<'de, D: Deserializer<'de>>(json: D) -> Result<Option<&'de RawValue>, D::Error> {
        <&RawValue>::deserialize(json).map(Some)
    }
    // serde's message would quote the record; its place is enough to find it.
    let form: Form<'_> = serde_json::from_str(text)
        .map_err(|error| unreadable(format!("a record, at byte {}", error.column())))?;
    let state = match (form.ok, form.err, form.kept) {
        (None, None, None) => State::Claimed { until: form.until },
        (Some(json), None, None) => State::Done(Outcome::Ok(json.to_owned())),
        (None, Some(json), None) => State::Done(Outcome::Err(json.to_owned())),
        (None, None, Some(false)) => State::Done(Outcome::NotKept),
        _ => return Err(unreadable("a record with one outcome")),
    };
    Ok(Record { owner: form.owner, fingerprint: form.fp, state })
}

/// The error for something there that is not `expected`.
pub(super) fn unreadable(expected: impl fmt::Display) -> Error {
    Error::decode(format!("expected {expected}"))
}
