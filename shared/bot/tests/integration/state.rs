//! What a bot keeps of a conversation: once for each event, for each user and chat.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use onetap_bot::{Answer, Bot, Context, Incoming, Key, Message, Result, State, Ttl};
use onetap_store::testing::{Fault, TestStore};
use onetap_store::{Batch, Commit, Expect, Memory, Store};
use serde::{Deserialize, Serialize};

use onetap_bot::testing::{Phone, in_group, redelivered, text, user};

/// The words that a user has said, in order.
#[derive(Default, Serialize, Deserialize)]
struct Said {
    #[serde(default)]
    words: Vec<String>,
}

const SAID: State<Said> = State::new("said", Ttl::Of(Duration::from_secs(600)));
const SAID_ANYWHERE: State<Said> = State::new("said_anywhere", Ttl::Forever).per_user();

/// Remembers what is said; `forget` forgets it, `?` reads it, `all` is remembered in whatever chat.
struct Parrot;

impl Bot for Parrot {
    type Ask = String;

    fn ask(&self, incoming: &Incoming<'_>) -> Option<String> {
        incoming.text().map(str::to_owned)
    }

    fn reads(&self, incoming: &Incoming<'_>, _: &String) -> Vec<Key> {
        SAID.keys(incoming)
    }

    async fn answer(&self, context: &Context<'_>, words: &String) -> Result {
        let words = words.clone();
        Ok(match words.as_str() {
            "?" => Answer::say(Message::text(format!("{:?}", context.state(&SAID).await?.words))),
            "forget" => context
                .change(&SAID, |said| {
                    *said = Said::default();
                    Message::text("forgotten")
                })
                .into(),
            "all" => context
                .change(&SAID_ANYWHERE, move |said| {
                    said.words.push(words.clone());
                    Message::text(format!("{}", said.words.len()))
                })
                .into(),
            _ => context
                .change(&SAID, move |said| {
                    said.words.push(words.clone());
                    Message::text(format!("{:?}", said.words))
                })
                .into(),
        })
    }
}

on_every_backend! {
    a_state_changes_once_for_each_event_and_none_is_lost
    a_state_belongs_to_a_user_in_a_chat
    a_change_whose_reply_was_lost_is_made_once
}

async fn a_state_changes_once_for_each_event_and_none_is_lost(store: Arc<dyn Store>) {
    let (phone, user) = (Phone::with_store(Parrot, store), user());
    let events: Vec<_> = (0..8).map(|n| text(&user, &format!("w{n}"))).collect();
    // Each of them three times, all at once.
    let deliveries = events.iter().cycle().take(24).map(|event| phone.deliver(std::slice::from_ref(event)));
    join_all(deliveries).await;
    for event in &events {
        assert_eq!(phone.deliver(&[redelivered(event)]).await, 200);
    }
    assert_eq!(phone.heard().len(), 8, "each is answered once");
    let said = phone.say(&user, "?").await.concat();
    let mut words: Vec<&str> = said.trim_matches(['[', ']']).split(", ").collect();
    words.sort_unstable();
    assert_eq!(words, (0..8).map(|n| format!("\"w{n}\"")).collect::<Vec<_>>());
}

