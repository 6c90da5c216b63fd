//! The Upstash gateway, well and with each fault.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::{Request, Response, StatusCode};
use onetap_doctor::{Finding, Status};
use onetap_http::Bytes;
use onetap_servers::environment::Variable;
use onetap_servers::{Backend, Environment, Fault, HttpStub, Proxy};
use serde_json::Value;

use crate::support::{self, examined_on, faults, only_fault, status, with_functions};

const URL: &str = "UPSTASH_REDIS_REST_URL";
const TOKEN: &str = "UPSTASH_REDIS_REST_TOKEN";

async fn upstash() -> Environment {
    Environment::start(Backend::Upstash).await
}

/// A proxy before the gateway.
async fn behind_a_proxy(environment: &Environment) -> (Proxy, Vec<Variable>) {
    let proxy = Proxy::start(&environment.lookup(URL).unwrap()).await;
    let variables = environment.variables_with(URL, proxy.url());
    (proxy, variables)
}

fn is_command(request: &Request<Bytes>, name: &str) -> bool {
    serde_json::from_slice::<Value>(request.body()).is_ok_and(|command| command[0] == name)
}

#[tokio::test]
#[ignore = "needs redis-server"]
async fn a_good_database_is_found_good_and_left_as_it_was_on_upstash() {
    let mut environment = with_functions(upstash().await);
    let variables = environment.variables().to_vec();
    let before = environment.redis().unwrap().commands().await;
    let findings = examined_on(&variables).await;
    let billed = environment.redis().unwrap().commands().await - before;
    assert!(billed <= 5000, "{billed} commands: the README says up to 5 000");
    assert_eq!(faults(&findings), []);
    for check in ["reachable", "credentials", "clock", "write", "latency", "promises"] {
        assert_eq!(status(&findings, "store", check), Status::Ok, "{findings:#?}");
    }
    for check in ["version", "cluster", "role", "eviction", "publish", "key-locking"] {
        assert_eq!(status(&findings, "upstash", check), Status::Ok, "{findings:#?}");
    }
    let client = redis::Client::open(environment.redis().unwrap().url()).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let left: i64 = redis::cmd("DBSIZE").query_async(&mut connection).await.unwrap();
    assert_eq!(left, 0);
}

#[tokio::test]
#[ignore = "needs redis-server"]
async fn a_wrong_token_is_found() {
    let environment = upstash().await.with(TOKEN, "another-t0ken");
    let findings = examined_on(environment.variables()).await;
    assert_eq!(faults(&findings), [("store", "credentials", Status::Wrong)]);
}

#[tokio::test]
#[ignore = "needs redis-server"]
async fn the_names_of_vercel_are_read_too() {
    let environment = upstash().await;
    let set = |name| environment.lookup(name).unwrap();
    let variables = [
        ("STORE", "upstash".to_owned()),
        ("KV_REST_API_URL", set(URL)),
        ("KV_REST_API_TOKEN", "another-t0ken".to_owned()),
    ];
    let (check, status, _, remedy) = only_fault(&examined_on(&variables).await);
    assert_eq!((check, status), ("credentials", Status::Wrong));
    assert!(remedy.contains("KV_REST_API_TOKEN"), "{remedy}");
}

