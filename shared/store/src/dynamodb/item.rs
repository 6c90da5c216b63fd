//! Items and conditions: how values, logs and records are stored in the table.
//!
//! | item         | `pk` | `sk`         | holds                                   |
//! |--------------|------|--------------|-----------------------------------------|
//! | a value      | key  | `value`      | `v`, the text                           |
//! | a log's head | log  | `value`      | `p`, the position of its last record    |
//! | a record     | log  | its position | `v`, the text                           |
//!
//! A log's head is the item that says that the log exists and where it ends. It has the same key as a value, so that a
//! name cannot be both: a caller that expects the other kind sees that in the item that failed the condition.
//!
//! Every item may have `x`, the millisecond at which it expires, and `ttl`, the second from which DynamoDB may delete
//! it. DynamoDB deletes up to days late, in any order, so conditions test `x`; `ttl` only cleans up. A *life* of a log
//! is the time from its first append until it expires or is cleared. Within a life, `ttl` never decreases from one record
//! to the next, and the head has the `ttl` of the last record.
//!
//! A cleared log leaves its head as a *tombstone*: expired for every clock (`x` is 0), with the last position, so that the
//! positions of the next life are larger. Its records are deleted by the store: after the clear, after the first append of
//! the next life, and before another clear.

use std::collections::HashMap;

use aws_sdk_dynamodb::types::AttributeValue;

use crate::{Error, Expect, Log, Position, Ttl};

pub(super) type Attributes = HashMap<String, AttributeValue>;

/// The sort key of a value or a log's head. It sorts after every position, so that a query for the records after a
/// position ends with the head.
pub(super) const HEAD: &str = "value";

/// The shortest time from the expiry of a record until DynamoDB may delete it.
pub(super) const MIN_GRACE_SECONDS: u64 = 7 * 24 * 3600;

const TWO_MONTHS_SECONDS: u64 = 62 * 24 * 3600;

/// The primary key of an item.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct ItemKey {
    pk: String,
    sk: String,
}

impl ItemKey {
    /// The key of a value or of a log's head.
    pub(super) fn named(name: &str) -> ItemKey {
        ItemKey { pk: name.to_owned(), sk: HEAD.to_owned() }
    }

    pub(super) fn record(log: &Log, position: Position) -> ItemKey {
        ItemKey { pk: log.as_str().to_owned(), sk: sort_key(position) }
    }

    pub(super) fn of(item: &Attributes) -> Result<ItemKey, Error> {
        Ok(ItemKey { pk: text(item, "pk")?.to_owned(), sk: text(item, "sk")?.to_owned() })
    }

    /// The position of a record; `None` for a head or a value.
    pub(super) fn position(&self) -> Option<Position> {
        let (epoch, n) = self.sk.split_once('-')?;
        Some(Position::new(epoch.parse().ok()?, n.parse().ok()?))
    }

    pub(super) fn attributes(&self) -> Attributes {
        HashMap::from([
            ("pk".to_owned(), AttributeValue::S(self.pk.clone())),
            ("sk".to_owned(), AttributeValue::S(self.sk.clone())),
        ])
    }

    pub(super) fn size(&self) -> usize {
        self.pk.len() + self.sk.len()
    }
}

/// A position as text. The text order is the order of the positions.
pub(super) fn sort_key(position: Position) -> String {
    let (epoch, n) = position.parts();
    format!("{epoch:020}-{n:020}")
}

/// An item without its key.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Item {
    pub(super) content: Content,
    /// The millisecond at which it expires, `None` for never.
    pub(super) expires_at: Option<u64>,
    /// The second from which DynamoDB may delete it, `None` for never.
    pub(super) sweep: Option<u64>,
}

#[derive(Clone, PartialEq, Eq)]
pub(super) enum Content {
    /// A value or a record.
    Text(String),
    /// A log's head: the position of its last record.
    Log(Position),
}

impl Item {
    pub(super) fn new(content: Content, ttl: Ttl, now: u64) -> Item {
        let expires_at = ttl.millis().map(|ttl| now + ttl);
        Item { content, expires_at, sweep: expires_at.map(|millis| millis / 1000 + 1) }
    }

    /// The same record, which DynamoDB may delete only later: every append extends the life of the whole log, so a record
    /// is needed for longer than its own TTL. It stays for another TTL, at least for a week. If the TTL is short, it stays
    /// for up to two months: then a log of one month keeps all of its records for as long as it lives. A log that is
    /// appended to for longer than that loses its oldest records.
    pub(super) fn swept_later(self, ttl: Ttl) -> Item {
        let ttl = ttl.millis().map_or(0, |ttl| ttl / 1000);
        let grace = ttl.max(ttl.saturating_mul(62).min(TWO_MONTHS_SECONDS)).max(MIN_GRACE_SECONDS);
        Item { sweep: self.sweep.map(|second| second + grace), ..self }
    }

    /// The head of a log that was cleared.
    pub(super) fn tombstone(last: Position, now: u64) -> Item {
        let sweep = now / 1000 + 1 + MIN_GRACE_SECONDS;
        Item { content: Content::Log(last), expires_at: Some(0), sweep: Some(sweep) }
    }

