//! Items and conditions: how a value, a log's head and its records lie in the table.
//!
//! | item         | `pk` | `sk`         | holds                                   |
//! |--------------|------|--------------|-----------------------------------------|
//! | a value      | key  | `value`      | `v`, the text                           |
//! | a log's head | log  | `value`      | `p`, the position of its last record    |
//! | a record     | log  | its position | `v`, the text                           |
//!
//! A value and a log's head share their place, so that a name holds one of them: whoever expects the other reads it
//! from the item that fails the condition.
//!
//! Every item may have `x`, the millisecond at which it ends, and `ttl`, the second from which DynamoDB may sweep it.
//! The sweep comes up to days late, in any order: conditions test `x`, `ttl` only cleans up. No record's `ttl` is
//! earlier than those of the records ahead of it in this life of the log, and the head's is the last record's.

use std::collections::HashMap;

use aws_sdk_dynamodb::types::AttributeValue;

use crate::{Error, Expect, Log, Position, Ttl};

pub(super) type Attributes = HashMap<String, AttributeValue>;

/// The sort key of a value or a log's head: after every position, so that a query for what follows a position ends
/// with the head.
pub(super) const HEAD: &str = "value";

/// Where an item lies.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct Place {
    pk: String,
    sk: String,
}

impl Place {
    /// The value or the head of the log of this name.
    pub(super) fn named(name: &str) -> Place {
        Place { pk: name.to_owned(), sk: HEAD.to_owned() }
    }

    pub(super) fn record(log: &Log, position: Position) -> Place {
        Place { pk: log.as_str().to_owned(), sk: sort_key(position) }
    }

    pub(super) fn of(item: &Attributes) -> Result<Place, Error> {
        Ok(Place { pk: text(item, "pk")?.to_owned(), sk: text(item, "sk")?.to_owned() })
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

/// Positions as text that sorts as they do.
pub(super) fn sort_key(position: Position) -> String {
    let (epoch, n) = position.parts();
    format!("{epoch:020}-{n:020}")
}

/// What an item holds, and its end.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Kept {
    pub(super) held: Held,
    /// The millisecond at which it ends, `None` for never.
    pub(super) until: Option<u64>,
    /// The second from which DynamoDB may sweep it, `None` for never.
    pub(super) sweep: Option<u64>,
}

#[derive(Clone, PartialEq, Eq)]
pub(super) enum Held {
    /// A value or a record.
    Text(String),
    /// A log, by the position of its last record.
    Log(Position),
}

impl Kept {
    pub(super) fn new(held: Held, ttl: Ttl, now: u64) -> Kept {
        let until = ttl.millis().map(|life| now + life);
        Kept { held, until, sweep: until.map(|until| until / 1000 + 1) }
    }

    pub(super) fn read(item: &Attributes) -> Result<Kept, Error> {
        let number = |name: &str| {
            let whole = |n: &AttributeValue| n.as_n().ok().and_then(|n| n.parse().ok());
            let wrong = || Error::decode(format!("an item whose `{name}` is no whole number"));
            item.get(name).map(|n| whole(n).ok_or_else(wrong)).transpose()
        };
        let held = match item.get("p") {
            Some(_) => Held::Log(
                text(item, "p")?.parse().map_err(|_| Error::decode("a log's head without a position"))?,
            ),
            None => Held::Text(text(item, "v")?.to_owned()),
        };
        Ok(Kept { held, until: number("x")?, sweep: number("ttl")? })
    }

    /// What is expired is absent, whether or not it was swept yet.
    pub(super) fn is_live(&self, now: u64) -> bool {
        self.until.is_none_or(|until| now < until)
    }

    /// The text, while it lives.
    pub(super) fn text(&self, now: u64) -> Result<Option<&str>, Error> {
        match &self.held {
            _ if !self.is_live(now) => Ok(None),
            Held::Text(text) => Ok(Some(text)),
            Held::Log(_) => Err(Error::wrong_type()),
        }
    }

    /// The position of the log's last record, while it lives.
    pub(super) fn last(&self, now: u64) -> Result<Option<Position>, Error> {
        match &self.held {
            _ if !self.is_live(now) => Ok(None),
            Held::Log(last) => Ok(Some(*last)),
            Held::Text(_) => Err(Error::wrong_type()),
        }
    }

    /// The whole item.
    pub(super) fn attributes(&self, place: &Place) -> Attributes {
        let mut item = place.attributes();
        match &self.held {
            Held::Text(text) => item.insert("v".to_owned(), AttributeValue::S(text.clone())),
            Held::Log(last) => item.insert("p".to_owned(), AttributeValue::S(last.to_string())),
        };
        for (name, number) in [("x", self.until), ("ttl", self.sweep)] {
            if let Some(number) = number {
                item.insert(name.to_owned(), AttributeValue::N(number.to_string()));
            }
        }
        item
    }

    pub(super) fn size(&self) -> usize {
        match &self.held {
            Held::Text(text) => text.len(),
            Held::Log(_) => 0,
        }
    }
}

fn text<'a>(item: &'a Attributes, name: &str) -> Result<&'a str, Error> {
    let value = item.get(name).and_then(|value| value.as_s().ok());
    value.map(String::as_str).ok_or_else(|| Error::decode(format!("an item without the text `{name}`")))
}

/// What an item must be for it to change.
pub(super) enum Condition {
    /// Anything: a record's place is new.
    Any,
    /// A value as expected.
    Value(Expect),
    /// A log that lives and ends here.
    Log(Position),
}

impl Condition {
    /// As an expression, and the values that it names.
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
        };
        let mut values = HashMap::from([(":now".to_owned(), AttributeValue::N(now.to_string()))]);
        values.extend(old.map(|old| (":old".to_owned(), AttributeValue::S(old))));
        (Some(expression.to_owned()), Some(values))
    }

    pub(super) fn size(&self) -> usize {
        match self {
            Condition::Value(Expect::Is(old) | Expect::AbsentOr(old)) => old.len(),
            Condition::Value(Expect::Absent) | Condition::Any | Condition::Log(_) => 0,
        }
    }
}
