//! Pushes: accepted once for each retry key.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use onetap_line::testing::Fault;
use onetap_line::{Message, Messages, PushOutcome, RetryKey};
use proptest::prelude::*;
use serde_json::json;

use crate::support::{client, hello, soon, start};

const KEY: &str = "123e4567-e89b-12d3-a456-426614174000";

fn key() -> RetryKey {
    RetryKey::from_uuid(KEY).unwrap()
}

fn named(name: impl ToString) -> RetryKey {
    RetryKey::named(name.to_string())
}

#[tokio::test]
async fn a_push_is_sent_as_line_wants_it() {
    let (api, client) = start();
    let sticker = Message::sticker("446", "1988").unwrap();
    let push = client.push("U1", &hello().and(sticker), &key(), soon()).await;
    assert_eq!((push.outcome, push.accepted_request_id), (PushOutcome::Sent, None));
    assert_eq!(push.request_id.as_deref(), Some("00000000-0000-4000-8000-000000000001"));
    let pushes = api.pushes();
    assert_eq!(pushes.len(), 1);
    let accepted = &pushes[0];
    assert_eq!((accepted.to.as_str(), accepted.retry_key.as_deref()), ("U1", Some(KEY)));
    assert_eq!(
        accepted.messages,
        [
            json!({ "type": "text", "text": "您好" }),
            json!({ "type": "sticker", "packageId": "446", "stickerId": "1988" }),
        ]
    );
    assert_eq!(accepted.text(), "您好");
    let request = &api.received()[0];
    assert_eq!(request.headers["x-line-retry-key"], KEY);
    assert_eq!(request.headers["content-type"], "application/json");
}

#[tokio::test]
async fn a_retry_key_is_accepted_once_and_again_after_a_day() {
    let (api, client) = start();
    assert_eq!(client.push("U1", &hello(), &key(), soon()).await.outcome, PushOutcome::Sent);
    for again in [KEY, &KEY.to_uppercase()] {
        let again = client.push("U1", &hello(), &RetryKey::from_uuid(again).unwrap(), soon()).await;
        assert_eq!(again.outcome, PushOutcome::AlreadyAccepted);
        assert!(again.outcome.is_sent() && again.outcome.maybe_sent());
        assert_eq!(again.accepted_request_id.as_deref(), Some("00000000-0000-4000-8000-000000000001"));
    }
    assert_eq!(client.push("U1", &hello(), &named("another"), soon()).await.outcome, PushOutcome::Sent);
    let sent: Vec<_> =
        api.received().iter().map(|request| request.headers["x-line-retry-key"].clone()).collect();
    assert_eq!(sent[..3], [KEY; 3], "always in lower case");
    api.forget_retry_keys();
    assert_eq!(client.push("U1", &hello(), &key(), soon()).await.outcome, PushOutcome::Sent);
    assert_eq!(api.take_pushes().len(), 3);
    assert!(api.pushes().is_empty());
}

#[tokio::test]
async fn a_push_whose_answer_was_lost_is_sent_again_and_arrives_once() {
    let (api, client) = start();
    for fault in [Fault::DropAnswer, Fault::AcceptThen(500, String::new())] {
        let key = named(format!("{fault:?}"));
        api.fail_next(fault.clone());
        let outcome = client.push("U1", &hello(), &key, soon()).await.outcome;
        assert!(outcome.maybe_sent() && outcome.is_transient() && !outcome.is_sent(), "{outcome:?}");
        let outcome = client.push("U1", &hello(), &key, soon()).await.outcome;
        assert_eq!(outcome, PushOutcome::AlreadyAccepted, "{fault:?}");
        assert_eq!(api.take_pushes().len(), 1, "{fault:?}");
    }
    api.fail_next(Fault::Close);
    let lost = client.push("U1", &hello(), &key(), soon()).await.outcome;
    assert_eq!(lost, PushOutcome::Unreachable { maybe_sent: true });
    assert_eq!(client.push("U1", &hello(), &key(), soon()).await.outcome, PushOutcome::Sent);
}

