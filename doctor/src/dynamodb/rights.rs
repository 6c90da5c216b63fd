//! What each function must be allowed to do to the table, tried with the credentials of the environment.
//!
//! AWS looks at the rights first: an operation that is refused for another reason was allowed. So a write is sent under a
//! condition that cannot hold, and a read or a deletion without one names an item that is not there.

use futures_util::stream::{self, StreamExt};
use onetap_store::lease::unique_token;
use serde_json::{Value, json};

use super::call::{Failure, Table};
use super::{DENIED, OF};
use crate::Finding;

pub(crate) const CHECK: &str = "rights";

const AT_ONCE: usize = 8;

/// Actions on the items whose partition keys are like one of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Right {
    /// Actions of IAM, without `dynamodb:`.
    pub actions: &'static [&'static str],
    /// Patterns of IAM's `StringLike`.
    pub keys: &'static [&'static str],
}

/// What the template allows each function; a test compares them.
pub const RIGHTS: [(&str, &[Right]); 4] = [
    (
        "webhook",
        &[
            Right {
                actions: &["BatchGetItem", "ConditionCheckItem", "DeleteItem", "GetItem", "PutItem"],
                keys: &["idem:*", "processing:*", "user:*", "weather:*"],
            },
            Right { actions: &["BatchWriteItem", "Query"], keys: &["user:*"] },
        ],
    ),
    (
        "edit-last-transaction",
        &[
            Right {
                actions: &["BatchGetItem", "DeleteItem", "GetItem", "PutItem"],
                keys: &["idem:*", "user:*"],
            },
            Right { actions: &["Query"], keys: &["user:*"] },
        ],
    ),
    (
        "queue-consumer",
        &[Right {
            actions: &["BatchGetItem", "ConditionCheckItem", "PutItem", "Query"],
            keys: &["*:job:*", "*:state:*", "published:*", "router:*"],
        }],
    ),
    (
        "job-events",
        &[Right {
            actions: &["BatchGetItem", "GetItem", "Query"],
            keys: &["*:job:*", "*:state:*", "router:*"],
        }],
    ),
];

/// What is told of a write that is allowed, and whose condition does not hold.
const CONDITION_FAILED: [&str; 2] = ["ConditionalCheckFailedException", "TransactionCanceledException"];

enum Verdict {
    Allowed,
    Denied(String),
    Unknown,
}

pub(super) async fn examine(table: &Table, function: &'static str) -> Finding {
    let rights = RIGHTS.iter().find(|(name, _)| *name == function).map_or(&[][..], |(_, rights)| rights);
    let tries = rights.iter().flat_map(|right| {
        right.actions.iter().flat_map(|action| right.keys.iter().map(move |pattern| (*action, *pattern)))
    });
    let verdicts: Vec<Verdict> = stream::iter(tries)
        .map(|(action, pattern)| attempt(table, action, pattern))
        .buffered(AT_ONCE)
        .collect()
        .await;
    let denied: Vec<&str> = verdicts
        .iter()
        .filter_map(|verdict| match verdict {
            Verdict::Denied(what) => Some(what.as_str()),
            Verdict::Allowed | Verdict::Unknown => None,
        })
        .collect();
    let allowed = verdicts.iter().filter(|verdict| matches!(verdict, Verdict::Allowed)).count();
    if !denied.is_empty() {
        let remedy = format!(
            "Allow it as the policy of this function in template.yaml does, on the table {}.",
            table.name
        );
        return Finding::wrong(function, CHECK, format!("denied: {}", denied.join(", ")), remedy);
    }
    if allowed < verdicts.len() {
        return Finding::skipped(
            function,
            CHECK,
            format!("{OF} answers only {allowed} of {} operations", verdicts.len()),
        );
    }
    Finding::ok(function, CHECK, format!("all {allowed} operations are allowed to these credentials"))
}

/// What the first operation of the first of these functions is told.
pub(super) async fn probe(table: &Table, functions: &[&'static str]) -> Result<Value, Failure> {
    let right =
        RIGHTS.iter().filter(|(name, _)| functions.contains(name)).find_map(|(_, rights)| rights.first());
    match right {
        Some(Right { actions: [action, ..], keys: [pattern, ..] }) => send(table, action, pattern).await,
        _ => Err(Failure::NoAnswer("no function is used")),
    }
}

async fn send(table: &Table, action: &str, pattern: &str) -> Result<Value, Failure> {
    // The name of the claims is a setting.
    let pattern = pattern.replace("idem:", &table.idem_prefix);
    let (operation, input) = harmless(&table.name, action, &pattern);
    table.call(operation, &input).await
}

async fn attempt(table: &Table, action: &str, pattern: &str) -> Verdict {
    match send(table, action, pattern).await {
        Err(Failure::Refused(code)) if code == DENIED => Verdict::Denied(format!("{action} of {pattern}")),
        Ok(_) => Verdict::Allowed,
        Err(Failure::Refused(code)) if CONDITION_FAILED.contains(&&*code) => Verdict::Allowed,
        Err(_) => Verdict::Unknown,
    }
}

/// A request that needs this right and changes nothing.
fn harmless(table: &str, action: &str, pattern: &str) -> (&'static str, Value) {
    let key = json!({ "pk": { "S": pattern.replace('*', &unique_token()) }, "sk": { "S": "-" } });
    let never = "attribute_exists(pk)";
    match action {
        "BatchGetItem" => ("BatchGetItem", json!({ "RequestItems": { table: { "Keys": [key] } } })),
        "BatchWriteItem" => {
            ("BatchWriteItem", json!({ "RequestItems": { table: [{ "DeleteRequest": { "Key": key } }] } }))
        }
        "ConditionCheckItem" => {
            let check = json!({ "TableName": table, "Key": key, "ConditionExpression": never });
            ("TransactWriteItems", json!({ "TransactItems": [{ "ConditionCheck": check }] }))
        }
        "DeleteItem" => {
            ("DeleteItem", json!({ "TableName": table, "Key": key, "ConditionExpression": never }))
        }
        "PutItem" => ("PutItem", json!({ "TableName": table, "Item": key, "ConditionExpression": never })),
        "Query" => (
            "Query",
            json!({
                "TableName": table,
                "KeyConditionExpression": "pk = :name",
                "ExpressionAttributeValues": { ":name": key["pk"] },
            }),
        ),
        _ => ("GetItem", json!({ "TableName": table, "Key": key })),
    }
}
