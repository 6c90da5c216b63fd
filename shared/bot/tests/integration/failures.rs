//! Bots and stores that misbehave.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use onetap_bot::{Answer, Bot, Change, Context, Incoming, Key, Message, Messages, Overlap, Result, Times};
use onetap_store::testing::{Fault, TestStore};
use onetap_store::{Batch, Edit, Expect, Memory, Store, Ttl};

use onetap_bot::testing::{Phone, redelivered, text, user};

const UNAVAILABLE: &str = "系統暫時有點忙，請稍後再試一次。";

/// Does what it is told, and counts how often it is asked, and how often a commit is followed by work.
#[derive(Default)]
struct Clumsy {
    asked: AtomicUsize,
    committed: AtomicUsize,
}

impl Bot for Clumsy {
    type Ask = String;

    fn ask(&self, incoming: &Incoming<'_>) -> Option<String> {
        assert_ne!(incoming.text(), Some("panic in ask"), "planted");
        incoming.text().map(str::to_owned)
    }

    fn overlap(&self, _: &Incoming<'_>, words: &String) -> Overlap {
        assert_ne!(words, "panic in overlap", "planted");
        if words.starts_with("lock") { Overlap::Busy } else { Overlap::Concurrent }
    }

    fn reads(&self, _: &Incoming<'_>, words: &String) -> Vec<Key> {
        assert_ne!(words, "panic in reads", "planted");
        Vec::new()
    }

    fn busy(&self) -> Messages {
        panic!("planted")
    }

    async fn after_commit(&self, _: &Context<'_>, words: &String, messages: Messages) -> Messages {
        self.committed.fetch_add(1, Ordering::SeqCst);
        match words.as_str() {
            "write and panic" => panic!("planted"),
            "write and hang" => std::future::pending().await,
            _ => messages,
        }
    }

    async fn answer(&self, context: &Context<'_>, words: &String) -> Result {
        self.asked.fetch_add(1, Ordering::SeqCst);
        let key = Key::new("clumsy")?;
        let change = || {
            let writes = Batch::new().put(&key, Expect::Absent, "1", Ttl::Forever);
            Change::new(Edit::default(), move |_| Ok((writes.clone(), Some(Message::text("written").into()))))
        };
        match words.as_str() {
            "fail" => Err("the kitchen is on fire")?,
            "panic" | "lock and panic" => panic!("planted"),
            "lock and panic in the step" => {
                return Ok(Change::new(Edit::default(), |_| panic!("planted")).into());
            }
            "fail once" if self.asked.load(Ordering::SeqCst) == 1 => {
                return Ok(Change::new(Edit::default(), |_| Err("sold out".into())).into());
            }
            "write nonsense" => {
                let nonsense = Batch::new().put(&key, Expect::Absent, "1", Ttl::Of(Duration::ZERO));
                return Ok(Change::new(Edit::default(), move |_| Ok((nonsense.clone(), None))).into());
            }
            "key" => {
                let keys = context.effect_keys().ok_or("no id")?;
                return Ok(Message::text(keys.key("kitchen").uuid()).into());
            }
            "sleep" => tokio::time::sleep(Duration::from_secs(3600)).await,
            "nothing" => return Ok(Answer::nothing()),
            "again" => return Ok(Answer::again()),
            "write" | "write and panic" | "write and hang" => return Ok(change().into()),
            "write or say" => return Ok(change().or_say(Message::text("not written")).into()),
            "write or again" => return Ok(change().or_again().into()),
            "say and write" => {
                let write = Change::new(Edit::of(&key), {
                    let key = key.clone();
                    move |there| Ok((Batch::new().put(&key, there.expect(&key), "2", Ttl::Forever), None))
                });
                return Ok(Answer::say(Message::text("said")).and_try(write));
            }
            _ => {}
        }
        Ok(Answer::say(Message::text("said")))
    }
}

fn stage(store: Arc<dyn Store>) -> Phone<Clumsy> {
    Phone::with_store(Clumsy::default(), store)
}

fn memory() -> Arc<dyn Store> {
    Arc::new(Memory::new())
}

#[tokio::test]
async fn a_bot_that_fails_has_its_user_told_once() {
    let phone = stage(memory());
    let event = text(&user(), "fail");
    assert_eq!(phone.deliver(std::slice::from_ref(&event)).await, 200);
    assert_eq!(phone.deliver(&[redelivered(&event)]).await, 200);
    assert_eq!(phone.heard(), [UNAVAILABLE]);
}

