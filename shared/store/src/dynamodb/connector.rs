//! Connects the AWS SDK to the project's own HTTP client: one TLS configuration, bundled root certificates, nothing
//! loaded at start.

use std::time::Duration;

use aws_sdk_dynamodb::config::http::{HttpRequest, HttpResponse};
use aws_smithy_runtime_api::client::http::{
    HttpClient, HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpConnector,
};
use aws_smithy_runtime_api::client::result::ConnectorError;
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;
use aws_smithy_types::body::SdkBody;
use http::Response;
use http::header::{HeaderValue, USER_AGENT};
use onetap_http::{Bytes, Client, Error};
use tokio::time::{Instant, timeout_at};

/// A page of a query is at most 1 MB, a batch read 16 MB.
const MAX_REPLY_BYTES: usize = 20 << 20;

/// What AWS's logs (CloudTrail) call this client.
const NAME: &str = concat!("onetap-store/", env!("CARGO_PKG_VERSION"));

/// Extra time after the deadline, in which the HTTP client reports whether the request was sent.
const GRACE: Duration = Duration::from_millis(20);

tokio::task_local! {
    /// The deadline of the store call that is being polled. A task-local, because the SDK cannot pass it on.
    static DEADLINE: Instant;
    /// Set while the call only connects.
    static CONNECT_ONLY: ();
}

/// Runs `call` until `deadline`. The HTTP client gets the deadline too: only it knows whether the request was sent when
/// the time is up.
pub(super) async fn by<T>(
    deadline: Instant,
    call: impl Future<Output = Result<T, crate::Error>>,
) -> Result<T, crate::Error> {
    let answer = timeout_at(deadline + GRACE, DEADLINE.scope(deadline, call)).await;
    answer.unwrap_or_else(|_| Err(crate::Error::unknown("no answer in time")))
}

/// Runs `call` until its request would be sent, and opens the connection for it. The SDK gets an empty answer instead.
///
/// Only the SDK knows its endpoint. Building the request also initialises what the SDK needs for its first one.
pub(super) async fn connect_only<T>(
    deadline: Instant,
    call: impl Future<Output = Result<T, crate::Error>>,
) -> Result<T, crate::Error> {
    CONNECT_ONLY.scope((), by(deadline, call)).await
}

/// The HTTP connector of the SDK. It does not retry: only the store knows which requests are repeatable.
#[derive(Clone, Debug)]
pub(super) struct Connector {
    client: Client,
}

impl Connector {
    pub(super) fn new() -> Connector {
        Connector { client: Client::new() }
    }

    async fn exchange(self, request: HttpRequest) -> Result<HttpResponse, ConnectorError> {
        let request = request.try_into_http1x().map_err(|error| ConnectorError::user(error.into()))?;
        let mut request = request.map(|body| Bytes::copy_from_slice(body.bytes().unwrap_or_default()));
        request.headers_mut().insert(USER_AGENT, HeaderValue::from_static(NAME));
        // Every request is made inside `by`.
        let deadline = DEADLINE.try_with(|deadline| *deadline).unwrap_or_else(|_| Instant::now());
        if CONNECT_ONLY.try_with(|()| ()).is_ok() {
            self.client.connect(request.uri(), deadline).await.map_err(broken)?;
            return Response::new(SdkBody::from("{}"))
                .try_into()
                .map_err(|_| broken(Error::NotConnected(Default::default())));
        }
        let response = self.client.send(request, deadline, MAX_REPLY_BYTES).await.map_err(broken)?;
        if response.status().is_success() && !is_answer(response.body()) {
            return Err(broken(Error::Interrupted(Default::default())));
        }
        response.map(SdkBody::from).try_into().map_err(|_| broken(Error::Interrupted(Default::default())))
    }
}

/// Whether a body may be DynamoDB's, which is never empty. The SDK would take an empty one for success: "written", or "no
/// such item".
pub(super) fn is_answer(body: &[u8]) -> bool {
    let body = body.trim_ascii();
    body.starts_with(b"{") && body.ends_with(b"}")
}

fn broken(error: Error) -> ConnectorError {
    ConnectorError::io(error.into())
}

impl HttpConnector for Connector {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        HttpConnectorFuture::new(self.clone().exchange(request))
    }
}

impl HttpClient for Connector {
    fn http_connector(&self, _: &HttpConnectorSettings, _: &RuntimeComponents) -> SharedHttpConnector {
        SharedHttpConnector::new(self.clone())
    }
}
