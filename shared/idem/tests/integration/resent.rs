//! What is sent again after a lost reply, and what its answer says.

use crate::support;

use std::sync::Arc;
use std::time::Duration;

use onetap_idem::{Idempotency, Resolution, ResolveOutcome};
use onetap_servers::{Dynamo, Fault, Proxy, Redis, TcpProxy, Upstash, create_table};
use onetap_store::lease::{AcquireOutcome, ReleaseOutcome};
use onetap_store::testing::conformance::Names;
use onetap_store::testing::{Fault as Held, Gate, TestStore};
use onetap_store::{Batch, Commit, Edit, Error, Expect, Found, Keep, Key, Lease, Store, Values};
use serde_json::json;
use support::PATIENT;
use tokio::time::sleep;

const HOUR: Duration = Duration::from_secs(3600);

/// A server that can lose the reply to a write, with a store in front of the fault and one behind it.
struct Lossy<S> {
    store: Arc<dyn Store>,
    direct: Arc<dyn Store>,
    server: S,
}

async fn lossy_redis() -> Lossy<(Redis, TcpProxy)> {
    let redis = Redis::start().await;
    let proxy = TcpProxy::start(redis.addr()).await;
    let direct = support::store(&support::redis(redis.url(), PATIENT));
    let store = support::store(&support::redis(proxy.url(), PATIENT));
    Lossy { store, direct, server: (redis, proxy) }
}

async fn lossy_upstash() -> Lossy<(Redis, Upstash)> {
    let redis = Redis::start().await;
    let gateway = Upstash::start(&redis.url()).await;
    let direct = support::store(&support::redis(redis.url(), PATIENT));
    let store = support::store(&support::upstash(gateway.url(), gateway.token(), PATIENT));
    Lossy { store, direct, server: (redis, gateway) }
}

async fn lossy_dynamodb() -> Lossy<(Dynamo, Proxy)> {
    let dynamo = Dynamo::start().await;
    create_table(&dynamo.url(), "onetap").await;
    let proxy = Proxy::start(&dynamo.url()).await;
    let direct = support::store(&support::dynamodb(dynamo.url(), PATIENT));
    let store = support::store(&support::dynamodb(proxy.url(), PATIENT));
    Lossy { store, direct, server: (dynamo, proxy) }
}

/// Loses the reply to a write.
trait Lose {
    /// Whether batches that share nothing travel in one request.
    const ONE_REQUEST: bool = true;

    /// How many requests a commit sends before the write that appends to a log.
    const READS_BEFORE_APPEND: usize = 0;

    /// Makes `call`: after some reads its write is applied, and the reply to it is lost. `applied` says whether it is applied.
    async fn lose<T: Send + 'static>(
        &self,
        reads: usize,
        call: impl Future<Output = T> + Send + 'static,
        applied: impl AsyncFn() -> bool,
    ) -> T;
}

fn dropped_after(reads: usize) -> Vec<Fault> {
    let passed = (0..reads).map(|_| Fault::Delay(Duration::ZERO));
    passed.chain([Fault::DropReply]).collect()
}

impl Lose for Lossy<(Redis, TcpProxy)> {
    async fn lose<T: Send + 'static>(
        &self,
        _: usize,
        call: impl Future<Output = T> + Send + 'static,
        applied: impl AsyncFn() -> bool,
    ) -> T {
        let (_, proxy) = &self.server;
        // The connection is open: what is lost is a reply.
        self.store.get(&Names::new().key("warm")).await.unwrap();
        proxy.stall(true);
        let call = tokio::spawn(call);
        while !applied().await {
            sleep(Duration::from_millis(1)).await;
        }
        proxy.cut();
        proxy.stall(false);
        call.await.unwrap()
    }
}

impl Lose for Lossy<(Redis, Upstash)> {
    async fn lose<T: Send + 'static>(
        &self,
        reads: usize,
        call: impl Future<Output = T> + Send + 'static,
        _: impl AsyncFn() -> bool,
    ) -> T {
        self.server.1.inject_next(dropped_after(reads));
        call.await
    }
}

impl Lose for Lossy<(Dynamo, Proxy)> {
    const ONE_REQUEST: bool = false;
    const READS_BEFORE_APPEND: usize = 1;

    async fn lose<T: Send + 'static>(
        &self,
        reads: usize,
        call: impl Future<Output = T> + Send + 'static,
        _: impl AsyncFn() -> bool,
    ) -> T {
        self.server.1.inject_next(dropped_after(reads));
        call.await
    }
}

/// One test for each server.
macro_rules! on_each_server {
    ($($promise:ident: $redis:ident $upstash:ident $dynamodb:ident)*) => {$(
        #[tokio::test]
        #[ignore = "needs redis-server"]
        async fn $redis() {
            $promise(lossy_redis().await).await;
        }

        #[tokio::test]
        #[ignore = "needs redis-server"]
        async fn $upstash() {
            $promise(lossy_upstash().await).await;
        }

        #[tokio::test]
        async fn $dynamodb() {
            $promise(lossy_dynamodb().await).await;
        }
    )*};
}

