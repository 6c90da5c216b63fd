//! DynamoDB: the table, its settings, and what these credentials may do to it.

mod call;
mod rights;

use std::time::Duration;

use futures_util::future::join_all;
use futures_util::stream::{self, StreamExt};
use onetap_store::lease::unique_token;
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

pub(crate) use self::call::Table;
pub(crate) use self::rights::CHECK as RIGHTS_CHECK;
pub use self::rights::{RIGHTS, Right};

use self::call::{Failure, Reply};
use self::rights::Tried;
use crate::clock::{Skew, describe};
use crate::store::{CLOCK, CREDENTIALS, OF as STORE, REACHABLE};
use crate::{Finding, Report};

const OF: &str = "dynamodb";
pub(crate) const TABLE: &str = "table";
pub(crate) const KEYS: &str = "keys";
const TTL: &str = "ttl";
const RECOVERY: &str = "point-in-time-recovery";

/// AWS refuses a signature whose time is further from its own.
const MAX_SIGNATURE_AGE_MILLIS: u64 = 5 * 60 * 1000;

/// Codes of a request whose sender AWS does not know.
const BAD_CREDENTIALS: [&str; 6] = [
    "UnrecognizedClientException",
    "InvalidSignatureException",
    "ExpiredTokenException",
    "IncompleteSignatureException",
    "MissingAuthenticationTokenException",
    "InvalidClientTokenId",
];

/// Reads that tell the time, and the pause before each: together a bit more than a second.
const CLOCK_READS: usize = 11;
const CLOCK_PAUSE: Duration = Duration::from_millis(100);

/// Time limit for trying the rights of a function.
const RIGHTS_TIMEOUT: Duration = Duration::from_secs(10);

/// Names whose items are looked for at the same time.
const REMOVED_AT_ONCE: usize = 32;
/// Codes of a request that may be sent again a little later.
const THROTTLED: [&str; 3] =
    ["ProvisionedThroughputExceededException", "RequestLimitExceeded", "ThrottlingException"];
/// Before a request that DynamoDB did not take is sent again.
const PAUSE: Duration = Duration::from_millis(100);

const DENIED: &str = "AccessDeniedException";
const NO_TABLE: &str = "ResourceNotFoundException";
/// Of a request that is valid for a table with our keys: the table has others.
const INVALID: &str = "ValidationException";

