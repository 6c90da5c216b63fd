//! What a queue does with the calls, on moto and on ministack.

use std::time::Duration;

use onetap_aws::sqs::{CallError, Message, QueueUrl, Receive, ReceivedMessage, SendOutcome, json_body};
use onetap_servers::Proxy;
use serde_json::json;

use crate::emulator::{Emulator, VISIBILITY, drain};
use crate::support::{client, later, message};

/// A test for each promise, on both.
macro_rules! promises {
    ($($promise:ident)*) => {
        mod on_moto {
            $(
                #[tokio::test]
                #[ignore = "needs moto"]
                async fn $promise() {
                    super::$promise(crate::emulator::Emulator::moto().await).await;
                }
            )*
        }
        mod on_ministack {
            $(
                #[tokio::test]
                #[ignore = "needs ministack"]
                async fn $promise() {
                    super::$promise(crate::emulator::Emulator::ministack().await).await;
                }
            )*
        }
    };
}

promises! {
    a_group_is_received_in_the_order_in_which_it_was_sent
    a_message_hides_the_later_ones_of_its_group
    of_the_messages_with_one_deduplication_id_one_is_delivered
    twenty_five_messages_are_three_requests_and_arrive_in_order
    messages_that_are_too_large_for_one_request_are_several
    a_queue_that_does_not_exist_is_told_apart
    a_message_is_visible_again_when_its_visibility_ends
    a_visibility_can_be_changed_until_the_message_is_deleted
    each_visibility_of_a_batch_has_its_result
    an_unknown_receipt_handle_is_refused
    any_text_arrives_as_json
    a_standard_queue_takes_messages_without_a_group
}

fn bodies(received: &[ReceivedMessage]) -> Vec<&str> {
    received.iter().map(|message| message.body.as_str()).collect()
}

async fn a_group_is_received_in_the_order_in_which_it_was_sent(cloud: Emulator) {
    let (client, queue) = (cloud.client(), cloud.create_fifo().await);
    let messages: Vec<Message> = (0..12).map(|n| message(["a", "b", "c"][n % 3], &n.to_string())).collect();
    // Half of them alone, half of them together.
    for message in &messages[..6] {
        assert!(client.send(&queue, message, later()).await.is_taken());
    }
    let outcomes = client.send_batch(&queue, &messages[6..], later()).await;
    assert!(outcomes.iter().all(|outcome| outcome.is_taken()), "{outcomes:?}");
    let drained = drain(&client, &queue).await;
    for (group, expected) in
        [("a", ["0", "3", "6", "9"]), ("b", ["1", "4", "7", "10"]), ("c", ["2", "5", "8", "11"])]
    {
        let of_group: Vec<&str> =
            drained.iter().filter(|(of, _)| of == group).map(|(_, body)| &**body).collect();
        assert_eq!(of_group, expected, "{drained:?}");
    }
}

async fn a_message_hides_the_later_ones_of_its_group(cloud: Emulator) {
    let (client, queue) = (cloud.client(), cloud.create_fifo().await);
    let messages = [message("a", "1"), message("a", "2"), message("b", "3")];
    let outcomes = client.send_batch(&queue, &messages, later()).await;
    assert!(outcomes.iter().all(|outcome| outcome.is_taken()), "{outcomes:?}");
    let first = client.receive(&queue, Receive::up_to(1), later()).await.unwrap();
    assert_eq!((bodies(&first), first[0].group_id()), (vec!["1"], Some("a")));
    let other = client.receive(&queue, Receive::up_to(10), later()).await.unwrap();
    assert_eq!(bodies(&other), ["3"]);
    client.delete(&queue, &first[0].receipt_handle, later()).await.unwrap();
    let second = client.receive(&queue, Receive::up_to(10), later()).await.unwrap();
    assert_eq!(bodies(&second), ["2"]);
    assert!(second[0].sequence_number().is_some());
    assert_eq!((second[0].deduplication_id(), second[0].receive_count()), (Some("2"), Some(1)));
}

async fn of_the_messages_with_one_deduplication_id_one_is_delivered(cloud: Emulator) {
    let (client, queue) = (cloud.client(), cloud.create_fifo().await);
    let message = |body: &str, id: &str| Message::new(body).group_id("g").deduplication_id(id);
    assert!(client.send(&queue, &message("first", "d"), later()).await.is_taken());
    // Taken, and dropped.
    assert!(client.send(&queue, &message("again", "d"), later()).await.is_taken());
    let batch = [message("again", "d"), message("other", "e"), message("again", "e")];
    let outcomes = client.send_batch(&queue, &batch, later()).await;
    assert!(outcomes.iter().all(|outcome| outcome.is_taken()), "{outcomes:?}");
    let drained = drain(&client, &queue).await;
    assert_eq!(drained.iter().map(|(_, body)| &**body).collect::<Vec<_>>(), ["first", "other"]);
}

