//! What Upstash bills: every command, those inside a script too. The server counts them.

use crate::support;

use std::sync::Arc;
use std::time::Duration;

use onetap_servers::{Fault, Redis, Upstash};
use onetap_store::testing::conformance::Names;
use onetap_store::{Batch, Commit, Error, ErrorKind, Expect, Keep, Key, Store};
use support::PATIENT;

const HOUR: Duration = Duration::from_secs(3600);

struct Billed {
    redis: Redis,
    gateway: Upstash,
    store: Arc<dyn Store>,
    names: Names,
}

impl Billed {
    /// A database that knows the script.
    async fn open() -> Billed {
        let redis = Redis::start().await;
        let gateway = Upstash::start(&redis.url()).await;
        let store = support::store(&support::upstash(gateway.url(), gateway.token(), PATIENT));
        let names = Names::new();
        store.get(&names.key("k")).await.unwrap();
        Billed { redis, gateway, store, names }
    }

    fn claim(&self, name: &str, owner: &str) -> Batch {
        Batch::new().put(&self.names.key(name), Expect::Absent, owner, HOUR)
    }

    /// The answers to `batches`, and how many requests and commands they cost.
    async fn cost(&self, batches: &[Batch]) -> (Vec<Result<Commit, Error>>, (usize, u64)) {
        let (requests, commands) = (self.gateway.requests(), self.redis.commands().await);
        let answers = self.store.commit_each(batches).await;
        let cost = (self.gateway.requests() - requests, self.redis.commands().await - commands);
        (answers, cost)
    }
}

fn applied(answer: &Result<Commit, Error>) -> bool {
    matches!(answer, Ok(Commit::Applied(_)))
}

/// The value that refused the batch.
fn refused_by(answer: &Result<Commit, Error>) -> Option<&str> {
    match answer {
        Ok(Commit::Refused(refusal)) => refusal.iter().next().and_then(|(_, there)| there.text()),
        _ => None,
    }
}

#[tokio::test]
#[ignore = "needs redis-server"]
async fn a_likely_put_costs_one_command_and_where_it_is_refused_one_round_trip_more() {
    let billed = Billed::open().await;
    let round = [billed.claim("claim", "mine").likely(), billed.claim("lock", "mine").likely()];
    let (answers, cost) = billed.cost(&round).await;
    assert!(answers.iter().all(applied), "{answers:?}");
    assert_eq!(cost, (1, 2), "SET, SET");
    let round = [billed.claim("claim", "other").likely(), billed.claim("new", "other").likely()];
    let (answers, cost) = billed.cost(&round).await;
    assert_eq!((refused_by(&answers[0]), applied(&answers[1])), (Some("mine"), true), "{answers:?}");
    assert_eq!(cost, (2, 5), "SET, SET; EVALSHA, SET, GET");
}

#[tokio::test]
#[ignore = "needs redis-server"]
async fn a_likely_put_lives_as_long_as_it_says() {
    let billed = Billed::open().await;
    let forever =
        Batch::new().put(&billed.names.key("forever"), Expect::Absent, "1", onetap_store::Ttl::Forever);
    assert!(billed.cost(&[forever.likely(), billed.claim("hour", "1").likely()]).await.0.iter().all(applied));
    let client = redis::Client::open(billed.redis.url()).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let mut left = async |name: &str| -> i64 {
        let key = billed.names.key(name);
        redis::cmd("PTTL").arg(key.as_str()).query_async(&mut connection).await.unwrap()
    };
    assert_eq!(left("forever").await, -1);
    assert!((3_000_000..=3_600_000).contains(&left("hour").await));
}