#[tokio::test]
async fn twenty_pushes_at_once_with_one_key_are_one() {
    let (api, client) = start();
    let client = Arc::new(client);
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let client = client.clone();
        tasks.spawn(async move { client.push("U1", &hello(), &key(), soon()).await.outcome });
    }
    let outcomes = tasks.join_all().await;
    assert!(outcomes.iter().all(|outcome| outcome.is_sent()), "{outcomes:?}");
    assert_eq!(outcomes.iter().filter(|outcome| **outcome == PushOutcome::Sent).count(), 1);
    assert_eq!(api.pushes().len(), 1);
}

#[tokio::test]
async fn every_refusal_of_a_push_is_told_apart() {
    let (api, client) = start();
    let message = |text: &str| json!({ "message": text }).to_string();
    for (status, body, outcome, is_transient) in [
        (200, "{}".to_owned(), PushOutcome::Sent, false),
        (409, message("The retry key is already accepted"), PushOutcome::AlreadyAccepted, false),
        (409, String::new(), PushOutcome::AlreadyAccepted, false),
        (400, message("Failed to send messages"), PushOutcome::BadRequest, false),
        (302, String::new(), PushOutcome::BadRequest, false),
        (401, message("You have reached your monthly limit."), PushOutcome::Unauthorized, false),
        (403, String::new(), PushOutcome::Forbidden, false),
        (429, message("You have reached your monthly limit."), PushOutcome::QuotaUsedUp, false),
        (
            429,
            message("The API rate limit has been exceeded. Try again later."),
            PushOutcome::RateLimited,
            true,
        ),
        (429, "<html>".to_owned(), PushOutcome::RateLimited, true),
        (500, String::new(), PushOutcome::ServerError, true),
        (503, "<html>".to_owned(), PushOutcome::ServerError, true),
    ] {
        api.fail_next(Fault::Status(status, body.clone()));
        let push = client.push("U1", &hello(), &key(), soon()).await;
        assert_eq!((push.outcome, push.outcome.is_transient()), (outcome, is_transient), "{status} {body}");
        assert!(push.request_id.is_some());
    }
    assert!(api.pushes().is_empty(), "what failed used no retry key");
}

#[tokio::test]
async fn where_nobody_listens_nothing_was_pushed() {
    let (api, client) = start();
    drop(api);
    let unreachable = client.push("U1", &hello(), &key(), soon()).await.outcome;
    assert_eq!(unreachable, PushOutcome::Unreachable { maybe_sent: false });
    assert!(!unreachable.maybe_sent() && unreachable.is_transient());
}

#[test]
fn a_key_is_a_uuid() {
    let long = format!("{KEY}0");
    for wrong in
        ["", "key", &KEY[1..], &long, &KEY.replace('-', "0"), "123e4567-e89b-12d3-a456-42661417400g", "é"]
    {
        assert_eq!(RetryKey::from_uuid(wrong), None, "{wrong}");
    }
    assert_eq!(key().uuid_for("U1"), KEY);
    assert_eq!(RetryKey::from_uuid(&KEY.to_uppercase()), Some(key()));
}

#[tokio::test]
async fn a_name_in_a_loop_over_users_reaches_each_of_them_once() {
    let (api, client) = start();
    let newsletter = named("newsletter:7");
    for outcome in [PushOutcome::Sent, PushOutcome::AlreadyAccepted] {
        for user in ["U1", "U2", "C1"] {
            let push = client.push(user, &hello(), &newsletter, soon()).await;
            assert_eq!(push.outcome, outcome, "{user}");
        }
    }
    let to: Vec<String> = api.pushes().into_iter().map(|push| push.to).collect();
    assert_eq!(to, ["U1", "U2", "C1"]);
}

#[tokio::test]
async fn a_key_that_line_may_have_forgotten_sends_nothing() {
    let (api, client) = start();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let now_ms = i64::try_from(now.as_millis()).unwrap();
    let hours_ago = |hours: i64| now_ms - hours * 3_600_000;
    for old in [hours_ago(23) - 1, hours_ago(24), hours_ago(100), 0, i64::MIN] {
        let push = client.push("U1", &hello(), &key().since_ms(old), soon()).await;
        assert_eq!(push.outcome, PushOutcome::KeyExpired, "{old}");
        assert!(!push.outcome.is_sent() && !push.outcome.maybe_sent() && !push.outcome.is_transient());
    }
    assert_eq!(api.requests(), 0);
    assert_eq!(
        client.push("U1", &hello(), &key().since_ms(hours_ago(22)), soon()).await.outcome,
        PushOutcome::Sent
    );
    // As LINE does it after a day: without its time, the same key would send the messages again.
    api.forget_retry_keys();
    for ahead in [now_ms, hours_ago(-24), i64::MAX] {
        let push = client.push("U1", &hello(), &key().since_ms(ahead), soon()).await;
        assert!(push.outcome.is_sent(), "a clock that is ahead expires nothing");
    }
}

