//! Sends reads, conditional writes and transactions to DynamoDB through the AWS SDK, and maps its errors.

use std::collections::HashMap;
use std::error::Error as StdError;
use std::iter::successors;

use aws_credential_types::provider::error::CredentialsError;
use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::error::{BoxError, ConnectorError, ProvideErrorMetadata, SdkError};
use aws_sdk_dynamodb::operation::delete_item::DeleteItemError;
use aws_sdk_dynamodb::operation::put_item::PutItemError;
use aws_sdk_dynamodb::operation::query::builders::QueryFluentBuilder;
use aws_sdk_dynamodb::operation::transact_write_items::TransactWriteItemsError;
use aws_sdk_dynamodb::types::{
    AttributeValue, ConditionCheck, Delete, KeysAndAttributes, Put,
    ReturnValuesOnConditionCheckFailure as OnFailure, TransactWriteItem, WriteRequest,
};
use tokio::time::{Instant, sleep};

use super::item::{Attributes, Condition, Content, HEAD, Item, ItemKey, sort_key};
use super::read::StoredRecord;
use super::{DynamoDb, backoff, live};
use crate::{Error, Log, Position, Record};

/// DynamoDB transactions are at most 4 MB: keys, new values and the values of conditions.
const MAX_TRANSACTION_BYTES: usize = 4 << 20;

/// Size of an item of a transaction without its key and its values: names, numbers, expressions.
const ITEM_OVERHEAD_BYTES: usize = 256;

/// One item of a write request.
pub(super) struct ItemWrite {
    pub(super) key: ItemKey,
    pub(super) condition: Condition,
    pub(super) action: Action,
}

/// What a request does with an item.
pub(super) enum Action {
    Check,
    Put(Item),
    Delete,
}

/// The result of one query of a log: records, then the log's head, which sorts last.
pub(super) struct Page {
    pub(super) stored: Vec<StoredRecord>,
    /// The log's head, if the query reached it.
    pub(super) head: Option<Item>,
    /// The query did not reach the head: there are more records.
    pub(super) more: bool,
}

/// The answer to a write request.
pub(super) enum Outcome {
    Applied,
    /// Conditions failed; the current items on which they failed.
    Refused(HashMap<ItemKey, Option<Item>>),
    /// Another transaction is writing one of the items. Nothing was written.
    Conflict,
}

/// Sends a request. If the connection breaks and the request is repeatable, sets `lost` and sends it once more.
///
/// The future of a request has several kilobytes. It is boxed, because a future is copied each time it is passed on.
macro_rules! retry_once_if {
    ($repeatable:expr, $lost:expr, $send:expr) => {
        match Box::pin($send).await {
            Err(error) if $repeatable && error.is_interrupted() => {
                *$lost = true;
                Box::pin($send).await
            }
            sent => sent,
        }
    };
}