#[tokio::test]
#[ignore = "needs redis-server"]
async fn the_batches_of_a_round_share_one_call_of_the_script() {
    let billed = Billed::open().await;
    let (answers, cost) = billed.cost(&[billed.claim("marker", "1"), billed.claim("lock", "1")]).await;
    assert!(answers.iter().all(applied), "{answers:?}");
    assert_eq!(cost, (1, 3), "EVALSHA, SET, SET");
    let [marker, lock] = ["marker", "lock"].map(|name| billed.names.key(name));
    let end =
        [Batch::new().put(&marker, Expect::AbsentOr("1".into()), "2", HOUR), Batch::new().delete(&lock, "1")];
    let (answers, cost) = billed.cost(&end).await;
    assert!(answers.iter().all(applied), "{answers:?}");
    assert_eq!(cost, (1, 4), "EVALSHA, MGET, SET, DEL");
    let many: Vec<Batch> = (0..120).map(|n| billed.claim(&n.to_string(), "1")).collect();
    let (answers, cost) = billed.cost(&many).await;
    assert!(answers.iter().all(applied), "{answers:?}");
    assert_eq!(cost, (1, 120 + 3), "no call is long");
}

#[tokio::test]
#[ignore = "needs redis-server"]
async fn a_likely_put_between_others_does_not_divide_their_call() {
    let billed = Billed::open().await;
    let round = [billed.claim("a", "1"), billed.claim("b", "1").likely(), billed.claim("c", "1")];
    let (answers, cost) = billed.cost(&round).await;
    assert!(answers.iter().all(applied), "{answers:?}");
    assert_eq!(cost, (1, 4), "SET; EVALSHA, SET, SET");
}

#[tokio::test]
#[ignore = "needs redis-server"]
async fn the_values_of_all_batches_of_a_call_are_read_once() {
    let billed = Billed::open().await;
    let (key, log) = (billed.names.key("key"), billed.names.log("log"));
    let counted = |n: u32| {
        let expect = if n == 0 { Expect::Absent } else { Expect::Is(n.to_string()) };
        let marker = billed.names.key(&format!("marker-{n}"));
        Batch::new()
            .put(&marker, Expect::Absent, "1", HOUR)
            .put(&key, expect, (n + 1).to_string(), HOUR)
            .append(&log, n.to_string(), Keep::all_for(HOUR))
    };
    let (answers, cost) = billed.cost(&(0..10).map(counted).collect::<Vec<_>>()).await;
    assert!(answers.iter().all(applied), "{answers:?}");
    assert_eq!(cost, (1, 3 + 10 * 4), "EVALSHA, MGET, EXISTS; each SET, SET, XADD, PEXPIRE");
    assert_eq!(billed.store.get(&key).await.unwrap().as_deref(), Some("10"));
}

#[tokio::test]
#[ignore = "needs redis-server"]
async fn a_batch_sees_what_the_batches_before_it_in_its_call_have_written() {
    let billed = Billed::open().await;
    let [key, name] = ["key", "name"].map(|name| billed.names.key(name));
    let log = onetap_store::Log::new(name.as_str()).unwrap();
    let put = |expect: Expect, new: &str| Batch::new().put(&key, expect, new, HOUR);
    let append = || Batch::new().append(&log, "1", Keep::all_for(HOUR));
    let text = || Batch::new().put(&name, Expect::Absent, "text", HOUR);
    let (answers, _) = billed
        .cost(&[
            put(Expect::Absent, "a"),
            put(Expect::Absent, "b"),
            put(Expect::Is("a".into()), "c"),
            Batch::new().delete(&key, "c"),
            put(Expect::Is("c".into()), "d"),
            put(Expect::Absent, "e"),
            append(),
            text(),
            Batch::new().clear(&log),
            text(),
            append(),
        ])
        .await;
    let seen: Vec<_> = answers
        .iter()
        .map(|answer| match answer {
            Ok(Commit::Applied(_)) => "applied".to_owned(),
            Ok(Commit::Refused(_)) => format!("refused by {:?}", refused_by(answer)),
            Err(error) if error.kind() == ErrorKind::Decode => "of another type".to_owned(),
            Err(error) => format!("{error:?}"),
        })
        .collect();
    let refused = |by: Option<&str>| format!("refused by {by:?}");
    let expected = ["applied", &refused(Some("a")), "applied", "applied", &refused(None), "applied"];
    let of_another_type = ["applied", "of another type", "applied", "applied", "of another type"];
    assert_eq!(seen, [&expected[..], &of_another_type].concat());
    assert_eq!(billed.store.get(&key).await.unwrap().as_deref(), Some("e"));
    assert_eq!(billed.store.get(&name).await.unwrap().as_deref(), Some("text"));
}

