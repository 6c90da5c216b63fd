//! What happens between an edit's read and its write, and to its reply: on every backend.

use crate::{on_every_backend, support};

use std::sync::Arc;
use std::time::Duration;

use edit_last_transaction::Config;
use futures_util::future::join_all;
use onetap_store::testing::{Fault, Gate, TestStore};
use onetap_store::{Batch, Store};
use support::{Api, BROKEN, CHANGED, DINNER, LUNCH, Reply, config};
use tokio::time::sleep;

const EDIT: &str = r#"{"品項":"工作午餐"}"#;

/// Sends an edit, and lets `meanwhile` happen between its read and its write.
async fn between<F: Future<Output = ()>>(
    api: &Api,
    headers: &[(&str, &str)],
    config: Config,
    meanwhile: impl FnOnce() -> F,
) -> Reply {
    let gate = Gate::new();
    let faults = vec![Fault::Pass, Fault::HeldBefore(gate.clone())];
    let editing =
        Api { user: api.user.clone(), ..Api::with(TestStore::first(Arc::clone(&api.store), faults), config) };
    let race = async {
        gate.reached().await;
        meanwhile().await;
        gate.open();
    };
    tokio::join!(editing.ask("PATCH", headers, EDIT), race).0
}

async fn another_transaction_in_between_is_409_and_untouched(store: Arc<dyn Store>) {
    let api = Api::new(store);
    api.put(LUNCH).await;
    between(&api, &[], config(), || api.plant(DINNER)).await.fails(409, CHANGED);
    assert_eq!(api.stored().await.as_deref(), Some(DINNER));
    // With a condition it is that which failed.
    let named = [("if-match", "20251129-140100")];
    between(&api, &named, config(), || api.plant(LUNCH)).await.fails(412, CHANGED);
    between(&api, &[("if-match", "*")], config(), || api.plant(DINNER)).await.fails(412, CHANGED);
    assert_eq!(api.stored().await.as_deref(), Some(DINNER));
}

async fn another_edit_in_between_is_kept_and_so_is_this_one(store: Arc<dyn Store>) {
    let api = Api::new(store);
    api.put(LUNCH).await;
    let winner = LUNCH.replace("飲食", "教育");
    assert_eq!(between(&api, &[], config(), || api.plant(&winner)).await.status, 200);
    assert_eq!(api.stored().await.unwrap(), winner.replace("午餐", "工作午餐"));
    // An edit of one value does not go on to the next.
    let etag = api.get().await.etag().to_owned();
    between(&api, &[("if-match", &etag)], config(), || api.plant(LUNCH)).await.fails(412, CHANGED);
    assert_eq!(api.stored().await.as_deref(), Some(LUNCH));
}

async fn expiry_in_between_is_410(store: Arc<dyn Store>) {
    let brief = support::with_life(Duration::from_secs(1));
    let api = Api::with(store, brief.clone());
    api.put(LUNCH).await;
    let expired = between(&api, &[], brief, || sleep(Duration::from_millis(1100))).await;
    expired.fails(410, "交易已過期（1 秒限制）");
    assert_eq!(api.stored().await, None);
}

async fn corruption_is_500_and_left_as_it_was(store: Arc<dyn Store>) {
    let api = Api::new(store);
    for broken in ["not JSON", "[1]", r#"{"品項":"午餐"}"#] {
        api.plant(broken).await;
        api.patch(EDIT).await.fails(500, BROKEN);
        assert_eq!(api.stored().await.as_deref(), Some(broken));
        api.plant(LUNCH).await;
        between(&api, &[], config(), || api.plant(broken)).await.fails(500, BROKEN);
        assert_eq!(api.stored().await.as_deref(), Some(broken));
    }
    assert_eq!(api.put(LUNCH).await.status, 200);
}

async fn an_edit_whose_reply_is_lost_is_200(store: Arc<dyn Store>) {
    let api = Api::new(store);
    api.put(LUNCH).await;
    for headers in [vec![], vec![("if-match", api.get().await.etag())]] {
        let faults = vec![Fault::Pass, Fault::ReplyLost];
        let lossy = api.through(TestStore::first(Arc::clone(&api.store), faults));
        assert_eq!(lossy.ask("PATCH", &headers, EDIT).await.status, 200);
        assert_eq!(api.stored().await.unwrap(), LUNCH.replace("午餐", "工作午餐"));
        // And sent again by a caller who never heard.
        assert_eq!(api.ask("PATCH", &headers, EDIT).await.status, 200);
        api.plant(LUNCH).await;
    }
}

