//! LINE's account of the channel: the calls that `cargo doctor` makes.

use bytes::Bytes;
use http::{Method, Request, StatusCode, header};
use onetap_weather::Moment;
use serde_json::{Value, json};

use crate::runner::Runner;

/// Answers a call about the channel; `None` if it is another call of the Messaging API.
pub(crate) async fn answer(runner: &Runner, request: &Request<Bytes>) -> Option<(StatusCode, String)> {
    let sent = request.headers().get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let is_authorized =
        sent.and_then(|value| value.strip_prefix("Bearer ")) == Some(runner.line_token.reveal());
    let about = match (request.method(), request.uri().path()) {
        (&Method::GET, "/v2/bot/info") => json!({
            "userId": "U00000000000000000000000000000b07",
            "basicId": "@playground",
            "displayName": "the playground",
            "chatMode": "bot",
            "markAsReadMode": "auto",
        }),
        (&Method::GET, "/v2/bot/channel/webhook/endpoint") => {
            json!({ "endpoint": runner.webhook_uri.to_string(), "active": true })
        }
        (&Method::GET, "/v2/bot/message/quota") => json!({ "type": "none" }),
        // Replies are not counted.
        (&Method::GET, "/v2/bot/message/quota/consumption") => json!({ "totalUsage": 0 }),
        (&Method::POST, "/v2/bot/channel/webhook/test") if is_authorized => test_webhook(runner).await,
        (&Method::POST, "/v2/bot/channel/webhook/test") => Value::Null,
        _ => return None,
    };
    if !is_authorized {
        let message = "Authentication failed. Confirm that the access token is valid.";
        return Some((StatusCode::UNAUTHORIZED, json!({ "message": message }).to_string()));
    }
    Some((StatusCode::OK, about.to_string()))
}

/// A signed delivery without events, as LINE's own test is.
async fn test_webhook(runner: &Runner) -> Value {
    let (now, status) = (Moment::now(), runner.post(&[]).await.status);
    let reason = match status {
        200 => "OK",
        0 => "COULD_NOT_CONNECT",
        _ => "ERROR_STATUS_CODE",
    };
    json!({
        "success": status == 200,
        "timestamp": format!("{}T{}+08:00", now.date(), now.time()),
        "statusCode": status,
        "reason": reason,
        "detail": status.to_string(),
    })
}