/// Adds a condition to a request, and asks for the current item if the condition fails. This is a macro because the
/// SDK's builders share no trait.
macro_rules! with_condition {
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
        self.access.client()
    }

    /// Sends the writes: a single check as a read, any other single write as a conditional write (half the price of a
    /// transaction), several writes as a transaction.
    ///
    /// `lost` is set to true if a reply was lost. The writes may then be applied, even if this call or a later one
    /// returns an error.
    pub(super) async fn send(
        &self,
        writes: &[ItemWrite],
        now: u64,
        repeatable: bool,
        lost: &mut bool,
    ) -> Result<Outcome, Error> {
        match writes {
            [] => Ok(Outcome::Applied),
            [ItemWrite { key, condition: Condition::Value(expect), action: Action::Check }] => {
                let there = self.get_one(key).await?;
                let holds = expect.holds(live(&there, now)?);
                let refusal = || Outcome::Refused(HashMap::from([(key.clone(), there.clone())]));
                Ok(if holds { Outcome::Applied } else { refusal() })
            }
            [write] => retry_once_if!(repeatable, lost, self.write(write, now)),
            _ => {
                let size = writes.iter().map(ItemWrite::size).sum();
                if size > MAX_TRANSACTION_BYTES {
                    return Err(Error::too_large(size, MAX_TRANSACTION_BYTES));
                }
                retry_once_if!(repeatable, lost, self.transact(writes, now))
            }
        }
    }

    async fn write(&self, write: &ItemWrite, now: u64) -> Result<Outcome, Error> {
        macro_rules! outcome_of {
            ($request:expr, $errors:ident) => {
                match with_condition!(write.condition.expression(now), $request).send().await {
                    Ok(_) => Ok(Outcome::Applied),
                    Err(error) => match request_error(error) {
                        RequestError::Service($errors::ConditionalCheckFailedException(failed)) => {
                            let there = failed.item().map(Item::read).transpose()?;
                            Ok(Outcome::Refused(HashMap::from([(write.key.clone(), there)])))
                        }
                        RequestError::Service($errors::TransactionConflictException(_)) => {
                            Ok(Outcome::Conflict)
                        }
                        RequestError::Service(error) => Err(error_of_code(error.code())),
                        RequestError::NoAnswer(error) => Err(error),
                    },
                }
            };
        }
        match &write.action {
            Action::Put(item) => {
                let put = self.client().put_item().table_name(&self.table);
                outcome_of!(put.set_item(Some(item.attributes(&write.key))), PutItemError)
            }
            Action::Delete => {
                let delete = self.client().delete_item().table_name(&self.table);
                outcome_of!(delete.set_key(Some(write.key.attributes())), DeleteItemError)
            }
            // Does not happen: `send` turns a single check into a read.
            Action::Check => Err(Error::rejected("a check does not write")),
        }
    }

    async fn transact(&self, writes: &[ItemWrite], now: u64) -> Result<Outcome, Error> {
        let items = writes.iter().map(|write| write.transact_item(&self.table, now));
        let items = items.collect::<Result<Vec<_>, Error>>()?;
        let request = self.client().transact_write_items().set_transact_items(Some(items));
        let reasons = match request.send().await.map_err(request_error) {
            Ok(_) => return Ok(Outcome::Applied),
            Err(RequestError::Service(TransactWriteItemsError::TransactionCanceledException(canceled))) => {
                canceled.cancellation_reasons.unwrap_or_default()
            }
            Err(RequestError::Service(TransactWriteItemsError::TransactionInProgressException(_))) => {
                return Ok(Outcome::Conflict);
            }
            Err(RequestError::Service(error)) => return Err(error_of_code(error.code())),
            Err(RequestError::NoAnswer(failure)) => return Err(failure),
        };
        let mut refused = HashMap::new();
        let mut other = None;
        for (write, reason) in writes.iter().zip(&reasons) {
            match reason.code() {
                Some("ConditionalCheckFailed") => {
                    let there = reason.item().map(Item::read).transpose()?;
                    refused.insert(write.key.clone(), there);
                }
                None | Some("None" | "TransactionConflict") => {}
                Some(code) => other = Some(code),
            }
        }
        match other {
            _ if !refused.is_empty() => Ok(Outcome::Refused(refused)),
            Some(code) => Err(error_of_code(Some(code))),
            None => Ok(Outcome::Conflict),
        }
    }

    pub(super) async fn get_one(&self, key: &ItemKey) -> Result<Option<Item>, Error> {
        let request = || async {
            let request = self.client().get_item().table_name(&self.table).consistent_read(true);
            let answer = request.set_key(Some(key.attributes())).send().await;
            answer.map_err(repeatable_failure)
        };
        retry_once_if!(true, &mut false, request())?.item().map(Item::read).transpose()
    }

    /// Reads items by key; `None` for an absent item.
    pub(super) async fn get_all_items(
        &self,
        keys: Vec<ItemKey>,
        deadline: Instant,
    ) -> Result<HashMap<ItemKey, Option<Item>>, Error> {
        let mut found: HashMap<ItemKey, Option<Item>> = keys.iter().map(|key| (key.clone(), None)).collect();
        // DynamoDB rejects a read that names an item twice.
        let mut unread: Vec<Attributes> = found.keys().map(ItemKey::attributes).collect();
        for attempt in 0.. {
            let wanted = KeysAndAttributes::builder().consistent_read(true).set_keys(Some(unread)).build();
            let wanted = wanted.map_err(|_| Error::rejected("a read without keys"))?;
            let request = || async {
                let request = self.client().batch_get_item().request_items(&self.table, wanted.clone());
                request.send().await.map_err(repeatable_failure)
            };
            let answer = retry_once_if!(true, &mut false, request())?;
            for item in answer.responses().and_then(|tables| tables.get(&self.table)).into_iter().flatten() {
                found.insert(ItemKey::of(item)?, Some(Item::read(item)?));
            }
            let rest = answer.unprocessed_keys.and_then(|mut tables| tables.remove(&self.table));
            unread = rest.map_or_else(Vec::new, |rest| rest.keys);
            if unread.is_empty() {
                break;
            }
            // DynamoDB throttles, or the values are more than the 16 MB of one answer.
            let pause = backoff(attempt);
            if Instant::now() + pause >= deadline {
                return Err(Error::not_sent("DynamoDB left keys unread: too many requests"));
            }
            sleep(pause).await;
        }
        Ok(found)
    }

    /// Reads up to `limit` items of `log`, from a sort key on. The log's head is the last item.
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
            request.send().await.map_err(repeatable_failure)
        };
        let answer = retry_once_if!(true, &mut false, request())?;
        let mut page = Page { stored: Vec::new(), head: None, more: false };
        for attributes in answer.items() {
            match (ItemKey::of(attributes)?.position(), Item::read(attributes)) {
                (Some(position), item) => {
                    let sweep = item.as_ref().ok().and_then(|item| item.sweep);
                    // An item of another program without a text must not hide the others.
                    let text = match item.map(|item| item.content) {
                        Ok(Content::Text(text)) => text,
                        Ok(Content::Log(_)) | Err(_) => String::new(),
                    };
                    page.stored.push(StoredRecord { record: Record { position, text }, sweep });
                }
                (None, head) => page.head = Some(head?),
            }
        }
        page.more = page.head.is_none() && answer.last_evaluated_key().is_some();
        Ok(page)
    }

    /// A page of the keys of `log`'s records up to a position, and where the next page starts; `None` after the last page.
    pub(super) async fn keys_up_to(
        &self,
        log: &Log,
        last: Position,
        start: Option<Attributes>,
    ) -> Result<(Vec<Attributes>, Option<Attributes>), Error> {
        let request = || async {
            let request = self
                .key_query(log)
                .key_condition_expression("pk = :log AND sk <= :last")
                .expression_attribute_values(":last", AttributeValue::S(sort_key(last)))
                .set_exclusive_start_key(start.clone());
            request.send().await.map_err(repeatable_failure)
        };
        let answer = retry_once_if!(true, &mut false, request())?;
        Ok((answer.items.unwrap_or_default(), answer.last_evaluated_key))
    }

    /// The position of the last record of `log` that is in the table.
    pub(super) async fn last_record(&self, log: &Log) -> Result<Option<Position>, Error> {
        let request = || async {
            let request = self
                .key_query(log)
                .key_condition_expression("pk = :log AND sk < :head")
                .expression_attribute_values(":head", AttributeValue::S(HEAD.to_owned()))
                .scan_index_forward(false)
                .limit(1);
            request.send().await.map_err(repeatable_failure)
        };
        let answer = retry_once_if!(true, &mut false, request())?;
        answer.items().first().map_or(Ok(None), |key| Ok(ItemKey::of(key)?.position()))
    }

    fn key_query(&self, log: &Log) -> QueryFluentBuilder {
        self.client()
            .query()
            .table_name(&self.table)
            .consistent_read(true)
            .projection_expression("pk, sk")
            .expression_attribute_values(":log", AttributeValue::S(log.as_str().to_owned()))
    }

    /// Sends up to 25 deletions. Returns those that DynamoDB left unprocessed.
    pub(super) async fn delete_batch(&self, deletes: Vec<WriteRequest>) -> Result<Vec<WriteRequest>, Error> {
        let request = || async {
            let request = self.client().batch_write_item().request_items(&self.table, deletes.clone());
            request.send().await.map_err(repeatable_failure)
        };
        let answer = retry_once_if!(true, &mut false, request())?;
        let rest = answer.unprocessed_items.and_then(|mut tables| tables.remove(&self.table));
        Ok(rest.unwrap_or_default())
    }
}

