//! What the clients did, by kind: the second table of `scripts/soak`.

use super::book::Asked;
use super::client::{AT_MOST_ONCE_KEY_PART, CAS_KEY_PART, EVENT_KEY_PART};
use super::event::{Answer, Call, Change, Layer};
use super::history::Operation;
use super::queue::Kind;

/// All kinds, in the order of the table.
pub const KINDS: [&str; 22] = [
    "key: read",
    "counter: swap",
    "log: append",
    "log: clear",
    "log: read, whole or by pages",
    "event: publish once, and keep the newest",
    "lease: acquire",
    "lease: renew, or keep for a minimum hold",
    "lease: edit under it",
    "lease: release",
    "call: execute once",
    "call: execute at most once",
    "call: edit with its record",
    "queue: message of a standard queue",
    "queue: message of a FIFO group",
    "queue: message at most once",
    "ledger: enter by chat",
    "ledger: put",
    "ledger: edit",
    "ledger: move to another date",
    "ledger: delete",
    "ledger: erase",
];

/// The kind of a call that a client made. A call that only serves another one has none, such as a read of `Edit` or of a
/// caller that waits for a result.
pub fn kind(operation: &Operation) -> Option<&'static str> {
    match (operation.layer, &operation.call) {
        (_, Call::OwnGet(_)) => Some("key: read"),
        (_, Call::OwnRead(_)) => Some("log: read, whole or by pages"),
        (Layer::Store, Call::Commit(changes)) => match changes.as_slice() {
            [Change::Put { key, .. }] if key.contains(CAS_KEY_PART) => Some("counter: swap"),
            [Change::Append { .. }, ..] => Some("log: append"),
            [Change::Clear { .. }] => Some("log: clear"),
            _ => None,
        },
        (Layer::Api, Call::Commit(changes)) => match changes.as_slice() {
            [Change::Check { .. }, ..] => Some("lease: edit under it"),
            [Change::Put { .. }] => Some("lease: renew, or keep for a minimum hold"),
            [Change::Delete { .. }] => Some("lease: release"),
            _ => None,
        },
        (_, Call::Acquire { .. }) => Some("lease: acquire"),
        (_, Call::Publish { marker, .. }) => {
            marker.contains(EVENT_KEY_PART).then_some("event: publish once, and keep the newest")
        }
        (_, Call::Execute { counter: Some(_), .. }) => Some("call: edit with its record"),
        (_, Call::Execute { key, .. }) if key.contains(AT_MOST_ONCE_KEY_PART) => {
            Some("call: execute at most once")
        }
        (_, Call::Execute { .. }) => Some("call: execute once"),
        (_, Call::Deliver(message)) => Some(match message.kind {
            Kind::Standard => "queue: message of a standard queue",
            Kind::Fifo => "queue: message of a FIFO group",
            Kind::AtMostOnce => "queue: message at most once",
        }),
        (_, Call::Ledger { asked, .. }) => Some(match asked {
            Asked::Note(_) => "ledger: enter by chat",
            Asked::Put { .. } => "ledger: put",
            Asked::Remark(_) => "ledger: edit",
            Asked::Date(_) => "ledger: move to another date",
            Asked::Delete => "ledger: delete",
            Asked::Erase => "ledger: erase",
        }),
        (_, Call::Get(_) | Call::Read { .. } | Call::Handle { .. } | Call::Run(_)) => None,
    }
}

/// Whether the answer says that it was done, or what was asked.
pub fn is_confirmed(answer: &Answer) -> bool {
    match answer {
        Answer::Applied(_)
        | Answer::Value(_)
        | Answer::Records(_)
        | Answer::Acquired(_)
        | Answer::Result(_) => true,
        Answer::Refused(_) | Answer::Nothing(_) | Answer::NotSent | Answer::Unknown | Answer::Rejected(_) => {
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::time::Duration;

    use super::*;
    use crate::history::on_memory;

    /// The part of a name that says what it is for.
    fn part(name: &str) -> &str {
        name.split('/').nth(2).unwrap_or("")
    }

    #[test]
    fn reads_are_those_that_clients_make_for_their_own_sake() {
        let history = on_memory(1, Duration::from_secs(20), None).history;
        let (mut own, mut others) = (BTreeSet::new(), BTreeSet::new());
        for operation in &history.operations {
            match (&operation.call, kind(operation)) {
                (Call::OwnGet(name), Some("key: read"))
                | (Call::OwnRead(name), Some("log: read, whole or by pages")) => _ = own.insert(part(name)),
                (_, Some("key: read" | "log: read, whole or by pages")) => panic!("{operation}"),
                (Call::Get(name) | Call::Read { log: name, .. }, _) => _ = others.insert(part(name)),
                _ => {}
            }
            assert!(kind(operation).is_none() || operation.client != "last look", "{operation}");
        }
        assert_eq!(own, BTreeSet::from(["swap", "lock", "data", "newest", "log", "slate"]));
        let helpers: Vec<&str> = others.difference(&own).copied().collect();
        assert!(helpers.contains(&"job"), "callers that wait read a record: {helpers:?}");
    }
}
