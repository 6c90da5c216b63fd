//! `Debug` without values: a text is shown by its length, because it may be user data or a token, and a panic or a log
//! line may print it.

use std::fmt;

use crate::{Batch, Commit, Expect, Found, Record, Refusal, Value, Write};

fn length(text: &str) -> String {
    format!("{} bytes", text.len())
}

impl fmt::Debug for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Record({}, {})", self.position, length(&self.text))
    }
}

impl fmt::Debug for Expect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Expect::Absent => f.write_str("Absent"),
            Expect::Is(text) => write!(f, "Is({})", length(text)),
            Expect::AbsentOr(text) => write!(f, "AbsentOr({})", length(text)),
        }
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Text(text) => write!(f, "Text({})", length(text)),
            Value::PositionOf(n) => write!(f, "PositionOf({n})"),
        }
    }
}

impl fmt::Debug for Write {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Write::Check { expect, .. } => write!(f, "check({expect:?})"),
            Write::Put { expect, value, ttl, .. } => write!(f, "put({expect:?}, {value:?}, {ttl:?})"),
            Write::Delete { expect, .. } => write!(f, "delete({expect:?})"),
            Write::PutIfNewer { seq, json, ttl, .. } => {
                write!(f, "put_if_newer({seq}, {}, {ttl:?})", length(json))
            }
            Write::Append { text, keep: Some(keep), .. } => write!(f, "append({}, {keep:?})", length(text)),
            Write::Append { text, keep: None, .. } => write!(f, "append_to_existing({})", length(text)),
            Write::Clear { .. } => f.write_str("clear"),
            Write::Publish { text, .. } => write!(f, "publish({})", length(text)),
        }
    }
}

impl fmt::Debug for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.writes()).finish()
    }
}

impl fmt::Debug for Found<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Found::Nothing => f.write_str("Nothing"),
            Found::Text(text) => write!(f, "Text({})", length(text)),
        }
    }
}

impl fmt::Debug for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter().map(|(_, there)| there)).finish()
    }
}

impl fmt::Debug for Commit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Commit::Applied(positions) => f.debug_tuple("Applied").field(positions).finish(),
            Commit::Refused(refusal) => f.debug_tuple("Refused").field(refusal).finish(),
        }
    }
}
