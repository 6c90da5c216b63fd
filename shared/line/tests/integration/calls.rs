//! Loading, content, quota, profile and bot: against a Messaging API that knows LINE's rules.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::time::Duration;

use onetap_line::testing::Fault;
use onetap_line::{CallError, Client, Config, Message, Quota, RetryKey};
use serde_json::json;

use crate::support::{TOKEN, client, config, soon, start};

#[tokio::test]
async fn a_loading_animation_is_shown_for_a_time_that_line_knows() {
    let (api, client) = start();
    for seconds in [0, 5, 6, 20, 60, 600] {
        client.start_loading("U1", seconds, soon()).await.unwrap();
    }
    let shown: Vec<u64> = api.loadings().iter().map(|loading| loading.seconds).collect();
    assert_eq!(shown, [5, 5, 10, 20, 60, 60]);
    assert_eq!(api.loadings()[0].user_id, "U1");
    assert_eq!(client.start_loading("C1", 5, soon()).await, Err(CallError::BadRequest), "not for groups");
}

#[tokio::test]
async fn what_a_user_sent_is_downloaded_with_its_type() {
    let (api, client) = start();
    let image: Vec<u8> = (0..=255).cycle().take(300_000).collect();
    api.put_content("325708", "image/jpeg", image.clone());
    let content = client.content("325708", 300_000, soon()).await.unwrap();
    assert_eq!((&content.bytes[..], content.content_type.as_deref()), (&image[..], Some("image/jpeg")));
    assert_eq!(format!("{content:?}"), "Content(300000 bytes)");
}

#[tokio::test]
async fn a_download_is_never_larger_than_allowed() {
    let (api, client) = start();
    for size in [0usize, 1, 1000, 64 << 10, 100_000] {
        api.put_content("1", "application/pdf", vec![7; size]);
        assert_eq!(client.content("1", size, soon()).await.unwrap().bytes.len(), size);
        if size > 0 {
            assert_eq!(client.content("1", size - 1, soon()).await, Err(CallError::TooLarge), "{size}");
        }
    }
    assert_eq!(
        client.content("2", 0, soon()).await,
        Err(CallError::NotFound),
        "a refusal has no limit of its own"
    );
}

/// A server that answers its first request with these bytes, and then neither closes the connection nor sends more.
fn answering(response: impl Into<Vec<u8>>) -> Client {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let response = response.into();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = [0; 1024];
        while !request.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            if stream.read(&mut byte).unwrap() == 0 {
                return;
            }
            request.rotate_left(1);
            request[1023] = byte[0];
        }
        stream.write_all(&response).unwrap();
        // Until the client goes away.
        let _ = stream.read(&mut [0]);
    });
    client(&url, TOKEN)
}

