//! The calls of the Messaging API, as LINE answers them.

use std::sync::{MutexGuard, PoisonError};

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use serde_json::{Value, json};

use super::rules::{self, Errors};
use super::{
    AcceptedPush, AcceptedReply, Fault, Inner, MAX_KEPT, MAX_REQUESTS, ReceivedRequest, ShownLoading, State,
};

/// A JSON response.
pub(super) fn response(status: u16, body: String) -> Response<Bytes> {
    let mut response = Response::new(Bytes::from(body));
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}

fn json_response(status: u16, body: &Value) -> Response<Bytes> {
    response(status, body.to_string())
}

fn refuse(status: u16, message: &str) -> Response<Bytes> {
    json_response(status, &json!({ "message": message }))
}

fn refuse_body(errors: &Errors) -> Response<Bytes> {
    let message = format!("The request body has {} error(s)", errors.len());
    let details: Vec<Value> = errors
        .iter()
        .map(|(property, message)| json!({ "property": property, "message": message }))
        .collect();
    json_response(400, &json!({ "message": message, "details": details }))
}

/// What a path asks for.
enum Call<'a> {
    Reply,
    Push,
    Loading,
    Quota,
    Consumption,
    Info,
    Profile(&'a str),
    Content(&'a str),
}

impl Call<'_> {
    fn of(path: &str) -> Option<Call<'_>> {
        let between = |before: &str, after: &str| {
            let id = path.strip_prefix(before)?.strip_suffix(after)?;
            (!id.is_empty() && !id.contains('/')).then_some(id)
        };
        Some(match path {
            "/v2/bot/message/reply" => Call::Reply,
            "/v2/bot/message/push" => Call::Push,
            "/v2/bot/chat/loading/start" => Call::Loading,
            "/v2/bot/message/quota" => Call::Quota,
            "/v2/bot/message/quota/consumption" => Call::Consumption,
            "/v2/bot/info" => Call::Info,
            _ => match between("/v2/bot/profile/", "") {
                Some(user_id) => Call::Profile(user_id),
                None => Call::Content(between("/v2/bot/message/", "/content")?),
            },
        })
    }

    fn method(&self) -> Method {
        match self {
            Call::Reply | Call::Push | Call::Loading => Method::POST,
            _ => Method::GET,
        }
    }
}

impl State {
    pub(super) fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The response to a request that has this id. Checks are in LINE's order: path, access token, body, and last what a bad
    /// request does not use up.
    pub(super) fn response_to(&self, request: &Request<Bytes>, id: &str) -> Response<Bytes> {
        let sent = |name| request.headers().get(name).and_then(|value| value.to_str().ok());
        let Some(call) = Call::of(request.uri().path()) else {
            return refuse(404, "Not found");
        };
        if request.method() != call.method() {
            return refuse(405, "Method Not Allowed");
        }
        let token = sent(header::AUTHORIZATION).and_then(|value| value.strip_prefix("Bearer "));
        if token != Some(self.token.reveal()) {
            return refuse(401, "Authentication failed. Confirm that the access token is valid.");
        }
        let mut body = Value::Null;
        if call.method() == Method::POST {
            let media = sent(header::CONTENT_TYPE).and_then(|value| value.split(';').next());
            if media.map(str::trim) != Some("application/json") {
                return refuse(415, "The content type is not application/json");
            }
            let Ok(json) = serde_json::from_slice(request.body()) else {
                return refuse(400, "The request body could not be parsed as JSON");
            };
            body = json;
        }
        let retry_key = request.headers().get("x-line-retry-key").map(|key| key.to_str().unwrap_or_default());
        match call {
            Call::Push => self.push(&body, retry_key, id),
            _ if retry_key.is_some() => refuse(400, "The retry key is not supported"),
            Call::Reply => self.reply(&body),
            Call::Loading => self.loading(&body),
            Call::Quota => json_response(
                200,
                &match self.inner().quota {
                    Some(limit) => json!({ "type": "limited", "value": limit }),
                    None => json!({ "type": "none" }),
                },
            ),
            Call::Consumption => json_response(200, &json!({ "totalUsage": self.inner().used_quota })),
            Call::Info => json_response(
                200,
                &json!({
                    "userId": "U00000000000000000000000000000000",
                    "basicId": "@onetap",
                    "displayName": "onetap",
                    "chatMode": "bot",
                    "markAsReadMode": "auto",
                }),
            ),
            Call::Profile(user_id) => match self.inner().profiles.get(user_id) {
                Some(profile) => json_response(200, profile),
                None => refuse(404, "Not found"),
            },
            Call::Content(message_id) => match self.inner().contents.get(message_id) {
                Some(Some((content_type, content))) => {
                    let mut response = Response::new(content.clone());
                    if let Ok(content_type) = HeaderValue::from_str(content_type) {
                        response.headers_mut().insert(header::CONTENT_TYPE, content_type);
                    }
                    response
                }
                Some(None) => response(202, String::new()),
                None => refuse(404, "Not found"),
            },
        }
    }