async fn a_state_belongs_to_a_user_in_a_chat(store: Arc<dyn Store>) {
    let (phone, alice, bob) = (Phone::with_store(Parrot, Arc::clone(&store)), user(), user());
    let (one, other) = (user(), user());
    assert_eq!(phone.say(&alice, "home").await, [r#"["home"]"#]);
    for (event, expected) in [
        (in_group(text(&alice, "work"), &one), r#"["work"]"#),
        (in_group(text(&alice, "play"), &other), r#"["play"]"#),
        (in_group(text(&alice, "more"), &one), r#"["work", "more"]"#),
        (in_group(text(&bob, "bob"), &one), r#"["bob"]"#),
        (text(&alice, "all"), "1"),
        (in_group(text(&alice, "all"), &one), "2"),
    ] {
        assert_eq!(phone.deliver(&[event]).await, 200);
        assert_eq!(phone.heard(), [expected]);
    }
    assert_eq!(phone.say(&alice, "?").await, [r#"["home"]"#]);
    // The default is kept by keeping nothing.
    assert_eq!(phone.say(&alice, "forget").await, ["forgotten"]);
    assert_eq!(store.get(&Key::new(format!("user:{alice}:said")).unwrap()).await.unwrap(), None);
    assert_eq!(phone.say(&alice, "again").await, [r#"["again"]"#]);
}

async fn a_change_whose_reply_was_lost_is_made_once(store: Arc<dyn Store>) {
    // The commit of the change is the second call.
    let faults = |call| if call == 2 { Fault::ReplyLost } else { Fault::Pass };
    let (phone, user) = (Phone::with_store(Parrot, TestStore::faulty(store, faults)), user());
    let said = text(&user, "once");
    assert_eq!(phone.deliver(std::slice::from_ref(&said)).await, 200);
    assert_eq!(phone.deliver(&[redelivered(&said)]).await, 200);
    assert_eq!(phone.heard(), [r#"["once"]"#]);
    assert_eq!(phone.say(&user, "?").await, [r#"["once"]"#]);
}

#[tokio::test]
async fn a_state_that_cannot_be_read_is_an_apology_and_stays_as_it_is() {
    let store: Arc<dyn Store> = Arc::new(Memory::new());
    let (phone, user) = (Phone::with_store(Parrot, Arc::clone(&store)), user());
    let key = Key::new(format!("user:{user}:said")).unwrap();
    let foreign = Batch::new().put(&key, Expect::Absent, r#"{"words":7}"#, Ttl::Forever);
    assert!(matches!(store.commit(&foreign).await.unwrap(), Commit::Applied(_)));
    for words in ["more", "?"] {
        assert_eq!(phone.say(&user, words).await, ["系統暫時有點忙，請稍後再試一次。"]);
    }
    assert_eq!(store.get(&key).await.unwrap().as_deref(), Some(r#"{"words":7}"#));
}

#[tokio::test]
async fn without_a_user_nothing_is_kept() {
    let phone = Phone::with_store(Parrot, Arc::new(Memory::new()));
    let mut nameless = in_group(text("U1", "hello"), "G1");
    nameless["source"] = serde_json::json!({"type": "group", "groupId": "G1"});
    assert_eq!(phone.deliver(&[nameless]).await, 200);
    assert_eq!(phone.heard(), ["系統暫時有點忙，請稍後再試一次。"]);
}

#[tokio::test]
async fn the_second_event_of_a_delivery_sees_what_the_first_has_changed() {
    let store = TestStore::counting(Arc::new(Memory::new()));
    let (phone, user) = (Phone::with_store(Parrot, store.clone()), user());
    assert_eq!(phone.deliver(&[text(&user, "a"), text(&user, "b")]).await, 200);
    assert_eq!(phone.heard(), [r#"["a"]"#, r#"["a", "b"]"#]);
}

/// A map whose keys are no texts has no JSON. Nothing is written, so that what was kept stays readable.
#[tokio::test]
async fn a_state_that_cannot_be_written_is_an_apology_and_stays_as_it_is() {
    #[derive(Default, Serialize, Deserialize)]
    struct Grid {
        cells: std::collections::HashMap<(u8, u8), u32>,
    }
    const GRID: State<Grid> = State::new("grid", Ttl::Forever);
    struct Painter;
    impl Bot for Painter {
        type Ask = ();

        fn ask(&self, incoming: &Incoming<'_>) -> Option<()> {
            incoming.text().map(drop)
        }

        async fn answer(&self, context: &Context<'_>, _: &()) -> Result {
            Ok(context
                .change(&GRID, |grid| {
                    grid.cells.insert((1, 2), 3);
                    Message::text("painted")
                })
                .into())
        }
    }
    let store: Arc<dyn Store> = Arc::new(Memory::new());
    let (phone, user) = (Phone::with_store(Painter, Arc::clone(&store)), user());
    assert_eq!(phone.say(&user, "paint").await, ["系統暫時有點忙，請稍後再試一次。"]);
    assert_eq!(store.get(&Key::new(format!("user:{user}:grid")).unwrap()).await.unwrap(), None);
}

/// What a change may answer: nothing, or an error, which leaves the state as it is.
#[tokio::test]
async fn a_change_may_be_silent_or_fail() {
    const SEEN: State<u32> = State::new("seen", Ttl::Forever);
    struct Watcher;
    impl Bot for Watcher {
        type Ask = bool;

        fn ask(&self, incoming: &Incoming<'_>) -> Option<bool> {
            incoming.text().map(|text| text == "fail")
        }

        async fn answer(&self, context: &Context<'_>, fails: &bool) -> Result {
            let fails = *fails;
            Ok(context
                .change(&SEEN, move |seen| -> Result<Option<Message>> {
                    *seen += 1;
                    if fails { Err("no".into()) } else { Ok((*seen == 2).then(|| Message::text("twice"))) }
                })
                .into())
        }
    }
    let (phone, user) = (Phone::new(Watcher), user());
    assert_eq!(phone.say(&user, "one").await, [] as [&str; 0]);
    assert_eq!(phone.say(&user, "fail").await, ["系統暫時有點忙，請稍後再試一次。"]);
    assert_eq!(phone.say(&user, "two").await, ["twice"]);
}
