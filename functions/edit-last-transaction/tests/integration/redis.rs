//! A transaction as Redis itself sees it: its key, its value, its life.

use crate::support;

use support::{Api, Backend, Environment, LUNCH};

async fn pttl(url: &str, key: &str) -> i64 {
    let mut connection = redis::Client::open(url).unwrap().get_multiplexed_async_connection().await.unwrap();
    redis::cmd("PTTL").arg(key).query_async(&mut connection).await.unwrap()
}

#[tokio::test]
#[ignore = "needs redis-server"]
async fn an_edit_sets_3600_seconds_under_the_seeds_key_on_redis() {
    let mut environment = Environment::start(Backend::Redis).await;
    let api = Api::new(environment.store());
    let (url, key) = (environment.redis().unwrap().url(), format!("user:{}:last_transaction", api.user));
    api.put(LUNCH).await;
    assert!((3_590_000..=3_600_000).contains(&pttl(&url, &key).await));
    let mut connection =
        redis::Client::open(url.as_str()).unwrap().get_multiplexed_async_connection().await.unwrap();
    let shortened: i64 =
        redis::cmd("PEXPIRE").arg(&key).arg(60_000).query_async(&mut connection).await.unwrap();
    assert_eq!(shortened, 1);
    api.get().await;
    assert!(pttl(&url, &key).await <= 60_000);
    api.patch(r#"{"品項":"工作午餐"}"#).await;
    assert!((3_590_000..=3_600_000).contains(&pttl(&url, &key).await));
    let stored: String = redis::cmd("GET").arg(&key).query_async(&mut connection).await.unwrap();
    assert_eq!(stored, LUNCH.replace("午餐", "工作午餐"));
}

#[tokio::test]
#[ignore = "needs redis-server"]
async fn bytes_that_are_no_text_are_broken_too_on_redis() {
    let mut environment = Environment::start(Backend::Redis).await;
    let api = Api::new(environment.store());
    let mut connection = redis::Client::open(environment.redis().unwrap().url())
        .unwrap()
        .get_multiplexed_async_connection()
        .await
        .unwrap();
    let key = format!("user:{}:last_transaction", api.user);
    let done: String =
        redis::cmd("SET").arg(&key).arg(b"{\"\xff\":1}").query_async(&mut connection).await.unwrap();
    assert_eq!(done, "OK");
    api.get().await.fails(500, support::BROKEN);
    api.patch(r#"{"品項":"工作午餐"}"#).await.fails(500, support::BROKEN);
    // Not even a put goes over it: a swap compares texts, and there is none to compare with.
    api.put(LUNCH).await.fails(500, support::BROKEN);
}
