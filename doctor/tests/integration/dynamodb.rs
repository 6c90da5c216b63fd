//! DynamoDB, well and with each fault.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_smithy_types::DateTime;
use aws_smithy_types::date_time::Format;
use http::{Request, Response, StatusCode, header};
use onetap_doctor::{Finding, Status};
use onetap_http::Bytes;
use onetap_servers::dynamo::call;
use onetap_servers::environment::Variable;
use onetap_servers::{Backend, Environment, Proxy};
use serde_json::{Value, json};

use crate::support::{examined_on, faults, only_fault, seen, status, with_functions};

const ENDPOINT: &str = "AWS_ENDPOINT_URL_DYNAMODB";
const TABLE: &str = "DYNAMODB_TABLE";

/// A table as the template makes it, as far as the server goes, for all four functions.
pub(crate) async fn table(backend: Backend) -> Environment {
    let environment = Environment::start(backend).await;
    set_ttl(&environment.lookup(ENDPOINT).unwrap(), &environment.lookup(TABLE).unwrap(), "ttl").await;
    with_functions(environment)
        .with("AWS_ACCESS_KEY_ID", "s3cretid")
        .with("AWS_SECRET_ACCESS_KEY", "s3cretkey")
}

async fn dynamodb() -> Environment {
    table(Backend::DynamoDb).await
}

/// What is found where a proxy answers some requests in DynamoDB's place.
async fn found_with(
    environment: &Environment,
    answer: impl Fn(&str, &Value) -> Option<Response<Bytes>> + Send + Sync + 'static,
) -> Vec<Finding> {
    let proxy = Proxy::start(&environment.lookup(ENDPOINT).unwrap()).await;
    proxy.intercept(move |request: &Request<Bytes>| {
        let target = request.headers().get("x-amz-target")?.to_str().ok()?;
        let input = serde_json::from_slice(request.body()).ok()?;
        answer(target.split_once('.')?.1, &input)
    });
    let variables: Vec<Variable> = environment.variables_with(ENDPOINT, proxy.url());
    examined_on(&variables).await
}

fn answer(status: u16, body: &Value) -> Response<Bytes> {
    let mut answer = Response::new(Bytes::from(body.to_string()));
    *answer.status_mut() = StatusCode::from_u16(status).unwrap();
    answer
}

fn error(code: &str) -> Response<Bytes> {
    // A message may quote keys: nothing of it is shown.
    answer(
        400,
        &json!({ "__type": format!("com.amazonaws.dynamodb.v20120810#{code}"), "message": "s3cret-edit" }),
    )
}

async fn is_found_good_and_left_as_it_was(backend: Backend) {
    let environment = table(backend).await;
    let findings = examined_on(environment.variables()).await;
    assert_eq!(faults(&findings), []);
    for check in ["reachable", "credentials", "clock", "write", "latency", "promises"] {
        assert_eq!(status(&findings, "store", check), Status::Ok, "{findings:#?}");
    }
    for check in ["table", "keys", "ttl"] {
        assert_eq!(status(&findings, "dynamodb", check), Status::Ok, "{findings:#?}");
    }
    for function in ["webhook", "edit-last-transaction", "queue-consumer", "job-events"] {
        assert_eq!(status(&findings, function, "rights"), Status::Ok, "{findings:#?}");
    }
    let scan = json!({ "TableName": environment.lookup(TABLE).unwrap(), "ConsistentRead": true });
    let (_, left) = call(&environment.lookup(ENDPOINT).unwrap(), "Scan", &scan).await;
    assert_eq!(left["Count"], 0, "{left}");
}

#[tokio::test]
async fn a_good_table_is_found_good_and_left_as_it_was_on_dynamodb() {
    is_found_good_and_left_as_it_was(Backend::DynamoDb).await;
}

#[tokio::test]
#[ignore = "needs DynamoDB Local"]
async fn a_good_table_is_found_good_and_left_as_it_was_on_dynamodb_local() {
    is_found_good_and_left_as_it_was(Backend::DynamoDbLocal).await;
}