    fn reply(&self, body: &Value) -> Response<Bytes> {
        let errors = rules::of_reply(body);
        if !errors.is_empty() {
            return refuse_body(&errors);
        }
        // A statement of its own: the observer must not run under the lock.
        let accepted = self.inner().accept_reply(body);
        let Some(accepted) = accepted else { return refuse(400, "Invalid reply token") };
        if let Some(observer) = self.observer.get() {
            observer(&accepted);
        }
        json_response(200, &sent_messages(&accepted.messages, "0"))
    }

    fn push(&self, body: &Value, retry_key: Option<&str>, id: &str) -> Response<Bytes> {
        if retry_key.is_some_and(|key| !rules::is_uuid(key)) {
            return refuse(400, "The retry key is invalid");
        }
        let errors = rules::of_push(body);
        if !errors.is_empty() {
            return refuse_body(&errors);
        }
        let accepted = self.inner().accept_push(body, retry_key, id);
        match accepted {
            Ok((push, answer)) => {
                if let Some(observer) = self.push_observer.get() {
                    observer(&push);
                }
                json_response(200, &answer)
            }
            Err(refusal) => *refusal,
        }
    }

    fn loading(&self, body: &Value) -> Response<Bytes> {
        let errors = rules::of_loading(body);
        if !errors.is_empty() {
            return refuse_body(&errors);
        }
        let user_id = body["chatId"].as_str().unwrap_or_default().to_owned();
        let seconds = body["loadingSeconds"].as_u64().unwrap_or(20);
        let mut inner = self.inner();
        inner.loadings.push(ShownLoading { user_id, seconds });
        if inner.loadings.len() > MAX_KEPT {
            inner.loadings.remove(0);
        }
        json_response(202, &json!({}))
    }
}

/// The ids of the messages that were sent.
fn sent_messages(messages: &[Value], prefix: &str) -> Value {
    let ids: Vec<Value> = (0..messages.len()).map(|n| json!({ "id": format!("{prefix}{n}") })).collect();
    json!({ "sentMessages": ids })
}

impl Inner {
    /// The fault for the next request, and that request's number.
    pub(super) fn next(&mut self) -> (Option<Fault>, usize) {
        self.requests += 1;
        (self.queued.pop_front().or_else(|| self.standing.clone()), self.requests)
    }

    /// The number of a request that did not come through the port.
    pub(super) fn next_direct(&mut self) -> usize {
        self.direct_requests += 1;
        self.direct_requests
    }

    pub(super) fn keep_request(&mut self, request: &Request<Bytes>) {
        self.received.push_back(ReceivedRequest {
            method: request.method().clone(),
            uri: request.uri().clone(),
            headers: request.headers().clone(),
            body: request.body().clone(),
        });
        if self.received.len() > MAX_REQUESTS {
            self.received.pop_front();
        }
    }

    /// Accepts a reply that obeys the rules, if its token is good.
    fn accept_reply(&mut self, body: &Value) -> Option<AcceptedReply> {
        let reply_token = body["replyToken"].as_str()?.to_owned();
        let issued = self.issued.as_ref().is_none_or(|issued| issued.values.contains_key(&reply_token));
        if !issued || !self.used.insert(reply_token.clone(), ()) {
            return None;
        }
        let messages = body["messages"].as_array()?.clone();
        let accepted = AcceptedReply { reply_token, messages };
        self.accepted.push_back(accepted.clone());
        if self.accepted.len() > MAX_KEPT {
            self.accepted.pop_front();
        }
        Some(accepted)
    }

    /// Accepts a push that obeys the rules, if its retry key is new and enough of the quota is left. A refused push does not use up
    /// its retry key.
    fn accept_push(
        &mut self,
        body: &Value,
        retry_key: Option<&str>,
        id: &str,
    ) -> Result<(AcceptedPush, Value), Box<Response<Bytes>>> {
        // LINE's keys are UUIDs, which are the same in either case.
        let retry_key = retry_key.map(str::to_ascii_lowercase);
        let to = body["to"].as_str().unwrap_or_default().to_owned();
        let recipients = self.recipients.get(&to).copied().unwrap_or(1);
        let is_too_much = self.quota.is_some_and(|limit| self.used_quota.saturating_add(recipients) > limit);
        let used_up = || Err(refuse(429, "You have reached your monthly limit.").into());
        if is_too_much && self.quota_comes_first {
            return used_up();
        }
        if let Some((accepted_id, ids)) = retry_key.as_ref().and_then(|key| self.retry_keys.values.get(key)) {
            let mut body = ids.clone();
            body["message"] = "The retry key is already accepted".into();
            let mut response = json_response(409, &body);
            if let Ok(id) = HeaderValue::from_str(accepted_id) {
                response.headers_mut().insert("x-line-accepted-request-id", id);
            }
            return Err(response.into());
        }
        if is_too_much {
            return used_up();
        }
        self.used_quota = self.used_quota.saturating_add(recipients);
        let messages = body["messages"].as_array().cloned().unwrap_or_default();
        let answer = sent_messages(&messages, &self.used_quota.to_string());
        if let Some(key) = &retry_key {
            self.retry_keys.insert(key.clone(), (id.to_owned(), answer.clone()));
        }
        let push = AcceptedPush { to, messages, retry_key };
        self.pushes.push_back(push.clone());
        if self.pushes.len() > MAX_KEPT {
            self.pushes.pop_front();
        }
        Ok((push, answer))
    }
}
