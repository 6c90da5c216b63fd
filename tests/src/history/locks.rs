//! What a client does to the locks that all clients share.

use std::time::Duration;

use onetap_idem::{ClaimOutcome, RecordOutcome};
use onetap_store::lease::{self, AcquireOutcome, ReleaseOutcome, RenewOutcome};
use onetap_store::{Batch, Commit, Edit, Error, Expect, Found, Key, Lease, Read, Round, Values, edit};
use tokio::time::sleep;

use super::check::number;
use super::client::{Client, TTL_BEYOND_RUN};
use super::event::{Answer, Call, Change, Expected, Layer};
use super::journal::CallId;

impl Client {
    /// Acquires a lock, works under it, sometimes for longer than its lease, and usually releases it.
    pub(super) async fn lock(&mut self) {
        let lock = self.key("lock", 2);
        let data = data_of(&lock);
        let ttl = self.plan.lease;
        let call_id = self.begin_acquire(&lock);
        let mut lease = match lease::Acquire::new(self.store.clone(), lock.clone()).ttl(ttl).acquire().await {
            Ok(AcquireOutcome::Acquired(lease)) => lease,
            Ok(AcquireOutcome::Held { .. }) => {
                return self.journal.answer(call_id, Answer::Nothing("held".to_owned()));
            }
            Err(error) => return self.journal.answer(call_id, (&error).into()),
        };
        let token = token(&lease);
        self.journal.answer(call_id, Answer::Acquired(token.clone()));
        for _ in 0..=self.seed.below(3) {
            let long = self.seed.percent(15);
            let work = self.seed.up_to(if long { ttl * 2 } else { ttl / 4 });
            sleep(work).await;
            if self.seed.percent(40) {
                self.renew(&mut lease, &lock, &token).await;
            } else {
                self.write_under(&lease, &lock, &token, &data).await;
            }
        }
        if self.seed.percent(80) {
            self.release(lease, &lock, &token).await;
        }
    }

    /// Claims a key and acquires a lock in one round trip, works, then records the result and releases the lock in another,
    /// sometimes after a minimum hold. Nothing is sent again.
    pub(super) async fn visit(&mut self) {
        let (key, lock, value) = (self.name("visit", 3), self.key("gate", 2), self.unique());
        let execute = self.journal.call(Layer::Api, Call::Execute { key: key.clone(), counter: None });
        let acquire = self.begin_acquire(&lock);
        let claim = self.idem.call(&key).claim().expect("a short key");
        let request = lease::Acquire::new(self.store.clone(), lock.clone()).ttl(self.plan.lease);
        let mut round = Round::new();
        let (claimed, locked) = match self.seed.percent(50) {
            true => (round.add_likely(claim), round.add_likely(request)),
            false => (round.add(claim), round.add(request)),
        };
        // The recorder around the store writes down what it brings.
        let _data = round.add(Read::new(data_of(&self.key("lock", 2))));
        let mut answers = round.send(&*self.store).await;
        let lease = match answers.take(locked) {
            Ok(AcquireOutcome::Acquired(lease)) => {
                self.journal.answer(acquire, Answer::Acquired(token(&lease)));
                Some(lease)
            }
            Ok(AcquireOutcome::Held { .. }) => {
                self.journal.answer(acquire, Answer::Nothing("held".to_owned()));
                None
            }
            Err(error) => {
                self.journal.answer(acquire, (&error).into());
                None
            }
        };
        let claimed = answers.take(claimed);
        let work = self.work();
        sleep(work).await;

        let hold = self.seed.up_to(self.plan.lease);
        let hold = if self.seed.percent(50) { hold } else { Duration::ZERO };
        let mut round = Round::new();
        let release = lease.map(|lease| {
            let batch = lease.release_batch_after(hold);
            let call_id = self.journal.call(Layer::Api, Call::Commit(Change::of(&batch)));
            (round.add(batch), call_id)
        });
        let recorded = match &claimed {
            Ok(ClaimOutcome::Mine(run)) if release.is_some() => {
                Some((round.add(run.commit_batch(&value)), run))
            }
            Ok(ClaimOutcome::Mine(run) | ClaimOutcome::Late(run)) => {
                let _ = round.add(run.abandon_batch());
                None
            }
            _ => None,
        };
        let mut answers = round.send(&*self.store).await;
        if let Some((ticket, call_id)) = release {
            self.journal.answer(call_id, released(&lock, &answers.take(ticket)));
        }
        let result = match (recorded, claimed.as_ref()) {
            (Some((ticket, run)), _) => match answers.take(ticket).map(|answer| run.committed(answer)) {
                Ok(RecordOutcome::Recorded) => Answer::Result(value),
                _ => Answer::Nothing("not recorded".to_owned()),
            },
            (None, Ok(ClaimOutcome::Done(done))) => {
                done.value().map_or(Answer::Nothing("unreadable".to_owned()), Answer::Result)
            }
            _ => Answer::Nothing("not claimed".to_owned()),
        };
        self.journal.answer(execute, result);
    }

