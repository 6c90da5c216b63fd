//! The HTTP layer, in front of axum and of plain services, on every backend.

mod bodies;
mod callers;
mod effects;
mod environment;
mod hang_ups;
mod kept;

use crate::support;

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderName, Request, Response, StatusCode};
use axum::routing;
use axum::{Json, Router};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use onetap_idem::http::IdempotencyLayer;
use onetap_idem::{Caller, Config, Deadline, Idempotency};
use onetap_store::lease::unique_token;
use onetap_store::testing::{Fault, Gate, TestStore};
use onetap_store::{Memory, Store};
use serde_json::{Value, json};
use tokio::sync::broadcast;
use tokio::time::Instant;
use tower::{Layer, Service, ServiceExt};

/// Status, headers and body of an answer.
struct Answer {
    head: axum::http::response::Parts,
    body: Bytes,
}

impl Answer {
    async fn of<B: axum::body::HttpBody<Data = Bytes>>(response: Response<B>) -> Answer
    where
        B::Error: std::fmt::Debug,
    {
        let (head, body) = response.into_parts();
        Answer { head, body: body.collect().await.unwrap().to_bytes() }
    }

    fn status(&self) -> u16 {
        self.head.status.as_u16()
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.head.headers.get(name).map(|value| value.to_str().unwrap())
    }

    /// The title of a problem, which says it is one.
    fn problem(&self) -> String {
        assert_eq!(self.header("content-type"), Some("application/problem+json"));
        let problem: Value = serde_json::from_slice(&self.body).unwrap();
        assert_eq!(problem["status"], self.status());
        problem["title"].as_str().unwrap().to_owned()
    }
}

fn post(path: &str, key: Option<&str>, body: impl Into<Body>) -> Request<Body> {
    let request = Request::post(path).header("content-type", "application/json");
    match key {
        Some(key) => request.header("idempotency-key", key),
        None => request,
    }
    .body(body.into())
    .unwrap()
}

/// What the service was asked, and an answer of its own for each.
#[derive(Clone, Default)]
struct Asked(Arc<AtomicUsize>);

impl Asked {
    fn times(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }

    fn next(&self) -> usize {
        self.0.fetch_add(1, Ordering::SeqCst) + 1
    }
}

type Wrapped<S> = onetap_idem::http::Idempotent<S>;

/// A service that answers with `status` and counts, behind the layer.
fn counting(
    layer: IdempotencyLayer,
    asked: &Asked,
    status: impl Fn(usize) -> u16 + Clone + Send + 'static,
) -> Wrapped<
    impl Service<Request<Body>, Response = Response<Full<Bytes>>, Error = Infallible, Future: Send>
    + Clone
    + Send
    + 'static,
> {
    let asked = asked.clone();
    layer.layer(tower::service_fn(move |request: Request<Body>| {
        let (asked, status) = (asked.clone(), status.clone());
        async move {
            let body = request.into_body().collect().await.unwrap().to_bytes();
            let n = asked.next();
            let response = Response::builder()
                .status(status(n))
                .header("x-answer", n.to_string())
                .header("set-cookie", format!("session={n}"))
                .body(Full::from(format!("answer {n} to {} bytes", body.len())));
            Ok::<_, Infallible>(response.unwrap())
        }
    }))
}

fn layer(store: &Arc<dyn Store>) -> IdempotencyLayer {
    layer_for(store, Caller::authorization())
}

fn layer_for(store: &Arc<dyn Store>, caller: Caller) -> IdempotencyLayer {
    let config = Config::default().wait_timeout(Duration::from_millis(100));
    IdempotencyLayer::new(Idempotency::with_config(Arc::clone(store), config), caller)
}

async fn ask<S, R>(service: &Wrapped<S>, request: Request<Body>) -> Answer
where
    Wrapped<S>: Service<Request<Body>, Response = Response<R>, Error = Infallible> + Clone,
    R: axum::body::HttpBody<Data = Bytes>,
    R::Error: std::fmt::Debug,
{
    Answer::of(service.clone().oneshot(request).await.unwrap()).await
}

