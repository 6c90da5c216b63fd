//! The `交易ID`s that were given.

use serde_json::{Value, json};

use crate::Moment;

/// The most ranges that are kept, so that the size of the stored value does not depend on how many ids were given.
const MAX_RANGES: usize = 8;

/// How far ahead of an entry's time other ids keep the order of the new one, in hours. An id that is later than that was
/// made up by a caller of the API or by a wrong clock. It is not given again, and does not drag the others along.
pub(crate) const MAX_AHEAD_HOURS: u32 = 24;

/// Ids that were given, as ranges of seconds. With more than [`MAX_RANGES`] ranges the nearest become one, which also has the
/// ids between them: an id that was given is always in a range.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct GivenIds {
    /// In ascending order, with at least one free second between two of them.
    ranges: Vec<Range>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Range {
    first: Moment,
    last: Moment,
}

impl GivenIds {
    /// What is known of the ids of a list that has only the latest ones, in the format of version 0.2: every id up to them may
    /// have been given. If one of them is far ahead of `now`, it hides how far the others are: then every id that is not far
    /// ahead may have been given.
    pub(crate) fn up_to(latest: impl IntoIterator<Item = Moment>, now: Moment) -> GivenIds {
        let ahead = now.plus_hours(MAX_AHEAD_HOURS);
        let mut given = GivenIds::default();
        let Some(begin) = Moment::from_unix(0) else { return given };
        for id in latest {
            match id <= ahead {
                true => given.insert(Range { first: begin.min(id), last: id }),
                false => {
                    given.insert(Range { first: begin, last: ahead });
                    given.insert(Range { first: id, last: id });
                }
            }
        }
        given
    }

    /// Reads what [`to_json`](GivenIds::to_json) wrote.
    pub(crate) fn read(stored: &Value) -> Option<GivenIds> {
        let mut given = GivenIds::default();
        for range in stored.as_array()? {
            let [first, last] = &range.as_array()?[..] else { return None };
            let id = |text: &Value| text.as_str().and_then(Moment::parse_id);
            let (first, last) = (id(first)?, id(last)?);
            given.insert(Range { first: first.min(last), last });
        }
        Some(given)
    }

    /// The JSON that is stored: the first and the last id of each range.
    pub(crate) fn to_json(&self) -> Value {
        self.ranges.iter().map(|range| json!([range.first.id(), range.last.id()])).collect()
    }

    /// Adds an id, given at `now`.
    pub(crate) fn add(&mut self, id: Moment, now: Moment) {
        self.insert(Range { first: id, last: id });
        self.merge_nearest(now);
    }

    /// Whether an id may have been given.
    pub(crate) fn contains(&self, id: Moment) -> bool {
        self.ranges.iter().any(|range| (range.first..=range.last).contains(&id))
    }

    /// The id of a new entry, made at `now`: that second or, if it or a later one was given, the next free one.
    pub(crate) fn next(&self, now: Moment) -> Moment {
        // After the last second of the year 9999 there is none left but earlier ones.
        let begin = || Moment::from_unix(0).and_then(|begin| self.free_from(begin, begin));
        self.free_from(now, now.plus_hours(MAX_AHEAD_HOURS)).or_else(begin).unwrap_or(now)
    }

    /// The first id from `id` on that was not given, and is later than the ranges that begin up to `ahead`.
    fn free_from(&self, mut id: Moment, ahead: Moment) -> Option<Moment> {
        for range in &self.ranges {
            if range.last >= id && (range.first <= ahead || range.first <= id) {
                id = range.last.next_second()?;
            }
        }
        Some(id)
    }

    /// Inserts a range; those that it meets become one with it.
    fn insert(&mut self, range: Range) {
        self.ranges.push(range);
        self.ranges.sort_unstable();
        self.ranges.dedup_by(|next, range| {
            let meets = range.last.next_second().is_none_or(|after| next.first <= after);
            if meets {
                range.last = range.last.max(next.last);
            }
            meets
        });
    }

    /// Merges the nearest ranges until there are few enough. The ids that are far ahead of `now` stay apart from the others.
    fn merge_nearest(&mut self, now: Moment) {
        let ahead = now.plus_hours(MAX_AHEAD_HOURS);
        while self.ranges.len() > MAX_RANGES {
            let gap = |n: &usize| self.ranges[n + 1].first.unix() - self.ranges[*n].last.unix();
            let is_kept = |n: &usize| self.ranges[*n].last <= ahead && ahead < self.ranges[n + 1].first;
            let nearest = (0..self.ranges.len() - 1).filter(|n| !is_kept(n)).min_by_key(gap);
            let Some(n) = nearest else { return };
            self.ranges[n].last = self.ranges.remove(n + 1).last;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(text: &str) -> Moment {
        Moment::parse_id(text).unwrap()
    }

    fn given(ids: &[&str], now: Moment) -> GivenIds {
        let mut given = GivenIds::default();
        ids.iter().for_each(|text| given.add(id(text), now));
        given
    }

    #[test]
    fn neighbours_are_one_range_and_it_comes_back_as_it_was_written() {
        let given = given(
            &["20261117-120002", "20261117-120000", "20261117-120001", "20991231-000000", "99991231-235959"],
            id("20261117-120000"),
        );
        let stored = json!([
            ["20261117-120000", "20261117-120002"],
            ["20991231-000000", "20991231-000000"],
            ["99991231-235959", "99991231-235959"],
        ]);
        assert_eq!(given.to_json(), stored);
        assert_eq!(GivenIds::read(&stored), Some(given));
        for broken in [json!(7), json!([7]), json!([["20261117-120000"]]), json!([["x", "20261117-120000"]])]
        {
            assert_eq!(GivenIds::read(&broken), None, "{broken}");
        }
    }

    #[test]
    fn any_number_of_ids_are_a_few_ranges_and_those_far_ahead_drag_no_other_along() {
        let now = id("20261117-120000");
        let future: Vec<String> = (1..90).map(|n| format!("{}0101-000000", 2030 + 80 * n)).collect();
        let past: Vec<String> = (1..90).map(|n| format!("{}0101-000000", 1980 + n % 40)).collect();
        let all: Vec<&str> = future.iter().chain(&past).map(String::as_str).collect();
        let given = given(&all, now);
        assert_eq!(given.ranges.len(), MAX_RANGES);
        assert_eq!(given.next(now), now);
        for text in all {
            assert!(given.contains(id(text)) && given.next(id(text)) != id(text), "{text}");
        }
    }

    #[test]
    fn after_the_last_second_of_all_there_are_earlier_ones() {
        let last = id("99991231-235959");
        let given = given(&["99991231-235959", "19700101-080000"], last);
        assert_eq!(given.next(last).id(), "19700101-080001");
    }
}
