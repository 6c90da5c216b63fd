//! Sending a reply, and what its outcome means for the event.

use std::time::Duration;

use metrics::counter;
use onetap_line::webhook::Event;
use onetap_line::{Messages, ReplyOutcome};
use tokio::time::{Instant, sleep};

use crate::Ended;
use crate::session::Session;

/// How often a reply is sent in one delivery if LINE may not have taken it.
const MAX_SENDS: u32 = 2;
/// Time that a reply which is sent again leaves for the writes that end its event.
const RESERVE: Duration = Duration::from_millis(150);
/// The least time in which it is worth to send a reply again.
const MIN_TIME: Duration = Duration::from_millis(200);
/// Pause before a reply is sent again.
const PAUSE: Duration = Duration::from_millis(50);

/// What is known of a reply.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Replied {
    /// LINE has accepted it, and would refuse a second one.
    Accepted,
    /// LINE refuses it for good.
    Final,
    /// LINE has certainly not taken it, because it was not sent or is refused for now. Another delivery may send it.
    NotTaken,
    /// LINE may have taken it. Another delivery sends the same messages with the same token: LINE takes one of the two.
    Unknown,
}

impl Replied {
    pub(crate) fn ended(self) -> Ended {
        match self {
            Replied::Accepted | Replied::Final => Ended::Handled,
            Replied::NotTaken | Replied::Unknown => Ended::Failed,
        }
    }

    /// The same, for an answer that says "wait" or "try again" and that no marker keeps. If LINE may have taken it, the event must not be
    /// redelivered: it would then do what the answer denies.
    pub(crate) fn final_if_unknown(self) -> Replied {
        if self == Replied::Unknown { Replied::Final } else { self }
    }
}

/// Sends the reply, and sends it again if LINE may not have taken it and there is time. A reply token is good for one reply, so
/// the user gets it once: LINE refuses the second, and that shows that the first had arrived.
pub(crate) async fn reply(session: &Session<'_>, event: &Event, messages: &Messages) -> Replied {
    // Without a token there is nothing to send, now or later.
    let Some(token) = event.reply_token.as_deref() else { return Replied::Accepted };
    let mut replied = Replied::NotTaken;
    for sends in 0..MAX_SENDS {
        let mut end = session.deadline;
        if sends > 0 {
            end -= RESERVE;
            if Instant::now() + PAUSE + MIN_TIME > end {
                break;
            }
            sleep(PAUSE).await;
        }
        let now = Instant::now();
        if now >= session.deadline {
            counter!("line_reply_total", "outcome" => "out_of_time").increment(1);
            tracing::error!(outcome = "out_of_time", "reply");
            break;
        }
        let deadline = (now + session.engine.config.times.reply).min(end);
        let may_have_arrived = replied == Replied::Unknown;
        replied = match send(session, token, messages, deadline).await {
            ReplyOutcome::Sent => Replied::Accepted,
            ReplyOutcome::InvalidToken if may_have_arrived => Replied::Accepted,
            ReplyOutcome::ServerError | ReplyOutcome::Unreachable { maybe_sent: true } => Replied::Unknown,
            ReplyOutcome::RateLimited
            | ReplyOutcome::Unauthorized
            | ReplyOutcome::Forbidden
            | ReplyOutcome::Unreachable { .. } => {
                if may_have_arrived {
                    Replied::Unknown
                } else {
                    Replied::NotTaken
                }
            }
            // `InvalidToken`, `BadRequest`
            _ => Replied::Final,
        };
        if replied != Replied::Unknown {
            break;
        }
    }
    replied
}

/// Sends the reply once.
async fn send(session: &Session<'_>, token: &str, messages: &Messages, deadline: Instant) -> ReplyOutcome {
    let reply = session.line().reply(token, messages, deadline).await;
    let (outcome, request_id) = (reply.outcome.label(), reply.request_id);
    let properties = (!reply.properties.is_empty()).then(|| reply.properties.join(" "));
    counter!("line_reply_total", "outcome" => outcome).increment(1);
    match reply.outcome {
        ReplyOutcome::Sent => tracing::info!(outcome, request_id, "reply"),
        // A dead token is final: no delivery brings it back.
        ReplyOutcome::InvalidToken => tracing::warn!(outcome, request_id, "reply"),
        _ => tracing::error!(outcome, request_id, properties, "reply"),
    }
    reply.outcome
}
