//! moto's SQS, called as Lambda's poller calls the real one.

use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use onetap_http::Client;
use onetap_sqs::{SqsEvent, SqsMessage};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

/// moto's server; it goes when this is dropped.
pub struct Moto {
    child: Child,
    pub url: String,
    client: Client,
}

impl Drop for Moto {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Moto {
    pub async fn start() -> Moto {
        let tools = PathBuf::from(std::env::var_os("ONETAP_TOOLS").expect("cargo sets ONETAP_TOOLS"));
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let child = Command::new(tools.join("venv/bin/moto_server"))
            .args(["-H", "127.0.0.1", "-p", &port.to_string()])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("moto_server in the tools' venv: run scripts/tools");
        let moto = Moto { child, url: format!("http://127.0.0.1:{port}"), client: Client::new() };
        for _ in 0..600 {
            if moto.try_call("ListQueues", &json!({})).await.is_some() {
                return moto;
            }
            sleep(Duration::from_millis(50)).await;
        }
        panic!("moto_server does not answer after thirty seconds");
    }

    /// One operation of SQS' JSON protocol.
    pub async fn call(&self, operation: &str, input: Value) -> Value {
        self.try_call(operation, &input).await.unwrap_or_else(|| panic!("{operation} fails"))
    }

    async fn try_call(&self, operation: &str, input: &Value) -> Option<Value> {
        let request = Request::post(&self.url)
            .header("content-type", "application/x-amz-json-1.0")
            .header("x-amz-target", format!("AmazonSQS.{operation}"))
            .header("authorization", "AWS4-HMAC-SHA256 Credential=test/20260101/us-east-1/sqs/aws4_request, SignedHeaders=host, Signature=0")
            .body(Bytes::from(input.to_string()))
            .unwrap();
        let answer =
            self.client.send(request, Instant::now() + Duration::from_secs(20), 10 << 20).await.ok()?;
        let body = if answer.body().is_empty() { b"{}" } else { answer.body().as_ref() };
        answer.status().is_success().then(|| serde_json::from_slice(body).unwrap())
    }

    pub async fn create(&self, name: &str, attributes: Value) -> (String, String) {
        let queue = self.call("CreateQueue", json!({"QueueName": name, "Attributes": attributes})).await;
        let url = queue["QueueUrl"].as_str().unwrap().to_owned();
        let told =
            self.call("GetQueueAttributes", json!({"QueueUrl": url, "AttributeNames": ["QueueArn"]})).await;
        (url, told["Attributes"]["QueueArn"].as_str().unwrap().to_owned())
    }

    /// What is due, as Lambda hands it to a function.
    pub async fn receive(&self, queue: &(String, String)) -> SqsEvent {
        let input = json!({
            "QueueUrl": queue.0, "MaxNumberOfMessages": 10, "MessageSystemAttributeNames": ["All"], "AttributeNames": ["All"],
        });
        let messages = self.call("ReceiveMessage", input).await["Messages"].take();
        let record = |message: &Value| -> SqsMessage {
            serde_json::from_value(json!({
                "messageId": message["MessageId"], "receiptHandle": message["ReceiptHandle"], "body": message["Body"],
                "md5OfBody": message["MD5OfBody"], "attributes": message["Attributes"], "messageAttributes": {},
                "eventSource": "aws:sqs", "eventSourceARN": queue.1, "awsRegion": "us-east-1",
            }))
            .unwrap()
        };
        let mut event = SqsEvent::default();
        event.records = messages.as_array().into_iter().flatten().map(record).collect();
        event
    }

    pub async fn delete(&self, queue: &(String, String), done: &[&SqsMessage]) {
        let entry = |(n, message): (usize, &&SqsMessage)| json!({"Id": n.to_string(), "ReceiptHandle": message.receipt_handle});
        let entries: Vec<Value> = done.iter().enumerate().map(entry).collect();
        if !entries.is_empty() {
            self.call("DeleteMessageBatch", json!({"QueueUrl": queue.0, "Entries": entries})).await;
        }
    }

    /// Messages that are due, and those that are with a consumer.
    pub async fn count(&self, queue: &(String, String)) -> u64 {
        let told =
            self.call("GetQueueAttributes", json!({"QueueUrl": queue.0, "AttributeNames": ["All"]})).await;
        let number = |name: &str| told["Attributes"][name].as_str().unwrap().parse::<u64>().unwrap();
        number("ApproximateNumberOfMessages") + number("ApproximateNumberOfMessagesNotVisible")
    }
}