/// How many items are left after a run in which the first removals are answered with this error.
async fn left_after(code: &'static str) -> (Vec<Finding>, i64) {
    let environment = dynamodb().await;
    let removals = AtomicUsize::new(0);
    let findings = found_with(&environment, move |operation, input| {
        // The store itself asks for keys only to clear a log.
        let keys = operation == "Query" && input["ProjectionExpression"] == "pk, sk";
        let removal = keys && !input["ExpressionAttributeValues"][":name"].is_null();
        (removal && removals.fetch_add(1, Ordering::SeqCst) < 3).then(|| error(code))
    });
    let findings = findings.await;
    let scan = json!({ "TableName": environment.lookup(TABLE).unwrap(), "ConsistentRead": true });
    let (_, left) = call(&environment.lookup(ENDPOINT).unwrap(), "Scan", &scan).await;
    (findings, left["Count"].as_i64().unwrap())
}

#[tokio::test]
async fn a_removal_goes_on_after_a_failure_and_is_repeated_if_it_is_throttled() {
    let (findings, left) = left_after("ProvisionedThroughputExceededException").await;
    assert_eq!((faults(&findings), left), (vec![], 0));
    let (findings, left) = left_after("InternalServerError").await;
    assert_eq!(faults(&findings), [("store", "promises", Status::Warning)]);
    assert!(left < 400, "{left}");
}

#[tokio::test]
async fn an_endpoint_where_nobody_listens_is_unreachable() {
    let environment = dynamodb().await.with(ENDPOINT, "http://127.0.0.1:1");
    let findings = examined_on(environment.variables()).await;
    assert_eq!(faults(&findings), [("store", "reachable", Status::Wrong)]);
}

async fn a_table_that_is_not_there_is_found(backend: Backend) {
    let environment = table(backend).await.with(TABLE, "another");
    let findings = examined_on(environment.variables()).await;
    assert_eq!(faults(&findings), [("dynamodb", "table", Status::Wrong)]);
}

#[tokio::test]
async fn a_table_that_is_not_there_is_found_on_dynamodb() {
    a_table_that_is_not_there_is_found(Backend::DynamoDb).await;
}

#[tokio::test]
#[ignore = "needs DynamoDB Local"]
async fn a_table_that_is_not_there_is_found_on_dynamodb_local() {
    a_table_that_is_not_there_is_found(Backend::DynamoDbLocal).await;
}

async fn set_ttl(endpoint: &str, table: &str, attribute: &str) {
    let ttl = json!({
        "TableName": table,
        "TimeToLiveSpecification": { "AttributeName": attribute, "Enabled": true },
    });
    let (status, answer) = call(endpoint, "UpdateTimeToLive", &ttl).await;
    assert_eq!(status, 200, "{answer}");
}

async fn a_table_with_other_keys_is_found(backend: Backend) {
    let environment = table(backend).await;
    // DynamoDB Local is shared.
    let name = format!("{}-others", environment.lookup(TABLE).unwrap());
    let environment = environment.with(TABLE, &name);
    let endpoint = environment.lookup(ENDPOINT).unwrap();
    let other = json!({
        "TableName": name,
        "BillingMode": "PAY_PER_REQUEST",
        "AttributeDefinitions": [{ "AttributeName": "id", "AttributeType": "S" }],
        "KeySchema": [{ "AttributeName": "id", "KeyType": "HASH" }],
    });
    assert_eq!(call(&endpoint, "CreateTable", &other).await.0, 200);
    set_ttl(&endpoint, &name, "ttl").await;
    let findings = examined_on(environment.variables()).await;
    assert_eq!(faults(&findings), [("dynamodb", "keys", Status::Wrong)]);
}

#[tokio::test]
async fn a_table_with_other_keys_is_found_on_dynamodb() {
    a_table_with_other_keys_is_found(Backend::DynamoDb).await;
}

