//! Tokens, limits, streams, faults and connections.

use std::time::Duration;

use http_body_util::BodyExt;
use hyper::Request;
use onetap_servers::Fault;
use serde_json::{Value, json};

use super::{Server, json_answer};
use crate::support::{client, send, text};

#[tokio::test]
#[ignore = "needs redis-server"]
async fn a_wrong_token_is_401() {
    let server = Server::start().await;
    let refused = (401, json!({ "error": "WRONGPASS invalid or missing auth token" }));
    let url = server.upstash.url();
    let wrong = Request::get(format!("{url}/get/k")).header("authorization", "Bearer wrong");
    assert_eq!(json_answer(wrong.body(String::new()).unwrap()).await, refused);
    assert_eq!(json_answer(Request::get(format!("{url}/get/k")).body(String::new()).unwrap()).await, refused);
    let in_query = format!("{url}/get/k?_token={}", server.upstash.token());
    let answer = json_answer(Request::get(in_query).body(String::new()).unwrap()).await;
    assert_eq!(answer, (200, json!({ "result": null })));
}

#[tokio::test]
#[ignore = "needs redis-server"]
async fn other_methods_are_405() {
    assert_eq!(Server::start().await.call("DELETE", "/get/k", "").await.0, 405);
}

#[tokio::test]
#[ignore = "needs redis-server"]
async fn a_request_over_10_mb_is_413() {
    let server = Server::start().await;
    let (status, answer) = server.post("/", json!(["SET", "k", "x".repeat(10 * 1024 * 1024)])).await;
    assert_eq!(status, 413);
    assert!(answer["error"].as_str().unwrap().starts_with("ERR max request size exceeded"));
    assert_eq!(server.result(json!(["EXISTS", "k"])).await, 0);
}

#[tokio::test]
#[ignore = "needs redis-server"]
async fn the_gateway_is_500_while_redis_is_down_and_works_again_after() {
    let mut server = Server::start().await;
    server.result(json!(["SET", "k", "v"])).await;
    server.redis.stop().await;
    let answer = send(server.request("POST", "/", r#"["GET","k"]"#)).await.unwrap();
    assert_eq!(answer.status(), 500);
    assert_eq!(answer.headers()["content-type"], "text/plain");
    server.redis.restart().await;
    assert_eq!(server.result(json!(["GET", "k"])).await, Value::Null);
    server.redis.restart().await;
    assert_eq!(server.result(json!(["GET", "k"])).await, Value::Null);
}

#[tokio::test]
#[ignore = "needs redis-server"]
async fn a_dropped_reply_was_executed_and_a_closed_request_was_not() {
    let server = Server::start().await;
    let incr = || server.request("POST", "/", r#"["INCR","n"]"#);
    server.upstash.inject(Some(Fault::DropReply));
    assert!(send(incr()).await.is_err());
    server.upstash.inject(Some(Fault::Close));
    assert!(send(incr()).await.is_err());
    server.upstash.inject(Some(Fault::Delay(Duration::from_millis(20))));
    assert_eq!(text(send(incr()).await.unwrap()).await.unwrap(), r#"{"result":2}"#);
    server.upstash.inject(None);
    assert_eq!(server.result(json!(["GET", "n"])).await, "2");
}

#[tokio::test]
#[ignore = "needs redis-server"]
async fn a_delayed_command_is_executed_though_nobody_waits_for_it() {
    let server = Server::start().await;
    server.upstash.inject(Some(Fault::Delay(Duration::from_millis(100))));
    let request = send(server.request("POST", "/", r#"["LPUSH","late","x"]"#));
    assert!(tokio::time::timeout(Duration::from_millis(20), request).await.is_err());
    server.upstash.inject(None);
    assert_eq!(server.result(json!(["EXISTS", "late"])).await, 0);
    while server.result(json!(["EXISTS", "late"])).await == 0 {}
}

#[tokio::test]
#[ignore = "needs redis-server"]
async fn idle_connections_are_closed_under_a_blocked_runtime() {
    let server = Server::start().await;
    let client = client();
    let get = || server.request("GET", "/get/k", "").map(|_| Default::default());
    text(client.request(get()).await.unwrap()).await.unwrap();
    text(client.request(get()).await.unwrap()).await.unwrap();
    // This test's runtime has one thread, and nothing is awaited between the closing and the next request:
    // the pool cannot have noticed.
    server.upstash.close_idle_connections();
    assert!(client.request(get()).await.is_err(), "the pooled connection is dead");
    assert!(client.request(get()).await.is_ok(), "a new one is not");
}

#[tokio::test]
#[ignore = "needs redis-server"]
async fn a_subscription_is_a_stream_of_events() {
    let server = Server::start().await;
    let mut answer = send(server.request("POST", "/subscribe/chat", "")).await.unwrap();
    assert_eq!(answer.headers()["content-type"], "text/event-stream");
    let mut next = async || {
        let frame = answer.frame().await.expect("the stream goes on").unwrap();
        String::from_utf8(frame.into_data().unwrap().to_vec()).unwrap()
    };
    assert_eq!(next().await, "data: subscribe,chat,1\n\n");
    assert_eq!(server.result(json!(["PUBLISH", "chat", "hello, you"])).await, 1);
    assert_eq!(next().await, "data: message,chat,hello, you\n\n");

    let mut patterns = send(server.request("GET", "/psubscribe/ch*", "")).await.unwrap();
    server.call("POST", "/publish/chat/again", "").await;
    let mut events = String::new();
    while !events.contains("pmessage") {
        let frame = patterns.frame().await.expect("the stream goes on").unwrap();
        events.push_str(str::from_utf8(&frame.into_data().unwrap()).unwrap());
    }
    assert_eq!(events, "data: psubscribe,ch*,1\n\ndata: pmessage,ch*,chat,again\n\n");
}
