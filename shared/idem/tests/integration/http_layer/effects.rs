//! The keys that a handler sends with its effects.

use super::*;

use std::sync::Mutex;

use onetap_idem::EffectKeys;

#[tokio::test]
async fn a_handler_finds_the_same_effect_key_in_every_retry_of_a_request() {
    let charged: Arc<Mutex<Vec<Option<String>>>> = Arc::default();
    let sent = Arc::clone(&charged);
    // Charges and fails, until the third time.
    let service = layer(&memory()).layer(tower::service_fn(move |request: Request<Body>| {
        let charge = request.extensions().get().map(|effects: &EffectKeys| effects.key("charge").to_string());
        let mut sent = sent.lock().unwrap();
        sent.push(charge);
        let status = if sent.len() < 3 { 500 } else { 200 };
        std::future::ready(Response::builder().status(status).body(Full::<Bytes>::default()))
    }));
    let send = |path: &str, key: Option<&str>, who: &str| {
        let mut request = post(path, key, "body");
        request.headers_mut().insert("authorization", who.parse().unwrap());
        service.clone().oneshot(request)
    };
    for status in [500, 500, 200, 200] {
        assert_eq!(send("/a", Some("key"), "me").await.unwrap().status(), status);
    }
    for (path, key, who) in [("/a", "other", "me"), ("/b", "key", "me"), ("/a", "key", "you")] {
        send(path, Some(key), who).await.unwrap();
    }
    send("/a", None, "me").await.unwrap();
    let charged = charged.lock().unwrap();
    assert_eq!(charged.len(), 7, "the fourth request was replayed");
    let [first, second, third, others @ .., unkeyed] = charged.as_slice() else { panic!("{charged:?}") };
    assert!(first.is_some() && first == second && second == third);
    assert!(others.iter().all(|other| other.is_some() && other != first), "each request has its own");
    assert_eq!(unkeyed, &None);
}

#[tokio::test(start_paused = true)]
async fn a_layer_that_stands_twice_in_front_of_a_service_does_not_wait_for_itself() {
    // As configured by default, a repeat waits for as long as the first is being handled.
    let layer = IdempotencyLayer::new(Idempotency::new(memory()), Caller::anyone());
    let asked = Asked::default();
    let counted = asked.clone();
    let service = tower::service_fn(move |_: Request<Body>| {
        let n = counted.next();
        std::future::ready(Ok::<_, Infallible>(Response::new(Body::from(n.to_string()))))
    });
    let service = layer.layer(layer.layer(service));
    for _ in 0..2 {
        let answer = service.clone().oneshot(post("/pay", Some("key"), "body"));
        let answer = tokio::time::timeout(Duration::from_secs(3600), answer).await.expect("an answer");
        assert_eq!(answer.unwrap().into_body().collect().await.unwrap().to_bytes(), "1");
    }
}
