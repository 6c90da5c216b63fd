//! Reads a page of a log, and decides what a missing record means.

use tokio::time::{Duration, Instant, sleep};

use super::item::{HEAD, MIN_GRACE_SECONDS, sort_key};
use super::{DynamoDb, connector};
use crate::{Error, Log, Position, Record};

/// How long `read` waits for a missing record to become visible: the items of a transaction become visible one by one.
const MISSING_RECORD_TIMEOUT: Duration = Duration::from_millis(100);

/// The pause between two reads while a record is missing.
const MISSING_RECORD_PAUSE: Duration = Duration::from_millis(10);

/// A record, and the second from which DynamoDB may delete it.
pub(super) struct StoredRecord {
    pub(super) record: Record,
    pub(super) sweep: Option<u64>,
}

impl StoredRecord {
    fn position(&self) -> Position {
        self.record.position
    }
}

/// Records of a log's current life, in order, and the position of its last one.
struct Life {
    last: Position,
    stored: Vec<StoredRecord>,
}

/// The first position of a life. From here on the positions of a log have no gaps.
fn first_of(last: Position) -> Position {
    Position::new(last.parts().0, 1)
}

impl DynamoDb {
    pub(super) async fn read_log(
        &self,
        log: &Log,
        after: Option<Position>,
        limit: usize,
    ) -> Result<Vec<Record>, Error> {
        let deadline = Instant::now() + self.timeout;
        let mut wait_until = None;
        let mut from = after.map(Position::successor);
        loop {
            // If a record is missing, the record before it is read too: its `ttl` shows why the other may be missing.
            let with_previous = from == after;
            let wanted = limit.saturating_add(usize::from(with_previous));
            let life = connector::by(deadline, self.life(log, from, wanted)).await?;
            let Some(life) = life else { return Ok(Vec::new()) };
            let (records, whole) = life.after(after, limit, with_previous, self.now() / 1000);
            let now = Instant::now();
            let wait_until = *wait_until.get_or_insert(now + MISSING_RECORD_TIMEOUT.min(self.timeout / 2));
            if whole || with_previous && now >= wait_until || now + MISSING_RECORD_PAUSE >= deadline {
                return Ok(records);
            }
            from = after;
            sleep(MISSING_RECORD_PAUSE).await;
        }
    }

    /// Up to `wanted` records of the current life of `log`, from a position on. `None` if the log has expired or does
    /// not exist.
    ///
    /// This is one query if the query reaches the end of the log, where its head is. Otherwise the head is read by
    /// itself, so that no further query goes through records of an earlier life.
    async fn life(&self, log: &Log, from: Option<Position>, wanted: usize) -> Result<Option<Life>, Error> {
        let mut from = from.map_or_else(|| "0".to_owned(), sort_key);
        let mut stored: Vec<StoredRecord> = Vec::new();
        loop {
            let page = self.query(log, &from, (wanted - stored.len()).saturating_add(1)).await?;
            stored.extend(page.stored);
            let head = if page.more { self.query(log, HEAD, 1).await?.head } else { page.head };
            let last = head.map(|head| head.last(self.now())).transpose()?.flatten();
            let Some(last) = last else { return Ok(None) };
            stored.retain(|stored| (first_of(last)..=last).contains(&stored.position()));
            if !page.more || stored.len() >= wanted {
                return Ok(Some(Life { last, stored }));
            }
            from = sort_key(stored.last().map_or(first_of(last), |stored| stored.position().successor()));
        }
    }
}

impl Life {
    /// Up to `limit` records after a position, and whether they are complete (none between them is missing).
    ///
    /// DynamoDB can have deleted only the oldest records, each after its `ttl`: the page continues after these. Any
    /// other missing record is not visible yet, and ends the page. With `with_previous` the record at `after` is here
    /// too, unless DynamoDB has deleted it.
    fn after(
        self,
        after: Option<Position>,
        limit: usize,
        with_previous: bool,
        now: u64,
    ) -> (Vec<Record>, bool) {
        let (first, last) = (first_of(self.last), self.last.parts().1);
        if after >= Some(self.last) {
            return (Vec::new(), true);
        }
        let mut reached = after.filter(|after| *after >= first).map_or(0, |after| after.parts().1);
        let mut may_be_deleted = match reached {
            // No record is deleted before the shortest grace period ends, so a young log has all of its records.
            0 => first.parts().0 / 1000 + MIN_GRACE_SECONDS <= now,
            _ => with_previous,
        };
        let mut whole = true;
        let mut records = Vec::new();
        for StoredRecord { record, sweep } in self.stored {
            if after < Some(record.position) {
                if records.len() == limit {
                    return (records, whole);
                }
                let (_, n) = record.position.parts();
                if n != reached + 1 {
                    whole = false;
                    if !may_be_deleted {
                        return (records, whole);
                    }
                }
                reached = n;
                records.push(record);
            }
            // Later records have the same `ttl` or a later one.
            may_be_deleted = sweep.is_some_and(|sweep| sweep <= now);
        }
        let ended = reached >= last || records.len() == limit;
        (records, whole && ended)
    }
}
