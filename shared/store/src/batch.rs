//! The only write operation: a [`Batch`], a conditional write of several keys and logs at once (compare-and-swap).

use crate::MIN_TTL;
use crate::seq::{beginning_with_seq, parsed_seq};
use crate::{Channel, Error, Keep, Key, Log, MAX_TTL, Ttl, resend};

/// Maximum number of writes in a batch. A DynamoDB transaction has at most 100 items, and an append takes two of them. On
/// Redis a batch is one script, which blocks the server while it runs.
pub const MAX_WRITES: usize = 50;

/// The expected value of a key. If it is not the stored one, the whole batch is refused. There is no unconditional
/// write.
#[derive(Clone, PartialEq, Eq)]
pub enum Expect {
    /// No value, or an expired one.
    Absent,
    /// Exactly this value.
    Is(String),
    /// No value, or exactly this one.
    AbsentOr(String),
}

impl Expect {
    /// Whether the stored value is the expected one.
    pub fn holds(&self, there: Option<&str>) -> bool {
        match (self, there) {
            (Expect::Absent | Expect::AbsentOr(_), None) => true,
            (Expect::Is(text) | Expect::AbsentOr(text), Some(there)) => text == there,
            (Expect::Is(_), None) | (Expect::Absent, Some(_)) => false,
        }
    }
}

/// The new value of a put.
#[derive(Clone, PartialEq, Eq)]
pub enum Value {
    /// This text.
    Text(String),
    /// The position of this batch's n-th append (from 0), so that a marker can hold the position of its record.
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

/// One write of a [`Batch`].
#[derive(Clone, PartialEq, Eq)]
pub enum Write {
    /// Changes nothing; refuses the batch unless the key is as expected.
    Check {
        /// The key.
        key: Key,
        /// The expected value.
        expect: Expect,
    },
    /// Sets a value and its TTL.
    Put {
        /// The key.
        key: Key,
        /// The expected value.
        expect: Expect,
        /// The new value.
        value: Value,
        /// Its TTL.
        ttl: Ttl,
    },
    /// Removes exactly this value.
    Delete {
        /// The key.
        key: Key,
        /// The expected value: always [`Expect::Is`].
        expect: Expect,
        /// Whether a key that is gone already is as good as deleted ([`Batch::gone_is_success`]).
        gone_is_success: bool,
    },
    /// Sets a JSON object with a numeric `seq`, unless the stored one has the same or a higher `seq`.
    /// Never refuses the batch.
    PutIfNewer {
        /// The key.
        key: Key,
        /// The `seq` in `json`.
        seq: u64,
        /// The object; it begins with its `seq`.
        json: String,
        /// Its TTL, applied only if the value is set.
        ttl: Ttl,
    },
    /// Adds a record at the end of a log.
    Append {
        /// The log.
        log: Log,
        /// The record's text.
        text: String,
        /// How many records the log keeps, and for how long. `None`: the log must exist, and keeps what it keeps.
        keep: Option<Keep>,
    },
    /// Removes all records of a log.
    Clear {
        /// The log.
        log: Log,
    },
    /// Notifies the watchers of a channel after the batch is applied.
    Publish {
        /// The channel.
        channel: Channel,
        /// The message for subscribers of other programs on Redis. [`Store::watch`](crate::Store::watch) does not
        /// deliver it.
        text: String,
    },
}

/// Writes that are applied all together, or not at all.
///
/// ```
/// use onetap_store::{Batch, Expect, Keep, Key, Log, Value};
/// use std::time::Duration;
///
/// # fn main() -> Result<(), onetap_store::Error> {
/// let day = Duration::from_secs(86_400);
/// // An effect, and a marker that records it: a second commit is refused, so the effect happens once.
/// let batch = Batch::new()
///     .put(&Key::new("seen:42")?, Expect::Absent, Value::PositionOf(0), day)
///     .append(&Log::new("orders")?, r#"{"id":42}"#, Keep::all_for(day));
/// # let _ = batch; Ok(()) }
/// ```
///
/// An invalid batch (two writes to one key, a TTL of zero) is rejected when it is committed. Several appends may name the
/// same log.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Batch {
    writes: Vec<Write>,
    /// Whether the sender could not tell its own writes from another's in a refusal.
    once: bool,
    /// Whether the sender expects the batch to be applied.
    likely: bool,
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

