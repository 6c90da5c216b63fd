//! Batches that append to one log are one transaction on DynamoDB.

use crate::support;

use std::sync::Arc;
use std::time::Duration;

use onetap_servers::{Dynamo, Fault, Proxy, create_table};
use onetap_store::testing::conformance::Names;
use onetap_store::{Batch, Commit, Error, Expect, Keep, Key, Log, Store, Value};
use support::PATIENT;

const HOUR: Duration = Duration::from_secs(3600);
const ONE_TRANSACTION: [&str; 2] = ["BatchGetItem", "TransactWriteItems"];

struct Stage {
    store: Arc<dyn Store>,
    proxy: Proxy,
    names: Names,
    _server: Dynamo,
}

impl Stage {
    async fn set() -> Stage {
        let server = Dynamo::start().await;
        create_table(&server.url(), "onetap").await;
        let proxy = Proxy::start(&server.url()).await;
        let store = support::store(&support::dynamodb(proxy.url(), PATIENT));
        Stage { store, proxy, names: Names::new(), _server: server }
    }

    fn log(&self) -> Log {
        self.names.log("log")
    }

    fn marker(&self, seq: u64) -> Key {
        self.names.key(&format!("marker-{seq}"))
    }

    /// An event: a marker with its position, a record, and the state.
    fn event(&self, seq: u64) -> Batch {
        let text = format!(r#"{{"seq":{seq}}}"#);
        Batch::new()
            .put(&self.marker(seq), Expect::Absent, Value::PositionOf(0), HOUR)
            .append(&self.log(), text.clone(), Keep::all_for(HOUR))
            .put_if_newer(&self.names.key("state"), seq, text, HOUR)
            .publish(&self.names.channel("channel"), "event")
    }

    fn events(&self, seqs: impl IntoIterator<Item = u64>) -> Vec<Batch> {
        seqs.into_iter().map(|seq| self.event(seq)).collect()
    }

    /// Commits these, and returns which were applied.
    async fn commit_each(&self, batches: &[Batch]) -> Vec<bool> {
        let answers = self.store.commit_each(batches).await;
        answers
            .iter()
            .map(|answer| matches!(answer, Ok(Commit::Applied(positions)) if positions.len() == 1))
            .collect()
    }

    /// The sequence numbers in the log, each of which stands at the position in its marker; and the state.
    async fn written(&self) -> (Vec<u64>, Option<String>) {
        let mut seqs = Vec::new();
        for record in self.store.read(&self.log(), None, 1000).await.unwrap() {
            let seq: u64 = record.text[7..record.text.len() - 1].parse().unwrap();
            let marker = self.store.get(&self.marker(seq)).await.unwrap();
            assert_eq!(marker, Some(record.position.to_string()), "{seq}");
            seqs.push(seq);
        }
        (seqs, self.store.get(&self.names.key("state")).await.unwrap())
    }

    fn operations_after(&self, known: usize) -> Vec<String> {
        self.proxy.operations().split_off(known)
    }
}

#[tokio::test]
async fn ten_events_of_a_job_are_one_transaction() {
    let stage = Stage::set().await;
    let known = stage.proxy.requests();
    assert_eq!(stage.commit_each(&stage.events([3, 1, 10, 4, 5, 6, 7, 8, 9, 2])).await, [true; 10]);
    assert_eq!(stage.operations_after(known), ONE_TRANSACTION);
    let written = (vec![3, 1, 10, 4, 5, 6, 7, 8, 9, 2], Some(r#"{"seq":10}"#.to_owned()));
    assert_eq!(stage.written().await, written);
    let known = stage.proxy.requests();
    assert_eq!(stage.commit_each(&stage.events(11..41)).await, [true; 30]);
    assert_eq!(
        stage.operations_after(known),
        ONE_TRANSACTION.repeat(2),
        "sixteen of them are all that a batch can hold"
    );
}

#[tokio::test]
async fn one_that_is_refused_does_not_refuse_the_others() {
    let stage = Stage::set().await;
    assert_eq!(stage.commit_each(&stage.events([2])).await, [true]);
    assert_eq!(stage.commit_each(&stage.events([1, 2, 3])).await, [true, false, true]);
    assert_eq!(stage.written().await.0, [2, 1, 3]);
    assert_eq!(
        stage.commit_each(&stage.events([4, 5, 4, 6])).await,
        [true, true, false, true],
        "the same twice"
    );
    assert_eq!(stage.written().await.0, [2, 1, 3, 4, 5, 6]);
}

#[tokio::test]
async fn a_lost_reply_to_a_joined_transaction_doubles_nothing() {
    let stage = Stage::set().await;
    stage.proxy.inject_next(vec![Fault::Delay(Duration::ZERO), Fault::DropReply]);
    // The transaction is sent again, and refused by its own markers.
    assert_eq!(stage.commit_each(&stage.events([1, 2, 3])).await, [false; 3]);
    assert_eq!(stage.written().await.0, [1, 2, 3]);
}

#[tokio::test]
async fn what_was_joined_and_had_no_reply_is_unknown_if_it_cannot_be_asked_again() {
    let stage = Stage::set().await;
    let throttled = r#"{"__type":"com.amazonaws.dynamodb.v20120810#ThrottlingException","message":"no"}"#;
    let pass = || Fault::Delay(Duration::ZERO);
    // The read, the transaction, and the transaction again, which its own markers refuse; then each event by itself.
    stage.proxy.inject_next(vec![pass(), Fault::DropReply, pass()]);
    stage.proxy.inject(Some(Fault::Status(400, throttled.to_owned())));
    for answer in stage.store.commit_each(&stage.events([1, 2])).await {
        assert!(answer.as_ref().is_err_and(Error::maybe_applied), "{answer:?}");
    }
    stage.proxy.inject(None);
    assert_eq!(stage.written().await.0, [1, 2]);
}

#[tokio::test]
async fn large_events_are_split_over_transactions() {
    let stage = Stage::set().await;
    let large = "x".repeat(300 * 1024);
    let batches: Vec<Batch> = (0..20)
        .map(|n| {
            Batch::new().put(&stage.marker(n), Expect::Absent, "1", HOUR).append(
                &stage.log(),
                large.clone(),
                Keep::all_for(HOUR),
            )
        })
        .collect();
    let known = stage.proxy.requests();
    assert_eq!(stage.commit_each(&batches).await, [true; 20]);
    assert_eq!(stage.operations_after(known), ONE_TRANSACTION.repeat(2));
}

#[tokio::test]
async fn what_cannot_tell_its_own_writes_is_not_joined() {
    let stage = Stage::set().await;
    let append = |text: &str| Batch::new().append(&stage.log(), text, Keep::all_for(HOUR));
    let known = stage.proxy.requests();
    assert_eq!(stage.commit_each(&[append("1"), append("2")]).await, [true; 2]);
    assert_eq!(stage.operations_after(known), ONE_TRANSACTION.repeat(2));
}

#[tokio::test]
async fn what_is_rejected_by_itself_is_rejected_among_others() {
    let stage = Stage::set().await;
    let (text, keep) = (r#"{"seq":2}"#, Keep::all_for(HOUR));
    // Its position would be that of the next batch's record.
    let no_such_append = Batch::new()
        .put(&stage.marker(2), Expect::Absent, Value::PositionOf(1), HOUR)
        .append(&stage.log(), text, keep);
    // Its state would be left out for a newer one.
    let other_seq = Batch::new()
        .put(&stage.marker(2), Expect::Absent, Value::PositionOf(0), HOUR)
        .append(&stage.log(), text, keep)
        .put_if_newer(&stage.names.key("state"), 1, text, HOUR);
    let twice = stage.event(2).put_if_newer(&stage.names.key("state"), 1, r#"{"seq":1}"#, HOUR);
    for (n, invalid) in (0..).step_by(10).zip([no_such_append, other_seq, twice]) {
        let batches = [stage.event(n + 10), invalid, stage.event(n + 11), stage.event(n + 12)];
        assert_eq!(stage.commit_each(&batches).await, [true, false, true, true], "{n}");
        assert_eq!(stage.store.get(&stage.marker(2)).await.unwrap(), None, "{n}");
    }
    assert_eq!(stage.written().await.0, [10, 11, 12, 20, 21, 22, 30, 31, 32]);
}
