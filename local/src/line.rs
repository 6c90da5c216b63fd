//! LINE's side: it issues the reply tokens of genuine deliveries, and takes one reply for each.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use http::{Request, StatusCode};
use onetap_config::Secret;
use onetap_line::WebhookBody;
use onetap_line::signature::{Verdict, verify};
use onetap_line::testing::{AcceptedReply, MessagingApi};
use serde_json::{Value, json};

use crate::bounded_map::BoundedMap;
use crate::clock::now_ms;
use crate::view::{Reply, View};

/// Largest number of reply tokens whose recipients are kept.
const MAX_TOKENS: usize = 10_000;

/// The Messaging API's stub, and the recipients of its replies.
pub(crate) struct Line {
    api: MessagingApi,
    recipients: Arc<Mutex<BoundedMap<Recipient>>>,
}

#[derive(Clone)]
struct Recipient {
    user: String,
    delivery: String,
    /// The number of its event in the delivery.
    event: usize,
}

impl Line {
    /// A reply with the text `busy` is one to an event that found the lock held.
    pub(crate) fn new(api: MessagingApi, view: Arc<View>, busy: Option<String>) -> Line {
        let recipients = Arc::new(Mutex::new(BoundedMap::<Recipient>::new(MAX_TOKENS)));
        let by_token = Arc::clone(&recipients);
        api.observe(move |taken| {
            let known = by_token.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(recipient) = known.get(&taken.reply_token).cloned() {
                drop(known);
                view.replied(reply(taken, recipient, busy.as_deref()));
            }
        });
        Line { api, recipients }
    }

    /// Issues the reply tokens of a delivery with a valid signature, from the playground or from a program that has the
    /// secret. A token that was issued before stays as it is, used or not.
    pub(crate) fn issue_tokens(
        &self,
        secrets: &[Secret],
        body: &[u8],
        signature: Option<&str>,
        delivery: &str,
    ) {
        if verify(secrets, body, signature) != Verdict::Genuine {
            return;
        }
        let events = WebhookBody::parse(body).map(|delivery| delivery.events).unwrap_or_default();
        let mut recipients = self.recipients.lock().unwrap_or_else(PoisonError::into_inner);
        for (n, event) in events.into_iter().enumerate() {
            if let Some(token) = event.reply_token.filter(|token| recipients.get(token).is_none()) {
                let user = event.source.user_id.unwrap_or_default();
                self.api.issue(token.as_str());
                recipients.insert(token, Recipient { user, delivery: delivery.to_owned(), event: n });
            }
        }
    }

    /// Answers a call of the Messaging API.
    pub(crate) fn answer(&self, request: &Request<Bytes>) -> (StatusCode, String) {
        self.api.answer(request)
    }
}

fn reply(taken: &AcceptedReply, recipient: Recipient, busy: Option<&str>) -> Reply {
    let text = taken.messages.iter().map(shown).collect::<Vec<_>>().join("\n");
    let items = taken.messages.last().and_then(|message| message["quickReply"]["items"].as_array());
    let items = items.into_iter().flatten().map(|item| &item["action"]);
    let buttons = taken.messages.iter().flat_map(|message| buttons(&message["template"]));
    let quick_replies = buttons.chain(items).map(quick_reply).collect();
    let path = if Some(text.as_str()) == busy { "busy" } else { "handled" };
    let Recipient { user, delivery, event } = recipient;
    Reply { at: now_ms(), user, text, path, quick_replies, delivery, event, forecast: None }
}

/// A message in one text: the page's phone shows no pictures.
fn shown(message: &Value) -> String {
    let text = |name: &str| message[name].as_str().unwrap_or_default();
    match text("type") {
        "text" => text("text").to_owned(),
        "sticker" => format!("[sticker {} of {}]", text("stickerId"), text("packageId")),
        "image" => format!("[image {}]", text("originalContentUrl")),
        "location" => format!("[location: {}, {}]", text("title"), text("address")),
        kind => format!("[{kind}: {}]", text("altText")),
    }
}

/// The buttons of a template, with those of all columns of a carousel.
fn buttons(template: &Value) -> impl Iterator<Item = &Value> {
    let columns = list(template, "columns").flat_map(|column| list(column, "actions"));
    list(template, "actions").chain(columns)
}

fn list<'v>(value: &'v Value, name: &str) -> impl Iterator<Item = &'v Value> + use<'v> {
    value[name].as_array().into_iter().flatten()
}

fn quick_reply(action: &Value) -> Value {
    let field = |name: &str| action.get(name).cloned().unwrap_or_default();
    json!({
        "label": field("label"),
        "type": field("type"),
        "text": field("text"),
        "data": field("data"),
        "uri": field("uri"),
    })
}