    /// Whether this is the head of a log that was cleared.
    pub(super) fn is_tombstone(&self) -> bool {
        self.expires_at == Some(0)
    }

    pub(super) fn read(item: &Attributes) -> Result<Item, Error> {
        let number = |name: &str| {
            let whole = |n: &AttributeValue| n.as_n().ok().and_then(|n| n.parse().ok());
            let wrong = || Error::decode(format!("an item whose `{name}` is no whole number"));
            item.get(name).map(|n| whole(n).ok_or_else(wrong)).transpose()
        };
        let content = match item.get("p") {
            Some(_) => Content::Log(
                text(item, "p")?.parse().map_err(|_| Error::decode("a log's head without a position"))?,
            ),
            None => Content::Text(text(item, "v")?.to_owned()),
        };
        Ok(Item { content, expires_at: number("x")?, sweep: number("ttl")? })
    }

    /// An expired item counts as absent, also while it is still in the table.
    pub(super) fn is_live(&self, now: u64) -> bool {
        self.expires_at.is_none_or(|until| now < until)
    }

    /// The text; `None` if it has expired.
    pub(super) fn text(&self, now: u64) -> Result<Option<&str>, Error> {
        match &self.content {
            _ if !self.is_live(now) => Ok(None),
            Content::Text(text) => Ok(Some(text)),
            Content::Log(_) => Err(Error::wrong_type()),
        }
    }

    /// The position of the log's last record; `None` if the log has expired.
    pub(super) fn last(&self, now: u64) -> Result<Option<Position>, Error> {
        match &self.content {
            _ if !self.is_live(now) => Ok(None),
            content => content.last().map(Some),
        }
    }

    /// The item with its key, as the SDK takes it.
    pub(super) fn attributes(&self, key: &ItemKey) -> Attributes {
        let mut item = key.attributes();
        match &self.content {
            Content::Text(text) => item.insert("v".to_owned(), AttributeValue::S(text.clone())),
            Content::Log(last) => item.insert("p".to_owned(), AttributeValue::S(last.to_string())),
        };
        for (name, number) in [("x", self.expires_at), ("ttl", self.sweep)] {
            if let Some(number) = number {
                item.insert(name.to_owned(), AttributeValue::N(number.to_string()));
            }
        }
        item
    }

    pub(super) fn size(&self) -> usize {
        match &self.content {
            Content::Text(text) => text.len(),
            Content::Log(_) => 0,
        }
    }
}

impl Content {
    /// The position of a log's last record.
    pub(super) fn last(&self) -> Result<Position, Error> {
        match self {
            Content::Log(last) => Ok(*last),
            Content::Text(_) => Err(Error::wrong_type()),
        }
    }
}

fn text<'a>(item: &'a Attributes, name: &str) -> Result<&'a str, Error> {
    let value = item.get(name).and_then(|value| value.as_s().ok());
    value.map(String::as_str).ok_or_else(|| Error::decode(format!("an item without the text `{name}`")))
}

/// What must be stored for a write to be applied.
pub(super) enum Condition {
    /// Anything: for records, whose keys are always new.
    Any,
    /// A value, or none, as this says.
    Value(Expect),
    /// A log that has not expired and whose last record has this position.
    Log(Position),
    /// A log that has expired or was cleared, and whose last record had this position.
    EndedLog(Position),
    /// No log, neither a live one nor one that has ended, and no live value.
    NoLog,
}

impl Condition {
    /// The condition expression and its values.
    pub(super) fn expression(&self, now: u64) -> (Option<String>, Option<Attributes>) {
        let (expression, old) = match self {
            Condition::Any => return (None, None),
            Condition::Value(Expect::Absent) => ("attribute_not_exists(pk) OR x <= :now", None),
            Condition::Value(Expect::Is(old)) => {
                ("v = :old AND (attribute_not_exists(x) OR x > :now)", Some(old.clone()))
            }
            Condition::Value(Expect::AbsentOr(old)) => {
                ("attribute_not_exists(pk) OR x <= :now OR v = :old", Some(old.clone()))
            }
            Condition::Log(last) => {
                ("p = :old AND (attribute_not_exists(x) OR x > :now)", Some(last.to_string()))
            }
            Condition::EndedLog(last) => ("p = :old AND x <= :now", Some(last.to_string())),
            Condition::NoLog => ("attribute_not_exists(pk) OR (attribute_not_exists(p) AND x <= :now)", None),
        };
        let mut values = HashMap::from([(":now".to_owned(), AttributeValue::N(now.to_string()))]);
        values.extend(old.map(|old| (":old".to_owned(), AttributeValue::S(old))));
        (Some(expression.to_owned()), Some(values))
    }

    pub(super) fn size(&self) -> usize {
        match self {
            Condition::Value(Expect::Is(old) | Expect::AbsentOr(old)) => old.len(),
            Condition::Value(Expect::Absent)
            | Condition::Any
            | Condition::Log(_)
            | Condition::EndedLog(_)
            | Condition::NoLog => 0,
        }
    }
}