impl ItemWrite {
    /// An upper bound of the size that DynamoDB counts, in bytes.
    fn size(&self) -> usize {
        let put = match &self.action {
            Action::Put(item) => item.size(),
            Action::Check | Action::Delete => 0,
        };
        ITEM_OVERHEAD_BYTES + self.key.size() + self.condition.size() + put
    }

    fn transact_item(&self, table: &str, now: u64) -> Result<TransactWriteItem, Error> {
        let condition = self.condition.expression(now);
        let builder = TransactWriteItem::builder();
        let built = match &self.action {
            Action::Put(item) => {
                let put = Put::builder().table_name(table);
                let put = put.set_item(Some(item.attributes(&self.key)));
                with_condition!(condition, put).build().map(|put| builder.put(put))
            }
            Action::Delete => {
                let delete = Delete::builder().table_name(table).set_key(Some(self.key.attributes()));
                with_condition!(condition, delete).build().map(|delete| builder.delete(delete))
            }
            Action::Check => {
                let check = ConditionCheck::builder().table_name(table).set_key(Some(self.key.attributes()));
                with_condition!(condition, check).build().map(|check| builder.condition_check(check))
            }
        };
        built.map(|item| item.build()).map_err(|_| Error::rejected("a write without its parts"))
    }
}

/// Why a request failed.
enum RequestError<E> {
    /// DynamoDB answered with this error.
    Service(E),
    /// There is no usable answer.
    NoAnswer(Error),
}

