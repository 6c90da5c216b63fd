//! Any operation of DynamoDB, as signed JSON. The store's client offers only the store's operations, and the SDK's own does
//! not hand out the `Date` of an answer.

use std::time::{Duration, SystemTime};

use aws_credential_types::Credentials;
use aws_sigv4::http_request::{SignableBody, SignableRequest, SigningSettings, sign};
use aws_sigv4::sign::v4::SigningParams;
use aws_smithy_runtime_api::client::identity::Identity;
use aws_smithy_types::DateTime;
use aws_smithy_types::date_time::Format;
use http::{Request, Response, header};
use onetap_config::{ConfigError, Variables};
use onetap_http::{Bytes, Client, Error};
use serde_json::Value;
use tokio::time::Instant;

use super::rights::IDEM_PREFIX;
use crate::clock::Skew;
use crate::store::REQUEST_TIMEOUT;

const MAX_REPLY_BYTES: usize = 20 << 20;

/// Why an operation has no answer.
#[derive(Clone, Debug)]
pub(super) enum Failure {
    /// There is no answer of DynamoDB: in our words.
    NoAnswer(&'static str),
    /// DynamoDB answers that it cannot: in our words.
    Unavailable(&'static str),
    /// The code of DynamoDB's error. (Its message may quote keys.)
    Refused(String),
}

/// What came back, and by how much DynamoDB's clock is ahead, if the answer has a date.
pub(super) struct Reply {
    pub(super) answer: Result<Value, Failure>,
    pub(super) skew: Option<Skew>,
}

/// An account, a region and a table in it.
pub(crate) struct Table {
    client: Client,
    pub(super) name: String,
    pub(super) idem_prefix: String,
    region: String,
    url: String,
    identity: Identity,
}

impl Table {
    /// Reads the variables of the store. They were checked by the store.
    pub(crate) fn new(variables: &Variables<'_>) -> Result<Table, ConfigError> {
        let region = variables.required(variables.name_in_use("AWS_REGION", &["AWS_DEFAULT_REGION"])?)?;
        let ignored = variables.parsed("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "true or false", false)?;
        let endpoint = variables.name_in_use("AWS_ENDPOINT_URL_DYNAMODB", &["AWS_ENDPOINT_URL"])?;
        let endpoint = if ignored { None } else { variables.base_url(endpoint)? };
        let domain = if region.starts_with("cn-") { "amazonaws.com.cn" } else { "amazonaws.com" };
        let credentials = Credentials::new(
            variables.required("AWS_ACCESS_KEY_ID")?,
            variables.required("AWS_SECRET_ACCESS_KEY")?,
            variables.optional("AWS_SESSION_TOKEN")?,
            None,
            "environment",
        );
        Ok(Table {
            client: Client::new(),
            name: variables.required("DYNAMODB_TABLE")?,
            idem_prefix: variables.optional("IDEM_PREFIX")?.unwrap_or_else(|| IDEM_PREFIX.to_owned()),
            url: endpoint.unwrap_or_else(|| format!("https://dynamodb.{region}.{domain}")),
            region,
            identity: credentials.into(),
        })
    }

    pub(super) async fn call(&self, operation: &str, input: &Value) -> Result<Value, Failure> {
        self.call_timed(operation, input).await.answer
    }

    pub(super) async fn call_timed(&self, operation: &str, input: &Value) -> Reply {
        let Some(request) = self.request(operation, input) else {
            let answer = Err(Failure::NoAnswer("the request cannot be signed"));
            return Reply { answer, skew: None };
        };
        let sent = SystemTime::now();
        let answer = self.client.send(request, Instant::now() + REQUEST_TIMEOUT, MAX_REPLY_BYTES).await;
        let received = SystemTime::now();
        match answer {
            Ok(answer) => {
                let skew = date(&answer).map(|date| Skew::new(date, Duration::from_secs(1), sent, received));
                Reply { answer: read(&answer), skew }
            }
            Err(error) => Reply { answer: Err(failure(&error)), skew: None },
        }
    }

    fn request(&self, operation: &str, input: &Value) -> Option<Request<Bytes>> {
        let mut request = Request::post(format!("{}/", self.url))
            .header(header::CONTENT_TYPE, "application/x-amz-json-1.0")
            .header("x-amz-target", format!("DynamoDB_20120810.{operation}"))
            .body(Bytes::from(input.to_string()))
            .ok()?;
        let params = SigningParams::builder()
            .identity(&self.identity)
            .region(&self.region)
            .name("dynamodb")
            .time(SystemTime::now())
            .settings(SigningSettings::default())
            .build()
            .ok()?;
        let url = request.uri().to_string();
        let headers =
            request.headers().iter().filter_map(|(name, value)| Some((name.as_str(), value.to_str().ok()?)));
        let signable =
            SignableRequest::new("POST", url, headers, SignableBody::Bytes(request.body())).ok()?;
        let (instructions, _) = sign(signable, &params.into()).ok()?.into_parts();
        instructions.apply_to_request_http1x(&mut request);
        Some(request)
    }
}

fn date(answer: &Response<Bytes>) -> Option<Duration> {
    let date = answer.headers().get(header::DATE)?.to_str().ok()?;
    let date = DateTime::from_str(date, Format::HttpDate).ok()?;
    Some(Duration::from_secs(date.secs().try_into().ok()?))
}

fn read(answer: &Response<Bytes>) -> Result<Value, Failure> {
    let body: Option<Value> = serde_json::from_slice(answer.body()).ok();
    let code = |body: &Value| {
        let kind = body["__type"].as_str()?;
        Some(kind.rsplit('#').next().unwrap_or(kind).to_owned())
    };
    match body {
        Some(body) if answer.status().is_success() && body.is_object() => Ok(body),
        Some(body) if answer.status().is_client_error() => {
            Err(code(&body).map_or(Failure::NoAnswer("what answers there is not DynamoDB"), Failure::Refused))
        }
        _ if answer.status().is_server_error() => {
            Err(Failure::Unavailable("DynamoDB answers with an error of its own (5xx)"))
        }
        _ => Err(Failure::NoAnswer("what answers there is not DynamoDB")),
    }
}

fn failure(error: &Error) -> Failure {
    Failure::NoAnswer(match error {
        Error::NotConnected(_) => "no connection: the region, the endpoint or the network is wrong",
        Error::TimedOut => "no answer in time",
        _ => "the connection broke",
    })
}
