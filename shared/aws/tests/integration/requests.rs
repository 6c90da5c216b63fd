//! What is sent for each call, and what is made of the answer.

use std::time::Duration;

use onetap_aws::Credentials;
use onetap_aws::sqs::{MAX_MESSAGE_BYTES, Message, Receive, SendOutcome};
use onetap_servers::{Fault, HttpStub};
use serde_json::{Value, json};

use crate::support::{answering, client_with, fifo, later, message, standard};

const QUEUE: &str = "https://sqs.us-east-1.amazonaws.com/111122223333/answers.fifo";

/// The operations that were asked for, each with its input.
fn calls(server: &HttpStub) -> Vec<(String, Value)> {
    let call = |request: http::Request<_>| {
        let target = request.headers()["x-amz-target"].to_str().unwrap();
        let operation = target.strip_prefix("AmazonSQS.").unwrap().to_owned();
        let body: onetap_http::Bytes = request.into_body();
        (operation, serde_json::from_slice(&body).unwrap())
    };
    server.received().into_iter().map(call).collect()
}

fn taken(message_id: &str, sequence_number: Option<&str>) -> SendOutcome {
    let sequence_number = sequence_number.map(str::to_owned);
    SendOutcome::Taken { message_id: message_id.to_owned(), sequence_number }
}

