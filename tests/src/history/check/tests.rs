//! Histories written by hand: sound ones, and one for each thing that must be seen.

use super::{Expiry, Report, Rules, check};
use crate::history::event::{Answer, Call, Change, Expected, Layer};
use crate::history::history::{History, Operation};

/// Times in these tests are milliseconds.
const MS: u64 = 1000;
const TTL: u64 = 100;

const STORE: Rules = Rules { expiry: Expiry::Store, resends: false, slack: 0 };
const CALLERS: Rules = Rules { expiry: Expiry::Callers, resends: false, slack: 0 };

#[derive(Default)]
struct Story(History);

impl Story {
    fn add(mut self, layer: Layer, from: u64, to: Option<u64>, call: Call, answer: Answer) -> Story {
        let (client, skew) = (format!("client {}", self.0.operations.len()), 0);
        let (start, end) = (from * MS, to.map(|to| to * MS));
        self.0.operations.push(Operation { client, skew, layer, call, start, end, answer });
        self
    }

    fn store(self, from: u64, to: u64, call: Call, answer: Answer) -> Story {
        self.add(Layer::Store, from, Some(to), call, answer)
    }

    fn api(self, from: u64, to: u64, call: Call, answer: Answer) -> Story {
        self.add(Layer::Api, from, Some(to), call, answer)
    }

    /// The last call was made by a clock that is this many milliseconds ahead.
    fn ahead(mut self, by: i64) -> Story {
        self.0.operations.last_mut().unwrap().skew = by * MS as i64;
        self
    }

    fn judged(&self, rules: &Rules) -> Report {
        let mut history = self.0.clone();
        history.operations.sort_by_key(|operation| operation.start);
        check(&history, rules)
    }

    fn is_sound(&self, rules: &Rules) {
        let report = self.judged(rules);
        assert!(report.violations.is_empty(), "{}", report.violations[0]);
    }

    fn is_wrong(&self, rules: &Rules, why: &str) {
        let report = self.judged(rules);
        let found = report.violations.iter().any(|violation| violation.what.contains(why));
        assert!(found, "not found: {why}; found: {:?}", report.violations);
    }
}

fn get(key: &str) -> Call {
    Call::Get(key.to_owned())
}

fn value(text: &str) -> Answer {
    Answer::Value(Some(text.to_owned()))
}

fn is(text: &str) -> Expected {
    Expected::Is(text.to_owned())
}

fn put(key: &str, expect: Expected, value: &str, ttl: Option<u64>) -> Change {
    Change::Put { key: key.to_owned(), expect, value: Some(value.to_owned()), ttl }
}

fn commit(change: Change) -> Call {
    Call::Commit(vec![change])
}

fn swap(old: Option<&str>, new: &str) -> Call {
    commit(put("k", old.map_or(Expected::Absent, is), new, None))
}

fn acquire(token: &str) -> Call {
    commit(put("lock", Expected::Absent, token, Some(TTL)))
}

fn renew(token: &str) -> Call {
    commit(put("lock", is(token), token, Some(TTL)))
}

fn release(token: &str) -> Call {
    commit(Change::Delete { key: "lock".to_owned(), expect: is(token) })
}

fn under(token: &str, old: Option<&str>, new: &str) -> Call {
    let guard = Change::Check { key: "lock".to_owned(), expect: is(token) };
    Call::Commit(vec![guard, put("data", old.map_or(Expected::Absent, is), new, None)])
}

fn applied() -> Answer {
    Answer::Applied(Vec::new())
}

fn refused(key: &str, there: Option<&str>) -> Answer {
    Answer::Refused(vec![(key.to_owned(), there.map(str::to_owned))])
}

const NO_ORDER: &str = "not linearizable";

mod newest;
mod queues;

mod registers {
    use super::*;

    #[test]
    fn reads_may_see_either_side_of_a_write_that_is_under_way() {
        let story = Story::default()
            .store(0, 1, swap(None, "1"), applied())
            .store(2, 9, swap(Some("1"), "2"), applied())
            .store(3, 4, get("k"), value("1"))
            .store(5, 6, get("k"), value("2"));
        story.is_sound(&STORE);
    }

