//! LINE's Messaging API, as far as the doctor asks it: a channel that is well, and what can be wrong with it.

use bytes::Bytes;
use http::Request;
use onetap_servers::{Fault, HttpStub};
use serde_json::{Value, json};

pub(crate) const TOKEN: &str = "planted-channel-access-token";

/// What each call answers.
#[derive(Clone)]
pub(crate) struct Channel {
    pub(crate) bot: Fault,
    pub(crate) webhook: Fault,
    pub(crate) quota: Fault,
    pub(crate) consumption: Fault,
    pub(crate) test: Fault,
}

impl Default for Channel {
    /// A channel that is well.
    fn default() -> Channel {
        let bot = json!({
            "userId": "Uplanted-bot-user", "basicId": "@216ru000", "displayName": "永和天氣", "chatMode": "bot",
            "markAsReadMode": "auto"
        });
        Channel {
            bot: Fault::ok(bot),
            webhook: Channel::webhook(
                "https://a1b2c3.execute-api.ap-northeast-1.amazonaws.com/line/webhook",
                true,
            ),
            quota: Fault::ok(json!({ "type": "limited", "value": 200 })),
            consumption: Fault::ok(json!({ "totalUsage": 37 })),
            test: Channel::test(true, 200, "OK"),
        }
    }
}

impl Channel {
    pub(crate) fn webhook(endpoint: &str, active: bool) -> Fault {
        Fault::ok(json!({ "endpoint": endpoint, "active": active }))
    }

    pub(crate) fn test(success: bool, status: i32, reason: &str) -> Fault {
        let timestamp = "2026-11-18T05:38:20.031Z";
        let detail = "planted-detail";
        Fault::ok(json!({
            "success": success, "timestamp": timestamp, "statusCode": status, "reason": reason, "detail": detail
        }))
    }

    pub(crate) fn start(self) -> HttpStub {
        HttpStub::answering(move |request| self.answer(request))
    }

    fn answer(&self, request: &Request<Bytes>) -> Fault {
        if request.headers().get("authorization").is_none_or(|sent| *sent != format!("Bearer {TOKEN}")) {
            let message =
                "Authentication failed. Confirm that the access token in the authorization header is valid.";
            return Fault::Status(401, json!({ "message": message }).to_string());
        }
        match format!("{} {}", request.method(), request.uri().path()).as_str() {
            "GET /v2/bot/info" => self.bot.clone(),
            "GET /v2/bot/channel/webhook/endpoint" => self.webhook.clone(),
            "GET /v2/bot/message/quota" => self.quota.clone(),
            "GET /v2/bot/message/quota/consumption" => self.consumption.clone(),
            "POST /v2/bot/channel/webhook/test"
                if serde_json::from_slice::<Value>(request.body()).is_ok_and(|body| body.is_object()) =>
            {
                self.test.clone()
            }
            _ => Fault::Status(404, json!({ "message": "Not found" }).to_string()),
        }
    }
}
