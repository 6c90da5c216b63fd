use super::*;

const STATE: &str = "run/0/newest/0";

fn state(seq: u64, text: &str) -> String {
    format!(r#"{{"seq":{seq},"text":"{text}"}}"#)
}

fn write(seq: u64, text: &str) -> Call {
    commit(Change::Newest { key: STATE.to_owned(), seq, value: state(seq, text) })
}

fn holds(seq: u64, text: &str) -> Answer {
    value(&state(seq, text))
}

#[test]
fn an_older_state_changes_nothing() {
    let story = Story::default()
        .store(0, 1, get(STATE), Answer::Value(None))
        .store(2, 3, write(5, "a"), applied())
        .store(4, 5, write(4, "b"), applied())
        .store(6, 7, get(STATE), holds(5, "a"));
    story.is_sound(&STORE);
}

#[test]
fn a_number_does_not_fall_below_what_was_acknowledged_or_seen() {
    let older = "and then holds an older";
    let written =
        || Story::default().store(0, 1, write(4, "b"), applied()).store(2, 3, write(5, "a"), applied());
    written().store(4, 5, get(STATE), holds(4, "b")).is_wrong(&STORE, older);
    written().store(4, 5, get(STATE), Answer::Value(None)).is_wrong(&STORE, older);
    let seen = Story::default()
        .store(0, 1, write(4, "b"), applied())
        .store(2, 3, write(5, "a"), Answer::Unknown)
        .store(4, 5, get(STATE), holds(5, "a"));
    seen.store(6, 7, get(STATE), holds(4, "b")).is_wrong(&STORE, older);
}

#[test]
fn an_unknown_state_may_come_late_or_never() {
    let story = Story::default()
        .store(0, 1, write(4, "b"), applied())
        .store(2, 3, write(5, "a"), Answer::Unknown)
        .store(4, 5, get(STATE), holds(4, "b"));
    story.is_sound(&STORE);
    story.store(6, 7, get(STATE), holds(5, "a")).is_sound(&STORE);
}

#[test]
fn of_two_states_with_one_number_the_first_stays() {
    let story = Story::default()
        .store(0, 1, write(5, "a"), applied())
        .store(2, 3, get(STATE), holds(5, "a"))
        .store(4, 5, write(5, "b"), applied())
        .store(6, 7, get(STATE), holds(5, "b"));
    story.is_wrong(&STORE, "two texts with the number 5");
}

#[test]
fn nothing_is_there_that_nobody_can_have_put_there() {
    let never = "nobody can have put it there";
    Story::default().store(0, 1, get(STATE), holds(5, "a")).is_wrong(&STORE, never);
    let not_sent = Story::default().store(0, 1, write(5, "a"), Answer::NotSent);
    not_sent.store(2, 3, get(STATE), holds(5, "a")).is_wrong(&STORE, never);
}