    #[test]
    fn a_value_that_was_seen_cannot_be_unseen() {
        let story = Story::default()
            .store(0, 1, swap(None, "1"), applied())
            .store(2, 9, swap(Some("1"), "2"), applied())
            .store(3, 4, get("k"), value("2"))
            .store(5, 6, get("k"), value("1"));
        story.is_wrong(&STORE, NO_ORDER);
    }

    #[test]
    fn two_swaps_of_one_value_cannot_both_succeed() {
        let story = Story::default()
            .store(0, 1, swap(None, "1"), applied())
            .store(2, 5, swap(Some("1"), "2a"), applied())
            .store(2, 5, swap(Some("1"), "2b"), applied());
        story.is_wrong(&STORE, NO_ORDER);
    }

    #[test]
    fn an_unknown_swap_may_land_late_or_never() {
        let first = Story::default().store(0, 1, swap(None, "1"), applied());
        let lost = |story: Story| story.store(2, 3, swap(Some("1"), "2"), Answer::Unknown);
        lost(first).store(4, 5, get("k"), value("1")).is_sound(&STORE);
        let first = Story::default().store(0, 1, swap(None, "1"), applied());
        let late = lost(first).store(4, 5, get("k"), value("1")).store(9, 10, get("k"), value("2"));
        late.is_sound(&STORE);
        late.store(11, 12, get("k"), value("1")).is_wrong(&STORE, NO_ORDER);
    }

    #[test]
    fn the_open_call_of_a_killed_client_may_have_happened() {
        let story = Story::default().add(Layer::Store, 0, None, swap(None, "1"), Answer::Unknown).store(
            50,
            51,
            get("k"),
            value("1"),
        );
        story.is_sound(&STORE);
    }

    #[test]
    fn what_was_not_sent_did_not_happen() {
        let story =
            Story::default().store(0, 1, swap(None, "1"), Answer::NotSent).store(2, 3, get("k"), value("1"));
        story.is_wrong(&STORE, NO_ORDER);
    }

    #[test]
    fn what_was_refused_did_not_happen() {
        let story = Story::default()
            .store(0, 1, swap(None, "1"), applied())
            .store(2, 3, swap(None, "2"), refused("k", Some("1")))
            .store(4, 5, get("k"), value("2"));
        story.is_wrong(&STORE, NO_ORDER);
    }

    #[test]
    fn a_refusal_brings_what_is_there() {
        let story = Story::default().store(0, 1, swap(None, "1"), applied()).store(
            2,
            3,
            swap(Some("1"), "2"),
            refused("k", Some("0")),
        );
        story.is_wrong(&STORE, NO_ORDER);
    }

    #[test]
    fn a_claim_that_was_sent_twice_may_be_refused_by_itself_and_a_swap_may_not() {
        let twice = Rules { resends: true, ..STORE };
        let claim = Story::default().store(0, 1, acquire("a"), refused("lock", Some("a")));
        claim.is_sound(&twice);
        claim.is_wrong(&STORE, NO_ORDER);
        let swap = Story::default().store(0, 1, swap(None, "1"), applied()).store(
            2,
            3,
            swap(Some("1"), "2"),
            refused("k", Some("2")),
        );
        swap.is_wrong(&twice, NO_ORDER);
    }

    #[test]
    fn increments_add_up() {
        let key = format!("k{}0", crate::history::client::CAS_KEY_PART);
        let one = |old: Expected, new: &str| commit(put(&key, old, new, None));
        let story = Story::default().store(0, 1, one(Expected::Absent, "1 a"), applied()).store(
            2,
            3,
            one(is("1 a"), "2 b"),
            applied(),
        );
        story.store(4, 5, get(&key), value("1 a")).is_wrong(&STORE, "2 increments");
    }

    #[test]
    fn a_first_increment_that_was_sent_twice_may_be_refused_by_those_who_built_on_it() {
        let key = format!("k{}0", crate::history::client::CAS_KEY_PART);
        let one = |old: Expected, new: &str| commit(put(&key, old, new, None));
        let story = Story::default()
            .store(0, 9, one(Expected::Absent, "1 a"), refused(&key, Some("2 b")))
            .store(2, 3, get(&key), value("1 a"))
            .store(4, 5, one(is("1 a"), "2 b"), applied())
            .store(10, 11, get(&key), value("2 b"));
        story.is_sound(&Rules { resends: true, ..STORE });
        story.is_wrong(&STORE, NO_ORDER);
    }