    /// Removes `key`, if its value is exactly `is`.
    ///
    /// If the reply is lost, the outcome is unknown, unless the batch has a marker or [gone is
    /// success](Batch::gone_is_success).
    #[must_use]
    pub fn delete(self, key: &Key, is: impl Into<String>) -> Batch {
        let expect = Expect::Is(is.into());
        self.with(Write::Delete { key: key.clone(), expect, gone_is_success: false })
    }

    /// Declares that for the deletes of this batch *gone* is success: the caller takes a refusal that finds
    /// [nothing](crate::Found::Nothing) under such a key for its own delete, as when it releases a lock.
    ///
    /// Such a delete may be [sent again](Batch::is_repeatable) after its reply was lost. Any other may not: of a key that is
    /// gone, nothing shows who has removed it.
    #[must_use]
    pub fn gone_is_success(mut self) -> Batch {
        for write in &mut self.writes {
            if let Write::Delete { gone_is_success, .. } = write {
                *gone_is_success = true;
            }
        }
        self
    }

    /// Sets `key` to the object `json` for `ttl`, unless the stored object has the same or a higher `seq` ([`seq_of`](crate::seq_of)).
    ///
    /// The stored object begins with its `seq`, as `{"seq":7,…}`: if `json` does not, its members are reordered. So
    /// every backend reads the number of the stored object in the same way, without parsing JSON.
    #[must_use]
    pub fn put_if_newer(self, key: &Key, seq: u64, json: impl Into<String>, ttl: impl Into<Ttl>) -> Batch {
        let json = beginning_with_seq(seq, json.into());
        self.with(Write::PutIfNewer { key: key.clone(), seq, json, ttl: ttl.into() })
    }

    /// Adds a record to `log`. A batch may append to one log several times, with the same `keep`: the records are then in
    /// the order of the appends.
    #[must_use]
    pub fn append(self, log: &Log, text: impl Into<String>, keep: Keep) -> Batch {
        self.with(Write::Append { log: log.clone(), text: text.into(), keep: Some(keep) })
    }

    /// Adds a record to a `log` that exists, and leaves its TTL as it is. If there is no such log, the batch is refused, and
    /// the refusal names the log as a [key](Key::from) with nothing there. (Unless the expectation of a key fails: then it
    /// may name only that.)
    ///
    /// It serves a caller who knows that the log is there, and that its TTL was set a short time ago: it is the cheapest
    /// append on Upstash.
    #[must_use]
    pub fn append_to_existing(self, log: &Log, text: impl Into<String>) -> Batch {
        self.with(Write::Append { log: log.clone(), text: text.into(), keep: None })
    }

    /// Removes `log` with all of its records. An absent log does not refuse the batch.
    ///
    /// With the commit the log is gone for every reader, and its name is free. A later append begins a new life of the log:
    /// its positions are larger than those of the earlier life, and no record of the earlier life is ever seen again. A
    /// batch names a log that it clears only once.
    ///
    /// Redis removes the records with the commit. On DynamoDB the commit hides them, and they are deleted from the table
    /// after it, as far as the time limit of the call allows; what is left is deleted after the next append. A clear of a
    /// log that is already gone deletes what is left of it *before* the commit, and fails without a commit if the time does
    /// not suffice. So a caller that must know
    /// that no record is left in the table clears the log a second time: once the second commit is applied, nothing is
    /// left. (The name of the log stays in the table for a week.)
    #[must_use]
    pub fn clear(self, log: &Log) -> Batch {
        self.with(Write::Clear { log: log.clone() })
    }