#[tokio::test]
#[ignore = "needs redis-server"]
async fn an_append_costs_what_it_always_does_also_while_the_log_has_a_mark_of_its_clear() {
    let billed = Billed::open().await;
    let log = billed.names.log("log");
    let append = || Batch::new().append(&log, "1", Keep::all_for(HOUR));
    let (answers, cost) = billed.cost(&[append()]).await;
    assert!(answers.iter().all(applied), "{answers:?}");
    assert_eq!(cost, (1, 4), "EVALSHA, MGET of the mark, XADD, PEXPIRE");
    let (answers, cost) = billed.cost(&[Batch::new().clear(&log)]).await;
    assert!(answers.iter().all(applied), "{answers:?}");
    assert_eq!(cost, (1, 4), "EVALSHA, XREVRANGE, DEL, SET of the mark");
    // The clock goes on, so that the new life does not begin in the millisecond of the last record.
    tokio::time::sleep(Duration::from_millis(5)).await;
    for _ in 0..2 {
        let (answers, cost) = billed.cost(&[append()]).await;
        assert!(answers.iter().all(applied), "{answers:?}");
        assert_eq!(cost, (1, 4), "EVALSHA, MGET of the mark, XADD, PEXPIRE");
    }
}

#[tokio::test]
#[ignore = "needs redis-server"]
async fn the_values_of_a_batch_are_read_with_one_command_and_with_two_where_some_are_missing() {
    let billed = Billed::open().await;
    let keys: Vec<Key> = (0..5).map(|n| billed.names.key(&n.to_string())).collect();
    let absent = keys.iter().fold(Batch::new(), |batch, key| batch.put(key, Expect::Absent, "1", HOUR));
    let (answers, cost) = billed.cost(&[absent]).await;
    assert!(answers.iter().all(applied), "{answers:?}");
    assert_eq!(cost, (1, 3 + 5), "EVALSHA, MGET, EXISTS, five SET");
    let there = |batch: Batch, key| batch.check(key, Expect::Is("1".into()));
    let (answers, cost) = billed.cost(&[keys.iter().fold(Batch::new(), there)]).await;
    assert!(answers.iter().all(applied), "{answers:?}");
    assert_eq!(cost, (1, 2), "EVALSHA, MGET");
}

#[tokio::test]
#[ignore = "needs redis-server"]
async fn a_read_among_the_requests_of_a_round_costs_one_command() {
    let billed = Billed::open().await;
    assert!(applied(&billed.store.commit(&billed.claim("profile", "home")).await));
    let read = |name: &str| onetap_store::Request::batch(&onetap_store::Read::new(billed.names.key(name)));
    let round =
        [billed.claim("claim", "mine").likely(), billed.claim("lock", "mine").likely(), read("profile")];
    let (answers, cost) = billed.cost(&round).await;
    assert!(applied(&answers[0]) && applied(&answers[1]), "{answers:?}");
    assert_eq!((refused_by(&answers[2]), cost), (Some("home"), (1, 3)), "SET, SET, GETEX");
    let log = onetap_store::Log::new(billed.names.key("log").as_str()).unwrap();
    let append = Batch::new().append(&log, "x", onetap_store::Keep::all_for(HOUR));
    assert!(applied(&billed.store.commit(&append).await));
    let (answers, cost) = billed.cost(&[read("log"), read("absent")]).await;
    assert!(answers[0].as_ref().is_err_and(|error| error.kind() == ErrorKind::Decode), "{answers:?}");
    assert!(applied(&answers[1]), "{answers:?}");
    assert_eq!(cost, (2, 5), "GETEX, GETEX; EVALSHA, GET, XLEN: a log is told from a value by the script");
}