fn request_error<E: StdError + Send + Sync + 'static>(error: SdkError<E>) -> RequestError<E> {
    let failure = match error {
        // After a 5xx it is unknown whether the request was applied: the last case below.
        SdkError::ServiceError(error) if error.raw().status().as_u16() < 500 => {
            return RequestError::Service(error.into_err());
        }
        SdkError::DispatchFailure(_) => match error.into_source() {
            Ok(error) => dispatch_failure(error),
            Err(_) => Error::unknown("the request failed"),
        },
        SdkError::ConstructionFailure(_) => Error::rejected("the request cannot be built"),
        // The error is not kept as a source: it has the body of the answer, which may quote items.
        _ => Error::unknown("an answer that is none of DynamoDB's"),
    };
    RequestError::NoAnswer(failure)
}

/// The failure of a request that has no answer, by the error of its connector.
fn dispatch_failure(error: BoxError) -> Error {
    let mut sources = successors(Some(&*error as &(dyn StdError + 'static)), |error| (*error).source());
    let is_io = error.downcast_ref().is_some_and(ConnectorError::is_io);
    if sources.clone().any(|source| source.is::<CredentialsError>()) {
        return Error::not_sent("the provider of AWS credentials has none").with_source(error);
    }
    match sources.find_map(|source| source.downcast_ref()) {
        Some(onetap_http::Error::NotConnected(_)) => Error::not_sent("no connection").with_source(error),
        Some(onetap_http::Error::Interrupted(_)) => Error::interrupted(error),
        Some(other) => Error::unknown(other.to_string()),
        // A connector that is not ours: whether the request was sent is unknown.
        None if is_io => Error::interrupted(error),
        None => Error::unknown("the request failed").with_source(error),
    }
}

/// The failure of a request that can be repeated. Every error of the service is final.
fn repeatable_failure<E>(error: SdkError<E>) -> Error
where
    E: ProvideErrorMetadata + StdError + Send + Sync + 'static,
{
    match request_error(error) {
        RequestError::Service(error) => error_of_code(error.code()),
        RequestError::NoAnswer(failure) => failure,
    }
}

fn error_of_code(code: Option<&str>) -> Error {
    match code {
        Some("ResourceNotFoundException") => {
            Error::rejected("the table does not exist in this account and region")
        }
        Some(code @ "InvalidSignatureException") => Error::rejected(format!(
            "{code}: the AWS credentials are wrong, or this machine's clock is wrong by minutes"
        )),
        Some(
            code @ ("AccessDeniedException"
            | "UnrecognizedClientException"
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
