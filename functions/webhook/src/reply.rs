//! Sending a reply, and what its outcome means for the event.

use metrics::counter;
use onetap_line::Messages;
use onetap_line::reply::Outcome;
use onetap_line::webhook::Event;
use tokio::time::Instant;

use crate::Ended;
use crate::session::Session;

/// What is known of a reply.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Replied {
    /// LINE has accepted it, and would refuse a second one.
    Accepted,
    /// It is not to be sent again: it may have arrived, or LINE refuses it for good.
    Final,
    /// LINE has certainly not taken it, because it was not sent or is refused for now. Another delivery may send it.
    NotTaken,
}

impl Replied {
    pub(crate) fn ended(self) -> Ended {
        if self == Replied::NotTaken { Ended::Failed } else { Ended::Handled }
    }
}

/// Sends the reply.
pub(crate) async fn reply(session: &Session<'_>, event: &Event, messages: &Messages) -> Replied {
    // Without a token there is nothing to send, now or later.
    let Some(token) = event.reply_token.as_deref() else { return Replied::Accepted };
    let now = Instant::now();
    if now >= session.deadline {
        counter!("line_reply_total", "outcome" => "out_of_time").increment(1);
        tracing::error!(outcome = "out_of_time", "reply");
        return Replied::NotTaken;
    }
    let deadline = (now + session.webhook.config.times.reply).min(session.deadline);
    let reply = session.webhook.line.reply(token, messages, deadline).await;
    let (outcome, request_id) = (reply.outcome.label(), reply.request_id);
    counter!("line_reply_total", "outcome" => outcome).increment(1);
    match reply.outcome {
        Outcome::Sent => tracing::info!(outcome, request_id, "reply"),
        // A dead token is final: no delivery brings it back.
        Outcome::InvalidToken => tracing::warn!(outcome, request_id, "reply"),
        _ => tracing::error!(outcome, request_id, "reply"),
    }
    match reply.outcome {
        Outcome::RateLimited | Outcome::Unauthorized | Outcome::Unreachable { maybe_sent: false } => {
            Replied::NotTaken
        }
        Outcome::Sent => Replied::Accepted,
        // `InvalidToken`, `BadRequest`, `ServerError`, `Unreachable { maybe_sent: true }`: refused for good, or it may have arrived.
        _ => Replied::Final,
    }
}
