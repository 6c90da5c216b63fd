//! The one write: a [`Batch`] of changes, each under an expectation about what is there now.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::value::RawValue;

use crate::{Channel, Error, Keep, Key, Log, MAX_TTL, Position, Ttl};

/// A batch names at most so many writes (DynamoDB's transactions and one Lua call both like it short).
pub const MAX_WRITES: usize = 25;

/// What must be there for a write to happen. There is no blind write.
#[derive(Clone, PartialEq, Eq)]
pub enum Expect {
    /// Nothing, or nothing that is still alive.
    Absent,
    /// Exactly this.
    Is(String),
    /// Nothing, or exactly this.
    AbsentOr(String),
}

impl Expect {
    /// Whether what is there is what was expected.
    pub fn holds(&self, there: Option<&str>) -> bool {
        match (self, there) {
            (Expect::Absent | Expect::AbsentOr(_), None) => true,
            (Expect::Is(text) | Expect::AbsentOr(text), Some(there)) => text == there,
            (Expect::Is(_), None) | (Expect::Absent, Some(_)) => false,
        }
    }
}

/// What a put writes.
#[derive(Clone, PartialEq, Eq)]
pub enum Value {
    /// This text.
    Text(String),
    /// The position of this batch's n-th append (from 0), so that a marker can name the record it marks.
    PositionOf(usize),
}

impl From<String> for Value {
    fn from(text: String) -> Value {
        Value::Text(text)
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Value {
        Value::Text(text.to_owned())
    }
}

/// One change of a [`Batch`].
#[derive(Clone, PartialEq, Eq)]
pub enum Write {
    /// Changes nothing; refuses the batch unless the key is as expected.
    Check {
        /// The key.
        key: Key,
        /// What must be there.
        expect: Expect,
    },
    /// Sets a value and its life.
    Put {
        /// The key.
        key: Key,
        /// What must be there.
        expect: Expect,
        /// What will be there.
        value: Value,
        /// For how long.
        ttl: Ttl,
    },
    /// Removes exactly this value.
    Delete {
        /// The key.
        key: Key,
        /// What must be there: always [`Expect::Is`].
        expect: Expect,
    },
    /// Sets a JSON object with a numeric `seq`, unless one with the same or a higher `seq` is there.
    /// Never refuses the batch.
    PutIfNewer {
        /// The key.
        key: Key,
        /// The `seq` in `json`.
        seq: u64,
        /// The object; it begins with its `seq`.
        json: String,
        /// For how long, counted only if it is set.
        ttl: Ttl,
    },
    /// Adds a record at the end of a log.
    Append {
        /// The log.
        log: Log,
        /// The record's text.
        text: String,
        /// How much of the log stays, and how long.
        keep: Keep,
    },
    /// Rings a channel, once the batch is applied.
    Publish {
        /// The channel.
        channel: Channel,
        /// What subscribers of other programs are told; ours only hear the ring.
        text: String,
    },
}

/// Writes that happen all together, or not at all.
///
/// ```
/// use onetap_store::{Batch, Expect, Keep, Key, Log, Value};
/// use std::time::Duration;
///
/// # fn main() -> Result<(), onetap_store::Error> {
/// let day = Duration::from_secs(86_400);
/// // An effect and the marker that says it happened: exactly once, whatever crashes.
/// let batch = Batch::new()
///     .put(&Key::new("seen:42")?, Expect::Absent, Value::PositionOf(0), day)
///     .append(&Log::new("orders")?, r#"{"id":42}"#, Keep::all_for(day));
/// # let _ = batch; Ok(()) }
/// ```
///
/// What is wrong with a batch (two writes to one key, a life of zero) is reported when it is committed.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Batch {
    writes: Vec<Write>,
    /// Whether the sender could not tell its own writes from another's in a refusal.
    once: bool,
}

impl Batch {
    /// A batch that changes nothing yet.
    pub fn new() -> Batch {
        Batch::default()
    }

    /// Refuses the batch unless `key` is as expected.
    #[must_use]
    pub fn check(self, key: &Key, expect: Expect) -> Batch {
        self.with(Write::Check { key: key.clone(), expect })
    }

    /// Sets `key` to `value` for `ttl`, if it is as expected.
    #[must_use]
    pub fn put(self, key: &Key, expect: Expect, value: impl Into<Value>, ttl: impl Into<Ttl>) -> Batch {
        self.with(Write::Put { key: key.clone(), expect, value: value.into(), ttl: ttl.into() })
    }

    /// Removes `key`, if it holds exactly `is`.
    #[must_use]
    pub fn delete(self, key: &Key, is: impl Into<String>) -> Batch {
        self.with(Write::Delete { key: key.clone(), expect: Expect::Is(is.into()) })
    }