    #[test]
    fn a_rejected_call_is_a_fault_of_ours() {
        let story = Story::default().store(0, 1, get("k"), Answer::Rejected("nonsense".to_owned()));
        story.is_wrong(&STORE, "rejected");
    }
}

mod leases {
    use super::*;

    #[test]
    fn a_lease_may_be_taken_once_it_can_have_lapsed_and_not_before() {
        let first = || Story::default().store(0, 5, acquire("a"), applied());
        first().store(90, 99, acquire("b"), applied()).is_wrong(&STORE, NO_ORDER);
        first().store(90, 100, acquire("b"), applied()).is_sound(&STORE);
    }

    #[test]
    fn a_renewal_counts_from_its_own_beginning() {
        let story = Story::default()
            .store(0, 1, acquire("a"), applied())
            .store(50, 51, renew("a"), applied())
            .store(120, 130, acquire("b"), applied());
        story.is_wrong(&STORE, NO_ORDER);
    }

    #[test]
    fn what_has_certainly_lapsed_is_not_revived() {
        let story =
            Story::default().store(0, 1, acquire("a"), applied()).store(101, 102, renew("a"), applied());
        story.is_wrong(&STORE, NO_ORDER);
    }

    #[test]
    fn what_one_has_seen_lapsed_has_lapsed_for_all_where_the_store_keeps_the_time() {
        let story = Story::default()
            .store(0, 50, acquire("a"), applied())
            .store(100, 101, get("lock"), Answer::Value(None))
            .store(102, 103, get("lock"), value("a"));
        story.is_wrong(&STORE, NO_ORDER);
        story.is_sound(&CALLERS);
    }

    #[test]
    fn nobody_releases_anothers_lock() {
        let story = Story::default()
            .store(0, 1, acquire("a"), applied())
            .store(110, 111, acquire("b"), applied())
            .store(112, 113, release("a"), applied());
        story.is_wrong(&STORE, NO_ORDER);
    }

    #[test]
    fn a_stale_owner_does_not_write_over_a_standing_successor() {
        let story = Story::default()
            .store(0, 1, acquire("a"), applied())
            .store(110, 111, acquire("b"), applied())
            .store(112, 113, under("b", None, "1 b"), applied());
        story.is_sound(&STORE);
        let story = story.store(114, 115, under("a", Some("1 b"), "2 a"), applied());
        story.is_wrong(&STORE, NO_ORDER);
        story.is_wrong(&CALLERS, NO_ORDER);
    }

    #[test]
    fn a_write_that_was_sent_under_the_lease_and_lands_before_the_successor_counts() {
        let story = Story::default()
            .store(0, 1, acquire("a"), applied())
            .store(90, 115, under("a", None, "1 a"), applied())
            .store(105, 111, acquire("b"), applied())
            .store(116, 117, get("data"), value("1 a"));
        story.is_sound(&STORE);
    }

    #[test]
    fn with_clocks_a_lease_apart_two_may_hold_and_one_may_write() {
        let two = || {
            Story::default()
                .store(0, 1, acquire("a"), applied())
                .store(10, 11, acquire("b"), applied())
                .ahead(TTL as i64)
        };
        two().is_sound(&CALLERS);
        two().is_wrong(&STORE, NO_ORDER);
        two().store(12, 13, under("b", None, "1 b"), applied()).ahead(TTL as i64).is_sound(&CALLERS);
        two().store(12, 13, under("a", None, "1 a"), applied()).is_wrong(&CALLERS, NO_ORDER);
    }

    #[test]
    fn one_who_never_heard_whether_it_acquired_may_have() {
        let take = || Call::Acquire { key: "lock".to_owned(), ttl: TTL };
        let story = Story::default().api(0, 1, take(), Answer::Acquired("a".to_owned())).api(
            12,
            13,
            under("a", None, "1 a"),
            Answer::Refused(Vec::new()),
        );
        story.is_wrong(&CALLERS, NO_ORDER);
        let taken = story.add(Layer::Api, 10, None, take(), Answer::Unknown);
        // Its clock would have to be ahead: for its own the lease of the first stands.
        taken.is_wrong(&CALLERS, NO_ORDER);
        taken.ahead(TTL as i64).is_sound(&CALLERS);
    }

