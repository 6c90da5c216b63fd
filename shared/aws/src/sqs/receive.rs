//! Receiving messages, and what a consumer does with them.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::batch::{MAX_ENTRIES, as_text};
use super::{CallError, Client, QueueUrl};

/// Limit of SQS for the messages of one receipt.
pub const MAX_RECEIVED: usize = MAX_ENTRIES;

/// Limit for the answer to a receipt: ten messages of 1 MiB, most of whose characters may be escaped.
const MAX_RECEIPT_BYTES: usize = 32 << 20;

/// How to receive messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receive {
    max: usize,
    wait: Duration,
    visibility: Option<Duration>,
}

impl Receive {
    /// Up to `max` messages, 1 to [`MAX_RECEIVED`], without waiting for one.
    pub fn up_to(max: usize) -> Receive {
        Receive { max: max.clamp(1, MAX_RECEIVED), wait: Duration::ZERO, visibility: None }
    }

    /// Waits for a message, whole seconds up to 20. The deadline of the call has to be later.
    #[must_use]
    pub fn wait(self, time: Duration) -> Receive {
        Receive { wait: time, ..self }
    }

    /// Hides the messages from others for this time, in place of the queue's own; whole seconds, up to 12 hours.
    #[must_use]
    pub fn visibility(self, time: Duration) -> Receive {
        Receive { visibility: Some(time), ..self }
    }
}

/// A message that was received. `Debug` shows its id and nothing else: a group can be a person.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase")]
#[non_exhaustive]
pub struct ReceivedMessage {
    /// SQS's id of the message.
    pub message_id: String,
    /// Names this receipt of the message to [`Client::delete`] and [`Client::change_visibility`].
    pub receipt_handle: String,
    /// The body.
    pub body: String,
    /// SQS's attributes of the message, such as `ApproximateReceiveCount`.
    #[serde(default)]
    pub attributes: BTreeMap<String, String>,
}

impl ReceivedMessage {
    /// How often the message was received, this time included (`ApproximateReceiveCount`).
    pub fn receive_count(&self) -> Option<u32> {
        self.attribute("ApproximateReceiveCount")?.parse().ok()
    }

    /// Its group (`MessageGroupId`).
    pub fn group_id(&self) -> Option<&str> {
        self.attribute("MessageGroupId")
    }

    /// Its deduplication id (`MessageDeduplicationId`).
    pub fn deduplication_id(&self) -> Option<&str> {
        self.attribute("MessageDeduplicationId")
    }

    /// Its place in its group, in a FIFO queue (`SequenceNumber`).
    pub fn sequence_number(&self) -> Option<&str> {
        self.attribute("SequenceNumber")
    }

    fn attribute(&self, name: &str) -> Option<&str> {
        self.attributes.get(name).map(String::as_str)
    }
}

impl fmt::Debug for ReceivedMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReceivedMessage").field("message_id", &self.message_id).finish_non_exhaustive()
    }
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct ReceiveInput<'a> {
    queue_url: &'a str,
    max_number_of_messages: usize,
    message_system_attribute_names: [&'static str; 1],
    wait_time_seconds: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    visibility_timeout: Option<u64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ReceiveAnswer {
    #[serde(default)]
    messages: Vec<ReceivedMessage>,
}

/// The input of `DeleteMessage` and `ChangeMessageVisibility`, or an entry of `ChangeMessageVisibilityBatch`.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Input<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    queue_url: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "as_text")]
    id: Option<usize>,
    receipt_handle: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    visibility_timeout: Option<u64>,
}

impl<'a> Input<'a> {
    fn new(receipt_handle: &'a str, visibility: Option<Duration>) -> Input<'a> {
        Input { queue_url: None, id: None, receipt_handle, visibility_timeout: visibility.map(whole_seconds) }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Batch<'a> {
    queue_url: &'a str,
    entries: Vec<Input<'a>>,
}

impl Client {
    /// Receives messages, with all of their attributes (`ReceiveMessage`). There may be none, also where the queue has some.
    ///
    /// A message that was received is hidden from others until its visibility timeout ends; so are those of a receipt whose
    /// answer was lost.
    pub async fn receive(
        &self,
        queue: &QueueUrl,
        receive: Receive,
        deadline: Instant,
    ) -> Result<Vec<ReceivedMessage>, CallError> {
        let input = ReceiveInput {
            queue_url: queue.as_str(),
            max_number_of_messages: receive.max,
            message_system_attribute_names: ["All"],
            wait_time_seconds: receive.wait.as_secs(),
            visibility_timeout: receive.visibility.map(whole_seconds),
        };
        let answer: ReceiveAnswer =
            self.ask("AmazonSQS.ReceiveMessage", &input, deadline, MAX_RECEIPT_BYTES).await?;
        Ok(answer.messages)
    }

    /// Deletes a message (`DeleteMessage`). Of a message that was received again since, the latest receipt is the one to name.
    pub async fn delete(
        &self,
        queue: &QueueUrl,
        receipt_handle: &str,
        deadline: Instant,
    ) -> Result<(), CallError> {
        let input = Input { queue_url: Some(queue.as_str()), ..Input::new(receipt_handle, None) };
        self.tell("AmazonSQS.DeleteMessage", &input, deadline).await
    }

    /// Hides a message for this time from now on, whole seconds (`ChangeMessageVisibility`). Zero makes it visible at once. SQS
    /// refuses a time that ends more than 12 hours after the receipt.
    pub async fn change_visibility(
        &self,
        queue: &QueueUrl,
        receipt_handle: &str,
        time: Duration,
        deadline: Instant,
    ) -> Result<(), CallError> {
        let input = Input { queue_url: Some(queue.as_str()), ..Input::new(receipt_handle, Some(time)) };
        self.tell("AmazonSQS.ChangeMessageVisibility", &input, deadline).await
    }

    /// The same for several messages, each with its time, in as few requests as SQS allows (`ChangeMessageVisibilityBatch`). The
    /// results are in the same order.
    pub async fn change_visibility_batch(
        &self,
        queue: &QueueUrl,
        changes: &[(&str, Duration)],
        deadline: Instant,
    ) -> Vec<Result<(), CallError>> {
        let mut results = Vec::with_capacity(changes.len());
        for changes in changes.chunks(MAX_ENTRIES) {
            let entries = changes.iter().enumerate();
            let entries = entries
                .map(|(place, (handle, time))| Input { id: Some(place), ..Input::new(handle, Some(*time)) })
                .collect();
            let input = Batch { queue_url: queue.as_str(), entries };
            let mut answer = self.ask_batch("AmazonSQS.ChangeMessageVisibilityBatch", &input, deadline).await;
            results.extend((0..changes.len()).map(|place| answer.take(place).map(drop)));
        }
        results
    }
}

/// Rounded up, so that a message is not visible too early.
fn whole_seconds(time: Duration) -> u64 {
    time.as_secs() + u64::from(time.subsec_nanos() > 0)
}
