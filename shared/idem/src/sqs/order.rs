//! The records of a batch, the order of FIFO groups, and the response to SQS.

use std::collections::HashSet;
use std::fmt;

use aws_lambda_events::sqs::{SqsBatchResponse, SqsMessage};

/// A message of a batch: what SQS says about it, and its state in this delivery. `Debug` does not show the group, which may name
/// a user.
#[derive(Clone, PartialEq, Eq)]
pub struct Record<S> {
    /// SQS's message id; empty if the message has none.
    pub id: String,
    /// The message group, on a FIFO queue. Standard queues have group ids too, for fair queues, without an order.
    pub group: Option<String>,
    /// How often SQS has delivered the message, this time included.
    pub deliveries: u32,
    /// What became of it so far.
    pub state: S,
}

impl<S> Record<S> {
    /// The record of `message`, in the state in which `read` finds it.
    pub fn new(message: SqsMessage, read: impl FnOnce(SqsMessage) -> S) -> Record<S> {
        let fifo = message.event_source_arn.as_ref().is_some_and(|arn| arn.ends_with(".fifo"));
        let deliveries = message.attributes.get("ApproximateReceiveCount");
        Record {
            id: message.message_id.clone().unwrap_or_default(),
            group: message.attributes.get("MessageGroupId").filter(|_| fifo).cloned(),
            deliveries: deliveries.and_then(|count| count.parse().ok()).unwrap_or(1),
            state: read(message),
        }
    }
}

impl<S: fmt::Debug> fmt::Debug for Record<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut record = f.debug_struct("Record");
        record.field("id", &self.id).field("deliveries", &self.deliveries).field("state", &self.state);
        record.finish_non_exhaustive()
    }
}

/// What the order of FIFO groups and the response depend on.
pub trait RecordState {
    /// Whether the record is done: SQS deletes its message.
    fn is_done(&self) -> bool;

    /// Whether it has failed and another delivery may succeed, so that the later records of its group wait for that. `deliveries`
    /// is how often SQS has delivered it, this time included.
    fn holds_back(&self, deliveries: u32) -> bool;

    /// Whether it keeps its state although an earlier record of its group has failed: it has failed itself, or it must not be
    /// handled again.
    fn is_final(&self) -> bool;

    /// The state of a record that an earlier one of its group holds back.
    fn held_back() -> Self;
}

/// Keeps the order of FIFO groups: holds back every record whose group has an earlier one that
/// [failed for now](RecordState::holds_back). What was not begun is not run then, and what is done is delivered again, in order, as a
/// duplicate. Records of no group, as on a standard queue, are left alone.
///
/// ```
/// use onetap_idem::sqs::{Record, RecordState, SqsEvent, hold_back, response};
///
/// #[derive(Debug, PartialEq)]
/// enum State { Waiting, Done, Malformed, Failed }
///
/// impl RecordState for State {
///     fn is_done(&self) -> bool { *self == State::Done }
///     fn holds_back(&self, _deliveries: u32) -> bool { *self == State::Failed }
///     fn is_final(&self) -> bool { matches!(self, State::Malformed | State::Failed) }
///     fn held_back() -> State { State::Failed }
/// }
///
/// # let of = |id: &str, group: &str| format!(r#"{{"messageId":"{id}","eventSourceARN":"arn:aws:sqs:::q.fifo",
/// #     "attributes":{{"MessageGroupId":"{group}"}}}}"#);
/// # let event: SqsEvent = serde_json::from_str(&format!(
/// #     r#"{{"Records":[{},{},{}]}}"#, of("1", "a"), of("2", "a"), of("3", "b"))).unwrap();
/// let mut records: Vec<_> = event.records.into_iter().map(|m| Record::new(m, |_| State::Waiting)).collect();
/// records[0].state = State::Failed;
/// hold_back(&mut records); // the second is of the same group, the third is not
/// records[2].state = State::Done;
/// let failed = response(&records).batch_item_failures;
/// assert_eq!(failed.iter().map(|f| f.item_identifier.as_str()).collect::<Vec<_>>(), ["1", "2"]);
/// ```
pub fn hold_back<S: RecordState>(records: &mut [Record<S>]) {
    let mut holding: HashSet<String> = HashSet::new();
    for record in records {
        let Some(group) = &record.group else { continue };
        if record.state.holds_back(record.deliveries) {
            holding.insert(group.clone());
        } else if holding.contains(group) && !record.state.is_final() {
            record.state = S::held_back();
        }
    }
}

/// The response: SQS delivers every record again that is not done. A record without an id is reported with an empty one; Lambda
/// then retries the whole batch.
pub fn response<S: RecordState>(records: &[Record<S>]) -> SqsBatchResponse {
    let mut response = SqsBatchResponse::default();
    for record in records.iter().filter(|record| !record.state.is_done()) {
        response.add_failure(record.id.as_str());
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_shows_no_group_of_a_message() {
        let record = Record { id: "1".to_owned(), group: Some("U1".to_owned()), deliveries: 1, state: () };
        assert_eq!(format!("{record:?}"), "Record { id: \"1\", deliveries: 1, state: (), .. }");
    }
}