on_each_server! {
    an_effect_whose_marker_goes_in_the_same_request_happens_once:
        an_effect_whose_marker_goes_in_the_same_request_happens_once_on_redis
        an_effect_whose_marker_goes_in_the_same_request_happens_once_on_upstash
        an_effect_whose_marker_goes_in_the_same_request_happens_once_on_dynamodb
    a_delete_whose_reply_was_lost_is_unknown:
        a_delete_whose_reply_was_lost_is_unknown_on_redis
        a_delete_whose_reply_was_lost_is_unknown_on_upstash
        a_delete_whose_reply_was_lost_is_unknown_on_dynamodb
    a_delete_for_which_gone_is_success_is_sent_again:
        a_delete_for_which_gone_is_success_is_sent_again_on_redis
        a_delete_for_which_gone_is_success_is_sent_again_on_upstash
        a_delete_for_which_gone_is_success_is_sent_again_on_dynamodb
    a_release_whose_reply_was_lost_has_freed_the_lease:
        a_release_whose_reply_was_lost_has_freed_the_lease_on_redis
        a_release_whose_reply_was_lost_has_freed_the_lease_on_upstash
        a_release_whose_reply_was_lost_has_freed_the_lease_on_dynamodb
    a_key_is_forgotten_although_the_reply_was_lost:
        a_key_is_forgotten_although_the_reply_was_lost_on_redis
        a_key_is_forgotten_although_the_reply_was_lost_on_upstash
        a_key_is_forgotten_although_the_reply_was_lost_on_dynamodb
}

async fn an_effect_whose_marker_goes_in_the_same_request_happens_once<S>(lossy: Lossy<S>)
where
    Lossy<S>: Lose,
{
    let names = Names::new();
    let (marker, other, log) = (names.key("marker"), names.key("other"), names.log("effects"));
    let mut batches = vec![
        Batch::new().put(&marker, Expect::Absent, "1", HOUR).append(&log, "effect", Keep::all_for(HOUR)),
        Batch::new().delete(&marker, "1").gone_is_success(),
    ];
    if Lossy::<S>::ONE_REQUEST {
        // It shares nothing with the others, and can be sent again.
        batches.push(Batch::new().put(&other, Expect::Absent, "mine", HOUR));
    }
    let (store, direct) = (Arc::clone(&lossy.store), Arc::clone(&lossy.direct));
    let call = async move { store.commit_each(&batches).await };
    let done = async || !direct.read(&log, None, 1).await.unwrap().is_empty();
    let answers = lossy.lose(Lossy::<S>::READS_BEFORE_APPEND, call, done).await;
    let records = lossy.direct.read(&log, None, 10).await.unwrap();
    assert_eq!(records.len(), 1, "{answers:?}");
    if let Some(answer) = answers.get(2) {
        let Ok(Commit::Refused(refusal)) = answer else { panic!("{answer:?}") };
        assert_eq!(refusal.get(&other), Some(Found::Text("mine")), "its own");
    }
    match &answers[0] {
        Ok(Commit::Applied(_)) => {}
        Err(error) => assert!(error.maybe_applied(), "{error:?}"),
        // Only its own marker would show that it was applied.
        Ok(Commit::Refused(refusal)) => assert_eq!(refusal.get(&marker), Some(Found::Text("1"))),
    }
}

async fn a_delete_whose_reply_was_lost_is_unknown<S>(lossy: Lossy<S>)
where
    Lossy<S>: Lose,
{
    let key = Names::new().key("order");
    let put = Batch::new().put(&key, Expect::Absent, "open", HOUR);
    assert!(matches!(lossy.direct.commit(&put).await, Ok(Commit::Applied(_))));
    let (store, direct, batch) =
        (Arc::clone(&lossy.store), Arc::clone(&lossy.direct), Batch::new().delete(&key, "open"));
    let call = async move { store.commit(&batch).await };
    let answer = lossy.lose(0, call, async || direct.get(&key).await.unwrap().is_none()).await;
    assert!(answer.as_ref().is_err_and(Error::maybe_applied), "{answer:?}");
}

async fn a_delete_for_which_gone_is_success_is_sent_again<S>(lossy: Lossy<S>)
where
    Lossy<S>: Lose,
{
    let key = Names::new().key("order");
    let put = Batch::new().put(&key, Expect::Absent, "open", HOUR);
    assert!(matches!(lossy.direct.commit(&put).await, Ok(Commit::Applied(_))));
    let batch = Batch::new().delete(&key, "open").gone_is_success();
    let (store, direct) = (Arc::clone(&lossy.store), Arc::clone(&lossy.direct));
    let call = async move { store.commit(&batch).await };
    match lossy.lose(0, call, async || direct.get(&key).await.unwrap().is_none()).await {
        Ok(Commit::Refused(refusal)) => assert_eq!(refusal.get(&key), Some(Found::Nothing)),
        answer => panic!("{answer:?}"),
    }
}

