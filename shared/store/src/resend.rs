//! The rule for sending again: after a lost reply, which batches may be sent a second time.
//!
//! Every place that sends a batch again asks here. A batch may be sent again if
//!
//! - a second send changes nothing that the first one has changed, *and*
//! - the answer to the second send shows whether the first one was applied ([`recognises_itself`]), *and*
//! - no batch that traveled behind it in the same request undoes either of them ([`is_undone`]), nor one before it that is
//!   sent again too.
//!
//! Otherwise the outcome is unknown, and stays so.

use crate::{Batch, Expect, Key, Value, Write};

/// Which of these batches, which were sent in one request in this order, may be sent again.
#[cfg(any(feature = "redis", feature = "upstash"))]
pub(crate) fn resendable(batches: &[&Batch]) -> Vec<bool> {
    let by_later_ones = |(n, batch): (usize, &&Batch)| {
        recognises_itself(batch) && !is_undone(batch, batches[n + 1..].iter().copied())
    };
    let again: Vec<bool> = batches.iter().enumerate().map(by_later_ones).collect();
    // An earlier batch that was refused at first may be applied by its second send, over what a later one has left.
    let by_earlier_ones = |n: usize| {
        let earlier = batches[..n].iter().zip(&again).filter(|(_, again)| **again);
        again[n] && !is_undone(batches[n], earlier.map(|(batch, _)| *batch))
    };
    (0..batches.len()).map(by_earlier_ones).collect()
}

/// Whether a second send of this batch alone changes nothing, and its answer shows whether the first one was applied.
///
/// A *marker* gives both to the whole batch: a put that expects no value, or the value before its own. Without a marker,
/// every write must be safe to apply twice.
pub(crate) fn recognises_itself(batch: &Batch) -> bool {
    let is_marker = |write: &Write| match write {
        Write::Put { expect: Expect::Absent, .. } => true,
        Write::Put { expect: Expect::AbsentOr(old), value, .. } => !is_text(value, old),
        _ => false,
    };
    let is_repeatable = |write: &Write| match write {
        Write::Put { expect: Expect::Is(old), value, .. } => is_text(value, old),
        // What is gone may have been removed by another writer.
        Write::Delete { gone_is_success, .. } => *gone_is_success,
        // Another writer may append between two sends of a clear.
        Write::Append { .. } | Write::Clear { .. } | Write::Publish { .. } => false,
        Write::Put { .. } | Write::Check { .. } | Write::PutIfNewer { .. } => true,
    };
    !batch.is_sent_once()
        && (batch.writes().iter().any(is_marker) || batch.writes().iter().all(is_repeatable))
}

/// Whether one of the `others`, which traveled in the same request, may have changed what `batch` expects or is recognised
/// by: sent again, it could be applied a second time, or be refused by its own success.
pub(crate) fn is_undone<'b>(batch: &Batch, others: impl IntoIterator<Item = &'b Batch>) -> bool {
    others
        .into_iter()
        .flat_map(Batch::writes)
        .any(|write| batch.writes().iter().any(|mine| undoes(write, mine)))
}

/// Whether `other` may replace what `mine` has left under its key, or brings back the log that it has missed.
fn undoes(other: &Write, mine: &Write) -> bool {
    if let Some((key, _)) = mine.expectation() {
        return changes(other, key, &left_by(mine));
    }
    match (mine, other) {
        // Sent again, the object would come back: it expects nothing, and only a number holds it off.
        (
            Write::PutIfNewer { key, .. },
            Write::Put { key: its_key, .. } | Write::Delete { key: its_key, .. },
        ) => key == its_key,
        (_, Write::Append { log: other, keep: Some(_), .. } | Write::Clear { log: other }) => {
            mine.existing_log() == Some(other)
        }
        _ => false,
    }
}

