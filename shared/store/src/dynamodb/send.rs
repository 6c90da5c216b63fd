//! Requests to DynamoDB, and what its answers mean.

use std::collections::HashMap;

use aws_credential_types::Credentials as AwsCredentials;
use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::retry::RetryConfig;
use aws_sdk_dynamodb::config::timeout::TimeoutConfig;
use aws_sdk_dynamodb::config::{BehaviorVersion, Region, StalledStreamProtectionConfig};
use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_dynamodb::operation::delete_item::DeleteItemError;
use aws_sdk_dynamodb::operation::put_item::PutItemError;
use aws_sdk_dynamodb::operation::transact_write_items::TransactWriteItemsError;
use aws_sdk_dynamodb::types::{
    AttributeValue, ConditionCheck, Delete, KeysAndAttributes, Put,
    ReturnValuesOnConditionCheckFailure as OnFailure, TransactWriteItem,
};
use tokio::time::{Instant, sleep};

use super::connector::Connector;
use super::item::{Attributes, Condition, HEAD, Held, Kept, Place};
use super::read::Stored;
use super::{DynamoDb, backoff, live};
use crate::{Error, Log, Record};
use onetap_config::Secret;

/// DynamoDB takes transactions of 4 MB, counting keys, new values and the values of conditions.
const MAX_TRANSACTION: usize = 4 << 20;

/// What an item of a transaction takes besides its key and its values: names, numbers, expressions.
const ITEM_OVERHEAD: usize = 256;

/// One item of a request.
pub(super) struct Change {
    pub(super) place: Place,
    pub(super) condition: Condition,
    pub(super) action: Action,
}

/// What becomes of the item.
pub(super) enum Action {
    Check,
    Put(Kept),
    Delete,
}

/// What one query of a log brought.
pub(super) struct Page {
    pub(super) stored: Vec<Stored>,
    /// The head, if the query came so far.
    pub(super) head: Option<Kept>,
    /// It did not come so far.
    pub(super) more: bool,
}

/// What became of the request.
pub(super) enum Sent {
    Applied,
    /// Conditions failed: the items they failed on, as they are.
    Refused(HashMap<Place, Option<Kept>>),
    /// Another transaction has its hands on an item; nothing was decided.
    Contended,
}

/// A request that gave no answer.
enum Failure {
    /// The connection broke; what is repeatable may be sent once more over a new one.
    Interrupted,
    Final(Error),
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Error {
        match failure {
            Failure::Interrupted => Error::unknown("the connection broke before the answer was whole"),
            Failure::Final(error) => error,
        }
    }
}

/// Sends, and sends once more where the connection broke and that is allowed; `lost` remembers that it did.
macro_rules! twice_if {
    ($repeatable:expr, $lost:expr, $send:expr) => {
        match $send.await {
            Err(Failure::Interrupted) if $repeatable => {
                *$lost = true;
                $send.await
            }
            sent => sent,
        }
        .map_err(Error::from)
    };
}

/// Puts a request under a condition, and has it bring the item that fails it. Every builder of the SDK has these three
/// by itself: there is no trait to write this once for.
macro_rules! under {
    ($condition:expr, $request:expr) => {{
        let (expression, values) = $condition;
        $request
            .set_condition_expression(expression)
            .set_expression_attribute_values(values)
            .return_values_on_condition_check_failure(OnFailure::AllOld)
    }};
}

impl DynamoDb {
    fn client(&self) -> &Client {
        self.client.get_or_init(|| {
            let token = self.credentials.session_token.as_ref().map(|token| token.reveal().to_owned());
            let reveal = |secret: &Secret| secret.reveal().to_owned();
            let credentials = AwsCredentials::new(
                reveal(&self.credentials.access_key_id),
                reveal(&self.credentials.secret_access_key),
                token,
                None,
                "environment",
            );
            let mut config = aws_sdk_dynamodb::Config::builder()
                .behavior_version(BehaviorVersion::latest())
                .region(Region::new(self.region.clone()))
                .credentials_provider(credentials)
                .http_client(Connector::new(self.limit))
                // Ours are better informed: they know what may be sent twice, and how much time is left.
                .retry_config(RetryConfig::disabled())
                .timeout_config(TimeoutConfig::disabled())
                .stalled_stream_protection(StalledStreamProtectionConfig::disabled());
            config.set_endpoint_url(self.endpoint.clone());
            Client::from_conf(config.build())
        })
    }

