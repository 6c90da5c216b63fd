//! A map of bounded size, which drops its oldest entries: a runner may run for weeks.

use std::collections::{HashMap, VecDeque};

/// The newest entries, by name.
pub(crate) struct BoundedMap<T> {
    entries: HashMap<String, T>,
    order: VecDeque<String>,
    capacity: usize,
}

impl<T> BoundedMap<T> {
    /// A map that keeps at most `capacity` entries.
    pub(crate) fn new(capacity: usize) -> BoundedMap<T> {
        BoundedMap { entries: HashMap::new(), order: VecDeque::new(), capacity }
    }

    /// Sets an entry; one that exists keeps its age.
    pub(crate) fn insert(&mut self, name: String, entry: T) {
        if self.entries.insert(name.clone(), entry).is_none() {
            self.order.push_back(name);
        }
        if self.order.len() > self.capacity {
            self.order.pop_front().map(|oldest| self.entries.remove(&oldest));
        }
    }

    /// The entry, if it is still kept.
    pub(crate) fn get(&self, name: &str) -> Option<&T> {
        self.entries.get(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_entry_is_dropped() {
        let mut map = BoundedMap::new(2);
        for (name, n) in [("a", 1), ("b", 2), ("b", 3), ("c", 4)] {
            map.insert(name.to_owned(), n);
        }
        assert_eq!(["a", "b", "c"].map(|name| map.get(name).copied()), [None, Some(3), Some(4)]);
    }
}