/// A test of each of these for each backend.
macro_rules! on_every_backend {
    ($($promise:ident)*) => {
        mod memory { $(#[tokio::test] async fn $promise() {
            super::$promise(std::sync::Arc::new(onetap_store::Memory::new())).await
        })* }
        mod redis { $(#[tokio::test] #[ignore = "needs redis-server"] async fn $promise() {
            let (store, _server) = super::support::open_redis().await;
            super::$promise(store).await
        })* }
        mod upstash { $(#[tokio::test] #[ignore = "needs redis-server"] async fn $promise() {
            let (store, _server) = super::support::open_upstash().await;
            super::$promise(store).await
        })* }
        mod dynamodb { $(#[tokio::test] async fn $promise() {
            let (store, _server) = super::support::open_dynoxide().await;
            super::$promise(store).await
        })* }
        mod dynamodb_local { $(#[tokio::test] #[ignore = "needs DynamoDB Local"] async fn $promise() {
            let (store, _server) = super::support::open_dynamodb_local().await;
            super::$promise(store).await
        })* }
    };
}

on_every_backend! {
    an_axum_order_is_charged_once_per_key
    a_repeat_is_answered_with_the_same_bytes_and_no_cookie
    a_failure_is_not_kept
    another_payload_is_refused_finished_or_running
    keys_are_scoped_by_method_path_and_caller
    a_large_answer_is_given_once_and_its_repeat_is_told_so
    an_answers_size_is_that_of_its_body_and_not_of_its_record
    what_is_kept_of_an_answer_ends_where_the_stores_values_do
}

/// Charges an order, unless its amount is zero.
async fn order(State(charges): State<Asked>, Json(order): Json<Value>) -> (StatusCode, Json<Value>) {
    if order["amount"] == 0 {
        return (StatusCode::UNPROCESSABLE_ENTITY, Json(json!("nothing to charge")));
    }
    (StatusCode::CREATED, Json(json!({"charged": order["amount"], "order": charges.next()})))
}