    #[test]
    fn what_the_callers_meant_is_judged_as_well_as_what_the_store_was_asked() {
        let lease = |token: &str| {
            (Call::Acquire { key: "lock".to_owned(), ttl: TTL }, Answer::Acquired(token.to_owned()))
        };
        let ((take, first), (_, second)) = (lease("a"), lease("b"));
        let held = Story::default().api(0, 1, take.clone(), first.clone());
        held.api(50, 51, take.clone(), second.clone()).is_wrong(&STORE, NO_ORDER);
        // The store was asked for a plain write, without the guard that was meant.
        let story = Story::default()
            .api(0, 1, take.clone(), first)
            .api(110, 111, take, second)
            .api(112, 113, under("a", None, "1 a"), applied())
            .store(112, 113, commit(put("data", Expected::Absent, "1 a", None)), applied());
        story.is_wrong(&STORE, "as the callers meant it");
    }
}

mod logs {
    use super::*;

    fn append(text: &str) -> Call {
        let marker =
            Change::Put { key: "marker".to_owned(), expect: Expected::Absent, value: None, ttl: None };
        Call::Commit(vec![marker, Change::Append { log: "log".to_owned(), text: text.to_owned() }])
    }

    fn bare(text: &str) -> Call {
        commit(Change::Append { log: "log".to_owned(), text: text.to_owned() })
    }

    fn at(position: &str) -> Answer {
        Answer::Applied(vec![position.to_owned()])
    }

    fn read(after: Option<&str>) -> Call {
        Call::Read { log: "log".to_owned(), after: after.map(str::to_owned), limit: 100 }
    }

    fn records(records: &[(&str, &str)]) -> Answer {
        let owned = |(at, text): &(&str, &str)| (at.to_string(), text.to_string());
        Answer::Records(records.iter().map(owned).collect())
    }

    #[test]
    fn an_unknown_append_that_was_asked_for_again_is_there_once() {
        let story = Story::default()
            .store(0, 1, append("a"), Answer::Unknown)
            .store(2, 3, append("a"), refused("marker", Some("1-0")))
            .store(4, 5, get("marker"), value("1-0"))
            .store(6, 7, read(None), records(&[("1-0", "a")]));
        story.is_sound(&STORE);
    }

    #[test]
    fn what_was_acknowledged_is_there() {
        let story = Story::default().store(0, 1, bare("a"), at("1-0")).store(2, 3, read(None), records(&[]));
        story.is_wrong(&STORE, "acknowledged");
    }

    #[test]
    fn what_was_not_sent_is_not_there() {
        let story = Story::default().store(0, 1, bare("a"), Answer::NotSent).store(
            2,
            3,
            read(None),
            records(&[("1-0", "a")]),
        );
        story.is_wrong(&STORE, "nobody can have put it there");
    }

    #[test]
    fn nothing_is_there_twice() {
        let story = Story::default().store(0, 1, bare("a"), at("1-0")).store(
            2,
            3,
            read(None),
            records(&[("1-0", "a"), ("2-0", "a")]),
        );
        story.is_wrong(&STORE, "twice");
    }

    #[test]
    fn a_marker_has_one_record() {
        let story = Story::default()
            .store(0, 1, append("a"), Answer::Unknown)
            .store(2, 3, append("b"), at("2-0"))
            .store(4, 5, read(None), records(&[("1-0", "a"), ("2-0", "b")]));
        story.is_wrong(&STORE, "has 2 records");
    }

    #[test]
    fn a_marker_holds_the_position_of_its_record() {
        let story = Story::default()
            .store(0, 1, append("a"), at("1-0"))
            .store(2, 3, get("marker"), Answer::Value(None))
            .store(4, 5, read(None), records(&[("1-0", "a")]));
        story.is_wrong(&STORE, "its records");
    }

    #[test]
    fn who_came_first_stands_first() {
        let story = Story::default()
            .store(0, 1, bare("a"), at("2-0"))
            .store(2, 3, bare("b"), at("1-0"))
            .store(4, 5, read(None), records(&[("1-0", "b"), ("2-0", "a")]));
        story.is_wrong(&STORE, "stands behind it");
    }

