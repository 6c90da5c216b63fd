//! Sending a reply, and what its outcome means for the event.

use metrics::counter;
use onetap_line::Messages;
use onetap_line::reply::Outcome;
use onetap_line::webhook::Event;
use tokio::time::Instant;

use crate::Ended;
use crate::session::Session;

/// Sends the reply. Failed means that surely nothing was sent, and that another delivery may succeed.
pub(crate) async fn reply(session: &Session<'_>, event: &Event, messages: &Messages) -> Ended {
    let Some(token) = event.reply_token.as_deref() else { return Ended::Handled };
    let now = Instant::now();
    if now >= session.deadline {
        counter!("line_reply_total", "outcome" => "out_of_time").increment(1);
        tracing::error!(outcome = "out_of_time", "reply");
        return Ended::Failed;
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
            Ended::Failed
        }
        _ => Ended::Handled,
    }
}
