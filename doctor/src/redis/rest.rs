//! Any command over Upstash's REST API.

use http::{Request, StatusCode, header};
use onetap_config::{ConfigError, Secret, Variables};
use onetap_http::{Bytes, Client, Error};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::Failure;
use crate::store::REQUEST_TIMEOUT;

/// No reply to a command of these checks is larger.
const MAX_REPLY_BYTES: usize = 1 << 20;

pub(crate) struct Rest {
    client: Client,
    /// The variables that are set: Upstash's or Vercel's.
    pub(super) url_name: &'static str,
    pub(super) token_name: &'static str,
    url: String,
    token: Secret,
}

impl Rest {
    /// Reads the variables of Upstash or of Vercel KV, as the store does.
    pub(super) fn new(variables: &Variables<'_>) -> Result<Rest, ConfigError> {
        let url_name = variables.name_in_use("UPSTASH_REDIS_REST_URL", &["KV_REST_API_URL"])?;
        let token_name = variables.name_in_use("UPSTASH_REDIS_REST_TOKEN", &["KV_REST_API_TOKEN"])?;
        Ok(Rest {
            client: Client::new(),
            url_name,
            token_name,
            url: variables.base_url(url_name)?.ok_or_else(|| ConfigError::not_set(url_name))?,
            token: Secret::new(variables.required(token_name)?),
        })
    }

    pub(super) async fn command(&self, parts: &[&str]) -> Result<Value, Failure> {
        let request = Request::post(format!("{}/", self.url))
            .header(header::AUTHORIZATION, format!("Bearer {}", self.token.reveal()))
            .header(header::CONTENT_TYPE, "application/json")
            .body(Bytes::from(json!(parts).to_string()))
            .map_err(|_| Failure::NoAnswer("the address cannot be used"))?;
        let answer = self.client.send(request, Instant::now() + REQUEST_TIMEOUT, MAX_REPLY_BYTES).await;
        let answer = answer.map_err(|error| failure(&error))?;
        let status = answer.status();
        let mut body: Value = serde_json::from_slice(answer.body()).unwrap_or_default();
        match (status, body["error"].as_str()) {
            (StatusCode::OK, None) if body.get("result").is_some() => Ok(body["result"].take()),
            (StatusCode::BAD_REQUEST | StatusCode::FORBIDDEN, Some(error)) => {
                Err(Failure::Refused(error.to_owned()))
            }
            (StatusCode::UNAUTHORIZED, _) => Err(Failure::Refused("WRONGPASS".to_owned())),
            (StatusCode::TOO_MANY_REQUESTS, _) => Err(Failure::Unavailable("429: too many requests")),
            (status, _) if status.is_server_error() => {
                Err(Failure::Unavailable("the service answers with an error of its own (5xx)"))
            }
            _ => Err(Failure::NoAnswer("what answers there is not Upstash")),
        }
    }
}

pub(crate) fn failure(error: &Error) -> Failure {
    Failure::NoAnswer(match error {
        Error::NotConnected(_) => {
            "no connection: the name, the port, the network or the certificate is wrong"
        }
        Error::TimedOut => "no answer in time",
        _ => "the connection broke",
    })
}