#[tokio::test]
async fn a_service_that_is_busy_or_fails_is_not_a_wrong_address() {
    for (code, word) in [(429, "plan"), (503, "status page")] {
        let broken = HttpStub::always(Fault::Status(code, r#"{"error":"no"}"#.to_owned()));
        let variables =
            [("STORE", "upstash".to_owned()), (URL, broken.url()), (TOKEN, "s3cret-t0ken".to_owned())];
        let (check, status, _, remedy) = only_fault(&examined_on(&variables).await);
        assert_eq!((check, status), ("reachable", Status::Wrong));
        assert!(remedy.contains(word) && !remedy.contains(URL), "{remedy}");
    }
}

#[tokio::test]
#[ignore = "needs redis-server"]
async fn eviction_is_a_warning() {
    let environment = upstash().await;
    let (proxy, variables) = behind_a_proxy(&environment).await;
    proxy.intercept(|request| {
        let info = r#"{"result":"maxmemory_policy:optimistic-volatile\r\n"}"#;
        is_command(request, "INFO").then(|| Response::new(Bytes::from(info)))
    });
    let findings = examined_on(&variables).await;
    let (check, status, seen, _) = only_fault(&findings);
    assert_eq!((check, status), ("eviction", Status::Warning));
    assert!(seen.starts_with("optimistic-volatile: "), "{seen}");
    assert_eq!(support::seen(&findings, "store", "promises"), "needs upstash eviction");
}

/// How many keys are left after a run in which the first removal is answered with this.
async fn left_after(status: u16, error: &'static str) -> (Vec<Finding>, i64) {
    let mut environment = upstash().await;
    let (proxy, variables) = behind_a_proxy(&environment).await;
    let removals = AtomicUsize::new(0);
    proxy.intercept(move |request| {
        (is_command(request, "DEL") && removals.fetch_add(1, Ordering::SeqCst) == 0).then(|| {
            let mut answer = Response::new(Bytes::from(error));
            *answer.status_mut() = StatusCode::from_u16(status).unwrap();
            answer
        })
    });
    let findings = examined_on(&variables).await;
    let client = redis::Client::open(environment.redis().unwrap().url()).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let left = redis::cmd("DBSIZE").query_async(&mut connection).await.unwrap();
    (findings, left)
}

#[tokio::test]
#[ignore = "needs redis-server"]
async fn a_removal_goes_on_after_a_failure_and_is_repeated_if_the_service_is_busy() {
    let (findings, left) = left_after(429, r#"{"error":"busy"}"#).await;
    assert_eq!((faults(&findings), left), (vec![], 0));
    let (findings, left) = left_after(400, r#"{"error":"ERR no"}"#).await;
    assert_eq!(faults(&findings), [("store", "promises", Status::Warning)]);
    assert!((1..=100).contains(&left), "{left}");
}

#[tokio::test]
#[ignore = "needs redis-server"]
async fn a_value_that_cannot_be_removed_by_a_batch_is_removed() {
    let mut environment = upstash().await;
    let (proxy, variables) = behind_a_proxy(&environment).await;
    // The batch that deletes is refused; the command that deletes is not.
    let writes = AtomicUsize::new(0);
    proxy.intercept(move |request| {
        let body = String::from_utf8_lossy(request.body()).into_owned();
        let again = body.contains("test:") && !body.contains("[\"GET\"") && !body.contains("[\"DEL\"");
        (again && writes.fetch_add(1, Ordering::SeqCst) > 0).then(|| {
            let mut answer = Response::new(Bytes::from(r#"{"error":"ERR no"}"#));
            *answer.status_mut() = StatusCode::BAD_REQUEST;
            answer
        })
    });
    assert_eq!(faults(&examined_on(&variables).await), [("store", "write", Status::Wrong)]);
    let client = redis::Client::open(environment.redis().unwrap().url()).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let left: i64 = redis::cmd("DBSIZE").query_async(&mut connection).await.unwrap();
    assert_eq!(left, 0);
}

#[tokio::test]
async fn what_is_not_upstash_is_unreachable() {
    for fault in [Fault::Html, Fault::Empty, Fault::Close, Fault::Status(503, "no".to_owned())] {
        let broken = HttpStub::always(fault);
        let variables =
            [("STORE", "upstash".to_owned()), (URL, broken.url()), (TOKEN, "s3cret-t0ken".to_owned())];
        assert_eq!(faults(&examined_on(&variables).await), [("store", "reachable", Status::Wrong)]);
    }
}

#[tokio::test]
#[ignore = "needs redis-server"]
async fn a_script_that_may_not_publish_where_a_command_may_is_a_warning() {
    let environment = upstash().await;
    environment.gateway().unwrap().refuse_publish_in_scripts(true);
    let findings = examined_on(environment.variables()).await;
    assert_eq!(faults(&findings), [("upstash", "publish", Status::Warning)]);
}

#[tokio::test]
#[ignore = "needs redis-server"]
async fn a_server_that_does_not_understand_the_key_locking_line_is_a_warning() {
    let environment = upstash().await;
    environment.gateway().unwrap().pass_on_the_key_locking_line(true);
    let findings = examined_on(environment.variables()).await;
    assert_eq!(faults(&findings), [("upstash", "key-locking", Status::Warning)]);
}

#[tokio::test]
#[ignore = "needs redis-server"]
async fn a_clock_that_is_off_is_a_warning() {
    let environment = upstash().await;
    let (proxy, variables) = behind_a_proxy(&environment).await;
    proxy.intercept(|request| {
        is_command(request, "TIME").then(|| Response::new(Bytes::from(r#"{"result":["1700000000","0"]}"#)))
    });
    assert_eq!(faults(&examined_on(&variables).await), [("store", "clock", Status::Warning)]);
}

#[tokio::test]
#[ignore = "needs redis-server"]
async fn a_store_that_is_slower_than_its_time_limit_is_wrong() {
    let environment = upstash().await.with("STORE_TIMEOUT_MS", "50");
    let (proxy, variables) = behind_a_proxy(&environment).await;
    proxy.inject(Some(Fault::Delay(Duration::from_millis(60))));
    assert_eq!(faults(&examined_on(&variables).await), [("store", "latency", Status::Wrong)]);
}

#[tokio::test]
#[ignore = "needs redis-server"]
async fn a_plan_that_is_used_up_is_the_only_fault() {
    let environment = upstash().await;
    let (proxy, variables) = behind_a_proxy(&environment).await;
    proxy.intercept(|_| {
        let error = r#"{"error":"ERR max requests limit exceeded. Limit: 500000, Usage: 500000."}"#;
        let mut answer = Response::new(Bytes::from(error));
        *answer.status_mut() = StatusCode::BAD_REQUEST;
        Some(answer)
    });
    let findings = examined_on(&variables).await;
    let (check, status, _, remedy) = only_fault(&findings);
    assert_eq!((check, status), ("reachable", Status::Wrong));
    assert!(remedy.contains("plan"), "{remedy}");
}
