//! dynoxide, and DynamoDB Local where it runs, do what the DynamoDB backend builds on.

use onetap_servers::dynamo::call;
use onetap_servers::{Dynamo, Fault, Proxy, create_table, dynamodb_local};
use serde_json::json;

#[tokio::test]
async fn dynoxide_refuses_a_condition_and_brings_the_old_item() {
    a_refused_condition_brings_the_old_item(&Dynamo::start().await.url()).await;
}

#[tokio::test]
#[ignore = "needs DynamoDB Local"]
async fn dynamodb_local_refuses_a_condition_and_brings_the_old_item() {
    a_refused_condition_brings_the_old_item(&dynamodb_local()).await;
}

async fn a_refused_condition_brings_the_old_item(endpoint: &str) {
    let table = format!("table-{:016x}", getrandom::u64().unwrap());
    create_table(endpoint, &table).await;
    create_table(endpoint, &table).await;
    let put = |value: &str| {
        json!({
            "TableName": table,
            "Item": { "pk": { "S": "k" }, "sk": { "S": "-" }, "value": { "S": value } },
            "ConditionExpression": "attribute_not_exists(pk)",
            "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
        })
    };
    assert_eq!(call(endpoint, "PutItem", &put("first")).await.0, 200);
    let (status, refusal) = call(endpoint, "PutItem", &put("second")).await;
    assert_eq!(status, 400);
    assert!(refusal["__type"].as_str().unwrap().ends_with("ConditionalCheckFailedException"), "{refusal}");
    assert_eq!(refusal["Item"]["value"]["S"], "first");
}

#[tokio::test]
async fn the_proxy_counts_and_names_operations_and_injects_one_fault_a_request() {
    let dynamo = Dynamo::start().await;
    let proxy = Proxy::start(&dynamo.url()).await;
    create_table(&proxy.url(), "table").await;
    assert_eq!(proxy.operations(), ["CreateTable", "DescribeTable"]);

    proxy.inject_next(vec![Fault::Status(400, r#"{"__type":"TransactionConflictException"}"#.to_owned())]);
    let list = async || call(&proxy.url(), "ListTables", &json!({})).await;
    assert_eq!(list().await, (400, json!({ "__type": "TransactionConflictException" })));
    assert_eq!(list().await, (200, json!({ "TableNames": ["table"] })));
    assert_eq!(proxy.requests(), 4);
    assert_eq!(proxy.operations()[2..], ["ListTables", "ListTables"]);
}