#[tokio::test]
async fn after_an_unknown_attempt_a_refusal_does_not_show_that_nothing_arrived() {
    for quota_comes_first in [false, true] {
        let (api, client) = start();
        api.check_quota_first(quota_comes_first);
        api.set_quota(Some(1));
        api.fail_next(Fault::DropAnswer);
        let unknown = client.push("U1", &hello(), &key(), soon()).await.outcome;
        assert_eq!(unknown, PushOutcome::Unreachable { maybe_sent: true });
        let again = client.push("U1", &hello(), &key(), soon()).await.outcome;
        if quota_comes_first {
            assert_eq!((again, again.maybe_sent()), (PushOutcome::QuotaUsedUp, false));
            api.set_quota(Some(2));
            let settled = client.push("U1", &hello(), &key(), soon()).await.outcome;
            assert_eq!(settled, PushOutcome::AlreadyAccepted);
        } else {
            assert_eq!(again, PushOutcome::AlreadyAccepted);
        }
        assert_eq!(api.pushes().len(), 1, "whatever the refusal said");
    }
}

#[tokio::test]
async fn a_push_to_a_group_costs_a_message_for_each_member() {
    let (api, client) = start();
    api.set_recipients("C1", 3);
    api.set_quota(Some(4));
    let mut outcomes = Vec::new();
    for (n, to) in ["C1", "C1", "U1", "U1"].into_iter().enumerate() {
        outcomes.push(client.push(to, &hello(), &named(n), soon()).await.outcome);
    }
    let (sent, used_up) = (PushOutcome::Sent, PushOutcome::QuotaUsedUp);
    assert_eq!(
        outcomes,
        [sent, used_up, sent, used_up],
        "one message is left, and is not enough for the group"
    );
    assert_eq!(client.quota(soon()).await.unwrap().used, 4);
}

#[tokio::test]
async fn a_used_up_quota_refuses_pushes_and_no_replies() {
    let (api, client) = start();
    api.set_quota(Some(2));
    let mut outcomes = Vec::new();
    for n in 0..3 {
        outcomes.push(client.push("U1", &hello(), &named(n), soon()).await.outcome);
    }
    assert_eq!(outcomes, [PushOutcome::Sent, PushOutcome::Sent, PushOutcome::QuotaUsedUp]);
    let again = client.push("U1", &hello(), &named("1"), soon()).await.outcome;
    assert_eq!(again, PushOutcome::AlreadyAccepted, "a repeat costs nothing");
    assert!(client.reply("token", &hello(), soon()).await.outcome.maybe_sent());
    let quota = client.quota(soon()).await.unwrap();
    assert_eq!((quota.limit, quota.used, quota.remaining()), (Some(2), 2, Some(0)));
    api.set_quota(Some(3));
    let later = client.push("U1", &hello(), &named("2"), soon()).await.outcome;
    assert_eq!(later, PushOutcome::Sent, "the refused push had not used up its key");
}

#[tokio::test]
async fn the_messaging_api_refuses_pushes_that_line_refuses() {
    let (api, _) = start();
    let http = onetap_http::Client::new();
    let post = async |path: &str, key: &str, body: serde_json::Value| {
        let request = http::Request::post(format!("{}{path}", api.url()))
            .header("authorization", "Bearer planted-access-token")
            .header("content-type", "application/json")
            .header("x-line-retry-key", key)
            .body(bytes::Bytes::from(body.to_string()));
        http.send(request.unwrap(), soon(), 1 << 20).await.unwrap().status().as_u16()
    };
    let good = json!({ "to": "U1", "messages": hello(), "notificationDisabled": false });
    assert_eq!(post("/v2/bot/message/push", "no uuid", good.clone()).await, 400);
    let reply = json!({ "replyToken": "t", "messages": hello() });
    assert_eq!(post("/v2/bot/message/reply", KEY, reply).await, 400, "replies take no retry key");
    let loading = json!({ "chatId": "U1", "loadingSeconds": 5 });
    assert_eq!(post("/v2/bot/chat/loading/start", KEY, loading).await, 400, "nor do loading animations");
    for body in [
        json!({ "messages": hello() }),
        json!({ "to": "", "messages": hello() }),
        json!({ "to": ["U1"], "messages": hello() }),
        json!({ "to": "U1", "messages": [] }),
        json!({ "to": "U1", "messages": vec![json!({ "type": "text", "text": "a" }); 6] }),
        json!({ "to": "U1", "messages": hello(), "replyToken": "t" }),
    ] {
        assert_eq!(post("/v2/bot/message/push", KEY, body.clone()).await, 400, "{body}");
    }
    assert_eq!(post("/v2/bot/message/push", KEY, good).await, 200, "the refused ones used no retry key");
}

