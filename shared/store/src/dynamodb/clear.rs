//! Deletes the records of cleared logs from the table.
//!
//! A clear hides the records: the head of the log becomes a tombstone. They are deleted after the commit, as far as the
//! time allows. What is left is deleted after the first append of the next life, or before the commit of another clear. Only records up to the
//! position in the tombstone are deleted: those of a later life of the log have larger positions.

use aws_sdk_dynamodb::types::{DeleteRequest, WriteRequest};
use futures_util::{StreamExt, TryStreamExt, stream};
use tokio::time::{Instant, sleep};

use super::item::{Attributes, Condition, Item, ItemKey};
use super::plan::{Cleared, Seen};
use super::send::{Action, ItemWrite, Outcome};
use super::{DynamoDb, backoff, connector};
use crate::{Error, Log, Position};

/// BatchWriteItem takes at most 25 items.
const MAX_DELETES: usize = 25;

/// How many requests for one log are sent at the same time.
const REQUESTS_AT_ONCE: usize = 4;

/// For how many logs requests are sent at the same time.
const LOGS_AT_ONCE: usize = 8;

/// How often a request to delete is sent again after a failure. (Items that DynamoDB leaves unprocessed are no failure.)
const MAX_FAILURES: u32 = 4;

impl DynamoDb {
    /// Deletes the records of logs that a commit has cleared. The commit is applied also if this fails.
    pub(super) async fn delete_cleared(&self, cleared: Cleared, deadline: Instant) {
        if cleared.is_empty() {
            return;
        }
        let deletions = stream::iter(cleared.iter().map(Ok))
            .try_for_each_concurrent(LOGS_AT_ONCE, |(log, last)| self.delete_records(log, *last, deadline));
        if let Err(error) = connector::by(deadline, deletions).await {
            tracing::debug!(%error, "a log is cleared, and some of its records are still in the table");
        }
    }

    /// Deletes what is left of logs that are gone, each with its last position, if it is known. Returns the heads that
    /// have changed.
    pub(super) async fn delete_leftovers(
        &self,
        gone: &[(&Log, Option<Position>)],
        now: u64,
        deadline: Instant,
    ) -> Result<Seen, Error> {
        let mut deletions = Vec::with_capacity(gone.len());
        for (log, last) in gone {
            deletions.push(self.delete_leftovers_of(log, *last, now, deadline));
        }
        stream::iter(deletions).buffer_unordered(LOGS_AT_ONCE).try_concat().await
    }

    async fn delete_leftovers_of(
        &self,
        log: &Log,
        last: Option<Position>,
        now: u64,
        deadline: Instant,
    ) -> Result<Seen, Error> {
        let (last, changed) = match last {
            Some(last) => (Some(last), Seen::new()),
            None => self.mark_leftovers(log, now, deadline).await?,
        };
        if let Some(last) = last {
            self.delete_records(log, last, deadline).await?;
        }
        Ok(changed)
    }

    /// Writes a tombstone for a log that has records and no head, because DynamoDB has deleted the head first. From then on
    /// a new life of the log has larger positions than these records. Returns the last position, and the head if it is
    /// another one now.
    async fn mark_leftovers(
        &self,
        log: &Log,
        now: u64,
        deadline: Instant,
    ) -> Result<(Option<Position>, Seen), Error> {
        let Some(last) = self.last_record(log).await? else {
            return Ok((None, Seen::new()));
        };
        let (key, tombstone) = (ItemKey::named(log.as_str()), Item::tombstone(last, now));
        let action = Action::Put(tombstone.clone());
        let write = [ItemWrite { key: key.clone(), condition: Condition::NoLog, action }];
        for attempt in 0.. {
            match self.send(&write, now, true, &mut false).await? {
                Outcome::Applied => return Ok((Some(last), Seen::from([(key, Some(tombstone))]))),
                // Another writer was first. What it wrote may be this tombstone, sent before a lost reply.
                Outcome::Refused(there) => return Ok((None, there)),
                Outcome::Conflict => {
                    let pause = backoff(attempt);
                    if Instant::now() + pause >= deadline {
                        break;
                    }
                    sleep(pause).await;
                }
            }
        }
        Err(Error::not_sent("other transactions kept the log busy"))
    }

    /// Deletes the records of `log` up to a position.
    async fn delete_records(&self, log: &Log, last: Position, deadline: Instant) -> Result<(), Error> {
        let mut start = None;
        loop {
            let (keys, next) = self.keys_up_to(log, last, start).await?;
            stream::iter(keys.chunks(MAX_DELETES).map(Ok))
                .try_for_each_concurrent(REQUESTS_AT_ONCE, |keys| self.delete_items(keys, deadline))
                .await?;
            if next.is_none() {
                return Ok(());
            }
            start = next;
        }
    }

    async fn delete_items(&self, keys: &[Attributes], deadline: Instant) -> Result<(), Error> {
        let delete = |key: &Attributes| {
            let key = DeleteRequest::builder().set_key(Some(key.clone())).build();
            let key = key.map_err(|_| Error::rejected("a deletion without its key"))?;
            Ok(WriteRequest::builder().delete_request(key).build())
        };
        let mut unprocessed = keys.iter().map(delete).collect::<Result<Vec<_>, Error>>()?;
        let mut failures = 0;
        for attempt in 0.. {
            match self.delete_batch(unprocessed.clone()).await {
                Ok(rest) => unprocessed = rest,
                Err(error) if error.is_retryable() && failures < MAX_FAILURES => failures += 1,
                Err(error) => return Err(error),
            }
            if unprocessed.is_empty() {
                return Ok(());
            }
            let pause = backoff(attempt);
            if Instant::now() + pause >= deadline {
                break;
            }
            sleep(pause).await;
        }
        Err(Error::not_sent("DynamoDB left items undeleted: too many requests"))
    }
}