/// What may be under a write's key once its batch is applied.
enum Left<'w> {
    Nothing,
    Text(&'w str),
    Either(&'w str),
    /// A position, which only the store knows.
    Something,
}

fn left_by(write: &Write) -> Left<'_> {
    match write {
        Write::Put { value: Value::Text(text), .. } => Left::Text(text),
        Write::Put { value: Value::PositionOf(_), .. } => Left::Something,
        Write::Check { expect: Expect::Is(text), .. } => Left::Text(text),
        Write::Check { expect: Expect::AbsentOr(text), .. } => Left::Either(text),
        _ => Left::Nothing,
    }
}

fn changes(later: &Write, key: &Key, left: &Left<'_>) -> bool {
    let (its_key, expect, value) = match later {
        Write::Put { key, expect, value, .. } => (key, expect, Some(value)),
        Write::Delete { key, expect, .. } => (key, expect, None),
        // Its condition is a number, which says nothing of the text that is there.
        Write::PutIfNewer { key: its_key, .. } => return its_key == key,
        Write::Check { .. } | Write::Append { .. } | Write::Clear { .. } | Write::Publish { .. } => {
            return false;
        }
    };
    let over = |text: &str| expect.holds(Some(text)) && !value.is_some_and(|value| is_text(value, text));
    its_key == key
        && match left {
            Left::Nothing => expect.holds(None),
            Left::Text(text) => over(text),
            Left::Either(text) => over(text) || expect.holds(None),
            Left::Something => !matches!(expect, Expect::Absent),
        }
}

