//! The promises, on DynamoDB over a client of the AWS SDK that the caller has configured: with a credentials provider, an
//! HTTP client and retries of its own.

use crate::support;

use std::error::Error as StdError;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use aws_credential_types::provider::error::CredentialsError;
use aws_credential_types::provider::{ProvideCredentials, future};
use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::http::HttpRequest;
use aws_sdk_dynamodb::config::retry::RetryConfig;
use aws_sdk_dynamodb::config::{BehaviorVersion, Region};
use aws_smithy_runtime_api::client::http::{
    HttpClient, HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpConnector,
};
use aws_smithy_runtime_api::client::result::ConnectorError;
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;
use aws_smithy_types::body::SdkBody;
use onetap_servers::{Dynamo, Fault, Proxy, create_table};
use onetap_store::testing::conformance::Names;
use onetap_store::{Batch, Commit, DynamoDb, Expect, Found, Keep, Store};
use tokio::time::Instant;

const HOUR: Duration = Duration::from_secs(3600);
const PATIENT: Duration = Duration::from_millis(support::PATIENT);

/// The caller's HTTP client. Its errors do not tell whether a request was sent.
#[derive(Clone, Debug, Default)]
struct Http {
    client: onetap_http::Client,
    /// The access keys that signed the requests.
    signed_by: Arc<Mutex<Vec<String>>>,
}

impl HttpConnector for Http {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let Http { client, signed_by } = self.clone();
        let signature = request.headers().get("authorization").unwrap().to_owned();
        let key = signature.split_once("Credential=").unwrap().1.split_once('/').unwrap().0;
        signed_by.lock().unwrap().push(key.to_owned());
        HttpConnectorFuture::new(async move {
            let request = request.try_into_http1x().unwrap();
            let request = request.map(|body| body.bytes().unwrap().to_owned().into());
            let answer = client.send(request, Instant::now() + HOUR, 1 << 24).await;
            let answer = answer.map_err(|error| ConnectorError::io(Unclear(error).into()))?;
            Ok(answer.map(SdkBody::from).try_into().unwrap())
        })
    }
}

/// The error of an HTTP client that does not tell more than that it failed, and why.
#[derive(Debug)]
struct Unclear(onetap_http::Error);

impl fmt::Display for Unclear {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the request failed")
    }
}

impl StdError for Unclear {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source()
    }
}

impl HttpClient for Http {
    fn http_connector(&self, _: &HttpConnectorSettings, _: &RuntimeComponents) -> SharedHttpConnector {
        SharedHttpConnector::new(self.clone())
    }
}

/// A provider whose credentials end soon, as those of a container do, and are others every time.
#[derive(Debug, Default)]
struct Rotating(AtomicUsize);

impl ProvideCredentials for Rotating {
    fn provide_credentials<'a>(&'a self) -> future::ProvideCredentials<'a>
    where
        Self: 'a,
    {
        let n = self.0.fetch_add(1, Ordering::Relaxed);
        let soon = SystemTime::now() + Duration::from_secs(1);
        future::ProvideCredentials::ready(Ok(aws_credential_types::Credentials::new(
            format!("key{n}"),
            "secret",
            None,
            Some(soon),
            "rotating",
        )))
    }
}

/// A provider that has none.
#[derive(Debug)]
struct LoggedOut;

impl ProvideCredentials for LoggedOut {
    fn provide_credentials<'a>(&'a self) -> future::ProvideCredentials<'a>
    where
        Self: 'a,
    {
        future::ProvideCredentials::ready(Err(CredentialsError::not_loaded("the session has ended")))
    }
}

/// A client as a caller has it: with retries.
fn client(url: &str, credentials: impl ProvideCredentials + 'static, http: Http) -> Client {
    let config = aws_sdk_dynamodb::Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new("us-east-1"))
        .endpoint_url(url)
        .credentials_provider(credentials)
        .http_client(http)
        .retry_config(RetryConfig::standard().with_max_attempts(4));
    Client::from_conf(config.build())
}

/// A client with secrets that no error may show.
pub(crate) fn planted(url: &str) -> Client {
    let credentials =
        aws_credential_types::Credentials::new("PLANTED-id", "PLANTED-secret", None, None, "test");
    client(url, credentials, Http::default())
}

fn store(url: &str) -> Arc<dyn Store> {
    let client = client(url, Rotating::default(), Http::default());
    let interval = Duration::from_millis(20);
    Arc::new(DynamoDb::with_client(client, "onetap").timeout(PATIENT).poll_interval(interval))
}

async fn open() -> (Arc<dyn Store>, Dynamo) {
    let server = Dynamo::start().await;
    create_table(&server.url(), "onetap").await;
    (store(&server.url()), server)
}

