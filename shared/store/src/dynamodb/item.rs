//! Items and conditions: how a value, a log's head and its records lie in the table.
//!
//! | item        | `pk` | `sk`             | `v`                           |
//! |-------------|------|------------------|-------------------------------|
//! | a value     | key  | `value`          | the text                      |
//! | a record    | log  | its position     | the text                      |
//! | a log's head| log  | `~head`          | the position of its last record |
//!
//! Every item may have `x`, the millisecond at which it ends, and `ttl`, the second from which DynamoDB may sweep it.
//! The sweep comes up to days late: conditions test `x`, `ttl` only cleans up.

use std::collections::HashMap;

use aws_sdk_dynamodb::types::AttributeValue;

use crate::{Error, Expect, Key, Log, Position, Ttl};

pub(super) type Attributes = HashMap<String, AttributeValue>;

const VALUE: &str = "value";
/// After every position, so that a query for what follows a position ends with it.
const HEAD: &str = "~head";

/// Where an item lies.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct Place {
    pk: String,
    sk: String,
}

impl Place {
    pub(super) fn value(key: &Key) -> Place {
        Place { pk: key.as_str().to_owned(), sk: VALUE.to_owned() }
    }

    pub(super) fn head(log: &Log) -> Place {
        Place { pk: log.as_str().to_owned(), sk: HEAD.to_owned() }
    }

    pub(super) fn record(log: &Log, position: Position) -> Place {
        Place { pk: log.as_str().to_owned(), sk: sort_key(position) }
    }

    pub(super) fn of(item: &Attributes) -> Result<Place, Error> {
        Ok(Place { pk: text(item, "pk")?.to_owned(), sk: text(item, "sk")?.to_owned() })
    }

    pub(super) fn is_head(&self) -> bool {
        self.sk == HEAD
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
}

/// Positions as text that sorts as they do.
pub(super) fn sort_key(position: Position) -> String {
    let (epoch, n) = position.parts();
    format!("{epoch:020}-{n:020}")
}

/// A text with its end, as an item holds it.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Kept {
    pub(super) text: String,
    pub(super) until: Option<u64>,
}

impl Kept {
    pub(super) fn new(text: String, ttl: Ttl, now: u64) -> Kept {
        Kept { text, until: ttl.millis().map(|life| now + life) }
    }

    pub(super) fn read(item: &Attributes) -> Result<Kept, Error> {
        let until = match item.get("x") {
            None => None,
            Some(x) => Some(
                x.as_n()
                    .ok()
                    .and_then(|n| n.parse().ok())
                    .ok_or_else(|| Error::decode("an item whose `x` is no whole number"))?,
            ),
        };
        Ok(Kept { text: text(item, "v")?.to_owned(), until })
    }

    /// An expired value is absent, whether or not it was swept yet.
    pub(super) fn live(&self, now: u64) -> Option<&str> {
        self.until.is_none_or(|until| now < until).then_some(self.text.as_str())
    }

    /// The whole item. It may be swept `grace` seconds after its end.
    pub(super) fn attributes(&self, place: &Place, grace: u64) -> Attributes {
        let mut item = place.attributes();
        item.insert("v".to_owned(), AttributeValue::S(self.text.clone()));
        if let Some(until) = self.until {
            item.insert("x".to_owned(), AttributeValue::N(until.to_string()));
            item.insert("ttl".to_owned(), AttributeValue::N((until / 1000 + 1 + grace).to_string()));
        }
        item
    }
}

fn text<'a>(item: &'a Attributes, name: &str) -> Result<&'a str, Error> {
    let value = item.get(name).and_then(|value| value.as_s().ok());
    value.map(String::as_str).ok_or_else(|| Error::decode(format!("an item without the text `{name}`")))
}

/// An expectation as a condition expression, and the values that it names.
pub(super) fn condition(expect: &Expect, now: u64) -> (&'static str, Attributes) {
    let mut values = HashMap::from([(":now".to_owned(), AttributeValue::N(now.to_string()))]);
    let expression = match expect {
        Expect::Absent => "attribute_not_exists(pk) OR x <= :now",
        Expect::Is(_) => "v = :old AND (attribute_not_exists(x) OR x > :now)",
        Expect::AbsentOr(_) => "attribute_not_exists(pk) OR x <= :now OR v = :old",
    };
    if let Expect::Is(old) | Expect::AbsentOr(old) = expect {
        values.insert(":old".to_owned(), AttributeValue::S(old.clone()));
    }
    (expression, values)
}
