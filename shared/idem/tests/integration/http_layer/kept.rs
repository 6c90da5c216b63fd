//! Which answers are kept: 2xx, or what the service decides by their heads.

use super::*;

use axum::http::response::Parts;
use onetap_idem::Policy;

/// The answers to four requests with one key: the status, and whether it was replayed.
async fn four<S, R>(service: &Wrapped<S>) -> Vec<(u16, bool)>
where
    Wrapped<S>: Service<Request<Body>, Response = Response<R>, Error = Infallible> + Clone,
    R: axum::body::HttpBody<Data = Bytes>,
    R::Error: std::fmt::Debug,
{
    let (key, mut answers) = (unique_token(), Vec::new());
    for _ in 0..4 {
        let answer = ask(service, post("/a", Some(&key), "body")).await;
        answers.push((answer.status(), answer.header("idempotency-replayed").is_some()));
    }
    answers
}

#[tokio::test]
async fn a_404_that_the_service_keeps_is_replayed_with_its_status() {
    let asked = Asked::default();
    let layer = layer(&memory()).keep_if(|head| head.status.is_success() || head.status == 404);
    let service = counting(layer, &asked, |n| [500, 404, 201][n - 1]);
    assert_eq!(four(&service).await, [(500, false), (404, false), (404, true), (404, true)]);
    assert_eq!(asked.times(), 2);
}

#[tokio::test]
async fn a_202_that_is_not_kept_is_run_again() {
    let asked = Asked::default();
    let layer = layer(&memory()).keep_if(|head| head.status.is_success() && head.status != 202);
    let service = counting(layer, &asked, |n| [202, 202, 200][n - 1]);
    assert_eq!(four(&service).await, [(202, false), (202, false), (200, false), (200, true)]);
    assert_eq!(asked.times(), 3);
}

#[tokio::test]
async fn headers_decide_too_and_what_was_kept_stays_kept() {
    let (store, asked, decided) = (memory(), Asked::default(), Asked::default());
    let by_header = |decided: &Asked| {
        let decided = decided.clone();
        move |head: &Parts| {
            decided.next();
            head.headers["x-answer"] == "2"
        }
    };
    let service = counting(layer(&store).keep_if(by_header(&decided)), &asked, |_| 200);
    assert_eq!(four(&service).await, [(200, false), (200, false), (200, true), (200, true)]);
    assert_eq!(decided.times(), 2, "asked about the service's answers, and not about replays");

    let key = unique_token();
    let service = |keep| counting(layer(&store).keep_if(move |_| keep), &asked, |_| 200);
    ask(&service(true), post("/a", Some(&key), "body")).await;
    let later = ask(&service(false), post("/a", Some(&key), "body")).await;
    assert_eq!(later.header("idempotency-replayed"), Some("true"));
}

#[tokio::test]
async fn a_5xx_that_the_service_keeps_is_replayed_and_not_mended_by_a_repeat() {
    let asked = Asked::default();
    let service = counting(layer(&memory()).keep_if(|_| true), &asked, |n| [503, 200][n - 1]);
    assert_eq!(four(&service).await, [(503, false), (503, true), (503, true), (503, true)]);
    assert_eq!(asked.times(), 1);
}

#[tokio::test]
async fn what_is_no_answer_of_the_service_is_never_kept() {
    let asked = Asked::default();
    let counted = asked.clone();
    let service = layer(&memory()).keep_if(|_| true).layer(tower::service_fn(move |_: Request<Body>| {
        let failed = counted.next() == 1;
        async move { if failed { Err("broken pipe") } else { Ok(Response::new(Full::<Bytes>::default())) } }
    }));
    let ask = || service.clone().oneshot(post("/a", Some("key"), "body"));
    assert_eq!(ask().await.unwrap_err(), "broken pipe");
    assert_eq!(ask().await.unwrap().status(), 200);

    // Down for the first claim: the layer's own 503.
    let store: Arc<dyn Store> =
        TestStore::faulty(memory(), |call| if call == 1 { Fault::NotSent } else { Fault::Pass });
    let service = counting(layer(&store).keep_if(|_| true), &Asked::default(), |_| 200);
    assert_eq!(four(&service).await, [(503, false), (200, false), (200, true), (200, true)]);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_streams_is_kept_or_run_again_by_its_head() {
    for (keep, second) in [(false, 404), (true, 409)] {
        let (asked, send) = (Asked::default(), broadcast::channel(8).0);
        let service = streaming(layer(&memory()).keep_if(move |_| keep), &asked, 404, &send);
        for status in [404, second] {
            let answer = service.clone().oneshot(post("/a", Some("key"), "body"));
            let answer = tokio::time::timeout(Duration::from_secs(10), answer).await.expect("at once");
            assert_eq!(answer.unwrap().status(), status);
        }
        assert_eq!(asked.times(), if keep { 1 } else { 2 });
    }
}

/// A service that counts its calls and answers with `status` and four of eight bytes.
fn breaking(
    layer: IdempotencyLayer,
    asked: &Asked,
    status: u16,
) -> Wrapped<
    impl Service<Request<Body>, Response = Response<Body>, Error = Infallible, Future: Send>
    + Clone
    + Send
    + use<>,
> {
    let asked = asked.clone();
    layer.layer(tower::service_fn(move |_: Request<Body>| {
        asked.next();
        let half = [Ok(Bytes::from("half")), Err("private")];
        let body = Body::from_stream(futures_util::stream::iter(half));
        let response = Response::builder().status(status).header("content-length", 8).body(body);
        std::future::ready(Ok::<_, Infallible>(response.unwrap()))
    }))
}

#[tokio::test]
async fn an_answer_that_breaks_midway_is_502_and_its_request_is_never_run_again() {
    for policy in [Policy::AtLeastOnce, Policy::AtMostOnce] {
        let asked = Asked::default();
        let idem = Idempotency::with_config(memory(), Config::default().policy(policy));
        let service = breaking(IdempotencyLayer::new(idem, Caller::anyone()), &asked, 200);
        let first = ask(&service, post("/a", Some("key"), "body")).await;
        assert_eq!((first.status(), first.problem().as_str()), (502, "The answer did not arrive"));
        for _ in 0..2 {
            let again = ask(&service, post("/a", Some("key"), "body")).await;
            assert_eq!(again.status(), 409, "{policy:?}");
            assert!(again.problem().contains("not kept"));
        }
        assert_eq!(asked.times(), 1, "{policy:?}");
    }
}

#[tokio::test]
async fn whether_an_answer_that_breaks_midway_is_run_again_is_decided_by_its_head() {
    let layer = || IdempotencyLayer::new(Idempotency::new(memory()), Caller::anyone());
    for (layer, status) in [(layer(), 500), (layer().keep_if(|head| head.status == 404), 200)] {
        let asked = Asked::default();
        let service = breaking(layer, &asked, status);
        for n in 1..=2 {
            assert_eq!(ask(&service, post("/a", Some("key"), "body")).await.status(), 502);
            assert_eq!(asked.times(), n);
        }
    }
}

#[tokio::test]
async fn a_handler_that_panics_is_run_again_at_once_by_the_repeat() {
    let asked = Asked::default();
    let service = counting(layer(&memory()), &asked, |n| match n {
        1 => std::panic::resume_unwind(Box::new("on purpose")),
        _ => 200,
    });
    let first = tokio::spawn(service.clone().oneshot(post("/a", Some("key"), "body")));
    assert!(first.await.is_err_and(|ended| ended.is_panic()));
    assert_eq!(ask(&service, post("/a", Some("key"), "body")).await.header("x-answer"), Some("2"));
}
