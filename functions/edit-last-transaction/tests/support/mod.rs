//! The function over real stores, and a way to ask it that checks every answer against its OpenAPI document.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "these are tests")]
#![allow(dead_code, unreachable_pub, reason = "every test file uses its part")]

use std::sync::Arc;
use std::time::Duration;

use edit_last_transaction::{Answer, Config, EditLastTransaction, OPENAPI};
use http::Request;
use onetap_config::Secret;
use onetap_idem as idem;
#[allow(unused_imports, reason = "every test file uses its part")]
pub use onetap_servers::{Backend, Environment};
use onetap_store::lease::unique_token;
use onetap_store::{Batch, Expect, Keep, Key, Log, Memory, Store, read_to_end};
use serde_json::Value;

pub const TOKEN: &str = "test-token";

/// Seed 002's entry, with an amount that a binary float would not keep.
pub const LUNCH: &str = r#"{"intent":"bookkeeping","日期":"2025-11-29","時間":"14:30","品項":"午餐","原幣別":"TWD","原幣金額":100.10,"匯率":1.0,"付款方式":"信用卡","交易ID":"20251129-140000","明細說明":"","分類":"飲食","專案":"日常","必要性":"必要","代墊狀態":"無","收款支付對象":"","附註":""}"#;

/// Another transaction.
pub const DINNER: &str = r#"{"intent":"bookkeeping","日期":"2025-11-29","時間":"18:30","品項":"晚餐","原幣別":"TWD","原幣金額":250,"匯率":1,"付款方式":"現金","交易ID":"20251129-140100","明細說明":"","分類":"飲食","專案":"日常","必要性":"必要","代墊狀態":"無","收款支付對象":"","附註":""}"#;

pub const MISSING: &str = "目前沒有可修改的交易記錄（交易記錄會在 1 小時後自動清除）";
pub const CHANGED: &str = "交易已變更，請重新操作";
pub const BROKEN: &str = "資料格式錯誤，請重新記帳";

pub fn memory() -> Arc<dyn Store> {
    Arc::new(Memory::new())
}

/// Makes a test for every backend of a scenario, an `async fn` over a store: its name, then the names of its tests.
#[macro_export]
macro_rules! on_every_backend {
    ($scenario:ident: $memory:ident $redis:ident $upstash:ident $dynamodb:ident $local:ident) => {
        #[tokio::test]
        async fn $memory() {
            $scenario($crate::support::memory()).await;
        }

        #[tokio::test]
        #[ignore = "needs redis-server"]
        async fn $redis() {
            let environment = $crate::support::Environment::start($crate::support::Backend::Redis).await;
            $scenario(environment.store()).await;
        }

        #[tokio::test]
        #[ignore = "needs redis-server"]
        async fn $upstash() {
            let environment = $crate::support::Environment::start($crate::support::Backend::Upstash).await;
            $scenario(environment.store()).await;
        }

        #[tokio::test]
        async fn $dynamodb() {
            let environment = $crate::support::Environment::start($crate::support::Backend::DynamoDb).await;
            $scenario(environment.store()).await;
        }

        #[tokio::test]
        #[ignore = "needs DynamoDB Local"]
        async fn $local() {
            let environment =
                $crate::support::Environment::start($crate::support::Backend::DynamoDbLocal).await;
            $scenario(environment.store()).await;
        }
    };
}

pub fn config() -> Config {
    Config {
        tokens: vec![Secret::new(TOKEN)],
        ledger: onetap_ledger::Config::default(),
        idem: idem::Config::default().wait_timeout(Duration::from_secs(5)),
    }
}

/// The same, where the last transaction lives for this long.
pub fn with_life(last_transaction: Duration) -> Config {
    Config { ledger: onetap_ledger::Config { last_transaction, ..Default::default() }, ..config() }
}

/// The function, asked about one user of its own.
#[derive(Debug)]
pub struct Api {
    pub function: EditLastTransaction,
    pub store: Arc<dyn Store>,
    pub user: String,
}

impl Api {
    pub fn new(store: Arc<dyn Store>) -> Api {
        Api::with(store, config())
    }

    pub fn with(store: Arc<dyn Store>, config: Config) -> Api {
        let function = EditLastTransaction::new(Arc::clone(&store), config);
        Api { function, store, user: format!("U{}", unique_token()) }
    }

    /// The same user, through another store (a faulty one in front of the same, say).
    pub fn through(&self, store: Arc<dyn Store>) -> Api {
        Api { user: self.user.clone(), ..Api::new(store) }
    }

    pub fn path(&self) -> String {
        format!("/users/{}/last-transaction", self.user)
    }

    pub fn key(&self) -> Key {
        Key::new(format!("user:{}:last_transaction", self.user)).unwrap()
    }

    pub async fn ask(&self, method: &str, headers: &[(&str, &str)], body: &str) -> Reply {
        self.ask_at(&self.path(), method, headers, body).await
    }

    /// A month of the ledger, by its query: `?month=2026-11`.
    pub async fn transactions(&self, query: &str, headers: &[(&str, &str)]) -> Reply {
        self.ask_at(&format!("/users/{}/transactions{query}", self.user), "GET", headers, "").await
    }

    pub async fn ask_at(&self, uri: &str, method: &str, headers: &[(&str, &str)], body: &str) -> Reply {
        let mut request = Request::builder().method(method).uri(uri);
        request = request.header("authorization", format!("Bearer {TOKEN}"));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        self.send(request.body(body.as_bytes().to_vec()).unwrap()).await
    }

