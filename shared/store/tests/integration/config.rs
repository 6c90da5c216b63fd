//! The environment: what is wrong is said with the variable's name, and no secret is shown.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use onetap_store::{
    Backend, Batch, Commit, Config, Credentials, DynamoDb, Expect, Key, Memory, Redis, Store, Upstash, open,
};

fn config(variables: &[(&str, &str)]) -> Result<Config, String> {
    let variables: HashMap<String, String> =
        variables.iter().map(|(n, v)| (n.to_string(), v.to_string())).collect();
    Config::from_lookup(|name| variables.get(name).cloned()).map_err(|error| error.to_string())
}

const UPSTASH: [(&str, &str); 3] = [
    ("STORE", "upstash"),
    ("UPSTASH_REDIS_REST_URL", "https://eu1-example.upstash.io"),
    ("UPSTASH_REDIS_REST_TOKEN", "planted-token"),
];
const DYNAMODB: [(&str, &str); 5] = [
    ("STORE", "dynamodb"),
    ("DYNAMODB_TABLE", "onetap"),
    ("AWS_REGION", "ap-northeast-1"),
    ("AWS_ACCESS_KEY_ID", "planted-id"),
    ("AWS_SECRET_ACCESS_KEY", "planted-secret"),
];

/// `variables` with one of them changed or left out.
fn with<'a>(
    variables: &[(&'a str, &'a str)],
    name: &'a str,
    value: Option<&'a str>,
) -> Vec<(&'a str, &'a str)> {
    let others = variables.iter().copied().filter(|(n, _)| *n != name);
    others.chain(value.map(|value| (name, value))).collect()
}

#[test]
fn every_wrong_variable_is_named() {
    let cases: Vec<(Vec<(&str, &str)>, &str)> = vec![
        (vec![], "STORE: is not set; it is upstash, dynamodb, redis or memory"),
        (vec![("STORE", "mongo")], "STORE: is not one of upstash, dynamodb, redis or memory"),
        (
            vec![("STORE", "memory"), ("AWS_LAMBDA_FUNCTION_NAME", "f")],
            "STORE: `memory` cannot be used inside Lambda",
        ),
        (
            vec![("STORE", "memory"), ("STORE_TIMEOUT_MS", "0")],
            "STORE_TIMEOUT_MS: is not a whole number above 0",
        ),
        (
            vec![("STORE", "memory"), ("STORE_TIMEOUT_MS", "1s")],
            "STORE_TIMEOUT_MS: is not a whole number above 0",
        ),
        (vec![("STORE", "redis")], "REDIS_URL: is not set"),
        (
            vec![("STORE", "redis"), ("REDIS_URL", "localhost:6379")],
            "REDIS_URL: is not a redis:// or rediss:// URL",
        ),
        (
            vec![("STORE", "redis"), ("REDIS_URL", "redis://")],
            "REDIS_URL: is not a redis:// or rediss:// URL",
        ),
        (with(&UPSTASH, "UPSTASH_REDIS_REST_URL", None), "UPSTASH_REDIS_REST_URL: is not set"),
        (with(&UPSTASH, "UPSTASH_REDIS_REST_URL", Some("")), "UPSTASH_REDIS_REST_URL: is not set"),
        (
            with(&UPSTASH, "UPSTASH_REDIS_REST_URL", Some("upstash.io")),
            "UPSTASH_REDIS_REST_URL: is not an http",
        ),
        (
            with(&UPSTASH, "UPSTASH_REDIS_REST_URL", Some("https://")),
            "UPSTASH_REDIS_REST_URL: is not an http",
        ),
        (
            with(&UPSTASH, "UPSTASH_REDIS_REST_URL", Some("https://a b")),
            "UPSTASH_REDIS_REST_URL: is not an http",
        ),
        (with(&UPSTASH, "UPSTASH_REDIS_REST_TOKEN", None), "UPSTASH_REDIS_REST_TOKEN: is not set"),
        (
            with(&UPSTASH, "UPSTASH_REDIS_REST_TOKEN", Some("two words")),
            "UPSTASH_REDIS_REST_TOKEN: is not a token",
        ),
        (
            with(&UPSTASH, "UPSTASH_REDIS_REST_TOKEN", Some("密碼")),
            "UPSTASH_REDIS_REST_TOKEN: is not a token",
        ),
        (with(&DYNAMODB, "DYNAMODB_TABLE", None), "DYNAMODB_TABLE: is not set"),
        (with(&DYNAMODB, "DYNAMODB_TABLE", Some("a b")), "DYNAMODB_TABLE: is not a table's name"),
        (with(&DYNAMODB, "AWS_REGION", None), "AWS_REGION: is not set"),
        (with(&DYNAMODB, "AWS_ACCESS_KEY_ID", None), "AWS_ACCESS_KEY_ID: is not set"),
        (with(&DYNAMODB, "AWS_SECRET_ACCESS_KEY", None), "AWS_SECRET_ACCESS_KEY: is not set"),
        (
            with(&DYNAMODB, "AWS_ENDPOINT_URL_DYNAMODB", Some("here")),
            "AWS_ENDPOINT_URL_DYNAMODB: is not an http",
        ),
    ];
    for (variables, problem) in cases {
        let error = config(&variables).expect_err(problem);
        assert!(error.starts_with(problem), "{error:?} is not {problem:?}");
    }
}

