//! Nothing of a person is in a log line, whatever goes wrong. A program of its own: a subscriber of one thread misses
//! the lines whose call site another thread reached first.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "these are tests")]

mod support;

use std::io::Write;
use std::sync::{Arc, Mutex};

use onetap_store::Observed;
use onetap_store::testing::{Fault, TestStore};
use support::{Api, DINNER, LUNCH, TOKEN, memory};

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn no_id_text_amount_or_token_is_logged() {
    let lines = Lines::default();
    let written = lines.clone();
    let subscriber = tracing_subscriber::fmt()
        .json()
        .with_max_level(tracing_subscriber::filter::LevelFilter::TRACE)
        .with_writer(move || written.clone())
        .finish();
    let _guard = tracing::subscriber::set_default(subscriber);

    let api = Api::new(Arc::new(Observed::new(memory())));
    api.put(LUNCH).await;
    api.get().await;
    let key = [("idempotency-key", "tap-secret")];
    api.ask("PATCH", &key, r#"{"原幣金額":98765.4321,"附註":"秘密"}"#).await;
    api.ask("PATCH", &key, r#"{"附註":"別的"}"#).await;
    api.patch(r#"{"秘密欄位":"秘密"}"#).await;
    api.append(
        "2025-11",
        &["秘密 98765.4321".to_owned(), r#"{"op":"put","tx":{"交易ID":"秘密"}}"#.to_owned()],
    )
    .await;
    for query in ["?month=2025-11", "?month=2025-11&format=csv", "?month=秘密", "?tap-secret=1"] {
        let query = query.replace("秘密", "%E7%A7%98%E5%AF%86");
        api.transactions(&query, &[("if-none-match", "\"tap-secret\"")]).await;
    }
    api.plant("秘密 98765.4321").await;
    api.patch(r#"{"附註":"秘密"}"#).await;
    for calls in 0..4 {
        let plan = move |call| if call > calls { Fault::ReplyLost } else { Fault::Pass };
        let down = api.through(Arc::new(Observed::new(TestStore::faulty(Arc::clone(&api.store), plan))));
        down.get().await;
        down.transactions("?month=2025-11", &[]).await;
        down.put(DINNER).await;
        down.ask("PATCH", &key, r#"{"附註":"秘密"}"#).await;
        down.delete().await;
    }

    let shown = format!("{:?}", api.function);
    let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap() + &shown;
    assert!(text.contains("kv_get") && text.contains("kv_set") && text.contains("kv_error"), "{text}");
    assert!(text.contains("answered") && text.contains(r#""operation":"decode""#), "{text}");
    for secret in [
        api.user.as_str(),
        "user:",
        "午餐",
        "晚餐",
        "秘密",
        // With its fraction: five digits alone are in a timestamp now and then.
        "98765.4321",
        "100.10",
        "tap-secret",
        TOKEN,
        "20251129",
    ] {
        assert!(!text.contains(secret), "{secret} in {text}");
    }
}
