//! Lambda's runtime, with responses that leave at once.
//!
//! `lambda_http::run_with_streaming_response` writes the head, the prelude, its delimiter and the body one after the
//! other, over a connection with Nagle's algorithm on. The second write then waits until the first one is
//! acknowledged, which Linux delays by 40 ms. The runtime takes no other client. So it keeps its part (polling, context,
//! trace id, the report of an unreadable event or a panic), and its responses are sent from here.

use std::convert::Infallible;
use std::fmt::Debug;
use std::future::pending;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::{Stream, StreamExt, TryStreamExt, stream};
use http::header::CONTENT_TYPE;
use http::request::Builder;
use http::{HeaderValue, Method, Response};
use http_body::Frame;
use http_body_util::StreamBody;
use hyper_util::client::legacy::connect::HttpConnector;
use lambda_http::lambda_runtime::layers::TracingLayer;
use lambda_http::lambda_runtime::{Diagnostic, LambdaInvocation, Runtime, StreamResponse};
use lambda_http::tower::layer::layer_fn;
use lambda_http::tower::{ServiceExt, service_fn};
use lambda_http::{Error, Request, Service, StreamAdapter};
use lambda_runtime_api_client::body::Body as ApiBody;
use lambda_runtime_api_client::{PooledClient, build_request};
use tokio::sync::{Mutex, mpsc};

/// Lambda assigns it to an invocation, and refuses a late response that carries another one.
const INVOCATION_ID: &str = "lambda-runtime-invocation-id";
/// Ends the prelude, the JSON with the status and the headers of a streamed response.
const DELIMITER: [u8; 8] = [0; 8];

/// Serves invocations one after the other, as `lambda_http::run_with_streaming_response` does.
pub async fn run<'a, H, F, B, E>(handler: H) -> Result<(), Error>
where
    H: FnMut(Request) -> F,
    F: Future<Output = Result<Response<B>, E>> + Send + 'a,
    B: http_body::Body<Data = Bytes, Error = Infallible> + Unpin + Send + 'static,
    E: Debug + Into<Diagnostic>,
{
    let (hand_over, handed_over) = mpsc::channel(1);
    let runtime =
        Runtime::new(StreamAdapter::from(service_fn(handler)).then(move |response: Result<_, E>| {
            let hand_over = hand_over.clone();
            async move {
                let _ = hand_over.send(response?).await;
                // The runtime would send what is returned here. It is dropped instead.
                pending::<Result<(), E>>().await
            }
        }));
    let responses = Arc::new(Responses { handed_over: Mutex::new(handed_over), client: client() });
    let runtime = wrapped(runtime, |mut runtime| {
        let responses = responses.clone();
        service_fn(move |invocation| responses.clone().send(head(&invocation), runtime.call(invocation)))
    });
    runtime.layer(TracingLayer::new()).run().await
}

/// [`Runtime::layer`] for a closure, whose argument has a type without a name.
fn wrapped<S, T>(runtime: Runtime<S>, wrap: impl Fn(S) -> T) -> Runtime<T>
where
    T: Service<LambdaInvocation, Response = (), Error = Error>,
{
    runtime.layer(layer_fn(wrap))
}

/// What the handler has answered, and the way out.
struct Responses<S> {
    handed_over: Mutex<mpsc::Receiver<StreamResponse<S>>>,
    client: PooledClient,
}

impl<S: Stream<Item = Result<Bytes, Infallible>> + Send + 'static> Responses<S> {
    /// Sends the response to an invocation, unless the runtime reports a failure of it.
    async fn send(
        self: Arc<Self>,
        head: Builder,
        failure: impl Future<Output = Result<(), Error>>,
    ) -> Result<(), Error> {
        let mut handed_over = self.handed_over.lock().await;
        let response = tokio::select! {
            reported = failure => return reported,
            Some(response) = handed_over.recv() => response,
        };
        let status = self.client.call(head.body(body(response)?)?).await?.status();
        if !status.is_success() {
            tracing::error!(status = status.as_u16(), "Lambda refused the response");
        }
        Ok(())
    }
}

fn client() -> PooledClient {
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    PooledClient::builder().with_connector(connector).build()
}

/// The head of the request that carries the response to this invocation.
fn head(invocation: &LambdaInvocation) -> Builder {
    let uri = format!("/2018-06-01/runtime/invocation/{}/response", invocation.context.request_id);
    let head = build_request()
        .method(Method::POST)
        .uri(uri)
        .header(CONTENT_TYPE, "application/vnd.awslambda.http-integration-response")
        .header("lambda-runtime-function-response-mode", "streaming");
    match invocation.parts.headers.get(INVOCATION_ID) {
        Some(id) => head.header(INVOCATION_ID, id),
        None => head,
    }
}

/// The prelude, and the response's own body as it comes. A panic in it ends it; the others go on.
fn body<S>(mut response: StreamResponse<S>) -> Result<ApiBody, Error>
where
    S: Stream<Item = Result<Bytes, Infallible>> + Send + 'static,
{
    let headers = &mut response.metadata_prelude.headers;
    headers.entry(CONTENT_TYPE).or_insert(HeaderValue::from_static("application/octet-stream"));
    let mut prelude = serde_json::to_vec(&response.metadata_prelude)?;
    prelude.extend(DELIMITER);
    let stream = AssertUnwindSafe(response.stream).catch_unwind().filter_map(async |chunk| chunk.ok());
    let chunks = stream::iter([Ok(prelude.into())]).chain(stream);
    Ok(ApiBody::new(StreamBody::new(chunks.map_ok(Frame::data))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_ends_its_own_stream_and_nothing_else() {
        let stream = stream::iter([1, 2, 3]).map(|number| {
            assert_ne!(number, 2, "the stream panics");
            Ok(Bytes::from("event"))
        });
        let body = body(StreamResponse::from(stream)).unwrap().collect().await.unwrap().to_bytes();
        let (prelude, stream) = str::from_utf8(&body).unwrap().split_once("\0\0\0\0\0\0\0\0").unwrap();
        assert!(prelude.contains(r#""statusCode":200"#), "{prelude}");
        assert_eq!(stream, "event");
    }
}