async fn a_release_whose_reply_was_lost_has_freed_the_lease<S>(lossy: Lossy<S>)
where
    Lossy<S>: Lose,
{
    let key = Names::new().key("lock");
    let Ok(AcquireOutcome::Acquired(lease)) = Lease::acquire(lossy.store.clone(), key.clone()).await else {
        panic!("nobody else asked")
    };
    let direct = Arc::clone(&lossy.direct);
    let released = lossy.lose(0, lease.release(), async || direct.get(&key).await.unwrap().is_none()).await;
    assert_eq!(released.unwrap(), ReleaseOutcome::Released);
}

async fn a_key_is_forgotten_although_the_reply_was_lost<S>(lossy: Lossy<S>)
where
    Lossy<S>: Lose,
{
    let id = format!("{:?}", Names::new());
    let record = Key::new(format!("idem:{id}")).unwrap();
    // Its owner should have ended in 1970.
    let claim = Batch::new().put(&record, Expect::Absent, r#"{"owner":"gone","until":1}"#, HOUR);
    assert!(matches!(lossy.direct.commit(&claim).await, Ok(Commit::Applied(_))));
    // It reads, and then writes.
    let gate = Gate::new();
    let held = TestStore::first(Arc::clone(&lossy.store), vec![Held::Pass, Held::HeldBefore(gate.clone())]);
    let (idem, direct) = (Idempotency::new(held), Arc::clone(&lossy.direct));
    let resolving = tokio::spawn(async move { idem.resolve(&id, Resolution::<()>::Forget).await.unwrap() });
    gate.reached().await;
    let call = async move {
        gate.open();
        resolving.await.unwrap()
    };
    let resolved = lossy.lose(0, call, async || direct.get(&record).await.unwrap().is_none()).await;
    assert_eq!(resolved, ResolveOutcome::Settled);
}

/// The answer of a transaction that was canceled by the value of `key`, and by another transaction on the other item.
fn refused_in_part(key: &Key, value: &str) -> Fault {
    let item = json!({ "pk": { "S": key.as_str() }, "sk": { "S": "value" }, "v": { "S": value } });
    let body = json!({
        "__type": "com.amazonaws.dynamodb.v20120810#TransactionCanceledException",
        "Message": "Transaction cancelled",
        "CancellationReasons": [
            { "Code": "ConditionalCheckFailed", "Item": item },
            { "Code": "TransactionConflict" }
        ],
    });
    Fault::Status(400, body.to_string())
}

#[tokio::test]
async fn a_refusal_in_part_after_a_lost_reply_is_completed_on_dynamodb() {
    let Lossy { store, direct, server: (_dynamo, proxy) } = lossy_dynamodb().await;
    let names = Names::new();
    let (balance, marker) = (names.key("balance"), names.key("marker"));
    let put = Batch::new().put(&balance, Expect::Absent, "100", HOUR);
    assert!(matches!(direct.commit(&put).await, Ok(Commit::Applied(_))));
    let pay = Batch::new().put(&balance, Expect::Is("100".to_owned()), "20", HOUR);
    let pay = pay.put(&marker, Expect::Absent, "mine", HOUR);
    proxy.inject_next(vec![Fault::DropReply, refused_in_part(&balance, "20")]);
    match store.commit(&pay).await {
        Ok(Commit::Refused(refusal)) => {
            assert_eq!(refusal.get(&balance), Some(Found::Text("20")));
            assert_eq!(refusal.get(&marker), Some(Found::Text("mine")), "it was applied");
        }
        answer => panic!("{answer:?}"),
    }
}

#[tokio::test]
async fn an_edit_that_was_applied_is_not_reported_as_given_up_on_dynamodb() {
    let Lossy { store, direct, server: (_dynamo, proxy) } = lossy_dynamodb().await;
    let names = Names::new();
    let (balance, id) = (names.key("balance"), format!("{names:?}"));
    let put = Batch::new().put(&balance, Expect::Absent, "100", HOUR);
    assert!(matches!(direct.commit(&put).await, Ok(Commit::Applied(_))));
    let pay = |there: &Values| {
        let left = there.get(&balance).and_then(|text| text.parse::<u32>().ok()).unwrap_or(0);
        let left = left.checked_sub(80).ok_or("not enough money")?;
        Ok::<_, &str>((Batch::new().put(&balance, there.expect(&balance), left.to_string(), HOUR), left))
    };
    // The claim, the read, the payment, and its second send.
    let pass = || Fault::Delay(Duration::ZERO);
    proxy.inject_next(vec![pass(), pass(), Fault::DropReply, refused_in_part(&balance, "20")]);
    let idem = Idempotency::new(Arc::clone(&store));
    let paid = idem.edit(&id, Edit::of(&balance), pay).await;
    assert_eq!(paid.unwrap(), 20);
    assert_eq!(direct.get(&balance).await.unwrap().as_deref(), Some("20"));
}