    /// Sets `key` to the object `json` for `ttl`, unless what is there has the same or a higher `seq` ([`seq_of`]).
    ///
    /// What is kept begins with its `seq`, as `{"seq":7,…}`: an object that does not is kept with its members in another
    /// order. So the next write finds the number without parsing JSON, on every backend the same.
    #[must_use]
    pub fn put_if_newer(self, key: &Key, seq: u64, json: impl Into<String>, ttl: impl Into<Ttl>) -> Batch {
        let json = beginning_with_seq(seq, json.into());
        self.with(Write::PutIfNewer { key: key.clone(), seq, json, ttl: ttl.into() })
    }

    /// Adds a record to `log`.
    #[must_use]
    pub fn append(self, log: &Log, text: impl Into<String>, keep: Keep) -> Batch {
        self.with(Write::Append { log: log.clone(), text: text.into(), keep })
    }

    /// Rings `channel` once the batch is applied.
    #[must_use]
    pub fn publish(self, channel: &Channel, text: impl Into<String>) -> Batch {
        self.with(Write::Publish { channel: channel.clone(), text: text.into() })
    }

    /// Refuses the batch unless `key` still holds `token`: [`check`](Batch::check), folded into the batch's own
    /// write to that key where there is one (a backend's transaction names a key once).
    #[must_use]
    pub fn guard(mut self, key: &Key, token: &str) -> Batch {
        let held = Expect::Is(token.to_owned());
        match self.writes.iter_mut().find_map(|write| write.expectation_mut().filter(|(k, _)| *k == key)) {
            Some((_, expect)) if expect.holds(Some(token)) => *expect = held,
            // Absent, or another value: the batch contradicts its guard, and naming the key twice says so.
            _ => return self.check(key, held),
        }
        self
    }

    /// All writes of `other` after those of this batch.
    #[must_use]
    pub fn and(mut self, other: Batch) -> Batch {
        self.writes.extend(other.writes);
        self
    }

    /// The writes, in the order in which they were named.
    pub fn writes(&self) -> &[Write] {
        &self.writes
    }

    /// Each key with what is expected of it.
    pub fn expectations(&self) -> impl Iterator<Item = (&Key, &Expect)> {
        self.writes.iter().filter_map(Write::expectation)
    }

    /// The same batch, which no backend sends a second time: its sender takes every refusal for another writer's.
    #[must_use]
    pub(crate) fn sent_once(mut self) -> Batch {
        self.once = true;
        self
    }

    /// Whether the batch may be sent again when its reply was lost.
    ///
    /// It may when the second time changes nothing that the first has changed, *and* the caller can tell from the
    /// refusal that the first was applied. A marker (a put where nothing was) gives that to the whole batch, if only its
    /// owner replaces it: once another writer has replaced the value, the refusal cannot show whether the first attempt was
    /// applied. A bare swap (`Is(old)` to another value) has no marker: the value that comes back may be another writer's,
    /// and an increment would be lost.
    pub fn is_repeatable(&self) -> bool {
        if self.once {
            return false;
        }
        let marked = |write: &Write| match write {
            Write::Put { expect: Expect::Absent, .. } => true,
            Write::Put { expect: Expect::AbsentOr(old), value, .. } => *value != Value::Text(old.clone()),
            _ => false,
        };
        let harmless = |write: &Write| match write {
            Write::Put { expect: Expect::Is(old), value, .. } => *value == Value::Text(old.clone()),
            Write::Append { .. } | Write::Publish { .. } => false,
            Write::Put { .. } | Write::Check { .. } | Write::Delete { .. } | Write::PutIfNewer { .. } => true,
        };
        self.writes.iter().any(marked) || self.writes.iter().all(harmless)
    }

    /// Whether the batch rings a channel.
    #[cfg(any(feature = "redis", feature = "upstash"))]
    pub(crate) fn publishes(&self) -> bool {
        self.writes.iter().any(|write| matches!(write, Write::Publish { .. }))
    }

    /// What every backend checks before it sends anything.
    pub fn validate(&self, max_value: usize) -> Result<(), Error> {
        if self.writes.len() > MAX_WRITES {
            return Err(Error::rejected(format!(
                "a batch of {} writes, over {MAX_WRITES}",
                self.writes.len()
            )));
        }
        let appends = self.writes.iter().filter(|w| matches!(w, Write::Append { .. })).count();
        for (n, write) in self.writes.iter().enumerate() {
            // A batch is short: looking through what came before costs less than a set of it.
            if write
                .name()
                .is_some_and(|name| self.writes[..n].iter().any(|other| other.name() == Some(name)))
            {
                return Err(Error::rejected("a batch names each key and log once"));
            }
            match write {
                Write::Put { value: Value::PositionOf(n), .. } if *n >= appends => {
                    return Err(Error::rejected(format!(
                        "position of append {n}, of {appends} in the batch"
                    )));
                }
                Write::PutIfNewer { seq, json, .. } if parsed_seq(json) != Some(*seq) => {
                    return Err(Error::rejected(
                        "put_if_newer needs a JSON object whose `seq` is the one given",
                    ));
                }
                _ => {}
            }
            if let Some(Ttl::Of(life)) = write.ttl() {
                if life < Duration::from_millis(1) {
                    return Err(Error::rejected("a TTL must be at least 1 ms"));
                }
                if life > MAX_TTL {
                    return Err(Error::rejected("a TTL must be at most ten years"));
                }
            }
            let size = write.texts().map(str::len).max().unwrap_or(0);
            if size > max_value {
                return Err(Error::TooLarge { size, limit: max_value });
            }
        }
        Ok(())
    }