#[tokio::test]
#[ignore = "needs DynamoDB Local"]
async fn a_table_with_other_keys_is_found_on_dynamodb_local() {
    a_table_with_other_keys_is_found(Backend::DynamoDbLocal).await;
}

/// A table as it is created sweeps nothing, and one that is swept by another attribute does not either.
async fn a_table_that_sweeps_nothing_is_found(backend: Backend) {
    for attribute in [None, Some("end")] {
        let environment = with_functions(Environment::start(backend).await)
            .with("AWS_ACCESS_KEY_ID", "s3cretid")
            .with("AWS_SECRET_ACCESS_KEY", "s3cretkey");
        if let Some(attribute) = attribute {
            let set = |name| environment.lookup(name).unwrap();
            set_ttl(&set(ENDPOINT), &set(TABLE), attribute).await;
        }
        let findings = examined_on(environment.variables()).await;
        assert_eq!(faults(&findings), [("dynamodb", "ttl", Status::Wrong)]);
    }
}

#[tokio::test]
async fn a_table_that_sweeps_nothing_is_found_on_dynamodb() {
    a_table_that_sweeps_nothing_is_found(Backend::DynamoDb).await;
}

#[tokio::test]
#[ignore = "needs DynamoDB Local"]
async fn a_table_that_sweeps_nothing_is_found_on_dynamodb_local() {
    a_table_that_sweeps_nothing_is_found(Backend::DynamoDbLocal).await;
}

#[tokio::test]
async fn a_table_without_point_in_time_recovery_is_a_warning() {
    let environment = dynamodb().await;
    for (state, expected) in [("DISABLED", Status::Warning), ("ENABLED", Status::Ok)] {
        let description = json!({
            "ContinuousBackupsDescription": {
                "ContinuousBackupsStatus": "ENABLED",
                "PointInTimeRecoveryDescription": { "PointInTimeRecoveryStatus": state },
            },
        });
        let findings = found_with(&environment, move |operation, _| {
            (operation == "DescribeContinuousBackups").then(|| answer(200, &description))
        });
        let findings = findings.await;
        assert_eq!(status(&findings, "dynamodb", "point-in-time-recovery"), expected);
        let others = faults(&findings).into_iter().filter(|fault| fault.1 != "point-in-time-recovery");
        assert_eq!(others.count(), 0, "{findings:#?}");
    }
}

#[tokio::test]
async fn a_global_table_is_a_warning_because_two_of_its_regions_can_both_commit() {
    let description = json!({ "Table": {
        "TableStatus": "ACTIVE",
        "KeySchema": [
            { "AttributeName": "pk", "KeyType": "HASH" },
            { "AttributeName": "sk", "KeyType": "RANGE" },
        ],
        "AttributeDefinitions": [
            { "AttributeName": "pk", "AttributeType": "S" },
            { "AttributeName": "sk", "AttributeType": "S" },
        ],
        "Replicas": [{ "RegionName": "eu-west-1", "ReplicaStatus": "ACTIVE" }],
    } });
    let environment = dynamodb().await;
    let findings = found_with(&environment, move |operation, _| {
        (operation == "DescribeTable").then(|| answer(200, &description))
    });
    let findings = findings.await;
    let (check, status, seen, remedy) = only_fault(&findings);
    assert_eq!((check, status), ("table", Status::Warning));
    assert!(seen.contains("eu-west-1") && remedy.contains("one region"), "{seen} {remedy}");
}

#[tokio::test]
async fn a_service_that_fails_is_not_a_wrong_region() {
    let findings = found_with(&dynamodb().await, |_, _| Some(answer(503, &json!({})))).await;
    let (check, status, _, remedy) = only_fault(&findings);
    assert_eq!((check, status), ("reachable", Status::Wrong));
    assert!(remedy.contains("status page") && !remedy.contains("AWS_REGION"), "{remedy}");
}

