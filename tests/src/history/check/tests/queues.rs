use super::*;
use crate::history::queue::{Kind, Message};

fn message(kind: Kind, number: u64) -> Message {
    Message { kind, lane: "queue".to_owned(), number }
}

fn done() -> Answer {
    Answer::Result("done".to_owned())
}

fn failed() -> Answer {
    Answer::Nothing("failed".to_owned())
}

fn deliver(kind: Kind, number: u64) -> Call {
    Call::Deliver(message(kind, number))
}

fn handle(kind: Kind, number: u64, since: u64) -> Call {
    Call::Handle { message: message(kind, number), since: since * MS }
}

#[test]
fn what_was_acknowledged_was_handled_with_success_before() {
    let wrong = "was acknowledged, and nobody has done it";
    let kind = Kind::Standard;
    let handled = |answer| Story::default().api(1, 2, handle(kind, 0, 0), answer);
    handled(done()).api(0, 3, deliver(kind, 0), done()).is_sound(&STORE);
    handled(failed()).api(0, 3, deliver(kind, 0), failed()).is_sound(&STORE);
    handled(failed()).api(0, 3, deliver(kind, 0), done()).is_wrong(&STORE, wrong);
    handled(Answer::Unknown).api(0, 3, deliver(kind, 0), done()).is_wrong(&STORE, wrong);
    Story::default()
        .api(0, 3, deliver(kind, 0), done())
        .api(4, 5, handle(kind, 0, 3), done())
        .is_wrong(&STORE, wrong);
}

#[test]
fn what_is_recorded_is_not_handled_by_a_later_delivery() {
    let record = || {
        let claim = put("idem:queue/0", Expected::Absent, r#"{"owner":"a"}"#, None);
        let result = put("idem:queue/0", is(r#"{"owner":"a"}"#), r#"{"owner":"a","ok":null}"#, None);
        Story::default()
            .store(0, 1, commit(claim), applied())
            .api(2, 3, handle(Kind::Standard, 0, 0), done())
            .store(4, 5, commit(result), applied())
    };
    // It was delivered before, and began late.
    record().api(8, 9, handle(Kind::Standard, 0, 4), done()).is_sound(&STORE);
    record().api(8, 9, handle(Kind::Standard, 0, 7), done()).is_wrong(&STORE, "handled again after");
}

#[test]
fn what_may_be_handled_once_is_handled_again_only_after_a_failure() {
    let twice = |kind, answer, to| {
        Story::default().api(0, to, handle(kind, 0, 0), answer).api(2, 3, handle(kind, 0, 2), done())
    };
    twice(Kind::Standard, Answer::Unknown, 1).is_sound(&STORE);
    twice(Kind::AtMostOnce, failed(), 1).is_sound(&STORE);
    for (answer, to) in [(failed(), 3), (Answer::Unknown, 1), (done(), 1)] {
        twice(Kind::AtMostOnce, answer, to).is_wrong(&STORE, "again without a failure");
    }
}

#[test]
fn a_group_is_handled_in_its_order_and_what_cannot_be_read_holds_back_nothing() {
    let second = |story: Story, kind| story.api(4, 5, handle(kind, 2, 0), done());
    let first = |answer| Story::default().api(0, 1, handle(Kind::Fifo, 0, 0), answer);
    second(first(done()), Kind::Fifo).is_sound(&STORE);
    second(Story::default(), Kind::Standard).is_sound(&STORE);
    let wrong = "queue/2 was handled before queue/0 was done";
    second(first(failed()), Kind::Fifo).is_wrong(&STORE, wrong);
    second(Story::default(), Kind::Fifo).is_wrong(&STORE, wrong);
    second(Story::default(), Kind::Fifo).api(6, 7, handle(Kind::Fifo, 0, 0), done()).is_wrong(&STORE, wrong);
}