fn is_text(value: &Value, text: &str) -> bool {
    matches!(value, Value::Text(value) if value == text)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{Keep, Log};

    const HOUR: Duration = Duration::from_secs(3600);

    fn key(name: &str) -> Key {
        Key::new(name).unwrap()
    }

    fn is(text: &str) -> Expect {
        Expect::Is(text.to_owned())
    }

    fn claim(name: &str, token: &str) -> Batch {
        Batch::new().put(&key(name), Expect::Absent, token, HOUR)
    }

    fn undone(batches: &[Batch]) -> Vec<bool> {
        let later = |n: usize| &batches[n + 1..];
        (0..batches.len()).map(|n| is_undone(&batches[n], later(n))).collect()
    }

    #[test]
    fn a_batch_with_a_marker_may_be_sent_again_whatever_else_it_does() {
        let (counter, log) = (key("counter"), Log::new("log").unwrap());
        let effect = Batch::new().put(&counter, is("1"), "2", HOUR).delete(&key("draft"), "text").append(
            &log,
            "record",
            Keep::all_for(HOUR),
        );
        assert!(!recognises_itself(&effect));
        assert!(recognises_itself(&effect.clone().and(claim("marker", "mine"))));
        let replaced = Batch::new().put(&key("marker"), Expect::AbsentOr("claim".into()), "result", HOUR);
        assert!(recognises_itself(&effect.clone().and(replaced.clone())));
        assert!(!recognises_itself(&effect.and(replaced).sent_once()));
    }

    #[test]
    fn a_batch_without_a_marker_may_be_sent_again_if_each_write_bears_it() {
        let (a, b) = (key("a"), key("b"));
        for (batch, may) in [
            (Batch::new(), true),
            (Batch::new().check(&a, Expect::Absent), true),
            (Batch::new().put(&a, is("token"), "token", HOUR), true),
            (Batch::new().put(&a, is("1"), "2", HOUR), false),
            (Batch::new().put(&a, Expect::AbsentOr("1".into()), "1", HOUR), true),
            (Batch::new().put_if_newer(&a, 7, r#"{"seq":7}"#, HOUR), true),
            (Batch::new().delete(&a, "1"), false),
            (Batch::new().delete(&a, "1").gone_is_success(), true),
            (Batch::new().delete(&a, "1").gone_is_success().delete(&b, "1"), false),
            (Batch::new().delete(&a, "1").and(Batch::new().delete(&b, "1").gone_is_success()), false),
            (Batch::new().check(&b, is("1")).and(Batch::new().delete(&a, "1").gone_is_success()), true),
            (Batch::new().clear(&Log::new("log").unwrap()), false),
        ] {
            assert_eq!(recognises_itself(&batch), may, "{batch:?}");
        }
    }

    #[test]
    fn what_a_later_batch_removes_or_replaces_recognises_no_earlier_one() {
        let gone = Batch::new().delete(&key("m"), "1").gone_is_success();
        let replaced = Batch::new().put(&key("m"), Expect::AbsentOr("1".into()), "2", HOUR);
        let newer = Batch::new().put_if_newer(&key("m"), 7, r#"{"seq":7}"#, HOUR);
        for later in [gone, replaced, newer] {
            assert_eq!(undone(&[claim("m", "1"), claim("other", "1"), later]), [true, false, false]);
        }
        let position = Batch::new().put(&key("m"), Expect::Absent, Value::PositionOf(0), HOUR);
        let later = Batch::new().put(&key("m"), is("5-0"), "done", HOUR);
        assert_eq!(undone(&[position, later]), [true, false]);
    }

    #[test]
    fn what_a_later_batch_puts_in_the_place_of_a_deleted_value_hides_the_deletion() {
        let release = Batch::new().delete(&key("lock"), "old").gone_is_success();
        assert_eq!(undone(&[release, claim("lock", "new")]), [true, false]);
    }

    #[test]
    fn what_a_batch_checks_must_not_be_changed_behind_it() {
        let guarded = claim("m", "1").check(&key("lock"), is("token"));
        let release = Batch::new().delete(&key("lock"), "token").gone_is_success();
        assert_eq!(undone(&[guarded.clone(), release.clone()]), [true, false]);
        assert_eq!(undone(&[release, guarded]), [false, false]);
        let log = Log::new("log").unwrap();
        let appended = claim("m", "1").append_to_existing(&log, "record");
        let new = claim("n", "1").append(&log, "record", Keep::all_for(HOUR));
        assert_eq!(undone(&[appended.clone(), new.clone(), appended]), [true, false, false]);
    }

    #[test]
    fn a_state_is_not_sent_again_if_a_later_batch_sets_or_removes_it() {
        let state = key("state");
        let newer = || Batch::new().put_if_newer(&state, 7, r#"{"seq":7}"#, HOUR);
        let removed = claim("done", "1").delete(&state, r#"{"seq":7}"#);
        let replaced = claim("done", "1").put(&state, is(r#"{"seq":7}"#), "closed", HOUR);
        assert_eq!(resendable(&[&newer(), &removed]), [false, true]);
        assert_eq!(resendable(&[&newer(), &replaced]), [false, true]);
        assert_eq!(resendable(&[&newer(), &newer()]), [true, true]);
    }

    #[test]
    fn a_batch_is_not_sent_again_with_an_earlier_one_that_may_then_take_its_place() {
        let release = Batch::new().delete(&key("lock"), "old").gone_is_success();
        // The claim was refused by `old` at first. Its second send would be applied, and refuse the release.
        assert_eq!(resendable(&[&claim("lock", "new"), &release]), [true, false]);
        assert_eq!(resendable(&[&claim("other", "new"), &release]), [true, true]);
        // The claim is not sent again, so the release can be.
        let own = Batch::new().delete(&key("lock"), "new").gone_is_success();
        assert_eq!(resendable(&[&claim("lock", "new"), &own]), [false, true]);
    }

    #[test]
    fn batches_that_cannot_write_over_an_earlier_one_leave_it_recognisable() {
        let log = Log::new("log").unwrap();
        let event = |name: &str| {
            let state = key("state");
            claim(name, "1").append(&log, "record", Keep::all_for(HOUR)).put_if_newer(
                &state,
                7,
                r#"{"seq":7}"#,
                HOUR,
            )
        };
        assert_eq!(undone(&[event("a"), event("b"), event("c")]), [false; 3]);
        // Two claims of one key: the second is refused by the first.
        assert_eq!(undone(&[claim("m", "1"), claim("m", "2")]), [false; 2]);
        let renewal = Batch::new().put(&key("m"), is("1"), "1", HOUR);
        assert_eq!(undone(&[claim("m", "1"), renewal.clone(), renewal]), [false; 3]);
    }
}