#[tokio::test]
async fn credentials_that_aws_does_not_accept_are_wrong() {
    for code in ["UnrecognizedClientException", "InvalidSignatureException", "ExpiredTokenException"] {
        let findings = found_with(&dynamodb().await, move |_, _| Some(error(code))).await;
        assert_eq!(faults(&findings), [("store", "credentials", Status::Wrong)]);
    }
}

#[tokio::test]
async fn a_clock_that_is_off_is_wrong_and_not_the_credentials_whose_signature_it_ages() {
    for code in [None, Some("InvalidSignatureException")] {
        let environment = dynamodb().await;
        let findings = found_with(&environment, move |operation, _| {
            let mut answer = code.map_or_else(|| answer(200, &json!({})), error);
            let date = "Wed, 18 Nov 2020 00:00:00 GMT".parse().unwrap();
            answer.headers_mut().insert(header::DATE, date);
            (operation == "GetItem").then_some(answer)
        });
        assert_eq!(faults(&findings.await), [("store", "clock", Status::Wrong)]);
    }
}

/// What is found where DynamoDB's clock is this far ahead.
async fn found_with_skew(millis: i64) -> Vec<Finding> {
    let environment = dynamodb().await;
    let findings = found_with(&environment, move |operation, input| {
        let now = i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis()).unwrap();
        let date = DateTime::from_secs((now + millis).div_euclid(1000)).fmt(Format::HttpDate).unwrap();
        let mut answer = answer(200, &json!({}));
        answer.headers_mut().insert(header::DATE, date.parse().unwrap());
        // The names of promises have a second part.
        let name = input["Key"]["pk"]["S"].as_str().and_then(|pk| pk.strip_prefix("test:"));
        (operation == "GetItem" && name.is_some_and(|name| !name.contains(':'))).then_some(answer)
    });
    findings.await
}

#[tokio::test]
async fn a_skew_of_more_than_a_second_is_always_found() {
    for round in 0..4 {
        // At any time of a second, to which the date is cut.
        tokio::time::sleep(Duration::from_millis(230 * round)).await;
        for skew in [1_500, -1_500] {
            let findings = found_with_skew(skew).await;
            assert_eq!(faults(&findings), [("store", "clock", Status::Wrong)], "{skew} ms");
        }
    }
    for skew in [500, -500] {
        assert_eq!(faults(&found_with_skew(skew).await), [], "{skew} ms");
    }
}

#[tokio::test]
async fn credentials_that_may_do_nothing_with_the_table_are_one_fault() {
    let findings = found_with(&dynamodb().await, |_, _| Some(error("AccessDeniedException"))).await;
    let (check, status, seen, remedy) = only_fault(&findings);
    assert_eq!((check, status), ("table", Status::Wrong));
    assert!(seen.contains("may do nothing"), "{seen}");
    for name in ["DYNAMODB_TABLE", "AWS_REGION", "policy"] {
        assert!(remedy.contains(name), "{remedy}");
    }
}

/// Whether an operation of this name writes.
fn writes(operation: &str) -> bool {
    ["PutItem", "DeleteItem", "BatchWriteItem", "TransactWriteItems"].contains(&operation)
}

#[tokio::test]
async fn credentials_that_may_only_read_are_found_by_the_rights() {
    let deny = |operation: &str, _: &Value| writes(operation).then(|| error("AccessDeniedException"));
    let findings = found_with(&dynamodb().await, deny).await;
    assert!(faults(&findings).iter().all(|(_, check, _)| *check == "rights"), "{findings:#?}");
    assert_eq!(seen(&findings, "store", "write"), "needs webhook rights");
    // No function is used: nothing but the write itself shows it.
    let environment = Environment::start(Backend::DynamoDb).await;
    let environment =
        environment.with("AWS_ACCESS_KEY_ID", "s3cretid").with("AWS_SECRET_ACCESS_KEY", "s3cretkey");
    let (check, _, _, remedy) = only_fault(
        &found_with(&environment, move |operation, input| {
            if operation == "DescribeTimeToLive" {
                let ttl = json!({ "TimeToLiveStatus": "ENABLED", "AttributeName": "ttl" });
                return Some(answer(200, &json!({ "TimeToLiveDescription": ttl })));
            }
            deny(operation, input)
        })
        .await,
    );
    assert_eq!(check, "write");
    assert!(remedy.contains("dynamodb:PutItem"), "{remedy}");
}

