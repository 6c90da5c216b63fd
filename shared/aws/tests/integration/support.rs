//! A client, a queue, and deadlines.

use std::time::Duration;

use onetap_aws::Credentials;
use onetap_aws::sqs::{Client, Config, Message, QueueUrl};
use onetap_servers::{Fault, HttpStub};
use tokio::time::Instant;

pub(crate) const REGION: &str = "us-east-1";

/// A client of SQS at `url`.
pub(crate) fn client(url: &str) -> Client {
    client_with(url, Credentials::new("test", "test"))
}

pub(crate) fn client_with(url: &str, credentials: Credentials) -> Client {
    let config = Config::new(REGION, credentials).unwrap().endpoint(url).unwrap();
    Client::new(onetap_http::Client::new(), &config)
}

/// A server that gives every request this answer, and its client.
pub(crate) fn answering(answer: Fault) -> (HttpStub, Client) {
    let server = HttpStub::always(answer);
    let client = client(&server.url());
    (server, client)
}

pub(crate) fn fifo() -> QueueUrl {
    QueueUrl::new("https://sqs.us-east-1.amazonaws.com/111122223333/answers.fifo").unwrap()
}

pub(crate) fn standard() -> QueueUrl {
    QueueUrl::new("https://sqs.us-east-1.amazonaws.com/111122223333/jobs").unwrap()
}

/// A message of a group, whose deduplication id is its body.
pub(crate) fn message(group: &str, body: &str) -> Message {
    Message::new(body).group_id(group).deduplication_id(body)
}

/// For servers that answer.
pub(crate) fn later() -> Instant {
    Instant::now() + Duration::from_secs(60)
}
