//! What each function must be allowed to do to the table, tried with the credentials of the environment.
//!
//! AWS looks at the rights first: an operation that is refused for another reason was allowed. So a write is sent under a
//! condition that cannot hold, and a read or a deletion without one names an item that is not there.

use futures_util::stream::{self, StreamExt};
use onetap_store::lease::unique_token;
use serde_json::{Value, json};

use super::DENIED;
use super::call::{Failure, Table};
use crate::Finding;

pub(crate) const CHECK: &str = "rights";

const AT_ONCE: usize = 8;

/// How the names of claims begin where IDEM_PREFIX is not set.
pub(super) const IDEM_PREFIX: &str = "idem:";

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

/// Codes of a write that is allowed, and whose condition does not hold.
const CONDITION_FAILED: [&str; 2] = ["ConditionalCheckFailedException", "TransactionCanceledException"];

enum Verdict {
    Allowed,
    Denied(String),
    /// Refused for another reason, or not answered.
    Unknown(Failure),
}

/// The operations of a function's role, each tried once.
pub(super) struct Tried {
    pub(super) function: &'static str,
    verdicts: Vec<Verdict>,
}

impl Tried {
    pub(super) async fn new(table: &Table, function: &'static str) -> Tried {
        let rights = RIGHTS.iter().find(|(name, _)| *name == function).map_or(&[][..], |(_, rights)| rights);
        let tries = rights.iter().flat_map(|right| {
            right.actions.iter().flat_map(|action| right.keys.iter().map(move |pattern| (*action, *pattern)))
        });
        let attempts = stream::iter(tries).map(|(action, pattern)| attempt(table, action, pattern));
        Tried { function, verdicts: attempts.buffered(AT_ONCE).collect().await }
    }

    /// Whether not one operation is allowed.
    pub(super) fn is_all_denied(&self) -> bool {
        self.verdicts.iter().all(|verdict| matches!(verdict, Verdict::Denied(_)))
    }

    /// Whether an operation was refused with this code.
    pub(super) fn is_refused(&self, code: &str) -> bool {
        let refused =
            |verdict: &Verdict| matches!(verdict, Verdict::Unknown(Failure::Refused(it)) if it == code);
        self.verdicts.iter().any(refused)
    }

    pub(super) fn finding(&self, table: &Table) -> Finding {
        let (function, all) = (self.function, self.verdicts.len());
        let denied: Vec<&str> = self
            .verdicts
            .iter()
            .filter_map(|verdict| match verdict {
                Verdict::Denied(what) => Some(what.as_str()),
                Verdict::Allowed | Verdict::Unknown(_) => None,
            })
            .collect();
        if !denied.is_empty() {
            let mut remedy = format!(
                "Allow it as the policy of this function in template.yaml does, on the table {}.",
                table.name
            );
            if table.idem_prefix != IDEM_PREFIX {
                remedy +=
                    " IDEM_PREFIX is set: the pattern `idem:*` of that policy has to be changed with it.";
            }
            return Finding::wrong(function, CHECK, format!("denied: {}", denied.join(", ")), remedy);
        }
        let allowed = self.verdicts.iter().filter(|verdict| matches!(verdict, Verdict::Allowed)).count();
        if allowed < all {
            return Finding::skipped(function, CHECK, format!("{allowed} of {all} operations were answered"));
        }
        Finding::ok(function, CHECK, format!("all {all} operations are allowed to these credentials"))
    }
}

async fn attempt(table: &Table, action: &str, pattern: &str) -> Verdict {
    // The name of the claims is a setting.
    let pattern = pattern.replace(IDEM_PREFIX, &table.idem_prefix);
    let (operation, input) = harmless(&table.name, action, &pattern);
    match table.call(operation, &input).await {
        Err(Failure::Refused(code)) if code == DENIED => Verdict::Denied(format!("{action} of {pattern}")),
        Ok(_) => Verdict::Allowed,
        Err(Failure::Refused(code)) if CONDITION_FAILED.contains(&&*code) => Verdict::Allowed,
        Err(failure) => Verdict::Unknown(failure),
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
