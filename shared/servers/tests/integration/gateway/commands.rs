//! What commands, pipelines and transactions answer.

use serde_json::{Value, json};

use super::{Server, json_answer};

#[tokio::test]
#[ignore = "needs redis-server"]
async fn a_command_is_a_json_array() {
    let server = Server::start().await;
    assert_eq!(server.result(json!(["SET", "k", "v", "PX", 60_000])).await, "OK");
    assert_eq!(server.result(json!(["GET", "k"])).await, "v");
    assert_eq!(server.result(json!(["GET", "absent"])).await, Value::Null);
    assert_eq!(server.result(json!(["INCRBY", "n", 5])).await, 5);
    assert_eq!(server.result(json!(["SET", "flag", true])).await, "OK");
    assert_eq!(server.result(json!(["MGET", "k", "absent", "flag"])).await, json!(["v", null, "true"]));
}

#[tokio::test]
#[ignore = "needs redis-server"]
async fn a_command_can_be_a_path_with_a_body_and_a_query() {
    let server = Server::start().await;
    assert_eq!(server.call("GET", "/set/a%20b/%E4%BD%A0", "").await, (200, json!({ "result": "OK" })));
    assert_eq!(server.call("GET", "/get/a%20b", "").await, (200, json!({ "result": "你" })));
    assert_eq!(server.call("POST", "/set/k?EX=100&NX", "the body").await.0, 200);
    assert_eq!(server.result(json!(["GET", "k"])).await, "the body");
    assert_eq!(server.result(json!(["TTL", "k"])).await, 100);
    assert_eq!(server.call("POST", "/publish/channel/hello", "").await, (200, json!({ "result": 0 })));
}

#[tokio::test]
#[ignore = "needs redis-server"]
async fn a_failed_command_is_400_with_the_error_of_redis() {
    let server = Server::start().await;
    assert_eq!(server.error(json!(["GET"])).await, "ERR wrong number of arguments for 'get' command");
    server.result(json!(["SET", "k", "v"])).await;
    assert!(server.error(json!(["XLEN", "k"])).await.starts_with("WRONGTYPE "));
    assert!(server.error(json!(["SET", "k", null])).await.starts_with("ERR "));
    assert!(server.error(json!([])).await.starts_with("ERR "));
    assert_eq!(server.call("POST", "/", "{not json").await.0, 400);
}

#[tokio::test]
#[ignore = "needs redis-server"]
async fn base64_is_given_to_those_who_ask() {
    let server = Server::start().await;
    let ask = |body: Value| {
        let mut request = server.request("POST", "/", &body.to_string());
        request.headers_mut().insert("upstash-encoding", "base64".parse().unwrap());
        json_answer(request)
    };
    assert_eq!(ask(json!(["SET", "k", "bar"])).await, (200, json!({ "result": "OK" })));
    assert_eq!(ask(json!(["GET", "k"])).await, (200, json!({ "result": "YmFy" })));
    assert_eq!(ask(json!(["MGET", "k", "none"])).await, (200, json!({ "result": ["YmFy", null] })));
    assert_eq!(ask(json!(["STRLEN", "k"])).await, (200, json!({ "result": 3 })));
    assert_eq!(ask(json!(["PING"])).await, (200, json!({ "result": "UE9ORw==" })));
}

#[tokio::test]
#[ignore = "needs redis-server"]
async fn set_nx_get_is_null_whether_it_wins_or_not() {
    let server = Server::start().await;
    let claim = json!(["SET", "k", "mine", "NX", "GET", "PX", 60_000]);
    assert_eq!(server.result(claim.clone()).await, Value::Null);
    assert_eq!(server.result(claim).await, Value::Null);
    assert_eq!(server.result(json!(["SET", "k", "next", "GET"])).await, "mine");
    assert_eq!(server.result(json!(["SET", "NX", "GET"])).await, "OK");
}

#[tokio::test]
#[ignore = "needs redis-server"]
async fn a_pipeline_answers_item_by_item() {
    let server = Server::start().await;
    let commands = json!([["SET", "k", "v"], ["INCR", "k"], ["SUBSCRIBE", "c"], ["GET", "k"]]);
    let (status, answer) = server.post("/pipeline", commands).await;
    assert_eq!(status, 200);
    assert_eq!(answer[0], json!({ "result": "OK" }));
    assert!(answer[1]["error"].as_str().unwrap().starts_with("ERR value is not an integer"));
    assert!(answer[2]["error"].as_str().unwrap().starts_with("ERR Command is not available"));
    assert_eq!(answer[3], json!({ "result": "v" }));
    assert_eq!((server.upstash.requests(), server.upstash.commands()), (1, 4));
}

#[tokio::test]
#[ignore = "needs redis-server"]
async fn multi_exec_is_one_transaction() {
    let server = Server::start().await;
    let mut monitor = server.redis.monitor().await;
    let (status, answer) =
        server.post("/multi-exec", json!([["SET", "k", "v"], ["INCR", "k"], ["GET", "k"]])).await;
    assert_eq!(status, 200);
    assert_eq!((&answer[0], &answer[2]), (&json!({ "result": "OK" }), &json!({ "result": "v" })));
    assert!(answer[1]["error"].as_str().unwrap().starts_with("ERR value is not an integer"));
    assert_eq!(monitor.top_level_commands().await, ["MULTI", "SET", "INCR", "GET", "EXEC"]);
}

#[tokio::test]
#[ignore = "needs redis-server"]
async fn a_transaction_that_cannot_be_queued_does_nothing() {
    let server = Server::start().await;
    for bad in [json!(["GET"]), json!(["BLPOP", "l", 1]), json!(["NONSENSE"])] {
        let (status, answer) = server.post("/multi-exec", json!([["SET", "k", "v"], bad])).await;
        assert_eq!(status, 400, "{answer}");
        assert!(answer["error"].as_str().unwrap().starts_with("ERR "), "{answer}");
        assert_eq!(server.result(json!(["EXISTS", "k"])).await, 0);
    }
}

#[tokio::test]
#[ignore = "needs redis-server"]
async fn what_needs_a_connection_of_its_own_is_refused() {
    let server = Server::start().await;
    for command in [
        json!(["SUBSCRIBE", "c"]),
        json!(["monitor"]),
        json!(["BLPOP", "l", 1]),
        json!(["XREAD", "BLOCK", 0, "STREAMS", "s", "$"]),
    ] {
        assert!(server.error(command).await.starts_with("ERR Command is not available"));
    }
}
