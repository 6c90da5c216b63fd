//! Turns a batch into the items of one request: *append*, *set* and *clear* of `memory.rs`, each item with its condition.

use std::collections::HashMap;

use super::item::{Condition, Content, Item, ItemKey};
use super::live;
use super::send::{Action, ItemWrite};
use crate::seq_of;
use crate::{Batch, Error, Expect, Keep, Key, Log, Position, Value, Write};

/// Items as they were read, `None` for an absent item.
pub(super) type Seen = HashMap<ItemKey, Option<Item>>;

/// Logs with records of a life that was cleared, each with the last position of that life.
pub(super) type Cleared = Vec<(Log, Position)>;

/// The expectations that fail on the items that were read; if all hold, the logs that must exist and do not.
pub(super) fn mismatches(batch: &Batch, seen: &Seen, now: u64) -> Result<Vec<(Key, Option<String>)>, Error> {
    let mut refusal = Vec::new();
    for write in batch.writes() {
        let (key, expect) = match (write, write.expectation()) {
            (_, Some((key, expect))) => (key, Some(expect)),
            (Write::PutIfNewer { key, .. }, None) => (key, None),
            _ => continue,
        };
        let Some(item) = seen.get(&ItemKey::named(key.as_str())) else { continue };
        let there = live(item, now)?;
        if expect.is_some_and(|expect| !expect.holds(there)) {
            refusal.push((key.clone(), there.map(str::to_owned)));
        }
    }
    if refusal.is_empty() {
        for write in batch.writes() {
            if let Write::Clear { log } = write {
                Head::of(log, seen, now)?;
            } else if let Some(log) = write.existing_log() {
                if !matches!(Head::of(log, seen, now)?, Head::Live(..)) {
                    refusal.push((Key::from(log), None));
                }
            }
        }
    }
    Ok(refusal)
}

/// The requests of a batch.
#[derive(Default)]
pub(super) struct Plan<'a> {
    pub(super) writes: Vec<ItemWrite>,
    /// The positions of its appends.
    pub(super) positions: Vec<Position>,
    /// The logs whose records are to be deleted after it, each up to a position: those that it clears, and those that were
    /// cleared before and begin anew with it.
    pub(super) cleared: Cleared,
    /// The logs that it clears and that are gone already, each with its last position, if there is a head that has it.
    pub(super) gone: Vec<(&'a Log, Option<Position>)>,
}

/// The head of a log, as it was read.
enum Head<'s> {
    /// The log lives, and its last record has this position.
    Live(Position, &'s Item),
    /// The log has expired or was cleared. Its last record had this position.
    Ended(Position, &'s Item),
    /// There is no log.
    Absent,
}

impl Head<'_> {
    fn of<'s>(log: &Log, seen: &'s Seen, now: u64) -> Result<Head<'s>, Error> {
        let Some(item) = seen.get(&ItemKey::named(log.as_str())).and_then(Option::as_ref) else {
            return Ok(Head::Absent);
        };
        Ok(match (item.last(now)?, &item.content) {
            (Some(last), _) => Head::Live(last, item),
            (None, Content::Log(last)) => Head::Ended(*last, item),
            (None, Content::Text(_)) => Head::Absent,
        })
    }
}

