//! Sending messages.

use std::fmt;

use serde::Serialize;
use tokio::time::Instant;

use super::batch::{MAX_ENTRIES, Success, as_text};
use super::body::is_allowed;
use super::client::MAX_ANSWER_BYTES;
use super::{CallError, Client, QueueUrl};

/// Limit of SQS for a message, and for the messages of one request together. (A queue may be set to less.)
///
/// <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_SendMessageBatch.html>
pub const MAX_MESSAGE_BYTES: usize = 1 << 20;

/// Limit of SQS for a group id and a deduplication id.
const MAX_ID_LEN: usize = 128;

/// A message to send. `Debug` shows the length of its body, and nothing else.
#[derive(Clone, PartialEq, Eq)]
pub struct Message {
    body: String,
    group_id: Option<String>,
    deduplication_id: Option<String>,
}

impl Message {
    /// A message without a group. [`json_body`](super::json_body) makes a body of any value.
    pub fn new(body: impl Into<String>) -> Message {
        Message { body: body.into(), group_id: None, deduplication_id: None }
    }

    /// Sets the group, 1 to 128 visible ASCII characters. A FIFO queue keeps the order of each group.
    #[must_use]
    pub fn group_id(mut self, id: impl Into<String>) -> Message {
        self.group_id = Some(id.into());
        self
    }

    /// Sets the deduplication id, 1 to 128 visible ASCII characters. Of the messages that a FIFO queue takes with the same id within
    /// five minutes, it delivers one.
    #[must_use]
    pub fn deduplication_id(mut self, id: impl Into<String>) -> Message {
        self.deduplication_id = Some(id.into());
        self
    }

    /// The body.
    pub fn body(&self) -> &str {
        &self.body
    }

    /// Whether the message is within SQS's limits for this queue.
    pub fn check(&self, queue: &QueueUrl) -> Result<(), InvalidMessage> {
        let is_id =
            |id: &String| (1..=MAX_ID_LEN).contains(&id.len()) && id.bytes().all(|b| b.is_ascii_graphic());
        if self.body.is_empty() {
            Err(InvalidMessage::Empty)
        } else if self.body.len() > MAX_MESSAGE_BYTES {
            Err(InvalidMessage::TooLarge)
        } else if !self.body.chars().all(is_allowed) {
            Err(InvalidMessage::Character)
        } else if !self.group_id.as_ref().map_or(!queue.is_fifo(), is_id) {
            Err(InvalidMessage::GroupId)
        } else if !self.deduplication_id.as_ref().is_none_or(is_id) {
            Err(InvalidMessage::DeduplicationId)
        } else {
            Ok(())
        }
    }
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Message").field("bytes", &self.body.len()).finish_non_exhaustive()
    }
}

/// What is wrong with a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InvalidMessage {
    /// The body is empty.
    Empty,
    /// The body is larger than [`MAX_MESSAGE_BYTES`].
    TooLarge,
    /// The body has a character that SQS does not take: a control character other than tab, line feed and carriage return, or U+FFFE
    /// or U+FFFF.
    Character,
    /// The group id is missing, and the queue is a FIFO queue; or it is not 1 to 128 visible ASCII characters.
    GroupId,
    /// The deduplication id is not 1 to 128 visible ASCII characters.
    DeduplicationId,
}

impl fmt::Display for InvalidMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            InvalidMessage::Empty => "its body is empty",
            InvalidMessage::TooLarge => "its body is too large",
            InvalidMessage::Character => "its body has a character that SQS does not take",
            InvalidMessage::GroupId => "it has no group id, or one that SQS does not take",
            InvalidMessage::DeduplicationId => "it has a deduplication id that SQS does not take",
        })
    }
}

impl std::error::Error for InvalidMessage {}

/// Whether SQS has a message.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum SendOutcome {
    /// SQS has it. (If a FIFO queue drops it as a duplicate, the answer is the same.)
    Taken {
        /// SQS's id of the message.
        message_id: String,
        /// Its place in its group, in a FIFO queue.
        sequence_number: Option<String>,
    },
    /// SQS does not have it.
    NotTaken(CallError),
    /// SQS may have it. A FIFO queue delivers one message if the same is sent again within five minutes with the same deduplication id;
    /// a standard queue delivers both.
    Unknown(CallError),
}

impl SendOutcome {
    /// Whether SQS has the message.
    pub fn is_taken(&self) -> bool {
        matches!(self, SendOutcome::Taken { .. })
    }

    /// Why it is not known to have it.
    pub fn error(&self) -> Option<&CallError> {
        match self {
            SendOutcome::Taken { .. } => None,
            SendOutcome::NotTaken(error) | SendOutcome::Unknown(error) => Some(error),
        }
    }