#[test]
fn an_address_that_nothing_can_connect_to_is_refused_at_the_start() {
    let vercel = [("STORE", "upstash"), ("KV_REST_API_URL", ""), ("KV_REST_API_TOKEN", "t")];
    for wrong in [
        "https://host:99999",
        "https://host:0",
        "https://host:port",
        "https://host:",
        "https://host:80:80",
        "https://[::1",
        "https://::1",
        "https://[::1]x",
        "https://[host]",
        "https://:443",
        "https://name:password@host",
        "https://host?query",
        "https://host/path#part",
        "https://host/a b",
        "ftp://host",
        "//host",
        "host",
    ] {
        for (others, name) in [
            (&UPSTASH[..], "UPSTASH_REDIS_REST_URL"),
            (&vercel, "KV_REST_API_URL"),
            (&DYNAMODB, "AWS_ENDPOINT_URL_DYNAMODB"),
            (&DYNAMODB, "AWS_ENDPOINT_URL"),
        ] {
            let error = config(&with(others, name, Some(wrong))).expect_err(wrong);
            assert_eq!(error, format!("{name}: is not an http:// or https:// URL"), "{wrong}");
        }
    }
    for good in ["http://host", "https://a-b.c_d.example:8443/", "http://127.0.0.1:1/path", "http://[::1]:80"]
    {
        let good = with(&UPSTASH, "UPSTASH_REDIS_REST_URL", Some(good));
        assert!(open(&config(&good).unwrap()).is_ok(), "{good:?}");
    }
    for url in [
        "redis://:planted@host:99999",
        "redis://:planted@host:port",
        "redis://:planted@[::1",
        "redis://:planted@:6379",
        "redis://:planted@host:6379/database",
        "rediss://:planted@host/#insecure",
    ] {
        let read = config(&[("STORE", "redis"), ("REDIS_URL", url)]);
        let error = read.and_then(|config| open(&config).map_err(|error| error.to_string())).expect_err(url);
        assert!(error.starts_with("REDIS_URL: ") && !error.contains("planted"), "{url}: {error}");
    }
}

#[test]
fn what_is_unset_has_the_documented_default() {
    let half_a_second = [("STORE", "memory"), ("STORE_TIMEOUT_MS", "500")];
    assert_eq!(config(&half_a_second[..1]).unwrap(), config(&half_a_second).unwrap());
    let long = [("STORE", "memory"), ("STORE_TIMEOUT_MS", "700")];
    let set = config(&long[..1]).unwrap().timeout(Duration::from_millis(700));
    assert_eq!(set, config(&long).unwrap());
}