/// The lock is free after it, and the event is known.
#[tokio::test]
async fn a_bot_that_panics_while_it_answers_has_its_user_told_once() {
    let phone = stage(memory());
    let (mine, event) = (user(), text(&user(), "panic"));
    assert_eq!(phone.deliver(&[event.clone(), text(&mine, "hello")]).await, 200);
    assert_eq!(phone.deliver(&[redelivered(&event)]).await, 200);
    let mut said = phone.heard();
    said.sort_unstable();
    assert_eq!(said, ["said", UNAVAILABLE]);
    for words in ["lock and panic", "lock and panic in the step"] {
        assert_eq!(phone.say(&mine, words).await, [UNAVAILABLE], "{words}");
        assert_eq!(phone.say(&mine, "lock").await, ["said"], "after {words}");
    }
}

#[tokio::test]
async fn a_bot_that_panics_when_it_is_asked_fails_that_event_alone() {
    for words in ["panic in ask", "panic in overlap", "panic in reads"] {
        let phone = stage(memory());
        assert_eq!(phone.deliver(&[text(&user(), words), text(&user(), "hello")]).await, 500, "{words}");
        assert_eq!(phone.heard(), ["said"], "{words}");
    }
}

/// The reply to whoever meets the lock is then the default.
#[tokio::test]
async fn a_bot_that_panics_in_its_busy_reply_has_another_one() {
    let (phone, user) = (stage(memory()), user());
    assert_eq!(phone.deliver(&[text(&user, "lock"), text(&user, "lock")]).await, 200);
    let mut said = phone.heard();
    said.sort_unstable();
    assert_eq!(said, ["said", "⏳ 處理中，請稍候..."]);
}

#[tokio::test]
async fn work_after_the_commit_that_panics_or_hangs_does_not_hold_up_the_answer() {
    let times = Times { delivery: Duration::from_secs(4), reply: Duration::from_secs(3) };
    for words in ["write and panic", "write and hang"] {
        let phone = Phone::with_times(Clumsy::default(), memory(), times);
        let event = text(&user(), words);
        assert_eq!(phone.deliver(std::slice::from_ref(&event)).await, 200, "{words}");
        assert_eq!(phone.heard(), ["written"], "{words}");
    }
}

/// An answer that says "wait" or "try again" is sent by the redelivery too, and nothing follows it.
#[tokio::test]
async fn only_what_was_committed_has_work_after_the_commit() {
    let user = user();
    for (words, said) in [("fail", UNAVAILABLE), ("write", "written")] {
        let phone = stage(memory());
        let event = text(&user, words);
        phone.line().fail_always(Some(onetap_line::testing::Fault::Status(500, "{}".to_owned())));
        assert_eq!(phone.deliver(std::slice::from_ref(&event)).await, 500, "{words}");
        phone.line().fail_always(None);
        assert_eq!(phone.deliver(&[redelivered(&event)]).await, 200, "{words}");
        assert_eq!(phone.heard(), [said]);
        let committed = phone.webhook().bot().committed.load(Ordering::SeqCst);
        assert_eq!(committed > 0, words == "write", "{words}: {committed}");
    }
}

/// The user may say it again at once; the redelivery must not do it a second time.
#[tokio::test]
async fn a_change_that_failed_and_was_apologized_for_is_not_made_by_a_redelivery() {
    let (phone, user) = (stage(memory()), user());
    let event = text(&user, "fail once");
    let neighbour = text(&user, "again");
    assert_eq!(phone.deliver(&[event.clone(), neighbour]).await, 500, "for the neighbour");
    assert_eq!(phone.heard(), [UNAVAILABLE]);
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(120)).await;
    tokio::time::resume();
    assert_eq!(phone.deliver(&[redelivered(&event)]).await, 200);
    assert_eq!(phone.heard(), [] as [&str; 0]);
}

/// It is the bot's failure, and not the store's: the other user's event is claimed, and its lock released.
#[tokio::test]
async fn a_batch_that_no_store_takes_fails_its_event_alone() {
    let (phone, other) = (stage(memory()), user());
    let own = text(&other, "lock");
    assert_eq!(phone.deliver(&[text(&user(), "write nonsense"), own.clone()]).await, 200);
    let mut said = phone.heard();
    said.sort_unstable();
    assert_eq!(said, ["said", UNAVAILABLE]);
    assert_eq!(phone.deliver(&[redelivered(&own)]).await, 200);
    assert_eq!(phone.heard(), [] as [&str; 0], "it has its marker");
    assert_eq!(phone.say(&other, "lock").await, ["said"], "its lock is free");
}

