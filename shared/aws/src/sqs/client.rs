//! The client: one request for each call.

use std::collections::BTreeMap;
use std::fmt;
use std::time::SystemTime;

use http::{HeaderName, HeaderValue, Method, Request, Response, Uri, header};
use onetap_http::Bytes;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::{CallError, Config, QueueUrl};
use crate::Signer;

/// Limit for an answer without bodies of messages. The longest, the attributes of a queue, has a policy of 8 KiB in it.
pub(super) const MAX_ANSWER_BYTES: usize = 128 << 10;

/// What AWS's logs (CloudTrail) call this client.
const USER_AGENT: &str = concat!("onetap-aws/", env!("CARGO_PKG_VERSION"));

static X_AMZ_TARGET: HeaderName = HeaderName::from_static("x-amz-target");
static X_AMZN_REQUESTID: HeaderName = HeaderName::from_static("x-amzn-requestid");

/// Calls SQS.
///
/// Each call is one request (a batch may be several), which ends at its deadline. Nothing is sent again: the HTTP client retries
/// only if it has written no byte of it.
pub struct Client {
    http: onetap_http::Client,
    endpoint: Uri,
    signer: Signer,
}

impl Client {
    /// A client for SQS as `config` describes it. Does not connect yet.
    pub fn new(http: onetap_http::Client, config: &Config) -> Client {
        let signer = Signer::new("sqs", &*config.region, config.credentials.clone());
        Client { http, endpoint: config.endpoint.clone(), signer }
    }

    /// Opens a connection for the first call. Nothing is sent.
    pub async fn connect(&self, deadline: Instant) -> Result<(), onetap_http::Error> {
        self.http.connect(&self.endpoint, deadline).await
    }

    /// Reads attributes of a queue, such as `ApproximateNumberOfMessages`, or `All` (`GetQueueAttributes`). One that the queue does
    /// not have is left out.
    pub async fn attributes(
        &self,
        queue: &QueueUrl,
        names: &[&str],
        deadline: Instant,
    ) -> Result<BTreeMap<String, String>, CallError> {
        #[derive(Serialize)]
        #[serde(rename_all = "PascalCase")]
        struct Input<'a> {
            queue_url: &'a str,
            attribute_names: &'a [&'a str],
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "PascalCase")]
        struct Answer {
            #[serde(default)]
            attributes: BTreeMap<String, String>,
        }
        let input = Input { queue_url: queue.as_str(), attribute_names: names };
        let answer: Answer =
            self.ask("AmazonSQS.GetQueueAttributes", &input, deadline, MAX_ANSWER_BYTES).await?;
        Ok(answer.attributes)
    }

    /// A call with an answer.
    pub(super) async fn ask<T: DeserializeOwned>(
        &self,
        target: &'static str,
        input: &impl Serialize,
        deadline: Instant,
        max_bytes: usize,
    ) -> Result<T, CallError> {
        let response = self.call(target, json(input), deadline, max_bytes).await?;
        serde_json::from_slice(response.body()).map_err(|_| CallError::NotUnderstood)
    }

    /// A call whose answer is only that it succeeded.
    pub(super) async fn tell(
        &self,
        target: &'static str,
        input: &impl Serialize,
        deadline: Instant,
    ) -> Result<(), CallError> {
        let response = self.call(target, json(input), deadline, MAX_ANSWER_BYTES).await?;
        // SQS sends an empty body, as a proxy may; the emulators send an empty object.
        let is_answer = match response.body().trim_ascii() {
            b"" => response.headers().contains_key(&X_AMZN_REQUESTID),
            body => body.starts_with(b"{") && body.ends_with(b"}"),
        };
        if is_answer { Ok(()) } else { Err(CallError::NotUnderstood) }
    }

    /// Sends one request, and returns a response of status 200.
    async fn call(
        &self,
        target: &'static str,
        json: Vec<u8>,
        deadline: Instant,
        max_bytes: usize,
    ) -> Result<Response<Bytes>, CallError> {
        // The HTTP client would send it nevertheless, if a connection is open.
        if Instant::now() >= deadline {
            return Err(CallError::Unreachable { maybe_sent: false });
        }
        let mut request = Request::new(Bytes::from(json));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.endpoint.clone();
        let headers = request.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/x-amz-json-1.0"));
        headers.insert(header::USER_AGENT, HeaderValue::from_static(USER_AGENT));
        headers.insert(&X_AMZ_TARGET, HeaderValue::from_static(target));
        self.signer.sign(&mut request, SystemTime::now());
        let response = self.http.send(request, deadline, max_bytes).await?;
        if response.status().as_u16() == 200 { Ok(response) } else { Err(CallError::of(&response)) }
    }
}

/// This cannot fail: the inputs are structs of text and numbers.
fn json(input: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(input).unwrap_or_default()
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("endpoint", &self.endpoint).finish_non_exhaustive()
    }
}