    #[test]
    fn a_reading_has_no_holes_and_misses_nothing() {
        let two = || {
            Story::default().store(0, 1, bare("a"), at("1-0")).store(2, 3, bare("b"), at("2-0")).store(
                9,
                10,
                read(None),
                records(&[("1-0", "a"), ("2-0", "b")]),
            )
        };
        two().store(4, 5, read(Some("1-0")), records(&[("2-0", "b")])).is_sound(&STORE);
        two().store(4, 5, read(None), records(&[("2-0", "b")])).is_wrong(&STORE, "missing");
        two().store(4, 5, read(None), records(&[("1-0", "a")])).is_wrong(&STORE, "does not have it");
    }

    #[test]
    fn a_page_that_is_full_may_end_before_the_log_does() {
        let page = |limit| Call::Read { log: "log".to_owned(), after: None, limit };
        let story = |first: Call, answer: Answer| {
            Story::default()
                .store(0, 1, bare("a"), at("1-0"))
                .store(2, 3, bare("b"), at("2-0"))
                .store(4, 5, first, answer)
                .store(6, 7, read(None), records(&[("1-0", "a"), ("2-0", "b")]))
        };
        story(page(1), records(&[("1-0", "a")])).is_sound(&STORE);
        story(page(2), records(&[("1-0", "a")])).is_wrong(&STORE, "a later reading does not have it");
        let more = records(&[("1-0", "a"), ("2-0", "b")]);
        story(page(1), more).is_wrong(&STORE, "is not what stands there");
    }

    #[test]
    fn publishers_are_told_where_it_is() {
        let publish = Call::Publish { marker: "marker".to_owned(), log: "log".to_owned() };
        let story = Story::default()
            .store(0, 1, append("a"), at("1-0"))
            .api(0, 2, publish, Answer::Result("7-0".to_owned()))
            .store(4, 5, read(None), records(&[("1-0", "a")]));
        story.is_wrong(&STORE, "published at 7-0");
    }
}

mod results {
    use super::*;

    fn execute(counter: Option<&str>, key: &str) -> Call {
        Call::Execute { key: key.to_owned(), counter: counter.map(str::to_owned) }
    }

    fn result(text: &str) -> Answer {
        Answer::Result(text.to_owned())
    }

    #[test]
    fn a_key_has_one_result() {
        let story = Story::default()
            .api(0, 1, execute(None, "job"), result("a"))
            .api(2, 3, execute(None, "job"), Answer::Nothing("in_progress".to_owned()))
            .api(4, 5, execute(None, "job"), result("a"));
        story.is_sound(&STORE);
        story.api(6, 7, execute(None, "job"), result("b")).is_wrong(&STORE, "more than one result");
    }

    #[test]
    fn what_may_run_once_runs_once() {
        let run = || Call::Run("job".to_owned());
        let story = Story::default().add(Layer::Api, 0, None, run(), Answer::Unknown).api(
            9,
            10,
            run(),
            Answer::Nothing("done".to_owned()),
        );
        story.is_wrong(&STORE, "once at most");
    }

    #[test]
    fn a_counter_stands_at_the_number_of_results_that_moved_it() {
        let record = |n: u64| format!(r#"{{"owner":"x","ok":"{n} x"}}"#);
        let story = |sum: &str| {
            Story::default()
                .api(0, 1, execute(Some("sum"), "one"), result("1 x"))
                .api(2, 3, execute(Some("sum"), "two"), Answer::Nothing("store_error".to_owned()))
                .store(4, 5, commit(put("sum", Expected::Absent, sum, None)), applied())
                .store(4, 5, commit(put("idem:one", Expected::Absent, &record(1), None)), applied())
                .store(4, 5, commit(put("idem:two", Expected::Absent, &record(2), None)), applied())
                .store(6, 7, get("sum"), value(sum))
                .store(6, 7, get("idem:one"), value(&record(1)))
                .store(6, 7, get("idem:two"), value(&record(2)))
        };
        story("2 x").is_sound(&STORE);
        story("3 x").is_wrong(&STORE, "2 results");
    }

    #[test]
    fn no_two_results_move_a_counter_to_the_same_number() {
        let story = Story::default().api(0, 1, execute(Some("sum"), "one"), result("1 x")).api(
            2,
            3,
            execute(Some("sum"), "two"),
            result("1 y"),
        );
        story.is_wrong(&STORE, "the same number");
    }
}

mod cleared {
    use super::*;

