//! Joins batches: several that append to one log are one transaction, instead of one after the other.

use std::collections::HashSet;

use super::MAX_VALUE;
use crate::{Batch, Commit, MAX_WRITES, Position, Value, Write};

/// Largest sum of the texts of joined batches. A transaction of DynamoDB has at most 4 MB.
const MAX_JOINED_BYTES: usize = 3 << 20;

/// Batches that are committed as one. It is applied if each of them would be applied, one after the other.
pub(super) struct Joined<'b>(Vec<&'b Batch>);

impl<'b> Joined<'b> {
    /// Joins as many of these batches as can be, from the first on.
    pub(super) fn of(batches: impl IntoIterator<Item = &'b Batch>) -> Joined<'b> {
        let (mut joined, mut keys, mut writes, mut bytes) = (Vec::new(), HashSet::new(), 0, 0);
        for batch in batches {
            writes += batch.writes().iter().filter(|write| !is_publish(write)).count();
            bytes += batch.writes().iter().flat_map(Write::texts).map(str::len).sum::<usize>();
            let fits = writes <= MAX_WRITES && bytes <= MAX_JOINED_BYTES;
            // Of two batches with one key, the second depends on the first.
            let independent = batch.writes().iter().filter_map(own_name).all(|name| keys.insert(name));
            // Joined with others, an invalid batch could pass for a valid one.
            let valid = batch.validate(MAX_VALUE).is_ok();
            // A joined batch may be sent again after a lost reply. Each batch must be able to tell its own writes in a
            // refusal. (As they share no key, none of them undoes another.)
            if !fits || !independent || !valid || !batch.is_repeatable() {
                break;
            }
            joined.push(batch);
        }
        Joined(joined)
    }

    /// The number of batches.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// The writes of all.
    pub(super) fn batch(&self) -> Batch {
        let mut joined: Vec<Write> = Vec::new();
        let mut appends = 0;
        for batch in &self.0 {
            for write in batch.writes().iter().filter(|write| !is_publish(write)) {
                match write.clone() {
                    Write::Put { key, expect, value: Value::PositionOf(n), ttl } => {
                        joined.push(Write::Put { key, expect, value: Value::PositionOf(appends + n), ttl });
                    }
                    Write::PutIfNewer { key, seq, json, ttl } => {
                        // Of several, the one with the highest sequence number remains.
                        let is_higher = |there: &Write| matches!(there, Write::PutIfNewer { key: k, seq: s, .. } if *k == key && *s >= seq);
                        if !joined.iter().any(is_higher) {
                            joined.retain(
                                |there| !matches!(there, Write::PutIfNewer { key: k, .. } if *k == key),
                            );
                            joined.push(Write::PutIfNewer { key, seq, json, ttl });
                        }
                    }
                    write => joined.push(write),
                }
            }
            appends += batch.append_count();
        }
        joined.into_iter().fold(Batch::new(), Batch::with)
    }

    /// What each of the batches returns if all are applied.
    pub(super) fn commits(&self, positions: Vec<Position>) -> Vec<Commit> {
        let mut positions = positions.into_iter();
        let commit =
            |batch: &&Batch| Commit::Applied(positions.by_ref().take(batch.append_count()).collect());
        self.0.iter().map(commit).collect()
    }
}

/// DynamoDB has no pub/sub: notifications are left out.
fn is_publish(write: &Write) -> bool {
    matches!(write, Write::Publish { .. })
}

/// The key that only one of the joined batches may write or check. Several may append to the same log, and several may
/// put the same key if newer: these writes are merged.
fn own_name(write: &Write) -> Option<&str> {
    match write {
        Write::Append { .. } | Write::PutIfNewer { .. } => None,
        _ => write.name(),
    }
}