    /// Notifies the watchers of `channel` after the batch is applied.
    #[must_use]
    pub fn publish(self, channel: &Channel, text: impl Into<String>) -> Batch {
        self.with(Write::Publish { channel: channel.clone(), text: text.into() })
    }

    /// Refuses the batch unless `key` still has the value `token` (a fencing token). If the batch already writes `key`,
    /// this becomes the expectation of that write, because a transaction may name a key only once. Otherwise it is a
    /// [`check`](Batch::check).
    #[must_use]
    pub fn guard(mut self, key: &Key, token: &str) -> Batch {
        let held = Expect::Is(token.to_owned());
        match self.writes.iter_mut().find_map(|write| write.expectation_mut().filter(|(k, _)| *k == key)) {
            Some((_, expect)) if expect.holds(Some(token)) => *expect = held,
            // The batch expects something else of `key`: naming the key twice makes the batch invalid.
            _ => return self.check(key, held),
        }
        self
    }

    /// Adds all writes of `other`. A [`PositionOf`](Value::PositionOf) in it stays the position of its own append.
    #[must_use]
    pub fn and(mut self, other: Batch) -> Batch {
        let appends = self.append_count();
        self.writes.extend(other.writes.into_iter().map(|mut write| {
            if let Write::Put { value: Value::PositionOf(n), .. } = &mut write {
                *n = n.saturating_add(appends);
            }
            write
        }));
        self.once |= other.once;
        self
    }

    /// The writes, in the order in which they were added.
    pub fn writes(&self) -> &[Write] {
        &self.writes
    }

    /// The keys that have an expectation, each with it.
    pub fn expectations(&self) -> impl Iterator<Item = (&Key, &Expect)> {
        self.writes.iter().filter_map(Write::expectation)
    }

    /// The same batch, which no backend sends a second time: its sender takes every refusal for another writer's.
    #[must_use]
    pub(crate) fn sent_once(mut self) -> Batch {
        self.once = true;
        self
    }

    /// The same batch, which the caller expects to be applied: a claim that no other caller asks for, a lock that is
    /// mostly free.
    ///
    /// It changes no answer. On Upstash a batch that is only a put of an absent key then costs one command if it is applied,
    /// instead of two, and one round trip more if it is refused. (Unless another batch of the same call names the key.)
    #[must_use]
    pub fn likely(mut self) -> Batch {
        self.likely = true;
        self
    }

    /// Whether the caller expects the batch to be applied.
    pub fn is_likely(&self) -> bool {
        self.likely
    }

    /// Whether the batch may be sent again after its reply was lost, if no other batch travels with it.
    ///
    /// It may if a second send changes nothing that the first one has changed, *and* a refusal shows the caller whether
    /// the first one was applied. A marker (a put that expects no value) gives both to the whole batch, as long as only
    /// its owner replaces it: once another writer has replaced the value, the refusal cannot show whether our first
    /// attempt was applied. A compare-and-swap without a marker (`Is(old)` to another value) is not repeatable: the
    /// value in the refusal may be another writer's, and an increment would be lost. Neither is a delete without a marker,
    /// unless [gone is success](Batch::gone_is_success).
    ///
    /// Of several batches in one request, one is not sent again if a later one may have changed what it is recognised by.
    pub fn is_repeatable(&self) -> bool {
        resend::recognises_itself(self)
    }

    /// Whether no backend may send it a second time.
    pub(crate) fn is_sent_once(&self) -> bool {
        self.once
    }

    /// The key, if the batch is only a check for its absence: a read, whose refusal contains the value.
    pub(crate) fn read_key(&self) -> Option<&Key> {
        match self.writes.as_slice() {
            [Write::Check { key, expect: Expect::Absent }] => Some(key),
            _ => None,
        }
    }

    /// How many records the batch appends.
    pub(crate) fn append_count(&self) -> usize {
        self.writes.iter().filter(|write| matches!(write, Write::Append { .. })).count()
    }

