//! What surrounds a request: the task-locals and the span of its caller, and its body as the service's own type has it.

use super::*;

use std::sync::Mutex;

use tracing::{Instrument, Subscriber};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;

tokio::task_local! {
    static TENANT: &'static str;
}

#[tokio::test]
async fn a_keyed_request_sees_its_callers_task_locals() {
    let service = layer(&memory()).layer(tower::service_fn(|_: Request<Body>| async {
        tokio::task::yield_now().await;
        let tenant = TENANT.try_with(|tenant| *tenant).unwrap_or("nobody");
        Ok::<_, Infallible>(Response::new(Full::<Bytes>::from(tenant)))
    }));
    for key in [None, Some("key")] {
        let answer = TENANT.scope("me", ask(&service, post("/a", key, "body"))).await;
        assert_eq!(answer.body, "me", "{key:?}");
    }
}

/// Collects each event with the names of the spans around it.
#[derive(Clone, Default)]
struct Events(Arc<Mutex<Vec<Vec<&'static str>>>>);

impl<S: Subscriber + for<'a> LookupSpan<'a>> tracing_subscriber::Layer<S> for Events {
    fn on_event(&self, event: &tracing::Event<'_>, context: tracing_subscriber::layer::Context<'_, S>) {
        if event.metadata().target() == module_path!() {
            let spans = context.event_scope(event).into_iter().flatten().map(|span| span.name());
            self.0.lock().unwrap().push(spans.collect());
        }
    }
}

#[tokio::test]
async fn a_keyed_request_runs_in_its_callers_span_before_and_after_a_hang_up() {
    let events = Events::default();
    let _subscribed = tracing::subscriber::set_default(tracing_subscriber::registry().with(events.clone()));
    let (asked, open) = (Asked::default(), Arc::new(tokio::sync::Semaphore::new(0)));
    let (counted, door) = (asked.clone(), Arc::clone(&open));
    let service = layer(&memory()).layer(tower::service_fn(move |_: Request<Body>| {
        let (counted, door) = (counted.clone(), Arc::clone(&door));
        async move {
            tracing::info!("begins");
            counted.next();
            door.acquire().await.unwrap().forget();
            tracing::info!("ends");
            Ok::<_, Infallible>(Response::new(Full::<Bytes>::default()))
        }
    }));
    let client = tokio::spawn({
        let service = service.clone();
        async move { ask(&service, post("/a", Some("key"), "body")).await.status() }
            .instrument(tracing::info_span!("request"))
    });
    while asked.times() == 0 {
        tokio::task::yield_now().await;
    }
    client.abort();
    assert!(client.await.unwrap_err().is_cancelled());
    open.add_permits(1);
    assert_eq!(
        ask(&service, post("/a", Some("key"), "body")).await.header("idempotency-replayed"),
        Some("true")
    );
    assert_eq!(*events.0.lock().unwrap(), [["idempotent_call", "request"]; 2]);
}

#[tokio::test]
async fn the_body_of_a_lambda_request_reaches_the_service_as_it_came() {
    use lambda_http::Body;

    let seen: Arc<Mutex<Vec<Body>>> = Arc::default();
    let saw = Arc::clone(&seen);
    let service = layer(&memory()).max_request(10).layer(tower::service_fn(move |request: Request<Body>| {
        saw.lock().unwrap().push(request.into_body());
        std::future::ready(Ok::<_, Infallible>(Response::new(Full::<Bytes>::from("done"))))
    }));
    let send = |key: &str, body: Body| {
        let request = Request::post("/a").header("idempotency-key", key).body(body).unwrap();
        let service = service.clone();
        async move { service.oneshot(request).await.unwrap().status().as_u16() }
    };
    let bodies = [Body::Text("text".into()), Body::Binary(vec![0, 159, 255]), Body::Empty];
    for (n, body) in bodies.iter().enumerate() {
        assert_eq!(send(&n.to_string(), body.clone()).await, 200);
    }
    assert_eq!(*seen.lock().unwrap(), bodies);
    // The key is tied to the bytes, whatever they came as.
    assert_eq!(send("0", Body::Binary(b"text".to_vec())).await, 200);
    assert_eq!(send("0", Body::Text("other".into())).await, 422);
    assert_eq!(send("9", Body::Text("over the limit".into())).await, 413);
    assert_eq!(seen.lock().unwrap().len(), bodies.len());
}