#[tokio::test]
async fn a_download_is_refused_by_the_length_that_it_announces() {
    for (length, max_bytes) in [("11", 10), ("9223372036854775807", 10), ("1", 0)] {
        let client = answering(format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n"));
        let content = client.content("1", max_bytes, soon()).await;
        assert_eq!(content, Err(CallError::TooLarge), "{length} bytes, of which none came");
    }
}

#[tokio::test]
async fn a_download_without_a_length_is_read_as_far_as_allowed() {
    let chunk = |bytes: usize| format!("{bytes:x}\r\n{}\r\n", "x".repeat(bytes));
    let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
    let endless = answering(format!("{head}{0}{0}{0}", chunk(1000)));
    assert_eq!(endless.content("1", 2999, soon()).await, Err(CallError::TooLarge));
    let whole = answering(format!("{head}{0}{0}{0}0\r\n\r\n", chunk(1000)));
    assert_eq!(whole.content("1", 3000, soon()).await.unwrap().bytes, "x".repeat(3000));
}

#[tokio::test]
async fn a_refusal_of_a_download_is_told_whatever_its_size() {
    for (status, error) in [(404, CallError::NotFound), (410, CallError::Gone), (503, CallError::ServerError)]
    {
        let head = format!("HTTP/1.1 {status} No\r\ncontent-length: 10000000\r\n\r\n");
        assert_eq!(answering(head.clone()).content("1", 9, soon()).await, Err(error));
        let body = "x".repeat(100_000);
        assert_eq!(answering(head + &body).content("1", 9, soon()).await, Err(error));
    }
}

#[tokio::test]
async fn a_download_that_stops_ends_at_its_deadline() {
    let client = answering("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf");
    let deadline = tokio::time::Instant::now() + Duration::from_millis(100);
    let content = client.content("1", 9, deadline).await;
    assert_eq!(content, Err(CallError::Unreachable { maybe_sent: true }));
}

#[tokio::test]
async fn content_that_is_not_ready_and_content_that_is_gone_are_told_apart() {
    let (api, client) = start();
    api.put_unfinished_content("1");
    assert_eq!(client.content("1", 9, soon()).await, Err(CallError::NotReady));
    assert!(CallError::NotReady.is_transient());
    api.put_content("1", "video/mp4", "video");
    assert_eq!(&client.content("1", 9, soon()).await.unwrap().bytes[..], b"video");
    assert_eq!(client.content("2", 9, soon()).await, Err(CallError::NotFound));
    // As LINE answers for a message that the user has unsent.
    api.fail_next(Fault::Status(410, json!({ "message": "The content is gone" }).to_string()));
    assert_eq!(client.content("1", 9, soon()).await, Err(CallError::Gone));
    assert!(!CallError::NotFound.is_transient() && !CallError::Gone.is_transient());
}

#[tokio::test]
async fn content_comes_from_the_address_of_data() {
    let (api, _) = start();
    let (data, _) = start();
    data.put_content("1", "image/png", "image");
    let config = Config { data_base_url: data.url(), ..config(&api.url(), "planted-access-token") };
    let client = Client::new(onetap_http::Client::new(), &config).unwrap();
    assert!(client.content("1", 9, soon()).await.is_ok());
    assert!(client.bot_info(soon()).await.is_ok());
    assert_eq!((api.requests(), data.requests()), (1, 1));
}

#[tokio::test]
async fn an_id_cannot_lead_to_another_call() {
    let (api, client) = start();
    let long = "1".repeat(101);
    for id in [
        "",
        ".",
        "..",
        "../info",
        "1/../../info",
        "1?x=",
        "1#",
        "1%2f",
        "a b",
        "1\r\nx: y",
        "é",
        "1\0",
        &long,
    ] {
        assert_eq!(client.content(id, 9, soon()).await, Err(CallError::BadRequest), "{id:?}");
        assert_eq!(client.profile(id, soon()).await, Err(CallError::BadRequest), "{id:?}");
    }
    assert_eq!(api.requests(), 0, "nothing was sent");
}

#[tokio::test]
async fn a_quota_may_have_a_limit() {
    let (api, client) = start();
    let quota = client.quota(soon()).await.unwrap();
    assert_eq!((quota.limit, quota.used, quota.remaining()), (None, 0, None));
    api.set_quota(Some(200));
    let quota = client.quota(soon()).await.unwrap();
    assert_eq!((quota.limit, quota.used, quota.remaining()), (Some(200), 0, Some(200)));
    api.fail_next(Fault::Status(200, json!({ "type": "limited", "value": 5 }).to_string()));
    api.fail_next(Fault::Status(200, json!({ "totalUsage": 7 }).to_string()));
    assert_eq!(client.quota(soon()).await.map(Quota::remaining), Ok(Some(0)), "LINE counts roughly");
}

#[tokio::test]
async fn a_profile_is_that_of_a_friend() {
    let (api, client) = start();
    api.put_profile("U1", json!({ "displayName": "planted", "language": "zh-TW", "statusMessage": "嗨" }));
    let profile = client.profile("U1", soon()).await.unwrap();
    assert_eq!((profile.display_name.as_str(), profile.language.as_deref()), ("planted", Some("zh-TW")));
    assert_eq!((profile.status_message.as_deref(), profile.picture_url.as_deref()), (Some("嗨"), None));
    assert!(!format!("{profile:?}").contains("planted"));
    assert_eq!(client.profile("U2", soon()).await, Err(CallError::NotFound));
}

#[tokio::test]
async fn the_bot_knows_its_own_id() {
    let (_api, client) = start();
    let bot = client.bot_info(soon()).await.unwrap();
    assert_eq!(
        (bot.user_id.len(), bot.basic_id.as_str(), bot.chat_mode.as_deref()),
        (33, "@onetap", Some("bot"))
    );
}

#[tokio::test]
async fn every_refusal_of_a_call_is_told_apart() {
    let (api, client) = start();
    for (status, body, error, is_transient) in [
        (200, "<html>", CallError::NotUnderstood, false),
        (200, "{}", CallError::NotUnderstood, false),
        (400, "", CallError::BadRequest, false),
        (302, "", CallError::BadRequest, false),
        (401, "", CallError::Unauthorized, false),
        (403, "", CallError::Forbidden, false),
        (404, "", CallError::NotFound, false),
        (429, "", CallError::RateLimited, true),
        (500, "", CallError::ServerError, true),
        (503, "<html>", CallError::ServerError, true),
    ] {
        api.fail_always(Some(Fault::Status(status, body.to_owned())));
        assert_eq!(client.bot_info(soon()).await, Err(error), "{status} {body}");
        assert_eq!(client.profile("U1", soon()).await, Err(error), "{status} {body}");
        assert_eq!(client.quota(soon()).await, Err(error), "{status} {body}");
        if status != 200 {
            assert_eq!(client.content("1", 9, soon()).await, Err(error), "{status} {body}");
            assert_eq!(client.start_loading("U1", 5, soon()).await, Err(error), "{status} {body}");
        }
        assert_eq!(error.is_transient(), is_transient, "{error}");
    }
    api.fail_always(Some(Fault::Status(200, "x".repeat(100_000))));
    assert_eq!(client.bot_info(soon()).await, Err(CallError::NotUnderstood));
    api.fail_always(Some(Fault::DropAnswer));
    assert_eq!(client.bot_info(soon()).await, Err(CallError::Unreachable { maybe_sent: true }));
    let (api, client) = start();
    drop(api);
    assert_eq!(client.bot_info(soon()).await, Err(CallError::Unreachable { maybe_sent: false }));
}

#[tokio::test]
async fn a_call_ends_at_its_deadline() {
    let (api, client) = start();
    api.fail_always(Some(Fault::Delay(Duration::from_secs(3600))));
    let error = client.bot_info(tokio::time::Instant::now() + Duration::from_millis(100)).await;
    assert_eq!(error, Err(CallError::Unreachable { maybe_sent: true }));
}

#[tokio::test]
async fn no_error_shows_the_token_or_an_id() {
    let (api, _) = start();
    let client = client(&api.url(), "planted-wrong-token");
    let error = client.profile("Uplanted", soon()).await.unwrap_err();
    assert_eq!(error, CallError::Unauthorized);
    let shown = format!("{error} {error:?} {error:#?} {client:?} {client:#?}");
    assert!(!shown.contains("planted"), "{shown}");
}

#[tokio::test]
async fn nothing_that_the_messaging_api_keeps_shows_an_id_a_token_or_a_word() {
    let (api, client) = start();
    let messages = Message::text("planted-word").into();
    let key = RetryKey::named("planted-name");
    assert!(client.push("Uplanted", &messages, &key, soon()).await.outcome.is_sent());
    assert!(client.reply("planted-reply-token", &messages, soon()).await.outcome.maybe_sent());
    client.start_loading("Uplanted", 5, soon()).await.unwrap();
    let body = || "planted-body".to_owned();
    let fault = Fault::AcceptThen(500, body());
    api.fail_next(Fault::Status(400, body()));
    assert!(client.profile("Uplanted", soon()).await.is_err());
    let (received, replies, pushes, loadings) = (api.received(), api.replies(), api.pushes(), api.loadings());
    // Each holds what is planted, and none shows it.
    assert_eq!((received.len(), replies.len(), pushes.len(), loadings.len()), (4, 1, 1, 1));
    assert_eq!(received[3].uri, "/v2/bot/profile/Uplanted");
    assert_eq!(received[0].headers["authorization"], format!("Bearer {TOKEN}"));
    assert!(TOKEN.contains("planted") && received[0].body.windows(7).any(|part| part == b"planted"));
    let faults = [fault, Fault::Status(400, body())];
    let shown = format!(
        "{received:?} {received:#?} {replies:?} {pushes:?} {loadings:?} {faults:?} {:?} {api:?}",
        api.received()[0].headers
    );
    assert!(!shown.contains("planted"), "{shown}");
}