async fn an_axum_order_is_charged_once_per_key(store: Arc<dyn Store>) {
    let charges = Asked::default();
    let orders = Router::new().route("/orders", routing::post(order));
    let app = orders.layer(layer(&store)).with_state(charges.clone());
    let send = |key: &str, body: &'static str| {
        let request = post("/orders", Some(key), body);
        let app = app.clone();
        async move { Answer::of(app.oneshot(request).await.unwrap()).await }
    };
    let (key, other) = (unique_token(), unique_token());
    let bad = send(&key, r#"{"amount":0}"#).await;
    assert_eq!(bad.status(), 422, "the service's own refusal, which is not kept");
    let first = send(&key, r#"{"amount":120}"#).await;
    assert_eq!((first.status(), first.header("idempotency-replayed")), (201, None));
    for _ in 0..3 {
        let again = send(&key, r#"{"amount":120}"#).await;
        assert_eq!((again.status(), again.header("idempotency-replayed")), (201, Some("true")));
        assert_eq!(again.body, first.body);
        assert_eq!(again.header("content-type"), first.header("content-type"));
    }
    assert_eq!(send(&other, r#"{"amount":120}"#).await.body, r#"{"charged":120,"order":2}"#);
    let unkeyed = post("/orders", None, r#"{"amount":120}"#);
    assert_eq!(app.clone().oneshot(unkeyed).await.unwrap().status(), 201);
    assert_eq!(charges.times(), 3);
}

async fn a_repeat_is_answered_with_the_same_bytes_and_no_cookie(store: Arc<dyn Store>) {
    let asked = Asked::default();
    let service = counting(layer(&store), &asked, |_| 200);
    let key = unique_token();
    let first = ask(&service, post("/a", Some(&key), "body")).await;
    assert_eq!(first.header("set-cookie"), Some("session=1"), "who asked first gets it all");
    let mut again = Request::post("/a").header("x-idempotency-key", &key).body(Body::from("body")).unwrap();
    again.headers_mut().insert("idempotency-key", key.parse().unwrap());
    let again = ask(&service, again).await;
    assert_eq!((again.status(), again.body.clone()), (200, first.body.clone()));
    assert_eq!((again.header("x-answer"), again.header("set-cookie")), (Some("1"), None));
    assert_eq!(again.header("idempotency-replayed"), Some("true"));
    assert_eq!(asked.times(), 1);
}

async fn a_failure_is_not_kept(store: Arc<dyn Store>) {
    let asked = Asked::default();
    let service = counting(layer(&store), &asked, |n| [500, 404, 302, 201][n - 1]);
    let key = unique_token();
    for (status, replayed) in [(500, None), (404, None), (302, None), (201, None), (201, Some("true"))] {
        let answer = ask(&service, post("/a", Some(&key), "body")).await;
        assert_eq!((answer.status(), answer.header("idempotency-replayed")), (status, replayed));
    }
    assert_eq!(asked.times(), 4);
}

async fn another_payload_is_refused_finished_or_running(store: Arc<dyn Store>) {
    let gate = Gate::new();
    let held = gate.clone();
    // The second call to the store is the commit: until then the first request runs.
    let slow: Arc<dyn Store> = TestStore::faulty(Arc::clone(&store), move |call| match call {
        2 => Fault::HeldBefore(held.clone()),
        _ => Fault::Pass,
    });
    let (asked, key) = (Asked::default(), unique_token());
    let (first, second) = (counting(layer(&slow), &asked, |_| 200), counting(layer(&store), &asked, |_| 200));
    let running = tokio::spawn({
        let (first, key) = (first.clone(), key.clone());
        async move { ask(&first, post("/a?n=1", Some(&key), "body")).await.status() }
    });
    gate.reached().await;
    let other = ask(&second, post("/a?n=1", Some(&key), "other body")).await;
    assert_eq!(other.status(), 422);
    assert!(other.problem().contains("another request"), "{}", other.problem());
    let same = ask(&second, post("/a?n=1", Some(&key), "body")).await;
    assert_eq!(same.status(), 409);
    assert!(same.problem().contains("being handled"));
    let wait: u64 = same.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=30).contains(&wait), "{wait}");
    gate.open();
    assert_eq!(running.await.unwrap(), 200);
    assert_eq!(ask(&second, post("/a?n=1", Some(&key), "other body")).await.status(), 422);
    assert_eq!(ask(&second, post("/a?n=2", Some(&key), "body")).await.status(), 422, "the query is payload");
    assert_eq!(ask(&second, post("/a?n=1", Some(&key), "body")).await.header("x-answer"), Some("1"));
    assert_eq!(asked.times(), 1);
}

async fn keys_are_scoped_by_method_path_and_caller(store: Arc<dyn Store>) {
    let asked = Asked::default();
    let service = counting(layer(&store), &asked, |_| 200);
    let key = unique_token();
    let request = |method: &str, path: &str, who: &str| {
        let request = Request::builder().method(method).uri(path).header("idempotency-key", &key);
        request.header("authorization", who).body(Body::from("body")).unwrap()
    };
    let different =
        [("POST", "/a", "me"), ("PUT", "/a", "me"), ("POST", "/a/b", "me"), ("POST", "/a", "you")];
    for _ in 0..2 {
        for (n, (method, path, who)) in different.into_iter().enumerate() {
            let answer = ask(&service, request(method, path, who)).await;
            assert_eq!(answer.header("x-answer"), Some((n + 1).to_string().as_str()));
        }
    }
    let by_name = Caller::by(|parts| Some(parts.headers.get("x-user")?.to_str().ok()?.to_owned()));
    let (asked, key) = (Asked::default(), unique_token());
    let service = counting(layer_for(&store, by_name), &asked, |_| 200);
    for user in ["a", "b", "a"] {
        let mut request = post("/a", Some(&key), "body");
        request.headers_mut().insert("x-user", user.parse().unwrap());
        ask(&service, request).await;
    }
    assert_eq!(asked.times(), 2);
}

async fn a_large_answer_is_given_once_and_its_repeat_is_told_so(store: Arc<dyn Store>) {
    let asked = Asked::default();
    let counted = asked.clone();
    let service = layer(&store).layer(tower::service_fn(move |_: Request<Body>| {
        counted.next();
        async { Ok::<_, Infallible>(Response::new(Full::from(vec![b'x'; 1_500_000]))) }
    }));
    let key = unique_token();
    let first = ask(&service, post("/a", Some(&key), "body")).await;
    assert_eq!((first.status(), first.body.len()), (200, 1_500_000));
    let again = ask(&service, post("/a", Some(&key), "body")).await;
    assert_eq!(again.status(), 409);
    assert!(again.problem().contains("not kept"));
    assert_eq!(asked.times(), 1);
}

/// On DynamoDB a record has 396 KiB, of which the rest of the record takes a little. Elsewhere an answer of 1 MiB is kept.
async fn what_is_kept_of_an_answer_ends_where_the_stores_values_do(store: Arc<dyn Store>) {
    for (byte, most) in [(b'x', 395), (b'"', 197), (255, 296)] {
        for kib in [most, most + 2] {
            let asked = Asked::default();
            let counted = asked.clone();
            let service = layer(&store).layer(tower::service_fn(move |_: Request<Body>| {
                counted.next();
                std::future::ready(Ok::<_, Infallible>(Response::new(Full::from(vec![byte; kib << 10]))))
            }));
            let key = unique_token();
            let first = ask(&service, post("/a", Some(&key), "body")).await;
            assert_eq!(first.body.len(), kib << 10);
            let again = ask(&service, post("/a", Some(&key), "body")).await;
            if kib == most || store.max_value() > 6 << 20 {
                assert_eq!(again.header("idempotency-replayed"), Some("true"), "{kib} KiB of {byte}");
                assert!(again.body == first.body, "{kib} KiB of {byte}");
            } else {
                assert!(again.status() == 409 && again.problem().contains("not kept"), "{kib} KiB of {byte}");
            }
            assert_eq!(asked.times(), 1);
        }
    }
}

/// As records, quotes take twice as much as they are, control characters six times, and other bytes a third more.
async fn an_answers_size_is_that_of_its_body_and_not_of_its_record(store: Arc<dyn Store>) {
    for (byte, kept_as) in [(b'"', 2.0), (1, 6.0), (255, 1.34)] {
        for size in [50_000, 900_000, 1 << 20] {
            let asked = Asked::default();
            let counted = asked.clone();
            let service = layer(&store).layer(tower::service_fn(move |_: Request<Body>| {
                counted.next();
                std::future::ready(Ok::<_, Infallible>(Response::new(Full::from(vec![byte; size]))))
            }));
            let key = unique_token();
            let first = ask(&service, post("/a", Some(&key), "body")).await;
            let again = ask(&service, post("/a", Some(&key), "body")).await;
            if size as f64 * kept_as + 1000.0 < store.max_value() as f64 {
                assert_eq!(again.header("idempotency-replayed"), Some("true"), "{size} of {byte}");
                assert!(again.body == first.body, "{size} of {byte}");
            } else {
                assert!(again.problem().contains("not kept"));
            }
            assert_eq!(asked.times(), 1);
        }
    }
}

fn memory() -> Arc<dyn Store> {
    Arc::new(Memory::new())
}

#[tokio::test]
async fn keys_that_cannot_be_meant_are_400() {
    let asked = Asked::default();
    let service = counting(layer(&memory()), &asked, |_| 200);
    let two = Request::post("/a").header("idempotency-key", "one").header("x-idempotency-key", "two");
    let long = "k".repeat(257);
    let requests = [
        two.body(Body::empty()).unwrap(),
        post("/a", Some(""), ""),
        post("/a", Some(&long), ""),
        Request::post("/a").header("idempotency-key", b"\xff\xfe".as_slice()).body(Body::empty()).unwrap(),
    ];
    for request in requests {
        let answer = ask(&service, request).await;
        assert_eq!(answer.status(), 400);
        assert!(answer.problem().contains("key"), "{}", answer.problem());
    }
    let strict = counting(layer(&memory()).required(), &asked, |_| 200);
    let answer = ask(&strict, post("/a", None, "")).await;
    assert_eq!((answer.status(), answer.problem().as_str()), (400, "The request needs an idempotency key"));
    assert_eq!(asked.times(), 0);
    assert_eq!(ask(&service, post("/a", None, "")).await.status(), 200, "without a key it passes");
}

#[tokio::test]
async fn header_names_are_configurable() {
    let asked = Asked::default();
    let layer = layer(&memory()).headers([HeaderName::from_static("x-request-id")]);
    let service = counting(layer, &asked, |_| 200);
    for _ in 0..2 {
        let request = Request::post("/a").header("x-request-id", "1").body(Body::empty()).unwrap();
        assert_eq!(ask(&service, request).await.header("x-answer"), Some("1"));
        ask(&service, post("/a", Some("1"), "")).await;
    }
    assert_eq!(asked.times(), 3, "the usual header means nothing here");
}

#[tokio::test]
async fn a_client_that_hangs_up_does_not_lose_the_commit() {
    let store = memory();
    let (asked, gate) = (Asked::default(), Arc::new(tokio::sync::Semaphore::new(0)));
    let (counted, open) = (asked.clone(), Arc::clone(&gate));
    let service = layer(&store).layer(tower::service_fn(move |_: Request<Body>| {
        let (counted, open) = (counted.clone(), Arc::clone(&open));
        async move {
            counted.next();
            let _permit = open.acquire().await.unwrap();
            Ok::<_, Infallible>(Response::new(Full::from("done")))
        }
    }));
    let key = unique_token();
    let client = tokio::spawn({
        let (service, key) = (service.clone(), key.clone());
        async move { ask(&service, post("/a", Some(&key), "body")).await.status() }
    });
    while asked.times() == 0 {
        tokio::task::yield_now().await;
    }
    client.abort();
    assert!(client.await.unwrap_err().is_cancelled());
    gate.add_permits(1);
    let again = ask(&service, post("/a", Some(&key), "body")).await;
    assert_eq!((again.status(), again.header("idempotency-replayed")), (200, Some("true")));
    assert_eq!(asked.times(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_hangs_up_while_it_waits_waits_no_longer() {
    let counting = TestStore::counting(memory());
    let idem = Idempotency::new(counting.clone());
    let service =
        IdempotencyLayer::new(idem, Caller::anyone()).layer(tower::service_fn(|_: Request<Body>| async {
            std::future::pending::<()>().await;
            Ok::<_, Infallible>(Response::new(Full::<Bytes>::default()))
        }));
    let ask = || {
        let service = service.clone();
        tokio::spawn(async move { ask(&service, post("/a", Some("key"), "body")).await.status() })
    };
    let _first = ask();
    tokio::time::sleep(Duration::from_millis(10)).await;
    let waiting = ask();
    tokio::time::sleep(Duration::from_secs(3)).await;
    waiting.abort();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let calls = counting.calls();
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(counting.calls(), calls, "nobody asks for it any more, and the first renews every 10 s");
}

const FRAME: usize = 64 << 10;

/// A body of undeclared length that goes on for 256 MiB, and the bytes that were taken of it.
fn endless(taken: &Asked) -> Body {
    let taken = taken.clone();
    let frames = futures_util::stream::repeat_with(move || {
        taken.0.fetch_add(FRAME, Ordering::SeqCst);
        Ok::<_, Infallible>(Bytes::from(vec![b'x'; FRAME]))
    });
    Body::from_stream(futures_util::StreamExt::take(frames, (256 << 20) / FRAME))
}

/// The most memory that this process ever had, in bytes.
fn peak_memory() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() << 10
}

#[tokio::test]
async fn an_endless_request_is_read_to_the_limit_and_answered_with_413() {
    // The peak is the whole process's: this test runs again in a process of its own, where this variable is set.
    const ALONE: &str = "ONETAP_TEST_ALONE";
    if std::env::var_os(ALONE).is_none() {
        let this = std::env::current_exe().unwrap();
        let own = "http_layer::an_endless_request_is_read_to_the_limit_and_answered_with_413";
        let again = std::process::Command::new(this).args(["--exact", own]).env(ALONE, "1").output().unwrap();
        let said = String::from_utf8_lossy(&again.stdout);
        assert!(again.status.success() && said.contains("1 passed"), "{said}");
        return;
    }
    let (asked, taken) = (Asked::default(), Asked::default());
    let service = counting(layer(&memory()), &asked, |_| 200);
    let before = peak_memory();
    let answer = ask(&service, post("/a", Some("key"), endless(&taken))).await;
    let grown = peak_memory() - before;
    assert!(taken.times() <= (1 << 20) + FRAME, "{} bytes were taken of the body", taken.times());
    assert!(grown < 64 << 20, "the process grew by {grown} bytes");
    assert_eq!((answer.status(), answer.problem().as_str()), (413, "The request is too large"));
    assert_eq!(asked.times(), 0);
}

#[tokio::test]
async fn a_request_over_the_limit_is_413_and_the_store_is_not_asked() {
    let (asked, counted) = (Asked::default(), TestStore::counting(memory()));
    let store: Arc<dyn Store> = counted.clone();
    let ok = |_| 200;
    let usual = counting(layer(&store), &asked, ok);
    let small = counting(layer(&store).max_request(10), &asked, ok);
    let chunk = |size| {
        Body::from_stream(futures_util::stream::iter([Ok::<_, Infallible>(Bytes::from(vec![b'x'; size]))]))
    };
    for (service, limit) in [(&usual, 1 << 20), (&small, 10)] {
        let (calls, times) = (counted.calls(), asked.times());
        for body in [Body::from(vec![b'x'; limit + 1]), chunk(limit + 1)] {
            let answer = ask(service, post("/a", Some(&unique_token()), body)).await;
            assert_eq!((answer.status(), answer.problem().as_str()), (413, "The request is too large"));
        }
        assert_eq!((counted.calls(), asked.times()), (calls, times));
        for body in [Body::from(vec![b'x'; limit]), chunk(limit)] {
            let answer = ask(service, post("/a", Some(&unique_token()), body)).await;
            assert_eq!(answer.status(), 200, "as large as the limit");
        }
    }
    // The limit is what the layer itself holds in memory. What passes through it does not hold.
    let answer = ask(&small, post("/a", None, vec![b'x'; 11])).await;
    assert_eq!(answer.status(), 200);
}

#[tokio::test]
async fn safe_methods_pass_through_whatever_key_they_have() {
    let asked = Asked::default();
    let service = counting(layer(&memory()).required(), &asked, |_| 200);
    for method in ["GET", "HEAD", "OPTIONS", "TRACE"] {
        for keys in [vec!["key"], vec!["key"], vec!["one", "another"], vec![]] {
            let mut request = Request::builder().method(method).uri("/a");
            for key in keys {
                request = request.header("idempotency-key", key);
            }
            let times = asked.times();
            let answer = ask(&service, request.body(Body::empty()).unwrap()).await;
            assert_eq!((answer.status(), answer.header("idempotency-replayed")), (200, None), "{method}");
            assert_eq!(asked.times(), times + 1, "{method}");
        }
    }
}

/// A service that answers with `status` and with what the test sends, behind the layer.
fn streaming(
    layer: IdempotencyLayer,
    asked: &Asked,
    status: u16,
    sender: &broadcast::Sender<&'static str>,
) -> Wrapped<
    impl Service<Request<Body>, Response = Response<Body>, Error = Infallible, Future: Send>
    + Clone
    + Send
    + use<>,
> {
    let (asked, sender) = (asked.clone(), sender.clone());
    layer.layer(tower::service_fn(move |_: Request<Body>| {
        asked.next();
        let frames = futures_util::stream::unfold(sender.subscribe(), |mut frames| async {
            Some((Ok::<_, Infallible>(Bytes::from(frames.recv().await.ok()?)), frames))
        });
        let response = Response::builder().status(status).header("content-type", "text/event-stream");
        std::future::ready(Ok::<_, Infallible>(response.body(Body::from_stream(frames)).unwrap()))
    }))
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_streams_leaves_at_once_and_is_not_run_again() {
    let (asked, send) = (Asked::default(), broadcast::channel(8).0);
    let service = streaming(layer(&memory()), &asked, 200, &send);
    let first = service.clone().oneshot(post("/a", Some("key"), "body"));
    let first = tokio::time::timeout(Duration::from_secs(10), first).await.expect("the head leaves at once");
    let mut body = first.unwrap().into_body();
    for event in ["one", "two"] {
        send.send(event).unwrap();
        assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), event);
        let repeat = ask(&service, post("/a", Some("key"), "body")).await;
        assert_eq!(repeat.status(), 409);
        assert!(repeat.problem().contains("not kept"), "{}", repeat.problem());
    }
    drop(body);
    assert_eq!(ask(&service, post("/a", Some("key"), "body")).await.status(), 409);
    assert_eq!(asked.times(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_failure_that_streams_leaves_at_once_and_is_not_kept() {
    let (asked, send) = (Asked::default(), broadcast::channel(8).0);
    let service = streaming(layer(&memory()), &asked, 500, &send);
    for _ in 0..2 {
        let answer = service.clone().oneshot(post("/a", Some("key"), "body"));
        let answer = tokio::time::timeout(Duration::from_secs(10), answer).await.expect("at once").unwrap();
        assert_eq!(answer.status(), 500);
        send.send("one").unwrap();
        assert_eq!(answer.into_body().frame().await.unwrap().unwrap().into_data().unwrap(), "one");
    }
    assert_eq!(asked.times(), 2);
}

#[tokio::test]
async fn an_answer_that_declares_its_length_in_a_header_is_kept() {
    let service = layer(&memory()).layer(tower::service_fn(|_: Request<Body>| async {
        let frames =
            futures_util::stream::iter(["on", "ce"].map(|text| Ok::<_, Infallible>(Bytes::from(text))));
        let response = Response::builder().header("content-length", 4).body(Body::from_stream(frames));
        Ok::<_, Infallible>(response.unwrap())
    }));
    for replayed in [None, Some("true")] {
        let answer = ask(&service, post("/a", Some("key"), "body")).await;
        assert_eq!((answer.header("idempotency-replayed"), &*answer.body), (replayed, &b"once"[..]));
    }
}

#[tokio::test]
async fn a_store_that_is_down_is_503_and_the_service_is_not_asked() {
    let asked = Asked::default();
    let down: Arc<dyn Store> = TestStore::faulty(memory(), |_| Fault::NotSent);
    let service = counting(layer(&down), &asked, |_| 200);
    let answer = ask(&service, post("/a", Some("key"), "body")).await;
    assert_eq!((answer.status(), answer.header("retry-after")), (503, Some("1")));
    assert!(answer.problem().contains("not handled"));
    assert_eq!(asked.times(), 0);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_cannot_be_recorded_is_given_all_the_same() {
    let asked = Asked::default();
    let flaky: Arc<dyn Store> =
        TestStore::faulty(memory(), |call| if call == 1 { Fault::Pass } else { Fault::NotSent });
    let service = counting(layer(&flaky), &asked, |_| 200);
    let answer = ask(&service, post("/a", Some("key"), "body")).await;
    assert_eq!((answer.status(), answer.header("x-answer")), (200, Some("1")));
}

/// The answer to `second` while the first request of its key never ends, and how long it took.
async fn waited(second: Request<Body>) -> (u16, Duration) {
    let idem = Idempotency::new(memory());
    let service =
        IdempotencyLayer::new(idem, Caller::anyone()).layer(tower::service_fn(|_: Request<Body>| async {
            std::future::pending::<()>().await;
            Ok::<_, Infallible>(Response::new(Full::<Bytes>::default()))
        }));
    let first = tokio::spawn({
        let service = service.clone();
        async move { ask(&service, post("/a", Some("key"), "body")).await.status() }
    });
    tokio::time::sleep(Duration::from_millis(10)).await;
    let start = Instant::now();
    let answer = tokio::time::timeout(Duration::from_secs(300), ask(&service, second)).await;
    first.abort();
    (answer.expect("the deadline ends the wait").status(), start.elapsed())
}

#[tokio::test(start_paused = true)]
async fn a_deadline_in_the_request_bounds_the_wait() {
    let mut second = post("/a", Some("key"), "body");
    second.extensions_mut().insert(Deadline(Instant::now() + Duration::from_secs(2)));
    let (status, took) = waited(second).await;
    assert_eq!(status, StatusCode::CONFLICT);
    assert!(took <= Duration::from_millis(2100), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn on_lambda_a_waiting_duplicate_is_answered_before_the_invocation_ends() {
    let ends = std::time::SystemTime::now() + Duration::from_secs(60);
    let mut context = lambda_http::Context::default();
    context.deadline = ends.duration_since(std::time::UNIX_EPOCH).unwrap().as_millis() as u64;
    let second = lambda_http::RequestExt::with_lambda_context(post("/a", Some("key"), "body"), context);
    let (status, took) = waited(second).await;
    assert_eq!(status, StatusCode::CONFLICT);
    assert!(took < Duration::from_millis(59_800), "{took:?}");
}

#[tokio::test]
async fn a_binary_answer_and_odd_headers_come_back_as_they_were() {
    let service = layer(&memory()).layer(tower::service_fn(|_: Request<Body>| async {
        let mut response = Response::new(Full::from(vec![0u8, 159, 146, 150, 255]));
        response.headers_mut().insert("x-odd", b"caf\xe9".as_slice().try_into().unwrap());
        response.headers_mut().append("x-many", "1".parse().unwrap());
        response.headers_mut().append("x-many", "2".parse().unwrap());
        Ok::<_, Infallible>(response)
    }));
    let first = ask(&service, post("/a", Some("key"), "body")).await;
    let again = ask(&service, post("/a", Some("key"), "body")).await;
    assert_eq!(again.header("idempotency-replayed"), Some("true"));
    assert_eq!(again.body, first.body);
    assert_eq!(again.head.headers["x-odd"], first.head.headers["x-odd"]);
    assert_eq!(again.head.headers.get_all("x-many").iter().count(), 2);
}