#[tokio::test]
async fn an_observer_sees_every_push_before_its_sender_has_the_answer() {
    let (api, client) = start();
    let (seen, texts) = std::sync::mpsc::channel();
    api.observe_pushes(move |push| seen.send(push.text().to_owned()).unwrap());
    assert!(client.push("U1", &hello(), &key(), soon()).await.outcome.is_sent());
    assert!(client.push("U1", &hello(), &key(), soon()).await.outcome.is_sent());
    assert_eq!(texts.try_iter().collect::<Vec<_>>(), ["您好"], "once: the repeat was not accepted");
}

#[tokio::test]
async fn a_wrong_access_token_pushes_nothing() {
    let (api, _) = start();
    let wrong = client(&api.url(), "stale");
    assert_eq!(wrong.push("U1", &hello(), &key(), soon()).await.outcome, PushOutcome::Unauthorized);
    assert!(api.pushes().is_empty());
}

/// Fixed: a process of an earlier version must have the same keys.
#[test]
fn a_name_has_the_same_key_in_every_version() {
    for (to, name, uuid) in [
        ("U1", "reminder:42:2026-01-31", "2b2f37e6-7b4b-8917-ba20-6ef11a1e1f05"),
        ("U2", "reminder:42:2026-01-31", "efeb2c61-234e-8adf-8215-b5266634a090"),
        ("C1", "週報", "cca8525e-00e1-8410-a1bd-531069d11321"),
        ("U1", "2", "3664cc9b-ec68-85a9-8c4b-a4237bdb5552"),
        ("U", "12", "c8cf5132-1c5e-859f-b300-dc44278419b4"),
        ("", "", "af5570f5-a181-8b7a-b78c-af4bc70a660f"),
    ] {
        assert_eq!(named(name).uuid_for(to), uuid, "{name} to {to}");
        assert_eq!(named(name).since_ms(1).uuid_for(to), uuid, "a time changes no key");
    }
    assert_eq!(format!("{:?}", named("planted").since_ms(5)), "RetryKey { since_ms: Some(5), .. }");
}

#[test]
fn the_oldest_retry_key_is_forgotten_first() {
    let (api, _) = start();
    let push = |n: usize| {
        let body = json!({ "to": "U1", "messages": hello() }).to_string();
        let request = http::Request::post("/v2/bot/message/push")
            .header("authorization", "Bearer planted-access-token")
            .header("content-type", "application/json")
            .header("x-line-retry-key", named(n).uuid_for("U1"));
        api.respond(&request.body(Bytes::from(body)).unwrap()).status().as_u16()
    };
    // One more than it keeps.
    assert!((0..=10_000).all(|n| push(n) == 200));
    assert_eq!([push(1), push(10_000), push(0)], [409, 409, 200]);
    assert_eq!([push(1), push(3)], [200, 409]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_key_from_any_name_is_one_that_line_takes(name: String, other: String, to: String) {
        let (_api, client) = start();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let messages = Messages::from(Message::text("a"));
        let push = runtime.block_on(client.push("U1", &messages, &named(&name), soon()));
        prop_assert_eq!(push.outcome, PushOutcome::Sent);
        let uuid = |name: &str, to: &str| named(name).uuid_for(to);
        prop_assert_eq!(name == other, uuid(&name, &to) == uuid(&other, &to));
        prop_assert_eq!(to == other, uuid(&name, &to) == uuid(&name, &other));
    }
}
