//! The lines of a history.

use onetap_store::{Batch, Commit, Error, Expect, Found, Key, Position, Record, Value, Write};
use serde::{Deserialize, Serialize};

use super::book::Asked;
use super::queue::Message;

/// One line: something began, ended, or went wrong. Times are microseconds of a clock that all clients share.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Line {
    /// A client begins. Its clock is ahead of the others by so much.
    Client {
        /// What it is called.
        name: String,
        /// In microseconds.
        skew: i64,
    },
    /// A call begins; written before anything is sent.
    Call {
        /// Which call of this client.
        id: u64,
        /// When.
        at: u64,
        /// Of what.
        layer: Layer,
        /// What.
        call: Call,
    },
    /// The call has ended; a call without this line belongs to a client that was killed.
    Answer {
        /// Which call.
        id: u64,
        /// When.
        at: u64,
        /// With what.
        answer: Answer,
    },
    /// Something was made to go wrong.
    Fault(Fault),
}

/// A fault that was injected.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Fault {
    /// What it is called.
    pub kind: String,
    /// Since when.
    pub from: u64,
    /// Until when.
    pub to: u64,
}

/// Who was called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Layer {
    /// The store itself.
    Store,
    /// What is built on it: the lease, the idempotency engine, the pattern of marker and append. Recorded as what was
    /// *meant*, so that a fence that is missing above the store is seen as well as one that is missing in it.
    Api,
}

/// A call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Call {
    /// The value of a key.
    Get(String),
    /// All of these changes, or none.
    Commit(Vec<Change>),
    /// The records of a log after a position.
    Read {
        /// The log.
        log: String,
        /// The position.
        after: Option<String>,
        /// The most records of an answer.
        limit: usize,
    },
    /// A client reads this key for its own sake. What it asks of the store is recorded as a call of its own.
    OwnGet(String),
    /// The same for this log.
    OwnRead(String),
    /// A lease, under a token that only the answer tells.
    Acquire {
        /// The lock.
        key: String,
        /// In milliseconds.
        ttl: u64,
    },
    /// The one result of a key.
    Execute {
        /// The key.
        key: String,
        /// The counter that goes up by one in the same commit.
        counter: Option<String>,
    },
    /// The function of an at-most-once key: it has begun.
    Run(String),
    /// A message is given to a consumer: its result says that it is done, anything else that it comes again.
    Deliver(Message),
    /// The handler of a message has begun: its result says that it has succeeded.
    Handle {
        /// The message.
        message: Message,
        /// When its delivery began.
        since: u64,
    },
    /// A change of a user's ledger.
    Ledger {
        /// The user.
        user: String,
        /// The change.
        asked: Asked,
        /// The idempotency key, if there is one.
        key: Option<String>,
    },
    /// One record for one marker, however often it is asked for.
    Publish {
        /// The marker.
        marker: String,
        /// The log.
        log: String,
    },
}

/// One change of a commit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// Only if the key is as expected.
    Check {
        /// The key.
        key: String,
        /// What must be there.
        expect: Expected,
    },
    /// Sets a value.
    Put {
        /// The key.
        key: String,
        /// What must be there.
        expect: Expected,
        /// The value; `None` is the position of the commit's own append.
        value: Option<String>,
        /// In milliseconds; `None` for ever.
        ttl: Option<u64>,
    },
    /// Removes a value.
    Delete {
        /// The key.
        key: String,
        /// What must be there.
        expect: Expected,
    },
    /// Sets a value, unless one is there whose sequence number is the same or higher.
    Newest {
        /// The key.
        key: String,
        /// The sequence number.
        seq: u64,
        /// The value.
        value: String,
    },
    /// Adds a record.
    Append {
        /// The log.
        log: String,
        /// The record.
        text: String,
    },
    /// Removes all records.
    Clear {
        /// The log.
        log: String,
    },
}

/// What a change expects.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Expected {
    /// Nothing.
    Absent,
    /// This.
    Is(String),
    /// Nothing, or this.
    AbsentOr(String),
}

