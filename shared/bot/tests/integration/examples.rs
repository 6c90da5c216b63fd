//! The examples of the front page, as they are there.

use std::sync::Arc;

use futures_util::future::join_all;
use onetap_bot::{Incoming, Message, reply_fn};
use onetap_store::testing::TestStore;
use onetap_store::{Memory, Store};

use onetap_bot::testing::{Phone, event, redelivered, tap, text, user};

#[path = "../../examples/buttons.rs"]
#[allow(dead_code, unreachable_pub, reason = "it has a main of its own")]
mod buttons;
#[path = "../../examples/counter.rs"]
#[allow(dead_code, unreachable_pub, reason = "it has a main of its own")]
mod counter;

use buttons::Cafe;
use counter::Counter;

on_every_backend! {
    ten_deliveries_of_one_event_at_once_count_one
    a_second_tap_waits_and_each_order_has_one_key
}

async fn ten_deliveries_of_one_event_at_once_count_one(store: Arc<dyn Store>) {
    let (phone, user) = (Phone::with_store(Counter, store), user());
    let said = text(&user, "one");
    let events = [said.clone(), redelivered(&said)];
    let statuses = join_all((0..10).map(|n| phone.deliver(&events[n % 2..=n % 2]))).await;
    assert!(statuses.contains(&200), "{statuses:?}");
    assert!(statuses.iter().all(|status| [200, 500].contains(status)), "{statuses:?}");
    // What was being handled elsewhere comes again.
    assert_eq!(phone.deliver(&[redelivered(&said)]).await, 200);
    assert_eq!(phone.heard(), ["That was number 1."]);
    assert_eq!(phone.say(&user, "two").await, ["That was number 2."]);
}

async fn a_second_tap_waits_and_each_order_has_one_key(store: Arc<dyn Store>) {
    let (phone, user) = (Phone::with_store(Cafe, store), user());
    let order = tap(&user, "order=latte");
    assert_eq!(phone.deliver(&[order.clone(), tap(&user, "order=latte")]).await, 200);
    let mut said = phone.heard();
    said.sort_unstable();
    assert_eq!(said.len(), 2, "{said:?}");
    assert!(said[0].starts_with("One latte, order ") && said[1] == "Your order is on its way.", "{said:?}");
    // The lock is free again, and the tap is known.
    assert_eq!(phone.deliver(&[redelivered(&order)]).await, 200);
    assert_eq!(phone.heard(), [] as [&str; 0]);
    assert_eq!(phone.deliver(&[tap(&user, "order=tea")]).await, 200);
    assert!(phone.heard()[0].starts_with("One tea, order "));
    assert_eq!(phone.say(&user, "hello").await, ["What would you like?"]);
}

#[tokio::test]
async fn an_echo_answers_texts_and_nothing_else() {
    let echo = reply_fn(|incoming: &Incoming<'_>| incoming.text().map(Message::text));
    let store = TestStore::counting(Arc::new(Memory::new()));
    let (phone, user) = (Phone::with_store(echo, store.clone()), user());
    assert_eq!(phone.say(&user, "你好").await, ["你好"]);
    assert_eq!(store.calls(), 2, "a claim, and a marker");
    let follow = event(&user, serde_json::json!({"type": "follow"}));
    assert_eq!(phone.deliver(&[follow, tap(&user, "data")]).await, 200);
    assert_eq!((phone.heard(), store.calls()), (Vec::new(), 2), "what asks for nothing costs nothing");
}

#[tokio::test]
async fn an_event_that_is_counted_is_two_round_trips() {
    let store = TestStore::counting(Arc::new(Memory::new()));
    let (phone, user) = (Phone::with_store(Counter, store.clone()), user());
    for n in 1..=3 {
        assert_eq!(phone.say(&user, "again").await, [format!("That was number {n}.")]);
        assert_eq!(store.calls(), 2 * n, "claim and count are read together, and written together");
    }
}

#[test]
fn the_front_page_has_the_examples_as_they_are() {
    let page = include_str!("../../README.md");
    for (name, code, most) in [
        ("echo", include_str!("../../examples/echo.rs"), 30),
        ("counter", include_str!("../../examples/counter.rs"), 60),
        ("buttons", include_str!("../../examples/buttons.rs"), 60),
    ] {
        let (_, code) = code.split_once("\n\n").expect("a first line that says what it is");
        assert!(page.contains(code), "the front page has another {name}");
        assert!(code.lines().count() < most, "{name} has {} lines", code.lines().count());
    }
}