    fn append(texts: &[&str]) -> Call {
        let one = |text: &&str| Change::Append { log: "log".to_owned(), text: text.to_string() };
        Call::Commit(texts.iter().map(one).collect())
    }

    fn clear() -> Call {
        commit(Change::Clear { log: "log".to_owned() })
    }

    fn at(positions: &[&str]) -> Answer {
        Answer::Applied(positions.iter().map(ToString::to_string).collect())
    }

    fn read() -> Call {
        Call::Read { log: "log".to_owned(), after: None, limit: 100 }
    }

    fn records(records: &[(&str, &str)]) -> Answer {
        let owned = |(at, text): &(&str, &str)| (at.to_string(), text.to_string());
        Answer::Records(records.iter().map(owned).collect())
    }

    #[test]
    fn what_comes_after_a_clear_is_all_that_is_there() {
        let story = Story::default()
            .store(0, 1, append(&["a", "b"]), at(&["1-0", "1-1"]))
            .store(2, 3, read(), records(&[("1-0", "a"), ("1-1", "b")]))
            .store(4, 5, clear(), applied())
            .store(6, 7, read(), records(&[]))
            .store(8, 9, append(&["c"]), at(&["2-0"]))
            .store(10, 11, read(), records(&[("2-0", "c")]));
        story.is_sound(&STORE);
    }

    #[test]
    fn an_unknown_clear_may_come_late_or_never() {
        for left in [&[("1-0", "a"), ("2-0", "b")][..], &[("2-0", "b")], &[]] {
            let story = Story::default()
                .store(0, 1, append(&["a"]), at(&["1-0"]))
                .store(2, 3, clear(), Answer::Unknown)
                .store(4, 5, append(&["b"]), at(&["2-0"]))
                .store(6, 7, read(), records(left));
            story.is_sound(&STORE);
        }
    }

    #[test]
    fn an_append_that_was_under_way_may_be_on_either_side_of_a_clear() {
        for left in [&[("1-0", "a")][..], &[]] {
            let story = Story::default()
                .store(0, 9, append(&["a"]), at(&["1-0"]))
                .store(2, 3, clear(), applied())
                .store(10, 11, read(), records(left));
            story.is_sound(&STORE);
        }
    }

    #[test]
    fn what_was_cleared_is_gone() {
        let story = Story::default()
            .store(0, 1, append(&["a"]), at(&["1-0"]))
            .store(2, 3, clear(), applied())
            .store(4, 5, read(), records(&[("1-0", "a")]));
        story.is_wrong(&STORE, "after it was cleared");
    }

    #[test]
    fn an_unknown_append_that_was_seen_and_then_cleared_is_gone() {
        let story = Story::default()
            .store(0, 1, append(&["a"]), Answer::Unknown)
            .store(2, 3, read(), records(&[("1-0", "a")]))
            .store(4, 5, clear(), applied())
            .store(6, 7, read(), records(&[("1-0", "a")]));
        story.is_wrong(&STORE, "after it was cleared");
    }

    #[test]
    fn a_clear_takes_nothing_that_came_after_it() {
        let story = Story::default()
            .store(0, 1, clear(), applied())
            .store(2, 3, append(&["a"]), at(&["1-0"]))
            .store(4, 5, read(), records(&[]));
        story.is_wrong(&STORE, "a later reading does not have it");
    }

    #[test]
    fn records_of_a_batch_are_there_together() {
        for part in [&[("1-0", "a")][..], &[("1-1", "b")], &[("1-0", "a"), ("1-0-1", "c"), ("1-1", "b")]] {
            let story = Story::default()
                .store(0, 1, append(&["a", "b"]), at(&["1-0", "1-1"]))
                .store(0, 9, append(&["c"]), Answer::Unknown)
                .store(2, 3, read(), records(part))
                .store(4, 5, clear(), applied());
            story.is_wrong(&STORE, "in part");
        }
    }

