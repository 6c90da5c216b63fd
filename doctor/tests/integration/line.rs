//! LINE's checks against a stub of the Messaging API: each fault has its own finding, and no other.

use onetap_doctor::{Finding, Options, Status, line};
use onetap_servers::{Fault, HttpStub};
use serde_json::json;

use crate::support::line::{Channel, TOKEN};
use crate::support::{calls, faults, once_asked, only_fault, reported};

/// What LINE's checks find in an environment of these variables.
async fn examined(set: &[(&str, &str)], send: bool) -> Vec<Finding> {
    reported(set, async |variables, report| line::examine(variables, send, report).await).await
}

/// What they find where `stub` is LINE.
async fn at(stub: &HttpStub, token: &str, send: bool) -> Vec<Finding> {
    let set = [
        ("LINE_CHANNEL_SECRET", "planted-channel-secret"),
        ("LINE_CHANNEL_ACCESS_TOKEN", token),
        ("LINE_API_BASE_URL", &stub.url()),
    ];
    examined(&set, send).await
}

async fn examine(channel: Channel, send: bool) -> Vec<Finding> {
    at(&channel.start(), TOKEN, send).await
}

/// The one fault of a channel; the checks that need it are skipped.
async fn fault(channel: Channel) -> (&'static str, Status, String, String) {
    only_fault(&examine(channel, true).await)
}

#[tokio::test]
async fn a_channel_that_is_well_is_shown_with_its_name_its_webhook_and_its_quota() {
    let stub = Channel::default().start();
    let findings = at(&stub, TOKEN, false).await;
    let seen: Vec<_> = findings.iter().map(|f| (f.check, f.status, f.seen.as_str())).collect();
    assert_eq!(
        seen,
        [
            ("bot", Status::Ok, "永和天氣 (@216ru000)"),
            (
                "webhook",
                Status::Ok,
                "https://a1b2c3.execute-api.ap-northeast-1.amazonaws.com/line/webhook is active"
            ),
            ("quota", Status::Ok, "37 of 200 messages this month; replies are not counted"),
            (
                "webhook-test",
                Status::Skipped,
                "with --send LINE calls the webhook, which proves its channel secret"
            ),
        ]
    );
    assert!(calls(&stub).iter().all(|call| call.starts_with("GET ")), "{:?}", calls(&stub));
}

#[tokio::test]
async fn with_send_line_calls_the_webhook_once() {
    let stub = Channel::default().start();
    let findings = at(&stub, TOKEN, true).await;
    assert_eq!(faults(&findings), []);
    assert_eq!(findings[3].seen, "LINE called the webhook, which answered 200");
    let posts: Vec<_> = calls(&stub).into_iter().filter(|call| call.starts_with("POST ")).collect();
    assert_eq!(posts, ["POST /v2/bot/channel/webhook/test"]);
}

#[tokio::test]
async fn a_channel_without_a_limit_is_well() {
    let channel = Channel { quota: Fault::ok(json!({ "type": "none" })), ..Channel::default() };
    let findings = examine(channel, false).await;
    assert_eq!(faults(&findings), []);
    assert_eq!(findings[2].seen, "37 messages this month, no limit");
}

#[tokio::test]
async fn without_a_token_line_is_not_asked() {
    let findings = examined(&[], true).await;
    assert!(findings.iter().all(|finding| finding.status == Status::Skipped), "{findings:#?}");
    assert_eq!(findings[0].seen, "LINE_CHANNEL_ACCESS_TOKEN is not set");
}

#[tokio::test]
async fn a_malformed_address_is_the_fault_of_the_webhooks_variables_alone() {
    let set = [
        ("LINE_CHANNEL_ACCESS_TOKEN", TOKEN),
        ("LINE_API_BASE_URL", "https://planted-user:planted-password@host"),
    ];
    let findings = examined(&set, true).await;
    assert_eq!(findings[0].seen, "needs webhook variables");
    assert!(findings.iter().all(|finding| finding.status == Status::Skipped), "{findings:#?}");
}