    /// Its name for logs and metrics.
    pub fn label(&self) -> &'static str {
        self.error().map_or("taken", CallError::label)
    }

    fn of(answer: Result<Success, CallError>) -> SendOutcome {
        match answer {
            // SQS gives an id to every message.
            Ok(success) if success.message_id.is_empty() => SendOutcome::Unknown(CallError::NotUnderstood),
            Ok(Success { message_id, sequence_number, .. }) => {
                SendOutcome::Taken { message_id, sequence_number }
            }
            Err(error) if error.is_unknown() => SendOutcome::Unknown(error),
            Err(error) => SendOutcome::NotTaken(error),
        }
    }

    /// Whether a later message of the same group would overtake this one, which another attempt can still send.
    fn holds_back(&self) -> bool {
        self.error().is_some_and(|error| error.is_unknown() || error.is_transient())
    }
}

/// The input of `SendMessage`, or an entry of `SendMessageBatch`.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Input<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    queue_url: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "as_text")]
    id: Option<usize>,
    message_body: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    message_group_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message_deduplication_id: Option<&'a str>,
}

impl<'a> Input<'a> {
    fn new(message: &'a Message) -> Input<'a> {
        Input {
            queue_url: None,
            id: None,
            message_body: &message.body,
            message_group_id: message.group_id.as_deref(),
            message_deduplication_id: message.deduplication_id.as_deref(),
        }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Batch<'a> {
    queue_url: &'a str,
    entries: Vec<Input<'a>>,
}

impl Client {
    /// Sends a message (`SendMessage`).
    pub async fn send(&self, queue: &QueueUrl, message: &Message, deadline: Instant) -> SendOutcome {
        if let Err(invalid) = message.check(queue) {
            return SendOutcome::NotTaken(CallError::Invalid(invalid));
        }
        let input = Input { queue_url: Some(queue.as_str()), ..Input::new(message) };
        SendOutcome::of(self.ask("AmazonSQS.SendMessage", &input, deadline, MAX_ANSWER_BYTES).await)
    }

    /// Sends messages in their order, in as few requests as SQS allows (`SendMessageBatch`), one after the other. The outcomes are
    /// in the same order: SQS answers for each message by itself.
    ///
    /// In a FIFO queue, a message is [held back](CallError::HeldBack) if an earlier request may have failed to send one of its group.
    /// Within one request SQS decides about each message by itself: it may take a message and not an earlier one of its group.
    pub async fn send_batch(
        &self,
        queue: &QueueUrl,
        messages: &[Message],
        deadline: Instant,
    ) -> Vec<SendOutcome> {
        let invalid = |message: &Message| message.check(queue).err().map(CallError::Invalid);
        let mut outcomes: Vec<Option<SendOutcome>> =
            messages.iter().map(|message| invalid(message).map(SendOutcome::NotTaken)).collect();
        let valid = (0..messages.len()).filter(|place| outcomes[*place].is_none());
        let group = |place: usize| messages[place].group_id.as_deref().filter(|_| queue.is_fifo());
        let mut held_back: Vec<&str> = Vec::new();
        for mut places in requests(valid.map(|place| (place, messages[place].body.len()))) {
            places.retain(|place| group(*place).is_none_or(|group| !held_back.contains(&group)));
            if places.is_empty() {
                continue;
            }
            let entry = |place: &usize| Input { id: Some(*place), ..Input::new(&messages[*place]) };
            let input = Batch { queue_url: queue.as_str(), entries: places.iter().map(entry).collect() };
            let mut answer = self.ask_batch("AmazonSQS.SendMessageBatch", &input, deadline).await;
            for place in places {
                let outcome = SendOutcome::of(answer.take(place));
                held_back.extend(group(place).filter(|_| outcome.holds_back()));
                outcomes[place] = Some(outcome);
            }
        }
        let held_back = || SendOutcome::NotTaken(CallError::HeldBack);
        outcomes.into_iter().map(|outcome| outcome.unwrap_or_else(held_back)).collect()
    }
}

/// Cuts messages into requests, in order. Each is given by its place and its size.
fn requests(messages: impl Iterator<Item = (usize, usize)>) -> Vec<Vec<usize>> {
    let mut requests: Vec<Vec<usize>> = Vec::new();
    let mut bytes = 0;
    for (place, size) in messages {
        bytes += size;
        match requests.last_mut() {
            Some(request) if request.len() < MAX_ENTRIES && bytes <= MAX_MESSAGE_BYTES => request.push(place),
            _ => {
                requests.push(vec![place]);
                bytes = size;
            }
        }
    }
    requests
}
