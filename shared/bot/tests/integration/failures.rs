//! Bots and stores that misbehave.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use onetap_bot::{Answer, Bot, Change, Context, Incoming, Key, Message, Result, Times};
use onetap_store::testing::{Fault, TestStore};
use onetap_store::{Batch, Edit, Expect, Memory, Store, Ttl};

use crate::support::{Stage, redelivered, text, user};

const UNAVAILABLE: &str = "系統暫時有點忙，請稍後再試一次。";

/// Does what it is told, and counts how often it is asked.
#[derive(Debug, Default)]
struct Clumsy {
    asked: AtomicUsize,
}

impl Bot for Clumsy {
    type Ask = String;

    fn ask(&self, incoming: &Incoming<'_>) -> Option<String> {
        incoming.text().map(str::to_owned)
    }

    async fn answer(&self, _: &Context<'_>, words: &String) -> Result {
        self.asked.fetch_add(1, Ordering::SeqCst);
        let key = Key::new("clumsy")?;
        let change = || {
            let writes = Batch::new().put(&key, Expect::Absent, "1", Ttl::Forever);
            Change::new(Edit::default(), move |_| Ok((writes.clone(), Some(Message::text("written").into()))))
        };
        match words.as_str() {
            "fail" => Err("the kitchen is on fire")?,
            "panic" => panic!("planted"),
            "sleep" => tokio::time::sleep(Duration::from_secs(3600)).await,
            "nothing" => return Ok(Answer::nothing()),
            "again" => return Ok(Answer::again()),
            "write" => return Ok(change().into()),
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

fn stage(store: Arc<dyn Store>) -> Stage<Clumsy> {
    Stage::new(store, Clumsy::default())
}

fn memory() -> Arc<dyn Store> {
    Arc::new(Memory::new())
}

#[tokio::test]
async fn a_bot_that_fails_has_its_user_told_once() {
    let stage = stage(memory());
    let event = text(&user(), "fail");
    assert_eq!(stage.deliver(std::slice::from_ref(&event)).await, 200);
    assert_eq!(stage.deliver(&[redelivered(&event)]).await, 200);
    assert_eq!(stage.said(), [UNAVAILABLE]);
}

#[tokio::test]
async fn a_bot_that_panics_fails_its_event_alone() {
    let stage = stage(memory());
    assert_eq!(stage.deliver(&[text(&user(), "panic"), text(&user(), "hello")]).await, 500);
    assert_eq!(stage.said(), ["said"]);
}

#[tokio::test]
async fn a_bot_that_is_late_has_its_user_told_in_time() {
    let times = Times { delivery: Duration::from_secs(4), reply: Duration::from_secs(3) };
    let stage = Stage::timed(memory(), Clumsy::default(), times);
    let event = text(&user(), "sleep");
    assert_eq!(stage.deliver(std::slice::from_ref(&event)).await, 200);
    assert_eq!(stage.deliver(&[redelivered(&event)]).await, 200);
    assert_eq!(
        (stage.said(), stage.webhook.bot().asked.load(Ordering::SeqCst)),
        (vec![UNAVAILABLE.into()], 1)
    );
}

#[tokio::test]
async fn an_event_that_needs_no_answer_is_handled_and_one_that_cannot_be_answered_comes_again() {
    let stage = stage(memory());
    let (nothing, again) = (text(&user(), "nothing"), text(&user(), "again"));
    for (event, statuses, asked) in [(nothing, [200, 200], 1), (again, [500, 500], 3)] {
        assert_eq!(stage.deliver(std::slice::from_ref(&event)).await, statuses[0]);
        assert_eq!(stage.deliver(&[redelivered(&event)]).await, statuses[1]);
        assert_eq!(stage.webhook.bot().asked.load(Ordering::SeqCst), asked);
    }
    assert_eq!(stage.said(), [] as [&str; 0]);
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
            let stage = stage(TestStore::faulty(memory(), fails));
            assert_eq!(stage.deliver(&[text(&user(), words)]).await, status, "{words}, from call {first}");
            assert_eq!(stage.said(), said.map(str::to_owned).into_iter().collect::<Vec<_>>(), "{words}");
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
    assert_eq!(broken.said(), [] as [&str; 0]);
    let mended = stage(store);
    assert_eq!(mended.deliver(&[redelivered(&event)]).await, 200);
    assert_eq!(mended.said(), ["written"]);
}

/// Without a claim nothing tells a redelivery that the change is made, so none is asked for.
#[tokio::test]
async fn a_change_without_a_claim_is_not_made_twice_although_its_reply_failed() {
    let stage = stage(memory());
    let mut event = text(&user(), "write");
    event.as_object_mut().unwrap().remove("webhookEventId");
    let no = onetap_line::testing::Fault::Status(429, "{}".to_owned());
    stage.line.fail_always(Some(no));
    assert_eq!(stage.deliver(&[event]).await, 200);
}