#[tokio::test]
#[ignore = "needs redis-server"]
async fn one_or_two_values_cost_a_command_each_and_more_of_them_three() {
    let billed = Billed::open().await;
    let keys: Vec<Key> = (0..5).map(|n| billed.names.key(&n.to_string())).collect();
    assert!(applied(&billed.store.commit(&billed.claim("1", "one")).await));
    for (count, cost) in [(1, 1), (2, 2), (3, 3), (5, 3)] {
        let (requests, commands) = (billed.gateway.requests(), billed.redis.commands().await);
        let there = billed.store.get_all(&keys[..count]).await.unwrap();
        let values = (0..count).map(|n| (n == 1).then(|| "one".to_owned()));
        assert_eq!(there, values.collect::<Vec<_>>());
        let asked = (billed.gateway.requests() - requests, billed.redis.commands().await - commands);
        assert_eq!(asked, (1, cost), "GETEX each; EVALSHA, MGET, EXISTS");
    }
}

#[tokio::test]
#[ignore = "needs redis-server"]
async fn a_replica_answers_no_read_of_a_value() {
    let billed = Billed::open().await;
    assert!(applied(&billed.store.commit(&billed.claim("k", "old")).await));
    let client = redis::Client::open(billed.redis.url()).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    // A primary that never answers: the replica keeps what it has, and may be behind.
    redis::cmd("REPLICAOF").arg(&["127.0.0.1", "1"]).exec_async(&mut connection).await.unwrap();
    let error = billed.store.get(&billed.names.key("k")).await.unwrap_err();
    assert!(error.to_string().contains("READONLY"), "{error:?}");
}

#[tokio::test]
#[ignore = "needs redis-server"]
async fn an_append_to_an_existing_log_costs_one_command_and_any_other_three() {
    let billed = Billed::open().await;
    let (log, key) = (billed.names.log("log"), billed.names.key("key"));
    let first = Batch::new().append(&log, "1", Keep::all_for(HOUR));
    let (answers, cost) = billed.cost(std::slice::from_ref(&first)).await;
    assert!(answers.iter().all(applied), "{answers:?}");
    assert_eq!(cost, (1, 4), "EVALSHA, MGET, XADD, PEXPIRE");
    let (answers, cost) = billed.cost(&[Batch::new().append_to_existing(&log, "2")]).await;
    assert!(answers.iter().all(applied), "{answers:?}");
    assert_eq!(cost, (1, 2), "EVALSHA, XADD");
    assert!(applied(&billed.store.commit(&billed.claim("key", "old")).await));
    let swap = Batch::new().put(&key, Expect::Is("old".into()), "new", HOUR);
    let (answers, cost) = billed.cost(&[swap.clone().append_to_existing(&log, "3")]).await;
    assert!(answers.iter().all(applied), "{answers:?}");
    assert_eq!(cost, (1, 4), "EVALSHA, GET, XADD, SET");
    let (answers, cost) = billed.cost(&[Batch::new().clear(&log)]).await;
    assert!(answers.iter().all(applied), "{answers:?}");
    assert_eq!(cost, (1, 4), "EVALSHA, XREVRANGE, DEL, SET");
}

#[tokio::test]
#[ignore = "needs redis-server"]
async fn an_error_of_one_batch_in_a_call_is_its_own() {
    let billed = Billed::open().await;
    let names = &billed.names;
    let log = names.log("log");
    assert!(applied(&billed.store.commit(&Batch::new().append(&log, "1", Keep::about(5))).await));
    let wrong = Batch::new().put(&Key::new(log.as_str()).unwrap(), Expect::Absent, "text", HOUR);
    let two = wrong.clone().put(&names.key("never"), Expect::Absent, "1", HOUR);
    let (answers, (requests, _)) = billed
        .cost(&[billed.claim("a", "1"), wrong.clone(), two, billed.claim("b", "1"), wrong.likely()])
        .await;
    assert_eq!(
        answers.iter().map(applied).collect::<Vec<_>>(),
        [true, false, false, true, false],
        "{answers:?}"
    );
    for wrong in [&answers[1], &answers[2], &answers[4]] {
        assert!(wrong.as_ref().is_err_and(|error| error.kind() == ErrorKind::Decode), "{wrong:?}");
    }
    assert_eq!(requests, 1, "a key that several batches name goes through the script, likely or not");
    assert_eq!(billed.store.get(&names.key("never")).await.unwrap(), None);
    assert_eq!(billed.store.read(&log, None, 10).await.unwrap().len(), 1);
}

