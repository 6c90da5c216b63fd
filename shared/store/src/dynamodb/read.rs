//! Reading a log: a page of its records, and what a missing one means.

use tokio::time::{Duration, Instant, sleep};

use super::item::{HEAD, sort_key};
use super::{DynamoDb, RECORD_GRACE, connector};
use crate::{Error, Log, Position, Record};

/// How long `read` waits at a hole for the record that belongs there: transactions become visible item by item.
const HOLE_PATIENCE: Duration = Duration::from_millis(100);

/// The pause between two looks at a hole.
const HOLE_PAUSE: Duration = Duration::from_millis(10);

/// A record, and the second from which it may be swept.
pub(super) struct Stored {
    pub(super) record: Record,
    pub(super) sweep: Option<u64>,
}

impl Stored {
    fn position(&self) -> Position {
        self.record.position
    }
}

/// Records of a log's current life, in order, and the position of its last one.
struct Life {
    last: Position,
    stored: Vec<Stored>,
}

/// Where a life begins: a log's positions are dense from here on.
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
        let deadline = Instant::now() + self.limit;
        let mut patience = None;
        let mut from = after.map(Position::successor);
        loop {
            // After a hole was seen, the record ahead of it is looked at too: it tells what the hole can be.
            let closer = from == after;
            let wanted = limit.saturating_add(usize::from(closer));
            let life = connector::by(deadline, self.life(log, from, wanted)).await?;
            let Some(life) = life else { return Ok(Vec::new()) };
            let (records, whole) = life.after(after, limit, closer, self.now() / 1000);
            let now = Instant::now();
            let patience = *patience.get_or_insert(now + HOLE_PATIENCE.min(self.limit / 2));
            if whole || closer && now >= patience || now + HOLE_PAUSE >= deadline {
                return Ok(records);
            }
            from = after;
            sleep(HOLE_PAUSE).await;
        }
    }

    /// The current life of `log` from a position on: `wanted` records, if there are so many. `None` if it is not alive.
    ///
    /// One query where that comes to the end of the log, and so to its head. Otherwise the head is asked for, so that no
    /// further query goes through records of an earlier life.
    async fn life(&self, log: &Log, from: Option<Position>, wanted: usize) -> Result<Option<Life>, Error> {
        let mut from = from.map_or_else(|| "0".to_owned(), sort_key);
        let mut stored: Vec<Stored> = Vec::new();
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
    /// Up to `limit` records after a position, and whether none that belongs among them is missing.
    ///
    /// Only the oldest records can have been swept, each in its time: such a hole is passed over. Any other is a record
    /// that is not visible yet, and ends the page. With `closer` the record at `after` is here, unless it was swept.
    fn after(self, after: Option<Position>, limit: usize, closer: bool, now: u64) -> (Vec<Record>, bool) {
        let (first, last) = (first_of(self.last), self.last.parts().1);
        if after >= Some(self.last) {
            return (Vec::new(), true);
        }
        let mut reached = after.filter(|after| *after >= first).map_or(0, |after| after.parts().1);
        let mut may_be_swept = match reached {
            // No record is swept before the grace is over, so that a young log has all of its records.
            0 => first.parts().0 / 1000 + RECORD_GRACE <= now,
            _ => closer,
        };
        let mut whole = true;
        let mut records = Vec::new();
        for Stored { record, sweep } in self.stored {
            if after < Some(record.position) {
                if records.len() == limit {
                    return (records, whole);
                }
                let (_, n) = record.position.parts();
                if n != reached + 1 {
                    whole = false;
                    if !may_be_swept {
                        return (records, whole);
                    }
                }
                reached = n;
                records.push(record);
            }
            // What comes later is swept later.
            may_be_swept = sweep.is_some_and(|sweep| sweep <= now);
        }
        let ended = reached >= last || records.len() == limit;
        (records, whole && ended)
    }
}