    /// Whether the batch notifies a channel.
    #[cfg(any(feature = "redis", feature = "upstash"))]
    pub(crate) fn publishes(&self) -> bool {
        self.writes.iter().any(|write| matches!(write, Write::Publish { .. }))
    }

    /// Checks the batch. Every backend calls this before it sends anything.
    pub fn validate(&self, max_value: usize) -> Result<(), Error> {
        if self.writes.len() > MAX_WRITES {
            return Err(Error::rejected(format!(
                "a batch of {} writes, over {MAX_WRITES}",
                self.writes.len()
            )));
        }
        let appends = self.append_count();
        for (n, write) in self.writes.iter().enumerate() {
            // A batch is short: a linear search costs less than a hash set.
            let same_name = |other: &&Write| write.name().is_some() && other.name() == write.name();
            if let Some(earlier) = self.writes[..n].iter().find(same_name) {
                match (earlier, write) {
                    (Write::Append { keep: earlier, .. }, Write::Append { keep, .. }) if earlier == keep => {}
                    (Write::Append { .. }, Write::Append { .. }) => {
                        return Err(Error::rejected(
                            "the appends of a batch to one log have the same `keep`",
                        ));
                    }
                    _ => {
                        return Err(Error::rejected(
                            "a batch names each key, and each log that it clears, only once",
                        ));
                    }
                }
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
                if life < MIN_TTL {
                    return Err(Error::rejected("a TTL must be at least 1 ms"));
                }
                if life > MAX_TTL {
                    return Err(Error::rejected("a TTL must be at most ten years"));
                }
            }
            let size = write.texts().map(str::len).max().unwrap_or(0);
            if size > max_value {
                return Err(Error::too_large(size, max_value));
            }
        }
        Ok(())
    }

    pub(crate) fn with(mut self, write: Write) -> Batch {
        self.writes.push(write);
        self
    }
}

impl Write {
    /// The key and its expectation, for a write that has one.
    pub fn expectation(&self) -> Option<(&Key, &Expect)> {
        match self {
            Write::Check { key, expect }
            | Write::Put { key, expect, .. }
            | Write::Delete { key, expect, .. } => Some((key, expect)),
            Write::PutIfNewer { .. } | Write::Append { .. } | Write::Clear { .. } | Write::Publish { .. } => {
                None
            }
        }
    }

    fn expectation_mut(&mut self) -> Option<(&Key, &mut Expect)> {
        match self {
            Write::Check { key, expect }
            | Write::Put { key, expect, .. }
            | Write::Delete { key, expect, .. } => Some((key, expect)),
            Write::PutIfNewer { .. } | Write::Append { .. } | Write::Clear { .. } | Write::Publish { .. } => {
                None
            }
        }
    }

    /// The log that must exist.
    pub(crate) fn existing_log(&self) -> Option<&Log> {
        match self {
            Write::Append { log, keep: None, .. } => Some(log),
            _ => None,
        }
    }

    /// The key or log that this write names. `None` for a publish: a batch may publish on a channel twice.
    pub fn name(&self) -> Option<&str> {
        match self {
            Write::Check { key, .. }
            | Write::Put { key, .. }
            | Write::Delete { key, .. }
            | Write::PutIfNewer { key, .. } => Some(key.as_str()),
            Write::Append { log, .. } | Write::Clear { log } => Some(log.as_str()),
            Write::Publish { .. } => None,
        }
    }

    fn ttl(&self) -> Option<Ttl> {
        match self {
            Write::Put { ttl, .. } | Write::PutIfNewer { ttl, .. } => Some(*ttl),
            Write::Append { keep, .. } => keep.map(|keep| keep.ttl),
            Write::Check { .. } | Write::Delete { .. } | Write::Clear { .. } | Write::Publish { .. } => None,
        }
    }

    /// Every text that this write sends: the expected value and the new one.
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
