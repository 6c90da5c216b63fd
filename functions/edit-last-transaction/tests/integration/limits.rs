//! What a store cannot hold.

use crate::support;

use support::{Api, Backend, Environment, LUNCH};

#[tokio::test]
async fn an_entry_that_grows_over_what_the_store_takes_is_413_and_stays_as_it_was_on_dynamodb() {
    let environment = Environment::start(Backend::DynamoDb).await;
    let api = Api::new(environment.store());
    api.put(LUNCH).await;
    let text = "x".repeat(60_000);
    let fields = ["品項", "付款方式", "分類", "專案", "必要性", "明細說明", "附註"];
    for (n, field) in fields.iter().enumerate() {
        let before = api.stored().await;
        let plain = api.patch(&format!(r#"{{"{field}":"{text}"}}"#)).await;
        if n < 6 {
            assert_eq!(plain.status, 200, "{field}");
            continue;
        }
        plain.fails(413, "內容過大");
        let keyed =
            api.ask("PATCH", &[("idempotency-key", "k")], &format!(r#"{{"{field}":"{text}"}}"#)).await;
        keyed.fails(413, "內容過大");
        assert_eq!(api.stored().await, before);
    }
    assert_eq!(api.patch(r#"{"品項":"午餐"}"#).await.status, 200);
}