    fn with(mut self, write: Write) -> Batch {
        self.writes.push(write);
        self
    }
}

impl Write {
    /// The key this write expects something of, and what.
    pub fn expectation(&self) -> Option<(&Key, &Expect)> {
        match self {
            Write::Check { key, expect } | Write::Put { key, expect, .. } | Write::Delete { key, expect } => {
                Some((key, expect))
            }
            Write::PutIfNewer { .. } | Write::Append { .. } | Write::Publish { .. } => None,
        }
    }

    fn expectation_mut(&mut self) -> Option<(&Key, &mut Expect)> {
        match self {
            Write::Check { key, expect } | Write::Put { key, expect, .. } | Write::Delete { key, expect } => {
                Some((key, expect))
            }
            Write::PutIfNewer { .. } | Write::Append { .. } | Write::Publish { .. } => None,
        }
    }

    /// The key or log this write touches. (Channels are no keys: ringing one twice is fine.)
    pub fn name(&self) -> Option<&str> {
        match self {
            Write::Check { key, .. }
            | Write::Put { key, .. }
            | Write::Delete { key, .. }
            | Write::PutIfNewer { key, .. } => Some(key.as_str()),
            Write::Append { log, .. } => Some(log.as_str()),
            Write::Publish { .. } => None,
        }
    }

    fn ttl(&self) -> Option<Ttl> {
        match self {
            Write::Put { ttl, .. } | Write::PutIfNewer { ttl, .. } => Some(*ttl),
            Write::Append { keep, .. } => Some(keep.ttl),
            Write::Check { .. } | Write::Delete { .. } | Write::Publish { .. } => None,
        }
    }

    /// Every text this write sends.
    pub fn texts(&self) -> impl Iterator<Item = &str> {
        let expected = match self.expectation() {
            Some((_, Expect::Is(text) | Expect::AbsentOr(text))) => Some(text.as_str()),
            _ => None,
        };
        let written = match self {
            Write::Put { value: Value::Text(text), .. }
            | Write::PutIfNewer { json: text, .. }
            | Write::Append { text, .. }
            | Write::Publish { text, .. } => Some(text.as_str()),
            _ => None,
        };
        expected.into_iter().chain(written)
    }
}

/// What became of a batch.
#[derive(Clone, PartialEq, Eq)]
#[must_use = "a refused batch changed nothing"]
pub enum Commit {
    /// All of it happened; a position for each append, in their order.
    Applied(Vec<Position>),
    /// Nothing happened; each expectation that failed, with what is there instead. Under contention DynamoDB may
    /// name fewer, never none.
    Refused(Vec<Mismatch>),
}

/// An expectation that failed.
#[derive(Clone, PartialEq, Eq)]
pub struct Mismatch {
    /// The key.
    pub key: Key,
    /// The value that is there, alive, or nothing.
    pub there: Option<String>,
}

impl Mismatch {
    /// What `key` holds according to a refusal; `None` if the refusal does not speak of it.
    pub fn find<'a>(refusal: &'a [Mismatch], key: &Key) -> Option<&'a Mismatch> {
        refusal.iter().find(|mismatch| mismatch.key == *key)
    }
}

/// The `seq` of a JSON object: a whole number, at most 2^53, up to which every reader of JSON is exact. `None` for
/// anything else, which any sequence number is newer than.
///
/// A text that begins with it, `{"seq":N,` or `{"seq":N}`, is judged by that beginning alone: no JSON parser is needed, so
/// that no two of them have to agree. Every other text is parsed here, and nowhere else.
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

/// The same object with `seq` as its first member. What is no such object stays as it is, to be rejected with its batch.
fn beginning_with_seq(seq: u64, json: String) -> String {
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

fn parsed_seq(json: &str) -> Option<u64> {
    #[derive(serde::Deserialize)]
    struct Sequenced {
        seq: serde_json::Number,
    }
    // serde would take an array for the struct's fields.
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
            // Not what was promised: rejected with the batch, as it is.
            (r#"{"a":1,"seq":8}"#, r#"{"a":1,"seq":8}"#),
            (r#"{"a":1,"seq":7,"seq":7}"#, r#"{"a":1,"seq":7,"seq":7}"#),
            ("no json", "no json"),
        ] {
            assert_eq!(beginning_with_seq(7, given.to_owned()), kept);
        }
    }
}