async fn behind_a_proxy() -> (Arc<dyn Store>, Proxy, Dynamo) {
    let server = Dynamo::start().await;
    create_table(&server.url(), "onetap").await;
    let proxy = Proxy::start(&server.url()).await;
    (store(&proxy.url()), proxy, server)
}

onetap_store::promises! {
    [#[tokio::test(flavor = "multi_thread")]]
    open()
}

#[tokio::test]
async fn the_credentials_provider_of_a_given_client_is_asked_again_when_its_credentials_end() {
    let server = Dynamo::start().await;
    create_table(&server.url(), "onetap").await;
    let http = Http::default();
    let client = client(&server.url(), Rotating::default(), http.clone());
    let store = DynamoDb::with_client(client, "onetap").timeout(PATIENT);
    for _ in 0..3 {
        assert_eq!(store.get(&Names::new().key("k")).await.unwrap(), None);
    }
    assert_eq!(*http.signed_by.lock().unwrap(), ["key0", "key1", "key2"]);
}

#[tokio::test]
async fn a_lost_reply_doubles_nothing_although_the_given_client_retries() {
    let (store, proxy, _server) = behind_a_proxy().await;
    let names = Names::new();
    let (key, log) = (names.key("k"), names.log("l"));
    assert!(matches!(
        store.commit(&Batch::new().put(&key, Expect::Absent, "1", HOUR)).await,
        Ok(Commit::Applied(_))
    ));

    // A retry of the SDK would answer "refused", as if another writer had been first.
    let swap = Batch::new().put(&key, Expect::Is("1".into()), "2", HOUR);
    let before = proxy.requests();
    proxy.inject_next(vec![Fault::DropReply]);
    let error = store.commit(&swap).await.expect_err("a swap cannot know whether it was the one");
    assert!(error.maybe_applied(), "{error:?}");
    assert_eq!(proxy.requests() - before, 1);
    assert_eq!(store.get(&key).await.unwrap().as_deref(), Some("2"));

    // A retry after a 500 would append a second time, once its token is forgotten.
    let append = Batch::new().append(&log, "record", Keep::all_for(HOUR));
    proxy.inject_next(vec![Fault::Delay(Duration::ZERO), Fault::DropReply]);
    let error = store.commit(&append).await.expect_err("an append does not recognise itself");
    assert!(error.maybe_applied(), "{error:?}");
    assert_eq!(store.read(&log, None, 10).await.unwrap().len(), 1);

    // What recognises itself is sent again by the store.
    let marker = names.key("marker");
    let event = Batch::new().put(&marker, Expect::Absent, "mine", HOUR);
    let before = proxy.requests();
    proxy.inject_next(vec![Fault::DropReply]);
    match store.commit(&event).await {
        Ok(Commit::Refused(refusal)) => assert_eq!(refusal.get(&marker), Some(Found::Text("mine"))),
        other => panic!("{other:?}"),
    }
    assert_eq!(proxy.requests() - before, 2);
}

#[tokio::test]
async fn an_empty_answer_to_a_given_client_is_not_taken_for_a_write() {
    let (store, proxy, _server) = behind_a_proxy().await;
    let key = Names::new().key("k");
    for fault in [Fault::Empty, Fault::Html] {
        proxy.inject(Some(fault));
        let error = store.commit(&Batch::new().put(&key, Expect::Absent, "1", HOUR)).await.unwrap_err();
        assert!(error.maybe_applied(), "{error:?}");
        let error = store.get(&key).await.unwrap_err();
        assert!(error.is_retryable(), "{error:?}");
    }
    proxy.inject(None);
    assert_eq!(store.get(&key).await.unwrap(), None);
}

#[tokio::test]
async fn without_credentials_nothing_is_sent() {
    let (_, proxy, _server) = behind_a_proxy().await;
    let store = DynamoDb::with_client(client(&proxy.url(), LoggedOut, Http::default()), "onetap");
    let put = Batch::new().put(&Names::new().key("k"), Expect::Absent, "1", HOUR);
    let error = store.timeout(PATIENT).commit(&put).await.unwrap_err();
    assert!(error.is_retryable() && !error.maybe_applied(), "{error:?}");
    assert!(error.to_string().contains("credentials"), "{error}");
    assert_eq!(proxy.requests(), 0);
}

#[tokio::test]
async fn a_call_over_a_given_client_ends_at_the_time_limit_of_the_store() {
    let (_, proxy, _server) = behind_a_proxy().await;
    proxy.inject(Some(Fault::Hang));
    let given = client(&proxy.url(), Rotating::default(), Http::default());
    let store = DynamoDb::with_client(given, "onetap").timeout(Duration::from_millis(200));
    let put = Batch::new().put(&Names::new().key("k"), Expect::Absent, "1", HOUR);
    let error = tokio::time::timeout(PATIENT, store.commit(&put)).await.expect("in time").unwrap_err();
    assert!(error.maybe_applied(), "{error:?}");
    store.connect().await.expect("nothing to do");
}
