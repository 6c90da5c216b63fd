//! Queues: what was acknowledged is done, what is recorded is not handled again, and a group is handled in its order.

use std::collections::{BTreeMap, HashMap};

use super::Violation;
use super::results::is_result;
use crate::history::client::RECORD_PREFIX;
use crate::history::event::{Answer, Call, Change, Layer};
use crate::history::history::{History, Operation};
use crate::history::queue::{Kind, Message};

/// One time that a message was handled, by a delivery that began at `since`.
struct Handling<'a> {
    operation: &'a Operation,
    message: &'a Message,
    since: u64,
}

/// All that was done to the messages of a history.
#[derive(Default)]
struct Story<'a> {
    handlings: BTreeMap<String, Vec<Handling<'a>>>,
    /// The first write of each result that was acknowledged.
    recorded: HashMap<&'a str, &'a Operation>,
}

pub(super) fn check(history: &History, violations: &mut Vec<Violation>) {
    let (mut story, mut deliveries) = (Story::default(), Vec::new());
    for operation in &history.operations {
        match (&operation.call, &operation.answer) {
            (Call::Deliver(message), Answer::Result(_)) => deliveries.push((operation, message)),
            (Call::Handle { message, since }, _) => {
                let handling = Handling { operation, message, since: *since };
                story.handlings.entry(message.name()).or_default().push(handling);
            }
            (Call::Commit(changes), Answer::Applied(_)) if operation.layer == Layer::Store => {
                for change in changes {
                    if let Change::Put { key, value: Some(value), .. } = change
                        && let Some(name) = key.strip_prefix(RECORD_PREFIX)
                        && is_result(value)
                    {
                        story.recorded.entry(name).or_insert(operation);
                    }
                }
            }
            _ => {}
        }
    }
    for (operation, message) in deliveries {
        if !story.is_done(message, operation.window().1) {
            let what = format!("{} was acknowledged, and nobody has done it", message.name());
            violations.push(Violation::new(what, [operation]));
        }
    }
    for (name, handlings) in &story.handlings {
        story.check_once(name, handlings, violations);
        for handling in handlings {
            story.check_order(handling, violations);
        }
    }
}

impl Story<'_> {
    /// Whether a handler had succeeded by then.
    fn is_done(&self, message: &Message, by: u64) -> bool {
        let handlings = self.handlings.get(&message.name()).into_iter().flatten();
        handlings
            .map(|handling| handling.operation)
            .any(|operation| matches!(operation.answer, Answer::Result(_)) && operation.window().1 <= by)
    }

    fn check_once(&self, name: &str, handlings: &[Handling<'_>], violations: &mut Vec<Violation>) {
        for pair in handlings.windows(2).filter(|pair| pair[0].message.kind == Kind::AtMostOnce) {
            let (first, next) = (pair[0].operation, pair[1].operation);
            let has_failed = matches!(first.answer, Answer::Nothing(_)) && first.window().1 <= next.start;
            if !has_failed {
                let what = format!("{name} may be handled once at most, and was again without a failure");
                violations.push(Violation::new(what, [first, next]));
            }
        }
        let Some(recorded) = self.recorded.get(name) else { return };
        for again in handlings.iter().filter(|handling| recorded.window().1 < handling.since) {
            let what = format!("{name} was handled again after its result was recorded");
            violations.push(Violation::new(what, [*recorded, again.operation]));
        }
    }

    /// The messages before it in its group were done when it began; one that nobody can read holds back nothing.
    fn check_order(&self, handling: &Handling<'_>, violations: &mut Vec<Violation>) {
        let Handling { operation, message, .. } = handling;
        if message.kind != Kind::Fifo {
            return;
        }
        let before = (0..message.number).map(|number| Message { number, ..(*message).clone() });
        for earlier in before.filter(|earlier| !earlier.is_malformed()) {
            if !self.is_done(&earlier, operation.start) {
                let what = format!("{} was handled before {} was done", message.name(), earlier.name());
                violations.push(Violation::new(what, [*operation]));
            }
        }
    }
}