/// moto forgets a message that is deleted.
#[tokio::test]
#[ignore = "needs ministack"]
async fn the_deduplication_id_of_a_deleted_message_is_still_known_on_ministack() {
    let cloud = Emulator::ministack().await;
    let (client, queue) = (cloud.client(), cloud.create_fifo().await);
    assert!(client.send(&queue, &message("g", "a"), later()).await.is_taken());
    assert_eq!(drain(&client, &queue).await.len(), 1);
    assert!(client.send(&queue, &message("g", "a"), later()).await.is_taken());
    assert!(drain(&client, &queue).await.is_empty());
}

async fn twenty_five_messages_are_three_requests_and_arrive_in_order(cloud: Emulator) {
    let queue = cloud.create_fifo().await;
    let proxy = Proxy::start(&cloud.url).await;
    let client = client(&proxy.url());
    let messages: Vec<Message> = (0..25).map(|n| message("g", &n.to_string())).collect();
    let outcomes = client.send_batch(&queue, &messages, later()).await;
    assert_eq!(outcomes.iter().filter(|outcome| outcome.is_taken()).count(), 25, "{outcomes:?}");
    let sizes: Vec<_> =
        proxy.calls().iter().map(|(_, input)| input["Entries"].as_array().unwrap().len()).collect();
    assert_eq!((proxy.operations(), sizes), (vec!["SendMessageBatch".to_owned(); 3], vec![10, 10, 5]));
    let drained: Vec<String> = drain(&client, &queue).await.into_iter().map(|(_, body)| body).collect();
    assert_eq!(drained, (0..25).map(|n| n.to_string()).collect::<Vec<_>>());
}

async fn messages_that_are_too_large_for_one_request_are_several(cloud: Emulator) {
    let queue = cloud.create_fifo().await;
    let proxy = Proxy::start(&cloud.url).await;
    let client = client(&proxy.url());
    let sizes = [1 << 20, 500 << 10, 524 << 10, 1, 1 << 20];
    let sized = |(n, size): (usize, &usize)| {
        Message::new("a".repeat(*size)).group_id("g").deduplication_id(n.to_string())
    };
    let messages: Vec<Message> = sizes.iter().enumerate().map(sized).collect();
    let outcomes = client.send_batch(&queue, &messages, later()).await;
    assert!(outcomes.iter().all(|outcome| outcome.is_taken()), "{outcomes:?}");
    let requests: Vec<_> =
        proxy.calls().iter().map(|(_, input)| input["Entries"].as_array().unwrap().len()).collect();
    assert_eq!(requests, [1, 2, 1, 1]);
    let drained: Vec<usize> = drain(&client, &queue).await.iter().map(|(_, body)| body.len()).collect();
    assert_eq!(drained, sizes);
}

async fn a_queue_that_does_not_exist_is_told_apart(cloud: Emulator) {
    let queue = cloud.create_fifo().await;
    let gone = queue.as_str().replace("answers", "questions");
    let gone = QueueUrl::new(gone).unwrap();
    let client = cloud.client();
    let expected = CallError::QueueNotFound;
    let mut outcomes = client.send_batch(&gone, &[message("g", "a")], later()).await;
    outcomes.push(client.send(&gone, &message("g", "a"), later()).await);
    for outcome in outcomes {
        assert_eq!(outcome, SendOutcome::NotTaken(expected.clone()));
    }
    assert_eq!(client.receive(&gone, Receive::up_to(1), later()).await, Err(expected.clone()));
    assert_eq!(client.delete(&gone, "h", later()).await, Err(expected.clone()));
    assert_eq!(client.attributes(&gone, &["All"], later()).await, Err(expected));
}

async fn a_message_is_visible_again_when_its_visibility_ends(cloud: Emulator) {
    let (client, queue) = (cloud.client(), cloud.create_fifo().await);
    assert!(client.send(&queue, &message("g", "a"), later()).await.is_taken());
    let receive = Receive::up_to(1).visibility(Duration::from_secs(1));
    let first = client.receive(&queue, receive, later()).await.unwrap();
    let again =
        client.receive(&queue, Receive::up_to(1).wait(Duration::from_secs(20)), later()).await.unwrap();
    assert_eq!((bodies(&first), bodies(&again)), (vec!["a"], vec!["a"]));
    assert_eq!([&first[0], &again[0]].map(ReceivedMessage::receive_count), [Some(1), Some(2)]);
    assert_eq!(first[0].message_id, again[0].message_id);
    assert_ne!(first[0].receipt_handle, again[0].receipt_handle);
}

