//! A simulated SQS queue in memory, for tests and the local runner: visibility timeout, redelivery, dead-letter queue
//! and FIFO groups.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;
use std::fmt::Write;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use aws_lambda_events::sqs::SqsMessage;
use md5::{Digest, Md5};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

/// How long a FIFO queue keeps a deduplication id.
const DEDUPLICATION_WINDOW: Duration = Duration::from_secs(300);

/// A simulated SQS queue. A clone is the same queue. `Debug` shows no bodies.
#[derive(Clone)]
pub struct Queue {
    name: Arc<str>,
    visibility: Duration,
    dead_letter_queue: Option<(Box<Queue>, u32)>,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Default)]
struct State {
    messages: VecDeque<Message>,
    sent: u64,
    deduplicated: HashMap<String, Instant>,
}

struct Message {
    id: String,
    body: String,
    /// The message group and the deduplication id.
    group: Option<(String, String)>,
    sequence: u64,
    receive_count: u32,
    /// The end of its visibility timeout; `None` if it was not received yet.
    hidden_until: Option<Instant>,
}

impl Message {
    fn is_hidden(&self, now: Instant) -> bool {
        self.hidden_until.is_some_and(|until| now < until)
    }

    /// Valid for one delivery: a late consumer cannot delete a message that was delivered again since.
    fn receipt_handle(&self) -> String {
        format!("{}#{}", self.id, self.receive_count)
    }
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Queue({}, {} messages)", self.name, self.len())
    }
}

impl Queue {
    /// An empty queue with a visibility timeout of 30 s and no dead-letter queue.
    pub fn new(name: &str) -> Queue {
        let visibility = Duration::from_secs(30);
        Queue { name: name.into(), visibility, dead_letter_queue: None, shared: Arc::default() }
    }

    /// Sets the visibility timeout.
    #[must_use]
    pub fn with_visibility(self, visibility: Duration) -> Queue {
        Queue { visibility, ..self }
    }

    /// Sets the dead-letter queue: a message moves to `queue` instead of being delivered more than `max_receives`
    /// times.
    #[must_use]
    pub fn with_dead_letters(self, queue: &Queue, max_receives: u32) -> Queue {
        Queue { dead_letter_queue: Some((Box::new(queue.clone()), max_receives)), ..self }
    }

    /// Whether it is a FIFO queue, which keeps the order of each message group.
    pub fn is_fifo(&self) -> bool {
        self.name.ends_with(".fifo")
    }

    /// Sends a message.
    pub fn send(&self, body: impl Into<String>) {
        self.push(body.into(), None);
    }

    /// Sends a message of a group, unless one with the same deduplication id was sent within five minutes.
    pub fn send_to_group(&self, group: &str, deduplication: &str, body: impl Into<String>) {
        self.push(body.into(), Some((group.to_owned(), deduplication.to_owned())));
    }

    fn push(&self, body: String, group: Option<(String, String)>) {
        let now = Instant::now();
        let mut state = self.state();
        if let (true, Some((_, deduplication))) = (self.is_fifo(), &group) {
            state.deduplicated.retain(|_, sent| now < *sent + DEDUPLICATION_WINDOW);
            if state.deduplicated.contains_key(deduplication) {
                return;
            }
            state.deduplicated.insert(deduplication.clone(), now);
        }
        state.sent += 1;
        let sequence = state.sent;
        let id = format!("00000000-0000-4000-8000-{sequence:012x}");
        state.messages.push_back(Message { id, body, group, sequence, receive_count: 0, hidden_until: None });
        drop(state);
        self.shared.changed.notify_waiters();
    }

    /// Receives up to `max` messages. Waits until there is one.
    pub async fn receive(&self, max: usize) -> Vec<SqsMessage> {
        loop {
            // Registered before the queue is read, so that no message is missed in between.
            let changed = self.shared.changed.notified();
            let (messages, next) = self.take(max);
            if !messages.is_empty() {
                return messages;
            }
            match next {
                Some(next) => tokio::select! { () = changed => {}, () = sleep_until(next) => {} },
                None => changed.await,
            }
        }
    }