#[test]
fn vercel_names_are_accepted() {
    let names =
        [("STORE", "upstash"), ("KV_REST_API_URL", "https://a.upstash.io/"), ("KV_REST_API_TOKEN", "t")];
    let own_names = [
        ("STORE", "upstash"),
        ("UPSTASH_REDIS_REST_URL", "https://a.upstash.io"),
        ("UPSTASH_REDIS_REST_TOKEN", "t"),
    ];
    assert_eq!(config(&names).unwrap(), config(&own_names).unwrap());
    assert_eq!(config(&names).unwrap().backend(), Backend::Upstash);
    let wrong = config(&with(&names, "KV_REST_API_URL", Some("a.upstash.io"))).unwrap_err();
    assert!(wrong.starts_with("KV_REST_API_URL:"), "the name that was used: {wrong}");
}

#[test]
fn the_endpoint_is_the_one_the_sdk_would_read() {
    let read = |more: &[(&'static str, &'static str)]| config(&[&DYNAMODB[..], more].concat()).unwrap();
    let (any, own) = (("AWS_ENDPOINT_URL", "http://any"), ("AWS_ENDPOINT_URL_DYNAMODB", "http://own"));
    let own_of_any = ("AWS_ENDPOINT_URL_DYNAMODB", "http://any");
    assert_ne!(read(&[]), read(&[own]));
    assert_eq!(read(&[any]), read(&[own_of_any]));
    assert_eq!(read(&[any, own]), read(&[own]));
    assert_eq!(read(&[own, ("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "true")]), read(&[]));
}

#[test]
fn only_dynamodb_lacks_shared_logs_and_pub_sub() {
    let redis = [("STORE", "redis"), ("REDIS_URL", "redis://localhost")];
    for variables in [&UPSTASH[..], &redis, &[("STORE", "memory")], &DYNAMODB] {
        let config = config(variables).unwrap();
        let expected = config.backend() != Backend::DynamoDb;
        let capabilities = open(&config).unwrap().capabilities();
        assert_eq!([capabilities.shared_logs, capabilities.pub_sub], [expected; 2], "{variables:?}");
    }
}

#[test]
fn a_backend_is_found_by_its_name() {
    for backend in Backend::ALL {
        assert_eq!(backend.name().parse(), Ok(backend));
    }
}

#[test]
fn no_secret_is_in_debug_output() {
    let session = [&DYNAMODB[..], &[("AWS_SESSION_TOKEN", "planted-session")]].concat();
    let redis = [("STORE", "redis"), ("REDIS_URL", "rediss://user:planted-password@host:6379")];
    for variables in [&UPSTASH[..], &session, &redis] {
        let config = config(variables).unwrap();
        let store = open(&config).unwrap();
        let shown = format!("{config:?} {store:?}");
        assert!(!shown.contains("planted"), "{shown}");
    }
}

#[tokio::test]
async fn memory_shows_nothing_of_what_it_holds() {
    let store: std::sync::Arc<dyn Store> = std::sync::Arc::new(Memory::new());
    let key = Key::new("user:planted").unwrap();
    let put = Batch::new().put(&key, Expect::Absent, "planted value", Duration::from_secs(60));
    assert!(matches!(store.commit(&put).await, Ok(Commit::Applied(_))));
    let shown = format!("{store:?} {put:?} {key:?} {:?}", store.commit(&put).await);
    assert!(!shown.contains("planted"), "{shown}");
}

#[tokio::test]
async fn the_longest_time_limit_is_as_good_as_none() {
    let (nowhere, forever) = ("http://127.0.0.1:1", Duration::MAX);
    let dynamodb = DynamoDb::new("onetap", "local", Credentials::new("any", "any")).endpoint(nowhere);
    let stores: [Arc<dyn Store>; 3] = [
        Arc::new(Upstash::new(nowhere, "token").unwrap().timeout(forever)),
        Arc::new(Redis::new("redis://127.0.0.1:1").unwrap().timeout(forever)),
        Arc::new(dynamodb.timeout(forever)),
    ];
    for store in stores {
        let key = Key::new("key").unwrap();
        assert!(store.get(&key).await.is_err_and(|error| error.is_retryable()), "{store:?}");
        assert!(store.connect().await.is_err(), "{store:?}");
    }
}
