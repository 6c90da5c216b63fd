//! Nothing of a user in any log line, metric or error: planted words, looked for in everything that was said.
//! A program of its own: the subscriber is the process's.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "these are tests")]

mod support;

use std::io;
use std::sync::{Arc, Mutex};

use onetap_line::testing::Fault as LineFault;
use onetap_store::Observed;
use onetap_store::testing::{Fault, TestStore};
use onetap_telemetry::Recorder;
use serde_json::json;
use support::*;
use tracing_subscriber::fmt::MakeWriter;

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Log;

    fn make_writer(&'a self) -> Log {
        self.clone()
    }
}

#[tokio::test]
async fn no_log_line_or_metric_holds_anything_of_a_user() {
    let log = Log::default();
    let subscriber =
        tracing_subscriber::fmt().json().with_max_level(tracing::Level::TRACE).with_writer(log.clone());
    let _log = tracing::subscriber::set_default(subscriber.finish());
    let recorder = Recorder::default();
    let _metrics = recorder.on_this_thread();
    // Amounts longer than any time stamp, port or duration that a log line may rightly hold.
    const USER: &str = "Uplanted0123456789abcdef0123456789ab";
    let words = [
        "設定住家 永和區",
        "永和",
        "午餐 98765432109876 信用卡",
        "修改金額 87654321098765",
        "修改金額 -1",
        "刪除上一筆",
        "planted words",
        "午餐 planted",
        "設定住家 planted",
        "刪除我的資料",
    ];
    for down in [false, true] {
        let store =
            TestStore::faulty(
                memory(),
                move |call| if down && call % 2 == 0 { Fault::ReplyLost } else { Fault::Pass },
            );
        let bot = Bot::with(Arc::new(Observed::new(store)), &[("PROCESSING_LOCK_SCOPE", "all")]);
        for words in words {
            let event = text(USER, words);
            bot.deliver(&[event.clone(), event.clone(), tap(USER, HOME), tap(USER, "action=planted")]).await;
            bot.deliver(&[event]).await;
        }
        for kind in ["follow", "unfollow", "planted"] {
            bot.deliver(&[event(USER, json!({"type": kind}))]).await;
        }
        bot.deliver(&[confirmed_erasure(USER), mentioning(USER, "午餐 98765432109876 現金")]).await;
        bot.deliver(&[location(USER, "planted address 臺北市中正區", 25.03, 121.51)]).await;
        bot.deliver(&[in_group(text(USER, "永和"))]).await;
        for status in [400, 401, 429, 500] {
            let properties = ["messages[0].text", "planted property"].map(|name| json!({ "property": name }));
            let refusal = json!({ "message": "planted message", "details": properties }).to_string();
            bot.line.fail_next(LineFault::Status(status, refusal));
            bot.deliver(&[text(USER, "永和")]).await;
        }
        assert!(bot.line.requests() > 20);
    }
    let log = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    let metrics = recorder.prometheus();
    for said in [
        "acquired",
        "missed",
        "released",
        "kv_get",
        "kv_set",
        "kv_error",
        "correlation_id",
        "duplicate",
        "messages[0].text",
    ] {
        assert!(log.contains(said), "the log has something to say: {said}");
    }
    assert!(metrics.contains("line_reply_total"), "and so have the metrics");
    for planted in ["planted", "98765432109876", "87654321098765", "午餐", "永和", "U0123", "中正區"] {
        for (name, text) in [("log", &log), ("metrics", &metrics)] {
            let found = text.lines().find(|line| line.contains(planted));
            assert_eq!(found, None, "{planted} is in the {name}");
        }
    }
}