    pub async fn send(&self, request: Request<Vec<u8>>) -> Reply {
        let (method, path) = (request.method().as_str().to_lowercase(), request.uri().path().to_owned());
        let reply = Reply::new(self.function.handle(request).await);
        is_documented(&method, &path, &reply);
        reply
    }

    pub async fn get(&self) -> Reply {
        self.ask("GET", &[], "").await
    }

    pub async fn put(&self, body: &str) -> Reply {
        self.ask("PUT", &[], body).await
    }

    pub async fn patch(&self, body: &str) -> Reply {
        self.ask("PATCH", &[], body).await
    }

    pub async fn delete(&self) -> Reply {
        self.ask("DELETE", &[], "").await
    }

    pub async fn stored(&self) -> Option<String> {
        self.store.get(&self.key()).await.unwrap()
    }

    pub fn log(&self, month: &str) -> Log {
        Log::new(format!("user:{}:ledger:{month}", self.user)).unwrap()
    }

    /// The records of a month, as the store holds them.
    pub async fn records(&self, month: &str) -> Vec<String> {
        let records = read_to_end(&*self.store, &self.log(month)).await.unwrap();
        records.into_iter().map(|record| record.text).collect()
    }

    /// Appends these records to a month, past the function.
    pub async fn append(&self, month: &str, records: &[String]) {
        let (log, keep) = (self.log(month), Keep::all_for(config().ledger.retention));
        for some in records.chunks(onetap_store::MAX_WRITES) {
            let batch = some.iter().fold(Batch::new(), |batch, record| batch.append(&log, record, keep));
            let _ = self.store.commit(&batch).await.unwrap();
        }
    }

    /// Puts this there, past the function, whatever was there.
    pub async fn plant(&self, value: &str) {
        let expect = self.stored().await.map_or(Expect::Absent, Expect::Is);
        let _ = self
            .store
            .commit(&Batch::new().put(&self.key(), expect, value, config().ledger.last_transaction))
            .await
            .unwrap();
    }
}

#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    pub headers: http::HeaderMap,
    pub body: String,
}

impl Reply {
    pub fn new(answer: Answer) -> Reply {
        let (parts, body) = answer.into_parts();
        Reply { status: parts.status.as_u16(), headers: parts.headers, body }
    }

    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    pub fn etag(&self) -> &str {
        self.header("etag").unwrap()
    }

    /// Asserts a failure with this status and this message.
    #[track_caller]
    pub fn fails(&self, status: u16, message: &str) {
        assert_eq!((self.status, self.json()["message"].as_str()), (status, Some(message)), "{}", self.body);
        assert_eq!(self.json()["success"], false);
    }
}

/// Every answer must be in the document: its status, its media type, its headers, and the shape of its body.
fn is_documented(method: &str, path: &str, reply: &Reply) {
    assert_eq!(reply.header("cache-control"), Some("no-store"));
    let document: Value = serde_json::from_str(OPENAPI).unwrap();
    let template = match path.split('/').collect::<Vec<_>>()[..] {
        ["", "users", _, "last-transaction"] => "/users/{user_id}/last-transaction",
        ["", "users", _, "transactions"] => "/users/{user_id}/transactions",
        _ => path,
    };
    let operation = &document["paths"][template][method];
    if operation.is_null() {
        assert!(matches!(reply.status, 404 | 405 | 401), "{method} {path}: {}", reply.status);
        return;
    }
    let response = resolve(&document, &operation["responses"][reply.status.to_string()]);
    assert!(!response.is_null(), "{method} {}: not documented", reply.status);
    let media = reply.header("content-type").map(|text| text.split(';').next().unwrap().to_owned());
    let Some(media) = media else {
        assert!(response["content"].is_null() && reply.body.is_empty(), "{method} {}", reply.status);
        has_documented_headers(&document, response, reply);
        return;
    };
    let schema = resolve(&document, &response["content"][media.as_str()]["schema"]);
    assert!(!schema.is_null(), "{method} {} {media}: not documented", reply.status);
    has_documented_headers(&document, response, reply);
    if media == "text/csv" {
        return;
    }
    let body = reply.json();
    for name in schema["required"].as_array().into_iter().flatten() {
        assert!(!body[name.as_str().unwrap()].is_null(), "{method} {}: no {name}", reply.status);
    }
    for (name, value) in body.as_object().unwrap() {
        let property = &schema["properties"][name];
        let open = schema["additionalProperties"] != Value::Bool(false);
        assert!(!property.is_null() || open, "{method} {}: {name} is not documented", reply.status);
        let constant = &property["const"];
        assert!(constant.is_null() || constant == value, "{method} {}: {name}", reply.status);
    }
}

fn has_documented_headers(document: &Value, response: &Value, reply: &Reply) {
    for (name, header) in response["headers"].as_object().into_iter().flatten() {
        let header = resolve(document, header);
        let required = header["required"] == Value::Bool(true);
        assert!(!required || reply.headers.contains_key(name), "{}: no {name}", reply.status);
        let constant = header["schema"]["const"].as_str();
        assert!(
            constant.is_none() || reply.header(name).is_none_or(|value| Some(value) == constant),
            "{name}"
        );
    }
}

fn resolve<'a>(document: &'a Value, part: &'a Value) -> &'a Value {
    match part["$ref"].as_str() {
        Some(reference) => document.pointer(reference.trim_start_matches('#')).unwrap(),
        None => part,
    }
}
