//! Finished records, remembered in this process.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;

use onetap_store::Key;

/// The newest records that this process has written itself, up to a number of them.
///
/// Only its own: of those it knows when they end. A replayed record's end is known to the store alone, and a
/// memory that outlives the record would make the engine remember what it promised to forget.
pub(super) struct Cache {
    room: usize,
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    records: HashMap<Key, (String, Instant)>,
    /// Oldest first, each key of `records` once.
    order: VecDeque<Key>,
}

impl Cache {
    pub(super) fn new(room: usize) -> Cache {
        Cache { room, kept: Mutex::default() }
    }

    pub(super) fn get(&self, key: &Key) -> Option<String> {
        if self.room == 0 {
            return None;
        }
        let kept = self.kept();
        let (record, until) = kept.records.get(key)?;
        (Instant::now() < *until).then(|| record.clone())
    }

    pub(super) fn insert(&self, key: &Key, record: &str, until: Instant) {
        if self.room == 0 {
            return;
        }
        let mut kept = self.kept();
        if kept.records.insert(key.clone(), (record.to_owned(), until)).is_none() {
            kept.order.push_back(key.clone());
        }
        if kept.order.len() > self.room {
            let oldest = kept.order.pop_front();
            oldest.map(|oldest| kept.records.remove(&oldest));
        }
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        // No panic can come between the two writes above.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