pub(crate) async fn examine(table: &Table, functions: &[&'static str], report: &mut Report) {
    reach(table, report).await;
    if let Some(needed) = report.first_wrong(&[REACHABLE, CREDENTIALS, CLOCK]).cloned() {
        report.skip(OF, &[TABLE, KEYS, TTL, RECOVERY], &needed);
        functions.iter().for_each(|function| report.skip(function, &[rights::CHECK], &needed));
        return;
    }
    let tries = functions.iter().map(|function| async {
        timeout(RIGHTS_TIMEOUT, Tried::new(table, function)).await.map_err(|_| *function)
    });
    let tried = join_all(tries).await;
    settings(table, tried.iter().flatten(), report).await;
    let needed = report.first_wrong(&[TABLE, KEYS]).cloned();
    for tried in tried {
        report.add(match (&needed, tried) {
            (Some(needed), Ok(Tried { function, .. }) | Err(function)) => {
                Finding::needs(function, rights::CHECK, needed)
            }
            (None, Ok(tried)) => tried.finding(table),
            (None, Err(function)) => {
                let why = format!("DynamoDB did not answer all operations in {} s", RIGHTS_TIMEOUT.as_secs());
                Finding::skipped(function, rights::CHECK, why)
            }
        });
    }
}

/// A read of an item that is not there tells whether DynamoDB answers, knows us, and what time it has.
async fn reach(table: &Table, report: &mut Report) {
    let Reply { answer, skew } = table.read_nothing().await;
    let failure = match &answer {
        Err(Failure::NoAnswer(why)) => {
            Some((*why, "Check AWS_REGION and AWS_ENDPOINT_URL_DYNAMODB, and that this machine may connect."))
        }
        Err(Failure::Unavailable(why)) => {
            Some((*why, "Look at AWS's status page (https://health.aws.amazon.com), and run this again."))
        }
        Ok(_) | Err(Failure::Refused(_)) => None,
    };
    if let Some((why, remedy)) = failure {
        let reachable = Finding::wrong(STORE, REACHABLE, why, remedy);
        report.add(reachable.clone());
        report.skip(STORE, &[CREDENTIALS, CLOCK], &reachable);
        return;
    }
    let skew = match skew {
        Some(skew) => Some(narrowed(table, skew).await),
        None => None,
    };
    report.add(Finding::ok(STORE, REACHABLE, "dynamodb answers"));
    let clock = clock(skew);
    let bad = matches!(&answer, Err(Failure::Refused(code)) if BAD_CREDENTIALS.contains(&&**code));
    let too_old = skew.is_some_and(|skew| skew.certain_millis().unsigned_abs() > MAX_SIGNATURE_AGE_MILLIS);
    report.add(if bad && too_old {
        Finding::needs(STORE, CREDENTIALS, &clock)
    } else if bad {
        let remedy =
            "Set AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and, for a temporary key, AWS_SESSION_TOKEN anew.";
        Finding::wrong(STORE, CREDENTIALS, "AWS does not accept them, or they have expired", remedy)
    } else {
        Finding::ok(STORE, CREDENTIALS, "accepted")
    });
    report.add(clock);
}

/// The date of an answer is cut to seconds: reads around the moment at which it changes tell the skew to a tenth of one. Ends
/// as soon as the skew is certainly too large.
async fn narrowed(table: &Table, first: Skew) -> Skew {
    let mut skew = first;
    for _ in 0..CLOCK_READS {
        if skew.is_too_large() {
            break;
        }
        sleep(CLOCK_PAUSE).await;
        skew = table.read_nothing().await.skew.map_or(skew, |sample| skew.and(sample));
    }
    skew
}

/// The caller's clock judges what has expired: with skew two may hold one lease.
fn clock(skew: Option<Skew>) -> Finding {
    let Some(skew) = skew else {
        return Finding::skipped(STORE, CLOCK, "the answer has no date");
    };
    if !skew.is_too_large() {
        return Finding::ok(STORE, CLOCK, describe(skew));
    }
    let remedy =
        "Synchronise this machine's clock by NTP: on DynamoDB the caller's clock judges what has expired.";
    Finding::wrong(STORE, CLOCK, describe(skew), remedy)
}

/// The table and its settings. A function's role may not look at them: then how its own operations were refused.
async fn settings(table: &Table, tried: impl Iterator<Item = &Tried> + Clone, report: &mut Report) {
    let describe = json!({ "TableName": table.name });
    let (described, ttl, recovery) =
        tokio::join!(table.call("DescribeTable", &describe), ttl(table), recovery(table));
    let is_refused = |code: &str| tried.clone().any(|tried| tried.is_refused(code));
    let described = match described {
        Err(Failure::Refused(code)) if code == DENIED => {
            let other = [NO_TABLE, INVALID].into_iter().find(|code| is_refused(code));
            Err(Failure::Refused(other.map_or(code, str::to_owned)))
        }
        other => other,
    };
    match described {
        Ok(answer) => {
            let table = &answer["Table"];
            report.add(match table["TableStatus"].as_str() {
                Some("ACTIVE" | "UPDATING") => active(table),
                _ => Finding::wrong(
                    OF,
                    TABLE,
                    "not active",
                    "Wait until the console shows the table as active.",
                ),
            });
            report.add(keys(table));
        }
        Err(Failure::Refused(code)) if code == NO_TABLE => {
            let seen = "there is no table of this name in this account and region";
            return no_table(seen, report);
        }
        // AWS judges rights before it looks for the table: a policy for another table denies everything.
        Err(Failure::Refused(code))
            if code == DENIED
                && tried.clone().next().is_some()
                && tried.clone().all(Tried::is_all_denied) =>
        {
            return no_table("these credentials may do nothing with this table", report);
        }
        Err(Failure::Refused(code)) if code == INVALID => {
            report.add(not_seen(TABLE, "DescribeTable", &Failure::Refused(DENIED.to_owned())));
            report.add(other_keys());
        }
        Err(failure) => {
            [TABLE, KEYS].into_iter().for_each(|check| report.add(not_seen(check, "DescribeTable", &failure)))
        }
    }
    report.add(ttl);
    report.add(recovery);
}

/// In a global table a condition is judged in one region: writes of two regions are not compared.
fn active(table: &Value) -> Finding {
    let replicas = table["Replicas"].as_array().map_or(&[][..], Vec::as_slice);
    if replicas.is_empty() {
        return Finding::ok(OF, TABLE, "active");
    }
    let regions: Vec<&str> = replicas.iter().filter_map(|replica| replica["RegionName"].as_str()).collect();
    let seen =
        format!("active, and a global table (also in {}): two regions can both commit", regions.join(", "));
    let remedy = "Let all functions use the table in one region, and no other program write to its replicas.";
    Finding::warning(OF, TABLE, seen, remedy)
}

fn no_table(seen: &str, report: &mut Report) {
    let remedy =
        "Check DYNAMODB_TABLE, AWS_REGION, the account of the credentials, and the table in their policy.";
    let wrong = Finding::wrong(OF, TABLE, seen, remedy);
    report.add(wrong.clone());
    report.skip(OF, &[KEYS, TTL, RECOVERY], &wrong);
}

fn keys(table: &Value) -> Finding {
    let list = |name: &str| table[name].as_array().cloned().unwrap_or_default();
    let text = |name: &str| {
        let defined = list("AttributeDefinitions");
        let attribute = defined.iter().find(|it| it["AttributeName"] == name);
        attribute.is_some_and(|it| it["AttributeType"] == "S")
    };
    let schema: Vec<_> = list("KeySchema");
    let schema: Vec<_> =
        schema.iter().map(|it| (it["AttributeName"].as_str(), it["KeyType"].as_str())).collect();
    let right = [(Some("pk"), Some("HASH")), (Some("sk"), Some("RANGE"))];
    if schema == right && text("pk") && text("sk") {
        return Finding::ok(OF, KEYS, "pk and sk, both of type String (S)");
    }
    other_keys()
}

fn other_keys() -> Finding {
    let remedy = "Create a table with the partition key `pk` and the sort key `sk`, both of type String (S), and name it in \
                  DYNAMODB_TABLE.";
    Finding::wrong(OF, KEYS, "they are not pk and sk, both of type String (S)", remedy)
}

async fn ttl(table: &Table) -> Finding {
    let answer = match table.call("DescribeTimeToLive", &json!({ "TableName": table.name })).await {
        Ok(answer) => answer["TimeToLiveDescription"].clone(),
        Err(failure) => return not_seen(TTL, "DescribeTimeToLive", &failure),
    };
    let on = matches!(answer["TimeToLiveStatus"].as_str(), Some("ENABLED" | "ENABLING"));
    if on && answer["AttributeName"] == "ttl" {
        return Finding::ok(OF, TTL, "on, by the attribute `ttl`");
    }
    let command = format!("`aws dynamodb update-time-to-live --table-name {} …`", table.name);
    let enable = "`--time-to-live-specification Enabled=true,AttributeName=ttl`";
    if on {
        // AWS takes one change of it an hour.
        let remedy = format!("Turn it off in the console, wait an hour, then run {command} with {enable}.");
        return Finding::wrong(OF, TTL, "on, by another attribute: nothing is swept", remedy);
    }
    let remedy = format!("Run {command} with {enable}.");
    Finding::wrong(OF, TTL, "off: what has expired stays for ever", remedy)
}

async fn recovery(table: &Table) -> Finding {
    let answer = match table.call("DescribeContinuousBackups", &json!({ "TableName": table.name })).await {
        Ok(answer) => answer["ContinuousBackupsDescription"]["PointInTimeRecoveryDescription"].clone(),
        Err(failure) => return not_seen(RECOVERY, "DescribeContinuousBackups", &failure),
    };
    if answer["PointInTimeRecoveryStatus"] == "ENABLED" {
        return Finding::ok(OF, RECOVERY, "on");
    }
    let remedy = format!(
        "Run `aws dynamodb update-continuous-backups --table-name {} --point-in-time-recovery-specification \
         PointInTimeRecoveryEnabled=true`.",
        table.name
    );
    Finding::warning(OF, RECOVERY, "off: what is deleted by mistake cannot be brought back", remedy)
}

/// A setting that these credentials may not look at, or that this service does not know, is no fault.
fn not_seen(check: &'static str, operation: &str, failure: &Failure) -> Finding {
    let why = match failure {
        Failure::Refused(code) if code == DENIED => format!("these credentials may not call {operation}"),
        Failure::Refused(_) => format!("{operation} is not answered here"),
        Failure::NoAnswer(why) | Failure::Unavailable(why) => format!("{operation}: {why}"),
    };
    Finding::skipped(OF, check, why)
}

impl Table {
    /// Removes the items under these names: values, heads and records of logs, also those that have expired. Goes on
    /// after a failure, and repeats what is throttled for as long as the caller waits.
    pub(crate) async fn remove(&self, names: &[String]) -> Result<(), String> {
        let removals =
            stream::iter(names).map(|name| self.remove_one(name)).buffer_unordered(REMOVED_AT_ONCE);
        let ended: Vec<Result<(), Failure>> = removals.collect().await;
        ended.into_iter().collect::<Result<(), Failure>>().map_err(|failure| match failure {
            Failure::NoAnswer(why) | Failure::Unavailable(why) => why.to_owned(),
            Failure::Refused(code) => code,
        })
    }

    async fn remove_one(&self, name: &str) -> Result<(), Failure> {
        for keys in self.keys_of(name).await?.chunks(25) {
            let deletes: Vec<Value> =
                keys.iter().map(|key| json!({ "DeleteRequest": { "Key": key } })).collect();
            let mut left = json!({ &self.name: deletes });
            while left.as_object().is_some_and(|left| !left.is_empty()) {
                let mut answer = self.insist("BatchWriteItem", &json!({ "RequestItems": left })).await?;
                left = answer["UnprocessedItems"].take();
                if left.as_object().is_some_and(|left| !left.is_empty()) {
                    sleep(PAUSE).await;
                }
            }
        }
        Ok(())
    }

    /// Calls an operation until it is not throttled.
    async fn insist(&self, operation: &str, input: &Value) -> Result<Value, Failure> {
        loop {
            match self.call(operation, input).await {
                Err(Failure::Refused(code)) if THROTTLED.contains(&&*code) => sleep(PAUSE).await,
                answer => return answer,
            }
        }
    }

    /// Whether these credentials may read the item of this name.
    pub(crate) async fn may_read(&self, name: &str) -> bool {
        !matches!(self.read(name).await.answer, Err(Failure::Refused(code)) if code == DENIED)
    }

    async fn read_nothing(&self) -> Reply {
        self.read(&format!("test:{}", unique_token())).await
    }

    async fn read(&self, name: &str) -> Reply {
        let key = json!({ "pk": { "S": name }, "sk": { "S": "-" } });
        self.call_timed("GetItem", &json!({ "TableName": self.name, "Key": key })).await
    }

    /// The keys of all items under a name.
    async fn keys_of(&self, name: &str) -> Result<Vec<Value>, Failure> {
        let mut query = json!({
            "TableName": self.name,
            "ConsistentRead": true,
            "ProjectionExpression": "pk, sk",
            "KeyConditionExpression": "pk = :name",
            "ExpressionAttributeValues": { ":name": { "S": name } },
        });
        let mut found = Vec::new();
        loop {
            let mut page = self.insist("Query", &query).await?;
            found.extend(page["Items"].as_array().cloned().unwrap_or_default());
            match page["LastEvaluatedKey"].take() {
                Value::Null => return Ok(found),
                start => query["ExclusiveStartKey"] = start,
            }
        }
    }
}