#[tokio::test]
async fn a_request_is_signed_json() {
    let server = HttpStub::always(Fault::ok(r#"{"MessageId":"m"}"#));
    let credentials = Credentials::new("AKIDEXAMPLE", "secret").session_token("token");
    let client = client_with(&server.url(), credentials);
    client.connect(later()).await.unwrap();
    assert_eq!(client.send(&fifo(), &message("g", "d"), later()).await, taken("m", None));
    let [request] = server.received().try_into().expect("one request");
    assert_eq!((request.method().as_str(), request.uri().path()), ("POST", "/"));
    let mut names: Vec<&str> = request.headers().keys().map(|name| name.as_str()).collect();
    names.sort_unstable();
    let expected = [
        "authorization",
        "content-length",
        "content-type",
        "host",
        "user-agent",
        "x-amz-date",
        "x-amz-security-token",
        "x-amz-target",
    ];
    assert_eq!(names, expected);
    let header = |name: &str| request.headers()[name].to_str().unwrap();
    assert_eq!(header("content-type"), "application/x-amz-json-1.0");
    assert_eq!(header("host"), server.addr().to_string());
    assert_eq!(header("user-agent"), concat!("onetap-aws/", env!("CARGO_PKG_VERSION")));
    let authorization = header("authorization");
    assert!(authorization.starts_with("AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/"), "{authorization}");
    let scope = "/us-east-1/sqs/aws4_request, SignedHeaders=content-type;host;x-amz-date;x-amz-security-token;x-amz-target, ";
    assert!(authorization.contains(scope), "{authorization}");
}

#[tokio::test]
async fn a_message_has_its_group_and_its_deduplication_id_if_it_has_them() {
    let (server, client) =
        answering(Fault::ok(r#"{"MessageId":"m","SequenceNumber":"18849496460467696128"}"#));
    let lunch = Message::new("午餐").group_id("U1").deduplication_id("01H810YECXQQZ37VAXPF6H9E6T");
    let sent = client.send(&fifo(), &lunch, later()).await;
    assert_eq!(sent, taken("m", Some("18849496460467696128")));
    assert!(client.send(&standard(), &Message::new("{}"), later()).await.is_taken());
    let send = |input| ("SendMessage".to_owned(), input);
    let expected = [
        json!({ "QueueUrl": QUEUE, "MessageBody": "午餐", "MessageGroupId": "U1", "MessageDeduplicationId": "01H810YECXQQZ37VAXPF6H9E6T" }),
        json!({ "QueueUrl": standard().as_str(), "MessageBody": "{}" }),
    ];
    assert_eq!(calls(&server), expected.map(send));
}

#[tokio::test]
async fn a_batch_is_answered_message_by_message_in_whatever_order() {
    let answer = json!({
        "Successful": [
            { "Id": "2", "MessageId": "m2", "MD5OfMessageBody": "…", "SequenceNumber": "20" },
            { "Id": "0", "MessageId": "m0", "MD5OfMessageBody": "…" },
        ],
        "Failed": [],
    });
    let (server, client) = answering(Fault::ok(answer));
    let messages = ["a", "b", "c"].map(|body| message("g", body));
    let outcomes = client.send_batch(&fifo(), &messages, later()).await;
    assert_eq!(outcomes[0], taken("m0", None));
    assert_eq!(outcomes[1].label(), "not_understood", "nothing was said about it");
    assert_eq!(outcomes[2], taken("m2", Some("20")));
    let entry = |id: &str, body: &str| json!({ "Id": id, "MessageBody": body, "MessageGroupId": "g", "MessageDeduplicationId": body });
    let input = json!({ "QueueUrl": QUEUE, "Entries": [entry("0", "a"), entry("1", "b"), entry("2", "c")] });
    assert_eq!(calls(&server), [("SendMessageBatch".to_owned(), input)]);
}

#[tokio::test]
async fn a_receipt_asks_for_the_attributes_and_returns_them() {
    let answer = json!({ "Messages": [{
        "MessageId": "m", "ReceiptHandle": "h", "MD5OfBody": "…", "Body": "{}",
        "Attributes": {
            "ApproximateReceiveCount": "2", "MessageGroupId": "U1", "MessageDeduplicationId": "d",
            "SequenceNumber": "20", "SentTimestamp": "1767225600000", "NewOne": "x",
        },
    }] });
    let (server, client) = answering(Fault::ok(answer));
    let receive = Receive::up_to(1000).wait(Duration::from_secs(20)).visibility(Duration::from_millis(1500));
    let [received] = client.receive(&fifo(), receive, later()).await.unwrap().try_into().unwrap();
    assert_eq!((&*received.message_id, &*received.receipt_handle, &*received.body), ("m", "h", "{}"));
    assert_eq!(received.receive_count(), Some(2));
    assert_eq!(received.group_id(), Some("U1"));
    assert_eq!(received.deduplication_id(), Some("d"));
    assert_eq!(received.sequence_number(), Some("20"));
    assert_eq!(received.attributes["SentTimestamp"], "1767225600000");
    assert!(client.receive(&fifo(), Receive::up_to(0), later()).await.is_ok());
    let input = |max: u32, wait: u32| {
        json!({
            "QueueUrl": QUEUE, "MaxNumberOfMessages": max, "MessageSystemAttributeNames": ["All"],
            "WaitTimeSeconds": wait,
        })
    };
    let mut first = input(10, 20);
    first["VisibilityTimeout"] = 2.into();
    let receive = |input| ("ReceiveMessage".to_owned(), input);
    assert_eq!(calls(&server), [first, input(1, 0)].map(receive));
}

#[tokio::test]
async fn a_receipt_can_hold_ten_of_the_largest_messages_with_all_characters_escaped() {
    let message = r#"{"MessageId":"m","ReceiptHandle":"h","Body":"午"}"#;
    let message = message.replace("午", &"\\u5348".repeat(MAX_MESSAGE_BYTES / 3));
    let (_server, client) =
        answering(Fault::ok(format!(r#"{{"Messages":[{}]}}"#, vec![message; 10].join(","))));
    let received = client.receive(&fifo(), Receive::up_to(10), later()).await.unwrap();
    assert_eq!(received.len(), 10);
    assert_eq!(received[9].body, "午".repeat(MAX_MESSAGE_BYTES / 3));
}

#[tokio::test]
async fn an_empty_receipt_is_no_message() {
    for answer in ["{}", r#"{"Messages":[]}"#] {
        let (_server, client) = answering(Fault::ok(answer));
        assert_eq!(client.receive(&fifo(), Receive::up_to(10), later()).await, Ok(vec![]));
    }
}

#[tokio::test]
async fn what_a_consumer_does_with_a_message_names_its_receipt() {
    let (server, client) = answering(Fault::ok("{}"));
    client.delete(&fifo(), "h", later()).await.unwrap();
    client.change_visibility(&fifo(), "h", Duration::ZERO, later()).await.unwrap();
    let names = ["ApproximateNumberOfMessages", "QueueArn"];
    assert!(client.attributes(&fifo(), &names, later()).await.unwrap().is_empty());
    let expected = [
        ("DeleteMessage", json!({ "QueueUrl": QUEUE, "ReceiptHandle": "h" })),
        (
            "ChangeMessageVisibility",
            json!({ "QueueUrl": QUEUE, "ReceiptHandle": "h", "VisibilityTimeout": 0 }),
        ),
        ("GetQueueAttributes", json!({ "QueueUrl": QUEUE, "AttributeNames": names })),
    ];
    assert_eq!(calls(&server), expected.map(|(operation, input)| (operation.to_owned(), input)));
}

#[tokio::test]
async fn twelve_visibilities_are_changed_in_two_requests_and_each_has_its_result() {
    let answer = json!({
        "Successful": [{ "Id": "0" }],
        "Failed": [{ "Id": "1", "SenderFault": true, "Code": "ReceiptHandleIsInvalid", "Message": "…" }],
    });
    let (server, client) = answering(Fault::ok(answer));
    let changes = [("h", Duration::from_secs(30)); 12];
    let results = client.change_visibility_batch(&fifo(), &changes, later()).await;
    let labels: Vec<_> =
        results.iter().map(|result| result.as_ref().map_or_else(|e| e.label(), |()| "ok")).collect();
    let first = ["ok", "refused", "not_understood", "not_understood", "not_understood"];
    assert_eq!(labels[..5], first);
    assert_eq!(labels[10..], first[..2]);
    let sizes: Vec<_> =
        calls(&server).iter().map(|(_, input)| input["Entries"].as_array().unwrap().len()).collect();
    assert_eq!(sizes, [10, 2]);
    let entry = json!({ "Id": "1", "ReceiptHandle": "h", "VisibilityTimeout": 30 });
    assert_eq!(
        calls(&server)[1].1,
        json!({ "QueueUrl": QUEUE, "Entries": [{ "Id": "0", "ReceiptHandle": "h", "VisibilityTimeout": 30 }, entry] })
    );
}

/// An answer that quotes everything it was given.
#[tokio::test]
async fn nothing_of_a_message_or_a_credential_is_shown() {
    for status in [200, 400, 403, 500] {
        let server = HttpStub::answering(move |request| {
            let quoted = format!("{:?} {}", request.headers(), String::from_utf8_lossy(request.body()));
            let entry = json!({ "Id": "0", "SenderFault": true, "Code": quoted, "Message": quoted });
            let body = json!({ "__type": quoted, "message": quoted, "Failed": [entry] });
            Fault::Status(status, body.to_string())
        });
        let credentials = Credentials::new("PLANTEDID", "PLANTED-secret").session_token("PLANTED-token");
        let client = client_with(&server.url(), credentials);
        let message = message("PLANTED-group", "PLANTED-body");
        let mut shown = format!("{client:?} {message:?}");
        let batch = client.send_batch(&fifo(), std::slice::from_ref(&message), later()).await;
        for outcome in [batch[0].clone(), client.send(&fifo(), &message, later()).await] {
            shown += &format!("{outcome:?} {}", outcome.error().expect("not taken"));
        }
        let error = client.delete(&fifo(), "PLANTED-handle", later()).await;
        shown += &format!("{error:?}");
        assert!(!shown.contains("PLANTED"), "{shown}");
    }
    let answer = json!({ "Messages": [{
        "MessageId": "m", "ReceiptHandle": "PLANTED", "Body": "PLANTED", "Attributes": { "MessageGroupId": "PLANTED" },
    }] });
    let (_server, client) = answering(Fault::ok(answer));
    let shown = format!("{:?}", client.receive(&fifo(), Receive::up_to(1), later()).await.unwrap());
    assert_eq!(shown, r#"[ReceivedMessage { message_id: "m", .. }]"#);
}
