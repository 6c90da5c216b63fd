//! Calls of the Messaging API, and what their failures mean.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method, Request, header};
use onetap_config::ConfigError;
use onetap_line::Config;
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use super::OF;
use crate::Finding;

/// Limit for a response. The Messaging API's responses are far shorter.
const MAX_RESPONSE_BYTES: usize = 64 << 10;

/// The Messaging API.
pub(super) struct Api {
    http: onetap_http::Client,
    base_url: String,
    authorization: HeaderValue,
}

/// Why there is no answer.
pub(super) enum Failure {
    /// A status other than 200.
    Status(u16),
    /// No connection, or it broke.
    Unreachable,
    /// No answer in time.
    Late,
    /// The response is not what LINE answers.
    NotUnderstood,
}

/// A deadline this far from now.
pub(super) fn deadline(limit: Duration) -> Instant {
    Instant::now() + limit
}

impl Api {
    /// Connects to nothing yet.
    pub(super) fn new(config: &Config) -> Result<Api, ConfigError> {
        let wrong = |_| ConfigError::new("LINE_CHANNEL_ACCESS_TOKEN", "is not a token");
        let mut authorization: HeaderValue =
            format!("Bearer {}", config.token.reveal()).parse().map_err(wrong)?;
        authorization.set_sensitive(true);
        Ok(Api { http: onetap_http::Client::new(), base_url: config.base_url.clone(), authorization })
    }

    pub(super) async fn get<T: DeserializeOwned>(&self, path: &str, deadline: Instant) -> Result<T, Failure> {
        self.call(Method::GET, path, Bytes::new(), deadline).await
    }

    /// Posts an empty object.
    pub(super) async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        deadline: Instant,
    ) -> Result<T, Failure> {
        self.call(Method::POST, path, Bytes::from_static(b"{}"), deadline).await
    }

    async fn call<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
        deadline: Instant,
    ) -> Result<T, Failure> {
        let mut request = Request::new(body);
        *request.uri_mut() = [&self.base_url, path].concat().parse().map_err(|_| Failure::Unreachable)?;
        request.headers_mut().insert(header::AUTHORIZATION, self.authorization.clone());
        if method == Method::POST {
            request.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        *request.method_mut() = method;
        let sent = self.http.send(request, deadline, MAX_RESPONSE_BYTES).await;
        let response = sent.map_err(|error| match error {
            onetap_http::Error::TimedOut => Failure::Late,
            onetap_http::Error::TooLarge => Failure::NotUnderstood,
            _ if Instant::now() >= deadline => Failure::Late,
            _ => Failure::Unreachable,
        })?;
        match response.status().as_u16() {
            200 => serde_json::from_slice(response.body()).map_err(|_| Failure::NotUnderstood),
            status => Err(Failure::Status(status)),
        }
    }
}

impl Failure {
    /// The finding of a check that needed the answer.
    pub(super) fn finding(&self, check: &'static str) -> Finding {
        let wrong = |seen: String, remedy: &str| Finding::wrong(OF, check, seen, remedy);
        const NETWORK: &str = "Check this machine's network, LINE_API_BASE_URL if it is set, and LINE's outage reports (https://developers.line.biz/en/news/).";
        match self {
            Failure::Status(401) => wrong(
                "LINE refuses the channel access token (401)".to_owned(),
                "Issue another token in LINE's console, under Messaging API, and set LINE_CHANNEL_ACCESS_TOKEN to it.",
            ),
            Failure::Status(403) => wrong(
                "LINE forbids this call (403)".to_owned(),
                "Allow this machine's address in LINE's console, under Security, or check what the account's plan allows.",
            ),
            Failure::Status(429) => Finding::warning(
                OF,
                check,
                "LINE was asked too often (429)",
                "Run the doctor again in an hour.",
            ),
            Failure::Status(status @ 500..) => wrong(
                format!("LINE fails ({status})"),
                "Look at LINE's outage reports (https://developers.line.biz/en/news/), and run the doctor again later.",
            ),
            Failure::Status(status) => {
                wrong(format!("what answers is not the Messaging API ({status})"), "Check LINE_API_BASE_URL.")
            }
            Failure::NotUnderstood => wrong(
                "what answers is not the Messaging API".to_owned(),
                "Check LINE_API_BASE_URL, and whether a proxy answers in LINE's place.",
            ),
            Failure::Unreachable => wrong("LINE cannot be reached".to_owned(), NETWORK),
            Failure::Late => wrong("LINE does not answer in time".to_owned(), NETWORK),
        }
    }
}