    #[test]
    fn positions_of_a_later_life_are_larger() {
        let story = Story::default()
            .store(0, 1, append(&["a"]), at(&["5-0"]))
            .store(2, 3, clear(), applied())
            .store(4, 5, append(&["b"]), at(&["4-0"]));
        story.is_wrong(&STORE, "stands behind it");
        let story = Story::default()
            .store(0, 1, append(&["a"]), at(&["5-0"]))
            .store(2, 3, clear(), applied())
            .store(4, 5, append(&["b"]), at(&["5-0"]));
        story.is_wrong(&STORE, "not alone");
    }

    #[test]
    fn what_was_not_sent_is_not_there() {
        let story = Story::default()
            .store(0, 1, append(&["a"]), Answer::NotSent)
            .store(2, 3, clear(), applied())
            .store(4, 5, read(), records(&[("1-0", "a")]));
        story.is_wrong(&STORE, "nobody can have put it there");
    }
}

mod ledger {
    use super::*;
    use crate::history::book::{Asked, Told};

    const LOG: &str = "user:U:ledger:2025-11";

    fn entry(item: &str, id: &str, date: &str, remark: &str) -> String {
        format!(
            r#"{{"日期":"{date}","品項":"{item}","原幣金額":5,"匯率":1,"交易ID":"{id}","附註":"{remark}"}}"#
        )
    }

    /// The entry with this item, as it was entered.
    fn plain(item: &str) -> String {
        entry(item, &format!("20251129-{item}"), "2025-11-29", "")
    }

    fn with(remark: &str) -> String {
        entry("1", "20251129-1", "2025-11-29", remark)
    }

    fn ask(asked: Asked, key: Option<&str>) -> Call {
        Call::Ledger { user: "U".to_owned(), asked, key: key.map(str::to_owned) }
    }

    fn note(item: &str) -> Call {
        ask(Asked::Note(vec![item.to_owned()]), Some(item))
    }

    fn told(before: Option<&str>, entries: &[&str]) -> Answer {
        let entries = entries.iter().map(ToString::to_string).collect();
        Answer::Result(serde_json::to_string(&Told { before: before.map(str::to_owned), entries }).unwrap())
    }

    fn entered(story: Story, from: u64, to: u64, item: &str) -> Story {
        story.api(from, to, note(item), told(None, &[&plain(item)]))
    }

    fn deleted(story: Story, from: u64, to: u64, item: &str) -> Story {
        story.api(from, to, ask(Asked::Delete, None), told(Some(&plain(item)), &[]))
    }

