//! A table of stages other than the default, on every backend.

use crate::support;

use std::sync::Arc;
use std::time::Duration;

use onetap_bus::{Bus, Config, Error, Event, Follower, Published, Resume, Stages};
use onetap_store::testing::{Fault, Gate, TestStore};
use onetap_store::{Batch, Commit, Position, Record, Store};
use support::{TOKENS, World, event_text, on_every_backend};
use tokio::time::timeout;

on_every_backend! {
    tokens_are_told_and_leave_the_state_alone
    a_client_resumes_without_reading_the_log_again
    a_job_whose_end_leaves_the_state_alone_is_over
    a_job_with_many_numbers_that_end_it_is_over
    a_job_that_runs_again_after_its_log_has_expired_is_told_to_its_new_end
    a_running_job_outlives_a_change_of_the_table
    a_resume_at_the_edge_of_a_page_is_told_the_rest
    numbers_from_0_to_2_to_the_53_are_exact
}

/// A bus with another table, and the events of one job.
struct Job {
    world: World,
    bus: Bus,
}

impl Job {
    fn new(world: World, stages: &str) -> Job {
        let stages = Stages::from_json(stages).unwrap();
        let bus = Bus::new(world.store.clone(), Config { stages, ..world.config.clone() });
        Job { world, bus }
    }

