//! A map that forgets its oldest: a runner may run for weeks.

use std::collections::{HashMap, VecDeque};

/// The newest entries, by name.
pub(crate) struct Bounded<T> {
    entries: HashMap<String, T>,
    order: VecDeque<String>,
    most: usize,
}

impl<T> Bounded<T> {
    /// Keeps at most so many.
    pub(crate) fn new(most: usize) -> Bounded<T> {
        Bounded { entries: HashMap::new(), order: VecDeque::new(), most }
    }

    /// Sets an entry; an old one keeps its place in the order.
    pub(crate) fn insert(&mut self, name: String, entry: T) {
        if self.entries.insert(name.clone(), entry).is_none() {
            self.order.push_back(name);
        }
        if self.order.len() > self.most {
            self.order.pop_front().map(|oldest| self.entries.remove(&oldest));
        }
    }

    /// The entry, if it is not forgotten.
    pub(crate) fn get(&self, name: &str) -> Option<&T> {
        self.entries.get(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_is_forgotten() {
        let mut map = Bounded::new(2);
        for (name, n) in [("a", 1), ("b", 2), ("b", 3), ("c", 4)] {
            map.insert(name.to_owned(), n);
        }
        assert_eq!(["a", "b", "c"].map(|name| map.get(name).copied()), [None, Some(3), Some(4)]);
    }
}