#[tokio::test]
async fn a_right_that_a_function_lacks_is_named() {
    let environment = dynamodb().await;
    let findings = found_with(&environment, |operation, input| {
        let forecast = input["Item"]["pk"]["S"].as_str().is_some_and(|pk| pk.starts_with("weather:"));
        (operation == "PutItem" && forecast).then(|| error("AccessDeniedException"))
    });
    let findings = findings.await;
    assert_eq!(faults(&findings), [("webhook", "rights", Status::Wrong)]);
    let seen = findings.iter().find(|it| it.check == "rights").map(|it| it.seen.as_str());
    assert_eq!(seen, Some("denied: PutItem of weather:*"));
}

#[tokio::test]
async fn what_a_functions_role_may_not_do_is_skipped() {
    let environment = dynamodb().await;
    let findings = found_with(&environment, |operation, input| {
        let others = input.to_string().contains("\"test:");
        (operation.starts_with("Describe") || others).then(|| error("AccessDeniedException"))
    });
    let findings = findings.await;
    assert_eq!(faults(&findings), []);
    for check in ["table", "keys", "ttl", "point-in-time-recovery"] {
        assert_eq!(status(&findings, "dynamodb", check), Status::Skipped, "{findings:#?}");
    }
    assert_eq!(status(&findings, "webhook", "rights"), Status::Ok);
    assert_eq!(status(&findings, "store", "promises"), Status::Skipped);
}

/// What a role of the template is answered by a table of which every operation says this.
async fn faults_of_role(code: &'static str) -> Vec<(String, String, Status)> {
    let environment = dynamodb().await;
    let findings = found_with(&environment, move |operation, input| {
        let denied = operation.starts_with("Describe") || input.to_string().contains("\"test:");
        Some(error(if denied { "AccessDeniedException" } else { code }))
    });
    let findings = findings.await;
    let faults = faults(&findings).into_iter();
    faults.map(|(of, check, status)| (of.to_owned(), check.to_owned(), status)).collect()
}

#[tokio::test]
async fn a_functions_role_finds_a_table_that_is_not_there_and_other_keys() {
    let only = |check: &str| [("dynamodb".to_owned(), check.to_owned(), Status::Wrong)];
    assert_eq!(faults_of_role("ResourceNotFoundException").await, only("table"));
    assert_eq!(faults_of_role("ValidationException").await, only("keys"));
}

#[tokio::test]
async fn rights_are_tried_under_the_configured_prefix() {
    let environment = dynamodb().await.with("IDEM_PREFIX", "bot:");
    let findings = found_with(&environment, |operation, input| {
        let claim = input["Item"]["pk"]["S"].as_str().is_some_and(|pk| pk.starts_with("bot:"));
        (operation == "PutItem" && claim).then(|| error("AccessDeniedException"))
    });
    let findings = findings.await;
    let wrong: Vec<_> = faults(&findings).into_iter().map(|(of, check, _)| (of, check)).collect();
    assert_eq!(wrong, [("webhook", "rights"), ("edit-last-transaction", "rights")]);
    assert_eq!(seen(&findings, "webhook", "rights"), "denied: PutItem of bot:*");
    let remedy = findings.iter().find_map(|finding| finding.remedy.as_deref()).unwrap();
    assert!(remedy.contains("`idem:*`") && remedy.contains("IDEM_PREFIX"), "{remedy}");
}