    /// Sends the changes: a plain conditional write for one (half the price of a transaction), a transaction for
    /// more, and for a lone check a read.
    ///
    /// `lost` is set if a reply was: whatever comes of the request then, or of one that follows it, it may have landed.
    pub(super) async fn send(
        &self,
        changes: &[Change],
        now: u64,
        repeatable: bool,
        lost: &mut bool,
    ) -> Result<Sent, Error> {
        match changes {
            [] => Ok(Sent::Applied),
            [Change { place, condition: Condition::Value(expect), action: Action::Check }] => {
                let there = self.get_one(place).await?;
                let holds = expect.holds(live(&there, now)?);
                let refusal = || Sent::Refused(HashMap::from([(place.clone(), there.clone())]));
                Ok(if holds { Sent::Applied } else { refusal() })
            }
            [change] => twice_if!(repeatable, lost, self.write(change, now)),
            _ => {
                let size = changes.iter().map(Change::size).sum();
                if size > MAX_TRANSACTION {
                    return Err(Error::TooLarge { size, limit: MAX_TRANSACTION });
                }
                twice_if!(repeatable, lost, self.transact(changes, now))
            }
        }
    }

    async fn write(&self, change: &Change, now: u64) -> Result<Sent, Failure> {
        let condition = change.condition.expression(now);
        let refused = |item: Option<&Attributes>| {
            let there = item.map(Kept::read).transpose().map_err(Failure::Final)?;
            Ok(Sent::Refused(HashMap::from([(change.place.clone(), there)])))
        };
        match &change.action {
            Action::Put(kept) => {
                let put = self.client().put_item().table_name(&self.table);
                let put = put.set_item(Some(kept.attributes(&change.place)));
                match under!(condition, put).send().await.map_err(service) {
                    Ok(_) => Ok(Sent::Applied),
                    Err(Ok(PutItemError::ConditionalCheckFailedException(failed))) => refused(failed.item()),
                    Err(Ok(PutItemError::TransactionConflictException(_))) => Ok(Sent::Contended),
                    Err(Ok(error)) => Err(Failure::Final(meaning(error.code()))),
                    Err(Err(failure)) => Err(failure),
                }
            }
            // `send` answers a lone check with a read.
            Action::Check => Err(Failure::Final(Error::rejected("a check is no write"))),
            Action::Delete => {
                let delete = self.client().delete_item().table_name(&self.table);
                let delete = delete.set_key(Some(change.place.attributes()));
                match under!(condition, delete).send().await.map_err(service) {
                    Ok(_) => Ok(Sent::Applied),
                    Err(Ok(DeleteItemError::ConditionalCheckFailedException(failed))) => {
                        refused(failed.item())
                    }
                    Err(Ok(DeleteItemError::TransactionConflictException(_))) => Ok(Sent::Contended),
                    Err(Ok(error)) => Err(Failure::Final(meaning(error.code()))),
                    Err(Err(failure)) => Err(failure),
                }
            }
        }
    }