async fn the_same_edit_twice_with_one_key_is_one_write_and_one_answer(store: Arc<dyn Store>) {
    let api = Api::new(store);
    api.put(LUNCH).await;
    let key = [("idempotency-key", "tap-1")];
    let first = api.ask("PATCH", &key, EDIT).await;
    assert_eq!((first.status, first.header("idempotency-replayed")), (200, None));
    // What came in between is not undone.
    api.patch(r#"{"品項":"宵夜"}"#).await;
    let counted = TestStore::counting(Arc::clone(&api.store));
    let second = api.through(counted.clone()).ask("PATCH", &key, EDIT).await;
    assert_eq!((second.status, second.header("idempotency-replayed")), (200, Some("true")));
    assert_eq!((&second.body, second.etag(), counted.calls()), (&first.body, first.etag(), 1));
    assert_eq!(api.stored().await.unwrap(), LUNCH.replace("午餐", "宵夜"));
    // The key is this method's, this path's, and this payload's.
    assert_eq!(api.ask("PUT", &key, LUNCH).await.header("idempotency-replayed"), None);
    let other = Api::new(Arc::clone(&api.store));
    assert_eq!(other.ask("PUT", &key, LUNCH).await.status, 201);
    let payload = api.ask("PATCH", &key, r#"{"品項":"下午茶"}"#).await;
    payload.fails(422, "這個 Idempotency-Key 已用於另一個請求");
    assert_eq!(payload.header("content-type"), Some("application/problem+json"));
    assert_eq!(api.stored().await.as_deref(), Some(LUNCH));
}

async fn a_put_with_a_key_happens_once(store: Arc<dyn Store>) {
    let api = Api::new(store);
    let key = [("x-idempotency-key", "tap-2")];
    let first = api.ask("PUT", &key, LUNCH).await;
    api.put(DINNER).await;
    let second = api.ask("PUT", &key, LUNCH).await;
    assert_eq!((first.status, second.status), (201, 201));
    assert_eq!((first.body, first.headers["etag"].clone()), (second.body, second.headers["etag"].clone()));
    assert_eq!(api.stored().await.as_deref(), Some(DINNER));
}

async fn an_edit_with_a_key_whose_reply_is_lost_is_200(store: Arc<dyn Store>) {
    let api = Api::new(store);
    api.put(LUNCH).await;
    let key = [("idempotency-key", "tap-3")];
    // The claim's reply, the read's, the commit's: each of them.
    let lost = [vec![Fault::ReplyLost], vec![Fault::Pass, Fault::Pass, Fault::ReplyLost]];
    for faults in lost {
        let lossy = api.through(TestStore::first(Arc::clone(&api.store), faults));
        let reply = lossy.ask("PATCH", &key, EDIT).await;
        assert_eq!(reply.status, 200, "{}", reply.body);
        assert_eq!(api.stored().await.unwrap(), LUNCH.replace("午餐", "工作午餐"));
    }
}

async fn an_edit_with_a_key_that_loses_the_race_reapplies(store: Arc<dyn Store>) {
    let api = Api::new(store);
    api.put(LUNCH).await;
    let gate = Gate::new();
    // The claim, the read, and the commit, which is held.
    let faults = vec![Fault::Pass, Fault::Pass, Fault::HeldBefore(gate.clone())];
    let editing = api.through(TestStore::first(Arc::clone(&api.store), faults.clone()));
    let winner = LUNCH.replace("飲食", "教育");
    let race = async {
        gate.reached().await;
        api.plant(&winner).await;
        gate.open();
    };
    let (reply, ()) = tokio::join!(editing.ask("PATCH", &[("idempotency-key", "tap-4")], EDIT), race);
    assert_eq!((reply.status, api.stored().await.unwrap()), (200, winner.replace("午餐", "工作午餐")));
    // Another transaction is a conflict here too, which is not kept: the next try is a new one.
    let editing = api.through(TestStore::first(Arc::clone(&api.store), faults));
    let race = async {
        gate.reached().await;
        api.plant(DINNER).await;
        gate.open();
    };
    let (reply, ()) = tokio::join!(editing.ask("PATCH", &[("idempotency-key", "tap-5")], EDIT), race);
    reply.fails(409, CHANGED);
    assert_eq!(api.stored().await.as_deref(), Some(DINNER));
    assert_eq!(api.ask("PATCH", &[("idempotency-key", "tap-5")], EDIT).await.status, 200);
}

async fn ten_at_once_with_one_key_are_one_edit(store: Arc<dyn Store>) {
    let api = Api::new(store);
    api.put(LUNCH).await;
    let key = [("idempotency-key", "tap-7")];
    let replies = join_all((0..10).map(|_| api.ask("PATCH", &key, EDIT))).await;
    let fresh = replies.iter().filter(|reply| reply.header("idempotency-replayed").is_none()).count();
    assert_eq!(fresh, 1);
    assert!(replies.iter().all(|reply| reply.status == 200 && reply.body == replies[0].body));
}

async fn an_edit_renews_the_life_and_a_read_does_not(store: Arc<dyn Store>) {
    let api = Api::with(store, support::with_life(Duration::from_secs(3)));
    let two_seconds = Duration::from_secs(2);
    api.put(LUNCH).await;
    sleep(two_seconds).await;
    assert_eq!(api.patch(EDIT).await.status, 200);
    sleep(two_seconds).await;
    assert_eq!(api.get().await.status, 200);
    sleep(two_seconds).await;
    assert_eq!(api.get().await.status, 404);
}

async fn round_trips_are_as_few_as_promised(store: Arc<dyn Store>) {
    let api = Api::new(store);
    let costs =
        |method: &'static str, headers: &'static [(&'static str, &'static str)], body: &'static str| {
            let counted = TestStore::counting(Arc::clone(&api.store));
            let api = api.through(counted.clone());
            async move {
                let reply = api.ask(method, headers, body).await;
                assert!(reply.status < 300, "{}", reply.body);
                counted.calls()
            }
        };
    // The first PUT of a user guesses right that nothing is there. A later one does not: there is a ledger.
    assert_eq!(costs("PUT", &[], LUNCH).await, 1);
    assert_eq!(costs("PUT", &[], LUNCH).await, 2);
    assert_eq!(costs("GET", &[], "").await, 1);
    assert_eq!(costs("PATCH", &[], EDIT).await, 2);
    assert_eq!(costs("PATCH", &[("if-match", "*")], EDIT).await, 2);
    // With a key, one more for the claim; a replay is the claim alone.
    assert_eq!(costs("PATCH", &[("idempotency-key", "k")], EDIT).await, 3);
    assert_eq!(costs("PATCH", &[("idempotency-key", "k")], EDIT).await, 1);
    // It is deleted in one month and put into another.
    assert_eq!(costs("PATCH", &[], r#"{"日期":"2025-12-01"}"#).await, 2);
    assert_eq!(costs("PATCH", &[("idempotency-key", "m")], r#"{"日期":"2025-11-29"}"#).await, 3);
    assert_eq!(costs("DELETE", &[], "").await, 2);
    // A PUT begins with the write; the refusal brings the months that there are.
    assert_eq!(costs("PUT", &[("idempotency-key", "k")], LUNCH).await, 3);
    let counted = TestStore::counting(Arc::clone(&api.store));
    assert_eq!(api.through(counted.clone()).transactions("?month=2025-11", &[]).await.json()["count"], 1);
    assert_eq!(counted.calls(), 1, "a month");
    // Each lost race is one more.
    let gate = Gate::new();
    let faulty = TestStore::first(Arc::clone(&api.store), vec![Fault::Pass, Fault::HeldBefore(gate.clone())]);
    let editing = api.through(faulty.clone());
    let race = async {
        gate.reached().await;
        api.plant(&LUNCH.replace("飲食", "教育")).await;
        gate.open();
    };
    let (reply, ()) = tokio::join!(editing.patch(EDIT), race);
    assert_eq!((reply.status, faulty.calls()), (200, 3));
}

async fn what_is_running_elsewhere_is_409_after_the_wait(store: Arc<dyn Store>) {
    let api = Api::new(store);
    api.put(LUNCH).await;
    let key = [("idempotency-key", "tap-6")];
    let gate = Gate::new();
    let held = api.through(TestStore::first(
        Arc::clone(&api.store),
        vec![Fault::Pass, Fault::HeldBefore(gate.clone())],
    ));
    let mut impatient = config();
    impatient.idem = impatient.idem.wait_timeout(Duration::from_millis(100));
    let other = Api { user: api.user.clone(), ..Api::with(Arc::clone(&api.store), impatient) };
    let meanwhile = async {
        gate.reached().await;
        let busy = other.ask("PATCH", &key, EDIT).await;
        busy.fails(409, "相同 Idempotency-Key 的請求正在處理中，請稍後再試");
        assert_eq!(busy.header("content-type"), Some("application/problem+json"));
        assert!(busy.header("retry-after").unwrap().parse::<u64>().unwrap() >= 1);
        // Another payload is refused also while the first runs.
        other
            .ask("PATCH", &key, r#"{"品項":"宵夜"}"#)
            .await
            .fails(422, "這個 Idempotency-Key 已用於另一個請求");
        gate.open();
    };
    let (reply, ()) = tokio::join!(held.ask("PATCH", &key, EDIT), meanwhile);
    assert_eq!(reply.status, 200);
    assert_eq!(other.ask("PATCH", &key, EDIT).await.header("idempotency-replayed"), Some("true"));
}

async fn a_transaction_deleted_past_the_function_is_gone(store: Arc<dyn Store>) {
    let api = Api::new(store);
    api.put(LUNCH).await;
    let gone = || async {
        let _ = api.store.commit(&Batch::new().delete(&api.key(), LUNCH)).await.unwrap();
    };
    between(&api, &[], config(), gone).await.fails(410, "交易已過期（1 小時限制）");
    assert_eq!(api.stored().await, None);
}

on_every_backend! {
    another_transaction_in_between_is_409_and_untouched:
    another_transaction_in_between_is_409_and_untouched_on_memory
    another_transaction_in_between_is_409_and_untouched_on_redis
    another_transaction_in_between_is_409_and_untouched_on_upstash
    another_transaction_in_between_is_409_and_untouched_on_dynamodb
    another_transaction_in_between_is_409_and_untouched_on_dynamodb_local
}
on_every_backend! {
    another_edit_in_between_is_kept_and_so_is_this_one:
    another_edit_in_between_is_kept_and_so_is_this_one_on_memory
    another_edit_in_between_is_kept_and_so_is_this_one_on_redis
    another_edit_in_between_is_kept_and_so_is_this_one_on_upstash
    another_edit_in_between_is_kept_and_so_is_this_one_on_dynamodb
    another_edit_in_between_is_kept_and_so_is_this_one_on_dynamodb_local
}
on_every_backend! {
    expiry_in_between_is_410:
    expiry_in_between_is_410_on_memory
    expiry_in_between_is_410_on_redis
    expiry_in_between_is_410_on_upstash
    expiry_in_between_is_410_on_dynamodb
    expiry_in_between_is_410_on_dynamodb_local
}
on_every_backend! {
    corruption_is_500_and_left_as_it_was:
    corruption_is_500_and_left_as_it_was_on_memory
    corruption_is_500_and_left_as_it_was_on_redis
    corruption_is_500_and_left_as_it_was_on_upstash
    corruption_is_500_and_left_as_it_was_on_dynamodb
    corruption_is_500_and_left_as_it_was_on_dynamodb_local
}
on_every_backend! {
    an_edit_whose_reply_is_lost_is_200:
    an_edit_whose_reply_is_lost_is_200_on_memory
    an_edit_whose_reply_is_lost_is_200_on_redis
    an_edit_whose_reply_is_lost_is_200_on_upstash
    an_edit_whose_reply_is_lost_is_200_on_dynamodb
    an_edit_whose_reply_is_lost_is_200_on_dynamodb_local
}
on_every_backend! {
    the_same_edit_twice_with_one_key_is_one_write_and_one_answer:
    the_same_edit_twice_with_one_key_is_one_write_and_one_answer_on_memory
    the_same_edit_twice_with_one_key_is_one_write_and_one_answer_on_redis
    the_same_edit_twice_with_one_key_is_one_write_and_one_answer_on_upstash
    the_same_edit_twice_with_one_key_is_one_write_and_one_answer_on_dynamodb
    the_same_edit_twice_with_one_key_is_one_write_and_one_answer_on_dynamodb_local
}
on_every_backend! {
    a_put_with_a_key_happens_once:
    a_put_with_a_key_happens_once_on_memory
    a_put_with_a_key_happens_once_on_redis
    a_put_with_a_key_happens_once_on_upstash
    a_put_with_a_key_happens_once_on_dynamodb
    a_put_with_a_key_happens_once_on_dynamodb_local
}
on_every_backend! {
    an_edit_with_a_key_whose_reply_is_lost_is_200:
    an_edit_with_a_key_whose_reply_is_lost_is_200_on_memory
    an_edit_with_a_key_whose_reply_is_lost_is_200_on_redis
    an_edit_with_a_key_whose_reply_is_lost_is_200_on_upstash
    an_edit_with_a_key_whose_reply_is_lost_is_200_on_dynamodb
    an_edit_with_a_key_whose_reply_is_lost_is_200_on_dynamodb_local
}
on_every_backend! {
    an_edit_with_a_key_that_loses_the_race_reapplies:
    an_edit_with_a_key_that_loses_the_race_reapplies_on_memory
    an_edit_with_a_key_that_loses_the_race_reapplies_on_redis
    an_edit_with_a_key_that_loses_the_race_reapplies_on_upstash
    an_edit_with_a_key_that_loses_the_race_reapplies_on_dynamodb
    an_edit_with_a_key_that_loses_the_race_reapplies_on_dynamodb_local
}
on_every_backend! {
    an_edit_renews_the_life_and_a_read_does_not:
    an_edit_renews_the_life_and_a_read_does_not_on_memory
    an_edit_renews_the_life_and_a_read_does_not_on_redis
    an_edit_renews_the_life_and_a_read_does_not_on_upstash
    an_edit_renews_the_life_and_a_read_does_not_on_dynamodb
    an_edit_renews_the_life_and_a_read_does_not_on_dynamodb_local
}
on_every_backend! {
    round_trips_are_as_few_as_promised:
    round_trips_are_as_few_as_promised_on_memory
    round_trips_are_as_few_as_promised_on_redis
    round_trips_are_as_few_as_promised_on_upstash
    round_trips_are_as_few_as_promised_on_dynamodb
    round_trips_are_as_few_as_promised_on_dynamodb_local
}
on_every_backend! {
    what_is_running_elsewhere_is_409_after_the_wait:
    what_is_running_elsewhere_is_409_after_the_wait_on_memory
    what_is_running_elsewhere_is_409_after_the_wait_on_redis
    what_is_running_elsewhere_is_409_after_the_wait_on_upstash
    what_is_running_elsewhere_is_409_after_the_wait_on_dynamodb
    what_is_running_elsewhere_is_409_after_the_wait_on_dynamodb_local
}
on_every_backend! {
    a_transaction_deleted_past_the_function_is_gone:
    a_transaction_deleted_past_the_function_is_gone_on_memory
    a_transaction_deleted_past_the_function_is_gone_on_redis
    a_transaction_deleted_past_the_function_is_gone_on_upstash
    a_transaction_deleted_past_the_function_is_gone_on_dynamodb
    a_transaction_deleted_past_the_function_is_gone_on_dynamodb_local
}
on_every_backend! {
    ten_at_once_with_one_key_are_one_edit:
    ten_at_once_with_one_key_are_one_edit_on_memory
    ten_at_once_with_one_key_are_one_edit_on_redis
    ten_at_once_with_one_key_are_one_edit_on_upstash
    ten_at_once_with_one_key_are_one_edit_on_dynamodb
    ten_at_once_with_one_key_are_one_edit_on_dynamodb_local
}
