//! What is left of a user in the server itself, past the store and what it hides.

use onetap_ledger::{Book, Config};
use onetap_servers::dynamo::call;
use serde_json::json;

use super::ledger::possible_months;

/// The server, asked directly.
#[derive(Debug)]
pub(super) enum Traces {
    Redis(redis::Client),
    DynamoDb { endpoint: String, table: String },
}

impl Traces {
    pub(super) fn new(lookup: &dyn Fn(&str) -> Option<String>, redis: Option<&str>) -> Traces {
        match redis {
            Some(url) => Traces::Redis(redis::Client::open(url).unwrap()),
            None => Traces::DynamoDb {
                endpoint: lookup("AWS_ENDPOINT_URL_DYNAMODB").unwrap(),
                table: lookup("DYNAMODB_TABLE").unwrap(),
            },
        }
    }

    /// Everything under the id of `user`. The name of a log that was cleared is no trace of what was in it: Redis keeps it
    /// for a minute, DynamoDB for a week.
    pub(super) async fn of(&self, user: &str, words: &str) -> Vec<String> {
        match self {
            Traces::Redis(client) => {
                let mut connection = client.get_multiplexed_async_connection().await.unwrap();
                let pattern = format!("user:{user}:*");
                let names: Vec<String> =
                    redis::cmd("KEYS").arg(pattern).query_async(&mut connection).await.unwrap();
                let mut traces = Vec::new();
                for name in names {
                    let life: i64 = redis::cmd("PTTL").arg(&name).query_async(&mut connection).await.unwrap();
                    // -2: it has ended meanwhile.
                    if !(name.ends_with("\u{1f}cleared") && matches!(life, -2 | 0..=60_000)) {
                        traces.push(name);
                    }
                }
                traces
            }
            Traces::DynamoDb { endpoint, table } => {
                let book = Book::new(user, Config::default()).unwrap();
                let keys = book.keys().map(|key| key.as_str().to_owned());
                let logs = possible_months(words)
                    .into_iter()
                    .map(|month| book.log(month).unwrap().as_str().to_owned());
                let mut traces = Vec::new();
                for name in keys.into_iter().chain([format!("user:{user}:profile")]).chain(logs) {
                    let query = json!({
                        "TableName": table,
                        "ConsistentRead": true,
                        "KeyConditionExpression": "pk = :name",
                        "ExpressionAttributeValues": { ":name": { "S": name } },
                    });
                    let (status, answer) = call(endpoint, "Query", &query).await;
                    assert_eq!(status, 200, "{answer}");
                    let items = answer["Items"].as_array().unwrap().iter();
                    let is_name_only =
                        |item: &&serde_json::Value| item["sk"]["S"] == "value" && item.get("v").is_none();
                    traces.extend(items.filter(|item| !is_name_only(item)).map(ToString::to_string));
                }
                traces
            }
        }
    }
}