#[tokio::test]
async fn a_token_that_is_missing_is_the_fault_of_the_webhooks_variables_alone() {
    let set = [("STORE", "memory"), ("LINE_CHANNEL_SECRET", "planted-secret"), ("WEATHER_PROVIDER", "cwa")];
    let findings = crate::support::examined(&set, Options::default()).await;
    assert_eq!(faults(&findings), [("webhook", "variables", Status::Wrong)]);
}

#[tokio::test]
async fn a_refused_token_is_the_only_fault() {
    let stub = Channel::default().start();
    let findings = at(&stub, "planted-password", true).await;
    let skipped =
        ["webhook", "quota", "webhook-test"].map(|check| Finding::needs("line", check, &findings[0]));
    assert_eq!(findings[1..], skipped);
    let (_, _, seen, remedy) = only_fault(&findings);
    assert_eq!(seen, "LINE refuses the channel access token (401)");
    assert!(remedy.contains("LINE_CHANNEL_ACCESS_TOKEN"), "{remedy}");
    assert_eq!(calls(&stub), ["GET /v2/bot/info"], "one refusal is enough");
}

#[tokio::test]
async fn what_line_answers_instead_is_told_by_its_kind() {
    for (answer, status, seen, remedy) in [
        (Fault::Status(403, "{}".to_owned()), Status::Wrong, "LINE forbids this call (403)", "console"),
        (Fault::Status(429, "{}".to_owned()), Status::Warning, "LINE was asked too often (429)", "again"),
        (Fault::Status(503, "planted-detail".to_owned()), Status::Wrong, "LINE fails (503)", "outage"),
        (
            Fault::Status(404, "<html>".to_owned()),
            Status::Wrong,
            "what answers is not the Messaging API (404)",
            "LINE_API_BASE_URL",
        ),
        (
            Fault::ok("<title>Sign in</title>planted-detail"),
            Status::Wrong,
            "what answers is not the Messaging API",
            "LINE_API_BASE_URL",
        ),
    ] {
        let found = fault(Channel { bot: answer, ..Channel::default() }).await;
        assert_eq!((found.0, found.1, found.2.as_str()), ("bot", status, seen));
        assert!(found.3.contains(remedy), "{}", found.3);
    }
}

#[tokio::test]
async fn a_line_that_cannot_be_reached_is_the_only_fault() {
    let set = [("LINE_CHANNEL_ACCESS_TOKEN", TOKEN), ("LINE_API_BASE_URL", "http://127.0.0.1:1")];
    let (check, status, seen, remedy) = only_fault(&examined(&set, true).await);
    assert_eq!((check, status, seen.as_str()), ("bot", Status::Wrong, "LINE cannot be reached"));
    assert!(remedy.contains("LINE_API_BASE_URL"), "{remedy}");
}

#[tokio::test]
async fn a_line_that_never_answers_is_given_up() {
    let stub = Channel { bot: Fault::Hang, ..Channel::default() }.start();
    let findings = once_asked(&stub, at(&stub, TOKEN, true)).await;
    let (check, status, seen, _) = only_fault(&findings);
    assert_eq!((check, status, seen.as_str()), ("bot", Status::Wrong, "LINE does not answer in time"));
}

#[tokio::test]
async fn a_channel_without_a_webhook_url_is_told_where_to_set_it() {
    let none = Fault::Status(404, json!({ "message": "Webhook endpoint not found" }).to_string());
    let found = examine(Channel { webhook: none, ..Channel::default() }, true).await;
    assert_eq!(found[3], Finding::skipped("line", "webhook-test", "needs line webhook"));
    let (check, status, seen, remedy) = only_fault(&found);
    assert_eq!((check, status, seen.as_str()), ("webhook", Status::Wrong, "LINE has no webhook URL"));
    assert!(remedy.contains("WebhookUrl") && remedy.contains("Messaging API"), "{remedy}");
}