    async fn transact(&self, changes: &[Change], now: u64) -> Result<Sent, Failure> {
        let items = changes.iter().map(|change| change.transact_item(&self.table, now));
        let items = items.collect::<Result<Vec<_>, Error>>().map_err(Failure::Final)?;
        let request = self.client().transact_write_items().set_transact_items(Some(items));
        let reasons = match request.send().await.map_err(service) {
            Ok(_) => return Ok(Sent::Applied),
            Err(Ok(TransactWriteItemsError::TransactionCanceledException(canceled))) => {
                canceled.cancellation_reasons.unwrap_or_default()
            }
            Err(Ok(TransactWriteItemsError::TransactionInProgressException(_))) => {
                return Ok(Sent::Contended);
            }
            Err(Ok(error)) => return Err(Failure::Final(meaning(error.code()))),
            Err(Err(failure)) => return Err(failure),
        };
        let mut refused = HashMap::new();
        let mut other = None;
        for (change, reason) in changes.iter().zip(&reasons) {
            match reason.code() {
                Some("ConditionalCheckFailed") => {
                    let there = reason.item().map(Kept::read).transpose().map_err(Failure::Final)?;
                    refused.insert(change.place.clone(), there);
                }
                None | Some("None" | "TransactionConflict") => {}
                Some(code) => other = Some(code),
            }
        }
        match other {
            _ if !refused.is_empty() => Ok(Sent::Refused(refused)),
            Some(code) => Err(Failure::Final(meaning(Some(code)))),
            None => Ok(Sent::Contended),
        }
    }

    pub(super) async fn get_one(&self, place: &Place) -> Result<Option<Kept>, Error> {
        let request = || async {
            let request = self.client().get_item().table_name(&self.table).consistent_read(true);
            let answer = request.set_key(Some(place.attributes())).send().await;
            answer.map_err(|error| failed(service(error)))
        };
        twice_if!(true, &mut false, request())?.item().map(Kept::read).transpose()
    }

    /// Every place with what lies there, `None` where nothing does.
    pub(super) async fn get_all(
        &self,
        places: Vec<Place>,
        deadline: Instant,
    ) -> Result<HashMap<Place, Option<Kept>>, Error> {
        let mut found: HashMap<Place, Option<Kept>> =
            places.iter().map(|place| (place.clone(), None)).collect();
        let mut keys: Vec<Attributes> = places.iter().map(Place::attributes).collect();
        for attempt in 0.. {
            let wanted = KeysAndAttributes::builder().consistent_read(true).set_keys(Some(keys)).build();
            let wanted = wanted.map_err(|_| Error::rejected("a read without keys"))?;
            let request = || async {
                let request = self.client().batch_get_item().request_items(&self.table, wanted.clone());
                request.send().await.map_err(|error| failed(service(error)))
            };
            let answer = twice_if!(true, &mut false, request())?;
            for item in answer.responses().and_then(|tables| tables.get(&self.table)).into_iter().flatten() {
                found.insert(Place::of(item)?, Some(Kept::read(item)?));
            }
            let rest = answer.unprocessed_keys.and_then(|mut tables| tables.remove(&self.table));
            keys = rest.map_or_else(Vec::new, |rest| rest.keys);
            if keys.is_empty() {
                break;
            }
            // A batch is under the 16 MB that one answer holds: keys are left over where DynamoDB throttles.
            let pause = backoff(attempt);
            if Instant::now() + pause >= deadline {
                return Err(Error::not_sent("DynamoDB left keys unread: too many requests"));
            }
            sleep(pause).await;
        }
        Ok(found)
    }

    /// Items of `log` from a sort key on, up to its head, at most `limit`.
    pub(super) async fn query(&self, log: &Log, from: &str, limit: usize) -> Result<Page, Error> {
        let request = || async {
            let request = self
                .client()
                .query()
                .table_name(&self.table)
                .consistent_read(true)
                .key_condition_expression("pk = :log AND sk BETWEEN :from AND :head")
                .expression_attribute_values(":log", AttributeValue::S(log.as_str().to_owned()))
                .expression_attribute_values(":from", AttributeValue::S(from.to_owned()))
                .expression_attribute_values(":head", AttributeValue::S(HEAD.to_owned()))
                .limit(i32::try_from(limit).unwrap_or(i32::MAX));
            request.send().await.map_err(|error| failed(service(error)))
        };
        let answer = twice_if!(true, &mut false, request())?;
        let mut page = Page { stored: Vec::new(), head: None, more: false };
        for item in answer.items() {
            let kept = Kept::read(item)?;
            match (Place::of(item)?.position(), kept.held) {
                (Some(position), Held::Text(text)) => {
                    page.stored.push(Stored { record: Record { position, text }, sweep: kept.sweep });
                }
                (Some(_), Held::Log(_)) => return Err(Error::decode("a record without its text")),
                (None, held) => page.head = Some(Kept { held, ..kept }),
            }
        }
        page.more = page.head.is_none() && answer.last_evaluated_key().is_some();
        Ok(page)
    }
}