#[tokio::test]
#[ignore = "needs redis-server"]
async fn on_a_full_server_a_release_is_applied_beside_a_put_that_is_not() {
    let billed = Billed::open().await;
    assert!(applied(&billed.store.commit(&billed.claim("lock", "1")).await));
    let client = redis::Client::open(billed.redis.url()).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    redis::cmd("CONFIG").arg(&["SET", "maxmemory", "1"]).exec_async(&mut connection).await.unwrap();
    let release = Batch::new().delete(&billed.names.key("lock"), "1");
    let likely = billed.claim("likely", "1").likely();
    let (answers, _) = billed.cost(&[billed.claim("marker", "1"), likely, release]).await;
    for full in &answers[..2] {
        let full = full.as_ref().unwrap_err();
        assert!(full.to_string().contains("OOM") && !full.maybe_applied(), "{full:?}");
    }
    assert!(applied(&answers[2]), "{answers:?}");
}

#[tokio::test]
#[ignore = "needs redis-server"]
async fn a_likely_put_whose_reply_was_lost_recognises_itself() {
    let billed = Billed::open().await;
    billed.gateway.inject_next(vec![Fault::DropReply]);
    let answer = billed.store.commit(&billed.claim("lock", "mine").likely()).await;
    assert_eq!(refused_by(&answer), Some("mine"), "{answer:?}");
    // The connection breaks, and what follows fails for sure: it may be applied all the same.
    for failure in
        [Fault::Status(429, "slow down".into()), Fault::Status(400, r#"{"error":"OOM no"}"#.into())]
    {
        let lost = billed.claim(&format!("{failure:?}"), "mine").likely();
        billed.gateway.inject_next(vec![Fault::DropReply, Fault::Delay(Duration::ZERO), failure]);
        let error = billed.store.commit(&lost).await.unwrap_err();
        assert!(error.maybe_applied(), "{error:?}");
    }
}

#[tokio::test]
#[ignore = "needs redis-server"]
async fn a_call_of_several_batches_that_fails_for_no_known_reason_may_be_applied() {
    let billed = Billed::open().await;
    let unheard_of = || vec![Fault::Status(400, r#"{"error":"ERR unheard of"}"#.into())];
    billed.gateway.inject_next(unheard_of());
    let (answers, _) = billed.cost(&[billed.claim("a", "1"), billed.claim("b", "1")]).await;
    assert!(answers.iter().all(|answer| answer.as_ref().is_err_and(Error::maybe_applied)), "{answers:?}");
    billed.gateway.inject_next(unheard_of());
    let error = billed.store.commit(&billed.claim("a", "1")).await.unwrap_err();
    assert!(!error.maybe_applied(), "one batch is checked before its first write: {error:?}");
}

#[tokio::test]
#[ignore = "needs redis-server"]
async fn a_batch_that_must_not_be_sent_again_does_not_keep_the_others_of_its_round_from_it() {
    for fault in [Fault::Close, Fault::DropReply] {
        let billed = Billed::open().await;
        let [marker, lock, forecast] = ["marker", "lock", "forecast"].map(|name| billed.names.key(name));
        for (name, value) in [("marker", "claim"), ("lock", "token"), ("forecast", "old")] {
            assert!(applied(&billed.store.commit(&billed.claim(name, value)).await));
        }
        let round = [
            Batch::new().put(&marker, Expect::AbsentOr("claim".into()), "result", HOUR),
            Batch::new().put(&forecast, Expect::Is("old".into()), "new", HOUR),
            Batch::new().delete(&lock, "token").gone_is_success(),
        ];
        billed.gateway.inject_next(vec![fault.clone()]);
        let answers = billed.store.commit_each(&round).await;
        assert!(answers[1].as_ref().is_err_and(Error::maybe_applied), "{fault:?}: {answers:?}");
        assert!(answers[0].is_ok() && answers[2].is_ok(), "{fault:?}: {answers:?}");
        assert_eq!(billed.store.get(&marker).await.unwrap().as_deref(), Some("result"));
        assert_eq!(billed.store.get(&lock).await.unwrap(), None);
    }
}
