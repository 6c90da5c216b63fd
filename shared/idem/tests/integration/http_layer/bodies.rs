//! Bodies of any type: those that can be made of bytes as they are, all others as the layer's own.

use super::*;

use http_body_util::StreamBody;
use onetap_idem::Body as LayerBody;
use onetap_idem::BodyError;

async fn bytes(body: impl Into<LayerBody>) -> Bytes {
    body.into().collect().await.unwrap().to_bytes()
}

#[tokio::test]
async fn a_body_is_made_of_what_holds_bytes() {
    assert_eq!(bytes("text").await, "text");
    assert_eq!(bytes("text".to_owned()).await, "text");
    assert_eq!(bytes(vec![0, 255]).await, vec![0, 255]);
    assert_eq!(bytes(Bytes::from_static(b"bytes")).await, "bytes");
    assert_eq!(bytes(LayerBody::empty()).await, "");
    assert_eq!(axum::body::HttpBody::size_hint(&LayerBody::from("text")).exact(), Some(4));
    assert!(axum::body::HttpBody::is_end_stream(&LayerBody::default()));
}

#[test]
fn debug_shows_no_body() {
    assert_eq!(format!("{:?}", LayerBody::from("private")), "Body(7 bytes)");
    assert!(!format!("{:?}", LayerBody::new(LayerBody::from("private"))).contains("private"));
}

/// A body that cannot be made of bytes and cannot be moved once it is read, as an `async` block's stream is.
fn unmovable(text: &'static str) -> StreamBody<impl futures_util::Stream<Item = Frames> + Send> {
    StreamBody::new(futures_util::stream::once(async move {
        tokio::task::yield_now().await;
        Ok(http_body::Frame::data(Bytes::from(text)))
    }))
}

type Frames = Result<http_body::Frame<Bytes>, BodyError>;

#[tokio::test]
async fn a_request_of_any_body_is_handled_once_when_it_is_mapped() {
    let asked = Asked::default();
    let counted = asked.clone();
    let service = layer(&memory()).layer(tower::service_fn(move |request: Request<LayerBody>| {
        let n = counted.next();
        async move {
            let body = request.into_body().collect().await.unwrap().to_bytes();
            let answer = Response::builder().header("content-length", body.len()).header("x-answer", n);
            Ok::<_, Infallible>(answer.body(unmovable("echo")).unwrap())
        }
    }));
    let service = service.map_request(|request: Request<_>| request.map(LayerBody::new));
    for replayed in [None, Some("true")] {
        let request = Request::post("/a").header("idempotency-key", "key").body(unmovable("echo")).unwrap();
        let answer = Answer::of(service.clone().oneshot(request).await.unwrap()).await;
        assert_eq!((answer.status(), &*answer.body), (200, &b"echo"[..]));
        assert_eq!(answer.header("idempotency-replayed"), replayed);
    }
    let other = Request::post("/a").header("idempotency-key", "key").body(unmovable("other")).unwrap();
    assert_eq!(service.oneshot(other).await.unwrap().status(), 422);
    assert_eq!(asked.times(), 1);
}

#[tokio::test]
async fn a_service_decides_what_a_repeat_has_in_common_with_the_first_request() {
    let asked = Asked::default();
    let fields = |_: &axum::http::request::Parts, body: &[u8]| {
        let mut order: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
        order.sort_all_objects();
        order.as_object_mut().map(|members| members.remove("sent_at"));
        order.to_string()
    };
    let service = counting(layer(&memory()).fingerprint_by(fields), &asked, |_| 201);
    for (path, body, status, replayed) in [
        ("/a?try=1", r#"{"item":"tea","amount":1,"sent_at":1}"#, 201, None),
        ("/a?try=2", r#"{ "amount": 1, "item": "tea", "sent_at": 2 }"#, 201, Some("true")),
        ("/a?try=1", r#"{"item":"tea","amount":2,"sent_at":1}"#, 422, None),
    ] {
        let answer = ask(&service, post(path, Some("key"), body)).await;
        assert_eq!((answer.status(), answer.header("idempotency-replayed")), (status, replayed), "{body}");
    }
    assert_eq!(asked.times(), 1);
}
