//! Queues of messages that all clients share, and a client that is given a batch of them, as Lambda would.

use std::sync::Arc;
use std::time::Duration;

use onetap_idem::sqs::{Consumer, SqsBatchResponse, SqsEvent, SqsMessage};
use onetap_idem::{EffectKeys, Failure, Policy};
use onetap_store::{Key, Log, Store};
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, sleep};

use super::client::{Client, idempotency};
use super::event::{Answer, Call, Layer};
use super::journal::Journal;
use super::publish::Publication;
use super::sabotage::Fence;
use super::seed::Seed;

/// How many messages a queue, or a group of one, has in a round.
const MESSAGES: u64 = 5;
/// How many groups a FIFO queue has in a round.
const GROUPS: u64 = 2;

/// What a queue promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// No order.
    Standard,
    /// No order, and a message is handled again only if its handler said that it failed.
    AtMostOnce,
    /// The messages of a group in their order.
    Fifo,
}

/// A message. The same one may be delivered to several clients, and several times.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// The kind of its queue.
    pub kind: Kind,
    /// Its queue, or its group.
    pub lane: String,
    /// Its place there.
    pub number: u64,
}

impl Message {
    /// Its idempotency key.
    pub fn name(&self) -> String {
        format!("{}/{}", self.lane, self.number)
    }

    /// Whether no handler can read it.
    pub fn is_malformed(&self) -> bool {
        self.number == 1
    }

    fn to_sqs(&self, id: usize, is_fifo: bool) -> SqsMessage {
        let mut message = SqsMessage::default();
        message.message_id = Some(id.to_string());
        message.event_source_arn = Some(if is_fifo { "arn:queue.fifo" } else { "arn:queue" }.to_owned());
        message.attributes.insert("MessageGroupId".to_owned(), self.lane.clone());
        let body = serde_json::to_string(self).expect("a message is JSON");
        message.body = Some(if self.is_malformed() { "no message".to_owned() } else { body });
        message
    }
}

impl Client {
    /// Handles a batch of messages, sometimes for longer than its deadline, and tells which of them are done.
    pub(super) async fn receive(&mut self) {
        let kind = [Kind::Standard, Kind::AtMostOnce, Kind::Fifo][self.seed.below(3) as usize];
        let messages = self.messages(kind);
        let is_fifo = kind == Kind::Fifo && self.plan.sabotage != Some(Fence::GroupOrder);
        let mut event = SqsEvent::default();
        event.records =
            messages.iter().enumerate().map(|(id, message)| message.to_sqs(id, is_fifo)).collect();
        let policy = if kind == Kind::AtMostOnce { Policy::AtMostOnce } else { Policy::AtLeastOnce };
        let consumer = Consumer::json(idempotency(&self.store, &self.plan, policy), Message::name);
        let (handler, deadline) = (self.handler(), Instant::now() + self.plan.lease * 3);

        let deliver = |message: &Message| self.journal.call(Layer::Api, Call::Deliver(message.clone()));
        let call_ids: Vec<_> = messages.iter().map(deliver).collect();
        let mut response =
            consumer.handle(event, deadline, |message, keys| handler.handle(message, keys)).await;
        if self.plan.sabotage == Some(Fence::PartialFailures) {
            response = SqsBatchResponse::default();
        }
        for (id, call_id) in call_ids.into_iter().enumerate() {
            let has_failed =
                response.batch_item_failures.iter().any(|failure| failure.item_identifier == id.to_string());
            let answer = if has_failed {
                Answer::Nothing("comes again".to_owned())
            } else {
                Answer::Result("done".to_owned())
            };
            self.journal.answer(call_id, answer);
        }
    }

    /// Of a FIFO queue each group from its first message on, as if none was done yet; of another queue any, also twice.
    fn messages(&mut self, kind: Kind) -> Vec<Message> {
        let at = format!("{}/{}/queue/{kind:?}", self.plan.prefix, self.round);
        if kind != Kind::Fifo {
            let numbers = (0..=self.seed.below(MESSAGES)).map(|_| self.seed.below(MESSAGES));
            return numbers.map(|number| Message { kind, lane: at.clone(), number }).collect();
        }
        let groups = (0..GROUPS).map(|group| format!("{at}/{group}"));
        let messages = groups.flat_map(|lane| {
            let of_group = 0..self.seed.below(MESSAGES + 1);
            of_group.map(move |number| Message { kind, lane: lane.clone(), number })
        });
        messages.collect()
    }

    fn handler(&mut self) -> Handler {
        Handler {
            store: Arc::clone(&self.store),
            journal: Arc::clone(&self.journal),
            since: self.journal.clock().now(),
            unique: self.unique(),
            seed: self.seed.fork(self.seed.clone().next()),
            lease: self.plan.lease,
        }
    }
}

/// Handles the messages of one delivery.
struct Handler {
    store: Arc<dyn Store>,
    journal: Arc<Journal>,
    /// When the delivery began.
    since: u64,
    unique: String,
    seed: Seed,
    lease: Duration,
}

impl Handler {
    /// Appends a record under the message's effect key. It is done when the record is known to be there.
    async fn handle(&self, message: Message, keys: EffectKeys) -> Result<(), Failure<&'static str>> {
        let mut seed = self.seed.fork(message.number);
        let call = Call::Handle { message: message.clone(), since: self.since };
        let call_id = self.journal.call(Layer::Api, call);
        let is_long = seed.percent(5);
        sleep(seed.up_to(if is_long { self.lease * 2 } else { self.lease / 10 })).await;
        if seed.percent(15) {
            self.journal.answer(call_id, Answer::Nothing("failed".to_owned()));
            return Err(Failure::Transient("on purpose"));
        }
        let publication = Publication {
            marker: Key::new(format!("{}/effect/{}", message.lane, keys.key("record").as_str()))
                .expect("a short name"),
            log: Log::new(format!("{}/log", message.lane)).expect("a short name"),
            text: format!("{}#{}", message.name(), self.unique),
            state: None,
            pause: seed.up_to(self.lease / 4),
        };
        let published = publication.send(&self.store, &self.journal).await;
        let is_done = matches!(published, Answer::Result(_));
        let answer =
            if is_done { Answer::Result("done".to_owned()) } else { Answer::Nothing("unknown".to_owned()) };
        self.journal.answer(call_id, answer);
        if is_done { Ok(()) } else { Err(Failure::Transient("no answer")) }
    }
}