    fn begin_acquire(&self, lock: &Key) -> CallId {
        let ttl = u64::try_from(self.plan.lease.as_millis()).unwrap_or(0);
        self.journal.call(Layer::Api, Call::Acquire { key: lock.as_str().to_owned(), ttl })
    }

    async fn renew(&self, lease: &mut Lease, lock: &Key, token: &str) {
        let ttl = u64::try_from(self.plan.lease.as_millis()).ok();
        let (key, value) = (lock.as_str().to_owned(), Some(token.to_owned()));
        let intended = Change::Put { key: key.clone(), expect: Expected::Is(token.to_owned()), value, ttl };
        let call_id = self.journal.call(Layer::Api, Call::Commit(vec![intended]));
        let answer = match lease.renew().await {
            Ok(RenewOutcome::Renewed) => Answer::Applied(Vec::new()),
            Ok(RenewOutcome::Lapsed) => Answer::Refused(vec![(key, None)]),
            Ok(_) => Answer::Refused(Vec::new()),
            Err(error) => (&error).into(),
        };
        self.journal.answer(call_id, answer);
    }

    /// Edits data that only the holder may write. It does not check whether it still holds the lock: the batch has the
    /// lock's token as a fencing token, and the store must refuse it. Each step that the edit takes is a call of its own.
    async fn write_under(&mut self, lease: &Lease, lock: &Key, token: &str, data: &Key) {
        let (store, journal) = (self.store.clone(), self.journal.clone());
        let mut step_taken: Option<CallId> = None;
        let step = |there: &Values| {
            if let Some(refused) = step_taken.take() {
                journal.answer(refused, Answer::Refused(Vec::new()));
            }
            let value = format!("{} {}", number(there.get(data)) + 1, self.unique());
            let writes = Batch::new().put(data, there.expect(data), value, TTL_BEYOND_RUN);
            let check =
                Change::Check { key: lock.as_str().to_owned(), expect: Expected::Is(token.to_owned()) };
            let intended = [check].into_iter().chain(Change::of(&writes)).collect();
            step_taken = Some(journal.call(Layer::Api, Call::Commit(intended)));
            Ok::<_, Error>((writes, ()))
        };
        let answer = match Edit::of(data).guarded_by(lease).apply(&*store, step).await {
            Ok(()) => Answer::Applied(Vec::new()),
            Err(edit::Error::Unwritten(error)) => (&error).into(),
            Err(_) => Answer::Refused(Vec::new()),
        };
        if let Some(call_id) = step_taken {
            self.journal.answer(call_id, answer);
        }
    }

    async fn release(&self, lease: Lease, lock: &Key, token: &str) {
        let expect = Expected::AbsentOr(token.to_owned());
        let intended = Change::Delete { key: lock.as_str().to_owned(), expect };
        let call_id = self.journal.call(Layer::Api, Call::Commit(vec![intended]));
        let answer = match lease.release().await {
            Ok(ReleaseOutcome::Released) => Answer::Applied(Vec::new()),
            // Somebody else holds it. Either the lease expired, or our release was applied and its answer was lost: the
            // answer does not tell.
            Ok(ReleaseOutcome::Outlasted) => Answer::Unknown,
            Err(error) => (&error).into(),
        };
        self.journal.answer(call_id, answer);
    }
}

/// The key of the data that belongs to a lock.
fn data_of(lock: &Key) -> Key {
    Key::new(lock.as_str().replacen("/lock/", "/data/", 1)).expect("a short name")
}

/// The token of a lease. Only its batches contain it.
fn token(lease: &Lease) -> String {
    let batch = lease.release_batch();
    match batch.expectations().next() {
        Some((_, Expect::Is(token))) => token.clone(),
        _ => panic!("a release expects its token"),
    }
}

/// What the store's answer to a release means. If somebody else holds the lock, the answer does not tell whether the lease
/// expired, or the release was applied by a send whose reply was lost.
fn released(lock: &Key, answer: &Result<Commit, Error>) -> Answer {
    match answer {
        Ok(Commit::Refused(refusal)) if refusal.get(lock) != Some(Found::Nothing) => Answer::Unknown,
        answer => answer.into(),
    }
}