async fn a_visibility_can_be_changed_until_the_message_is_deleted(cloud: Emulator) {
    let (client, queue) = (cloud.client(), cloud.create_fifo().await);
    assert!(client.send(&queue, &message("g", "a"), later()).await.is_taken());
    let received = client.receive(&queue, Receive::up_to(1), later()).await.unwrap();
    assert!(client.receive(&queue, Receive::up_to(1), later()).await.unwrap().is_empty(), "it is hidden");
    client.change_visibility(&queue, &received[0].receipt_handle, Duration::ZERO, later()).await.unwrap();
    let received = client.receive(&queue, Receive::up_to(1), later()).await.unwrap();
    assert_eq!((bodies(&received), received[0].receive_count()), (vec!["a"], Some(2)));
    let hour = Duration::from_secs(3600);
    client.change_visibility(&queue, &received[0].receipt_handle, hour, later()).await.unwrap();
    let counts = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"];
    let count = async || {
        let attributes = client.attributes(&queue, &counts, later()).await.unwrap();
        counts.map(|name| attributes[name].clone())
    };
    assert_eq!(count().await, ["0", "1"]);
    client.delete(&queue, &received[0].receipt_handle, later()).await.unwrap();
    assert_eq!(count().await, ["0", "0"]);
}

async fn each_visibility_of_a_batch_has_its_result(cloud: Emulator) {
    let (client, queue) = (cloud.client(), cloud.create_standard().await);
    let messages = ["1", "2"].map(Message::new);
    assert!(client.send_batch(&queue, &messages, later()).await.iter().all(|outcome| outcome.is_taken()));
    let mut received = Vec::new();
    while received.len() < 2 {
        received.extend(client.receive(&queue, Receive::up_to(10), later()).await.unwrap());
    }
    let changes = [&*received[0].receipt_handle, "none", &*received[1].receipt_handle];
    let results = client
        .change_visibility_batch(&queue, &changes.map(|handle| (handle, Duration::ZERO)), later())
        .await;
    let refused = CallError::Refused("ReceiptHandleIsInvalid".to_owned());
    assert_eq!(results, [Ok(()), Err(refused), Ok(())]);
    assert_eq!(drain(&client, &queue).await.len(), 2, "both are visible");
}

async fn an_unknown_receipt_handle_is_refused(cloud: Emulator) {
    let (client, queue) = (cloud.client(), cloud.create_fifo().await);
    let refused = CallError::Refused("ReceiptHandleIsInvalid".to_owned());
    assert_eq!(client.delete(&queue, "none", later()).await, Err(refused.clone()));
    let changed = client.change_visibility(&queue, "none", Duration::ZERO, later()).await;
    assert_eq!(changed, Err(refused));
}

async fn any_text_arrives_as_json(cloud: Emulator) {
    let (client, queue) = (cloud.client(), cloud.create_fifo().await);
    let text: String =
        ('\0'..='\u{ff}').chain("午餐🍱\u{2028}\u{fffd}\u{fffe}\u{ffff}\u{10ffff}".chars()).collect();
    let body = json_body(&json!({ "text": text })).unwrap();
    let sent = Message::new(&*body).group_id("g").deduplication_id("d");
    assert!(client.send(&queue, &sent, later()).await.is_taken());
    let received = client.receive(&queue, Receive::up_to(1), later()).await.unwrap();
    assert_eq!(bodies(&received), [body]);
    let parsed: serde_json::Value = serde_json::from_str(&received[0].body).unwrap();
    assert_eq!(parsed["text"], text);
}

async fn a_standard_queue_takes_messages_without_a_group(cloud: Emulator) {
    let (client, queue) = (cloud.client(), cloud.create_standard().await);
    let messages: Vec<Message> = (0..12).map(|n| Message::new(n.to_string())).collect();
    let outcomes = client.send_batch(&queue, &messages, later()).await;
    assert!(outcomes.iter().all(|outcome| outcome.is_taken()), "{outcomes:?}");
    let attributes = client.attributes(&queue, &["All"], later()).await.unwrap();
    assert_eq!((&*attributes["VisibilityTimeout"], attributes.get("FifoQueue")), (VISIBILITY, None));
    let mut drained: Vec<u32> =
        drain(&client, &queue).await.into_iter().map(|(_, body)| body.parse().unwrap()).collect();
    drained.sort_unstable();
    assert_eq!(drained, (0..12).collect::<Vec<_>>());
}
