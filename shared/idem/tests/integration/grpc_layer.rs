//! The gRPC layer: a real tonic server and client over loopback. The service is gRPC's own health check, which has a
//! unary and a streaming method.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

use onetap_idem::grpc::GrpcIdempotencyLayer;
use onetap_idem::{Body, Caller, Config, EffectKeys, Idempotency, Policy};
use onetap_store::testing::{Fault, Gate, TestStore};
use onetap_store::{Memory, Store};
use tokio_stream::wrappers::TcpListenerStream;
use tokio_stream::{Stream, StreamExt};
use tonic::transport::{Channel, Server};
use tonic::{Code, Request, Response, Status};
use tonic_health::pb::health_client::HealthClient;
use tonic_health::pb::health_server::{Health, HealthServer};
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};
use tower::{Layer, ServiceExt};

const CHECK: &str = "/grpc.health.v1.Health/Check";

/// Answers every check with the number of checks so far.
#[derive(Clone, Default)]
struct Counting(Arc<AtomicI32>);

#[tonic::async_trait]
impl Health for Counting {
    async fn check(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<HealthCheckResponse>, Status> {
        let n = self.0.fetch_add(1, Ordering::SeqCst) + 1;
        if request.get_ref().service == "broken" {
            return Err(Status::internal("broken"));
        }
        let mut response = Response::new(HealthCheckResponse { status: n });
        response.metadata_mut().insert("x-answer", n.into());
        if let Some(effects) = request.extensions().get::<EffectKeys>() {
            response.metadata_mut().insert("x-effect", effects.key("mail").as_str().parse().unwrap());
        }
        Ok(response)
    }

    type WatchStream = Pin<Box<dyn Stream<Item = Result<HealthCheckResponse, Status>> + Send>>;

    async fn watch(&self, _: Request<HealthCheckRequest>) -> Result<Response<Self::WatchStream>, Status> {
        let n = self.0.fetch_add(1, Ordering::SeqCst) + 1;
        let twice = [n, n].map(|status| Ok(HealthCheckResponse { status }));
        Ok(Response::new(Box::pin(tokio_stream::iter(twice))))
    }
}

async fn serve(store: Arc<dyn Store>) -> (HealthClient<Channel>, Counting) {
    let config = Config::default().wait_timeout(Duration::from_millis(100));
    let layer = GrpcIdempotencyLayer::unary(
        Idempotency::with_config(store, config),
        Caller::authorization(),
        [CHECK],
    );
    serve_with(layer).await
}

async fn serve_with(layer: GrpcIdempotencyLayer) -> (HealthClient<Channel>, Counting) {
    let service = Counting::default();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let server = Server::builder().layer(layer).add_service(HealthServer::new(service.clone()));
    tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
    let channel = Channel::from_shared(address).unwrap().connect().await.unwrap();
    (HealthClient::new(channel), service)
}

fn check(service: &str, key: Option<&'static str>) -> Request<HealthCheckRequest> {
    let mut request = Request::new(HealthCheckRequest { service: service.to_owned() });
    if let Some(key) = key {
        request.metadata_mut().insert("x-idem-key", key.parse().unwrap());
    }
    request
}

fn memory() -> Arc<dyn Store> {
    Arc::new(Memory::new())
}

#[tokio::test]
async fn a_unary_call_is_handled_once_per_key() {
    let (mut client, service) = serve(memory()).await;
    let first = client.check(check("a", Some("key"))).await.unwrap();
    assert!(first.metadata().get("idempotency-replayed").is_none());
    for _ in 0..3 {
        let again = client.check(check("a", Some("key"))).await.unwrap();
        assert_eq!(again.get_ref(), first.get_ref());
        assert_eq!(again.metadata().get("x-answer").unwrap(), "1");
        assert_eq!(again.metadata().get("idempotency-replayed").unwrap(), "true");
    }
    assert_eq!(client.check(check("a", Some("other"))).await.unwrap().get_ref().status, 2);
    assert_eq!(client.check(check("a", None)).await.unwrap().get_ref().status, 3, "without a key it passes");
    assert_eq!(service.0.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn only_ok_is_kept() {
    let (mut client, service) = serve(memory()).await;
    for _ in 0..2 {
        let status = client.check(check("broken", Some("key"))).await.unwrap_err();
        assert_eq!((status.code(), status.message()), (Code::Internal, "broken"));
    }
    assert_eq!(service.0.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_call_with_a_key_finds_its_effect_keys_in_the_request() {
    let (mut client, _) = serve(memory()).await;
    let mut effects = Vec::new();
    for key in [Some("key"), Some("other"), None] {
        let answer = client.check(check("a", key)).await.unwrap();
        effects.push(answer.metadata().get("x-effect").cloned());
    }
    assert!(effects[0].is_some() && effects[1].is_some() && effects[0] != effects[1]);
    assert_eq!(effects[2], None, "without a key there is nothing to retry by");
}

#[tokio::test]
async fn another_message_under_the_same_key_is_refused() {
    let (mut client, service) = serve(memory()).await;
    client.check(check("a", Some("key"))).await.unwrap();
    let status = client.check(check("b", Some("key"))).await.unwrap_err();
    assert_eq!(status.code(), Code::FailedPrecondition);
    let mut two = check("a", Some("key"));
    two.metadata_mut().append("x-idem-key", "another".parse().unwrap());
    assert_eq!(client.check(two).await.unwrap_err().code(), Code::InvalidArgument);
    assert_eq!(service.0.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_service_decides_what_a_repeat_has_in_common_with_the_first_call() {
    let layer = GrpcIdempotencyLayer::unary(Idempotency::new(memory()), Caller::anyone(), [CHECK]);
    let (mut client, service) =
        serve_with(layer.fingerprint_by(|_, message| message.to_ascii_lowercase())).await;
    for name in ["a", "A"] {
        assert_eq!(client.check(check(name, Some("key"))).await.unwrap().get_ref().status, 1);
    }
    assert_eq!(client.check(check("b", Some("key"))).await.unwrap_err().code(), Code::FailedPrecondition);
    assert_eq!(service.0.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_message_over_the_limit_is_refused_and_the_service_is_not_asked() {
    let large = "x".repeat((1 << 20) + 1);
    let (mut client, service) = serve(memory()).await;
    let status = client.check(check(&large, Some("key"))).await.unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::ResourceExhausted, "the message is too large"));
    assert_eq!(service.0.load(Ordering::SeqCst), 0);
    assert_eq!(
        client.check(check(&large, None)).await.unwrap().get_ref().status,
        1,
        "without a key it passes"
    );

    let idem = Idempotency::new(memory());
    let (mut client, _) =
        serve_with(GrpcIdempotencyLayer::unary(idem, Caller::anyone(), [CHECK]).max_request(2 << 20)).await;
    for _ in 0..2 {
        assert_eq!(client.check(check(&large, Some("key"))).await.unwrap().get_ref().status, 1);
    }
}

#[tokio::test]
async fn a_streaming_call_passes_through() {
    let (mut client, service) = serve(memory()).await;
    for n in 1..=2 {
        let stream = client.watch(check("a", Some("key"))).await.unwrap().into_inner();
        let messages: Vec<i32> = stream.map(|message| message.unwrap().status).collect().await;
        assert_eq!(messages, [n, n]);
    }
    assert_eq!(service.0.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_store_that_is_down_is_unavailable_and_the_service_is_not_asked() {
    let (mut client, service) = serve(TestStore::faulty(memory(), |_| Fault::NotSent)).await;
    let status = client.check(check("a", Some("key"))).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    assert_eq!(service.0.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn callers_and_metadata_names_are_configurable() {
    let idem = Idempotency::new(memory());
    let user = Caller::by(|parts| Some(parts.headers.get("x-user")?.to_str().ok()?.to_owned()));
    let layer = GrpcIdempotencyLayer::unary(idem, user, [CHECK]).metadata("x-request-id".parse().unwrap());
    let (mut client, _) = serve_with(layer).await;
    let mut ask = async |user: &'static str| {
        let mut request = check("a", None);
        request.metadata_mut().insert("x-request-id", "1".parse().unwrap());
        request.metadata_mut().insert("x-user", user.parse().unwrap());
        client.check(request).await.unwrap().get_ref().status
    };
    assert_eq!([ask("a").await, ask("b").await, ask("a").await, ask("b").await], [1, 2, 1, 2]);
}

#[tokio::test]
async fn a_call_whose_client_hangs_up_during_the_claim_leaves_its_key_to_the_next() {
    let (gate, asked) = (Gate::new(), Arc::new(AtomicI32::new(0)));
    let store = TestStore::first(memory(), vec![Fault::HeldAfter(gate.clone())]);
    let config = Config::default().policy(Policy::AtMostOnce).lease_ttl(Duration::from_secs(3600));
    let layer = GrpcIdempotencyLayer::unary(
        Idempotency::with_config(store, config),
        Caller::authorization(),
        [CHECK],
    );
    let counted = Arc::clone(&asked);
    let service = layer.layer(tower::service_fn(move |_: http::Request<Body>| {
        counted.fetch_add(1, Ordering::SeqCst);
        let ok = http::Response::builder().header("grpc-status", "0").body(Body::empty());
        std::future::ready(Ok::<_, Infallible>(ok.unwrap()))
    }));
    let call = || {
        let request = http::Request::post(CHECK).header("x-idem-key", "key").body(Body::from("message"));
        tokio::spawn(service.clone().oneshot(request.unwrap()))
    };
    let first = call();
    gate.reached().await;
    first.abort();
    assert!(first.await.unwrap_err().is_cancelled());
    let again = call();
    gate.open();
    let again = again.await.unwrap().unwrap();
    assert_eq!(
        (&again.headers()["grpc-status"], again.headers().get("idempotency-replayed")),
        (&"0".parse().unwrap(), None)
    );
    assert_eq!(asked.load(Ordering::SeqCst), 1, "the first was never run");
}

/// Statuses of two calls of one key whose answers have this early status and break after a few bytes, and the calls that ran.
async fn broken_answers(early: Option<&'static str>) -> ([String; 2], i32) {
    let asked = Arc::new(AtomicI32::new(0));
    let counted = Arc::clone(&asked);
    let layer = GrpcIdempotencyLayer::unary(Idempotency::new(memory()), Caller::anyone(), [CHECK]);
    let service = layer.layer(tower::service_fn(move |_: http::Request<Body>| {
        counted.fetch_add(1, Ordering::SeqCst);
        let frames = [Ok(http_body::Frame::data(bytes::Bytes::from("half"))), Err("private")];
        let body = http_body_util::StreamBody::new(tokio_stream::iter(frames));
        let mut response = http::Response::new(Body::new(body));
        if let Some(early) = early {
            response.headers_mut().insert("grpc-status", early.parse().unwrap());
        }
        std::future::ready(Ok::<_, Infallible>(response))
    }));
    let call = || {
        let request = http::Request::post(CHECK).header("x-idem-key", "key").body(Body::from("message"));
        service.clone().oneshot(request.unwrap())
    };
    let status = async || call().await.unwrap().headers()["grpc-status"].to_str().unwrap().to_owned();
    ([status().await, status().await], asked.load(Ordering::SeqCst))
}

#[tokio::test]
async fn an_answer_that_breaks_midway_is_internal_and_its_call_is_never_run_again() {
    let (internal, already_exists) = ("13".to_owned(), "6".to_owned());
    assert_eq!(broken_answers(None).await, ([internal.clone(), already_exists], 1));
    assert_eq!(broken_answers(Some("5")).await, ([internal.clone(), internal], 2), "it says that it failed");
}