    fn event(&self, stage: &str, seq: u64) -> Event {
        Event::parse(event_text(&self.world.job("a"), stage, seq, r#""字""#), self.bus.stages()).unwrap()
    }

    async fn publish(&self, events: &[Event]) {
        for outcome in self.bus.publish_each(events).await {
            assert!(matches!(outcome, Ok(Published::New(_))), "{outcome:?}");
        }
    }

    async fn tokens(&self, count: u64) -> Vec<Event> {
        let tokens: Vec<Event> = (1000..1000 + count).map(|seq| self.event("token", seq)).collect();
        for ten in tokens.chunks(10) {
            self.publish(ten).await;
        }
        tokens
    }

    async fn state_seq(&self) -> Option<u64> {
        let state = self.world.job("a").state(&*self.world.store).await.unwrap()?;
        serde_json::from_str::<serde_json::Value>(&state).unwrap()["seq"].as_u64()
    }

    async fn follow(&self, after: Option<Position>) -> Follower {
        self.follow_on(self.world.store.clone(), after).await
    }

    async fn follow_on(&self, store: Arc<dyn Store>, after: Option<Position>) -> Follower {
        let resume = Resume { after, last_seq: None };
        Follower::start(store, self.bus.stages().clone(), self.world.job("a"), resume).await.unwrap()
    }

    async fn records(&self) -> Vec<Record> {
        self.world.read(&self.world.log("a")).await
    }
}

async fn rest(follower: &mut Follower) -> Vec<Record> {
    let mut told = Vec::new();
    while let Some(record) = timeout(Duration::from_secs(20), follower.next()).await.unwrap().unwrap() {
        told.push(record);
    }
    told
}

async fn tokens_are_told_and_leave_the_state_alone(world: World) {
    let job = Job::new(world, TOKENS);
    job.tokens(1).await;
    assert_eq!(job.state_seq().await, None);
    job.publish(&[job.event("plan", 3)]).await;
    let token = job.event("token", 1001);
    job.publish(std::slice::from_ref(&token)).await;
    assert!(matches!(job.bus.publish(&token).await, Ok(Published::Duplicate(Some(_)))));
    assert_eq!(job.state_seq().await, Some(3));
    let mut follower = job.follow(None).await;
    job.publish(&[job.event("done", 12)]).await;
    assert_eq!(job.state_seq().await, Some(12));
    let told: Vec<u64> = rest(&mut follower)
        .await
        .iter()
        .map(|record| {
            serde_json::from_str::<serde_json::Value>(&record.text).unwrap()["seq"].as_u64().unwrap()
        })
        .collect();
    assert_eq!(told, [1000, 3, 1001, 12]);
}

async fn a_client_resumes_without_reading_the_log_again(world: World) {
    let job = Job::new(world, TOKENS);
    job.tokens(230).await;
    let records = job.records().await;
    let store = TestStore::counting(job.world.store.clone());
    let last = records[220].position;
    let mut follower = job.follow_on(store.clone(), Some(last)).await;
    assert!(!follower.has_gap() && !follower.is_over());
    assert_eq!(store.calls(), 2, "the log after its last event, and whether the job has ended");
    job.publish(&[job.event("done", 12)]).await;
    let told = rest(&mut follower).await;
    assert_eq!(told[..9], records[221..]);
    assert_eq!(told.len(), 10);
    assert!(job.follow(Some(told[9].position)).await.is_over());

    // An event that the end has overtaken: the client's last event does not tell that the job has ended.
    job.publish(&[job.event("token", 5000)]).await;
    let late = rest(&mut job.follow(Some(told[9].position)).await).await;
    let store = TestStore::counting(job.world.store.clone());
    assert!(job.follow_on(store.clone(), Some(late[0].position)).await.is_over());
    assert_eq!(store.calls(), 3 + 3, "and once more after the marker was seen, and the log to its end");
}

async fn a_job_whose_end_leaves_the_state_alone_is_over(world: World) {
    let silent = r#"[{"stage":"token","first":0,"last":99,"state":false},
        {"stage":"done","first":100,"last":109,"ends":100,"state":false}]"#;
    let job = Job::new(world, silent);
    job.publish(&[job.event("token", 0), job.event("done", 100), job.event("token", 1)]).await;
    let told = rest(&mut job.follow(None).await).await;
    assert_eq!(told.len(), 3);
    assert!(job.follow(Some(told[2].position)).await.is_over());
    assert_eq!(job.state_seq().await, None);
}

async fn a_job_with_many_numbers_that_end_it_is_over(world: World) {
    let many = r#"[{"stage":"*","first":0,"last":99},{"stage":"done","first":100,"last":9999,"ends":150}]"#;
    let job = Job::new(world, many);
    job.publish(&[job.event("any", 0)]).await;
    let position = job.records().await[0].position;
    assert!(!job.follow(Some(position)).await.is_over());
    job.publish(&[job.event("done", 8000), job.event("other", 1)]).await;
    let last = job.records().await[2].position;
    assert!(job.follow(Some(last)).await.is_over());
}

async fn a_job_that_runs_again_after_its_log_has_expired_is_told_to_its_new_end(world: World) {
    let job = Job::new(world, TOKENS);
    job.publish(&[job.event("plan", 0), job.event("done", 12)]).await;
    // The markers of the deployed stack outlive the log by weeks.
    let expired = job.world.store.commit(&Batch::new().clear(&job.world.log("a"))).await;
    assert!(matches!(expired, Ok(Commit::Applied(_))), "{expired:?}");
    job.publish(&[job.event("plan", 1)]).await;
    let last = job.records().await[0].position;
    let mut follower = job.follow(Some(last)).await;
    assert!(!follower.is_over() && !follower.has_gap());
    job.publish(&[job.event("plan", 2), job.event("done", 13)]).await;
    assert_eq!(rest(&mut follower).await, job.records().await[1..]);
}

async fn a_running_job_outlives_a_change_of_the_table(world: World) {
    let before = Job::new(world, TOKENS);
    before.publish(&[before.event("plan", 0), before.event("token", 1000)]).await;
    let after =
        r#"[{"stage":"step","first":0,"last":9},{"stage":"done","first":1000,"last":1009,"ends":1000}]"#;
    let job = Job::new(before.world, after);
    let last = job.records().await[1].position;
    assert!(!job.follow(Some(last)).await.is_over(), "1000 was no end when it was published");
    let taken = job.bus.publish(&job.event("step", 0)).await;
    assert!(matches!(taken, Err(Error::SeqTaken)), "it is told, not lost as a duplicate");
    job.publish(&[job.event("step", 1), job.event("done", 1001)]).await;
    assert_eq!(rest(&mut job.follow(Some(last)).await).await, job.records().await[2..]);
}

async fn a_resume_at_the_edge_of_a_page_is_told_the_rest(world: World) {
    let job = Job::new(world, TOKENS);
    job.tokens(210).await;
    job.publish(&[job.event("done", 12)]).await;
    let records = job.records().await;
    for left in [0, 1, 98, 99, 100, 101, 198, 199, 200] {
        let seen = records.len() - left;
        let mut follower = job.follow(Some(records[seen - 1].position)).await;
        assert_eq!(follower.is_over(), left == 0);
        assert_eq!(rest(&mut follower).await, records[seen..], "{left}");
    }
}

async fn numbers_from_0_to_2_to_the_53_are_exact(world: World) {
    let (before, end) = (u64::pow(2, 53) - 1, u64::pow(2, 53));
    let widest = format!(
        r#"[{{"stage":"*","first":0,"last":{}}},{{"stage":"end","first":{before},"last":{end},"ends":{end}}}]"#,
        before - 1
    );
    let job = Job::new(world, &widest);
    for (stage, seq, state, over) in [
        ("any", 0, 0, false),
        ("any", before - 1, before - 1, false),
        ("end", end, end, true),
        ("end", before, end, true),
    ] {
        job.publish(&[job.event(stage, seq)]).await;
        assert_eq!(job.state_seq().await, Some(state));
        let last = job.records().await.last().unwrap().position;
        assert_eq!(job.follow(Some(last)).await.is_over(), over, "{seq}");
    }
}

#[tokio::test]
async fn an_end_that_comes_while_a_client_resumes_is_told() {
    let job = Job::new(World::memory().await, TOKENS);
    job.tokens(3).await;
    let last = job.records().await[2].position;
    // The log is read before the end is published, its marker after it.
    let (read, marker) = (Gate::new(), Gate::new());
    let faults = vec![Fault::HeldAfter(read.clone()), Fault::HeldBefore(marker.clone())];
    let store = TestStore::first(job.world.store.clone(), faults);
    let end = async {
        read.reached().await;
        marker.reached().await;
        job.publish(&[job.event("done", 12)]).await;
        read.open();
        marker.open();
    };
    let (mut follower, ()) = tokio::join!(job.follow_on(store, Some(last)), end);
    assert!(!follower.is_over());
    assert_eq!(rest(&mut follower).await.len(), 1);
}