#[tokio::test]
async fn an_event_that_had_no_turn_is_left_to_the_redelivery() {
    let times = Times { delivery: Duration::from_secs(4), reply: Duration::from_secs(3) };
    let (phone, user) = (Phone::with_times(Clumsy::default(), memory(), times), user());
    let second = text(&user, "hello");
    assert_eq!(phone.deliver(&[text(&user, "sleep"), second.clone()]).await, 500);
    assert_eq!(phone.heard(), [UNAVAILABLE], "the first one's");
    assert_eq!(phone.deliver(&[redelivered(&second)]).await, 200);
    assert_eq!(phone.heard(), ["said"]);
}

/// A second run is likeliest where the store is down, so the keys for other services must be the same there too.
#[tokio::test]
async fn an_effect_key_is_the_same_where_the_store_is_down() {
    let event = text(&user(), "key");
    let mut keys = Vec::new();
    for store in [memory(), TestStore::faulty(memory(), |_| Fault::NotSent)] {
        let phone = stage(store);
        assert_eq!(phone.deliver(std::slice::from_ref(&event)).await, 200);
        keys.extend(phone.heard());
    }
    assert_eq!((keys.len(), &keys[0]), (2, &keys[1]));
    assert_eq!(keys[0].len(), 36, "a UUID");
}

#[tokio::test]
async fn a_bot_that_is_late_has_its_user_told_in_time() {
    let times = Times { delivery: Duration::from_secs(4), reply: Duration::from_secs(3) };
    let phone = Phone::with_times(Clumsy::default(), memory(), times);
    let event = text(&user(), "sleep");
    assert_eq!(phone.deliver(std::slice::from_ref(&event)).await, 200);
    assert_eq!(phone.deliver(&[redelivered(&event)]).await, 200);
    assert_eq!(
        (phone.heard(), phone.webhook().bot().asked.load(Ordering::SeqCst)),
        (vec![UNAVAILABLE.into()], 1)
    );
}

#[tokio::test]
async fn an_event_that_needs_no_answer_is_handled_and_one_that_cannot_be_answered_comes_again() {
    let phone = stage(memory());
    let (nothing, again) = (text(&user(), "nothing"), text(&user(), "again"));
    for (event, statuses, asked) in [(nothing, [200, 200], 1), (again, [500, 500], 3)] {
        assert_eq!(phone.deliver(std::slice::from_ref(&event)).await, statuses[0]);
        assert_eq!(phone.deliver(&[redelivered(&event)]).await, statuses[1]);
        assert_eq!(phone.webhook().bot().asked.load(Ordering::SeqCst), asked);
    }
    assert_eq!(phone.heard(), [] as [&str; 0]);
}

/// Where the store is down, and where it fails at the commit.
#[tokio::test]
async fn a_change_that_is_not_written_says_what_the_bot_wants() {
    for (words, said, status) in [
        ("write", Some(UNAVAILABLE), 200),
        ("write or say", Some("not written"), 200),
        ("write or again", None, 500),
        ("say and write", Some("said"), 200),
    ] {
        for first in [1, 2] {
            let fails = move |call| if call >= first { Fault::NotSent } else { Fault::Pass };
            let phone = stage(TestStore::faulty(memory(), fails));
            assert_eq!(phone.deliver(&[text(&user(), words)]).await, status, "{words}, from call {first}");
            assert_eq!(phone.heard(), said.map(str::to_owned).into_iter().collect::<Vec<_>>(), "{words}");
        }
    }
}

/// Nobody is told "try again" while the write may be applied: the redelivery finds out.
#[tokio::test]
async fn a_change_that_may_be_written_is_looked_up_by_the_redelivery() {
    let store = memory();
    let lost = |call| match call {
        2 => Fault::ReplyLost,
        3.. => Fault::NotSent,
        _ => Fault::Pass,
    };
    let broken = stage(TestStore::faulty(Arc::clone(&store), lost));
    let event = text(&user(), "write");
    assert_eq!(broken.deliver(std::slice::from_ref(&event)).await, 500);
    assert_eq!(broken.heard(), [] as [&str; 0]);
    let mended = stage(store);
    assert_eq!(mended.deliver(&[redelivered(&event)]).await, 200);
    assert_eq!(mended.heard(), ["written"]);
}

/// Without a claim nothing tells a redelivery that the change is made, so none is asked for.
#[tokio::test]
async fn a_change_without_a_claim_is_not_made_twice_although_its_reply_failed() {
    let phone = stage(memory());
    let mut event = text(&user(), "write");
    event.as_object_mut().unwrap().remove("webhookEventId");
    let no = onetap_line::testing::Fault::Status(429, "{}".to_owned());
    phone.line().fail_always(Some(no));
    assert_eq!(phone.deliver(&[event]).await, 200);
}
