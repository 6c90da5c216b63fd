//! Taken, certainly not taken, unknown: what each failure means, against a server that fails in every way.

use std::time::Duration;

use http::Response;
use onetap_aws::sqs::{CallError, MAX_MESSAGE_BYTES, Message, Receive, SendOutcome};
use onetap_servers::{Broken, Fault, HttpStub};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::support::{answering, client, fifo, later, message, standard};

fn failure(code: &str) -> String {
    json!({ "__type": format!("com.amazonaws.sqs#{code}"), "message": "…" }).to_string()
}

fn refused(code: &str) -> SendOutcome {
    SendOutcome::NotTaken(CallError::Refused(code.to_owned()))
}

fn unauthorized(code: &str) -> SendOutcome {
    SendOutcome::NotTaken(CallError::Unauthorized(code.to_owned()))
}

/// Answers to a message, and what they mean.
fn answers() -> Vec<(Fault, SendOutcome)> {
    let status = |status: u16, body: &str| Fault::Status(status, body.to_owned());
    let code = |status: u16, code: &str| Fault::Status(status, failure(code));
    let queue_not_found = SendOutcome::NotTaken(CallError::QueueNotFound);
    let throttled = SendOutcome::NotTaken(CallError::Throttled);
    let server_error = SendOutcome::Unknown(CallError::ServerError);
    let not_understood = SendOutcome::Unknown(CallError::NotUnderstood);
    let broken = SendOutcome::Unknown(CallError::Unreachable { maybe_sent: true });
    vec![
        (code(400, "QueueDoesNotExist"), queue_not_found.clone()),
        (code(400, "AWS.SimpleQueueService.NonExistentQueue"), queue_not_found.clone()),
        (status(400, r#"{"__type":"QueueDoesNotExist"}"#), queue_not_found),
        (code(400, "InvalidMessageContents"), refused("InvalidMessageContents")),
        (code(400, "InvalidParameterValue"), refused("InvalidParameterValue")),
        (code(400, "BatchRequestTooLong"), refused("BatchRequestTooLong")),
        (code(404, "InvalidAddress"), refused("InvalidAddress")),
        (code(400, "KmsDisabled"), refused("KmsDisabled")),
        (code(400, "UnsupportedOperation:http://internal.amazon.com/#x/"), refused("UnsupportedOperation")),
        (code(403, "AccessDenied"), unauthorized("AccessDenied")),
        (code(400, "AccessDeniedException"), unauthorized("AccessDeniedException")),
        (code(403, "InvalidClientTokenId"), unauthorized("InvalidClientTokenId")),
        (code(403, "SignatureDoesNotMatch"), unauthorized("SignatureDoesNotMatch")),
        (code(400, "ExpiredTokenException"), unauthorized("ExpiredTokenException")),
        (code(400, "KmsAccessDenied"), unauthorized("KmsAccessDenied")),
        (code(403, "OptInRequired"), unauthorized("OptInRequired")),
        (code(401, "Anything"), unauthorized("Anything")),
        (code(400, "RequestThrottled"), throttled.clone()),
        (code(400, "ThrottlingException"), throttled.clone()),
        (code(400, "KmsThrottled"), throttled.clone()),
        (code(403, "OverLimit"), throttled.clone()),
        (code(429, "TooManyRequestsException"), throttled.clone()),
        (status(429, ""), throttled.clone()),
        (code(503, "RequestThrottled"), throttled),
        (code(500, "InternalError"), server_error.clone()),
        (code(503, "ServiceUnavailable"), server_error.clone()),
        (status(500, ""), server_error.clone()),
        (status(502, "<html>"), server_error.clone()),
        (status(504, "{}"), server_error.clone()),
        (status(408, ""), server_error),
        (status(400, ""), not_understood.clone()),
        (status(400, "{}"), not_understood.clone()),
        (status(403, "<html>"), not_understood.clone()),
        (status(404, "not found"), not_understood.clone()),
        (status(302, ""), not_understood.clone()),
        (code(302, "QueueDoesNotExist"), not_understood.clone()),
        (status(201, r#"{"MessageId":"m"}"#), not_understood.clone()),
        (status(204, ""), not_understood.clone()),
        (status(200, "{}"), not_understood.clone()),
        (status(200, "[]"), not_understood.clone()),
        (status(200, r#"{"MessageId":""}"#), not_understood.clone()),
        (status(200, r#"{"MessageId":null}"#), not_understood.clone()),
        (status(200, &failure("QueueDoesNotExist")), not_understood.clone()),
        (status(200, &json!({ "MessageId": "m".repeat(1 << 20) }).to_string()), not_understood.clone()),
        (Fault::Html, not_understood.clone()),
        (Fault::Empty, not_understood),
        (Fault::Close, broken.clone()),
        (Fault::HalfBody, broken),
    ]
}

#[tokio::test]
async fn every_answer_says_whether_sqs_has_the_message() {
    for (answer, expected) in answers() {
        let (server, client) = answering(answer.clone());
        let outcome = client.send(&fifo(), &message("g", "a"), later()).await;
        assert_eq!(outcome, expected, "{answer:?}");
        assert_eq!(server.requests(), 1, "nothing is sent again: {answer:?}");
        let error = outcome.error().expect("not taken");
        assert_eq!(error.is_unknown(), matches!(outcome, SendOutcome::Unknown(_)), "{error}");
        assert_eq!(outcome.label(), error.label());
        assert!(!error.to_string().is_empty());
    }
}

#[tokio::test]
async fn an_answer_to_a_batch_holds_for_each_of_its_messages() {
    let messages = ["a", "b"].map(|body| message(body, body));
    for (answer, expected) in answers() {
        let (server, client) = answering(answer.clone());
        let outcomes = client.send_batch(&fifo(), &messages, later()).await;
        assert_eq!(outcomes, [expected.clone(), expected], "{answer:?}");
        assert_eq!(server.requests(), 1, "{answer:?}");
    }
}

#[tokio::test]
async fn a_later_request_over_the_same_connection_is_not_sent_again_either() {
    let server = HttpStub::answering(|request| {
        let is_first = String::from_utf8_lossy(request.body()).contains("first");
        if is_first { Fault::ok(r#"{"MessageId":"m"}"#) } else { Fault::Close }
    });
    let client = client(&server.url());
    assert!(client.send(&fifo(), &message("g", "first"), later()).await.is_taken());
    let outcome = client.send(&fifo(), &message("g", "second"), later()).await;
    assert_eq!(outcome, SendOutcome::Unknown(CallError::Unreachable { maybe_sent: true }));
    assert_eq!((server.requests(), server.connections()), (2, 1));
}

#[tokio::test]
async fn a_message_without_an_answer_in_time_may_have_been_taken() {
    let (server, client) = answering(Fault::Hang);
    let deadline = Instant::now() + Duration::from_secs(3600);
    let call = tokio::spawn(async move {
        let (queue, message) = (fifo(), message("g", "a"));
        client.send(&queue, &message, deadline).await
    });
    server.until_received(1).await;
    // The time passes at once.
    tokio::time::pause();
    let expected = SendOutcome::Unknown(CallError::Unreachable { maybe_sent: true });
    assert_eq!(call.await.unwrap(), expected);
}

#[tokio::test]
async fn without_a_connection_nothing_was_taken() {
    let expected = SendOutcome::NotTaken(CallError::Unreachable { maybe_sent: false });
    let sent = async |url: &str, deadline| client(url).send(&fifo(), &message("g", "a"), deadline).await;
    let soon = || Instant::now() + Duration::from_millis(200);

    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    assert_eq!(sent(&format!("http://127.0.0.1:{port}"), later()).await, expected, "nobody listens");
    let server = Broken::never_accepts().await;
    assert_eq!(sent(&server.url(), soon()).await, expected, "nobody accepts");
    let server = Broken::accepts_and_never_answers().await;
    let https = server.url().replace("http:", "https:");
    assert_eq!(sent(&https, soon()).await, expected, "no TLS");
}

#[tokio::test]
async fn after_its_deadline_a_call_sends_nothing() {
    let (server, client) = answering(Fault::ok(r#"{"MessageId":"m"}"#));
    // Over an open connection too.
    for _ in 0..2 {
        let outcome = client.send(&fifo(), &message("g", "a"), Instant::now()).await;
        assert_eq!(outcome, SendOutcome::NotTaken(CallError::Unreachable { maybe_sent: false }));
        client.connect(later()).await.unwrap();
    }
    assert_eq!(server.requests(), 0);
    assert!(client.send(&fifo(), &message("g", "a"), later()).await.is_taken());
}

#[tokio::test]
async fn a_failed_message_of_a_batch_is_not_taken_and_tells_its_code() {
    let failed = |code: &str, senders_fault: bool| {
        let failure = json!({ "Id": "1", "Code": code, "SenderFault": senders_fault, "Message": "…" });
        let success = json!({ "Id": "0", "MessageId": "m" });
        Fault::ok(json!({ "Successful": [success], "Failed": [failure] }))
    };
    let entry_failed = |code: &str| SendOutcome::NotTaken(CallError::EntryFailed(code.to_owned()));
    let throttled = || SendOutcome::NotTaken(CallError::Throttled);
    for (answer, expected) in [
        (failed("InvalidMessageContents", true), refused("InvalidMessageContents")),
        (failed("AccessDenied", true), unauthorized("AccessDenied")),
        (failed("InternalError", false), entry_failed("InternalError")),
        (failed("RequestThrottled", true), throttled()),
        (failed("ThrottlingException", false), throttled()),
        (failed("what somebody wrote", false), entry_failed("")),
    ] {
        let (_server, client) = answering(answer);
        let messages = ["a", "b"].map(|body| message(body, body));
        let outcomes = client.send_batch(&fifo(), &messages, later()).await;
        assert!(outcomes[0].is_taken());
        assert_eq!(outcomes[1], expected);
    }
}

/// Answers the `n`th request with `fault`, and takes all messages of the others.
fn failing_at(n: usize, fault: Fault) -> HttpStub {
    let count = std::sync::atomic::AtomicUsize::new(0);
    HttpStub::answering(move |request| {
        if count.fetch_add(1, std::sync::atomic::Ordering::SeqCst) == n {
            return fault.clone();
        }
        let input: Value = serde_json::from_slice(request.body()).unwrap();
        let taken = |entry: &Value| json!({ "Id": entry["Id"], "MessageId": "m" });
        let successful: Vec<Value> = input["Entries"].as_array().unwrap().iter().map(taken).collect();
        Fault::ok(json!({ "Successful": successful }))
    })
}

#[tokio::test]
async fn no_message_overtakes_one_of_its_group_that_an_earlier_request_may_not_have_sent() {
    // In requests of ten: group a, groups b and a, groups b and c.
    let of = |group: &'static str, count: usize| std::iter::repeat_n(group, count);
    let groups = of("a", 10).chain(of("b", 5)).chain(of("a", 5)).chain(of("b", 5)).chain(of("c", 5));
    let messages: Vec<Message> =
        groups.enumerate().map(|(n, group)| message(group, &format!("body-{n}"))).collect();
    let held_back = SendOutcome::NotTaken(CallError::HeldBack);
    for fault in
        [Fault::Close, Fault::Html, Fault::Status(500, String::new()), Fault::Status(429, String::new())]
    {
        let server = failing_at(0, fault.clone());
        let outcomes = client(&server.url()).send_batch(&fifo(), &messages, later()).await;
        for (n, outcome) in outcomes.iter().enumerate() {
            match n {
                0..10 => assert_ne!(outcome, &held_back),
                15..20 => assert_eq!(outcome, &held_back, "{n} after {fault:?}"),
                _ => assert!(outcome.is_taken(), "{n} after {fault:?}"),
            }
        }
    }
    // One failed message holds its group back.
    let entry = json!({ "Id": "3", "Code": "InternalError", "SenderFault": false });
    let rest = (0..10).filter(|n| *n != 3).map(|n| json!({ "Id": n.to_string(), "MessageId": "m" }));
    let answer = json!({ "Successful": rest.collect::<Vec<_>>(), "Failed": [entry] });
    let server = failing_at(0, Fault::ok(answer));
    let outcomes = client(&server.url()).send_batch(&fifo(), &messages, later()).await;
    assert_eq!(outcomes.iter().filter(|outcome| **outcome == held_back).count(), 5);
    // What SQS would refuse again holds nothing back: no further attempt would send it.
    let server = failing_at(0, Fault::Status(400, failure("InvalidParameterValue")));
    let outcomes = client(&server.url()).send_batch(&fifo(), &messages, later()).await;
    assert_eq!(outcomes.iter().filter(|outcome| outcome.is_taken()).count(), 20);
    assert_eq!(server.requests(), 3);
}

#[tokio::test]
async fn a_request_whose_messages_are_all_held_back_is_not_sent() {
    let messages: Vec<Message> = (0..25).map(|n| message("g", &n.to_string())).collect();
    let server = failing_at(1, Fault::Status(500, String::new()));
    let outcomes = client(&server.url()).send_batch(&fifo(), &messages, later()).await;
    let labels: Vec<_> = outcomes.iter().map(SendOutcome::label).collect();
    let expected = [["taken"; 10].as_slice(), &["server_error"; 10], &["held_back"; 5]].concat();
    assert_eq!((labels, server.requests()), (expected, 2));
}

#[tokio::test]
async fn a_request_is_as_large_as_sqs_takes_it() {
    let server = failing_at(usize::MAX, Fault::Close);
    let sizes = [MAX_MESSAGE_BYTES, 1 << 19, 1 << 19, (1 << 19) + 1, 1 << 19, 1, (1 << 19) - 1, 1];
    let sized = |size: &usize| Message::new("a".repeat(*size)).group_id("g");
    let messages: Vec<Message> = sizes.iter().map(sized).collect();
    let outcomes = client(&server.url()).send_batch(&fifo(), &messages, later()).await;
    assert!(outcomes.iter().all(|outcome| outcome.is_taken()), "{outcomes:?}");
    let entries = |request: http::Request<_>| -> Vec<usize> {
        let body: onetap_http::Bytes = request.into_body();
        let input: Value = serde_json::from_slice(&body).unwrap();
        let entries = input["Entries"].as_array().unwrap();
        entries.iter().map(|entry| entry["MessageBody"].as_str().unwrap().len()).collect()
    };
    let requests: Vec<Vec<usize>> = server.received().into_iter().map(entries).collect();
    assert_eq!(requests, [&sizes[..1], &sizes[1..3], &sizes[3..4], &sizes[4..7], &sizes[7..]]);
}

#[tokio::test]
async fn a_standard_queue_holds_nothing_back() {
    let messages: Vec<Message> = (0..25).map(|n| message("g", &n.to_string())).collect();
    let server = failing_at(1, Fault::Status(500, String::new()));
    let outcomes = client(&server.url()).send_batch(&standard(), &messages, later()).await;
    assert_eq!(outcomes.iter().filter(|outcome| outcome.is_taken()).count(), 15);
}

/// Every call but those that send.
async fn errors(url: &str) -> [CallError; 5] {
    let (client, queue) = (client(url), fifo());
    let second = Duration::from_secs(1);
    let [batch] = client.change_visibility_batch(&queue, &[("h", second)], later()).await.try_into().unwrap();
    [
        client.receive(&queue, Receive::up_to(1), later()).await.unwrap_err(),
        client.delete(&queue, "h", later()).await.unwrap_err(),
        client.change_visibility(&queue, "h", second, later()).await.unwrap_err(),
        batch.unwrap_err(),
        client.attributes(&queue, &["All"], later()).await.unwrap_err(),
    ]
}

#[tokio::test]
async fn every_other_call_tells_the_same_failures_apart() {
    for (answer, expected) in answers() {
        // Any JSON object is an answer to them.
        if matches!(&answer, Fault::Status(200, _)) {
            continue;
        }
        let server = HttpStub::always(answer.clone());
        let expected = expected.error().expect("not taken");
        for error in errors(&server.url()).await {
            assert_eq!(&error, expected, "{answer:?}");
        }
        assert_eq!(server.requests(), 5, "{answer:?}");
    }
}

#[tokio::test]
async fn an_empty_answer_is_only_one_of_sqs_if_it_has_a_request_id() {
    for is_sqs in [true, false] {
        let server = HttpStub::serving(move |_| async move {
            let response =
                Response::builder().header(if is_sqs { "x-amzn-RequestId" } else { "x-other" }, "1");
            response.body(String::new()).unwrap()
        });
        let deleted = client(&server.url()).delete(&fifo(), "h", later()).await;
        assert_eq!(deleted, if is_sqs { Ok(()) } else { Err(CallError::NotUnderstood) });
    }
}

#[test]
fn what_another_attempt_may_mend_is_transient() {
    let code = || "Code".to_owned();
    for (error, is_transient) in [
        (CallError::HeldBack, true),
        (CallError::Throttled, true),
        (CallError::EntryFailed(code()), true),
        (CallError::ServerError, true),
        (CallError::Unreachable { maybe_sent: true }, true),
        (CallError::Unreachable { maybe_sent: false }, true),
        (CallError::Refused(code()), false),
        (CallError::Unauthorized(code()), false),
        (CallError::QueueNotFound, false),
        (CallError::NotUnderstood, false),
    ] {
        assert_eq!(error.is_transient(), is_transient, "{error:?}");
    }
}