#[tokio::test]
async fn a_webhook_that_is_not_active_is_wrong() {
    let webhook = Channel::webhook("https://example.com/line/webhook", false);
    let (check, status, seen, remedy) = fault(Channel { webhook, ..Channel::default() }).await;
    assert_eq!((check, status), ("webhook", Status::Wrong));
    assert_eq!(seen, "https://example.com/line/webhook is not active");
    assert!(remedy.contains("Use webhook"), "{remedy}");
}

#[tokio::test]
async fn a_webhook_url_that_is_not_the_stacks_is_a_warning_without_what_may_be_secret_in_it() {
    for (url, seen) in [
        (
            "https://user:planted-password@example.com/callback?key=planted-detail",
            "https://example.com/callback does not end in /line/webhook, where the stack has the webhook",
        ),
        (
            "https://example.com/line/webhook/",
            "https://example.com/line/webhook/ does not end in /line/webhook, where the stack has the webhook",
        ),
        (
            "http://example.com/line/webhook",
            "http://example.com/line/webhook is not https, which LINE requires",
        ),
    ] {
        let webhook = Channel::webhook(url, true);
        let (check, status, found, remedy) = fault(Channel { webhook, ..Channel::default() }).await;
        assert_eq!((check, status, found.as_str()), ("webhook", Status::Warning, seen));
        assert!(remedy.contains("WebhookUrl"), "{remedy}");
    }
}

#[tokio::test]
async fn a_quota_that_is_used_up_is_a_warning_because_replies_are_not_counted() {
    for used in [200, 201] {
        let consumption = Fault::ok(json!({ "totalUsage": used }));
        let (check, status, seen, remedy) = fault(Channel { consumption, ..Channel::default() }).await;
        assert_eq!((check, status), ("quota", Status::Warning));
        assert!(
            seen.starts_with(&format!("used up: {used} of 200")) && seen.contains("still work"),
            "{seen}"
        );
        assert!(remedy.contains("manager.line.biz"), "{remedy}");
    }
}

#[tokio::test]
async fn a_quota_that_cannot_be_read_is_the_fault_of_the_quota_alone() {
    for quota in [Fault::ok("{}"), Fault::ok(r#"{"type":"limited"}"#), Fault::Status(500, String::new())] {
        let (check, status, _, _) = fault(Channel { quota, ..Channel::default() }).await;
        assert_eq!((check, status), ("quota", Status::Wrong));
    }
}

#[tokio::test]
async fn a_webhook_test_that_fails_says_what_to_look_at() {
    for (status, reason, seen, remedy) in [
        (401, "ERROR_STATUS_CODE", "the webhook refused LINE's signature (401)", "LINE_CHANNEL_SECRET"),
        (404, "ERROR_STATUS_CODE", "there is no webhook at LINE's webhook URL (404)", "WebhookUrl"),
        (500, "ERROR_STATUS_CODE", "the webhook answered 500", "/onetap/webhook"),
        (0, "REQUEST_TIMEOUT", "the webhook did not answer LINE in time", "/onetap/webhook"),
        (-1, "COULD_NOT_CONNECT", "LINE could not connect to the webhook", "WebhookUrl"),
        (0, "UNCLASSIFIED", "LINE's test failed, and LINE does not say why", "Verify"),
    ] {
        let found = fault(Channel { test: Channel::test(false, status, reason), ..Channel::default() }).await;
        assert_eq!((found.0, found.1, found.2.as_str()), ("webhook-test", Status::Wrong, seen));
        assert!(found.3.contains(remedy), "{}", found.3);
    }
}

#[tokio::test]
async fn what_line_says_cannot_control_the_terminal() {
    let name =
        json!({ "userId": "U", "basicId": "@a\u{7}", "displayName": "\u{1b}[2Jbot\nok", "chatMode": "chat" });
    let findings = examine(Channel { bot: Fault::ok(name), ..Channel::default() }, false).await;
    assert_eq!(findings[0].seen, "[2Jbotok (@a), people may answer too (chat is on)");
}