impl Change {
    /// In bytes, rather more than DynamoDB counts.
    fn size(&self) -> usize {
        let put = match &self.action {
            Action::Put(kept) => kept.size(),
            Action::Check | Action::Delete => 0,
        };
        ITEM_OVERHEAD + self.place.size() + self.condition.size() + put
    }

    fn transact_item(&self, table: &str, now: u64) -> Result<TransactWriteItem, Error> {
        let condition = self.condition.expression(now);
        let item = TransactWriteItem::builder();
        let item = match &self.action {
            Action::Put(kept) => {
                let put = Put::builder().table_name(table);
                let put = put.set_item(Some(kept.attributes(&self.place)));
                under!(condition, put).build().map(|put| item.put(put))
            }
            Action::Delete => {
                let delete = Delete::builder().table_name(table).set_key(Some(self.place.attributes()));
                under!(condition, delete).build().map(|delete| item.delete(delete))
            }
            Action::Check => {
                let check =
                    ConditionCheck::builder().table_name(table).set_key(Some(self.place.attributes()));
                under!(condition, check).build().map(|check| item.condition_check(check))
            }
        };
        item.map(|item| item.build()).map_err(|_| Error::rejected("a write without its parts"))
    }
}

/// The service's own error, or why there is none.
fn service<E>(error: SdkError<E>) -> Result<E, Failure> {
    let failure = match error {
        SdkError::ServiceError(error) if error.raw().status().as_u16() < 500 => return Ok(error.into_err()),
        SdkError::DispatchFailure(dispatch) => {
            let source = dispatch.as_connector_error().and_then(|error| std::error::Error::source(error));
            match source.and_then(|source| source.downcast_ref()) {
                Some(onetap_http::Error::NotConnected) => Failure::Final(Error::not_sent("no connection")),
                Some(onetap_http::Error::Interrupted) => Failure::Interrupted,
                Some(other) => Failure::Final(Error::unknown(other.to_string())),
                None => Failure::Final(Error::unknown("the request failed")),
            }
        }
        SdkError::ConstructionFailure(_) => Failure::Final(Error::rejected("the request cannot be built")),
        _ => Failure::Final(Error::unknown("an answer that is none of DynamoDB's")),
    };
    Err(failure)
}

/// A failed read: every error of the service is final.
fn failed<E: ProvideErrorMetadata>(error: Result<E, Failure>) -> Failure {
    match error {
        Ok(error) => Failure::Final(meaning(error.code())),
        Err(failure) => failure,
    }
}

fn meaning(code: Option<&str>) -> Error {
    match code {
        Some("ResourceNotFoundException") => {
            Error::rejected("the table that DYNAMODB_TABLE names does not exist in this account and region")
        }
        Some(
            code @ ("AccessDeniedException"
            | "UnrecognizedClientException"
            | "InvalidSignatureException"
            | "ExpiredTokenException"
            | "IncompleteSignatureException"
            | "MissingAuthenticationTokenException"),
        ) => Error::rejected(format!("{code}: the AWS credentials are wrong, or may not do this")),
        Some(
            code @ ("ThrottlingException"
            | "ThrottlingError"
            | "ProvisionedThroughputExceededException"
            | "ProvisionedThroughputExceeded"
            | "RequestLimitExceeded"),
        ) => Error::not_sent(format!("{code}: too many requests")),
        Some(
            code @ ("ValidationException"
            | "ValidationError"
            | "ItemCollectionSizeLimitExceeded"
            | "ItemCollectionSizeLimitExceededException"),
        ) => Error::rejected(format!("{code}: DynamoDB does not take this request")),
        _ => Error::unknown("an error of the service"),
    }
}