    /// Receives up to `max` visible messages. Also returns the time at which the next hidden one becomes visible.
    fn take(&self, max: usize) -> (Vec<SqsMessage>, Option<Instant>) {
        let now = Instant::now();
        let mut state = self.state();
        self.move_dead_letters(&mut state, now);
        let mut held: HashSet<String> = HashSet::new();
        let mut taken = Vec::new();
        for message in &mut state.messages {
            let group = message.group.as_ref().filter(|_| self.is_fifo()).map(|(group, _)| group.clone());
            if message.is_hidden(now) {
                held.extend(group);
            } else if taken.len() < max && group.is_none_or(|group| !held.contains(&group)) {
                message.receive_count += 1;
                message.hidden_until = Some(now + self.visibility);
                taken.push(self.record(message));
            }
        }
        let next = state
            .messages
            .iter()
            .filter_map(|message| message.hidden_until)
            .filter(|until| now < *until)
            .min();
        (taken, next)
    }

    /// Moves messages that were delivered the maximum number of times to the dead-letter queue.
    fn move_dead_letters(&self, state: &mut State, now: Instant) {
        let Some((dead, max_receives)) = &self.dead_letter_queue else {
            return;
        };
        let is_dead = |message: &Message| message.receive_count >= *max_receives && !message.is_hidden(now);
        if state.messages.iter().any(is_dead) {
            let (moved, kept) = state.messages.drain(..).partition(is_dead);
            state.messages = kept;
            let moved: VecDeque<Message> = moved;
            let moved =
                moved.into_iter().map(|message| Message { receive_count: 0, hidden_until: None, ..message });
            dead.state().messages.extend(moved);
            dead.shared.changed.notify_waiters();
            self.shared.changed.notify_waiters();
        }
    }

    /// Deletes the message with this receipt handle. Returns `false` if the message was delivered again since, or is
    /// already deleted.
    pub fn delete(&self, receipt_handle: &str) -> bool {
        let mut state = self.state();
        let before = state.messages.len();
        state
            .messages
            .retain(|message| message.receive_count == 0 || message.receipt_handle() != receipt_handle);
        let deleted = state.messages.len() < before;
        drop(state);
        self.shared.changed.notify_waiters();
        deleted
    }

    /// Waits until the queue is empty.
    pub async fn emptied(&self) {
        loop {
            let changed = self.shared.changed.notified();
            if self.is_empty() {
                return;
            }
            changed.await;
        }
    }

    /// The number of messages, hidden ones included.
    pub fn len(&self) -> usize {
        self.state().messages.len()
    }

    /// The number of hidden messages: received, and neither deleted nor visible again.
    pub fn in_flight(&self) -> usize {
        let now = Instant::now();
        self.state().messages.iter().filter(|message| message.is_hidden(now)).count()
    }

    /// Whether it holds no messages, hidden ones included.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bodies of its messages in queue order, hidden ones included.
    pub fn bodies(&self) -> Vec<String> {
        self.state().messages.iter().map(|message| message.body.clone()).collect()
    }

    /// The message in the form in which Lambda passes it to a function.
    fn record(&self, message: &Message) -> SqsMessage {
        let mut record = SqsMessage::default();
        record.message_id = Some(message.id.clone());
        record.receipt_handle = Some(message.receipt_handle());
        record.md5_of_body = Some(hex(&Md5::digest(message.body.as_bytes())));
        record.body = Some(message.body.clone());
        record.event_source = Some("aws:sqs".to_owned());
        record.event_source_arn = Some(format!("arn:aws:sqs:local:000000000000:{}", self.name));
        record.aws_region = Some("local".to_owned());
        let mut attribute =
            |name: &str, value: String| drop(record.attributes.insert(name.to_owned(), value));
        attribute("ApproximateReceiveCount", message.receive_count.to_string());
        if let Some((group, deduplication)) = &message.group {
            attribute("MessageGroupId", group.clone());
            attribute("MessageDeduplicationId", deduplication.clone());
        }
        if self.is_fifo() {
            attribute("SequenceNumber", format!("{:020}", message.sequence));
        }
        record
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A poisoned lock is safe to use: no change of the state panics halfway.
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
