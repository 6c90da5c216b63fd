//! Scripts written for Upstash run on the Redis behind the gateway.

use serde_json::json;

use super::Server;

#[tokio::test]
#[ignore = "needs redis-server"]
async fn a_script_for_upstash_runs_under_its_own_digest() {
    let server = Server::start().await;
    let script = "#!lua flags=allow-key-locking\nreturn { KEYS[1], ARGV[1] }";
    let digest = sha1_smol::Sha1::from(script).digest().to_string();
    let by_digest = json!(["EVALSHA", digest, 1, "k", 7]);
    assert!(server.error(by_digest.clone()).await.starts_with("NOSCRIPT "));
    assert_eq!(server.result(json!(["EVAL", script, 1, "k", 7])).await, json!(["k", "7"]));
    assert_eq!(server.result(by_digest.clone()).await, json!(["k", "7"]));
    assert_eq!(server.result(json!(["SCRIPT", "FLUSH"])).await, "OK");
    assert!(server.error(by_digest.clone()).await.starts_with("NOSCRIPT "));
    assert_eq!(server.result(json!(["SCRIPT", "LOAD", script])).await, digest);
    assert_eq!(server.result(json!(["SCRIPT", "EXISTS", digest])).await, json!([1]));
    assert_eq!(server.result(by_digest).await, json!(["k", "7"]));
}

#[tokio::test]
#[ignore = "needs redis-server"]
async fn publish_inside_a_script_can_be_forbidden() {
    let server = Server::start().await;
    let script = "redis.call('SET', KEYS[1], 'v')\nreturn redis.call('publish', 'c', 'text')";
    let eval = json!(["EVAL", script, 1, "k"]);
    assert_eq!(server.result(eval.clone()).await, 0);
    server.upstash.refuse_publish_in_scripts(true);
    let error = server.error(eval.clone()).await;
    assert!(error.starts_with("ERR This Redis command is not allowed from script"), "{error}");
    let protected = json!(["EVAL", "return redis.pcall('PUBLISH', 'c', 'text')", 0]);
    assert!(server.error(protected).await.starts_with("ERR This Redis command is not allowed from script"));
    assert_eq!(server.result(json!(["PUBLISH", "c", "text"])).await, 0);
    server.upstash.refuse_publish_in_scripts(false);
    assert_eq!(server.result(eval).await, 0);
}
