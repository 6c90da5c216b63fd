//! What SQS takes as a message.

use onetap_aws::sqs::{InvalidMessage, MAX_MESSAGE_BYTES, Message, json_body};
use onetap_servers::Fault;
use proptest::prelude::*;
use serde_json::Value;

use crate::support::{answering, fifo, later, message, standard};

/// The characters that SQS's documentation allows.
fn is_documented(character: char) -> bool {
    matches!(u32::from(character), 0x9 | 0xA | 0xD | 0x20..=0xD7FF | 0xE000..=0xFFFD | 0x10000..=0x10FFFF)
}

fn text() -> impl Strategy<Value = String> {
    let edges =
        "[\\x00-\\x22\\x7e-\\xa0\u{d7ff}\u{e000}\u{fff0}-\u{ffff}\u{10000}\u{10fffe}\u{10ffff}]{0,20}";
    prop_oneof![any::<String>(), edges]
}

proptest! {
    #[test]
    fn any_value_is_a_body_that_sqs_takes_as_json(key in text(), text in text(), number: i64) {
        let value = serde_json::json!({ key: [text], "n": number });
        let body = json_body(&value).unwrap();
        prop_assert!(body.chars().all(is_documented), "{:?}", body);
        prop_assert_eq!(Message::new(&*body).check(&standard()), Ok(()));
        prop_assert_eq!(serde_json::from_str::<Value>(&body).unwrap(), value);
    }
}

#[test]
fn each_character_is_taken_if_sqs_allows_it() {
    for character in '\0'..=char::MAX {
        let expected = if is_documented(character) { Ok(()) } else { Err(InvalidMessage::Character) };
        assert_eq!(Message::new(format!("a{character}")).check(&standard()), expected, "{character:?}");
    }
}

#[test]
fn only_what_sqs_refuses_is_escaped() {
    let text = "午餐 120\u{7f}\u{85}\u{fffd}🍱\u{fffe}\u{ffff}\u{1fffe}\t";
    let expected = "\"午餐 120\u{7f}\u{85}\u{fffd}🍱\\ufffe\\uffff\u{1fffe}\\t\"";
    assert_eq!(json_body(text).unwrap(), expected);
    assert!(json_body(&[(1u8, 2u8)].into_iter().collect::<std::collections::HashMap<_, _>>()).is_ok());
    // A key that is no text.
    assert!(
        json_body(&[((1u8, 2u8), 3u8)].into_iter().collect::<std::collections::HashMap<_, _>>()).is_err()
    );
}

#[test]
fn a_message_is_within_the_limits_of_sqs() {
    let message = |group: &str, id: &str| Message::new("a").group_id(group).deduplication_id(id);
    let (longest, too_long) = ("a".repeat(128), "a".repeat(129));
    let punctuation = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~";
    for (message, expected) in [
        (message("U4af4980629", "01H810YECXQQZ37VAXPF6H9E6T"), Ok(())),
        (message(punctuation, punctuation), Ok(())),
        (message(&longest, &longest), Ok(())),
        (Message::new("a").group_id("g"), Ok(())),
        (message(&too_long, "d"), Err(InvalidMessage::GroupId)),
        (message("", "d"), Err(InvalidMessage::GroupId)),
        (message("a b", "d"), Err(InvalidMessage::GroupId)),
        (message("組", "d"), Err(InvalidMessage::GroupId)),
        (Message::new("a"), Err(InvalidMessage::GroupId)),
        (message("g", &too_long), Err(InvalidMessage::DeduplicationId)),
        (message("g", ""), Err(InvalidMessage::DeduplicationId)),
        (message("g", "a\u{7f}"), Err(InvalidMessage::DeduplicationId)),
        (Message::new("").group_id("g"), Err(InvalidMessage::Empty)),
        (Message::new("a".repeat(MAX_MESSAGE_BYTES)).group_id("g"), Ok(())),
        // Bytes count, not characters.
        (Message::new("午".repeat(MAX_MESSAGE_BYTES / 3 + 1)).group_id("g"), Err(InvalidMessage::TooLarge)),
    ] {
        assert_eq!(message.check(&fifo()), expected, "{message:?}");
    }
    assert_eq!(Message::new("a").check(&standard()), Ok(()));
}

#[tokio::test]
async fn an_invalid_message_is_not_sent_and_stops_no_other() {
    let taken = r#"{"Successful":[{"Id":"1","MessageId":"m1"},{"Id":"3","MessageId":"m3"}]}"#;
    let (server, client) = answering(Fault::ok(taken));
    assert_eq!(client.send(&fifo(), &Message::new("no group"), later()).await.label(), "invalid");
    assert_eq!(server.requests(), 0);
    let messages = [message("g", "\u{0}"), message("g", "1"), Message::new("no group"), message("g", "3")];
    let outcomes = client.send_batch(&fifo(), &messages, later()).await;
    assert_eq!(
        outcomes.iter().map(|it| it.label()).collect::<Vec<_>>(),
        ["invalid", "taken", "invalid", "taken"]
    );
    assert_eq!(server.requests(), 1);
    let nothing = client.send_batch(&fifo(), &[Message::new("no group")], later()).await;
    assert_eq!(nothing[0].label(), "invalid");
    assert!(client.send_batch(&fifo(), &[], later()).await.is_empty());
    assert_eq!(server.requests(), 1);
}
