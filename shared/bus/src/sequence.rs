//! The table of stages and their sequence numbers.

use std::ops::RangeInclusive;

/// `done` with this sequence number or a higher one ends a job.
pub const FINAL_SEQ: u64 = 51;

/// The sequence numbers of a stage. Stages that are not in the table share the first ten.
pub(crate) fn range(stage: &str) -> RangeInclusive<u64> {
    match stage {
        "vision" => 10..=19,
        "rule" => 20..=29,
        "answer" => 30..=39,
        "reward" => 40..=49,
        "done" => 50..=59,
        _ => 0..=9,
    }
}

/// The sequence number of a stage's `sub`-th event, from 0; `None` past the stage's last.
///
/// ```
/// assert_eq!(onetap_bus::next_seq("rule", 1), Some(21));
/// assert_eq!(onetap_bus::next_seq("rule", 10), None, "30 is the next stage's");
/// assert_eq!(onetap_bus::next_seq("queued", 3), Some(3));
/// ```
pub fn next_seq(stage: &str, sub: u64) -> Option<u64> {
    let range = range(stage);
    range.start().checked_add(sub).filter(|seq| range.contains(seq))
}

/// Whether this event ends its job.
pub(crate) fn is_final(stage: &str, seq: u64) -> bool {
    stage == "done" && seq >= FINAL_SEQ
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_stage_has_its_ten_numbers() {
        for (stage, first) in
            [("vision", 10), ("rule", 20), ("answer", 30), ("reward", 40), ("done", 50), ("queued", 0)]
        {
            assert_eq!(next_seq(stage, 0), Some(first), "{stage}");
            assert_eq!(next_seq(stage, 9), Some(first + 9), "{stage}");
            assert_eq!(next_seq(stage, 10), None, "{stage}");
        }
        assert_eq!(next_seq("done", u64::MAX), None);
    }

    #[test]
    fn a_job_ends_with_done_from_51_on() {
        assert!(is_final("done", 51) && is_final("done", 59));
        assert!(!is_final("done", 50), "50 is a stage's beginning, not a job's end");
        assert!(!is_final("reward", 51));
    }
}