impl<'a> Plan<'a> {
    /// The writes of the batch over the items that were read, and what comes before and after them.
    pub(super) fn of(batch: &'a Batch, seen: &Seen, now: u64) -> Result<Plan<'a>, Error> {
        let mut plan = Plan::default();
        for write in batch.writes() {
            if let Write::Append { log, text, keep } = write {
                plan.append(log, text, *keep, Head::of(log, seen, now)?, now)?;
            }
        }
        for write in batch.writes() {
            plan.set(write, seen, now)?;
        }
        let mut checks = Vec::new();
        for write in batch.writes() {
            if let Write::Clear { log } = write {
                checks.extend(plan.clear(log, Head::of(log, seen, now)?, now));
            }
        }
        // A single check needs no request: the log was read.
        if !(plan.writes.is_empty() && checks.len() == 1) {
            plan.writes.extend(checks);
        }
        Ok(plan)
    }

    /// The position in the head increases by one, on condition that it is still the one that was read, and the record takes
    /// the new position. After a log has ended, positions start again at the clock, so that no position is used twice.
    fn append(
        &mut self,
        log: &'a Log,
        text: &str,
        keep: Option<Keep>,
        head: Head<'_>,
        now: u64,
    ) -> Result<(), Error> {
        let key = ItemKey::named(log.as_str());
        let text = Content::Text(text.to_owned());
        // The head moves once, by all records that the batch appends to the log.
        let moved = self.writes.iter_mut().find(|write| write.key == key).map(|write| &mut write.action);
        let (position, record) = if let Some(Action::Put(head)) = moved {
            let position = head.content.last()?.successor();
            head.content = Content::Log(position);
            (position, Item { content: text, ..*head })
        } else {
            let mut record = match (keep, &head) {
                (Some(keep), _) => Item::new(text, keep.ttl, now).swept_later(keep.ttl),
                (None, Head::Live(_, head)) => Item { content: text, ..**head },
                // Such a batch is refused.
                (None, _) => return Err(Error::not_sent("the log has ended")),
            };
            let (position, condition) = match head {
                Head::Live(last, head) => {
                    record.sweep = record.sweep.zip(head.sweep).map(|(own, earlier)| own.max(earlier));
                    (last.successor(), Condition::Log(last))
                }
                Head::Ended(last, head) => {
                    // What a clear could not delete in its time is deleted after the first append that comes.
                    if head.is_tombstone() {
                        self.cleared.push((log.clone(), last));
                    }
                    let epoch = now.max(last.parts().0.saturating_add(1));
                    (Position::new(epoch, 1), Condition::EndedLog(last))
                }
                Head::Absent => (Position::new(now, 1), Condition::NoLog),
            };
            let head = Item { content: Content::Log(position), ..record };
            self.writes.push(ItemWrite { key, condition, action: Action::Put(head) });
            (position, record)
        };
        let key = ItemKey::record(log, position);
        self.writes.push(ItemWrite { key, condition: Condition::Any, action: Action::Put(record) });
        self.positions.push(position);
        Ok(())
    }

    /// A put or a delete, with its expectation as the condition.
    fn set(&mut self, write: &Write, seen: &Seen, now: u64) -> Result<(), Error> {
        let (key, expect, action) = match write {
            Write::Check { key, expect } => (key, expect.clone(), Action::Check),
            Write::Delete { key, expect, .. } => (key, expect.clone(), Action::Delete),
            Write::Put { key, expect, value, ttl } => {
                let text = match value {
                    Value::Text(text) => text.clone(),
                    Value::PositionOf(n) => self.positions[*n].to_string(),
                };
                (key, expect.clone(), Action::Put(Item::new(Content::Text(text), *ttl, now)))
            }
            Write::PutIfNewer { key, seq, json, ttl } => {
                let there = seen.get(&ItemKey::named(key.as_str()));
                let there = there.map(|item| live(item, now)).transpose()?.flatten();
                if there.and_then(seq_of).is_some_and(|there| there >= *seq) {
                    return Ok(());
                }
                let expect = there.map_or(Expect::Absent, |there| Expect::Is(there.to_owned()));
                (key, expect, Action::Put(Item::new(Content::Text(json.clone()), *ttl, now)))
            }
            Write::Append { .. } | Write::Clear { .. } | Write::Publish { .. } => return Ok(()),
        };
        let condition = Condition::Value(expect);
        self.writes.push(ItemWrite { key: ItemKey::named(key.as_str()), condition, action });
        Ok(())
    }

    /// The head becomes a tombstone, on condition that it is still the one that was read. Where the log is gone already,
    /// nothing changes, on condition that this is still so: a check is returned.
    fn clear(&mut self, log: &'a Log, head: Head<'_>, now: u64) -> Option<ItemWrite> {
        let key = ItemKey::named(log.as_str());
        let (condition, tombstone) = match head {
            Head::Live(last, _) => {
                self.cleared.push((log.clone(), last));
                (Condition::Log(last), Some(Item::tombstone(last, now)))
            }
            Head::Ended(last, head) => {
                self.gone.push((log, Some(last)));
                let tombstone = Item::tombstone(last, now);
                // The head of a log that has expired may stay in the table for years.
                let stays = head.sweep.is_none_or(|sweep| Some(sweep) > tombstone.sweep);
                (Condition::EndedLog(last), stays.then_some(tombstone))
            }
            Head::Absent => {
                self.gone.push((log, None));
                (Condition::NoLog, None)
            }
        };
        match tombstone {
            Some(tombstone) => {
                self.writes.push(ItemWrite { key, condition, action: Action::Put(tombstone) });
                None
            }
            None => Some(ItemWrite { key, condition, action: Action::Check }),
        }
    }
}