    /// What the month has when everybody has stopped.
    fn left(story: Story, entries: &[&str]) -> Story {
        let record =
            |(n, entry): (usize, &&str)| (format!("1-{n}"), format!(r#"{{"op":"put","tx":{entry}}}"#));
        let records = Answer::Records(entries.iter().enumerate().map(record).collect());
        let log = Call::Read { log: LOG.to_owned(), after: None, limit: 100 };
        let list = value(r#"{"months":["2025-11"]}"#);
        story.store(100, 101, log, records).store(102, 103, get("user:U:ledger"), list)
    }

    #[test]
    fn what_was_confirmed_is_there_unless_it_was_deleted_or_erased() {
        let story = || entered(Story::default(), 0, 1, "1");
        left(story(), &[&plain("1")]).is_sound(&STORE);
        left(story(), &[]).is_wrong(&STORE, "was confirmed and is not there");
        left(deleted(story(), 2, 3, "1"), &[]).is_sound(&STORE);
        left(deleted(story(), 2, 3, "1"), &[&plain("1")]).is_wrong(&STORE, "was deleted and is there");
        let erased = |from, answer| story().api(from, from + 1, ask(Asked::Erase, None), answer);
        left(erased(2, told(None, &[])), &[]).is_sound(&STORE);
        left(erased(2, told(None, &[])), &[&plain("1")]).is_wrong(&STORE, "was erased and is there");
        left(erased(2, Answer::Unknown), &[]).is_sound(&STORE);
        let put = |key| {
            let asked =
                Asked::Put { item: "1".into(), id: "20251129-143000".into(), date: "2025-11-29".into() };
            let story = Story::default().api(0, 1, ask(asked, key), told(None, &[&plain("1")]));
            left(story.api(2, 3, ask(Asked::Erase, None), told(None, &[])), &[&plain("1")])
        };
        put(None).is_sound(&STORE);
        put(Some("k")).is_wrong(&STORE, "was erased and is there");
        left(erased(2, Answer::Unknown), &[&plain("1")]).is_sound(&STORE);
    }

    #[test]
    fn a_deletion_without_an_answer_takes_one_entry_away() {
        let story = || {
            let both = entered(entered(Story::default(), 0, 1, "1"), 2, 3, "2");
            both.api(4, 5, ask(Asked::Delete, None), Answer::Unknown)
        };
        left(story(), &[&plain("1")]).is_sound(&STORE);
        left(story(), &[&plain("1"), &plain("2")]).is_sound(&STORE);
        left(story(), &[]).is_wrong(&STORE, "was confirmed and is not there");
    }

    #[test]
    fn nothing_is_there_that_nobody_can_have_entered_or_twice() {
        left(Story::default().api(0, 1, note("1"), Answer::Unknown), &[&plain("1")]).is_sound(&STORE);
        left(
            Story::default().api(0, 1, note("1"), Answer::NotSent).api(2, 3, note("2"), Answer::Unknown),
            &[&plain("1")],
        )
        .is_wrong(&STORE, "nobody can have entered it");
        let twice = [plain("1"), entry("1", "20251129-2", "2025-11-29", "")];
        left(entered(Story::default(), 0, 1, "1"), &[&twice[0], &twice[1]])
            .is_wrong(&STORE, "is there twice");
    }

    #[test]
    fn a_field_is_as_its_last_edit_left_it() {
        let edit = |remark: &str| ask(Asked::Remark(remark.to_owned()), None);
        let edited = |story: Story, from, to, remark: &str| {
            story.api(from, to, edit(remark), told(Some(&plain("1")), &[&with(remark)]))
        };
        let story = || edited(entered(Story::default(), 0, 1, "1"), 2, 3, "a");
        left(story(), &[&with("a")]).is_sound(&STORE);
        left(story(), &[&with("")]).is_wrong(&STORE, "nobody gave it last");
        left(story(), &[&with("b")]).is_wrong(&STORE, "nobody gave it last");
        left(edited(story(), 4, 5, "b"), &[&with("a")]).is_wrong(&STORE, "nobody gave it last");
        // At once: either.
        for remark in ["a", "b"] {
            left(edited(story(), 2, 5, "b"), &[&with(remark)]).is_sound(&STORE);
        }
        for remark in ["a", "b"] {
            left(story().api(4, 5, edit("b"), Answer::Unknown), &[&with(remark)]).is_sound(&STORE);
        }
    }

    #[test]
    fn an_entry_is_in_the_month_of_its_date_and_the_month_in_the_list() {
        let december = entry("1", "20251129-1", "2025-12-01", "");
        let moved = entered(Story::default(), 0, 1, "1").api(
            2,
            3,
            ask(Asked::Date("2025-12-01".to_owned()), None),
            told(Some(&plain("1")), &[&december]),
        );
        left(moved, &[&december]).is_wrong(&STORE, "is in 2025-11");
        let story = entered(Story::default(), 0, 1, "1");
        let unlisted = left(story, &[&plain("1")]).store(104, 105, get("user:U:ledger"), Answer::Value(None));
        unlisted.is_wrong(&STORE, "is not in the list");
    }

    #[test]
    fn an_id_is_given_again_only_after_an_erasure() {
        let other = entry("2", "20251129-1", "2025-11-29", "");
        let again = |story: Story| story.api(4, 5, note("2"), told(None, &[&other]));
        left(again(entered(Story::default(), 0, 1, "1")), &[&other]).is_wrong(&STORE, "was given twice");
        let erased = entered(Story::default(), 0, 1, "1").api(2, 3, ask(Asked::Erase, None), told(None, &[]));
        left(again(erased), &[&other]).is_sound(&STORE);
    }

    #[test]
    fn who_calls_with_one_key_is_told_the_same() {
        let twice = |other: &str| {
            left(
                entered(Story::default(), 0, 1, "1").api(2, 3, note("1"), told(None, &[other])),
                &[&plain("1")],
            )
        };
        twice(&plain("1")).is_sound(&STORE);
        twice(&entry("1", "20251129-2", "2025-11-29", "")).is_wrong(&STORE, "told different things");
    }
}
