//! The button that confirms an erasure. What it carries is enough to judge it: nothing is kept for it.

use onetap_idem::digest;
use onetap_ledger::Moment;

/// How long the button is good, in seconds from the event that asked for it to the event of the tap.
const LIFE_SECONDS: u64 = 5 * 60;

/// The data of the button for a user who asked for an erasure at `asked`.
pub fn button_data(user: &str, asked: Moment) -> String {
    format!("action=erase&asked={}&user={}", asked.unix(), tag(user, asked.unix()))
}

/// Whether a tap of `user` at `now` on a button with this data confirms the erasure.
pub(crate) fn confirms(user: &str, asked: &str, by: &str, now: Moment) -> bool {
    let asked: Option<i64> = asked.parse().ok();
    asked.is_some_and(|asked| asked.abs_diff(now.unix()) <= LIFE_SECONDS && by == tag(user, asked))
}

/// Ties the button to its user without the user's id, because everybody in a group receives it.
fn tag(user: &str, asked: i64) -> String {
    digest(&[b"erase", user.as_bytes(), asked.to_string().as_bytes()])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_button_is_good_for_five_minutes_and_one_user() {
        const ASKED: i64 = 1_800_000_000;
        let moment = |unix| Moment::from_unix(unix).unwrap();
        let data = button_data("U1", moment(ASKED));
        let by = data.rsplit('=').next().unwrap();
        let confirms = |user, asked: i64, now| confirms(user, &asked.to_string(), by, moment(now));
        assert!(confirms("U1", ASKED, ASKED) && confirms("U1", ASKED, ASKED + 300));
        assert!(!confirms("U1", ASKED, ASKED + 301));
        assert!(!confirms("U2", ASKED, ASKED));
        assert!(!confirms("U1", ASKED + 200, ASKED + 400), "the time belongs to the button");
        assert!(!super::confirms("U1", "soon", by, moment(ASKED)));
        assert!(!super::confirms("U1", &i64::MIN.to_string(), by, moment(ASKED)));
        assert!(!data.contains("U1"));
    }
}