/// How a call ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// It happened; the positions of its appends.
    Applied(Vec<String>),
    /// It did not, because this was there instead. An empty list says only that something else was.
    Refused(Vec<(String, Option<String>)>),
    /// The value of a key.
    Value(Option<String>),
    /// Positions and texts.
    Records(Vec<(String, String)>),
    /// The lease is held under this token.
    Acquired(String),
    /// The key's result, or the position of the marker's record.
    Result(String),
    /// The call ended without doing or telling anything, for this reason.
    Nothing(String),
    /// It certainly did not happen.
    NotSent,
    /// It may have happened, or may yet.
    Unknown,
    /// The store says that this call is wrong, which no call here is.
    Rejected(String),
}

impl Change {
    /// What is expected of which key.
    pub fn expectation(&self) -> Option<(&str, &Expected)> {
        match self {
            Change::Check { key, expect }
            | Change::Put { key, expect, .. }
            | Change::Delete { key, expect } => Some((key, expect)),
            Change::Newest { .. } | Change::Append { .. } | Change::Clear { .. } => None,
        }
    }

    /// The changes of a batch. What only rings is left out: no client here does.
    pub fn of(batch: &Batch) -> Vec<Change> {
        let key = |key: &onetap_store::Key| key.as_str().to_owned();
        let changes = batch.writes().iter().filter_map(|write| match write {
            Write::Check { key: k, expect } => Some(Change::Check { key: key(k), expect: expect.into() }),
            Write::Put { key: k, expect, value, ttl } => {
                let value = match value {
                    Value::Text(text) => Some(text.clone()),
                    Value::PositionOf(_) => None,
                };
                Some(Change::Put { key: key(k), expect: expect.into(), value, ttl: ttl.millis() })
            }
            Write::Delete { key: k, expect, .. } => {
                Some(Change::Delete { key: key(k), expect: expect.into() })
            }
            Write::Append { log, text, .. } => {
                Some(Change::Append { log: log.as_str().to_owned(), text: text.clone() })
            }
            Write::Clear { log } => Some(Change::Clear { log: log.as_str().to_owned() }),
            Write::PutIfNewer { key: k, seq, json, .. } => {
                Some(Change::Newest { key: key(k), seq: *seq, value: json.clone() })
            }
            Write::Publish { .. } => None,
        });
        changes.collect()
    }
}

impl From<&Expect> for Expected {
    fn from(expect: &Expect) -> Expected {
        match expect {
            Expect::Absent => Expected::Absent,
            Expect::Is(text) => Expected::Is(text.clone()),
            Expect::AbsentOr(text) => Expected::AbsentOr(text.clone()),
        }
    }
}

impl From<&Error> for Answer {
    fn from(error: &Error) -> Answer {
        match error {
            error if error.maybe_applied() => Answer::Unknown,
            error if error.is_retryable() => Answer::NotSent,
            other => Answer::Rejected(other.to_string()),
        }
    }
}

impl From<&Result<Commit, Error>> for Answer {
    fn from(answer: &Result<Commit, Error>) -> Answer {
        match answer {
            Ok(Commit::Applied(positions)) => {
                Answer::Applied(positions.iter().map(Position::to_string).collect())
            }
            Ok(Commit::Refused(refusal)) => {
                let found = |(key, there): (&Key, Found<'_>)| {
                    (key.as_str().to_owned(), there.text().map(str::to_owned))
                };
                Answer::Refused(refusal.iter().map(found).collect())
            }
            Err(error) => error.into(),
        }
    }
}

impl From<&Result<Option<String>, Error>> for Answer {
    fn from(answer: &Result<Option<String>, Error>) -> Answer {
        match answer {
            Ok(value) => Answer::Value(value.clone()),
            Err(error) => error.into(),
        }
    }
}

impl From<&Result<Vec<Record>, Error>> for Answer {
    fn from(answer: &Result<Vec<Record>, Error>) -> Answer {
        match answer {
            Ok(records) => Answer::Records(
                records.iter().map(|record| (record.position.to_string(), record.text.clone())).collect(),
            ),
            Err(error) => error.into(),
        }
    }
}
