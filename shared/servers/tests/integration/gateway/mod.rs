//! The gateway answers as Upstash documents.

mod commands;
mod scripts;
mod transport;

use crate::support::{send, text};
use hyper::Request;
use onetap_servers::{Redis, Upstash};
use serde_json::Value;

struct Server {
    redis: Redis,
    upstash: Upstash,
}

impl Server {
    async fn start() -> Server {
        let redis = Redis::start().await;
        let upstash = Upstash::start(&redis.url()).await;
        Server { redis, upstash }
    }

    fn request(&self, method: &str, path: &str, body: &str) -> Request<String> {
        Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.upstash.url()))
            .header("authorization", format!("Bearer {}", self.upstash.token()))
            .body(body.to_owned())
            .unwrap()
    }

    async fn call(&self, method: &str, path: &str, body: &str) -> (u16, Value) {
        json_answer(self.request(method, path, body)).await
    }

    async fn post(&self, path: &str, body: Value) -> (u16, Value) {
        self.call("POST", path, &body.to_string()).await
    }

    /// The result of a command that succeeds.
    async fn result(&self, command: Value) -> Value {
        let (status, mut answer) = self.post("/", command).await;
        assert_eq!(status, 200, "{answer}");
        answer["result"].take()
    }

    /// The error of a command that fails.
    async fn error(&self, command: Value) -> String {
        let (status, answer) = self.post("/", command).await;
        assert_eq!(status, 400, "{answer}");
        answer["error"].as_str().expect("an error").to_owned()
    }
}

/// The status and the JSON body of an answer.
async fn json_answer(request: Request<String>) -> (u16, Value) {
    let answer = send(request).await.expect("an answer");
    let status = answer.status().as_u16();
    let body = text(answer).await.expect("a whole answer");
    let body = serde_json::from_str(&body).unwrap_or_else(|_| panic!("not JSON: {body}"));
    (status, body)
}
